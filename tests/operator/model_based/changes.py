"""A KafkaCluster that is upgraded, and that may be restarted within maintenance windows only."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import rule

from ottla_operator.api import names
from ottla_operator.api.objects import KAFKA_CLUSTER, POD, annotation, dig, is_terminating, label
from tests.operator.model_based.clusters import OWN_ENSEMBLE, ClusterMachine
from tests.operator.model_based.invariants import condition_of

PARTITIONS = [("data", 0, (0, 1, 2)), ("data", 1, (1, 2, 0)), ("data", 2, (2, 0, 1))]
OFTEN = [{"schedule": "*/10 * * * *", "duration": "3m"}]
"""It opens so often that restarts meet it both open and closed."""
NEVER = [{"schedule": "0 0 30 2 *", "duration": "1h"}]
WINDOWS: tuple[Any, ...] = (None, OFTEN, [*NEVER, *OFTEN], [{"schedule": "at night", "duration": "1h"}])


def _upgraded() -> dict[str, Any]:
    document = copy.deepcopy(OWN_ENSEMBLE)
    document["spec"]["brokers"]["replicas"] = 3
    return document | {"spec": document["spec"] | {"version": "3.6", "maintenanceWindows": OFTEN}}


class ChangeMachine(ClusterMachine):
    """As a cluster, with releases of the protocol and windows."""

    document: ClassVar[dict[str, Any]] = _upgraded()
    begin_s: ClassVar[float] = 200.0

    def __init__(self) -> None:
        super().__init__()
        self.world.kafka.partitions = list(PARTITIONS)

    @rule(version=st.sampled_from(("3.6", "3.7", "3.9", None)))
    def another_protocol_is_declared(self, version: str | None) -> None:
        self.world.edit("spec.version", version)

    @rule(hours=st.sampled_from((5, 6, 7)), seconds=st.sampled_from((100.0, 300.0, 700.0)))
    def brokers_have_to_restart(self, hours: int, seconds: float) -> None:
        """Often enough that restarts meet closed windows."""
        self.world.edit("spec.brokers.config", {"log.retention.hours": hours})
        self.world.advance(seconds)

    @rule(windows=st.sampled_from(WINDOWS))
    def other_windows_are_declared(self, windows: Any) -> None:
        self.world.edit("spec.maintenanceWindows", windows)

    @rule(until=st.sampled_from(("2026-01-01T00:30:00Z", "2026-01-02T00:00:00Z", "2025-01-01T00:00:00Z", "soon")))
    def somebody_opens_a_window(self, until: str) -> None:
        document = self.world.cluster
        if document is not None and not is_terminating(document):
            annotations = {**(document["metadata"].get("annotations") or {}), names.MAINTENANCE_UNTIL: until}
            self.world.put({**document, "metadata": {**document["metadata"], "annotations": annotations}})

    def at_rest(self) -> None:
        """Without windows: while something waits for them each one that opens is in status; not of a paused cluster."""
        if not dig(self.world.cluster, "spec", "paused"):
            self.world.edit("spec.maintenanceWindows", None)
        super().at_rest()

    def violations(self) -> Iterator[str]:
        yield from super().violations()
        document = self.world.find(KAFKA_CLUSTER, "orders")
        if document is None or condition_of(document).get("status") != "True":
            return
        rolled, declared = condition_of(document, "Rolled"), dig(document, "spec", "version")
        if rolled.get("reason") in ("RaisesProtocol", "AwaitingWindow"):
            yield f"Rolled is {rolled['reason']} {rolled['message']}, at rest"
        if rolled.get("status") != "True" or declared is None:
            return
        for pod in self.world.all(POD):
            if label(pod, names.BROKER_ID) is not None and annotation(pod, names.PROTOCOL) != declared:
                yield f"{pod['metadata']['name']} runs with protocol {annotation(pod, names.PROTOCOL)}, not {declared}"
