"""The CRDs say what the model reads, no more and no less, and refuse what has the wrong shape."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla_broker.config import COORDINATOR_TOPICS
from ottla_documents.kafka_topic import parse_topic
from tests.operator.crds.schema import definition, rules, schema_of, structural_faults, undescribed, violations

MANIFESTS = Path(__file__).parents[3] / "manifests"
EXAMPLES = Path(__file__).parents[3] / "examples"
PLURALS = {"KafkaCluster": "kafkaclusters", "KafkaTopic": "kafkatopics", "KafkaPipeline": "kafkapipelines"}
CLUSTER: dict[str, Any] = {
    "apiVersion": "kafka.ottla.dev/v1alpha1",
    "kind": "KafkaCluster",
    "metadata": {"name": "orders"},
    "spec": {"brokers": {"disks": [{"name": "d0"}]}, "zookeeper": {}},
}
TOPIC: dict[str, Any] = {
    "apiVersion": "kafka.ottla.dev/v1alpha1",
    "kind": "KafkaTopic",
    "metadata": {"name": "flights"},
    "spec": {"clusterRef": {"name": "orders"}},
}

PIPELINE: dict[str, Any] = {
    "apiVersion": "kafka.ottla.dev/v1alpha1",
    "kind": "KafkaPipeline",
    "metadata": {"name": "late-flights"},
    "spec": {
        "clusterRef": {"name": "orders"},
        "source": {"topics": ["flights"]},
        "sink": {"topic": {"name": "late-flights"}},
    },
}


def _with(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    *parents, last = path.split(".")
    place = changed
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return changed


@pytest.mark.parametrize("plural", PLURALS.values())
def test_the_schemas_are_structural_and_hold_no_defaults(plural: str) -> None:
    assert structural_faults(schema_of(plural)) == []
    version = definition(plural)["spec"]["versions"][0]
    assert version["served"] and version["storage"] and "status" in version["subresources"]
    assert definition(plural)["metadata"]["name"] == f"{plural}.kafka.ottla.dev"


@pytest.mark.parametrize("plural", PLURALS.values())
def test_every_field_has_a_description_for_kubectl_explain(plural: str) -> None:
    assert schema_of(plural)["description"]
    assert undescribed(schema_of(plural)) == []


@pytest.mark.parametrize(
    "path", [*sorted(MANIFESTS.glob("*.yaml")), *sorted(EXAMPLES.glob("*.yaml"))], ids=lambda path: path.name
)
def test_the_manifests_are_accepted(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        assert violations(schema_of(PLURALS[document["kind"]]), document) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.brokers.replicas", "3"),
        ("spec.brokers.replicas", 0),
        ("spec.brokers.replicas", True),
        ("spec.brokers.disks", []),
        ("spec.brokers.disks", [{"size": "1Gi"}]),
        ("spec.brokers.disks", [{"name": "d0"}, {"name": "d0"}]),
        ("spec.brokers.disks", [{"name": "d0", "size": "much"}]),
        ("spec.brokers.disks", [{"name": "a-name-too-long"}]),
        ("spec.brokers.racks", ["a", "a"]),
        ("spec.brokers.resources", {"requests": {"memory": "much"}}),
        ("spec.brokers.resources", {"limits": {"memory": "-1"}}),
        ("spec.zookeeper.resources", {"claims": []}),
        ("spec.brokers.overrides", [{"state": "Hold"}]),
        ("spec.brokers.overrides", [{"id": 1, "state": "hold"}]),
        ("spec.brokers.overrides", [{"id": 1}, {"id": 1, "state": "Hold"}]),
        ("spec.brokers.disc", []),
        ("spec.brokers.config", ["min.insync.replicas=2"]),
        ("spec.brokers.template", {"pod": {"metadata": {"labels": {"a": 1}}}}),
        ("spec.brokers.template", {"pod": {"spec": []}}),
        ("spec.brokers.template", {"services": {}}),
        ("spec.brokers.logging", {"level": "debug"}),
        ("spec.brokers.pools", []),
        ("spec.brokers.pools", [{"name": "a"}]),
        ("spec.brokers.pools", [{"name": "a", "replicas": 1}, {"name": "a", "replicas": 1}]),
        ("spec.brokers.pools", [{"name": "a", "replicas": 1, "rackKey": "k"}]),
        ("spec.brokers.pools", [{"name": "a", "replicas": 1, "idRange": {"first": 1}}]),
        ("spec.image", "has space"),
        ("spec.image", ""),
        ("spec.imagePullPolicy", "always"),
        ("spec.imageUpdatePolicy", "Follow"),
        ("spec.zookeeper.template", {"bootstrapService": {}}),
        ("spec.zookeeper.replicas", 11),
        ("spec.zookeeper.connect", ""),
        ("spec.paused", "yes"),
        ("spec.rolling", {"maxBatch": 0}),
        ("spec.rolling", {"approval": "manual"}),
        ("spec.rolling", {"leadershipTimeoutSeconds": "60s"}),
        ("spec.rebalance.mode", "auto"),
        ("spec.rebalance.throttle", "fast"),
        ("spec.rebalance.maxPartitionsPerBatch", 0),
        ("spec.rebalance.maxPartitionsPerBatch", 1001),
        ("metadata.name", "1st"),
        ("metadata.name", "a" * 41),
    ],
)
def test_a_cluster_of_the_wrong_shape_is_refused(path: str, value: Any) -> None:
    assert violations(schema_of("kafkaclusters"), CLUSTER) == []
    assert violations(schema_of("kafkaclusters"), _with(CLUSTER, path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.clusterRef", {}),
        ("spec.partitions", 0),
        ("spec.partitions", "12"),
        ("spec.replicas", 40000),
        ("spec.topicName", "a/b"),
        ("spec.topicName", ""),
        ("spec.topicName", "."),
        ("spec.topicName", ".."),
        ("spec.topicName", "x" * 250),
        ("spec.deletionPolicy", "Keep"),
        ("spec.partition", 3),
    ],
)
def test_a_topic_of_the_wrong_shape_is_refused(path: str, value: Any) -> None:
    assert violations(schema_of("kafkatopics"), TOPIC) == []
    assert violations(schema_of("kafkatopics"), _with(TOPIC, path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "a" * 41),
        ("metadata.name", "Late"),
        ("spec.clusterRef", {}),
        ("spec.source", {"topics": []}),
        ("spec.source", {"topics": ["a"], "startingOffsets": "now"}),
        ("spec.source", {"topics": ["a"], "value": {"format": "avro"}}),
        ("spec.source.files", {"path": "in", "maxFilesPerTrigger": 0}),
        ("spec.source.table", {}),
        ("spec.steps", [{"sql": "SELECT 1"}]),
        ("spec.steps", [{"name": "a b"}]),
        ("spec.steps", [{"name": "a"}, {"name": "a"}]),
        ("spec.steps", [{"name": "a", "python": "clean"}]),
        ("spec.sink.topic", {"name": ".."}),
        ("spec.sink.topic", {"name": "a", "guarantee": "once"}),
        ("spec.sink.iceberg", {"path": "x"}),
        ("spec.trigger", {"availableNow": "yes"}),
        ("spec.watermark", {"column": "at"}),
        ("spec.checkpoint", {"size": "much"}),
        ("spec.checkpoint", {"claimDeletionPolicy": "Keep"}),
        ("spec.deadLetters", {}),
        ("spec.restartPolicy", "Always"),
        ("spec.backoffLimit", -1),
        ("spec.suspend", "yes"),
        ("spec.image", "has space"),
        ("spec.resources", {"limits": {"memory": "much"}}),
        ("spec.executors", 2),
        ("spec.executors", {}),
        ("spec.executors", {"instances": 0}),
        ("spec.executors", {"instances": 1001}),
        ("spec.executors", {"instances": 1, "cores": 2}),
        ("spec.executors", {"instances": 1, "resources": {"limits": {"memory": "much"}}}),
        ("spec.checkpoint", {"accessModes": []}),
        ("spec.checkpoint", {"accessModes": ["ReadOnlyMany"]}),
    ],
)
def test_a_pipeline_of_the_wrong_shape_is_refused(path: str, value: Any) -> None:
    assert violations(schema_of("kafkapipelines"), PIPELINE) == []
    assert violations(schema_of("kafkapipelines"), _with(PIPELINE, path, value))


@pytest.mark.parametrize(
    "name", ["a", "_", "-", "...", "....", ".a", "..a", "a.", "a..b", "__x", "Flights_v1", "x" * 249]
)
def test_every_topic_name_that_brokers_accept_passes_the_schema_and_the_model(name: str) -> None:
    wanted = _with(TOPIC, "spec.topicName", name)
    assert violations(schema_of("kafkatopics"), wanted) == [] and parse_topic(wanted)[1] == []


@pytest.mark.parametrize("name", [".", "..", "", "a b", "x" * 250, "é", "__consumer_offsets", "__transaction_state"])
def test_the_model_refuses_the_topic_names_that_the_schema_refuses(name: str) -> None:
    """An object may be older than the schema."""
    found = parse_topic(_with(TOPIC, "spec.topicName", name))[1]
    assert {problem.path for problem in found} == {"spec.topicName"}


@pytest.mark.parametrize("value", [{}, {"requests": {"cpu": 1, "memory": "1.5Gi", "x.com/gpu": "2e0"}}, {"limits": {}}])
def test_resources_are_those_of_a_container(value: Any) -> None:
    for role in ("brokers", "zookeeper"):
        assert violations(schema_of("kafkaclusters"), _with(CLUSTER, f"spec.{role}.resources", value)) == []


@pytest.mark.parametrize("value", ["2", 2, 2.5, True, 6.048e8, {"nested": 1}, [1]])
def test_a_config_value_of_any_kind_passes_the_schema_since_a_condition_reports_the_nested_ones(value: Any) -> None:
    assert violations(schema_of("kafkaclusters"), _with(CLUSTER, "spec.brokers.config", {"a.b": value})) == []
    assert violations(schema_of("kafkatopics"), _with(TOPIC, "spec.config", {"a.b": value})) == []


def test_only_identity_is_immutable_with_one_rule_each() -> None:
    """Every other change can be undone, so that no typo forces anybody to delete and create an object."""
    found = [rule for plural in ("kafkaclusters", "kafkatopics", "kafkapipelines") for rule in rules(schema_of(plural))]
    immutable = [path for path, rule in found if "oldSelf" in rule]
    assert immutable == [".spec", ".spec", ".spec.zookeeper.connect", "", ".spec.clusterRef", ".spec.clusterRef.name"]
    assert [path for path, rule in found if "oldSelf" not in rule] == [
        ".spec.brokers", ".spec.zookeeper", ".spec.zookeeper.replicas", ".spec.topicName",
        ".spec.source", ".spec.sink", ".spec.steps[]", ".spec.steps[]",
    ]  # fmt: skip


def test_the_internal_topics_of_the_schema_are_the_brokers() -> None:
    (rule,) = [rule for path, rule in rules(schema_of("kafkatopics")) if path == ".spec.topicName"]
    assert re.findall('"([^"]+)"', rule) == list(COORDINATOR_TOPICS)


def test_scale_works_on_the_number_of_brokers() -> None:
    scale = definition("kafkaclusters")["spec"]["versions"][0]["subresources"]["scale"]
    assert scale["specReplicasPath"] == ".spec.brokers.replicas"
    status = schema_of("kafkaclusters")["properties"]["status"]["properties"]
    assert {scale["statusReplicasPath"], scale["labelSelectorPath"]} == {".status.replicas", ".status.selector"}
    assert {"replicas", "selector"} <= set(status)
