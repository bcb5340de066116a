"""What is known of the dynamic configuration beyond the snapshot: what came of the last writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ConfigKey = tuple[int | None, str]
"""A dynamic value by broker (None: of all brokers) and key."""


@dataclass(frozen=True, slots=True)
class ConfigWrites:
    """What came of the last writes of dynamic values.

    `refused`: with the value, and the brokers' error. `contested`: with the value, written several times without
    effect. `undone`: values that nobody declares, removed or replaced in this reconciliation.
    """

    refused: Mapping[tuple[int | None, str, str | None], str] = field(default_factory=dict)
    contested: frozenset[tuple[int | None, str, str | None]] = frozenset()
    undone: tuple[ConfigKey, ...] = ()
    no_answer: str = ""
    """Why the last writes of some are not answered, "" when all were."""


NO_CONFIG_WRITES = ConfigWrites()
