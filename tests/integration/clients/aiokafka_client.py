"""aiokafka."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import CommitFailedError, KafkaError, LeaderNotAvailableError, for_code

from ottla_broker.security.oauth.blocking_tokens import BlockingTokens
from ottla_broker.security.oauth.logins import TokenLogin
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
from tests.integration.clients.kafka_python import python_config, python_security
from tests.integration.clients.security import Security

T = TypeVar("T")


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, login: TokenLogin) -> None:
        self._login = login
        self._tokens = BlockingTokens()

    async def token(self) -> str:
        return await asyncio.to_thread(self._tokens.token, self._login)


def aiokafka_security(security: Security) -> dict[str, Any]:
    """As aiokafka spells it."""
    return python_security(security, _TokenProvider)


POLL_MS = 50


def record_of(found: Any) -> Record:
    headers = tuple(found.headers)
    has_append_time = found.timestamp_type == 1
    return Record(found.key, found.value, headers, found.timestamp, found.partition, found.offset, has_append_time)


class _Member(Member, ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, bootstrap: str, member: GroupMember, gathering: Gathering, security: Security) -> None:
        self._bootstrap = bootstrap
        self._member = member
        self._gathering = gathering
        self._security = security
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(LIMIT_S)

    def _poll(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:
            self._gathering.failed(self._member.name, repr(error))
        finally:
            self._gathering.left(self._member.name)

    def on_partitions_assigned(self, assigned: frozenset[Any]) -> None:
        self._gathering.assigned(self._member.name, frozenset(found.partition for found in assigned))

    def on_partitions_revoked(self, _revoked: frozenset[Any]) -> None:
        self._gathering.assigned(self._member.name, frozenset())

    async def _run(self) -> None:
        name = self._member.name
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=self._member.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=1000,
            **aiokafka_security(self._security),
            **python_config(self._member.config),
        )
        try:
            consumer.subscribe([self._member.topic], listener=self)
            await consumer.start()
            while not self._closing.is_set():
                found = await consumer.getmany(timeout_ms=POLL_MS)
                if not found:
                    continue
                self._gathering.received(name, [record_of(record) for part in found.values() for record in part])
                try:
                    await consumer.commit()
                    self._gathering.committed(name)
                except (CommitFailedError, KafkaError) as error:
                    if not isinstance(error, CommitFailedError) and not error.retriable:
                        raise  # otherwise a rebalance has begun, or the coordinator is gone: it is read again
        finally:
            await consumer.stop()


class Aiokafka(Administrator):
    name = "aiokafka"

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
        async def produce() -> list[int] | None:
            async with AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                acks=acks if acks == "all" else int(acks),
                compression_type=None if codec == "none" else codec,
                linger_ms=5,
                enable_idempotence=is_idempotent,
                max_request_size=LARGEST_REQUEST_BYTES,
                **aiokafka_security(self.security),
            ) as producer:
                futures = [
                    await producer.send(
                        topic,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                answers = await asyncio.gather(*futures)
            return [answer.offset for answer in answers] if acks != "0" else None

        return run(produce())

    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Record]:
        async def read() -> list[Record]:
            records: list[Record] = []
            everything = [TopicPartition(topic, partition) for partition in range(partitions)]
            async with AIOKafkaConsumer(
                bootstrap_servers=bootstrap, auto_offset_reset="earliest", **aiokafka_security(self.security)
            ) as consumer:
                consumer.assign(everything)
                ends = await consumer.end_offsets(everything)
                for found, end in ends.items():
                    while await consumer.position(found) < end:
                        got = await consumer.getmany(found, timeout_ms=int(LIMIT_S * 1000))
                        assert got, f"read {len(records)} records only"
                        records += [record_of(record) for part in got.values() for record in part]
            return records

        return run(read())

    def join(self, bootstrap: str, member: GroupMember, gathering: Gathering) -> Member:
        return _Member(bootstrap, member, gathering, self.security)

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> None:
        answer = self.with_admin(
            bootstrap, lambda admin: admin.create_topics([NewTopic(topic, partitions, replicas, topic_configs=config)])
        )
        _check(answer.topic_errors[0][1])

    def describe_topic(self, bootstrap: str, topic: str) -> TopicDescription:
        (found,) = self.with_admin(bootstrap, lambda admin: admin.describe_topics([topic]))
        if found["error_code"] != LeaderNotAvailableError.errno:  # that is said of a topic that has just been created
            _check(found["error_code"])
        parts = found["partitions"]
        return TopicDescription(
            {part["partition"]: part["leader"] for part in parts},
            {part["partition"]: tuple(part["replicas"]) for part in parts},
            {part["partition"]: frozenset(part["isr"]) for part in parts},
        )

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.with_admin(bootstrap, lambda admin: admin.create_partitions({topic: NewPartitions(partitions)}))

    def alter_topic(self, bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(config))
        (answer,) = self.with_admin(bootstrap, lambda admin: admin.alter_configs([resource]))
        _check(answer.resources[0][0])

    def topic_config(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self.with_admin(bootstrap, lambda admin: admin.describe_configs([resource]))
        (error_code, _message, _type, _name, entries) = answer.resources[0]
        _check(error_code)
        return {entry[0]: entry[1] for entry in entries}

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        answer = self.with_admin(bootstrap, lambda admin: admin.delete_topics([topic]))
        _check(answer.topic_error_codes[0][1])

    def topics(self, bootstrap: str) -> frozenset[str]:
        return frozenset(self.with_admin(bootstrap, lambda admin: admin.list_topics()))

    def with_admin(self, bootstrap: str, act: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def call() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, **aiokafka_security(self.security))
            await admin.start()
            try:
                return await act(admin)
            finally:
                await admin.close()

        return run(call())


def run(coroutine: Awaitable[T]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(coroutine, LIMIT_S)

    return asyncio.run(limited())


def _check(error_code: int) -> None:
    if error_code:
        raise for_code(error_code)
