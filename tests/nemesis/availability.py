"""For how long a partition took no records around a fault. Pure: events in, seconds out.

The outage of a partition is the longest time between two of its acknowledgements of which the first came before the
fault's end and the second after its beginning. With a killed leader that is "last acknowledged before the fault to
first acknowledged after"; a leader that is cut off from ZooKeeper alone goes on until the others elect another one,
and there the gap opens later.

>>> from tests.nemesis.history import Acknowledged, FaultBegan, FaultEnded
>>> [outage] = outages(
...     [
...         Acknowledged(1.0, "p", 0, "p.0", 0),
...         FaultBegan(1.5, "kill-broker", "b1", (0,)),
...         Acknowledged(8.0, "p", 0, "p.1", 1),
...         FaultEnded(9.0, "kill-broker"),
...         Acknowledged(9.1, "p", 0, "p.2", 2),
...     ]
... )
>>> outage.fault, outage.target, outage.partition, outage.was_led, outage.seconds
('kill-broker', 'b1', 0, True, 7.0)
"""

from __future__ import annotations

import itertools
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tests.nemesis.history import Acknowledged, Event, FaultBegan, FaultEnded

_BESIDE_THE_SESSION_S = 2.0
"""What an election, and clients that hear of it, may take beside the session that has to end before it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """`at`: when the fault began. `was_led`: the node that it hit led the partition. `seconds` is inf when it never
    came back."""

    at: float
    fault: str
    target: str
    partition: int
    was_led: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Figure:
    """Outages of one fault, over all its partitions of one kind and all times that it was injected, in seconds."""

    count: int
    median: float
    mean: float
    longest: float


def outages(events: Iterable[Event]) -> list[Outage]:
    """Of every fault that has ended, in order, then of every partition that was ever written to."""
    times: dict[int, list[float]] = defaultdict(list)
    faults: list[tuple[FaultBegan, float]] = []
    running: dict[str, FaultBegan] = {}
    for event in events:
        if isinstance(event, Acknowledged):
            times[event.partition].append(event.at)
        elif isinstance(event, FaultBegan):
            running[event.name] = event
        elif isinstance(event, FaultEnded):
            faults.append((running.pop(event.name), event.at))
    found = []
    for number in times:
        times[number].sort()
    for fault, ended in faults:
        for number, seconds in silences(times, fault.at, ended).items():
            found.append(Outage(fault.at, fault.name, fault.target, number, number in fault.partitions, seconds))
    return found


def silences(times: Mapping[int, list[float]], began: float, ended: float) -> dict[int, float]:
    """The longest time between two of the times of each partition, which are in order, around a span.

    >>> silences({0: [1.0, 2.0, 5.0, 5.5], 1: [1.0]}, began=1.5, ended=4.0)
    {0: 3.0, 1: inf}
    """
    return {number: _longest_gap(times[number], began, ended) for number in sorted(times)}


def failovers(found: Iterable[Outage], losses: Collection[str]) -> list[Outage]:
    """Of each of the faults that cost a leader (`losses`) what it led and was out for longest."""
    slowest: dict[tuple[str, float], Outage] = {}
    for outage in found:
        if outage.fault in losses and outage.was_led:
            key = outage.fault, outage.at
            slowest[key] = max(slowest.get(key, outage), outage, key=lambda one: one.seconds)
    return list(slowest.values())


def goal_s(session_timeout_ms: int) -> float:
    """How long a partition may take no records when its leader is lost: 8 s with sessions of 6 s."""
    return session_timeout_ms / 1000 + _BESIDE_THE_SESSION_S


def figures(found: Iterable[Outage]) -> dict[str, dict[bool, Figure]]:
    """By fault, in order of their first time; then of partitions that the target led (True) and of the others."""
    values: dict[str, dict[bool, list[float]]] = {}
    for outage in found:
        values.setdefault(outage.fault, {}).setdefault(outage.was_led, []).append(outage.seconds)
    return {fault: {led: figure_of(some) for led, some in kinds.items()} for fault, kinds in values.items()}


def figure_of(seconds: list[float]) -> Figure:
    """Of at least one outage."""
    return Figure(len(seconds), statistics.median(seconds), statistics.fmean(seconds), max(seconds))


def _longest_gap(times: list[float], began: float, ended: float) -> float:
    first = max(bisect_right(times, began) - 1, 0)
    last = bisect_left(times, ended)
    if last >= len(times):
        return float("inf")
    around = times[first : last + 1]
    return max((after - before for before, after in itertools.pairwise(around)), default=0.0)
