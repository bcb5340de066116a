"""Fleets for tests of the rebalancer: written by hand, and random ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from ottla_operator.facts.fleet_values import FleetBroker, FleetPartition, FleetPlacement, FleetReplica, LogDir

GIB = 1 << 30


def broker(number: int, rack: str = "", state: str = "active", node: str | None = None) -> FleetBroker:
    return FleetBroker(number, rack, f"n{number}" if node is None else node, state=state)  # type: ignore[arg-type]


def partition(
    index: int,
    replicas: Sequence[int],
    *,
    size: int = 0,
    topic: str = "t",
    factor: int = 0,
    dirs: Mapping[int, str] | None = None,
) -> FleetPartition:
    found = tuple(FleetReplica(number, size, (dirs or {}).get(number, "")) for number in replicas)
    return FleetPartition(topic, index, found, factor, tuple(replicas))


def spread_over(
    brokers: Sequence[int], partitions: int, factor: int, *, size: int = 0, topic: str = "t"
) -> list[FleetPartition]:
    """Partitions round robin over the brokers."""
    return [
        partition(index, [brokers[(index + n) % len(brokers)] for n in range(factor)], size=size, topic=topic)
        for index in range(partitions)
    ]


def counts(fleet: FleetPlacement) -> dict[int, int]:
    found = Counter(number for one in fleet.partitions for number in one.brokers)
    return {one.id: found[one.id] for one in fleet.brokers}


def load(fleet: FleetPlacement) -> dict[int, int]:
    found: Counter[int] = Counter()
    for one in fleet.partitions:
        found.update(dict.fromkeys(one.brokers, one.size_bytes))
    return {one.id: found[one.id] for one in fleet.brokers}


def leads(fleet: FleetPlacement) -> dict[int, int]:
    found = Counter(one.brokers[0] for one in fleet.partitions)
    return {one.id: found[one.id] for one in fleet.brokers}


@st.composite
def fleets(draw: st.DrawFn, *, with_room: bool = True, spread: bool = False) -> FleetPlacement:
    """Up to nine brokers in up to three racks, some on one node, some draining or cordoned, and up to 30 partitions.

    `with_room`: no directory is ever too full. `spread`: every broker is active and has a node of its own.
    """
    number = draw(st.integers(2, 9))
    racks = draw(st.integers(1, 3))
    brokers: list[FleetBroker] = []
    for identity in draw(st.lists(st.integers(0, 99), min_size=number, max_size=number, unique=True)):
        node = identity if spread else draw(st.integers(0, 8))
        state = "active" if spread else draw(st.sampled_from(["active", "active", "active", "draining", "cordoned"]))
        dirs: tuple[LogDir, ...] = ()
        if draw(st.booleans()):
            sizes = [(draw(st.integers(50, 200)) * GIB) for _ in range(draw(st.integers(1, 3)))]
            dirs = tuple(
                LogDir(
                    f"/d{place}",
                    size,
                    1000 * GIB if with_room else draw(st.integers(0, 60)) * GIB,
                    "active" if spread else draw(st.sampled_from(["active", "active", "draining", "cordoned"])),
                )
                for place, size in enumerate(sizes)
            )
        brokers.append(FleetBroker(identity, f"r{draw(st.integers(0, racks - 1))}", f"n{node}", dirs, state))  # type: ignore[arg-type]
    known = {one.id: one for one in brokers}
    partitions: list[FleetPartition] = []
    for index in range(draw(st.integers(0, 30))):
        chosen = draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=4, unique=True))
        size = draw(st.sampled_from([0, 1, GIB // 3, GIB, 4 * GIB]))
        replicas = tuple(
            FleetReplica(
                one, size, draw(st.sampled_from([d.path for d in known[one].log_dirs])) if known[one].log_dirs else ""
            )
            for one in chosen
        )
        factor = 0 if spread else draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
        topic = draw(st.sampled_from(["a", "b", "__consumer_offsets"]))
        partitions.append(
            FleetPartition(topic, index, replicas, factor, tuple(chosen[: draw(st.integers(1, len(chosen)))]))
        )
    return FleetPlacement(tuple(brokers), tuple(partitions))
