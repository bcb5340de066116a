"""groups-1000: 1 000 consumer groups of five members that do nothing but heartbeats and rebalances.

Both systems run at the same time with the same groups (`members.py`); rounds alternate in turned order. The members of
one system are silent while the other is measured. Two loads a round: heartbeats, one a second and member, and a
rebalance of all groups, which begins with a JoinGroup of every member and ends when each has its assignment.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.coordinators.members import Members
from bench.storage.surroundings import Surroundings
from bench.systems import System

NAME = "groups-1000"
_GROUPS, _QUICK_GROUPS = 1_000, 20
_MEMBERS = 5
_HEARTBEATS, _QUICK_HEARTBEATS = 15, 2
_INTERVAL_S, _QUICK_INTERVAL_S = 1.0, 0.2
_REBALANCES = 3
"""Of all groups, in one round."""


def run(given: Surroundings) -> None:
    """Measures the systems of the run, `rounds` times after an uncounted round."""
    with ExitStack() as ended:
        measured: list[tuple[System, Members]] = []
        for name in given.brokers:
            given.step(f"{NAME}: starting {name}")
            # The shipped file has 0 for tests: a group of five would rebalance as its members come, one by one.
            system = System(
                name, given.work / f"{name}-{NAME}", properties={"group.initial.rebalance.delay.ms": "3000"}
            )
            ended.callback(system.stop)
            system.start()
            members = Members(system.ports[0], _QUICK_GROUPS if given.is_quick else _GROUPS, _MEMBERS)
            ended.callback(members.close)
            members.form()
            measured.append((system, members))
        for number in range(-1, given.rounds):
            for system, members in measured if number % 2 == 0 else measured[::-1]:
                given.step(f"{NAME}: {system.name}, " + (f"round {number + 1}" if number >= 0 else "warm-up"))
                found = measure(system, members, is_quick=given.is_quick)
                system.check()
                if number >= 0:
                    for metric, value in found.items():
                        given.measured.add(NAME, metric, system.name, value)


def measure(system: System, members: Members, *, is_quick: bool) -> dict[str, float]:
    """The metrics of one round. Raises MemberFailed."""
    before = system.cpu_seconds()
    times = sorted(
        members.heartbeats(_QUICK_INTERVAL_S, _QUICK_HEARTBEATS)
        if is_quick
        else members.heartbeats(_INTERVAL_S, _HEARTBEATS)
    )
    between = system.cpu_seconds()
    seconds = sum(members.rebalance() for _ in range(_REBALANCES))
    after = system.cpu_seconds()
    return {
        "cpu_us_per_heartbeat": (between - before) / len(times) * 1e6,
        "heartbeat_p99_ms": times[int(0.99 * len(times))] * 1e3,
        "rebalance_s": seconds / _REBALANCES,
        "rebalance_cpu_s": (after - between) / _REBALANCES,
        "rss_mb": system.resident_bytes() / 1e6,
    }
