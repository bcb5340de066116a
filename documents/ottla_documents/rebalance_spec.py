"""spec.rebalance: whether the operator moves replicas, how fast, and how many at a time.

Auto    replicas move where brokers are added or removed, and where brokers are outside of the tolerance
DryRun  the plan is shown in status, and nothing moves
Off     nothing moves, and no plan is made
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from ottla_documents.fields import Fields
from ottla_documents.quantity import quantity_bytes

RebalanceMode = Literal["Auto", "DryRun", "Off"]
REBALANCE_MODES: tuple[str, ...] = get_args(RebalanceMode)
DEFAULT_THROTTLE = "50Mi"
DEFAULT_PARTITIONS_PER_BATCH = 20
MOST_PARTITIONS_PER_BATCH = 1000


@dataclass(frozen=True, slots=True)
class RebalanceSpec:
    """`throttle`: bytes per second of each broker, in and out, as a quantity; "0" is none."""

    mode: RebalanceMode = "Auto"
    throttle: str = DEFAULT_THROTTLE
    most_partitions_per_batch: int = DEFAULT_PARTITIONS_PER_BATCH

    @property
    def bytes_per_second(self) -> int:
        return quantity_bytes(self.throttle)


DEFAULT_REBALANCE = RebalanceSpec()


def parse_rebalance(spec: Fields) -> RebalanceSpec:
    """Reads `rebalance` below spec.

    >>> problems = []
    >>> parse_rebalance(Fields({"rebalance": {"throttle": "10M"}}, "spec", problems)).bytes_per_second, problems
    (10000000, [])
    >>> parse_rebalance(Fields({"rebalance": {"throttle": "-1"}}, "spec", problems)).throttle, str(problems[0])
    ('50Mi', 'spec.rebalance.throttle: must not be less than nothing, not -1')
    """
    fields = spec.child("rebalance")
    throttle = DEFAULT_THROTTLE
    if fields.has("throttle"):
        value = fields.values["throttle"]
        try:
            if quantity_bytes(value) >= 0:
                throttle = str(value)
            else:
                fields.problem("throttle", f"must not be less than nothing, not {value}")
        except ValueError as error:
            fields.problem("throttle", str(error))
    found = RebalanceSpec(
        cast(RebalanceMode, fields.choice("mode", REBALANCE_MODES, "Auto")),
        throttle,
        fields.whole("maxPartitionsPerBatch", DEFAULT_PARTITIONS_PER_BATCH, highest=MOST_PARTITIONS_PER_BATCH),
    )
    fields.finish()
    return found
