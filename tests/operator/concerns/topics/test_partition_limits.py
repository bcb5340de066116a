"""A KafkaCluster limits the partitions of its KafkaTopics: what would exceed a limit waits, and says which one."""

from __future__ import annotations

from ottla_operator.api.objects import KAFKA_TOPIC
from ottla_operator.api.topics import AlterTopicConfig, CreatePartitions, TopicDescription
from tests.operator.topic_fleet import Topics, document


async def test_a_topic_with_more_partitions_than_allowed_is_not_created_and_says_why(topics: Topics) -> None:
    topics.fleet.edit("spec.topics", {"maxPartitionsPerTopic": 10})
    topics.apply()
    await topics.settle()
    assert topics.kafka.requests == [] and topics.ready() == ("False", "PartitionLimit")
    assert "spec.topics.maxPartitionsPerTopic of KafkaCluster orders allows, 10" in topics.message()
    topics.apply(partitions=10)
    await topics.settle()
    assert topics.ready() == ("True", "AsDeclared")


async def test_a_topic_is_created_when_the_limit_is_raised(topics: Topics) -> None:
    topics.fleet.edit("spec.topics", {"maxPartitionsPerTopic": 10})
    topics.apply()
    await topics.settle()
    topics.fleet.edit("spec.topics", {"maxPartitionsPerTopic": 12})
    await topics.settle()
    assert topics.ready() == ("True", "AsDeclared")


async def test_a_growth_beyond_the_limit_is_refused_and_the_configuration_is_altered(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.fleet.edit("spec.topics", {"maxPartitionsPerTopic": 20})
    topics.apply(partitions=24, config={"retention.ms": 1000})
    await topics.settle()
    assert topics.kafka.requests[1:] == [AlterTopicConfig("flights", {"retention.ms": "1000"}, ())]
    assert topics.ready() == ("False", "PartitionLimit")


async def test_a_topic_that_exists_keeps_more_partitions_than_the_limit_allows(topics: Topics) -> None:
    topics.apply()
    await topics.settle()
    topics.fleet.edit("spec.topics", {"maxPartitionsPerTopic": 1, "maxPartitions": 1})
    await topics.settle()
    assert topics.ready() == ("True", "AsDeclared") and topics.kafka.topics_there["flights"].partitions == 12


async def test_topics_of_one_batch_do_not_exceed_the_limit_together(topics: Topics) -> None:
    topics.fleet.edit("spec.topics", {"maxPartitions": 20})
    for name in ("a", "b", "c"):
        topics.apply(document(name, partitions=8))
    await topics.settle()
    assert [topics.ready(name)[1] for name in ("a", "b", "c")] == ["AsDeclared", "AsDeclared", "PartitionLimit"]
    assert "spec.topics.maxPartitions of KafkaCluster orders, 20: 4 are left" in topics.message("c")


async def test_a_topic_waits_for_room_and_is_created_once_another_is_deleted(topics: Topics) -> None:
    topics.fleet.edit("spec.topics", {"maxPartitions": 12})
    topics.apply()
    await topics.settle()
    topics.apply(document("second", partitions=4))
    await topics.settle()
    assert topics.ready("second") == ("False", "PartitionLimit") and topics.task.queue.has_requeued
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "flights")
    await topics.settle()
    assert topics.ready("second") == ("True", "AsDeclared")


async def test_a_topic_without_a_number_of_partitions_counts_with_that_of_the_brokers(topics: Topics) -> None:
    topics.fleet.edit("spec.brokers.config", {"num.partitions": 6})
    topics.fleet.edit("spec.topics", {"maxPartitionsPerTopic": 5})
    topics.apply(partitions=None)
    await topics.settle()
    assert topics.ready() == ("False", "PartitionLimit") and "6 partitions" in topics.message()


async def test_a_topic_that_is_adopted_counts_and_is_not_refused(topics: Topics) -> None:
    topics.kafka.topics_there["flights"] = TopicDescription("flights", "old", 12, 3, {"retention.ms": "604800000"})
    topics.fleet.edit("spec.topics", {"maxPartitions": 14})
    topics.apply()
    topics.apply(document("second", partitions=4))
    await topics.settle()
    assert topics.ready() == ("True", "AsDeclared") and topics.ready("second") == ("False", "PartitionLimit")
    topics.apply(document("second", partitions=2))
    await topics.settle()
    assert topics.ready("second") == ("True", "AsDeclared")
    topics.apply(partitions=13)
    await topics.settle()
    assert topics.ready() == ("False", "PartitionLimit")
    assert not any(isinstance(change, CreatePartitions) for change in topics.kafka.requests)
