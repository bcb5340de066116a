"""The documents a user writes, read the way a user would get them wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla_documents.documents import DocumentError, Documents, load_documents
from ottla_documents.kafka_cluster import default_broker_config

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


def cluster(brokers: str = "", spec: str = "") -> str:
    return (
        "apiVersion: kafka.ottla.dev/v1alpha1\nkind: KafkaCluster\nmetadata: {name: c}\n"
        f"spec:\n  brokers: {{{brokers}}}\n{spec}"
    )


def topic(spec: str) -> str:
    return (
        "apiVersion: kafka.ottla.dev/v1alpha1\nkind: KafkaTopic\nmetadata: {name: t}\n"
        f"spec: {{clusterRef: {{name: c}}, {spec}}}"
    )


def load(text: str) -> Documents:
    return load_documents([("f.yaml", text)])


def test_the_manifests_are_valid_documents() -> None:
    found = load_documents([(str(p), p.read_text()) for p in sorted(MANIFESTS.glob("*.yaml"))])
    payments, billing, orders = found.clusters
    assert billing.brokers.template.pod.spec["priorityClassName"] == "streaming"
    assert payments.zookeeper.connect.endswith(":2181/payments")
    assert (orders.name, orders.brokers.replicas) == ("orders", 3)
    assert [disk.name for disk in orders.brokers.pools[0].disks] == ["d0", "d1"]
    assert orders.brokers.config == {"min.insync.replicas": "2"}
    assert default_broker_config(orders)["offsets.topic.replication.factor"] == "3"
    assert default_broker_config(orders)["default.replication.factor"] == "3"
    (flights,) = found.topics
    assert (flights.topic_name, flights.partitions, flights.replicas) == ("flights", 12, 3)
    assert flights.config == {"retention.ms": "604800000"}


def test_absent_fields_have_defaults() -> None:
    (found,) = load(cluster()).clusters
    assert found.brokers.replicas == 3
    assert [disk.name for disk in found.brokers.pools[0].disks] == ["d0"]
    assert found.zookeeper.replicas == 3
    (declared,) = load(topic("")).topics
    assert (declared.topic_name, declared.partitions, declared.replicas) == ("t", -1, -1)


@pytest.mark.parametrize(
    "written",
    [
        "604800000",
        "6.048e+08",
        "'604800000'",
        "'6.048e+08'",
        "'604800000.0'",
        "'0604800000'",
        f"'{'0' * 5000}604800000'",
        '"604800000\\n"',
    ],
)
def test_a_config_value_may_be_of_any_scalar_type(written: str) -> None:
    (found,) = load(topic(f"config: {{retention.ms: {written}}}")).topics
    assert found.config["retention.ms"] == "604800000"


@pytest.mark.parametrize("written", ["'1_000'", "1.5", "'0x10'", "'1e400'", "'9.3e18'", "inf", "''", f"'{'1' * 5000}'"])
def test_a_text_that_is_no_whole_number_is_a_problem(written: str) -> None:
    with pytest.raises(DocumentError, match=r"spec\.config\.retention\.ms"):
        load(topic(f"config: {{retention.ms: {written}}}"))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (cluster("replicas: 0"), "spec.brokers.replicas"),
        (cluster("replicas: '3'"), "spec.brokers.replicas"),
        (cluster("replica: 3"), "spec.brokers.replica"),
        (cluster("disks: [{name: d0}, {name: d0}]"), "spec.brokers.disks[1].name"),
        (cluster("disks: [{size: 1Gi}]"), "spec.brokers.disks[0].name"),
        (cluster("disks: [{name: a-name-too-long, size: 1Gi}]"), "spec.brokers.disks[0].name"),
        (cluster("disks: [{name: d0, size: big}]"), "spec.brokers.disks[0].size"),
        (cluster("disks: []"), "spec.brokers.disks"),
        (cluster("config: {no.such.key: 1}"), "spec.brokers.config.no.such.key"),
        (cluster("config: {broker.id: 1}"), "spec.brokers.config.broker.id"),
        (cluster("config: {min.insync.replicas: {a: 1}}"), "spec.brokers.config.min.insync.replicas"),
        (cluster("resources: {requests: {cpu: much}}"), "spec.brokers.resources.requests.cpu"),
        (cluster("resources: {limits: {cpu: -1}}"), "spec.brokers.resources.limits.cpu"),
        (cluster("resources: {requests: {cpu: 1}, limits: {cpu: 500m}}"), "spec.brokers.resources.requests.cpu"),
        (cluster("resources: {claims: []}"), "spec.brokers.resources.claims"),
        (cluster("disks: [{name: d0, size: 0}]"), "spec.brokers.disks[0].size"),
        (cluster("racks: [a, a]"), "spec.brokers.racks[1]"),
        (cluster("", "  zookeeper: {replicas: 2}"), "spec.zookeeper.replicas"),
        (cluster("", "  zookeeper: {connect: 'h:2181', replicas: 3}"), "spec.zookeeper.connect"),
        (cluster("", "  zookeeper: {connect: 'h:2181', disk: {size: 1Gi}}"), "spec.zookeeper.connect"),
        (cluster("", "  colour: red"), "spec.colour"),
        (topic("partitions: 0"), "spec.partitions"),
        (topic("topicName: 'a b'"), "spec.topicName"),
        (topic("topicName: '..'"), "spec.topicName"),
        (topic("topicName: __consumer_offsets"), "spec.topicName"),
        (topic("topicName: 5"), "spec.topicName"),
        (topic("config: {min.compaction.lag.ms: 5, max.compaction.lag.ms: 3}"), "spec.config"),
        (topic("config: {retention.ms: soon}"), "spec.config.retention.ms"),
        (topic("config: {retention.ms: [1]}"), "spec.config.retention.ms"),
        (topic("config: {compression.type: best}"), "spec.config.compression.type"),
        ("apiVersion: v1\nkind: Pod", "apiVersion"),
        ("apiVersion: kafka.ottla.dev/v1alpha1\nkind: KafkaUser", "kind"),
        ("just text", "kind"),
    ],
)
def test_a_wrong_value_is_reported_with_its_field(text: str, field: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load(text)
    assert any(f": {field}: " in line for line in caught.value.problems), caught.value.problems
    assert all(line.startswith("f.yaml, document 1: ") for line in caught.value.problems)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            cluster("config: {min.insync.replicas: two}"),
            "spec.brokers.config.min.insync.replicas: invalid value 'two': a whole number, at least 1",
        ),
        (
            cluster("config: {min.insync.replicas: 0}"),
            "spec.brokers.config.min.insync.replicas: invalid value '0': at least 1",
        ),
        (
            cluster("config: {min.insync.replica: 2}"),
            "spec.brokers.config.min.insync.replica: is not a broker configuration key of Kafka 3.9; "
            "is min.insync.replicas meant?",
        ),
        (
            cluster("config: {retention.ms: 1000}"),
            "spec.brokers.config.retention.ms: is not a broker configuration key of Kafka 3.9; "
            "is log.retention.ms meant?",
        ),
        (
            cluster("config: {auto.create.topics.enable: no-thanks}"),
            "spec.brokers.config.auto.create.topics.enable: invalid value 'no-thanks': true or false",
        ),
        (
            cluster("config: {process.roles: broker}"),
            "spec.brokers.config.process.roles: invalid value 'broker': KRaft is not built: leave it empty and give "
            "zookeeper.connect",
        ),
        (
            cluster("pools: [{name: p, replicas: 1, config: {num.partitions: many}}]"),
            "spec.brokers.pools[0].config.num.partitions: invalid value 'many': a whole number, at least 1",
        ),
        (
            cluster("config: {group.min.session.timeout.ms: 9000, group.max.session.timeout.ms: 8000}"),
            "spec.brokers.config.group.max.session.timeout.ms: invalid value '8000': "
            "at least group.min.session.timeout.ms (9000)",
        ),
        (
            cluster("pools: [{name: p, replicas: 1, config: {replica.fetch.wait.max.ms: 60000}}]"),
            "spec.brokers.pools[0].config: invalid value 30000 for configuration replica.socket.timeout.ms: "
            "at least replica.fetch.wait.max.ms (60000)",
        ),
        (
            cluster("unmanagedConfig: [log.retention.m]"),
            "spec.brokers.unmanagedConfig: log.retention.m is not a broker configuration key of Kafka 3.9; "
            "is log.retention.ms meant?",
        ),
        (
            topic("config: {retention.m: 1}"),
            "spec.config.retention.m: is not a topic configuration key of Kafka 3.9; is retention.ms meant?",
        ),
        (
            topic("config: {log.retention.ms: 1}"),
            "spec.config.log.retention.ms: is not a topic configuration key of Kafka 3.9; is retention.ms meant?",
        ),
        (
            topic("config: {min.insync.replicas: two}"),
            "spec.config.min.insync.replicas: invalid value 'two' for configuration min.insync.replicas: "
            "a whole number, at least 1",
        ),
        (
            topic("unmanagedConfig: [retention.m]"),
            "spec.unmanagedConfig: retention.m is not a topic configuration key; is retention.ms meant?",
        ),
        (
            cluster("").replace("{name: c}", "{name: Orders_1}"),
            "metadata.name: must be lower case letters, digits and -, beginning with a letter and not ending with -, "
            "not 'Orders_1'",
        ),
        (
            cluster("disks: [{name: D0}]"),
            "spec.brokers.disks[0].name: must be lower case letters, digits and -, with a letter or digit at both "
            "ends, not 'D0'",
        ),
        (
            topic("topicName: 'a b'"),
            "spec.topicName: must be letters, digits, ., _ and -, at most 249, and neither . nor .., not 'a b'",
        ),
        (
            topic("").replace("{name: t}", "{name: Flights_v1}"),
            "metadata.name: must be lower case letters, digits, - and ., with a letter or digit at both ends "
            "(spec.topicName takes any other name of a topic), not 'Flights_v1'",
        ),
        (
            cluster("", "  image: 'a b'"),
            "spec.image: must be the name of an image, such as registry.example.com/ottla:1.0, not 'a b'",
        ),
        ("kind: KafkaCluster", "apiVersion: must be kafka.ottla.dev/v1alpha1"),
        (
            "broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:9092\n# comment\n",
            "kind: the document is not a mapping with apiVersion, kind, metadata and spec; "
            "this is a properties file: `ottla broker run` runs one",
        ),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line_that_says_what_is_right(text: str, line: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load(text)
    assert caught.value.problems == [f"f.yaml, document 1: {line}"]


def test_keys_that_pools_share_and_do_not_fit_together_are_one_problem() -> None:
    pools = "pools: [{name: a, replicas: 1}, {name: b, replicas: 1}]"
    with pytest.raises(DocumentError) as caught:
        load(cluster(f"config: {{replica.fetch.wait.max.ms: 60000}}, {pools}"))
    assert len(caught.value.problems) == 1
    assert ": spec.brokers.config: " in caught.value.problems[0]


def test_every_problem_of_every_document_is_reported_at_once() -> None:
    with pytest.raises(DocumentError) as caught:
        load(cluster("replicas: 0, disks: [{name: D}]") + "\n---\n" + topic("partitions: -3"))
    assert len(caught.value.problems) == 3


def test_invalid_yaml_and_repeated_names_are_refused() -> None:
    with pytest.raises(DocumentError, match=r"f\.yaml, line 1, column 5: not YAML"):
        load("a: [")
    both = "in f.yaml, document 1, and in f.yaml, document 2"
    with pytest.raises(DocumentError, match=re.escape(f"KafkaTopic t is declared twice: {both}")):
        load(topic("") + "\n---\n" + topic(""))


def test_two_documents_that_name_one_topic_are_refused() -> None:
    other = topic("topicName: t").replace("{name: t}", "{name: other}", 1)
    both = "in f.yaml, document 1, and in f.yaml, document 2"
    with pytest.raises(DocumentError, match=re.escape(f"KafkaTopics t and other name one topic, t: {both}")):
        load(topic("") + "\n---\n" + other)
    from_afar = other.replace("{name: other}", "{name: t, namespace: team-a}").replace(
        "{name: c}", "{name: c, namespace: default}"
    )
    with pytest.raises(DocumentError, match="KafkaTopics t and team-a/t name one topic, t"):
        load(topic("") + "\n---\n" + from_afar)
    elsewhere = other.replace("clusterRef: {name: c}", "clusterRef: {name: d}")
    assert len(load(topic("") + "\n---\n" + elsewhere).topics) == 2
