"""spec.rebalance: whether the operator moves replicas, how fast, and how many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ottla_documents.quantity import quantity_bytes
from ottla_documents.schema.marks import Amount, Named, WholeNumber

RebalanceMode = Literal["Auto", "DryRun", "Off"]


@dataclass(frozen=True, slots=True)
class RebalanceSpec:
    """How replicas are moved when brokers are added or removed, when a KafkaTopic gets more or fewer replicas, and when
    brokers have more or less than their share of replicas, bytes or leaders."""

    mode: RebalanceMode = "Auto"
    """Auto: replicas move by themselves. DryRun: status.rebalance shows the plan, and nothing moves. Off: nothing
    moves; brokers that are removed have to be emptied with kafka-reassign-partitions."""
    throttle: Annotated[str, Amount(takes_zero=True)] = "50Mi"
    """The bytes per second that each broker sends and gets for replicas that are moved, a quantity such as 50Mi; 0 for
    no limit. Below the rate of producers a replica never catches up."""
    most_partitions_per_batch: Annotated[int, WholeNumber(1, 1000), Named("maxPartitionsPerBatch")] = 20
    """How many partitions are moved at the same time; ten times as many of those that copy at most 1 MiB."""

    @property
    def bytes_per_second(self) -> int:
        return quantity_bytes(self.throttle)


DEFAULT_REBALANCE = RebalanceSpec()
