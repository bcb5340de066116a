"""The shared parts of the storage scenarios: waiting for leaders, creating large topics, /proc."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.systems import APACHE_KAFKA, OURS, System, SystemFailed, ask
from bench.usage import descendants
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey

_LEADERS_S = 300.0
_LIST_OFFSETS_VERSION = 5
_METADATA_VERSION = 4
_LATEST = -1


class Results(Protocol):
    """Where figures go: `runner.Measured`."""

    def add(self, scenario: str, metric: str, system: str, value: float | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One run of one scenario. `is_quick`: a smoke run with little data. `fill`: fills the page cache before a round
    that writes much (`bench.page_cache`), once what earlier rounds wrote is on the disk."""

    work: Path
    out: Path
    systems: Sequence[str]
    rounds: int
    is_quick: bool
    measured: Results
    step: Callable[[str], None]
    fill: Callable[[], None]

    @property
    def brokers(self) -> list[str]:
        """The systems that store anything, Apache Kafka first."""
        return [name for name in (APACHE_KAFKA, OURS) if name in self.systems]


def wait_for_leaders(system: System, topic: str, partitions: int, end_offset: int | None = None) -> None:
    """Returns when the broker leads every partition: when it answers ListOffsets for each without an error, with
    `end_offset` where that is given. SystemFailed after five minutes.

    While partitions are missing it asks for one of them and no more: a request for thousands every 50 ms would be a
    good part of what the broker does meanwhile.
    """
    missing = list(range(partitions))
    deadline = time.monotonic() + _LEADERS_S
    while missing and time.monotonic() < deadline:
        system.check()
        if _not_led(system, topic, missing[-1:], end_offset):
            time.sleep(0.01)
        else:
            missing = _not_led(system, topic, missing, end_offset)
    if missing:
        raise SystemFailed(f"{system.name} does not lead {len(missing)} of {partitions} partitions of {topic}")


def _not_led(system: System, topic: str, numbers: list[int], end_offset: int | None) -> list[int]:
    """The partitions that the broker does not answer for, as `wait_for_leaders` has it."""
    offsets = codec.module(ApiKey.LIST_OFFSETS)
    asked = [
        offsets.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=_LATEST)
        for number in numbers
    ]
    request = offsets.ListOffsetsRequest(replica_id=-1, topics=[offsets.ListOffsetsTopic(name=topic, partitions=asked)])
    answer = _asked(system, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, request)
    if answer is None:
        return numbers
    return [
        found.partition_index
        for entry in answer.topics
        for found in entry.partitions
        if found.error_code or (end_offset is not None and found.offset != end_offset)
    ]


def create_topic(system: System, topic: str, partitions: int, **config: str) -> None:
    """Creates it, however long that takes, and waits for its leaders."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": system.bootstrap, "socket.timeout.ms": 300_000})
    new = NewTopic(topic, partitions, 1, config=config)
    admin.create_topics([new], operation_timeout=_LEADERS_S, request_timeout=_LEADERS_S)[topic].result()
    wait_for_leaders(system, topic, partitions)


def _asked(system: System, api_key: ApiKey, version: int, request: object) -> Any:
    """The answer, None while nobody answers."""
    try:
        with socket.create_connection(("127.0.0.1", system.ports[0]), timeout=60) as connection:
            return ask(connection, api_key, version, request)
    except OSError:
        return None


def restart(system: System) -> float:
    """Stops the brokers in order and starts them again; gives the seconds that the stop took."""
    started = time.monotonic()
    system.stop_brokers()
    seconds = time.monotonic() - started
    system.start()
    return seconds


def descriptors(system: System) -> int:
    """Open descriptors of the broker."""
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in system.pids)


def mappings(system: System) -> int:
    """Mappings of the broker's memory."""
    return sum(Path(f"/proc/{pid}/maps").read_text().count("\n") for pid in system.pids)


def disk_read_bytes(system: System) -> int:
    """Bytes that the broker, its children included, has had read from the disk; what the page cache gave is not."""
    total = 0
    for root in system.pids:
        for pid in descendants(root):
            for line in Path(f"/proc/{pid}/io").read_text().splitlines():
                name, _, value = line.partition(":")
                if name == "read_bytes":
                    total += int(value)
    return total
