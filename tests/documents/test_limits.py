"""Names and values that do not fit where they must go are problems of their fields, and nothing is made for them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ottla_documents.kafka_cluster import parse_cluster
from ottla_documents.kafka_topic import declared_topic, has_unusable_name, parse_topic
from ottla_documents.limits import ANNOTATIONS_BYTES, KAFKA_STRING_BYTES, OWN_ANNOTATIONS_BYTES
from ottla_operator.api.objects import CLAIM, CONFIG_MAP, STATEFUL_SET
from ottla_operator.api.topics import AlterTopicConfig, CreateTopic
from ottla_operator.effects.topic_requests import _encoding_error
from tests.operator.fleet import CLUSTER, Fleet

KEY = "max.connections.per.ip.overrides"
MOST_ANNOTATIONS = ANNOTATIONS_BYTES - OWN_ANNOTATIONS_BYTES


def _text(length: int, letter: str = "h") -> str:
    """A value of `KEY` with a host name, of this many characters."""
    return letter * (length - 2) + ":5"


def _pool(**fields: Any) -> dict[str, Any]:
    return {"brokers": {"pools": [{"name": "a", "replicas": 1, **fields}]}}


def _annotated(where: str, size: int) -> dict[str, Any]:
    return {"template": {where: {"metadata": {"annotations": {"a": "x" * (size - 1)}}}}}


@pytest.mark.parametrize(
    ("fits", "too_long", "field", "words"),
    [
        (
            {"brokers": {"config": {KEY: _text(KAFKA_STRING_BYTES)}}},
            {"brokers": {"config": {KEY: _text(KAFKA_STRING_BYTES + 1)}}},
            f"spec.brokers.config.{KEY}", "has 32768 bytes; a string of Kafka has at most 32767",
        ),
        (
            _pool(config={KEY: _text(16_000, "ä")}),
            _pool(config={KEY: _text(20_000, "ä")}),
            f"spec.brokers.pools[0].config.{KEY}", "has 39998 bytes",
        ),
        (
            {"brokers": {"config": {f"listener.name.{n}.k": "x" * 30_000 for n in range(30)}}},
            {"brokers": {"config": {f"listener.name.{n}.k": "x" * 30_000 for n in range(35)}}},
            "spec.brokers.config", "a ConfigMap has at most 1048576",
        ),
        (
            {"brokers": {"racks": ["r" * 63]}}, {"brokers": {"racks": ["r" * 64]}},
            "spec.brokers.racks[0]", "is longer than 63 characters",
        ),
        (
            {"brokers": {"racks": ["zone_A.1"]}}, {"brokers": {"racks": ["zone a"]}},
            "spec.brokers.racks[0]", "must be a value of a label, such as eu-1a, not 'zone a'",
        ),
        (
            {"brokers": {"rackKey": f"{'d' * 253}/{'n' * 63}"}}, {"brokers": {"rackKey": f"d/{'n' * 64}"}},
            "spec.brokers.rackKey", "is no key of a label",
        ),
        (
            {"brokers": {"disks": [{"name": "d0", "storageClassName": "s" * 253}]}},
            {"brokers": {"disks": [{"name": "d0", "storageClassName": "s" * 254}]}},
            "spec.brokers.disks[0].storageClassName", "is longer than 253 characters",
        ),
        (
            {"zookeeper": {"logDisk": {"size": "1Gi", "storageClassName": "fast.local"}}},
            {"zookeeper": {"logDisk": {"size": "1Gi", "storageClassName": "Fast"}}},
            "spec.zookeeper.logDisk.storageClassName", "must be the name of a StorageClass",
        ),
        (
            {"brokers": _annotated("persistentVolumeClaim", MOST_ANNOTATIONS)},
            {"brokers": _annotated("persistentVolumeClaim", MOST_ANNOTATIONS + 1)},
            "spec.brokers.template.persistentVolumeClaim.metadata.annotations", "at most 262144 bytes of annotations",
        ),
        (
            {"zookeeper": _annotated("pod", MOST_ANNOTATIONS)},
            {"zookeeper": _annotated("pod", MOST_ANNOTATIONS + 1)},
            "spec.zookeeper.template.pod.metadata.annotations", "at most 262144 bytes of annotations",
        ),
        (
            _pool(idRange={"first": 990, "last": 1000}), _pool(idRange={"first": 990, "last": 1001}),
            "spec.brokers.pools[0].idRange.last", "1001 is above reserved.broker.max.id, 1000; set that key in config",
        ),
        (
            _pool(idRange={"first": 0, "last": 5000}, config={"reserved.broker.max.id": 5000}),
            _pool(idRange={"first": 0, "last": 5001}, config={"reserved.broker.max.id": 5000}),
            "spec.brokers.pools[0].idRange.last", "5001 is above reserved.broker.max.id, 5000",
        ),
        (
            _pool(idRange={"first": 0, "last": 99_999}, config={"broker.id.generation.enable": False}),
            _pool(idRange={"first": 0, "last": 2_000_000_000}, config={"broker.id.generation.enable": False}),
            "spec.brokers.pools[0].idRange.last", "has 57 characters; that of a StatefulSet with pods has at most 52",
        ),
        (
            {"zookeeper": {"connect": "a:1"}}, {"zookeeper": {"connect": ",".join(["zk:2181"] * 5000)}},
            "spec.zookeeper.connect", "is longer than 2048 characters",
        ),
    ],
)  # fmt: skip
def test_a_value_of_a_cluster_that_does_not_fit_is_a_problem_of_its_field_and_one_that_just_fits_is_none(
    fits: dict[str, Any], too_long: dict[str, Any], field: str, words: str
) -> None:
    name = "n" * 39

    def problems(spec: dict[str, Any]) -> list[str]:
        _, found = parse_cluster({"metadata": {"name": name}, "spec": copy.deepcopy(spec)})
        return [str(problem) for problem in found if problem.path == field]

    assert problems(fits) == []
    assert len(problems(too_long)) == 1 and problems(too_long)[0].startswith(f"{field}: ")
    assert words in problems(too_long)[0]


async def test_nothing_is_made_for_a_rack_or_an_id_that_does_not_fit() -> None:
    document = copy.deepcopy(CLUSTER)
    del document["spec"]["brokers"]["replicas"]
    document["spec"]["brokers"]["pools"] = [{"name": "a", "replicas": 3, "idRange": {"first": 2000, "last": 2005}}]
    fleet = Fleet(document)
    await fleet.converge()
    assert fleet.condition("BrokersReady")[1] == "InvalidSpec"
    assert fleet.condition("Ready")[2].startswith("spec.brokers.pools[0].idRange.last: 2005 is above")
    made = [name for kind in (CLAIM, CONFIG_MAP, STATEFUL_SET) for name in fleet.kubernetes.names(kind)]
    assert [name for name in made if "broker" in name] == []
    fleet.edit("spec.brokers.config", {"reserved.broker.max.id": 3000})
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True" and list(fleet.racks()) == [
        f"orders-broker-{number}" for number in (2000, 2001, 2002)
    ]


async def test_a_dynamic_value_that_is_too_long_is_an_invalid_spec_and_is_not_sent() -> None:
    fleet = Fleet()
    await fleet.converge()
    fleet.edit("spec.brokers.config", {KEY: _text(KAFKA_STRING_BYTES + 1)})
    await fleet.converge()
    status, reason, message = fleet.condition("ConfigValid")
    assert (status, reason) == ("False", "InvalidSpec") and f"spec.brokers.config.{KEY}: has 32768 bytes" in message
    assert fleet.condition("Ready")[1] == "ConfigInvalidSpec"
    assert fleet.kafka.config_changes == [] and KEY not in fleet.properties(0)
    fleet.edit("spec.brokers.config", {KEY: "127.0.0.1:5"})
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True" and fleet.kafka.dynamic[0][KEY] == "127.0.0.1:5"


@pytest.mark.parametrize("how", ["all", "one"])
async def test_why_brokers_do_not_answer_a_change_of_a_dynamic_value_is_in_the_condition(how: str) -> None:
    fleet = Fleet()
    await fleet.converge()
    error = "KafkaConnectionError: Connection closed by peer"
    fleet.kafka.unanswered = {0: error} if how == "one" else dict.fromkeys(range(3), error)
    fleet.edit("spec.brokers.config", {"log.retention.ms": 7_000_000})
    await fleet.converge()
    status, reason, message = fleet.condition("ConfigValid")
    assert (status, reason) == ("False", "DynamicPending") and error in message
    if how == "one":
        assert message.startswith("not in effect yet: log.retention.ms of broker 0;")
        assert fleet.kafka.dynamic[1]["log.retention.ms"] == "7000000"
    fleet.kafka.unanswered = {}
    await fleet.converge()
    assert fleet.condition("ConfigValid") == ("True", "AsDeclared", "")


def _topic(name: str = "t", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"clusterRef": {"name": "orders"}, **spec}}


@pytest.mark.parametrize(
    ("fits", "too_long", "field"),
    [
        (_topic("t" * 249), _topic("t" * 250), "metadata.name"),
        (_topic(topicName="t" * 249), _topic(topicName="t" * 250), "spec.topicName"),
        (_topic("t" * 250, topicName="t"), _topic("t" * 250), "metadata.name"),
        (
            _topic(config={"follower.replication.throttled.replicas": ",".join(["1:1"] * 8000)}),
            _topic(config={"follower.replication.throttled.replicas": ",".join(["1:1"] * 9000)}),
            "spec.config.follower.replication.throttled.replicas",
        ),
    ],
)
def test_a_name_or_value_of_a_topic_that_does_not_fit_is_a_problem_of_its_field(
    fits: dict[str, Any], too_long: dict[str, Any], field: str
) -> None:
    assert parse_topic(fits)[1] == []
    _, problems = parse_topic(too_long)
    assert [problem.path for problem in problems] == [field]
    assert has_unusable_name(problems) == (field in ("metadata.name", "spec.topicName"))
    assert (declared_topic(too_long) == "") == has_unusable_name(problems)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: CreateTopic("t", 1, 1, {"cleanup.policy": text}),
        lambda text: AlterTopicConfig("t", {"cleanup.policy": text}, ()),
        lambda text: text,
    ],
)
def test_a_text_that_no_request_can_hold_is_not_sent(change: Callable[[str], object]) -> None:
    assert _encoding_error(change("x" * KAFKA_STRING_BYTES)) == ""
    assert "has 32768 bytes; a string of Kafka has at most 32767" in _encoding_error(
        change("x" * (KAFKA_STRING_BYTES + 1))
    )
