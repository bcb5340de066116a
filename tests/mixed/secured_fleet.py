"""Brokers of both kinds on a ZooKeeper that knows them, and a use of them that leaves a znode of every kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ottla.local.ports import free_port
from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.coordination.znode_acls import Acl
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.security.sasl.jaas import PLAIN_MODULE
from tests.beside.scram import alteration
from tests.integration.apache_kafka import ApacheKafka
from tests.integration.local_fleet import eventually
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire, create_topic, fleet_named_by
from tests.secured_zookeeper import acls_below, client_options, session

Broker = BrokerProcess | ApacheKafka
TOPIC = "used"
_KINDS = (
    (r"^/brokers/ids/\d+$", "/brokers/ids/N"),
    (r"/partitions/\d+", "/partitions/N"),
    (r"^/config/brokers/\d+$", "/config/brokers/N"),
    (r"\d{10}$", "SEQUENCE"),
    (r"^(/delegation_token/tokens/).*", r"\1ID"),
    (r"^(/ottla/[a-z_-]+/).*", r"\1ID"),
)


class SecuredFleet:
    """Clients reach each broker by a plain port, as super users, and by another as alice."""

    def __init__(self, directory: Path, connect: str) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.connect = connect
        self.addresses: dict[int, str] = {}
        self.for_alice: dict[int, str] = {}

    def ours(self, number: int, keys: Mapping[str, str]) -> BrokerProcess:
        """Not started; with the login that Apache Kafka's has."""
        config = {**self._keys(number), **keys}
        found = BrokerProcess(self.directory / f"ours-{number}", number, self.connect, config)
        found.environment["KAFKA_OPTS"] = client_options(self.directory)
        found.port = int(self.addresses[number].rpartition(":")[2])
        return found

    def theirs(self, number: int, keys: Mapping[str, str]) -> ApacheKafka:
        """Not started."""
        config = {**self._keys(number), **keys}
        logs = self.directory / f"their-logs-{number}"
        options = [client_options(self.directory)]
        found = ApacheKafka(self.directory / f"theirs-{number}", number, self.connect, [logs], config, options)
        found.port = int(self.addresses[number].rpartition(":")[2])
        return found

    def _keys(self, number: int) -> dict[str, str]:
        plain, client = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.addresses[number], self.for_alice[number] = plain, client
        return {
            "listeners": f"PLAINTEXT://{plain},CLIENT://{client}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="alice-secret";',
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "of all brokers",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
        }

    def controller(self, among: Iterable[int] | None = None) -> int:
        """Its id, once all brokers name the same one and each other."""
        numbers = set(self.addresses if among is None else among)

        def are_agreed() -> bool:
            named = [fleet_named_by(self.addresses[number]) for number in numbers]
            return {controller for controller, _ in named} <= numbers and all(found == numbers for _, found in named)

        eventually(are_agreed, "all brokers know all")
        return fleet_named_by(self.addresses[min(numbers)])[0]

    def use(self) -> None:
        """Leaves znodes of topics, configurations, quotas, users, ACLs, a token, producer ids and offsets of 0.8."""
        controller = self.controller()
        address = self.addresses[controller]
        create_topic(address, TOPIC, partitions=2, retention_ms="7200000")
        create_topic(address, "gone")
        with Wire(address) as wire:
            for api_key, version, request in _requests(controller):
                _check(wire.ask(api_key, version, request))
            find = codec.module(ApiKey.FIND_COORDINATOR).FindCoordinatorRequest(key="t", key_type=1)
            eventually(lambda: wire.ask(ApiKey.FIND_COORDINATOR, 3, find).error_code == 0, "there is a coordinator")
            begin = codec.module(ApiKey.INIT_PRODUCER_ID).InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1000
            )
            eventually(lambda: wire.ask(ApiKey.INIT_PRODUCER_ID, 4, begin).error_code == 0, "there is a producer id")
        with Wire(self.for_alice[controller]) as wire:
            wire.log_in("PLAIN", "alice", "alice-secret")
            create = codec.module(ApiKey.CREATE_DELEGATION_TOKEN).CreateDelegationTokenRequest(max_lifetime_ms=-1)
            _check(wire.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, create))

    async def acls(self) -> dict[str, set[Acl]]:
        """By path, with numbers and ids left out."""
        found: dict[str, set[Acl]] = {}
        for path, acl in (await self.acls_by_path()).items():
            for pattern, kind in _KINDS:
                path = re.sub(pattern, kind, path)
            found.setdefault(path, set()).add(acl)
        return found

    async def acls_by_path(self) -> dict[str, Acl]:
        asked = session(self.connect)
        await asked.start()
        try:
            return await acls_below(asked)
        finally:
            await asked.close()


def _requests(broker: int) -> Iterable[tuple[ApiKey, int, Any]]:
    configs = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    for kind, name, key, value in (
        (2, TOPIC, "retention.ms", "3600000"),
        (4, str(broker), "log.cleaner.threads", "2"),
        (4, "", "message.max.bytes", "2000000"),
    ):
        entry = configs.AlterableConfig(name=key, config_operation=0, value=value)
        resource = configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[entry])
        yield ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, configs.IncrementalAlterConfigsRequest(resources=[resource])
    quotas = codec.module(ApiKey.ALTER_CLIENT_QUOTAS)
    for names, key in (
        ((("user", "bob"), ("client-id", "c")), "producer_byte_rate"),
        ((("client-id", None),), "consumer_byte_rate"),
        ((("ip", "10.0.0.1"),), "connection_creation_rate"),
    ):
        entity = [quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in names]
        entry = quotas.EntryData(entity=entity, ops=[quotas.OpData(key=key, value=1e6)])
        yield ApiKey.ALTER_CLIENT_QUOTAS, 1, quotas.AlterClientQuotasRequest(entries=[entry])
    yield ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, alteration((("carol", 2, 4096),), ())
    acls = codec.module(ApiKey.CREATE_ACLS)
    creations = [
        acls.AclCreation(
            resource_type=int(ResourceType.TOPIC),
            resource_name=TOPIC,
            resource_pattern_type=int(pattern),
            principal="User:alice",
            host="*",
            operation=int(AclOperation.READ),
            permission_type=int(PermissionType.ALLOW),
        )
        for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    ]
    yield ApiKey.CREATE_ACLS, 3, acls.CreateAclsRequest(creations=creations)
    offsets = codec.module(ApiKey.OFFSET_COMMIT)
    partition = offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = offsets.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    yield ApiKey.OFFSET_COMMIT, 0, offsets.OffsetCommitRequest(group_id="old", topics=[topic])
    moves = codec.module(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    move = moves.ReassignablePartition(partition_index=0, replicas=[broker])
    reassigned = moves.ReassignableTopic(name=TOPIC, partitions=[move])
    yield (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        moves.AlterPartitionReassignmentsRequest(timeout_ms=60_000, topics=[reassigned]),
    )
    deletion = codec.module(ApiKey.DELETE_TOPICS).DeleteTopicsRequest(topic_names=["gone"], timeout_ms=60_000)
    yield ApiKey.DELETE_TOPICS, 4, deletion


def _check(answer: Any) -> None:
    """Fails the test when an error code is anywhere in the answer."""
    codes = re.findall(r"error_code=(-?\d+)", repr(answer))
    assert codes and set(codes) == {"0"}, answer
