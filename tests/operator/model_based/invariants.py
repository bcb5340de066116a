"""Checks that conditions are true, from the objects and not from what the operator reports."""

from __future__ import annotations

from collections.abc import Iterator

from ottla_broker.config.topics import validate_topic_config
from ottla_broker.protocol.errors import KafkaError
from ottla_documents.kafka_topic import parse_topic
from ottla_operator.api.names import TOPIC_FINALIZER
from ottla_operator.api.objects import Obj, dig, is_terminating, name_of
from ottla_operator.concerns.topics.decisions import NOT_MANAGED_KEYS
from tests.operator.model_based.kafka import TOPIC_NAME, printed
from tests.operator.model_based.world import World, is_live, topic_of


def condition_of(document: Obj, kind: str = "Ready") -> Obj:
    for item in dig(document, "status", "conditions") or []:
        if item["type"] == kind:
            return dict(item)
    return {}


def violations_of_topics(world: World) -> Iterator[str]:
    """The statements in the status of KafkaTopics at rest that are not true, and the missing ones."""
    cluster = world.cluster
    is_paused = dig(cluster, "spec", "paused") is True
    brokers = len(world.kafka.ready_brokers())
    documents = world.documents()
    for document in documents:
        name, topic = name_of(document), topic_of(document)
        if is_terminating(document):
            if TOPIC_FINALIZER in (dig(document, "metadata", "finalizers") or []) and not is_paused:
                yield f"KafkaTopic {name} cannot be deleted because of our finalizer"
            continue
        condition = condition_of(document)
        said = f"KafkaTopic {name} is {condition.get('status')} {condition.get('reason')}: {condition.get('message')}"
        if not condition:
            yield f"KafkaTopic {name} says nothing of itself"
            continue
        if condition["observedGeneration"] != document["metadata"]["generation"]:
            yield f"{said}, of generation {condition['observedGeneration']}, not {document['metadata']['generation']}"
        if condition["status"] == "True":
            yield from (f"{said}, but {why}" for why in _not_ready_reasons(world, document))
        elif cluster is not None and not is_paused and brokers:
            sharing = [one for one in documents if topic_of(one) == topic and is_live(one)]
            if len(sharing) == 1 and not (whys := list(_why_it_cannot(world, document, brokers))):
                yield f"{said}, but nothing is wrong with it {whys}"
    for topic in sorted({topic_of(document) for document in documents if is_live(document)}):
        sharing = [one for one in documents if topic_of(one) == topic and is_live(one)]
        ready = [name_of(one) for one in sharing if condition_of(one).get("status") == "True"]
        if len(ready) > 1:
            yield f"KafkaTopics {', '.join(ready)} are all Ready and mean topic {topic}"
        if all(condition_of(one).get("reason") == "ConflictingTopic" for one in sharing):
            yield f"every KafkaTopic of topic {topic} waits for another one: {', '.join(map(name_of, sharing))}"


def _not_ready_reasons(world: World, document: Obj) -> Iterator[str]:
    topic, problems = parse_topic(document)
    live = world.kafka.topics_there.get(topic.topic_name)
    if problems:
        yield f"it has problems: {'; '.join(map(str, problems))}"
        return
    if live is None:
        yield "there is no such topic"
        return
    if 0 < topic.partitions != live.partitions:
        yield f"the topic has {live.partitions} partitions"
    if 0 < topic.replicas != live.replicas:
        yield f"the topic has {live.replicas} replicas"
    there = {key: value for key, value in printed(live.config).items() if key not in NOT_MANAGED_KEYS}
    if not topic.topic_name.startswith("__") and there != printed(topic.config):
        yield f"the topic has {there}, and it asks for {printed(topic.config)}"
    if dig(document, "status", "topicId") != live.topic_id:
        yield f"the topic's id is {live.topic_id}"


def _why_it_cannot(world: World, document: Obj, brokers: int) -> Iterator[str]:
    topic, problems = parse_topic(document)
    live = world.kafka.topics_there.get(topic.topic_name)
    yield from map(str, problems)
    try:
        validate_topic_config(topic.config)  # keys that do not go together
    except KafkaError as error:
        yield str(error)
    if not TOPIC_NAME.fullmatch(topic.topic_name) or topic.topic_name.startswith("__"):
        yield "is no topic for documents"
    if live is None and topic.replicas > brokers:
        yield "too few brokers"
    if live is not None and 0 < topic.partitions < live.partitions:
        yield "fewer partitions"
    if live is not None and 0 < topic.replicas != live.replicas:
        yield "other replicas"
