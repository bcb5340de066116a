"""Records deleted by the clients' administrators and by Kafka's own tool, on a fleet of three."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonTopicPartition

from tests.integration.clients.java import JavaMachine
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.topics import create, numbered

TOOL = "org.apache.kafka.tools.DeleteRecordsCommand"
LIMIT_S = 60

Delete = Callable[[str, dict[int, int]], dict[int, int]]
"""(topic, offset by partition) to low watermark by partition."""


@pytest.fixture(params=["librdkafka", "kafka-python", pytest.param("tool", marks=pytest.mark.java)])
def delete(request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path) -> Delete:
    def by_librdkafka(topic: str, offsets: dict[int, int]) -> dict[int, int]:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        answers = admin.delete_records(asked, request_timeout=LIMIT_S)
        return {at.partition: future.result(LIMIT_S).low_watermark for at, future in answers.items()}

    def by_kafka_python(topic: str, offsets: dict[int, int]) -> dict[int, int]:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
        asked = {PythonTopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        answers = admin.delete_records(asked, timeout_ms=LIMIT_S * 1000)
        admin.close()
        return {at.partition: answer["low_watermark"] for at, answer in answers.items()}

    def by_tool(topic: str, offsets: dict[int, int]) -> dict[int, int]:
        machine: JavaMachine = request.getfixturevalue("machine")
        asked = [{"topic": topic, "partition": partition, "offset": at} for partition, at in offsets.items()]
        path = tmp_path / "offsets.json"
        path.write_text(json.dumps({"version": 1, "partitions": asked}))
        done = machine.tool(TOOL, "--bootstrap-server", bootstrap, "--offset-json-file", str(path))
        assert done.status == 0, done.out + done.err
        lines = [line.split() for line in done.out.splitlines() if "low_watermark:" in line]
        return {int(line[1].rpartition("-")[2]): int(line[-1]) for line in lines}

    return {"librdkafka": by_librdkafka, "kafka-python": by_kafka_python, "tool": by_tool}[str(request.param)]


def test_records_are_gone_for_every_reader_and_on_every_replica(delete: Delete, bootstrap: str, name: str) -> None:
    create(bootstrap, name, partitions=2)
    Librdkafka().produce(bootstrap, name, numbered(40, 2))
    assert delete(name, {0: 7, 1: -1}) == {0: 7, 1: 20}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "error"})
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=LIMIT_S) == (7, 20)
    assert consumer.get_watermark_offsets(TopicPartition(name, 1), timeout=LIMIT_S) == (20, 20)
    consumer.assign([TopicPartition(name, 0, 7)])
    message = consumer.poll(LIMIT_S)
    assert message is not None and message.error() is None
    assert (message.offset(), message.value()) == (7, b"value 14")
    consumer.assign([TopicPartition(name, 0, 6)])
    with pytest.raises(KafkaException, match="out of range"):
        while (message := consumer.poll(LIMIT_S)) is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
    consumer.close()
