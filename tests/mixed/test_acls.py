"""ACLs in a cluster of one broker of ours and one of Apache Kafka: whoever stores one, both decide by it.

Nobody is a super user: one ACL lets clients from 127.0.0.1, the brokers among them, do everything with the cluster.
Strangers come from 127.0.0.2.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ottla.local.jars import find_java, kafka_class_path
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.beside.comparison import allow_all_on_the_cluster, own_chroot
from tests.integration.apache_kafka import ApacheKafka
from tests.integration.local_fleet import eventually
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire

pytestmark = pytest.mark.java

DESCRIBE = codec.module(ApiKey.DESCRIBE_ACLS)
KEYS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
STRANGER = "127.0.0.2"
Acl = tuple[object, ...]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[dict[str, str]]:
    """By who made the broker."""
    directory = tmp_path_factory.mktemp("mixed")
    connect = own_chroot(zookeeper)
    allow_all_on_the_cluster(connect)
    ours = BrokerProcess(directory / "ours", 1, connect, KEYS)
    theirs = ApacheKafka(directory / "theirs", 2, connect, [directory / "their-logs"], KEYS)
    try:
        ours.start()
        theirs.start()
        yield {"ours": ours.address, "Apache Kafka's": theirs.address}
    finally:
        theirs.close()
        ours.close()


def described(address: str, source: str = "127.0.0.1") -> tuple[int, set[Acl]]:
    """The error code and the ACLs, as somebody at `source` is told them."""
    request = DESCRIBE.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    with Wire(address, source=source) as wire:
        answer = wire.ask(ApiKey.DESCRIBE_ACLS, 3, request)
    return answer.error_code, {
        (one.resource_type, one.resource_name, one.pattern_type, acl.principal, acl.host, acl.operation)
        for one in answer.resources
        for acl in one.acls
    }


def until_all_tell(addresses: dict[str, str], error_code: int, acls: set[Acl], source: str = "127.0.0.1") -> None:
    """Until both brokers answer somebody at `source` so."""
    for name, address in addresses.items():
        eventually(partial(_tells, address, source, (error_code, acls)), f"{name}: {acls}")


def _tells(address: str, source: str, expected: tuple[int, set[Acl]]) -> bool:
    return described(address, source) == expected


def tool(address: str, *arguments: str) -> str:
    """What kafka-acls prints."""
    ran = subprocess.run(
        [
            *(find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", kafka_class_path()),
            *("kafka.admin.AclCommand", "--bootstrap-server", address, *arguments),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Exception" not in ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("first", ["ours", "Apache Kafka's"])
def test_an_acl_is_in_force_on_both_whoever_stores_and_whoever_removes_it(
    addresses: dict[str, str], first: str
) -> None:
    second = next(name for name in addresses if name != first)
    before = described(addresses[first])[1]
    for address in addresses.values():
        assert described(address) == (0, before)
        assert described(address, STRANGER) == (31, set())
    right = ("--allow-principal", "User:ANONYMOUS", "--allow-host", STRANGER, "--operation", "Describe", "--cluster")
    tool(addresses[first], "--add", *right)
    with_right = before | {(4, "kafka-cluster", 3, "User:ANONYMOUS", STRANGER, 8)}
    until_all_tell(addresses, 0, with_right, STRANGER)
    deny = ("--deny-principal", "User:ANONYMOUS", "--deny-host", STRANGER, "--operation", "Describe", "--cluster")
    tool(addresses[second], "--add", *deny)
    until_all_tell(addresses, 31, set(), STRANGER)
    tool(addresses[first], "--remove", *deny, "--force")
    until_all_tell(addresses, 0, with_right, STRANGER)
    tool(addresses[second], "--remove", *right, "--force")
    until_all_tell(addresses, 31, set(), STRANGER)
    until_all_tell(addresses, 0, before)


@pytest.mark.parametrize("first", ["ours", "Apache Kafka's"])
def test_the_acls_of_producers_and_consumers_by_the_tool(addresses: dict[str, str], first: str) -> None:
    second = next(name for name in addresses if name != first)
    address, other = addresses[first], addresses[second]
    before = described(address)[1]
    producer = ("--allow-principal", "User:alice", "--producer", "--topic", "orders", "--transactional-id", "tx")
    consumer = ("--allow-principal", "User:bob", "--consumer", "--topic", "ord", "--group", "g")
    prefixed = (*consumer, "--resource-pattern-type", "prefixed")
    tool(address, "--add", *producer)
    tool(address, "--add", *prefixed)
    added = {
        *((2, "orders", 3, "User:alice", "*", operation) for operation in (4, 5, 8)),
        *((5, "tx", 3, "User:alice", "*", operation) for operation in (4, 8)),
        *((2, "ord", 4, "User:bob", "*", operation) for operation in (3, 8)),
        (3, "g", 4, "User:bob", "*", 3),
    }
    until_all_tell(addresses, 0, before | added)
    for one in (address, other):
        listed = tool(one, "--list", "--topic", "orders", "--resource-pattern-type", "match")
        assert "name=orders, patternType=LITERAL" in listed
        assert "name=ord, patternType=PREFIXED" in listed
    tool(other, "--remove", *producer, "--force")
    tool(other, "--remove", *prefixed, "--force")
    until_all_tell(addresses, 0, before)


@pytest.mark.parametrize("first", ["ours", "Apache Kafka's"])
def test_acls_by_librdkafka(addresses: dict[str, str], first: str) -> None:
    second = next(name for name in addresses if name != first)
    before = described(addresses[first])[1]
    acl = AclBinding(
        ResourceType.TOPIC,
        "payments",
        ResourcePatternType.PREFIXED,
        "User:CN=alice,O=Example",
        "10.0.0.7",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    meant = AclBindingFilter(
        ResourceType.TOPIC,
        "payments-eu",
        ResourcePatternType.MATCH,
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    adding = AdminClient({"bootstrap.servers": addresses[first]})
    for future in adding.create_acls([acl]).values():
        future.result(60)
    until_all_tell(addresses, 0, before | {(2, "payments", 4, "User:CN=alice,O=Example", "10.0.0.7", 4)})
    client = AdminClient({"bootstrap.servers": addresses[second]})
    assert client.describe_acls(meant).result(60) == [acl]
    (removed,) = client.delete_acls([meant]).values()
    assert removed.result(60) == [acl]
    until_all_tell(addresses, 0, before)
