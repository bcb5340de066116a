"""What aiokafka offers beyond the others."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata

from tests.integration.clients.aiokafka_client import Aiokafka
from tests.integration.clients.driver import LIMIT_S, Record
from tests.integration.clients.topics import FOREVER, await_groups, create, numbered

DRIVER = Aiokafka()


async def test_offsets_by_time_and_committed_metadata(bootstrap: str, name: str) -> None:
    start = 1_700_000_000_000
    await asyncio.to_thread(create, bootstrap, name, retention_ms=FOREVER)
    await asyncio.to_thread(
        DRIVER.produce, bootstrap, name, [Record(None, b"x", timestamp_ms=start + 1000 * n) for n in range(10)]
    )
    part = TopicPartition(name, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False) as consumer:
        consumer.assign([part])
        found = (await consumer.offsets_for_times({part: start + 2500}))[part]
        assert (found.offset, found.timestamp) == (3, start + 3000)
        assert (await consumer.offsets_for_times({part: start + 99_000}))[part] is None
        await consumer.commit({part: OffsetAndMetadata(4, "half way")})
        assert await consumer.committed(part) == 4


async def test_an_offset_out_of_range_is_reset_or_told(bootstrap: str, name: str) -> None:
    await asyncio.to_thread(create, bootstrap, name)
    await asyncio.to_thread(DRIVER.produce, bootstrap, name, numbered(3))
    part = TopicPartition(name, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([part])
        consumer.seek(part, 1000)
        assert (await asyncio.wait_for(consumer.getone(part), LIMIT_S)).value == b"value 0"
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([part])
        consumer.seek(part, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            await asyncio.wait_for(consumer.getone(part), LIMIT_S)


async def test_max_poll_records(bootstrap: str, name: str) -> None:
    await asyncio.to_thread(create, bootstrap, name)
    await asyncio.to_thread(DRIVER.produce, bootstrap, name, numbered(25))
    part = TopicPartition(name, 0)
    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=10
    ) as consumer:
        consumer.assign([part])
        sizes = [len((await consumer.getmany(timeout_ms=int(LIMIT_S * 1000)))[part]) for _ in range(3)]
    assert sizes == [10, 10, 5]


def test_groups_and_the_cluster_are_described(bootstrap: str, name: str) -> None:
    create(bootstrap, name)
    cluster = DRIVER.with_admin(bootstrap, lambda admin: admin.describe_cluster())
    assert sorted(broker["node_id"] for broker in cluster["brokers"]) == [0, 1, 2]

    async def commit() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition(name, 0)])
            await consumer.commit({TopicPartition(name, 0): OffsetAndMetadata(3, "")})

    asyncio.run(commit())
    await_groups(bootstrap)
    assert name in [group for group, _ in DRIVER.with_admin(bootstrap, lambda admin: admin.list_consumer_groups())]
    found = DRIVER.with_admin(bootstrap, lambda admin: admin.list_consumer_group_offsets(name))
    assert found[TopicPartition(name, 0)].offset == 3
