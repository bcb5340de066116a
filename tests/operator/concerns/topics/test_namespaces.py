"""KafkaTopics of other namespaces than that of the KafkaCluster: only where the cluster allows them."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_operator.api.names import TOPIC_FINALIZER
from ottla_operator.api.objects import KAFKA_CLUSTER, KAFKA_TOPIC, Obj, dig, is_terminating
from ottla_operator.api.topics import DeleteTopic
from tests.operator.topic_fleet import Topics, document

BY_NAME = {"names": ["team-a", "team-b"]}
BY_LABEL = {"selector": {"matchLabels": {"kafka": "orders"}}}
LATER = "2026-02-01T00:00:00Z"


def _namespace(topics: Topics, name: str, **labels: str) -> None:
    topics.fleet.kubernetes.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


def _allow(topics: Topics, namespaces: dict[str, Any] | None) -> None:
    spec = dict(topics.fleet.kubernetes.there(KAFKA_CLUSTER, "orders")["spec"])
    spec["topics"] = {} if namespaces is None else {"namespaces": namespaces}
    topics.fleet.kubernetes.edit(KAFKA_CLUSTER, "orders", spec=spec)


def _apply(topics: Topics, namespace: str, name: str = "flights", **spec: Any) -> Obj:
    made = document(name, clusterRef={"name": "orders", "namespace": "default"}, **spec)
    made["metadata"]["namespace"] = namespace
    before = topics.fleet.kubernetes.objects.get(("KafkaTopic", namespace, name))
    return topics.fleet.kubernetes.put({**(before or made), "spec": made["spec"]})


def _there(topics: Topics, namespace: str, name: str = "flights") -> Obj:
    return topics.fleet.kubernetes.objects["KafkaTopic", namespace, name]


def _delete(topics: Topics, namespace: str, name: str = "flights") -> None:
    there = _there(topics, namespace, name)
    assert dig(there, "metadata", "finalizers"), "else it is gone at once"
    topics.fleet.kubernetes.put({**there, "metadata": {**there["metadata"], "deletionTimestamp": LATER}})


def _reason(topics: Topics, namespace: str, name: str = "flights") -> tuple[str, str]:
    condition = dig(_there(topics, namespace, name), "status", "conditions", 0)
    return condition["reason"], condition.get("message", "")


def _deleted(topics: Topics) -> list[str]:
    return [change.topic for change in topics.kafka.requests if isinstance(change, DeleteTopic)]


@pytest.mark.parametrize("allowed", [BY_NAME, BY_LABEL, {"selector": {}}], ids=["name", "label", "all"])
async def test_a_topic_of_an_allowed_namespace_is_created_kept_and_deleted_as_any_other(
    topics: Topics, allowed: dict[str, Any]
) -> None:
    _namespace(topics, "team-a", kafka="orders")
    _allow(topics, allowed)
    _apply(topics, "team-a")
    await topics.settle()
    assert _reason(topics, "team-a")[0] == "AsDeclared"
    assert topics.kafka.topics_there["flights"].partitions == 12
    _apply(topics, "team-a", partitions=24)
    await topics.settle()
    assert topics.kafka.topics_there["flights"].partitions == 24
    writes = len(topics.fleet.kubernetes.writes)
    await topics.settle()
    assert len(topics.fleet.kubernetes.writes) == writes, "at rest nothing is written"
    _delete(topics, "team-a")
    await topics.settle()
    assert (
        _deleted(topics) == ["flights"] and ("KafkaTopic", "team-a", "flights") not in topics.fleet.kubernetes.objects
    )


@pytest.mark.parametrize(
    "allowed", [None, {"names": ["team-b"]}, {"selector": {"matchLabels": {"kafka": "payments"}}}, {}]
)
async def test_a_topic_of_a_namespace_that_is_not_allowed_is_not_created(
    topics: Topics, allowed: dict[str, Any] | None
) -> None:
    _namespace(topics, "team-a", kafka="orders")
    _allow(topics, allowed)
    _apply(topics, "team-a")
    await topics.settle()
    reason, message = _reason(topics, "team-a")
    assert reason == "NamespaceNotAllowed"
    assert "namespace team-a" in message and "spec.topics.namespaces" in message and "orders" in message
    assert topics.kafka.topics_there == {} and not dig(_there(topics, "team-a"), "metadata", "finalizers")


async def test_a_topic_stays_in_kafka_when_its_namespace_is_no_longer_allowed(topics: Topics) -> None:
    _namespace(topics, "team-a")
    _allow(topics, BY_NAME)
    _apply(topics, "team-a")
    await topics.settle()
    _allow(topics, None)
    await topics.settle()
    assert _reason(topics, "team-a")[0] == "NamespaceNotAllowed"
    assert not dig(_there(topics, "team-a"), "metadata", "finalizers"), "so its deletion waits for nobody"
    _apply(topics, "team-a", partitions=24)
    await topics.settle()
    assert topics.kafka.topics_there["flights"].partitions == 12
    _allow(topics, BY_NAME)
    await topics.settle()
    assert _reason(topics, "team-a")[0] == "AsDeclared" and topics.kafka.topics_there["flights"].partitions == 24
    assert TOPIC_FINALIZER in _there(topics, "team-a")["metadata"]["finalizers"], "it is still the one that created it"
    assert _deleted(topics) == []


async def test_the_oldest_document_of_all_allowed_namespaces_has_the_topic(topics: Topics) -> None:
    """Also of documents with one name: a name is unique only in its namespace."""
    for name in ("team-a", "team-b"):
        _namespace(topics, name)
    _allow(topics, BY_NAME)
    _apply(topics, "team-a")
    await topics.settle()
    for namespace in ("default", "team-b"):
        made = document("flights", clusterRef={"name": "orders", "namespace": "default"}, partitions=24)
        made["metadata"] |= {"namespace": namespace, "creationTimestamp": LATER}
        topics.fleet.kubernetes.put(made)
    await topics.settle()
    for namespace in ("default", "team-b"):
        assert _reason(topics, namespace) == (
            "ConflictingTopic",
            "KafkaTopic team-a/flights is older and has topic flights",
        )
    assert topics.kafka.topics_there["flights"].partitions == 12
    _delete(topics, "team-a")
    await topics.settle()
    assert _deleted(topics) == [] and topics.kafka.topics_there["flights"].partitions == 24
    assert sorted([_reason(topics, "default")[0], _reason(topics, "team-b")[0]]) == ["AsDeclared", "ConflictingTopic"]


async def test_an_older_document_of_a_namespace_that_is_not_allowed_does_not_have_the_topic(topics: Topics) -> None:
    _namespace(topics, "team-c")
    _allow(topics, BY_NAME)
    _apply(topics, "team-c")
    await topics.settle()
    made = document("flights")
    made["metadata"]["creationTimestamp"] = LATER
    topics.fleet.kubernetes.put(made)
    await topics.settle()
    assert topics.ready() == ("True", "AsDeclared") and _reason(topics, "team-c")[0] == "NamespaceNotAllowed"


async def test_a_terminating_namespace_takes_its_document_and_leaves_the_topic(topics: Topics) -> None:
    _namespace(topics, "team-a")
    _allow(topics, BY_NAME)
    _apply(topics, "team-a")
    topics.apply(document("stays"))
    await topics.settle()
    namespace = topics.fleet.kubernetes.objects["Namespace", "", "team-a"]
    topics.fleet.kubernetes.put({**namespace, "metadata": {**namespace["metadata"], "deletionTimestamp": LATER}})
    _delete(topics, "team-a")
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "stays")
    await topics.settle()
    assert ("KafkaTopic", "team-a", "flights") not in topics.fleet.kubernetes.objects
    assert _deleted(topics) == ["stays"], "the namespace of the cluster is not terminating"


async def test_a_document_that_was_not_seen_yet_keeps_a_topic_from_being_deleted(topics: Topics) -> None:
    """Another namespace's watch may be behind, so all namespaces that may be allowed are read."""
    _namespace(topics, "team-a", kafka="orders")
    _allow(topics, BY_LABEL)
    topics.apply(document("flights"))
    await topics.settle()
    tell, topics.fleet.kubernetes.on_change = topics.fleet.kubernetes.on_change, None
    _apply(topics, "team-a")
    topics.fleet.kubernetes.on_change = tell
    topics.fleet.kubernetes.remove(KAFKA_TOPIC, "flights")
    assert is_terminating(topics.there())
    await topics.settle()
    assert _deleted(topics) == [] and "flights" in topics.kafka.topics_there
