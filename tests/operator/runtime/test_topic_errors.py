"""An error of one document or one topic is its own: the others of the batch go on, and it is tried ever more seldom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ottla_operator.api.objects import EVENT, KAFKA_TOPIC, NAMESPACE, Obj, ResourceKind, name_of
from ottla_operator.api.topics import TopicChange
from ottla_operator.ports import ApiError
from ottla_operator.runtime import topic_task
from ottla_operator.runtime.topic_queue import REQUEUE_S, SETTLES
from ottla_operator.runtime.topic_task import TopicTask
from tests.operator.fleet import KEY
from tests.operator.task_contexts import task_context
from tests.operator.topic_fleet import Topics, document


def _with_a_clock(topics: Topics) -> list[float]:
    """Gives the time of the task, which stands still until the test sets it."""
    now = [0.0]
    fleet = topics.fleet
    context = task_context(fleet.cache, fleet.kubernetes, fleet.environment, lambda: now[0])
    topics.task = TopicTask(KEY, context, lambda: [0, 1, 2])
    return now


async def _rest(topics: Topics) -> None:
    while len(topics.task.queue):
        await topics.task.reconcile_batch()


@pytest.mark.parametrize("name", [".", "..", 5])
async def test_an_invalid_topic_name_stops_no_other_kafka_topic(topics: Topics, name: Any) -> None:
    topics.apply(document("bad", topicName=name))
    topics.apply(document("good"))
    await topics.settle()
    assert topics.ready("good")[0] == "True"
    assert topics.ready("bad") == ("False", "InvalidSpec") and "spec.topicName" in topics.message("bad")
    topics.apply(document("good", partitions=24))
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "bad")
    await topics.settle()
    assert topics.kafka.topics_there["good"].partitions == 24 and list(topics.kafka.topics_there) == ["good"]


async def test_a_topic_with_an_error_of_the_brokers_stops_no_other(topics: Topics) -> None:
    topics.kafka.errors["strange"] = "TopicAuthorizationFailed: no"
    topics.apply(document("strange"))
    topics.apply(document("good"))
    await topics.settle()
    assert topics.ready("good")[0] == "True" and topics.ready("strange") == ("False", "TopicAuthorizationFailed")
    assert topics.task.queue.has_requeued
    topics.kafka.errors.clear()
    await topics.settle()
    assert topics.ready("strange")[0] == "True"


@pytest.mark.parametrize("write", ["replace_status", "set_finalizers"])
@pytest.mark.parametrize("status", [409, 422, 500, 0])
async def test_a_kafka_topic_whose_write_is_refused_stops_no_other(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, write: str, status: int
) -> None:
    written = getattr(topics.fleet.kubernetes, write)

    async def refusing(obj: Obj, *arguments: Any) -> Obj:
        if name_of(obj) == "bad":
            raise ApiError(status, "Refused", "not this one")
        return await written(obj, *arguments)

    monkeypatch.setattr(topics.fleet.kubernetes, write, refusing)
    now = _with_a_clock(topics)
    topics.apply(document("bad"))
    topics.apply(document("good"))
    topics.task.queue_all()
    await _rest(topics)
    assert topics.ready("good")[0] == "True" and topics.task.queue.has_requeued
    topics.apply(document("later"))
    topics.task.queue.put("later")
    await _rest(topics)
    assert topics.ready("later")[0] == "True"
    monkeypatch.undo()
    now[0] = topics.task.queue.due_at
    topics.task.queue.queue_due()
    await _rest(topics)
    assert topics.ready("bad")[0] == "True" and not topics.task.queue.has_requeued


async def test_an_event_that_cannot_be_written_stops_nothing(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    create = topics.fleet.kubernetes.create

    async def refusing(obj: Obj) -> Obj:
        if obj["kind"] == EVENT.kind:
            raise ApiError(403, "Forbidden", "no events")
        return await create(obj)

    monkeypatch.setattr(topics.fleet.kubernetes, "create", refusing)
    topics.apply(document("many", replicas=9))
    topics.apply(document("good"))
    await topics.settle()
    assert topics.ready("many")[1] == "NotEnoughBrokers" and topics.ready("good")[0] == "True"


async def test_a_kafka_topic_that_raises_in_the_operator_stops_no_other(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = topic_task.parse_topic

    def stumbling(resource: Obj) -> Any:
        if name_of(resource) == "bad":
            raise RecursionError("a mistake of ours")
        return parse(resource)

    monkeypatch.setattr(topic_task, "parse_topic", stumbling)
    topics.apply(document("bad"))
    topics.apply(document("good"))
    await topics.settle()
    assert topics.ready("good")[0] == "True" and topics.task.queue.has_requeued


async def test_a_namespace_that_cannot_be_read_delays_deletions_only(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.apply(document("old"))
    await topics.settle()

    get = topics.fleet.kubernetes.get

    async def failing(kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        if kind == NAMESPACE:
            raise ApiError(500, "InternalError", "etcd")
        return await get(kind, namespace, name)

    monkeypatch.setattr(topics.fleet.kubernetes, "get", failing)
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "old")
    topics.apply(document("new"))
    await topics.settle()
    assert topics.ready("new")[0] == "True" and topics.is_listed("old") and "old" in topics.kafka.topics_there
    monkeypatch.undo()
    await topics.settle()
    assert not topics.is_listed("old") and "old" not in topics.kafka.topics_there


async def test_a_refused_change_is_reported_and_tried_again_after_growing_times(topics: Topics) -> None:
    """20 000 partitions: the controller refuses, each time by looking at the whole fleet."""
    now = _with_a_clock(topics)
    limit = "PolicyViolation: 20000 partitions are more than max.partitions.per.request (4000)"
    topics.kafka.refusals["flights"] = limit
    topics.apply(partitions=20000)
    topics.task.queue.put("flights")
    await _rest(topics)
    assert topics.ready() == ("False", "PolicyViolation") and "(4000)" in topics.message()
    waits = []
    topics.fleet.kubernetes.writes.clear()
    for _ in range(8):
        waits.append(topics.task.queue.due_at - now[0])
        now[0] = topics.task.queue.due_at
        topics.task.queue.queue_due()
        await _rest(topics)
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300] and topics.fleet.kubernetes.writes == []
    topics.kafka.refusals.clear()
    topics.apply(partitions=12)
    topics.task.queue.put("flights")
    await _rest(topics)
    assert topics.ready()[0] == "True" and not topics.task.queue.has_requeued


async def test_a_change_without_effect_is_asked_for_after_growing_times(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a value that the brokers store as another one."""
    topics.apply()
    await topics.settle()
    now = _with_a_clock(topics)
    asked: list[TopicChange] = []

    async def ignoring(changes: Sequence[TopicChange]) -> dict[str, str]:
        asked.extend(changes)
        return {}

    monkeypatch.setattr(topics.kafka, "change", ignoring)
    topics.apply(partitions=24)
    topics.task.queue.put("flights")
    await _rest(topics)
    assert len(asked) == SETTLES + 1 and topics.ready() == ("False", "Changing")
    assert topics.task.queue.due_at == now[0] + REQUEUE_S
    now[0] = topics.task.queue.due_at
    topics.task.queue.queue_due()
    await _rest(topics)
    assert topics.task.queue.due_at == now[0] + 2 * REQUEUE_S
