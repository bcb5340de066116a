"""KafkaTopics against a fleet in memory: what is created, changed, kept and shown."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ottla_operator.api.names import CREATED, TOPIC_FINALIZER
from ottla_operator.api.objects import KAFKA_CLUSTER, KAFKA_TOPIC, NAMESPACE, dig, uid_of
from ottla_operator.api.topics import (
    AlterTopicConfig,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    TopicChange,
    TopicDescription,
)
from ottla_operator.ports import KafkaUnavailable
from ottla_operator.runtime.topic_task import BATCH
from tests.operator.fleet import Fleet
from tests.operator.killed_operator import killed_after_every_write
from tests.operator.topic_fleet import FLIGHTS, Topics


async def test_a_kafka_topic_creates_its_topic_and_status_shows_it(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    assert topics.kafka.requests == [CreateTopic("flights", 12, 3, {"retention.ms": "604800000"})]
    assert topics.ready() == ("True", "AsDeclared")
    status = topics.there()["status"]
    assert (status["topicName"], status["partitions"], status["replicas"]) == ("flights", 12, 3)
    assert status["adopted"] is False
    assert topics.there()["metadata"]["finalizers"] == [TOPIC_FINALIZER]


async def test_nothing_is_written_and_no_change_requested_at_rest(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.fleet.kubernetes.writes.clear()
    topics.kafka.requests.clear()
    topics.restart_operator()
    await topics.settle()
    assert topics.fleet.kubernetes.writes == [] and topics.kafka.requests == []


async def test_the_finalizer_is_set_before_the_topic_is_created(topics: Topics) -> None:
    topics.kafka.refusals = {"flights": "PolicyViolation: not today"}
    topics.apply()
    await _one_batch(topics)
    assert topics.there()["metadata"]["finalizers"] == [TOPIC_FINALIZER]
    assert topics.ready() == ("False", "PolicyViolation") and topics.message() == "not today"


async def _one_batch(topics: Topics) -> None:
    topics.task.queue_all()
    await topics.task.reconcile_batch()


async def test_a_larger_number_of_partitions_adds_partitions(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.apply(partitions=24)
    await topics.settle()
    assert topics.kafka.requests[1:] == [CreatePartitions("flights", 24)]
    assert topics.there()["status"]["partitions"] == 24


async def test_fewer_partitions_are_reported_and_stop_no_other_change(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.apply(partitions=6, config={"retention.ms": 1000})
    await topics.settle()
    assert topics.ready() == ("False", "PartitionsDecreased") and "spec.partitions" in topics.message()
    assert topics.kafka.topics_there["flights"].config == {"retention.ms": "1000"}
    topics.apply(partitions=12)
    await topics.settle()
    assert topics.ready()[0] == "True"


async def test_another_replication_factor_is_reported(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.apply(replicas=2)
    await topics.settle()
    assert topics.ready() == ("False", "Changing") and "spec.replicas" in topics.message()


async def test_a_topic_whose_replicas_change_shows_how_many_partitions_are_done_and_what_is_left(
    topics: Topics,
) -> None:
    topics.apply(replicas=2)
    await topics.settle()
    assert "replicasChange" not in topics.there()["status"]
    topics.apply(replicas=3)
    live = topics.kafka.topics_there["flights"]
    topics.kafka.topics_there["flights"] = replace(live, whole=(3,) * 5 + (2,) * 6)
    await topics.settle()
    progress = {"from": 2, "to": 3, "partitionsDone": 5, "partitions": 12}
    assert topics.there()["status"]["replicasChange"] == progress

    batch = [{"topic": "flights", "partition": index, "bytesToGo": 100} for index in (5, 6)]
    status = {**topics.fleet.kubernetes.there(KAFKA_CLUSTER, "orders")["status"], "rebalance": {"batch": batch}}
    topics.fleet.cache.put(topics.fleet.kubernetes.edit(KAFKA_CLUSTER, "orders", status=status))
    await topics.settle()
    assert topics.there()["status"]["replicasChange"] == {**progress, "bytesToGo": 200}

    topics.kafka.topics_there["flights"] = replace(live, replicas=3, whole=(3,) * 12)
    await topics.settle()
    assert topics.ready()[0] == "True" and "replicasChange" not in topics.there()["status"]


async def test_a_change_of_replicas_that_nothing_makes_shows_no_progress(topics: Topics) -> None:
    topics.fleet.edit("spec.rebalance", {"mode": "Off"})
    await topics.fleet.converge()
    topics.apply()
    await topics.settle()
    topics.apply(replicas=2)
    await topics.settle()
    assert topics.ready() == ("False", "ReplicasChangeNotSupported")
    assert "replicasChange" not in topics.there()["status"]


async def test_more_replicas_than_brokers_are_reported(topics: Topics) -> None:
    topics.apply(replicas=4)
    await topics.settle()
    assert topics.ready() == ("False", "NotEnoughBrokers") and topics.kafka.requests == []


async def test_a_topic_is_created_once_there_are_enough_brokers_without_an_event(topics: Topics) -> None:
    topics.apply(replicas=4)
    await topics.settle()
    assert topics.task.queue.has_requeued
    topics.fleet.edit("spec.brokers.replicas", 4)
    await topics.fleet.converge()
    topics.task.queue.queue_requeued()
    await topics.task.reconcile_batch()
    assert topics.kafka.topics_there["flights"].replicas == 4


async def test_a_refused_change_is_tried_again(topics: Topics) -> None:
    topics.kafka.refusals["flights"] = "RequestTimedOutError: busy"
    topics.apply()
    await topics.settle()
    assert topics.ready()[0] == "False" and topics.task.queue.has_requeued
    topics.kafka.refusals.clear()
    topics.task.queue.queue_requeued()
    await topics.settle()
    assert topics.ready()[0] == "True" and not topics.task.queue.has_requeued


async def test_a_configuration_changed_by_hand_is_changed_back(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    live = topics.kafka.topics_there["flights"]
    drifted = {"retention.ms": "1", "max.message.bytes": "5", "leader.replication.throttled.replicas": "*"}
    topics.kafka.topics_there["flights"] = TopicDescription(
        live.name, live.topic_id, live.partitions, live.replicas, drifted
    )
    await topics.settle()
    assert topics.kafka.requests[1:] == [
        AlterTopicConfig("flights", {"retention.ms": "604800000"}, ("max.message.bytes",))
    ]
    assert topics.ready()[0] == "True"


@pytest.mark.parametrize("value", [{"a": 1}, [1], "much"])
async def test_an_invalid_configuration_is_reported_with_its_field(topics: Topics, value: Any) -> None:
    topics.apply(config={"retention.ms": value})
    await topics.settle()
    assert topics.ready() == ("False", "InvalidSpec") and "spec.config.retention.ms" in topics.message()
    assert topics.kafka.requests == []


async def test_an_existing_topic_is_adopted_altered_and_kept(topics: Topics) -> None:
    topics.kafka.topics_there["flights"] = TopicDescription("flights", "old", 3, 3, {})
    topics.apply()
    await topics.settle()
    assert topics.kafka.requests == [
        AlterTopicConfig("flights", {"retention.ms": "604800000"}, ()),
        CreatePartitions("flights", 12),
    ]
    assert topics.there()["status"]["adopted"] is True and not topics.there()["metadata"].get("finalizers")
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "flights")
    await topics.settle()
    assert "flights" in topics.kafka.topics_there and not topics.is_listed()


async def test_a_created_topic_is_deleted_with_its_kafka_topic(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topic_id = topics.kafka.topics_there["flights"].topic_id
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "flights")
    await topics.settle()
    assert topics.kafka.requests[-1] == DeleteTopic("flights", topic_id)
    assert "flights" not in topics.kafka.topics_there and not topics.is_listed()


@pytest.mark.parametrize(("policy", "existed", "is_kept"), [("Retain", False, True), ("Delete", True, False)])
async def test_the_deletion_policy_decides_whether_a_topic_is_deleted(
    topics: Topics, policy: str, existed: bool, is_kept: bool
) -> None:
    if existed:
        topics.kafka.topics_there["flights"] = TopicDescription("flights", "old", 12, 3, {})
    topics.apply(deletionPolicy=policy)
    await topics.settle()
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "flights")
    await topics.settle()
    assert ("flights" in topics.kafka.topics_there) is is_kept and not topics.is_listed()


async def test_the_finalizer_is_removed_when_the_policy_becomes_retain(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.apply(deletionPolicy="Retain")
    await topics.settle()
    assert not dig(topics.there(), "metadata", "finalizers")


async def test_a_finalizer_never_outlives_its_cluster(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.fleet.kubernetes.remove(KAFKA_CLUSTER, "orders")
    topics.kafka.answers = False
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "flights")
    await topics.settle()
    assert not topics.is_listed() and "flights" in topics.kafka.topics_there


async def test_a_finalizer_never_outlives_its_namespace(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    namespace = topics.fleet.kubernetes.there(NAMESPACE, "default")
    metadata = {**namespace["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    topics.fleet.kubernetes.put({**namespace, "metadata": metadata})
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "flights")
    await topics.settle()
    assert not topics.is_listed() and "flights" in topics.kafka.topics_there


async def test_a_kafka_topic_without_its_cluster_is_reported(topics: Topics) -> None:
    topics.fleet.kubernetes.remove(KAFKA_CLUSTER, "orders")
    topics.apply()
    await topics.settle()
    assert topics.ready() == ("False", "ClusterNotFound") and "spec.clusterRef.name" in topics.message()


async def test_the_older_of_two_kafka_topics_has_the_topic_that_both_name(topics: Topics) -> None:
    await _two_documents_of_one_topic(topics, name="again", creationTimestamp="2026-02-01T00:00:00Z")


async def test_the_first_by_name_has_the_topic_when_two_kafka_topics_are_equally_old(topics: Topics) -> None:
    await _two_documents_of_one_topic(topics, name="flights-again")


async def _two_documents_of_one_topic(topics: Topics, name: str, **metadata: str) -> None:
    topics.apply()
    await topics.settle()
    second = copy.deepcopy(FLIGHTS)
    second["metadata"] |= {"name": name, **metadata}
    topics.apply(second, topicName="flights", partitions=50)
    await topics.settle()
    assert topics.ready(name) == ("False", "ConflictingTopic") and topics.ready()[0] == "True"
    assert topics.kafka.topics_there["flights"].partitions == 12
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, name)
    await topics.settle()
    assert "flights" in topics.kafka.topics_there


async def test_kafka_topics_stay_queued_while_no_broker_answers(topics: Topics) -> None:
    topics.apply()
    topics.kafka.answers = False
    topics.task.queue.put("flights")
    with pytest.raises(KafkaUnavailable):
        await topics.task.reconcile_batch()
    assert len(topics.task.queue) == 1
    assert topics.ready() == ("False", "WaitingForKafka")
    topics.kafka.answers = True
    await topics.settle()
    assert topics.ready()[0] == "True"


async def test_a_change_that_times_out_is_seen_with_the_next_metadata(topics: Topics) -> None:
    """Brokers answer and work: no condition changes, and one write follows when they are done."""
    topics.kafka.is_slow = True
    topics.apply()
    topics.task.queue.put("flights")
    with pytest.raises(KafkaUnavailable):
        await topics.task.reconcile_batch()
    assert "status" not in topics.there() and len(topics.task.queue) == 1
    assert topics.there()["metadata"]["annotations"] == {CREATED: f"{uid_of(topics.there())}/flights"}
    topics.kafka.is_slow = False
    await topics.task.reconcile_batch()
    assert topics.ready() == ("True", "AsDeclared") and len(topics.kafka.requests) == 1
    written = [verb for verb, kind, _ in topics.fleet.kubernetes.writes if kind in ("KafkaTopic", "Event")]
    assert written == ["finalizers", "status"]


async def test_one_refused_topic_stops_no_other_of_its_batch(topics: Topics) -> None:
    other = copy.deepcopy(FLIGHTS)
    other["metadata"]["name"] = "other"
    topics.kafka.refusals = {"flights": "InvalidReplicationFactor: too many"}
    topics.apply()
    topics.apply(other)
    await _one_batch(topics)
    assert topics.ready() == ("False", "InvalidReplicationFactor") and topics.ready("other")[0] == "True"


async def test_a_paused_cluster_changes_no_topic(topics: Topics) -> None:
    topics.fleet.edit("spec.paused", True)
    topics.apply()
    await topics.settle()
    assert topics.ready() == ("False", "Paused") and topics.kafka.requests == []


async def test_batches_are_in_order_of_arrival_each_document_once(topics: Topics) -> None:
    for number in range(BATCH + 20):
        document = copy.deepcopy(FLIGHTS)
        document["metadata"]["name"] = f"t{number:03}"
        topics.apply(document)
        topics.task.queue.put(f"t{number:03}")
        topics.task.queue.put("t000")
    assert len(topics.task.queue) == BATCH + 20
    await topics.task.reconcile_batch()
    created = [change.topic for change in topics.kafka.requests]
    assert created == [f"t{number:03}" for number in range(BATCH)] and len(topics.task.queue) == 20


async def test_an_operator_killed_between_any_two_writes_still_knows_whether_it_created_the_topic() -> None:
    async def applied() -> Topics:
        fleet = Fleet()
        await fleet.converge()
        topics = Topics(fleet)
        topics.apply()
        return topics

    async for writes, topics in killed_after_every_write(applied, Topics.settle, at_least=2):
        assert topics.ready() == ("True", "AsDeclared")
        assert topics.there()["status"]["adopted"] is False, f"killed after {writes} writes"
        topics.kubernetes.remove(KAFKA_TOPIC, "flights")
        await topics.settle()
        assert topics.kafka.topics_there == {} and not topics.is_listed()


@pytest.fixture
def many() -> int:
    """How many topics a cluster has that has many; fewer in tests/operator/real_api."""
    return 1000


async def test_a_cluster_of_many_topics_is_at_rest_without_a_write(topics: Topics, many: int) -> None:
    for number in range(many):
        document = copy.deepcopy(FLIGHTS)
        document["metadata"]["name"] = f"t{number:04}"
        topics.apply(document)
    await topics.settle()
    assert len(topics.kafka.topics_there) == many
    topics.fleet.kubernetes.writes.clear()
    topics.kafka.requests.clear()
    await topics.settle()
    assert topics.fleet.kubernetes.writes == [] and topics.kafka.requests == []


async def test_a_created_topic_stays_recorded_when_its_cluster_is_deleted_and_applied_again(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    cluster = topics.fleet.kubernetes.there(KAFKA_CLUSTER, "orders")
    topics.fleet.kubernetes.remove(KAFKA_CLUSTER, "orders")
    await topics.settle()
    assert topics.ready() == ("False", "ClusterNotFound") and not dig(topics.there(), "metadata", "finalizers")
    topics.kafka.answers = False
    topics.fleet.kubernetes.put({**cluster, "metadata": {"name": "orders", "namespace": "default"}})
    with pytest.raises(KafkaUnavailable):
        await topics.settle()
    assert topics.ready() == ("False", "WaitingForKafka")
    topics.kafka.answers = True
    await topics.fleet.converge()
    await topics.settle()
    assert topics.ready()[0] == "True"
    assert dig(topics.there(), "status", "adopted") is False
    assert dig(topics.there(), "metadata", "finalizers") == [TOPIC_FINALIZER]


async def test_why_the_brokers_do_not_answer_a_change_is_in_the_condition_when_it_happens_again(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time it may be a broker that restarts."""
    error = "KafkaConnectionError: Connection closed by peer"
    asked = []

    async def closed(changes: Sequence[TopicChange]) -> Mapping[str, str]:
        asked.append(changes)
        raise KafkaUnavailable(f"{error} {len(asked)}")

    with monkeypatch.context() as patched:
        patched.setattr(topics.kafka, "change", closed)
        topics.apply()
        topics.task.queue_all()
        with pytest.raises(KafkaUnavailable):
            await topics.task.reconcile_batch()
        assert "status" not in topics.there()
        for _ in range(2):
            with pytest.raises(KafkaUnavailable):
                await topics.task.reconcile_batch()
            assert topics.ready() == ("False", "WaitingForKafka")
            assert topics.message() == f"the brokers do not answer the change: {error} 2"
    await topics.settle()
    assert topics.ready() == ("True", "AsDeclared")
