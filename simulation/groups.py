"""A consumer without group membership that commits offsets and reads them back: acknowledged commits must survive.

The offsets of a group only grow. An offset that is read must be between the last acknowledged and the last sent one, or
be that of an earlier request without response that was applied late.
"""

from __future__ import annotations

import asyncio

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.checker import Partition, Violation
from simulation.client import Client, Unavailable
from simulation.coordinators import GROUP, find_coordinator
from simulation.workload import Workload

_TRY_AGAIN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
)


_OFFSETS = ("__consumer_offsets", -1)


class Committer:
    """Commits growing offsets of one partition for one group."""

    def __init__(self, workload: Workload, client: Client, group: str, partition: Partition) -> None:
        self.workload = workload
        self.client = client
        self.group = group
        self.partition = partition
        self.random = workload.world.stream(f"committer/{group}")
        self.sent = 0
        self.acknowledged = -1
        self._given_up: set[int] = set()
        """Offsets whose connection ended before their answer. A broker may take such a request in when it has taken
        later ones over another connection: requests have an order within a connection only, as in Apache Kafka."""
        self._forgiven_at = 0
        self._coordinator: tuple[str, int] | None = None

    async def run(self) -> None:
        """Until the workload stops; then once more, with an answer that must come."""
        workload = self.workload
        while workload.still_exists(self.partition[0]):
            is_last = workload.is_stopping
            try:
                await self._find()
                if not is_last:
                    await self._commit()
                await self._read_back()
                if is_last:
                    return
            except Unavailable:
                self._coordinator = None
                await asyncio.sleep(0.1 + 0.2 * self.random.random())
            await asyncio.sleep(self.random.choice((0.01, 0.1, 1.0)) * self.random.random())

    async def _find(self) -> None:
        if self._coordinator is not None:
            return
        self._coordinator = await find_coordinator(self.client, self.random, self.group, GROUP, timeout_s=10.0)

    async def _commit(self) -> None:
        assert self._coordinator is not None
        commit = codec.module(ApiKey.OFFSET_COMMIT)
        self.sent += self.random.randrange(1, 10)
        part = commit.OffsetCommitRequestPartition(
            partition_index=self.partition[1], committed_offset=self.sent, committed_metadata=""
        )
        topic = commit.OffsetCommitRequestTopic(name=self.partition[0], partitions=[part])
        body = commit.OffsetCommitRequest(group_id=self.group, topics=[topic])
        excused_at = self.workload.losses(_OFFSETS)
        version = self.random.randrange(2, 9)
        offset = self.sent
        try:
            answer = await self.client.request(self._coordinator, ApiKey.OFFSET_COMMIT, version, body)
        except Unavailable:
            self._given_up.add(offset)
            raise
        self._check(answer.topics[0].partitions[0].error_code, "OffsetCommit")
        if self.workload.losses(_OFFSETS) == excused_at:
            self._forgive()
            self.acknowledged = offset

    async def _read_back(self) -> None:
        assert self._coordinator is not None
        fetch = codec.module(ApiKey.OFFSET_FETCH)
        version = self.random.randrange(1, 8)
        topic = fetch.OffsetFetchRequestTopic(name=self.partition[0], partition_indexes=[self.partition[1]])
        body = fetch.OffsetFetchRequest(group_id=self.group, topics=[topic])
        expected = self.acknowledged
        was_current = self.workload.is_current(self._coordinator)
        excused_at = self.workload.losses(_OFFSETS)
        answer = await self.client.request(self._coordinator, ApiKey.OFFSET_FETCH, version, body)
        if version >= 2:
            self._check(answer.error_code, "OffsetFetch")
        part = answer.topics[0].partitions[0]
        self._check(part.error_code, "OffsetFetch")
        if self.workload.losses(_OFFSETS) != excused_at or not self.workload.still_exists(self.partition[0]):
            return  # a power loss or the deletion of the topic came between
        self._forgive()
        if not was_current or self._coordinator is None or not self.workload.is_current(self._coordinator):
            raise Unavailable("another broker is the coordinator by now")
        expected = min(expected, self.acknowledged)
        if part.committed_offset < expected and part.committed_offset in self._given_up:
            self.acknowledged = part.committed_offset
            return
        if not expected <= part.committed_offset <= self.sent:
            raise Violation(
                f"group {self.group} committed {expected} for {self.partition} (sent up to {self.sent}),"
                f" now it reads {part.committed_offset}"
            )

    def _forgive(self) -> None:
        """A power loss may have taken what was not flushed."""
        if self._forgiven_at != self.workload.losses(_OFFSETS):
            self._forgiven_at = self.workload.losses(_OFFSETS)
            self.acknowledged = -1

    def _check(self, error_code: int, what: str) -> None:
        code = ErrorCode.of(error_code)
        if code == ErrorCode.NONE:
            return
        if code in _TRY_AGAIN or not self.workload.still_exists(self.partition[0]):
            raise Unavailable(code.name)
        raise Violation(f"{what} for group {self.group} gave {code.name}")
