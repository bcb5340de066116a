"""Offsets that a producer commits as part of its transaction (KIP-98, KIP-447)."""

from __future__ import annotations

import asyncio

import pytest

from ottla_broker.groups.coordinator import CommittingMember
from ottla_broker.groups.decisions import LeavingMember
from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.internal_topics.topic_log import TransactionalProducer
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.batch import read_header
from ottla_broker.records.control_records import ControlType
from ottla_broker.records.ids import TopicPartition
from tests.broker.groups.surroundings import Broker, MemoryLog, in_virtual_time

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)
NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
PRODUCER = TransactionalProducer("tx", 7, 3)
NOBODY = CommittingMember()


async def commit(
    broker: Broker,
    offset: int,
    member: CommittingMember = NOBODY,
    producer: TransactionalProducer = PRODUCER,
    group_id: str = "g",
    partition: TopicPartition = ORDERS,
) -> ErrorCode:
    commits = {partition: CommittedOffset(offset, -1, "", broker.clock.now_ms())}
    answers = await broker.coordinator.commit_in_transaction(group_id, producer, member, commits)
    assert list(answers) == [partition]
    return answers[partition]


def mark(broker: Broker, kind: ControlType, producer_id: int = 7, epoch: int = 0) -> None:
    """The marker is appended, and committed at once."""
    offset = broker.log.append_marker(0, producer_id, kind)
    broker.coordinator.end_transaction(0, epoch, producer_id, offset, is_commit=kind is COMMIT)


def stored(broker: Broker, group_id: str = "g", *, require_stable: bool = True) -> dict[str, int | ErrorCode]:
    _, found = broker.coordinator.fetch(group_id, [ORDERS, BILLS], require_stable=require_stable)
    return {
        one.partition.topic: one.error or one.committed.offset  # type: ignore[union-attr]
        for one in found
        if one.error or one.committed is not None
    }


async def one_partition(clock: Clock, log: MemoryLog | None = None, epoch: int = 0) -> Broker:
    broker = Broker(clock, log, partitions=1, epoch=epoch, group__initial__rebalance__delay__ms=0)
    await broker.loaded()
    return broker


async def reloaded(broker: Broker) -> dict[str, int | ErrorCode]:
    """What the next coordinator knows of the group."""
    return stored(await one_partition(broker.clock, broker.log, 1))


@pytest.mark.parametrize(("kind", "expected"), [(COMMIT, {"orders": 9}), (ABORT, {"orders": 1})])
def test_offsets_take_effect_with_the_transaction(kind: ControlType, expected: dict[str, int]) -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        plain = {ORDERS: CommittedOffset(1, -1, "", 0)}
        assert await broker.coordinator.commit("g", "", None, -1, plain) == {ORDERS: NONE}
        assert await commit(broker, 9) is NONE
        assert stored(broker) == {"orders": UNSTABLE}
        assert stored(broker, require_stable=False) == {"orders": 1}
        assert await reloaded(broker) == {"orders": UNSTABLE}
        mark(broker, kind)
        assert stored(broker) == expected
        assert await reloaded(broker) == expected

    in_virtual_time(scenario)


def test_the_batch_is_one_of_the_producers_transaction() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        await commit(broker, 9)
        header = read_header(broker.log.batches[0][0])
        assert header.is_transactional and not header.is_control
        assert (header.producer_id, header.producer_epoch) == (7, 3)
        assert broker.log.verified == [(0, PRODUCER)]

    in_virtual_time(scenario)


def test_an_offset_that_was_committed_later_is_not_undone_by_the_transaction() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        await commit(broker, 9)
        await broker.coordinator.commit("g", "", None, -1, {ORDERS: CommittedOffset(5, -1, "", 0)})
        mark(broker, COMMIT)
        assert stored(broker) == {"orders": 5} == await reloaded(broker)

    in_virtual_time(scenario)


def test_a_marker_that_is_committed_before_the_commit_is_answered_settles_it() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        answer = clock.spawn(commit(broker, 9), name="commit")
        while not broker.log.batches:
            await clock.sleep(0.001)
        mark(broker, COMMIT)
        assert stored(broker) == {"orders": 9}
        assert await answer is NONE
        assert stored(broker) == {"orders": 9}

    in_virtual_time(scenario)


def test_a_marker_settles_nothing_of_the_next_transaction_of_its_producer() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        await commit(broker, 9)
        late = broker.log.append_marker(0, 7, COMMIT)
        await commit(broker, 4, partition=BILLS)
        broker.coordinator.end_transaction(0, 0, 7, late, is_commit=True)
        broker.coordinator.end_transaction(0, 0, 7, late, is_commit=True)  # sent again
        assert stored(broker) == {"orders": 9, "bills": UNSTABLE} == await reloaded(broker)
        mark(broker, ABORT)
        assert stored(broker) == {"orders": 9} == await reloaded(broker)

    in_virtual_time(scenario)


def test_an_append_that_is_not_confirmed_in_time_stays_part_of_the_transaction() -> None:
    """The log has it, so the next coordinator would count it too."""

    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        broker.log.late_error = ErrorCode.REQUEST_TIMED_OUT
        assert await commit(broker, 9) is ErrorCode.REQUEST_TIMED_OUT
        assert stored(broker) == {"orders": UNSTABLE}
        mark(broker, COMMIT)
        assert stored(broker) == {"orders": 9} == await reloaded(broker)

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("appended", "answered"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_a_refused_append_leaves_nothing_behind(appended: ErrorCode, answered: ErrorCode) -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        broker.log.error = appended
        assert await commit(broker, 9) is answered
        assert stored(broker) == {}

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("verified", "answered"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_transaction_that_is_not_verified_commits_nothing(verified: ErrorCode, answered: ErrorCode) -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        broker.log.verification_error = verified
        assert await commit(broker, 9) is answered
        assert broker.log.batches == {}

    in_virtual_time(scenario)


def test_only_a_member_of_the_generation_commits_when_it_names_itself() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        (member,) = await broker.stable_group("g", 1, group_instance_id="i")
        join = broker.join("g", group_instance_id="i")  # a new process of the static member
        newer = (await join).member_id
        assert await commit(broker, 1, CommittingMember(member, "i", 1)) is ErrorCode.FENCED_INSTANCE_ID
        assert await commit(broker, 1, CommittingMember("stranger", None, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(broker, 1, CommittingMember(newer, "j", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(broker, 1, CommittingMember(newer, "i", 0)) is ErrorCode.ILLEGAL_GENERATION
        assert await commit(broker, 1, CommittingMember("", None, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(broker, 1, CommittingMember(newer, "i", 1)) is NONE
        assert await commit(broker, 2, NOBODY) is NONE, "before version 3 a producer names no member"
        assert await commit(broker, 1, CommittingMember("m", None, 0), group_id="new") is ErrorCode.UNKNOWN_MEMBER_ID

    in_virtual_time(scenario)


def test_a_member_that_was_replaced_while_the_transaction_was_verified_is_fenced() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        (member,) = await broker.stable_group("g", 1)
        answer = clock.spawn(commit(broker, 1, CommittingMember(member, None, 1)), name="commit")
        while not broker.log.verified:
            await clock.sleep(0.001)
        await broker.coordinator.leave("g", [LeavingMember(member)])
        assert await answer is ErrorCode.UNKNOWN_MEMBER_ID

    in_virtual_time(scenario)


def test_members_commit_in_a_transaction_while_the_group_rebalances() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        (member,) = await broker.stable_group("g", 1)
        joining = broker.join("g")
        await clock.sleep(0.001)
        assert broker.coordinator.describe("g").state == "PreparingRebalance"
        assert await commit(broker, 1, CommittingMember(member, None, 1)) is NONE
        joining.cancel()

    in_virtual_time(scenario)


def test_a_broker_that_does_not_coordinate_the_group_says_so() -> None:
    async def scenario(clock: Clock) -> None:
        log = MemoryLog(clock)
        log.read_delay_s = 1.0
        broker = Broker(clock, log, partitions=1)
        assert await commit(broker, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await broker.loaded()
        assert await commit(broker, 1, group_id="") is ErrorCode.INVALID_GROUP_ID
        answer = clock.spawn(commit(broker, 1), name="commit")
        while not broker.log.verified:
            await clock.sleep(0.001)
        broker.coordinator.partitions.on_resignation(0, 1)  # while the transaction coordinator is asked
        assert await answer is ErrorCode.NOT_COORDINATOR
        assert await commit(broker, 1) is ErrorCode.NOT_COORDINATOR
        broker.coordinator.close()
        assert await commit(broker, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    in_virtual_time(scenario)


def test_metadata_that_is_too_large_keeps_only_its_own_partition_out() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        commits = {ORDERS: CommittedOffset(1, -1, "m" * 5_000, 0), BILLS: CommittedOffset(2, -1, "", 0)}
        answers = await broker.coordinator.commit_in_transaction("g", PRODUCER, NOBODY, commits)
        assert answers == {ORDERS: ErrorCode.OFFSET_METADATA_TOO_LARGE, BILLS: NONE}
        mark(broker, COMMIT)
        assert stored(broker) == {"bills": 2}

    in_virtual_time(scenario)


@pytest.mark.parametrize("removal", ["group", "offsets", "topic"])
def test_what_is_deleted_while_the_transaction_is_open_does_not_come_back_with_its_marker(removal: str) -> None:
    """In the log the tombstone stands behind the commit, and compaction keeps the tombstone alone."""

    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        await commit(broker, 9)
        if removal == "group":
            assert await broker.coordinator.delete("g") is NONE
        elif removal == "offsets":
            assert await broker.coordinator.delete_offsets("g", [ORDERS]) == (NONE, {ORDERS: NONE})
        else:
            broker.coordinator.on_partitions_deleted([ORDERS])
        assert await reloaded(broker) == {} == stored(broker)
        mark(broker, COMMIT)
        assert await reloaded(broker) == {} == stored(broker)

    in_virtual_time(scenario)


def test_a_group_with_an_open_transaction_does_not_expire() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        await commit(broker, 9)
        await clock.sleep(30 * 24 * 3600)
        await broker.coordinator.expire_offsets()
        assert stored(broker) == {"orders": UNSTABLE}
        mark(broker, COMMIT)
        assert stored(broker) == {"orders": 9}

    in_virtual_time(scenario)


def test_producers_and_groups_are_settled_each_by_itself() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        other = TransactionalProducer("other", 8, 0)
        await asyncio.gather(
            commit(broker, 1, group_id="a"),
            commit(broker, 2, group_id="b"),
            commit(broker, 3, producer=other, group_id="b", partition=BILLS),
        )
        mark(broker, COMMIT)
        assert stored(broker, "a") == {"orders": 1}
        assert stored(broker, "b") == {"orders": 2, "bills": UNSTABLE}
        mark(broker, ABORT, producer_id=8)
        assert stored(broker, "b") == {"orders": 2}

    in_virtual_time(scenario)


def test_a_marker_that_comes_while_the_partition_is_loading_settles_what_is_loaded() -> None:
    async def scenario(clock: Clock) -> None:
        broker = await one_partition(clock)
        await commit(broker, 9)
        log = broker.log
        log.read_delay_s = 1.0
        newer = Broker(clock, log, partitions=1, epoch=1)
        mark(newer, COMMIT, epoch=1)
        await newer.loaded()
        assert stored(newer) == {"orders": 9}

    in_virtual_time(scenario)
