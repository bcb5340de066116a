"""Throttles of brokers that leave, are down or are gone: none is left behind, and none stops a rebalance."""

from __future__ import annotations

from dataclasses import replace

from ottla_operator.concerns.rebalance.machine import AUTO, RebalanceFacts, decide
from ottla_operator.concerns.rebalance.rebalance_status import BatchMember, Rebalance, Throttled
from ottla_operator.facts.fleet_values import Plan, Reassignment

MOVE = Reassignment("t", 0, (0, 1), (1, 2), 10)
FACTS = RebalanceFacts(
    mode=AUTO,
    bytes_per_second=1000,
    most_per_batch=10,
    plan=lambda is_running: Plan((MOVE,)),
    under_way={},
    replicas={("t", 0): (0, 1)},
    leaving=(),
    brokers=(0, 1, 2),
    blocker="",
    now="2026-01-01T00:00:00Z",
    members=(0, 1, 2),
)
THROTTLED = Throttled(1000, (0, 1, 2, 5), ("t",))
UNTHROTTLE = Rebalance("Unthrottle", "2026-01-01T00:00:00Z", throttled=THROTTLED)


def test_a_broker_that_the_fleet_no_longer_has_is_not_asked_and_stops_nothing() -> None:
    member = BatchMember("t", 0, replicas=(1, 2), before=(0, 1))
    found = decide(Rebalance("Move", FACTS.now, batch=(member,), throttled=THROTTLED), FACTS)
    assert found.requests is not None and found.requests.throttle is not None and found.after is not None
    assert found.requests.throttle.brokers == (0, 1, 2) and found.requests.reassign == {("t", 0): (1, 2)}
    assert found.after.throttled == Throttled(1000, (0, 1, 2), ("t",))
    found = decide(UNTHROTTLE, FACTS)
    assert found.requests is not None and found.requests.throttle is not None and found.after is not None
    assert found.requests.throttle.brokers == (0, 1, 2)
    assert (found.after.step, found.after.throttled) == ("Plan", None)


def test_a_broker_that_is_down_loses_its_throttle_when_it_is_back() -> None:
    down = replace(FACTS, members=(0, 1, 2, 5))
    first = decide(UNTHROTTLE, down)
    assert first.requests is not None and first.requests.throttle is not None and first.after is not None
    assert first.requests.throttle.brokers == (0, 1, 2) and first.requests.throttle.unset == ("t",)
    assert (first.after.step, first.after.throttled) == ("Unthrottle", Throttled(1000, (5,), ()))
    assert "broker 5" in first.after.reason
    waiting = decide(first.after, down)
    assert waiting.requests is None and waiting.rebalance is not None and waiting.rebalance.step == "Unthrottle"
    back = decide(first.after, replace(down, brokers=(0, 1, 2, 5)))
    assert back.requests is not None and back.requests.throttle is not None and back.after is not None
    assert back.requests.throttle.brokers == (5,) and back.after.throttled is None


def test_throttles_are_removed_between_two_batches_once_a_broker_that_leaves_is_empty() -> None:
    leaving = replace(FACTS, leaving=(5,), brokers=(0, 1, 2, 5), members=(0, 1, 2, 5))
    holds = decide(Rebalance("Plan", FACTS.now, throttled=THROTTLED), replace(leaving, replicas={("t", 0): (0, 5)}))
    assert holds.rebalance is not None and holds.rebalance.step == "Move"
    empty = decide(Rebalance("Plan", FACTS.now, throttled=THROTTLED), leaving)
    assert empty.rebalance is not None and empty.rebalance.step == "Unthrottle"
    after = decide(Rebalance("Plan", FACTS.now), leaving)
    assert after.rebalance is not None and after.rebalance.throttled == Throttled(1000, (0, 1, 2), ("t",))
