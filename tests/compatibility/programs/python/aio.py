"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, ProducerFenced
from loop import Operation, UnsupportedError, data, record, serve

LIMIT_S = 60.0


def _blocking(function: Callable[..., Coroutine[Any, Any, Any]]) -> Operation:
    @wraps(function)
    def run(**arguments: Any) -> Any:
        return asyncio.run(asyncio.wait_for(function(**arguments), LIMIT_S))

    return run


async def _send(producer: AIOKafkaProducer, topic: str, records: list[dict[str, Any]]) -> None:
    sent = [
        await producer.send(
            topic,
            key=data(each["k"]),
            value=data(each["v"]),
            headers=[(name, data(value)) for name, value in each["h"]],
            partition=each["p"],
            timestamp_ms=each["t"],
        )
        for each in records
    ]
    await asyncio.gather(*sent)


async def produce(
    bootstrap: str,
    topic: str,
    records: list[dict[str, Any]],
    codec: str = "none",
    acks: str = "all",
    idempotent: bool = False,
) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=idempotent,
    ) as producer:
        await _send(producer, topic, records)


async def _poll(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await consumer.getone() for _ in range(count)]


def _decoded(found: Any) -> dict[str, Any]:
    return record(found.key, found.value, list(found.headers), found.timestamp, found.partition)


async def read(bootstrap: str, topic: str, count: int, partitions: int, committed: bool) -> dict[str, Any]:
    isolation = "read_committed" if committed else "read_uncommitted"
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation) as consumer:
        assigned = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(assigned)
        await consumer.seek_to_beginning(*assigned)
        return {"records": [*map(_decoded, await _poll(consumer, count))]}


def _member(bootstrap: str, group: str, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )


async def group(bootstrap: str, group: str, topic: str, count: int, protocol: str = "classic") -> dict[str, Any]:
    if protocol != "classic":
        raise UnsupportedError("the client has the classic protocol only")
    async with _member(bootstrap, group, topic) as consumer:
        found = await _poll(consumer, count)
        await consumer.commit()
        return {"records": [*map(_decoded, found)]}


async def transact(bootstrap: str, id: str, topic: str, records: list[dict[str, Any]], commit: bool) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=id) as producer:
        await producer.begin_transaction()
        await _send(producer, topic, records)
        if commit:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()


async def fence(bootstrap: str, id: str, topic: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    older = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=id)
    await older.start()
    await older.begin_transaction()
    await _send(older, topic, records)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=id) as newer:
        await newer.begin_transaction()
        await _send(newer, topic, records)
        await newer.commit_transaction()
    try:
        await older.commit_transaction()
    except KafkaError as error:
        return {"fenced": isinstance(error, ProducerFenced), "error": repr(error)}
    return {"fenced": False}


async def copy(bootstrap: str, id: str, group: str, source: str, target: str, count: int, commit: bool) -> None:
    async with (
        _member(bootstrap, group, source) as consumer,
        AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=id) as producer,
    ):
        found = await _poll(consumer, count)
        positions: dict[TopicPartition, int] = {}
        await producer.begin_transaction()
        for message in found:
            await producer.send(target, key=message.key, value=message.value, partition=message.partition)
            positions[TopicPartition(source, message.partition)] = message.offset + 1
        await producer.send_offsets_to_transaction(positions, group)
        if commit:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()


async def offset_at(bootstrap: str, topic: str, partition: int, timestamp: int) -> dict[str, Any]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        where = TopicPartition(topic, partition)
        consumer.assign([where])
        return {"offset": (await consumer.offsets_for_times({where: timestamp}))[where].offset}


async def _administer(bootstrap: str, run: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, Any]]) -> Any:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        return await run(admin)
    finally:
        await admin.close()


def _check(found: Any, field: str) -> None:
    for entry in getattr(found, field):
        if entry[1]:
            raise KafkaError(f"{entry[0]}: error {entry[1]}: {entry[2] if len(entry) > 2 else ''}")


async def create_topic(bootstrap: str, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
    new = NewTopic(topic, partitions, replicas, topic_configs=config)
    _check(await _administer(bootstrap, lambda admin: admin.create_topics([new])), "topic_errors")


async def topic_config(bootstrap: str, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found = await _administer(bootstrap, lambda admin: admin.describe_configs([resource]))
    return {"config": {entry[0]: entry[1] for response in found for entry in response.resources[0][4]}}


async def alter_topic(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=config)
    await _administer(bootstrap, lambda admin: admin.alter_configs([resource]))


async def grow_topic(bootstrap: str, topic: str, partitions: int) -> None:
    await _administer(bootstrap, lambda admin: admin.create_partitions({topic: NewPartitions(partitions)}))


async def delete_topic(bootstrap: str, topic: str) -> None:
    await _administer(bootstrap, lambda admin: admin.delete_topics([topic]))


async def topics(bootstrap: str) -> dict[str, Any]:
    return {"topics": await _administer(bootstrap, lambda admin: admin.list_topics())}


if __name__ == "__main__":
    serve(
        {
            each.__name__: _blocking(each)
            for each in (
                produce,
                read,
                group,
                transact,
                fence,
                copy,
                offset_at,
                create_topic,
                topic_config,
                alter_topic,
                grow_topic,
                delete_topic,
                topics,
            )
        }
    )
