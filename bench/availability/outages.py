"""controlled-shutdown and failover: one of three brokers gets SIGTERM, or SIGKILL, while producers run.

Twelve partitions with three replicas, min.insync.replicas=2, a third of them led by the broker in question; acks=all.
Each round takes another broker, the controller last. A session expires one timeout after its last ping, which is up to
a third of a timeout old: the rounds spread the time of the kill over that. The figures are the median and the maximum
of `producers.Outage` over the partitions that the broker led.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence

from bench.availability.producers import Outage, Producers
from bench.storage.surroundings import Surroundings
from bench.systems import System

CONTROLLED_SHUTDOWN = "controlled-shutdown"
SESSION_TIMEOUTS_MS = (6_000, 18_000)
"""zookeeper.session.timeout.ms: a short one, and Kafka's default."""

_BROKERS = 3
_PARTITIONS = 12
_TOPIC = "outages"
_WARM_UP_S = 15.0
_QUICK_WARM_UP_S = 1.0
_AFTERWARDS_S = 1.0


def failover(session_timeout_ms: int) -> str:
    """The scenario's name, such as failover-18s."""
    return f"failover-{session_timeout_ms // 1000}s"


def run_controlled_shutdown(given: Surroundings) -> None:
    """SIGTERM to one broker, and its start."""

    def restart(system: System, number: int) -> None:
        started = time.monotonic()
        system.brokers[number].stop()
        given.measured.add(CONTROLLED_SHUTDOWN, "stop_s", system.name, time.monotonic() - started)
        system.restart_broker(number)

    _run(given, CONTROLLED_SHUTDOWN, {}, restart)


def run_failover(session_timeout_ms: int, given: Surroundings) -> None:
    """SIGKILL to one broker, the end of its session, and its start."""

    def kill(system: System, number: int) -> None:
        os.kill(system.brokers[number].pid, signal.SIGKILL)
        system.brokers[number].stop()
        system.wait_until_forgotten(number)
        system.restart_broker(number)

    _run(
        given,
        failover(session_timeout_ms),
        {"zookeeper.session.timeout.ms": str(session_timeout_ms)},
        kill,
    )


def pause_s(session_timeout_ms: int, number: int, rounds: int) -> float:
    """What a round waits beyond the warm-up: a place of its own among `rounds` even parts of a third of the timeout.

    >>> [pause_s(18_000, number, 3) for number in range(3)]
    [1.0, 3.0, 5.0]
    """
    return session_timeout_ms / 1000 / 3 * (number + 0.5) / rounds


def _run(given: Surroundings, name: str, properties: dict[str, str], harm: Callable[[System, int], None]) -> None:
    session_timeout_ms = int(properties.get("zookeeper.session.timeout.ms", 0))
    for system_name in given.brokers:
        system = System(
            system_name,
            given.work / f"{system_name}-{name}",
            _BROKERS,
            {
                "min.insync.replicas": "2",
                "offsets.topic.replication.factor": "3",
                # Leadership is not to move a second time while it is looked at.
                "auto.leader.rebalance.enable": "false",
                **properties,
            },
        )
        try:
            given.step(f"{name}: starting {system_name}")
            system.start()
            for number in range(given.rounds):
                topic = f"{_TOPIC}-{number}"
                system.create_topic(topic, _PARTITIONS, _BROKERS)
                pause = pause_s(session_timeout_ms, number, given.rounds)
                warm_up_s = _QUICK_WARM_UP_S if given.is_quick else _WARM_UP_S + pause
                _round(given, name, system, topic, _BROKERS - 1 - number % _BROKERS, harm, warm_up_s)
                system.delete_topic(topic)
        finally:
            system.stop()


def _round(
    given: Surroundings,
    name: str,
    system: System,
    topic: str,
    victim: int,
    harm: Callable[[System, int], None],
    warm_up_s: float,
) -> None:
    producers = Producers(system.bootstrap, topic, _PARTITIONS)
    try:
        given.step(f"{name}: {system.name}, broker {victim}")
        time.sleep(warm_up_s)
        producers.begin()
        harm(system, victim)
        system.wait_until_in_sync(topic, _PARTITIONS, _BROKERS)
        time.sleep(_AFTERWARDS_S)
        for metric, value in figures(producers.end(), victim).items():
            given.measured.add(name, metric, system.name, value)
    finally:
        producers.close()


def figures(outages: Sequence[Outage], victim: int) -> dict[str, float]:
    """The metrics of one round.

    >>> figures([Outage(0, 2, 4.0, 9.0), Outage(1, 2, 6.0, 7.0), Outage(2, 1, 0.0, 5.0)], 2)
    {'refused_p50_ms': 5.0, 'refused_max_ms': 6.0, 'silent_p50_ms': 8.0, 'silent_max_ms': 9.0, 'silent_others_ms': 5.0}
    """
    led = [outage for outage in outages if outage.leader == victim]
    return {
        "refused_p50_ms": statistics.median(outage.refused_ms for outage in led),
        "refused_max_ms": max(outage.refused_ms for outage in led),
        "silent_p50_ms": statistics.median(outage.silent_ms for outage in led),
        "silent_max_ms": max(outage.silent_ms for outage in led),
        "silent_others_ms": max((outage.silent_ms for outage in outages if outage.leader != victim), default=0.0),
    }
