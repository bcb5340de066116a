"""Dynamic configuration as it is stored: one layer for a broker, and below it one for all brokers (KIP-226). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layers:
    """Dynamic values of one broker, and the cluster-wide defaults below them."""

    per_broker: Mapping[str, str]
    default: Mapping[str, str]

    def of(self, *, cluster_wide: bool) -> Mapping[str, str]:
        return self.default if cluster_wide else self.per_broker

    def replacing(self, values: Mapping[str, str], *, cluster_wide: bool) -> Layers:
        return Layers(self.per_broker, values) if cluster_wide else Layers(values, self.default)


NO_LAYERS = Layers({}, {})
