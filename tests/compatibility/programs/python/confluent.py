"""confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from loop import data, record, serve

LIMIT_S = 60.0


def _send(producer: Producer, topic: str, records: list[dict[str, Any]]) -> list[KafkaError]:
    failures: list[KafkaError] = []
    for each in records:
        options = {} if each["t"] is None else {"timestamp": each["t"]}
        producer.produce(
            topic,
            key=data(each["k"]),
            value=data(each["v"]),
            headers=[(name, data(value)) for name, value in each["h"]],
            partition=each["p"],
            on_delivery=lambda error, _message: failures.append(error) if error else None,
            **options,
        )
    return failures


def produce(
    bootstrap: str,
    topic: str,
    records: list[dict[str, Any]],
    codec: str = "none",
    acks: str = "all",
    idempotent: bool = False,
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": idempotent,
            "linger.ms": 5,
        }
    )
    failures = _send(producer, topic, records)
    if producer.flush(LIMIT_S):
        raise TimeoutError("records are left")
    if failures:
        raise KafkaException(failures[0])


def _decoded(message: Any) -> dict[str, Any]:
    return record(message.key(), message.value(), message.headers() or [], message.timestamp()[1], message.partition())


def _poll(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} records")
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        found.append(message)
    return found


def read(bootstrap: str, topic: str, count: int, partitions: int, committed: bool) -> dict[str, Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": str(uuid.uuid4()),
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        return {"records": [*map(_decoded, _poll(consumer, count))]}
    finally:
        consumer.close()


def group(bootstrap: str, group: str, topic: str, count: int, protocol: str = "classic") -> dict[str, Any]:
    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    if protocol == "consumer":
        config["group.protocol"] = "consumer"
    consumer = Consumer({**config, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        found = _poll(consumer, count)
        consumer.commit(asynchronous=False)
        return {"records": [*map(_decoded, found)]}
    finally:
        consumer.close()


def _transactional(bootstrap: str, id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": id})
    producer.init_transactions(LIMIT_S)
    return producer


def transact(bootstrap: str, id: str, topic: str, records: list[dict[str, Any]], commit: bool) -> None:
    producer = _transactional(bootstrap, id)
    producer.begin_transaction()
    failures = _send(producer, topic, records)
    producer.flush(LIMIT_S)
    if failures:
        raise KafkaException(failures[0])
    if commit:
        producer.commit_transaction(LIMIT_S)
    else:
        producer.abort_transaction(LIMIT_S)


def fence(bootstrap: str, id: str, topic: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    older = _transactional(bootstrap, id)
    older.begin_transaction()
    _send(older, topic, records)
    older.flush(LIMIT_S)
    newer = _transactional(bootstrap, id)
    newer.begin_transaction()
    _send(newer, topic, records)
    newer.commit_transaction(LIMIT_S)
    try:
        older.commit_transaction(LIMIT_S)
    except KafkaException as failure:
        error = failure.args[0]
        return {"fenced": error.fatal() or error.code() == KafkaError._FENCED, "error": str(error)}
    return {"fenced": False}


def copy(bootstrap: str, id: str, group: str, source: str, target: str, count: int, commit: bool) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = _transactional(bootstrap, id)
    try:
        consumer.subscribe([source])
        found = _poll(consumer, count)
        positions: dict[int, int] = {}
        producer.begin_transaction()
        for message in found:
            producer.produce(target, key=message.key(), value=message.value(), partition=message.partition())
            positions[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(source, index, offset) for index, offset in positions.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), LIMIT_S)
        if commit:
            producer.commit_transaction(LIMIT_S)
        else:
            producer.abort_transaction(LIMIT_S)
    finally:
        consumer.close()


def offset_at(bootstrap: str, topic: str, partition: int, timestamp: int) -> dict[str, Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": str(uuid.uuid4())})
    try:
        found = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp)], timeout=LIMIT_S)
        return {"offset": found[0].offset}
    finally:
        consumer.close()


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(bootstrap: str, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=config)
    admin = _admin(bootstrap)  # a client that is collected cancels what it has begun
    admin.create_topics([new])[topic].result(LIMIT_S)


def topic_config(bootstrap: str, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = _admin(bootstrap)  # a client that is collected cancels what it has begun
    found = admin.describe_configs([resource])[resource].result(LIMIT_S)
    return {"config": {name: entry.value for name, entry in found.items()}}


def alter_topic(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = _admin(bootstrap)  # a client that is collected cancels what it has begun
    admin.incremental_alter_configs([resource])[resource].result(LIMIT_S)


def grow_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = _admin(bootstrap)  # a client that is collected cancels what it has begun
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(LIMIT_S)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = _admin(bootstrap)  # a client that is collected cancels what it has begun
    admin.delete_topics([topic])[topic].result(LIMIT_S)


def topics(bootstrap: str) -> dict[str, Any]:
    return {"topics": [*_admin(bootstrap).list_topics(timeout=LIMIT_S).topics]}


if __name__ == "__main__":
    serve(
        {
            each.__name__: each
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
