"""The rules of client instances: when a request comes too early, and when an instance is forgotten."""

from __future__ import annotations

import pytest

from ottla_broker.config.client_metrics import Subscription, parse_subscription
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.telemetry.client_instances import (
    ClientContext,
    ClientInstance,
    ClientInstances,
    ClientSubscription,
    client_subscription,
)

INTERVAL_MS = 1000


def context(number: int = 1, client_id: str = "c") -> ClientContext:
    return ClientContext(number.to_bytes(16, "big"), client_id, "apache-kafka-java", "3.9.1", "127.0.0.1", 1234)


def instance() -> ClientInstance:
    return ClientInstance(ClientSubscription(7, ("*",), INTERVAL_MS), 1)


def test_a_client_asks_once_for_each_interval() -> None:
    one = instance()
    assert [one.accept_get(now) for now in (0.0, 999.0, 1000.0, 1500.0, 2000.0)] == [True, False, True, False, True]


def test_a_push_also_counts_as_the_last_request_of_a_client_that_asks() -> None:
    one = instance()
    assert one.accept_get(0.0) and one.accept_push(500.0)
    assert [one.accept_get(now) for now in (1000.0, 1500.0)] == [False, True]


def test_the_first_push_after_a_subscription_may_come_at_any_time_and_the_next_after_an_interval() -> None:
    one = instance()
    assert one.accept_get(0.0)
    assert [one.accept_push(now) for now in (1.0, 500.0, 1000.0, 1001.0)] == [True, False, False, True]


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_a_client_that_was_sent_here_by_an_error_may_ask_at_once(error: ErrorCode) -> None:
    one = instance()
    assert one.accept_get(0.0)
    one.last_error = error
    assert one.accept_get(1.0)


def test_a_subscription_has_another_id_for_other_metrics_another_interval_and_another_client() -> None:
    def subscription_id(metrics: str, interval_ms: str, number: int = 1) -> int:
        found = parse_subscription("s", {"metrics": metrics, "interval.ms": interval_ms})
        return client_subscription(context(number), [found]).subscription_id

    ids = {
        subscription_id("a.", "1000"),
        subscription_id("a.,b.", "1000"),
        subscription_id("a.", "2000"),
        subscription_id("a.", "1000", 2),
    }
    assert len(ids) == 4
    assert all(-(2**31) <= one < 2**31 for one in ids)
    assert subscription_id("a.,b.", "1000") == subscription_id("b.,a.", "1000")


def test_a_client_that_no_resource_matches_is_asked_for_nothing() -> None:
    found = parse_subscription("s", {"metrics": "*", "interval.ms": "100", "match": "client_id=app"})
    assert client_subscription(context(), [found]).metrics == ()
    assert client_subscription(context(client_id="app"), [found]).metrics == ("*",)


def test_a_change_of_the_resources_makes_a_new_subscription_that_may_be_asked_for_at_once() -> None:
    instances = ClientInstances(lambda _: None)
    before = {"s": Subscription(frozenset({"a."}), INTERVAL_MS, {})}
    after = {"s": Subscription(frozenset({"b."}), INTERVAL_MS, {})}
    first = instances.find(context(), before, 1, 0.0)
    assert first.accept_get(0.0)
    assert instances.find(context(), before, 1, 1.0) is first
    second = instances.find(context(), after, 2, 2.0)
    assert (second.subscription.metrics, second.accept_get(2.0)) == (("b.",), True)


def test_a_silent_instance_is_forgotten_after_a_minute_and_three_intervals() -> None:
    forgotten: list[bytes] = []
    instances = ClientInstances(forgotten.append)
    often = {"s": Subscription(frozenset({"a."}), 100, {})}
    seldom = {"s": Subscription(frozenset({"a."}), 60_000, {})}
    instances.find(context(1), often, 1, 0.0)
    instances.find(context(2), seldom, 1, 0.0)
    instances.forget_expired(59_999.0)
    assert forgotten == []
    instances.forget_expired(60_000.0)
    assert forgotten == [context(1).instance_id]
    instances.forget_expired(180_000.0)
    assert forgotten == [context(1).instance_id, context(2).instance_id]


def test_beyond_the_most_instances_the_one_that_was_silent_for_longest_is_forgotten() -> None:
    forgotten: list[bytes] = []
    instances = ClientInstances(forgotten.append, most=2)
    for number in (1, 2, 1, 3):
        instances.find(context(number), {}, 1, 0.0)
    assert forgotten == [context(2).instance_id]
    assert len(instances) == 2
