"""What a history says of a span of time: how long partitions took no records and groups were given none. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from e2e.long.watch import RestartedBatch
from tests.nemesis.availability import silences
from tests.nemesis.history import (
    Acknowledged,
    ClientEnded,
    Event,
    Indeterminate,
    Placed,
    Polled,
    Sent,
    Subscribed,
    Transacted,
)


@dataclass(frozen=True, slots=True)
class Window:
    """A span that figures are asked of, in seconds since the epoch; `batches` are those of the rolls in it."""

    name: str
    began: float
    ended: float
    batches: tuple[RestartedBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds, inf where it never ended. `count` is how many there are."""

    count: int
    p50: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """What clients saw of a window.

    `unavailable`: the longest time between two acknowledgements, of each partition in each batch (in the window, where
    it has none). `unavailable_at_all`: the same, of each partition in the whole window: what is lost is no batch.
    `group_gaps`: the longest time between two polls that gave records of a partition, by group, over partitions.
    `assignments`: how often a member of a group was given partitions. `copies`: transactions by outcome.
    `clients_paused_s`: the longest time without a send. Producers send by the clock, so it is the machine that paused.
    """

    acknowledged: int
    failed_sends: int
    unavailable: Spread
    unavailable_at_all: Spread
    group_gaps: dict[str, Spread]
    assignments: int
    copies: dict[str, int]
    copier_restarts: int
    clients_paused_s: float


def spread(seconds: Sequence[float]) -> Spread:
    """
    >>> spread([3.0, 1.0, 2.0])
    Spread(count=3, p50=2.0, p99=3.0, longest=3.0)
    """
    if not seconds:
        return Spread(0, 0.0, 0.0, 0.0)
    ordered = sorted(seconds)
    return Spread(len(ordered), statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1], ordered[-1])


def traffic(events: Iterable[Event], window: Window) -> Traffic:
    """The figures of one window."""
    history = list(events)
    within = [event for event in history if window.began <= event.at <= window.ended]
    spans = [(batch.began, batch.ended) for batch in window.batches] or [(window.began, window.ended)]
    acknowledged = acknowledgements(history)
    copies: dict[str, int] = defaultdict(int)
    for event in within:
        if isinstance(event, Transacted):
            copies[event.outcome] += 1
    return Traffic(
        acknowledged=sum(isinstance(event, Acknowledged) for event in within),
        failed_sends=sum(isinstance(event, Indeterminate) for event in within),
        unavailable=spread([value for span in spans for value in silences(acknowledged, *span).values()]),
        unavailable_at_all=spread(list(silences(acknowledged, window.began, window.ended).values())),
        group_gaps={
            group: spread(list(silences(times, window.began, window.ended).values()))
            for group, times in polls(history).items()
        },
        assignments=len(
            {(one.by, round(one.at, 1)) for one in within if isinstance(one, Placed) and one.offset is None}
        ),
        copies=dict(copies),
        copier_restarts=sum(isinstance(event, ClientEnded) for event in within),
        clients_paused_s=max((b - a for a, b in itertools.pairwise(sends(within))), default=0.0),
    )


def sends(events: Iterable[Event]) -> list[float]:
    """When records were sent, in order."""
    return sorted(event.at for event in events if isinstance(event, Sent))


def acknowledgements(events: Iterable[Event]) -> dict[int, list[float]]:
    """When records of each partition were acknowledged, in order."""
    found: dict[int, list[float]] = defaultdict(list)
    for event in events:
        if isinstance(event, Acknowledged):
            found[event.partition].append(event.at)
    return {partition: sorted(times) for partition, times in found.items()}


def polls(events: Iterable[Event]) -> Mapping[str, dict[int, list[float]]]:
    """When each group was given records of each partition, in order."""
    groups: dict[str, str] = {}
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if isinstance(event, Subscribed):
            groups[event.by] = event.group
        elif isinstance(event, Polled) and event.by in groups:
            found[groups[event.by]][event.partition].append(event.at)
    return {group: {part: sorted(times) for part, times in parts.items()} for group, parts in found.items()}
