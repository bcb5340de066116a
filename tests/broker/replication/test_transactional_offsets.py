"""Offsets of transactions in replicated partitions of `__consumer_offsets`, with markers over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.groups.coordinator import CommittingMember, GroupCoordinator
from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.internal_topics.topic_log import TransactionalProducer
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.batch import read_header
from ottla_broker.records.ids import TopicPartition
from tests.broker.replication.fleet import Fleet, until
from tests.broker.replication.test_transactions import (
    ABORT,
    COMMIT,
    ORDERS,
    coordinator_of,
    end,
    mark,
    stable_offset,
)

UNSTABLE, NONE = ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE


class Groups:
    """A fleet of two, with a group coordinator on each."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.coordinators: dict[int, GroupCoordinator] = {}

    async def start(self) -> None:
        await self.fleet.start(1, 2)
        self.coordinators = {number: coordinator_of(node) for number, node in self.fleet.nodes.items()}
        await self.fleet.create(CONSUMER_OFFSETS, (1, 2))
        await self.loaded(1)

    async def loaded(self, broker: int) -> None:
        await until(lambda: self.coordinators[broker].list()[0] is NONE, "the groups are loaded")

    async def commit(self, offset: int, *, producer_id: int = 7, epoch: int = 0, broker: int = 1) -> ErrorCode:
        producer = TransactionalProducer("tx", producer_id, epoch)
        commits = {ORDERS: CommittedOffset(offset, -1, "", 1)}
        answers = await self.coordinators[broker].commit_in_transaction("g", producer, CommittingMember(), commits)
        return answers[ORDERS]

    def offset(self, broker: int = 1) -> int | ErrorCode:
        return stable_offset(self.coordinators[broker], "g")


@pytest.fixture
async def groups(tmp_path: Path) -> AsyncIterator[Groups]:
    groups = Groups(Fleet(tmp_path, {"replica.lag.time.max.ms": "3600000", "request.timeout.ms": "300"}))
    await groups.start()
    yield groups
    for coordinator in groups.coordinators.values():
        coordinator.close()
    groups.fleet.stop()


@pytest.mark.parametrize(("result", "expected"), [(COMMIT, 5), (ABORT, NONE)])
async def test_offsets_appear_when_the_commit_marker_is_on_every_in_sync_replica(
    groups: Groups, result: bool, expected: int | ErrorCode
) -> None:
    assert await groups.commit(5) is NONE
    assert groups.fleet.coordinator.asked == [("tx", 7, 0, TopicPartition(CONSUMER_OFFSETS, 0))]
    assert await groups.commit(5) is NONE
    assert len(groups.fleet.coordinator.asked) == 1, "the transaction has begun"
    assert groups.offset() is UNSTABLE
    groups.fleet.nodes[2].kill()  # it is missed until it has been taken out of the ISR
    marker = end(7, result, topic=CONSUMER_OFFSETS)
    assert await mark(groups.fleet, marker) == {7: [int(ErrorCode.REQUEST_TIMED_OUT)]}
    assert groups.offset() is UNSTABLE
    await groups.fleet.elect(CONSUMER_OFFSETS, 1, (1,))
    assert await mark(groups.fleet, marker) == {7: [0]}
    assert groups.offset() == expected
    assert await mark(groups.fleet, marker) == {7: [0]}, "sent again"
    assert groups.offset() == expected


async def test_the_next_leader_knows_the_offsets_of_an_open_transaction(groups: Groups) -> None:
    assert await groups.commit(5) is NONE
    await groups.fleet.elect(CONSUMER_OFFSETS, 2, (1, 2))
    await groups.loaded(2)
    assert groups.offset(2) is UNSTABLE
    moved = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert await mark(groups.fleet, end(7, COMMIT, topic=CONSUMER_OFFSETS), broker=1) == {7: [moved]}
    assert await groups.commit(6, broker=1) is ErrorCode.NOT_COORDINATOR
    assert await groups.commit(6, broker=2) is NONE
    assert len(groups.fleet.coordinator.asked) == 1, "the new leader's log has the open transaction"
    assert await mark(groups.fleet, end(7, COMMIT, topic=CONSUMER_OFFSETS), broker=2) == {7: [0]}
    assert groups.offset(2) == 6


async def test_a_marker_of_an_older_epoch_settles_nothing(groups: Groups) -> None:
    assert await groups.commit(5, epoch=2) is NONE
    fenced = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert await mark(groups.fleet, end(7, COMMIT, epoch=1, topic=CONSUMER_OFFSETS)) == {7: [fenced]}
    assert groups.offset() is UNSTABLE
    assert await groups.commit(6, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await mark(groups.fleet, end(7, ABORT, epoch=3, topic=CONSUMER_OFFSETS)) == {7: [0]}
    assert groups.offset() is NONE
    assert await groups.commit(7, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_each_marker_of_a_request_is_answered_for_each_partition(groups: Groups) -> None:
    assert await groups.commit(5) is NONE
    assert await groups.commit(6, producer_id=8) is NONE
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answers = await mark(
        groups.fleet,
        end(7, ABORT, 0, 3, topic=CONSUMER_OFFSETS),
        end(8, COMMIT, 0, topic=CONSUMER_OFFSETS),
        end(9, COMMIT, 0, topic="unknown"),
    )
    assert answers == {7: [0, unknown], 8: [0], 9: [unknown]}
    assert groups.offset() == 6


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_offsets_of_a_transaction_that_is_not_verified_are_not_appended(
    groups: Groups, error: ErrorCode, expected: ErrorCode
) -> None:
    groups.fleet.coordinator.error = error
    assert await groups.commit(5) is expected
    partition = groups.fleet.nodes[1].partition(CONSUMER_OFFSETS)
    assert partition.log.state.assigned_offset == 0
    groups.fleet.coordinator.error = NONE
    assert await groups.commit(5) is NONE


async def test_offsets_whose_transaction_ends_while_it_is_verified_are_not_appended(groups: Groups) -> None:
    fleet = groups.fleet
    fleet.coordinator.is_silent = True
    clock = fleet.nodes[1].clock
    late = clock.spawn(groups.commit(5), name="commit")
    await until(lambda: bool(fleet.coordinator.unanswered), "the coordinator is asked")
    assert await mark(fleet, end(7, ABORT, topic=CONSUMER_OFFSETS)) == {7: [0]}
    fleet.coordinator.answer()
    assert await late is ErrorCode.INVALID_TXN_STATE
    assert fleet.nodes[1].partition(CONSUMER_OFFSETS).log.state.first_unstable_offset is None


async def test_the_batch_has_the_attributes_of_apache_kafkas(groups: Groups) -> None:
    """A follower of Apache Kafka, or its log tools, read it: a transactional batch of the producer, base sequence 0."""
    assert await groups.commit(5, epoch=4) is NONE
    log = groups.fleet.nodes[1].partition(CONSUMER_OFFSETS).log
    found = log.read(0, 1 << 20, 1, True)
    found = await found if asyncio.isfuture(found) else found
    data = b"".join(
        bytes(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else bytes(chunk.read())  # type: ignore[union-attr]
        for chunk in found.chunks
    )
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.attributes) == (7, 4, 0, 0x10)
