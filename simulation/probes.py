"""Clients that check whether a leader's answers about the end of its log are consistent.

* ListOffsets(latest) never decreases for a client that sends the current leader epoch; the leader may return
  OFFSET_NOT_AVAILABLE (KIP-207).
* A fetch from an offset between the high watermark and the log end is an empty success. The offset comes from the
  broker's state, and the request has the broker's leader epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.batches import read_batches
from simulation.checker import Partition, Violation
from simulation.client import Client, Unavailable
from simulation.cluster import CLIENT_PORT, SimulatedBroker
from simulation.leaderships import Leaderships
from simulation.workload import Workload

_LATEST = -1


class EndProbe:
    """One client that asks for the ends of all partitions in turn. `beyond_watermark` counts its second question."""

    def __init__(
        self, workload: Workload, client: Client, brokers: Sequence[SimulatedBroker], leaderships: Leaderships
    ) -> None:
        self.workload = workload
        self.client = client
        self.brokers = brokers
        self.leaderships = leaderships
        self.random = workload.world.stream("end-probe")
        self.ends_told = 0
        self.beyond_watermark = 0
        self._ends: dict[Partition, tuple[int, int]] = {}
        """Partition → (the latest offset that was told, losses then)."""

    async def run(self) -> None:
        while not self.workload.is_stopping:
            await asyncio.sleep(self.random.choice((0.02, 0.1, 0.4)) * self.random.random())
            partitions = [part for part in self.client.state.partitions if self.workload.still_exists(part[0])]
            try:
                if not partitions:
                    await self.client.refresh()
                    continue
                await self._ask_latest(self.random.choice(partitions))
                await self._fetch_beyond()
            except Unavailable:
                await asyncio.sleep(0.1)
                try:
                    await self.client.refresh()
                except Unavailable:
                    pass

    async def _ask_latest(self, partition: Partition) -> None:
        known = self.client.state.partitions.get(partition)
        address = self.client.leader_of(partition)
        if known is None or address is None:
            raise Unavailable("no leader is known")
        lists = codec.module(ApiKey.LIST_OFFSETS)
        part = lists.ListOffsetsPartition(
            partition_index=partition[1], current_leader_epoch=known.leader_epoch, timestamp=_LATEST
        )
        topic = lists.ListOffsetsTopic(name=partition[0], partitions=[part])
        body = lists.ListOffsetsRequest(replica_id=-1, topics=[topic])
        losses = self.workload.losses(partition)
        answer = await self.client.request(address, ApiKey.LIST_OFFSETS, self.random.randrange(5, 10), body)
        told = answer.topics[0].partitions[0]
        if not self.workload.still_exists(partition[0]):
            return
        if told.error_code:
            code = ErrorCode.of(told.error_code)
            if not code.retriable:
                raise Violation(f"ListOffsets of {partition} gave {code.name}")
            raise Unavailable(code.name)
        if self.workload.losses(partition) != losses:
            return
        self.ends_told += 1
        before, then = self._ends.get(partition, (0, losses))
        if told.offset < before and then == losses:
            raise Violation(f"{partition}: the latest offset was {before}, now it is {told.offset}")
        if self.workload.holds(partition, told.offset - 1, self.workload.world.loop.time(), losses):
            self._ends[partition] = (told.offset, losses)

    async def _fetch_beyond(self) -> None:
        """Fetches beyond the high watermark of a partition that has something there."""
        found = [
            (broker, replica)
            for broker in self.brokers
            for replica in broker.partitions()
            if replica.is_leader
            and not replica.log.state.is_failed
            and replica.log.state.high_watermark < replica.log.state.log_end_offset
            and self.workload.still_exists(replica.topic)
        ]
        if not found:
            return
        broker, replica = self.random.choice(found)
        epoch, life, end = replica.leader_epoch, broker.life, replica.log.state.log_end_offset
        offset = self.random.randrange(replica.log.state.high_watermark, end) + 1
        partition = (replica.topic, replica.index)
        fetch = codec.module(ApiKey.FETCH)
        part = fetch.FetchPartition(
            partition=partition[1], current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        topic = fetch.FetchTopic(topic=partition[0], partitions=[part])
        body = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic])
        address = (broker.host, CLIENT_PORT)
        response = await self.client.request(address, ApiKey.FETCH, self.random.randrange(9, 13), body)
        if response.error_code:
            raise Unavailable(ErrorCode.of(response.error_code).name)
        self._judge(partition, offset, response.responses[0].partitions[0], is_same=broker.life == life)

    def _judge(self, partition: Partition, offset: int, answer: Any, *, is_same: bool) -> None:
        code = ErrorCode.of(answer.error_code)
        if not self.workload.still_exists(partition[0]):
            return
        if code == ErrorCode.NONE:
            self.beyond_watermark += 1
            for batch in read_batches(answer.records or b""):
                if batch.last_offset >= answer.high_watermark:
                    raise Violation(
                        f"{partition}: fetched from {offset}, and got offset {batch.last_offset}"
                        f" beyond the high watermark {answer.high_watermark}"
                    )
        elif is_same and not code.retriable:
            raise Violation(f"{partition}: a fetch from {offset}, between high watermark and log end, gave {code.name}")
