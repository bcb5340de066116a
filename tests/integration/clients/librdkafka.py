"""librdkafka, by confluent-kafka."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

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
from tests.integration.clients.security import Security, sasl_login, token_grant

_NAMES: dict[str, tuple[str, ...]] = {
    "security.protocol": ("security.protocol",),
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.type": (),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.type": (),
    "sasl.mechanism": ("sasl.mechanism",),
    "sasl.jaas.config": (),
    "sasl.login.callback.handler.class": (),
    "sasl.oauthbearer.token.endpoint.url": ("sasl.oauthbearer.token.endpoint.url",),
}


def librdkafka_security(security: Security) -> dict[str, str]:
    """As librdkafka spells it. It has no option for the versions of TLS.

    >>> librdkafka_security({"security.protocol": "SSL", "ssl.truststore.location": "a", "ssl.truststore.type": "PEM"})
    {'security.protocol': 'SSL', 'ssl.ca.location': 'a'}
    """
    found = {own: value for name, value in security.items() for own in _NAMES[name]}
    login, grant = sasl_login(security), token_grant(security)
    if grant is not None:
        return {
            **found,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": grant.client_id,
            "sasl.oauthbearer.client.secret": grant.client_secret,
            "sasl.oauthbearer.scope": grant.scope,
        }
    return found if login is None else {**found, "sasl.username": login.user, "sasl.password": login.password}


def record_of(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    assert kind in (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME), kind
    headers = tuple((name, value) for name, value in message.headers() or ())  # type: ignore[str-unpack]
    key, value = message.key(), message.value()
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    assert not isinstance(key, str) and not isinstance(value, str)
    has_append_time = kind == TIMESTAMP_LOG_APPEND_TIME
    return Record(key, value, headers, timestamp, partition, offset, has_append_time)  # type: ignore[arg-type]


class _Member(Member):
    def __init__(self, bootstrap: str, member: GroupMember, gathering: Gathering, security: Security) -> None:
        self._name = member.name
        self._topic = member.topic
        self._gathering = gathering
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": member.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                **librdkafka_security(security),
                **member.config,
            }
        )
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(LIMIT_S)

    def _run(self) -> None:
        try:
            self._consumer.subscribe([self._topic], on_assign=self._on_change, on_revoke=self._on_revoke)
            while not self._closing.is_set():
                self._poll()
        except Exception as error:
            self._gathering.failed(self._name, repr(error))
        finally:
            self._consumer.close()
            self._gathering.left(self._name)

    def _on_change(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._gathering.assigned(self._name, frozenset(found.partition for found in partitions))

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._gathering.assigned(self._name, frozenset())

    def _poll(self) -> None:
        records = []
        for message in self._consumer.consume(500, 0.05):
            error = message.error()
            if error is None:
                records.append(record_of(message))
            elif error.fatal() or not (error.retriable() or error.code() in TRANSIENT):
                raise KafkaException(error)
        if not records:
            return
        self._gathering.received(self._name, records)
        try:
            self._consumer.commit(asynchronous=False)
            self._gathering.committed(self._name)
        except KafkaException as error:  # a rebalance has begun, or the coordinator is gone: it is read again
            if error.args[0].fatal():
                raise


TRANSIENT = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE})
"""What librdkafka reports and copes with by itself."""


class Librdkafka(Administrator):
    name = "librdkafka"

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
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "enable.idempotence": is_idempotent,
                "compression.type": codec,
                "linger.ms": 5,
                "message.timeout.ms": 100_000,  # below LIMIT_S, so that it tells why
                "message.max.bytes": LARGEST_REQUEST_BYTES,
                **librdkafka_security(self.security),
            }
        )
        answers: list[tuple[KafkaError | None, int | None]] = []
        for record in records:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=record.partition,
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, message: answers.append((error, message.offset())),
            )
        assert producer.flush(LIMIT_S) == 0
        assert [error for error, _ in answers if error is not None] == []
        return [offset for _, offset in answers if offset is not None]

    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Record]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # it reports the end when a fetch has come back empty
                **librdkafka_security(self.security),
            }
        )
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        records: list[Record] = []
        ended = 0
        while ended < partitions:
            message = consumer.poll(LIMIT_S)
            assert message is not None, f"read {len(records)} records only"
            error = message.error()
            if error is None:
                records.append(record_of(message))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
        consumer.close()
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def join(self, bootstrap: str, member: GroupMember, gathering: Gathering) -> Member:
        return _Member(bootstrap, member, gathering, self.security)

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> None:
        admin = self._admin(bootstrap)  # it must live until the answer is there
        admin.create_topics([NewTopic(topic, partitions, replicas, config=dict(config))])[topic].result()

    def describe_topic(self, bootstrap: str, topic: str) -> TopicDescription:
        admin = self._admin(bootstrap)
        found = admin.describe_topics(TopicCollection([topic]))[topic].result()
        return TopicDescription(
            {part.id: -1 if part.leader is None else part.leader.id for part in found.partitions},
            {part.id: tuple(node.id for node in part.replicas) for part in found.partitions},
            {part.id: frozenset(node.id for node in part.isr) for part in found.partitions},
        )

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        admin = self._admin(bootstrap)
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()

    def alter_topic(self, bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        admin = self._admin(bootstrap)
        admin.incremental_alter_configs([resource])[resource].result()

    def topic_config(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        admin = self._admin(bootstrap)
        entries = admin.describe_configs([resource])[resource].result()
        return {name: entry.value for name, entry in entries.items()}

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        admin = self._admin(bootstrap)
        admin.delete_topics([topic])[topic].result()

    def topics(self, bootstrap: str) -> frozenset[str]:
        return frozenset(self._admin(bootstrap).list_topics(timeout=LIMIT_S).topics)

    def _admin(self, bootstrap: str) -> AdminClient:
        return AdminClient({"bootstrap.servers": bootstrap, **librdkafka_security(self.security)})
