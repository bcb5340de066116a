"""Whose a topic is: documents that name the same one, what was adopted, and what is never deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla_operator.api.names import CREATED, TOPIC_FINALIZER
from ottla_operator.api.objects import KAFKA_TOPIC, Obj, ResourceKind, dig, uid_of
from ottla_operator.api.topics import DeleteTopic, TopicDescription
from ottla_operator.ports import ApiError, KafkaUnavailable
from tests.operator.fleet import Fleet
from tests.operator.killed_operator import killed_after_every_write
from tests.operator.topic_fleet import Topics, document

LATER = "2026-02-01T00:00:00Z"
EXISTING = TopicDescription("flights", "old", 12, 3, {"retention.ms": "604800000"})


def _renamed(**spec: Any) -> dict[str, Any]:
    """A younger document of the topic flights."""
    made = document("renamed", topicName="flights", **spec)
    made["metadata"]["creationTimestamp"] = LATER
    return made


def _deletions(topics: Topics) -> list[str]:
    return [change.topic for change in topics.kafka.requests if isinstance(change, DeleteTopic)]


def _remove(topics: Topics, name: str) -> None:
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, name)


def _finalizers(topics: Topics, name: str) -> list[str]:
    return list(dig(topics.there(name), "metadata", "finalizers") or [])


@pytest.mark.parametrize("policy", [None, "Delete"])
@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
async def test_a_renamed_kafka_topic_takes_the_topic_over_and_nothing_is_deleted(
    topics: Topics, policy: str | None, restarts: bool
) -> None:
    topics.apply(deletionPolicy=policy)
    await topics.settle()
    topics.apply(_renamed(partitions=24))
    await topics.settle()
    assert topics.ready("renamed") == ("False", "ConflictingTopic") and "flights" in topics.message("renamed")
    _remove(topics, "flights")
    if restarts:
        topics.restart_operator()
    await topics.settle()
    assert _deletions(topics) == [] and not topics.is_listed()
    assert topics.ready("renamed") == ("True", "AsDeclared")
    assert topics.kafka.topics_there["flights"].partitions == 24
    assert topics.there("renamed")["status"]["adopted"] is True


async def test_a_topic_stays_when_both_halves_of_a_rename_arrive_together(topics: Topics) -> None:
    """The old document is being deleted before the operator has seen the new one."""
    topics.apply()
    await topics.settle()
    _remove(topics, "flights")
    topics.apply(_renamed())
    await topics.settle()
    assert _deletions(topics) == [] and topics.ready("renamed")[0] == "True" and not topics.is_listed()


@pytest.mark.parametrize(("policy", "is_kept"), [(None, True), ("Retain", True), ("Delete", False)])
async def test_a_topic_that_was_taken_over_is_adopted(topics: Topics, policy: str | None, is_kept: bool) -> None:
    topics.apply()
    topics.apply(_renamed(deletionPolicy=policy))
    await topics.settle()
    _remove(topics, "flights")
    await topics.settle()
    assert (TOPIC_FINALIZER in _finalizers(topics, "renamed")) is not is_kept
    _remove(topics, "renamed")
    await topics.settle()
    assert ("flights" in topics.kafka.topics_there) is is_kept and not topics.is_listed("renamed")


async def test_a_topic_that_does_not_exist_is_created_by_the_kafka_topic_that_takes_it_over(topics: Topics) -> None:
    topics.apply(replicas=9)
    topics.apply(_renamed())
    await topics.settle()
    assert topics.ready() == ("False", "NotEnoughBrokers")
    _remove(topics, "flights")
    await topics.settle()
    assert topics.ready("renamed")[0] == "True" and topics.there("renamed")["status"]["adopted"] is False


async def test_a_topic_is_deleted_when_both_kafka_topics_are_deleted_together(topics: Topics) -> None:
    topics.apply()
    topics.apply(_renamed())
    await topics.settle()
    _remove(topics, "flights")
    _remove(topics, "renamed")
    await topics.settle()
    assert topics.kafka.topics_there == {} and not topics.is_listed()


async def test_a_kafka_topic_that_waits_for_other_finalizers_has_no_topic(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    made = topics.fleet.kubernetes.there(KAFKA_TOPIC, "flights")
    made["metadata"]["finalizers"].append("example.org/audit")
    topics.fleet.kubernetes.put(made)
    topics.apply(_renamed())
    await topics.settle()
    _remove(topics, "flights")
    await topics.settle()
    assert topics.ready() == ("False", "Terminating") and "example.org/audit" in topics.message()
    assert topics.ready("renamed")[0] == "True" and _deletions(topics) == []


async def test_an_older_kafka_topic_that_begins_to_name_a_topic_adopts_it(topics: Topics) -> None:
    """An API server refuses that; a restore or an older definition may bring it."""
    topics.apply(document("first", topicName="other"))
    topics.apply(_renamed())
    await topics.settle()
    assert topics.there("first")["status"]["adopted"] is False
    topics.apply(document("first", topicName="flights"))
    await topics.settle()
    assert topics.there("first")["status"]["adopted"] is True and topics.ready("renamed")[1] == "ConflictingTopic"
    _remove(topics, "first")
    await topics.settle()
    _remove(topics, "renamed")
    await topics.settle()
    assert sorted(topics.kafka.topics_there) == ["flights", "other"]


async def test_a_kafka_topic_of_another_namespace_does_not_conflict(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    elsewhere = _renamed()
    elsewhere["metadata"]["namespace"] = "elsewhere"
    topics.fleet.kubernetes.put(elsewhere)
    _remove(topics, "flights")
    await topics.settle()
    assert topics.kafka.topics_there == {}


async def test_names_that_differ_in_case_or_punctuation_are_different_topics(topics: Topics) -> None:
    topics.apply(document("a", topicName="my.topic"))
    topics.apply(document("b", topicName="My.topic"))
    await topics.settle()
    topics.kafka.refusals["my_topic"] = "InvalidTopic: Topic 'my_topic' collides with existing topics: my.topic"
    topics.apply(document("c", topicName="my_topic"))
    await topics.settle()
    assert topics.ready("c") == ("False", "InvalidTopic") and "my.topic" in topics.message("c")
    topics.kafka.refusals.clear()
    _remove(topics, "a")
    await topics.settle()
    assert sorted(topics.kafka.topics_there) == ["My.topic", "my_topic"]


def _before_the_read(topics: Topics, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Does something at the moment in which the operator reads the documents before a deletion, unseen by its watch."""
    kubernetes = topics.fleet.kubernetes
    read = kubernetes.list

    async def listed(kind: ResourceKind, namespace: str | None, selector: str) -> Sequence[Obj]:
        if kind == KAFKA_TOPIC:
            watch, kubernetes.on_change = kubernetes.on_change, None
            act()
            kubernetes.on_change = watch
            monkeypatch.setattr(kubernetes, "list", read)
        return await read(kind, namespace, selector)

    monkeypatch.setattr(kubernetes, "list", listed)


async def test_a_topic_stays_when_a_kafka_topic_is_created_just_before_its_deletion(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.apply()
    await topics.settle()
    _before_the_read(topics, monkeypatch, lambda: topics.apply(_renamed()))
    _remove(topics, "flights")
    await topics.settle()
    assert _deletions(topics) == [] and not topics.is_listed()
    topics.restart_operator()
    await topics.settle()
    assert topics.ready("renamed")[0] == "True"


async def test_a_topic_stays_when_the_policy_changes_just_before_its_deletion(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.apply()
    await topics.settle()
    _before_the_read(topics, monkeypatch, lambda: topics.apply(deletionPolicy="Retain"))
    _remove(topics, "flights")
    await topics.settle()
    assert _deletions(topics) == [] and not topics.is_listed()


async def test_no_topic_is_deleted_while_kafka_topics_cannot_be_read(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.apply()
    await topics.settle()

    async def failing(kind: ResourceKind, namespace: str | None, selector: str) -> Sequence[Obj]:
        raise ApiError(500, "InternalError", "etcd")

    read = topics.fleet.kubernetes.list
    monkeypatch.setattr(topics.fleet.kubernetes, "list", failing)
    _remove(topics, "flights")
    await topics.settle()
    assert _deletions(topics) == [] and topics.is_listed() and topics.task.queue.has_requeued
    monkeypatch.setattr(topics.fleet.kubernetes, "list", read)
    await topics.settle()
    assert _deletions(topics) == ["flights"] and not topics.is_listed()


async def test_an_adopted_topic_stays_when_its_policy_is_removed(topics: Topics) -> None:
    topics.kafka.topics_there["flights"] = TopicDescription("flights", "old", 3, 3, {})
    topics.apply(deletionPolicy="Delete")
    await topics.settle()
    assert topics.there()["status"]["adopted"] is True and _finalizers(topics, "flights") == [TOPIC_FINALIZER]
    topics.apply(deletionPolicy=None)
    await topics.settle()
    assert _finalizers(topics, "flights") == []
    _remove(topics, "flights")
    await topics.settle()
    assert _deletions(topics) == [] and "flights" in topics.kafka.topics_there


async def test_an_operator_killed_between_any_two_writes_still_knows_what_it_adopted() -> None:
    async def adopting() -> Topics:
        fleet = Fleet()
        await fleet.converge()
        topics = Topics(fleet)
        topics.kafka.topics_there["flights"] = EXISTING
        topics.apply(deletionPolicy="Delete")
        return topics

    async for writes, topics in killed_after_every_write(adopting, Topics.settle, at_least=3):
        topics.apply(deletionPolicy=None)
        await topics.settle()
        assert topics.there()["status"]["adopted"] is True, f"killed after {writes} writes"
        _remove(topics, "flights")
        await topics.settle()
        assert topics.kafka.topics_there == {"flights": EXISTING} and not topics.is_listed()


@pytest.mark.parametrize("is_deleted_first", [False, True], ids=["looked at before", "deleted before"])
async def test_a_topic_stays_when_the_record_of_its_creation_is_lost(topics: Topics, is_deleted_first: bool) -> None:
    """Restored from a backup, or copied: finalizer and annotation do not say that it was created for this document."""
    topics.apply()
    await topics.settle()
    copied = {key: value for key, value in topics.there().items() if key != "status"}
    del topics.fleet.kubernetes.objects["KafkaTopic", "default", "flights"]
    topics.restart_operator()
    topics.fleet.kubernetes.put(copied)
    if not is_deleted_first:
        await topics.settle()
        assert topics.there()["status"]["adopted"] is True and _finalizers(topics, "flights") == []
    _remove(topics, "flights")
    await topics.settle()
    assert _deletions(topics) == [] and "flights" in topics.kafka.topics_there and not topics.is_listed()


async def test_a_topic_whose_status_was_cleared_is_still_known_to_be_created_for_its_kafka_topic(
    topics: Topics,
) -> None:
    topics.apply()
    await topics.settle()
    topics.fleet.kubernetes.edit(KAFKA_TOPIC, "flights", status={"conditions": []})
    await topics.settle()
    assert topics.there()["status"]["adopted"] is False
    _remove(topics, "flights")
    await topics.settle()
    assert topics.kafka.topics_there == {} and not topics.is_listed()


async def test_a_topic_that_others_have_created_again_loses_the_record_of_its_creation(topics: Topics) -> None:
    topics.apply(deletionPolicy="Delete")
    await topics.settle()
    topics.kafka.topics_there["flights"] = EXISTING
    await topics.settle()
    assert topics.there()["status"]["adopted"] is True and not topics.there()["metadata"].get("annotations")
    assert _finalizers(topics, "flights") == [TOPIC_FINALIZER]


async def test_a_topic_stays_when_others_have_created_it_again(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.kafka.topics_there["flights"] = EXISTING
    await topics.settle()
    assert topics.there()["status"]["adopted"] is True
    _remove(topics, "flights")
    await topics.settle()
    assert "flights" in topics.kafka.topics_there and not topics.is_listed()


async def test_a_topic_deleted_by_hand_and_created_again_is_deleted_with_its_kafka_topic(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    del topics.kafka.topics_there["flights"]
    await topics.settle()
    assert topics.there()["status"]["adopted"] is False
    _remove(topics, "flights")
    await topics.settle()
    assert topics.kafka.topics_there == {} and not topics.is_listed()


async def test_a_topic_whose_creation_is_refused_as_existing_is_adopted(topics: Topics) -> None:
    """A broker that has just started does not know all topics yet: the controller's answer says that it is there."""
    topics.kafka.topics_there["flights"] = EXISTING
    topics.kafka.unseen = {"flights"}
    topics.apply()
    topics.task.queue.put("flights")
    await topics.task.reconcile_batch()
    topics.kafka.unseen = set()
    topics.restart_operator()
    await topics.settle()
    assert topics.there()["status"]["adopted"] is True and topics.ready()[0] == "True"
    _remove(topics, "flights")
    await topics.settle()
    assert "flights" in topics.kafka.topics_there and not topics.is_listed()


async def _look_at_a_broker_that_is_behind(topics: Topics) -> None:
    """One look at a broker that does not know the topic."""
    topics.kafka.unseen = {"flights"}
    topics.task.queue.put("flights")
    await topics.task.reconcile_batch()
    topics.kafka.unseen = set()


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("replicas", [3, 9], ids=["served", "with too many replicas"])
async def test_a_created_topic_stays_created_when_a_broker_that_is_behind_does_not_know_it(
    topics: Topics, restarts: bool, replicas: int
) -> None:
    topics.apply()
    await topics.settle()
    topics.apply(replicas=replicas)
    created = topics.kafka.topics_there["flights"]
    await _look_at_a_broker_that_is_behind(topics)
    if restarts:
        topics.restart_operator()
    await topics.settle()
    status = topics.there()["status"]
    assert (status["adopted"], status["topicId"]) == (False, created.topic_id)
    assert _finalizers(topics, "flights") == [TOPIC_FINALIZER]
    _remove(topics, "flights")
    await topics.settle()
    assert topics.kafka.topics_there == {} and not topics.is_listed()


async def test_a_topic_that_others_have_created_again_is_adopted_when_its_creation_is_refused_as_existing(
    topics: Topics,
) -> None:
    topics.apply()
    await topics.settle()
    topics.kafka.topics_there["flights"] = EXISTING
    await _look_at_a_broker_that_is_behind(topics)
    await topics.settle()
    assert topics.there()["status"]["adopted"] is True
    _remove(topics, "flights")
    await topics.settle()
    assert topics.kafka.topics_there["flights"].topic_id == EXISTING.topic_id and not topics.is_listed()


async def test_a_topic_is_deleted_though_a_broker_that_is_behind_does_not_know_it(topics: Topics) -> None:
    """The controller has the last word, which is asked to delete the topic by its id."""
    topics.apply()
    await topics.settle()
    topic_id = topics.kafka.topics_there["flights"].topic_id
    _remove(topics, "flights")
    await _look_at_a_broker_that_is_behind(topics)
    await topics.settle()
    assert topics.kafka.requests[-1] == DeleteTopic("flights", topic_id)
    assert topics.kafka.topics_there == {} and not topics.is_listed()


async def test_a_topic_that_no_broker_has_shown_yet_is_deleted_with_its_kafka_topic(topics: Topics) -> None:
    topics.apply()
    await _look_at_a_broker_that_is_behind(topics)
    assert "flights" in topics.kafka.topics_there and "topicId" not in topics.there().get("status", {})
    _remove(topics, "flights")
    await _look_at_a_broker_that_is_behind(topics)
    await topics.settle()
    assert topics.kafka.topics_there == {} and not topics.is_listed()


async def test_a_topic_that_others_have_created_again_stays_though_a_broker_that_is_behind_does_not_know_it(
    topics: Topics,
) -> None:
    topics.apply()
    await topics.settle()
    topics.kafka.topics_there["flights"] = EXISTING
    _remove(topics, "flights")
    await _look_at_a_broker_that_is_behind(topics)
    await topics.settle()
    assert topics.kafka.topics_there == {"flights": EXISTING} and not topics.is_listed()


async def test_a_kafka_topic_waits_while_the_controller_does_not_answer_whether_its_topic_is_gone(
    topics: Topics,
) -> None:
    topics.apply()
    await topics.settle()
    topics.kafka.refusals["flights"] = "NotController: it has just moved"
    _remove(topics, "flights")
    await _look_at_a_broker_that_is_behind(topics)
    assert topics.is_listed() and "NotController" in topics.message()
    topics.kafka.refusals.clear()
    await topics.settle()
    assert topics.kafka.topics_there == {} and not topics.is_listed()


async def test_a_record_is_confirmed_before_the_finalizer_and_the_creation(topics: Topics) -> None:
    topics.kafka.refusals["flights"] = "PolicyViolation: not today"
    topics.apply()
    topics.task.queue.put("flights")
    await topics.task.reconcile_batch()
    written = [verb for verb, kind, _ in topics.fleet.kubernetes.writes if kind == "KafkaTopic"]
    assert written == ["finalizers", "status"]
    assert dig(topics.there(), "metadata", "annotations", CREATED) == f"{uid_of(topics.there())}/flights"


async def test_a_topic_that_stays_by_its_policy_is_recorded_in_status_before_its_creation(topics: Topics) -> None:
    topics.kafka.refusals["flights"] = "PolicyViolation: not today"
    topics.apply(deletionPolicy="Retain")
    topics.task.queue.put("flights")
    await topics.task.reconcile_batch()
    written = [verb for verb, kind, _ in topics.fleet.kubernetes.writes if kind == "KafkaTopic"]
    assert written == ["status", "status"] and topics.there()["status"]["adopted"] is False


@pytest.mark.parametrize(("policy", "call"), [(None, "set_finalizers"), ("Retain", "replace_status")])
async def test_a_record_that_cannot_be_written_stops_the_creation(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, policy: str | None, call: str
) -> None:
    async def failing(*_: object) -> Obj:
        raise ApiError(500, "InternalError", "etcd")

    write = getattr(topics.fleet.kubernetes, call)
    monkeypatch.setattr(topics.fleet.kubernetes, call, failing)
    topics.apply(deletionPolicy=policy)
    await topics.settle()
    assert topics.kafka.requests == [] and _finalizers(topics, "flights") == []
    monkeypatch.setattr(topics.fleet.kubernetes, call, write)
    await topics.settle()
    assert topics.ready()[0] == "True"


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__cluster_metadata_of_tomorrow"])
async def test_an_internal_topic_is_neither_changed_nor_deleted(topics: Topics, name: str) -> None:
    internal = TopicDescription(name, "i", 50, 3, {"cleanup.policy": "compact"}, is_internal=True)
    topics.kafka.topics_there[name] = internal
    topics.apply(document("offsets", topicName=name, deletionPolicy="Delete"))
    await topics.settle()
    assert topics.ready("offsets")[1] in ("InvalidSpec", "InternalTopic") and name in topics.message("offsets")
    assert _finalizers(topics, "offsets") == []
    made = topics.there("offsets")
    made["metadata"]["finalizers"] = [TOPIC_FINALIZER]
    made["status"] |= {"topicName": name, "adopted": False, "topicId": "i"}
    topics.fleet.kubernetes.put(made)
    _remove(topics, "offsets")
    await topics.settle()
    assert topics.kafka.requests == [] and topics.kafka.topics_there[name] == internal
    assert not topics.is_listed("offsets")


async def test_the_finalizer_is_removed_without_an_answer_of_brokers_when_the_policy_becomes_retain(
    topics: Topics,
) -> None:
    topics.apply()
    topics.apply(document("other"))
    await topics.settle()
    topics.kafka.answers = False
    _remove(topics, "flights")
    _remove(topics, "other")
    with pytest.raises(KafkaUnavailable):
        await topics.settle()
    assert topics.ready() == ("False", "Terminating") and "deletionPolicy: Retain" in topics.message()
    topics.apply(deletionPolicy="Retain")
    topics.task.queue.put("flights")
    topics.task.queue.put("other")
    with pytest.raises(KafkaUnavailable):
        await topics.task.reconcile_batch()
    assert not topics.is_listed() and topics.is_listed("other")
    topics.kafka.answers = True
    await topics.settle()
    assert list(topics.kafka.topics_there) == ["flights"] and not topics.is_listed("other")


async def test_only_what_needs_an_answer_of_brokers_waits_for_it(topics: Topics) -> None:
    topics.apply(document("kept"))
    topics.apply(document("first", topicName="shared"))
    await topics.settle()
    topics.kafka.answers = False
    topics.apply(document("kept", deletionPolicy="Retain"))
    topics.apply(document("second", topicName="shared"))
    topics.apply(document("internal", topicName="__consumer_offsets"))
    topics.apply(document("wrong", config={"retention.ms": "soon"}))
    topics.apply(document("new"))
    with pytest.raises(KafkaUnavailable):
        await topics.settle()
    reasons = {name: topics.ready(name)[1] for name in ("kept", "second", "internal", "wrong", "new")}
    assert reasons == {
        "kept": "AsDeclared",
        "second": "ConflictingTopic",
        "internal": "InvalidSpec",
        "wrong": "InvalidSpec",
        "new": "WaitingForKafka",
    }
    assert _finalizers(topics, "kept") == []
    topics.fleet.edit("spec.paused", True)
    topics.task.queue_all()
    await topics.task.reconcile_batch()
    assert topics.ready("new") == ("False", "Paused") and len(topics.task.queue) == 0


async def test_a_terminating_kafka_topic_reports_that_it_waits_for_a_paused_cluster(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.fleet.edit("spec.paused", True)
    _remove(topics, "flights")
    await topics.settle()
    assert topics.ready() == ("False", "Terminating") and "paused" in topics.message()
    topics.fleet.edit("spec.paused", None)
    await topics.settle()
    assert not topics.is_listed() and topics.kafka.topics_there == {}


async def test_a_kafka_topic_without_a_topic_goes_where_brokers_delete_no_topics(topics: Topics) -> None:
    """They say so of topics that do not exist, too."""
    topics.kafka.refusals["flights"] = "PolicyViolation: not this one"
    topics.apply()
    await topics.settle()
    assert topics.ready() == ("False", "PolicyViolation")
    topics.kafka.refusals["flights"] = "TopicDeletionDisabled: delete.topic.enable is false"
    _remove(topics, "flights")
    await topics.settle()
    assert not topics.is_listed()


async def test_a_deletion_that_brokers_refuse_is_reported_on_the_terminating_kafka_topic(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.kafka.refusals["flights"] = "TopicDeletionDisabled: delete.topic.enable is false"
    _remove(topics, "flights")
    await topics.settle()
    assert topics.ready() == ("False", "Terminating") and "delete.topic.enable" in topics.message()
    topics.apply(deletionPolicy="Retain")
    await topics.settle()
    assert not topics.is_listed()
