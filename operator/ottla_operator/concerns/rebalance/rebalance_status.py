"""The content of status.rebalance, as a value and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ottla_operator.facts.fleet_values import PartitionId

Step = Literal["Plan", "Move", "Wait", "Unthrottle", "DryRun"]
STEPS: tuple[str, ...] = get_args(Step)


@dataclass(frozen=True, slots=True)
class BatchMember:
    """A partition of the batch under way: the replicas it gets, or the directory to which the one of `broker` moves.

    `size_bytes`: of the largest replica. `bytes_to_go`: what its new replicas have not copied yet, all together.
    """

    topic: str
    index: int
    replicas: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    broker: int = -1
    log_dir: str = ""
    bytes_to_go: int = 0
    size_bytes: int = 0
    log_dirs: tuple[tuple[int, str], ...] = ()

    @property
    def id(self) -> PartitionId:
        return self.topic, self.index

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.before)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def to_status(self) -> dict[str, Any]:
        found: dict[str, Any] = {"topic": self.topic, "partition": self.index, "bytesToGo": self.bytes_to_go}
        if self.log_dir:
            return {**found, "broker": self.broker, "logDir": self.log_dir}
        found |= {"replicas": list(self.replicas), "before": list(self.before), "sizeBytes": self.size_bytes}
        if self.log_dirs:
            found["logDirs"] = [{"broker": broker, "path": path} for broker, path in self.log_dirs]
        return found


@dataclass(frozen=True, slots=True)
class Throttled:
    """The throttles that may be set: written before they are, and removed only when they are no more."""

    bytes_per_second: int
    brokers: tuple[int, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rebalance:
    """status.rebalance. `reason`: what it waits for, or which partitions cannot be placed."""

    step: Step
    since: str
    batch: tuple[BatchMember, ...] = ()
    throttled: Throttled | None = None
    partitions_to_go: int = 0
    bytes_to_go: int = 0
    bytes_per_second: int = 0
    bytes_moved: int = 0
    started_at: str = ""
    reason: str = ""
    plan: tuple[str, ...] = ()

    def to_status(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "step": self.step,
            "since": self.since,
            "partitionsToGo": self.partitions_to_go,
            "bytesToGo": self.bytes_to_go,
            "batch": [member.to_status() for member in self.batch],
        }
        if self.bytes_per_second:
            found["bytesPerSecond"] = self.bytes_per_second
            found["secondsToGo"] = self.bytes_to_go // self.bytes_per_second
        if self.started_at:
            found["startedAt"] = self.started_at
            found["bytesMoved"] = self.bytes_moved
        if self.reason:
            found["reason"] = self.reason
        if self.plan:
            found["plan"] = list(self.plan)
        if self.throttled is not None:
            found["throttled"] = {
                "bytesPerSecond": self.throttled.bytes_per_second,
                "brokers": list(self.throttled.brokers),
                "topics": list(self.throttled.topics),
            }
        return found


def from_status(value: object) -> Rebalance | None:
    """Parses status.rebalance. None when it cannot be parsed: the machine then starts from the facts."""
    if not isinstance(value, Mapping) or value.get("step") not in STEPS:
        return None
    throttled = value.get("throttled")
    return Rebalance(
        step=value["step"],
        since=str(value.get("since", "")),
        batch=tuple(_member(one) for one in value.get("batch") or () if isinstance(one, Mapping)),
        throttled=None
        if not isinstance(throttled, Mapping)
        else Throttled(
            int(throttled.get("bytesPerSecond") or 0),
            tuple(throttled.get("brokers") or ()),
            tuple(throttled.get("topics") or ()),
        ),
        partitions_to_go=int(value.get("partitionsToGo") or 0),
        bytes_to_go=int(value.get("bytesToGo") or 0),
        bytes_per_second=int(value.get("bytesPerSecond") or 0),
        bytes_moved=int(value.get("bytesMoved") or 0),
        started_at=str(value.get("startedAt") or ""),
        reason=str(value.get("reason") or ""),
        plan=tuple(value.get("plan") or ()),
    )


def _member(value: Mapping[str, Any]) -> BatchMember:
    return BatchMember(
        topic=str(value.get("topic", "")),
        index=int(value.get("partition", 0)),
        replicas=tuple(value.get("replicas") or ()),
        before=tuple(value.get("before") or ()),
        broker=int(value.get("broker", -1)),
        log_dir=str(value.get("logDir") or ""),
        bytes_to_go=int(value.get("bytesToGo") or 0),
        size_bytes=int(value.get("sizeBytes") or 0),
        log_dirs=tuple((int(one["broker"]), str(one["path"])) for one in value.get("logDirs") or ()),
    )
