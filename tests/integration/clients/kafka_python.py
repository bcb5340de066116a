"""kafka-python 3."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import codec as kafka_codec
from kafka.admin import ConfigResource
from kafka.errors import CommitFailedError, KafkaTimeoutError, RetriableError

from ottla_broker.security.oauth.logins import TokenLogin
from ottla_operator.effects.kafka_token import TokenProvider
from tests.integration.clients.driver import (
    LARGEST_REQUEST_BYTES,
    LIMIT_S,
    Administrator,
    Gathering,
    GroupMember,
    Member,
    Record,
    TopicDescription,
)
from tests.integration.clients.security import Security, sasl_login, tls_context, token_grant

POLL_MS = 500


def record_of(found: Any) -> Record:
    headers = tuple(found.headers)
    has_append_time = found.timestamp_type == 1
    return Record(found.key, found.value, headers, found.timestamp, found.partition, found.offset, has_append_time)


class _Member(Member, ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, bootstrap: str, member: GroupMember, gathering: Gathering, security: Security) -> None:
        self._member = member
        self._gathering = gathering
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=member.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=1000,
            **python_security(security),
            **python_config(member.config),
        )
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(LIMIT_S)

    def on_partitions_assigned(self, _assigned: Iterable[Any]) -> None:
        self._gathering.assigned(self._member.name, frozenset(found.partition for found in self._consumer.assignment()))

    def on_partitions_revoked(self, _revoked: Iterable[Any]) -> None:
        self._gathering.assigned(self._member.name, frozenset())

    def _remember_join(self) -> None:
        """kafka-python 3.0.12 forgets a join that outlasts its poll, when it joined because it had learned of the
        topic's partitions only after the group's first assignment: being the group's leader, it takes these partitions
        for assigned while it waits for the answer to its SyncGroup, and the next poll finds no reason to look at that.
        It is then a member that sends no heartbeats, has no partitions and never asks again.
        """
        coordinator = self._consumer._coordinator
        if coordinator._join_task is not None and not coordinator.need_rejoin():
            coordinator.request_rejoin()

    def _run(self) -> None:
        name = self._member.name
        try:
            self._consumer.subscribe([self._member.topic], listener=self)
            while not self._closing.is_set():
                found = self._consumer.poll(timeout_ms=POLL_MS)
                self._remember_join()
                if not found:
                    continue
                self._gathering.received(name, [record_of(record) for part in found.values() for record in part])
                try:
                    self._consumer.commit(timeout_ms=30_000)
                    self._gathering.committed(name)
                except (CommitFailedError, KafkaTimeoutError, RetriableError):
                    pass  # a rebalance has begun, or the coordinator is gone: it is read again
        except Exception as error:
            self._gathering.failed(name, repr(error))
        finally:
            self._consumer.close()
            self._gathering.left(name)


def python_config(config: Mapping[str, str]) -> dict[str, Any]:
    """Kafka's words as kafka-python and aiokafka spell them.

    >>> python_config({"session.timeout.ms": "6000", "group.instance.id": "a"})
    {'session_timeout_ms': 6000, 'group_instance_id': 'a'}
    """
    return {
        name.replace(".", "_"): int(value) if name.endswith((".ms", ".records", ".bytes")) else value
        for name, value in config.items()
    }


def python_security(security: Security, provider: Callable[[TokenLogin], object] = TokenProvider) -> dict[str, Any]:
    """As kafka-python and aiokafka spell it.

    Args:
        provider: makes what the client asks for tokens.
    """
    if not security:
        return {}
    found = {"security_protocol": security["security.protocol"], "ssl_context": tls_context(security)}
    if security.get("sasl.mechanism") == "GSSAPI":  # the keytab is that of KRB5_CLIENT_KTNAME
        service = security["sasl.kerberos.service.name"]
        kerberos = {"sasl_kerberos_service_name": service, "sasl_kerberos_domain_name": "localhost"}
        return {**found, "sasl_mechanism": "GSSAPI", **kerberos}
    login, grant = sasl_login(security), token_grant(security)
    if grant is not None:
        return {**found, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider(grant.login)}
    if login is None:
        return found
    sasl = {"sasl_mechanism": login.mechanism, "sasl_plain_username": login.user, "sasl_plain_password": login.password}
    return {**found, **sasl}


class KafkaPython(Administrator):
    name = "kafka-python"
    can_send_null_headers = False
    codecs = (
        "none",
        "gzip",
        *(
            codec
            for codec, is_there in (
                ("snappy", kafka_codec.has_snappy),
                ("lz4", kafka_codec.has_lz4),
                ("zstd", kafka_codec.has_zstd),
            )
            if is_there()
        ),
    )
    """What it can do depends on the packages beside it."""

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        is_idempotent: bool = False,
    ) -> list[int] | None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            enable_idempotence=is_idempotent,
            max_request_size=LARGEST_REQUEST_BYTES,
            **python_security(self.security),
        )
        futures = [
            producer.send(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        answers = [future.get(LIMIT_S) for future in futures]
        producer.close()
        return [answer.offset for answer in answers] if acks != "0" else None

    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Record]:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=None,
            auto_offset_reset="earliest",
            **python_security(self.security),
        )
        everything = [TopicPartition(topic, partition) for partition in range(partitions)]
        consumer.assign(everything)
        ends = consumer.end_offsets(everything)
        records: list[Record] = []
        while any(consumer.position(found) < end for found, end in ends.items()):
            got = consumer.poll(timeout_ms=LIMIT_S * 1000)
            assert got, f"read {len(records)} records only"
            records += [record_of(record) for part in got.values() for record in part]
        consumer.close()
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def join(self, bootstrap: str, member: GroupMember, gathering: Gathering) -> Member:
        return _Member(bootstrap, member, gathering, self.security)

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> None:
        with self._admin(bootstrap) as admin:
            wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(config)}
            admin.create_topics({topic: wanted})
            admin.wait_for_topics([topic], timeout_ms=LIMIT_S * 1000)

    def describe_topic(self, bootstrap: str, topic: str) -> TopicDescription:
        with self._admin(bootstrap) as admin:
            (found,) = admin.describe_topics([topic])
        parts = found["partitions"]
        return TopicDescription(
            {part["partition_index"]: part["leader_id"] for part in parts},
            {part["partition_index"]: tuple(part["replica_nodes"]) for part in parts},
            {part["partition_index"]: frozenset(part["isr_nodes"]) for part in parts},
        )

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        with self._admin(bootstrap) as admin:
            admin.create_partitions({topic: partitions})

    def alter_topic(self, bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
        with self._admin(bootstrap) as admin:
            admin.alter_configs([ConfigResource("topic", topic, dict(config))])

    def topic_config(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        with self._admin(bootstrap) as admin:
            found = admin.describe_configs([ConfigResource("topic", topic)], config_filter="all")
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        with self._admin(bootstrap) as admin:
            admin.delete_topics([topic])

    def topics(self, bootstrap: str) -> frozenset[str]:
        with self._admin(bootstrap) as admin:
            return frozenset(admin.list_topics())

    def _admin(self, bootstrap: str) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=bootstrap.split(","), **python_security(self.security))
