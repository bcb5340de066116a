"""kafka-python 2.3 and 3."""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata
from loop import data, record, serve

LIMIT_S = 60.0
TRUST = os.environ.get("OTTLA_TRUST")
SECURITY: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": TRUST} if TRUST else {}
if LOGIN := os.environ.get("OTTLA_SASL"):
    MECHANISM, USER, PASSWORD = LOGIN.split(" ")
    SECURITY |= {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
FENCED = (ProducerFencedError, InvalidProducerEpochError)  # the second before KIP-588


def _send(producer: KafkaProducer, topic: str, records: list[dict[str, Any]]) -> list[Any]:
    return [
        producer.send(
            topic,
            key=data(each["k"]),
            value=data(each["v"]),
            headers=[(name, data(value)) for name, value in each["h"]],
            partition=each["p"],
            timestamp_ms=each["t"],
        )
        for each in records
    ]


def produce(
    bootstrap: str,
    topic: str,
    records: list[dict[str, Any]],
    codec: str = "none",
    acks: str = "all",
    idempotent: bool = False,
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        **SECURITY,
        compression_type=None if codec == "none" else codec,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=idempotent,
    )
    try:
        sent = _send(producer, topic, records)
        producer.flush(LIMIT_S)
        for future in sent:
            future.get(LIMIT_S)
    finally:
        producer.close()


def _decoded(found: Any) -> dict[str, Any]:
    return record(found.key, found.value, list(found.headers), found.timestamp, found.partition)


def _poll(consumer: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} records")
        for records in consumer.poll(timeout_ms=500, max_records=count - len(found)).values():
            found += records
    return found


def read(bootstrap: str, topic: str, count: int, partitions: int, committed: bool) -> dict[str, Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        **SECURITY,
        enable_auto_commit=False,
        isolation_level="read_committed" if committed else "read_uncommitted",
    )
    try:
        assigned = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        return {"records": [*map(_decoded, _poll(consumer, count))]}
    finally:
        consumer.close()


def group(bootstrap: str, group: str, topic: str, count: int, protocol: str = "classic") -> dict[str, Any]:
    if protocol != "classic":
        from loop import UnsupportedError

        raise UnsupportedError("the client has the classic protocol only")
    consumer = _member(bootstrap, group, topic)
    try:
        found = _poll(consumer, count)
        consumer.commit()
        return {"records": [*map(_decoded, found)]}
    finally:
        consumer.close()


def _member(bootstrap: str, group: str, topic: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        **SECURITY,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )


def _transactional(bootstrap: str, id: str) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","), transactional_id=id, max_block_ms=60_000, **SECURITY
    )
    producer.init_transactions()
    return producer


def transact(bootstrap: str, id: str, topic: str, records: list[dict[str, Any]], commit: bool) -> None:
    producer = _transactional(bootstrap, id)
    try:
        producer.begin_transaction()
        sent = _send(producer, topic, records)
        producer.flush(LIMIT_S)
        for future in sent:
            future.get(LIMIT_S)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    finally:
        producer.close()


def fence(bootstrap: str, id: str, topic: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    older = _transactional(bootstrap, id)
    older.begin_transaction()
    _send(older, topic, records)
    older.flush(LIMIT_S)
    newer = _transactional(bootstrap, id)
    newer.begin_transaction()
    _send(newer, topic, records)
    newer.commit_transaction()
    try:
        older.commit_transaction()
    except KafkaError as error:
        return {
            "fenced": isinstance(error, FENCED) or "fenced" in repr(error).lower(),
            "error": repr(error),
        }
    finally:
        newer.close()
        older.close(timeout=1)
    return {"fenced": False}


def copy(bootstrap: str, id: str, group: str, source: str, target: str, count: int, commit: bool) -> None:
    consumer = _member(bootstrap, group, source)
    producer = _transactional(bootstrap, id)
    try:
        found = _poll(consumer, count)
        positions: dict[TopicPartition, Any] = {}
        producer.begin_transaction()
        for message in found:
            producer.send(target, key=message.key, value=message.value, partition=message.partition)
            positions[TopicPartition(source, message.partition)] = OffsetAndMetadata(message.offset + 1, "", -1)
        if hasattr(consumer, "group_metadata"):
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        else:
            producer.send_offsets_to_transaction(positions, group)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    finally:
        consumer.close()
        producer.close()


def offset_at(bootstrap: str, topic: str, partition: int, timestamp: int) -> dict[str, Any]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), group_id=str(uuid.uuid4()), **SECURITY)
    try:
        where = TopicPartition(topic, partition)
        return {"offset": consumer.offsets_for_times({where: timestamp})[where].offset}
    finally:
        consumer.close()


def _admin(bootstrap: str) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=bootstrap.split(","), **SECURITY)


def create_topic(bootstrap: str, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
    _admin(bootstrap).create_topics([NewTopic(topic, partitions, replicas, topic_configs=config)])


def topic_config(bootstrap: str, topic: str) -> dict[str, Any]:
    found = _admin(bootstrap).describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    if isinstance(found, dict):
        entries = next(iter(next(iter(found.values())).values()))
        return {"config": {name: entry["value"] for name, entry in entries.items()}}
    return {"config": {entry[0]: entry[1] for response in found for entry in response.resources[0][4]}}


def alter_topic(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    _admin(bootstrap).alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=config)])


def grow_topic(bootstrap: str, topic: str, partitions: int) -> None:
    _admin(bootstrap).create_partitions({topic: NewPartitions(partitions)})


def delete_topic(bootstrap: str, topic: str) -> None:
    _admin(bootstrap).delete_topics([topic])


def topics(bootstrap: str) -> dict[str, Any]:
    return {"topics": [*_admin(bootstrap).list_topics()]}


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
