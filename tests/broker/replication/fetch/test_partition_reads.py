"""Fetches that wait for a disk while another broker becomes leader.

What the former leader truncates and writes meanwhile must not be sent as records of its former epoch: broker 2 would
append it, and count as in sync with records that it does not have.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.protocol.generated.produce import PartitionProduceData
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.reader import LogReader
from tests.broker.replication.fleet import Fleet, batch, produce_request, until, values_of

REFUSAL = re.compile("broker 1 returns [A-Z_]+ for .*orders-1")


@pytest.fixture
async def fleet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Fleet]:
    caplog.set_level(logging.INFO, "ottla.replication")
    fleet = Fleet(tmp_path, {"replica.lag.time.max.ms": "3600000", "min.insync.replicas": "1"})
    await fleet.start(1, 2, 3)
    await fleet.create("orders", (1, 2, 3), partitions=2)
    yield fleet
    fleet.stop()


class SlowDisk:
    """The next read of a log with records waits until `answer`, as a read from the disk does.

    Followers take what they are given, whatever its epoch, as those of Apache Kafka do.
    """

    def __init__(self, fleet: Fleet, log: Log) -> None:
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_read = False
        self.read_before: list[Log] = []
        for node in fleet.nodes.values():
            for one in node.log_manager.logs:
                self._replace(one, is_slow=one is log)

    def _replace(self, log: Log, *, is_slow: bool) -> None:
        read_now, append = log.read, log.append_as_follower
        reader = cast("LogReader", read_now.__self__)

        def read(offset: int, max_bytes: int, upper: int, at_least_one_batch: bool) -> Any:
            if not is_slow or self.is_read or offset >= upper:
                if not self.is_read and offset < upper:
                    self.read_before.append(log)
                return read_now(offset, max_bytes, upper, at_least_one_batch)
            self.is_read = True

            async def later() -> Any:
                await self._answered
                return await reader._read_from_disk(offset, max_bytes, upper, at_least_one_batch)

            return reader._lookup.spawn(later)

        log.read = read
        log.append_as_follower = lambda records, _: append(records)

    def answer(self) -> None:
        self._answered.set_result(None)


async def elect_3(fleet: Fleet, first: int) -> None:
    """Broker 3 leads both partitions, and 1 and 2 do not know it yet: 2 follows 1. All have "a", 1 and 2 one more.

    The next response to 2 begins with the partition `first`.
    """
    logs = [fleet.nodes[broker].partition("orders", 1).log for broker in (1, 2, 3)]
    await fleet.produce(1, "orders", "a", index=1)
    await until(lambda: all(log.state.log_end_offset == 1 for log in logs), "a everywhere")
    for index in (0, 1):
        await fleet.elect("orders", 3, (1, 2, 3), index, to=[3])
    for index, value in ((first, "first"), (1 - first, "second")):
        await fleet.produce(1, "orders", value, acks=1, index=index)
        log = fleet.nodes[2].partition("orders", index).log
        await until(lambda log=log, end=index + 1: log.state.log_end_offset == end, f"{value} at 2")
    for value in ("y1", "y2"):
        await fleet.produce(3, "orders", value, acks=1, index=1)


async def assert_all_have(fleet: Fleet, *expected: str) -> None:
    logs = {broker: fleet.nodes[broker].partition("orders", 1).log for broker in (1, 2, 3)}
    await until(
        lambda: {log.state.log_end_offset for log in logs.values()} == {len(expected)}, "all have the same length"
    )
    for log in logs.values():
        chunks = [memoryview(bytes(await log.read_bytes(offset, 1))) for offset in range(len(expected))]
        assert [values_of(chunk)[0] for chunk in chunks] == list(expected)
        assert log.state.epochs.entries == logs[3].state.epochs.entries


async def replace_1_while_it_is_asked(fleet: Fleet, disk: SlowDisk, caplog: pytest.LogCaptureFixture) -> None:
    """1 learns of the election, and follows 3, while a fetch of 2 waits for the disk. All end with what 3 has."""
    await until(lambda: disk.is_read, "2's fetch waits for the disk")
    await fleet.command("orders", to=[1])
    old = fleet.nodes[1].partition("orders", 1).log
    await until(lambda: old.state.log_end_offset == 3 and old.state.epochs.latest == 1, "1 has what 3 has")
    disk.answer()
    await until(lambda: REFUSAL.search(caplog.text) is not None, "2 has an answer")
    await fleet.command("orders")
    await assert_all_have(fleet, "a", "y1", "y2")


@pytest.mark.parametrize("slow", [0, 1])
async def test_records_read_after_a_wait_are_not_those_of_a_new_leader_epoch(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, slow: int
) -> None:
    """0: another partition of the request is read slowly; 1: the partition itself is."""
    await elect_3(fleet, first=slow)
    disk = SlowDisk(fleet, fleet.nodes[1].partition("orders", slow).log)
    await fleet.produce(1, "orders", "more", acks=1, index=slow)
    await replace_1_while_it_is_asked(fleet, disk, caplog)


async def test_records_read_before_a_wait_are_not_sent_when_they_were_truncated(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    await elect_3(fleet, first=1)
    disk = SlowDisk(fleet, fleet.nodes[1].partition("orders", 0).log)
    request = produce_request("orders", batch("x2"), acks=1, index=1)
    request.topic_data[0].partition_data.append(PartitionProduceData(index=0, records=batch("more")))
    await fleet.ask(1, ApiKey.PRODUCE, 11, request)
    await until(lambda: disk.is_read, "2's fetch waits for the disk")
    assert disk.read_before == [fleet.nodes[1].partition("orders", 1).log]
    await replace_1_while_it_is_asked(fleet, disk, caplog)


async def test_a_follower_refuses_a_batch_of_a_later_epoch_than_its_leaders(fleet: Fleet) -> None:
    await fleet.produce(1, "orders", "a")
    leader, follower = (fleet.nodes[broker].partition("orders").log for broker in (1, 2))
    await until(lambda: follower.state.log_end_offset == 1, "a at 2")
    records = bytearray(await leader.read_bytes(0, 1))
    records[0:8] = (1).to_bytes(8, "big")
    records[12:16] = (3).to_bytes(4, "big")  # the leader epoch, which the checksum does not cover
    with pytest.raises(KafkaError, match="has leader epoch 3, its sender 2"):
        follower.append_as_follower(memoryview(bytes(records)), 2)
    follower.append_as_follower(memoryview(bytes(records)), 3)
