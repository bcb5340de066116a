"""kafka-python 0.9.5 as programs of Kafka 0.8 used it: SimpleProducer and SimpleConsumer, message format 0."""

from __future__ import annotations

import time
from typing import Any

from kafka import KafkaClient, SimpleConsumer
from kafka.common import ProduceRequest
from kafka.protocol import CODEC_GZIP, CODEC_NONE, CODEC_SNAPPY, create_message_set
from loop import UnsupportedError, data, record, serve

LIMIT_S = 60.0
_CODECS = {"none": CODEC_NONE, "gzip": CODEC_GZIP, "snappy": CODEC_SNAPPY}


def produce(
    bootstrap: str,
    topic: str,
    records: list[dict[str, Any]],
    codec: str = "none",
    acks: str = "all",
    idempotent: bool = False,
) -> None:
    if idempotent or codec not in _CODECS:
        raise UnsupportedError("Kafka 0.8 has none" if idempotent else f"Kafka 0.8 has no {codec}")
    if any(each["t"] is not None or each["h"] for each in records):
        raise UnsupportedError("message format 0 has neither timestamps nor headers")
    client = KafkaClient(bootstrap)
    client.load_metadata_for_topics(topic.encode())
    requests = []
    for partition in sorted({each["p"] for each in records}):
        pairs = [(data(each["v"]), data(each["k"])) for each in records if each["p"] == partition]
        requests.append(ProduceRequest(topic.encode(), partition, create_message_set(pairs, _CODECS[codec])))
    client.send_produce_request(requests, acks=-1 if acks == "all" else int(acks), timeout=30_000)
    client.close()


def _consume(bootstrap: str, topic: str, group: str | None, count: int) -> dict[str, Any]:
    client = KafkaClient(bootstrap)
    consumer = SimpleConsumer(
        client, None if group is None else group.encode(), topic.encode(), auto_commit=False, max_buffer_size=None
    )
    if group is None:
        consumer.seek(0, 0)
    consumer.provide_partition_info()
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} records")
        for partition, message in consumer.get_messages(count=count - len(found), block=True, timeout=0.5):
            found.append(record(message.message.key, message.message.value, [], None, partition))
    if group is not None:
        consumer.commit()
    consumer.stop()
    client.close()
    return {"records": found}


def read(bootstrap: str, topic: str, count: int, partitions: int, committed: bool) -> dict[str, Any]:
    return _consume(bootstrap, topic, None, count)


def group(bootstrap: str, group: str, topic: str, count: int, protocol: str = "classic") -> dict[str, Any]:
    if protocol != "classic":
        raise UnsupportedError("Kafka 0.8 has no groups of the consumer protocol")
    return _consume(bootstrap, topic, group, count)


if __name__ == "__main__":
    serve({each.__name__: each for each in (produce, read, group)})
