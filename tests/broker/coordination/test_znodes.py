"""Znodes against what Apache Kafka's own classes write (znodes_kafka_3_9.tsv), and against older and broken content.

The file was made in this folder with a JDK 17 and the jars of scripts/fetch-jars.sh, and one test makes it again:
    java -cp "$OTTLA_CACHE/jars/*" ZnodeGolden.java > znodes_kafka_3_9.tsv
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.authorization.acls import AccessControlEntry, ResourcePattern
from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.config.listeners import Endpoint
from ottla_broker.coordination import security_znodes as security
from ottla_broker.coordination import znodes
from ottla_broker.coordination.znode_acls import secure_acl
from ottla_broker.coordination.znodes import (
    BrokerRegistration,
    ControllerZnode,
    Features,
    PartitionStateZnode,
    ProducerIdBlock,
    TopicAssignment,
    ZnodeError,
)
from ottla_broker.security.delegation_tokens import DelegationToken
from ottla_broker.security.principals import Principal

GOLDEN_LINES = [
    line.split("\t", 2)
    for line in Path(__file__).with_name("znodes_kafka_3_9.tsv").read_text(encoding="utf-8").split("\n")
    if line
]
GOLDEN = {name: (path, data.encode()) for name, path, data in GOLDEN_LINES}

TOPIC_ID = znodes.decode_topic_id("vPZ1AAyBTWKgxXiD9fBbWA")
CLIENT = Endpoint("CLIENT", "h1", 9092)
INTERNAL = Endpoint("INTERNAL", "h2", 9093)
TIME = 1_700_000_000_000
ESCAPES = 'quote" back\\slash tab\t é € \U0001f600 \x7f </script> \x01 \u2028'


def registration(broker_id: int, *endpoints: Endpoint, rack: str | None = None, version: int = 5) -> BrokerRegistration:
    return BrokerRegistration(broker_id, endpoints, TIME, rack, 9999, {}, version)


BROKERS = {
    "broker_v5_rack": registration(1, CLIENT, INTERNAL, rack="zone-a"),
    "broker_v5": registration(2, CLIENT),
    "broker_v4_rack": registration(3, CLIENT, INTERNAL, rack="zone-a", version=4),
    "broker_v2": registration(3, Endpoint("PLAINTEXT", "h1", 9092), version=2),
    "broker_v5_no_plaintext": registration(1, Endpoint("SECURE", "h1", 9092, "SSL")),
    "broker_v5_ipv6": registration(1, Endpoint("PLAINTEXT", "::1", 9092)),
    "broker_v5_many": registration(
        1,
        Endpoint("A", "h", 1),
        Endpoint("B", "h", 2, "SSL"),
        Endpoint("C", "h", 3, "SASL_PLAINTEXT"),
        Endpoint("D", "h", 4, "SASL_SSL"),
    ),
    "broker_v5_features": BrokerRegistration(1, (CLIENT,), TIME, "zone-a", 9999, {"transaction.version": (0, 2)}),
}
TOPICS = {
    "topic": TopicAssignment({0: (1, 2), 1: (2, 1)}, TOPIC_ID),
    "topic_without_id": TopicAssignment({0: (1, 2), 1: (2, 1)}),
    "topic_reassigned": TopicAssignment({0: (1, 2), 1: (3, 2, 1)}, TOPIC_ID, {1: (3,)}, {1: (1,)}),
}
STATES = {
    "state": PartitionStateZnode(1, 3, 4, (1, 2)),
    "state_recovering": PartitionStateZnode(1, 3, 4, (1,), znodes.RECOVERING),
}
ACL = AccessControlEntry("User:alice", "*", AclOperation.DESCRIBE_CONFIGS, PermissionType.ALLOW)
PATTERNS = {
    "topic": ResourcePattern(ResourceType.TOPIC, "t"),
    "cluster": ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"),
    "delegation_token": ResourcePattern(ResourceType.DELEGATION_TOKEN, "x"),
    "transactional_id": ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t-", PatternType.PREFIXED),
}
ALICE = Principal("User", "alice")
TOKENS = {
    "delegation_token": DelegationToken("id-1", ALICE, ALICE, (Principal("User", "bob"),), 1, 3, 2),
    "delegation_token_requester": DelegationToken("id-1", ALICE, Principal("User", "carol"), (), 1, 3, 2),
}
FOUR_KEYS = {"retention.ms": "1", "cleanup.policy": "1", "segment.bytes": "1", "min.insync.replicas": "1"}

WRITTEN: dict[str, tuple[str, bytes]] = {
    "controller": (znodes.CONTROLLER, ControllerZnode(1, TIME).encode()),
    "controller_epoch": (znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(7)),
    "cluster_id": (znodes.CLUSTER_ID, znodes.encode_cluster_id("vPZ1AAyBTWKgxXiD9fBbWA")),
    **{name: (broker.path(broker.broker_id), broker.encode()) for name, broker in BROKERS.items()},
    **{name: (znodes.topic_path("t"), topic.encode()) for name, topic in TOPICS.items()},
    **{name: (PartitionStateZnode.path("t", 0), state.encode()) for name, state in STATES.items()},
    "config": (znodes.config_path("topics", "t"), znodes.encode_config({"retention.ms": "1000"})),
    "config_empty": (znodes.config_path("users", znodes.DEFAULT_ENTITY), znodes.encode_config({})),
    "config_escapes": (znodes.config_path("topics", "t"), znodes.encode_config({"x": ESCAPES})),
    "config_several": (znodes.config_path("topics", "t"), znodes.encode_config(FOUR_KEYS)),
    "config_change": (znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("topics/t")),
    "config_change_user": (
        znodes.CONFIG_CHANGE_PREFIX,
        znodes.encode_config_change(znodes.user_client_config_path("alice", "<default>").removeprefix("/config/")),
    ),
    "isr_change": (znodes.ISR_CHANGE_PREFIX, znodes.encode_partitions([("t", 0), ("t", 1)])),
    "log_dir_event": (znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(2)),
    "reassign": (znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({("t", 0): (1, 2)})),
    "preferred": (znodes.PREFERRED_REPLICA_ELECTION, znodes.encode_partitions([("t", 0), ("t", 1)])),
    "delete_topic": (znodes.delete_topic_path("t"), b""),
    "seqid": (znodes.BROKER_SEQUENCE_ID, b""),
    "producer_id_block": (znodes.PRODUCER_ID_BLOCK, ProducerIdBlock(1, 1000, 1999).encode()),
    "feature_disabled": (znodes.FEATURE, Features(False).encode()),
    "feature": (znodes.FEATURE, Features(True, {"transaction.version": 2}).encode()),
    "acl": (security.acl_path(PATTERNS["topic"]), security.encode_acls([ACL])),
    "acl_prefixed": (security.acl_path(PATTERNS["transactional_id"]), security.encode_acls([ACL])),
    "acl_cluster": (security.acl_path(PATTERNS["cluster"]), security.encode_acls([ACL])),
    **{
        f"acl_change_{name}": (security.acl_change_prefix(pattern), security.encode_acl_change(pattern))
        for name, pattern in PATTERNS.items()
    },
    **{name: (security.token_path("id-1"), security.encode_token(token)) for name, token in TOKENS.items()},
    "token_change": (security.TOKEN_CHANGE_PREFIX, b"id-1"),
    "consumer_offset": (znodes.consumer_offset_path("g", "t", 3), znodes.encode_consumer_offset(42)),
}
NOT_WRITTEN_THE_SAME = {"topic_24", "feature_v1", "persistent", "secure", "sensitive", "znode_acl"}


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_node_is_written_byte_for_byte_as_kafka_writes_it(name: str) -> None:
    assert WRITTEN[name] == GOLDEN[name]


def test_every_golden_case_is_covered() -> None:
    assert set(GOLDEN) == set(WRITTEN) | NOT_WRITTEN_THE_SAME


@pytest.mark.java
def test_the_golden_file_is_what_kafkas_classes_print() -> None:
    from ottla.local.jars import find_java, kafka_class_path

    if shutil.which("javac") is None and os.environ.get("OTTLA_TEST_ALL") != "1":
        pytest.skip("a JDK is missing: run scripts/install-system.sh (Debian: openjdk-17-jdk-headless)")
    program = Path(__file__).with_name("ZnodeGolden.java")
    command = [find_java(), "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", kafka_class_path(), str(program)]
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    assert printed == program.with_name("znodes_kafka_3_9.tsv").read_bytes()


def test_the_lists_of_paths_are_kafkas() -> None:
    def paths(kind: str) -> list[str]:
        return [path for name, path, _ in GOLDEN_LINES if name == kind]

    assert paths("persistent") == list(znodes.PERSISTENT_PATHS)
    assert sorted(paths("secure")) == sorted(security.SECURE_ROOTS)
    assert paths("sensitive") == list(security.SENSITIVE_ROOTS)


def test_the_acl_of_every_path_is_kafkas() -> None:
    found = {path: acl for name, path, acl in GOLDEN_LINES if name == "znode_acl"}
    assert {"/", "/consumers", "/config/users", "/config/usersX"} <= set(found)
    for path, acl in found.items():
        entries = (f"{permissions} {scheme} {who}" for permissions, scheme, who in secure_acl(path))
        assert ", ".join(entries) == acl, path


def test_many_partitions_are_written_in_numeric_order_with_kafkas_content() -> None:
    topic = TopicAssignment({partition: (partition % 3,) for partition in range(24)}, TOPIC_ID)
    ours, kafkas = json.loads(topic.encode()), json.loads(GOLDEN["topic_24"][1])
    assert ours == kafkas
    assert list(ours) == list(kafkas)
    assert list(ours["partitions"]) == [str(partition) for partition in range(24)]


def test_what_kafka_writes_is_read_back() -> None:
    for name, broker in BROKERS.items():
        assert BrokerRegistration.decode(broker.broker_id, GOLDEN[name][1]) == broker
    for name, topic in TOPICS.items():
        assert TopicAssignment.decode("t", GOLDEN[name][1]) == topic
    for name, state in STATES.items():
        assert PartitionStateZnode.decode("t", 0, GOLDEN[name][1]) == state
    for name, pattern in PATTERNS.items():
        path, data = GOLDEN[f"acl_change_{name}"]
        assert security.decode_acl_change(path, data) == pattern
    for name, token in TOKENS.items():
        assert security.decode_token("id-1", GOLDEN[name][1]) == token

    def data(name: str) -> bytes:
        return GOLDEN[name][1]

    assert ControllerZnode.decode(data("controller")) == ControllerZnode(1, TIME)
    assert znodes.decode_controller_epoch(data("controller_epoch")) == 7
    assert znodes.decode_cluster_id(data("cluster_id")) == "vPZ1AAyBTWKgxXiD9fBbWA"
    assert znodes.decode_config("/config/topics/t", data("config_escapes")) == {"x": ESCAPES}
    assert znodes.decode_config_change("/config/changes/config_change_0", data("config_change")) == "topics/t"
    assert znodes.decode_partitions("/isr_change_notification/x", data("isr_change")) == [("t", 0), ("t", 1)]
    assert znodes.decode_log_dir_event("/log_dir_event_notification/x", data("log_dir_event")) == 2
    assert znodes.decode_reassignment(data("reassign")) == {("t", 0): (1, 2)}
    assert ProducerIdBlock.decode(data("producer_id_block")) == ProducerIdBlock(1, 1000, 1999)
    assert Features.decode(data("feature")) == Features(True, {"transaction.version": 2})
    assert Features.decode(data("feature_v1")) == Features(True, {"transaction.version": 2})
    assert security.decode_acls("/kafka-acl/Topic/t", data("acl")) == {ACL}
    assert znodes.decode_consumer_offset("/consumers/g/offsets/t/3", data("consumer_offset")) == 42


def test_a_state_says_besides_which_life_of_the_leader_was_meant() -> None:
    state = PartitionStateZnode(1, 3, 4, (1, 2), leader_broker_epoch=77)
    assert PartitionStateZnode.decode("t", 0, state.encode()) == state
    ours, kafkas = json.loads(state.encode()), json.loads(GOLDEN["state"][1])
    assert ours == {**kafkas, "leader_broker_epoch": 77}


def test_nodes_of_older_versions_are_read() -> None:
    old = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
    assert BrokerRegistration.decode(1, old).endpoints == (Endpoint("PLAINTEXT", "h", 9092),)
    two = b'{"version":2,"host":"h","port":1,"jmx_port":-1,"timestamp":"5","endpoints":["PLAINTEXT://h:1","SSL://h:2"]}'
    assert BrokerRegistration.decode(1, two).endpoints[1] == Endpoint("SSL", "h", 2, "SSL")
    assert TopicAssignment.decode("t", b'{"version":1,"partitions":{"0":[1]}}') == TopicAssignment({0: (1,)})
    assert ControllerZnode.decode(b'{"version":1,"brokerid":3,"timestamp":"9"}') == ControllerZnode(3, 9)
    change = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.decode_config_change("/config/changes/config_change_0", change) == "topics/t"
    assert znodes.decode_config_change("/config/changes/config_change_0", b'"t"') == "topics/t"
    with pytest.raises(ZnodeError, match="config_change_0: not JSON"):
        znodes.decode_config_change("/config/changes/config_change_0", b'"t')
    assert security.decode_acl_change("/kafka-acl-changes/acl_changes_0", b"Topic:a:b") == (
        ResourcePattern(ResourceType.TOPIC, "a:b")
    )
    token = b'{"owner":"User%3Aa","renewers":[],"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"i"}'
    assert security.decode_token("i", token).requester == Principal("User", "a")
    assert znodes.decode_config("/config/topics/t", b"") == {}


def test_a_broker_that_a_list_names_twice_counts_once_at_its_first_place() -> None:
    assignment = TopicAssignment.decode(
        "t",
        b'{"version":3,"partitions":{"0":[2,1,2]},"adding_replicas":{"0":[2,2]},"removing_replicas":{"0":[1,1]}}',
    )
    assert assignment == TopicAssignment({0: (2, 1)}, adding_replicas={0: (2,)}, removing_replicas={0: (1,)})
    state = PartitionStateZnode.decode("t", 0, b'{"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[1,2,1]}')
    assert state.isr == (1, 2)
    # The controller refuses such a request, as Apache Kafka does.
    request = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,1]}]}'
    assert znodes.decode_reassignment(request) == {("t", 0): (1, 1)}


BROKEN: list[tuple[Callable[[], object], str]] = [
    (lambda: BrokerRegistration.decode(4, b"{"), "/brokers/ids/4: not JSON"),
    (lambda: BrokerRegistration.decode(4, b"[]"), "/brokers/ids/4: not a JSON object"),
    (lambda: BrokerRegistration.decode(4, b'{"version":"5"}'), "'version' has a value of the wrong type: '5'"),
    (lambda: BrokerRegistration.decode(4, b'{"version":0}'), "'version' is 0"),
    (lambda: BrokerRegistration.decode(4, b'{"version":5,"endpoints":["h:1"]}'), "'h:1', not LISTENER://host:port"),
    (
        lambda: PartitionStateZnode.decode("t", 2, b'{"leader":1}'),
        "/brokers/topics/t/partitions/2/state: member 'leader_e",
    ),
    (
        lambda: PartitionStateZnode.decode("t", 2, b'{"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[true]}'),
        "member 'isr' is not a list of integers",
    ),
    (lambda: BrokerRegistration.decode(4, b"[" * 200_000), "/brokers/ids/4: not JSON"),
    (lambda: BrokerRegistration.decode(2**31, b'{"version":5,"endpoints":[]}'), "/brokers/ids/2147483648: 2147483648"),
    (
        lambda: BrokerRegistration.decode(4, b'{"version":5,"endpoints":["A://h:2147483648"]}'),
        "member 'endpoints': 2147483648 does not fit",
    ),
    (
        lambda: BrokerRegistration.decode(
            4, b'{"version":5,"endpoints":["A://h:1"],"listener_security_protocol_map":{"A":[1]}}'
        ),
        "member 'A' has a value of the wrong type: [1]",
    ),
    (
        lambda: BrokerRegistration.decode(4, b'{"version":5,"endpoints":[],"features":{"f":3}}'),
        "/brokers/ids/4: feature f: not a JSON object",
    ),
    (
        lambda: PartitionStateZnode.decode(
            "t", 2, b'{"leader":2147483648,"leader_epoch":1,"controller_epoch":1,"isr":[]}'
        ),
        "member 'leader': 2147483648 does not fit",
    ),
    (
        lambda: PartitionStateZnode.decode(
            "t", 2, b'{"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[-2147483649]}'
        ),
        "member 'isr': -2147483649 does not fit",
    ),
    (lambda: TopicAssignment.decode("t", b'{"partitions":{"2147483648":[1]}}'), "2147483648 does not fit"),
    (lambda: Features.decode(b'{"version":2,"status":1,"features":{"f":3}}'), "/feature: f: not a JSON object"),
    (lambda: TopicAssignment.decode("t", b'{"partitions":{"x":[1]}}'), "/brokers/topics/t: not a number: 'x'"),
    (lambda: TopicAssignment.decode("t", b'{"partitions":{},"topic_id":"short"}'), "'topic_id' is no topic id"),
    (lambda: znodes.decode_controller_epoch(b"\xff"), "/controller_epoch: not a number"),
    (lambda: znodes.decode_controller_epoch(b"1_0"), "/controller_epoch: not a number: '1_0'"),
    (lambda: znodes.decode_config("/config/topics/t", b'{"config":{"a":1}}'), "'config.a' is not a string: 1"),
    (lambda: Features.decode(b'{"version":2,"status":7,"features":{}}'), "'status' is 7"),
    (lambda: security.decode_acls("/kafka-acl/Topic/t", b'{"version":2}'), "'version' is 2"),
    (lambda: security.decode_acl_change("/kafka-acl-changes/acl_changes_0", b"x"), "not of the form"),
]


@pytest.mark.parametrize(("decode", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_broken_content_is_refused_by_path_and_member(decode: Callable[[], object], message: str) -> None:
    with pytest.raises(ZnodeError) as refused:
        decode()
    assert message in str(refused.value)


def test_names_in_paths_are_encoded_as_kafka_does() -> None:
    assert znodes.sanitize("CN=a b+c*~,O=é/x") == "CN%3Da%20b%2Bc%2A%7E%2CO%3D%C3%A9%2Fx"
    assert znodes.desanitize(znodes.sanitize("CN=a b+c*~,O=é/x")) == "CN=a b+c*~,O=é/x"
    assert znodes.sequence_number("/isr_change_notification/isr_change_0000000012") == 12


@given(st.dictionaries(st.text(), st.text()))
def test_any_configuration_survives_writing_and_reading(config: dict[str, str]) -> None:
    assert znodes.decode_config("/config/topics/t", znodes.encode_config(config)) == config


@given(st.uuids())
def test_any_topic_id_survives_writing_and_reading(topic_id: uuid.UUID) -> None:
    assert znodes.decode_topic_id(znodes.encode_topic_id(topic_id)) == topic_id
