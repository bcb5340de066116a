"""The group coordinator on an in-memory log, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ottla_broker.exposition import Exposition
from ottla_broker.groups import coordinator as coordinator_module
from ottla_broker.groups.decisions import LeavingMember
from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.groups.records import offset_record
from ottla_broker.internal_topics.owned_partitions import LOAD_RETRY_S
from ottla_broker.internal_topics.partitioning import NO_PARTITION, partition_for
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import build_batch, build_records
from tests.broker.groups.surroundings import Broker, MemoryLog, in_virtual_time

NONE = ErrorCode.NONE
ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 1)
SUBSCRIBED_TO_ORDERS = (("range", bytes.fromhex("0001000000010006") + b"orders" + bytes.fromhex("ffffffff")),)
DAY_S = 86_400.0


def offset(value: int, clock: Clock, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(value, -1, metadata, clock.now_ms())


def committed(broker: Broker, group_id: str) -> dict[TopicPartition, int]:
    error, found = broker.coordinator.fetch(group_id, None, require_stable=False)
    assert error is NONE
    return {each.partition: each.committed.offset for each in found if each.committed is not None}


def test_members_join_and_get_their_assignment_once_it_is_stored() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        members = await broker.stable_group("g", 3)
        assert all(broker.coordinator.heartbeat("g", member, None, 1) is NONE for member in members)
        description = broker.coordinator.describe("g")
        assert description.state == "Stable"
        assert description.snapshot is not None
        assert [member.member_id for member in description.snapshot.members] == members
        assert len(broker.log.batches[partition_for("g", 4)]) == 1

    in_virtual_time(scenario)


def test_all_members_of_a_large_group_are_answered_and_may_leave_together() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        members = await broker.stable_group("g", 300)
        assert len(set(members)) == 300
        assert {broker.coordinator.heartbeat("g", member, None, 1) for member in members} == {NONE}
        error, errors = await broker.coordinator.leave("g", [LeavingMember(member) for member in members])
        assert (error, errors) == (NONE, [NONE] * 300)
        assert broker.coordinator.describe("g").state == "Empty"

    in_virtual_time(scenario)


def test_the_members_of_a_large_group_that_do_not_come_back_are_removed_after_their_timeout() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        await broker.stable_group("g", 200)
        await clock.sleep(600)
        assert broker.coordinator.describe("g").state == "Dead"  # it is gone with its last member

    in_virtual_time(scenario)


def test_an_assignment_that_no_record_of_the_topic_may_hold_is_refused_before_it_is_made() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        broker.log.most = 1000
        join = await broker.join("g")
        answer = await broker.sync("g", join.member_id, join.generation_id, {join.member_id: b"x" * 1001})
        assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert broker.log.batches == {}

    in_virtual_time(scenario)


def test_a_commit_is_answered_only_when_the_log_has_it() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        broker.log.delay_s = 2.0
        commit = clock.spawn(broker.coordinator.commit("g", "", None, -1, {ORDERS: offset(7, clock)}), name="commit")
        await clock.sleep(1.0)
        assert not commit.done()
        assert committed(broker, "g") == {}
        _, (unstable,) = broker.coordinator.fetch("g", [ORDERS], require_stable=True)
        assert unstable.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await commit == {ORDERS: NONE}
        assert committed(broker, "g") == {ORDERS: 7}

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("append_error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_commit_that_cannot_be_stored_answers_as_kafka_does(append_error: ErrorCode, answer: ErrorCode) -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        broker.log.error = append_error
        assert await broker.coordinator.commit("g", "", None, -1, {ORDERS: offset(7, clock)}) == {ORDERS: answer}
        assert committed(broker, "g") == {}
        _, (fetched,) = broker.coordinator.fetch("g", [ORDERS], require_stable=True)
        assert fetched.error is NONE, "nothing is on its way any more"

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("append_error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_stored_answers_as_kafka_does(append_error: ErrorCode, answer: ErrorCode) -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        join = await broker.join("g")
        broker.log.error = append_error
        assert (await broker.sync("g", join.member_id, 1, {join.member_id: b"A"})).error is answer

    in_virtual_time(scenario)


def test_too_long_metadata_is_refused_and_the_rest_of_the_commit_is_stored() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        assert not broker.coordinator.is_metadata_too_large("x" * 4096)
        assert not broker.coordinator.is_metadata_too_large("ä" * 4096)
        assert broker.coordinator.is_metadata_too_large("😀" * 2049), "two UTF-16 units each"
        answers = await broker.coordinator.commit(
            "g", "", None, -1, {ORDERS: offset(1, clock, "x" * 4097), PAYMENTS: offset(2, clock, "note")}
        )
        assert answers == {ORDERS: ErrorCode.OFFSET_METADATA_TOO_LARGE, PAYMENTS: NONE}
        assert committed(broker, "g") == {PAYMENTS: 2}

    in_virtual_time(scenario)


def test_another_broker_goes_on_with_what_the_log_says() -> None:
    async def scenario(clock: Clock) -> None:
        first = Broker(clock)
        await first.loaded()
        leader, follower = await first.stable_group("g", 2, protocols=SUBSCRIBED_TO_ORDERS)
        await first.coordinator.commit("g", leader, None, 1, {ORDERS: offset(5, clock)})
        await first.coordinator.commit("g", leader, None, 1, {ORDERS: offset(6, clock), PAYMENTS: offset(1, clock)})
        await first.coordinator.commit("simple", "", None, -1, {ORDERS: offset(9, clock, "mark")})
        await first.coordinator.commit("deleted", "", None, -1, {ORDERS: offset(1, clock)})
        assert await first.coordinator.delete("deleted") is NONE
        before = first.coordinator.describe("g").snapshot
        assert before is not None

        second = Broker(clock, first.log, epoch=1)
        await second.loaded()
        after = second.coordinator.describe("g").snapshot
        assert after is not None
        # The record tells since when the group completed its rebalance, a moment before it was stable.
        assert replace(after, current_state_timestamp_ms=before.current_state_timestamp_ms) == before
        assert committed(second, "g") == {ORDERS: 6, PAYMENTS: 1}
        assert committed(second, "simple") == {ORDERS: 9}
        assert second.coordinator.describe("deleted").state == "Dead"
        assert second.coordinator.heartbeat("g", follower, None, 1) is NONE
        assert await second.coordinator.commit("g", leader, None, 1, {ORDERS: offset(8, clock)}) == {ORDERS: NONE}
        # The first one does not lead any more, and its appends are refused.
        assert await first.coordinator.commit("g", leader, None, 1, {ORDERS: offset(7, clock)}) == {
            ORDERS: ErrorCode.NOT_COORDINATOR
        }
        assert committed(second, "g") == {ORDERS: 8, PAYMENTS: 1}

    in_virtual_time(scenario)


def test_while_loading_each_request_hears_what_its_clients_understand() -> None:
    async def scenario(clock: Clock) -> None:
        log = MemoryLog(clock)
        log.read_delay_s = 10.0
        broker = Broker(clock, log)
        coordinator = broker.coordinator
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await broker.join("g")).error is loading
        assert (await broker.sync("g", "m", 1)).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert coordinator.heartbeat("g", "m", None, 1) is NONE
        assert await coordinator.leave("g", [LeavingMember("m")]) == (loading, [])
        assert await coordinator.commit("g", "", None, -1, {ORDERS: offset(1, clock)}) == {ORDERS: loading}
        assert coordinator.fetch("g", None, require_stable=False) == (loading, [])
        assert coordinator.describe("g").error is loading
        assert await coordinator.delete("g") is loading
        assert (await coordinator.delete_offsets("g", [ORDERS]))[0] is loading
        assert coordinator.list()[0] is loading
        await broker.loaded()
        assert (await broker.join("g")).error is NONE

    in_virtual_time(scenario)


def test_a_partition_that_cannot_be_read_is_tried_again_and_never_served_empty() -> None:
    async def scenario(clock: Clock) -> None:
        first = Broker(clock)
        await first.loaded()
        await first.coordinator.commit("g", "", None, -1, {ORDERS: offset(5, clock)})
        first.log.failing_reads = 7
        second = Broker(clock, first.log, epoch=1)
        await clock.sleep(LOAD_RETRY_S / 2)
        assert second.coordinator.fetch("g", None, require_stable=False)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await second.loaded()
        assert committed(second, "g") == {ORDERS: 5}

    in_virtual_time(scenario)


def test_resignation_answers_whoever_waits_and_an_older_one_is_ignored() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, epoch=5)
        await broker.loaded()
        waiting = broker.join("g")
        await clock.sleep(1.0)
        index = partition_for("g", 4)
        broker.coordinator.partitions.on_resignation(index, 4)
        await clock.sleep(0.1)
        assert not waiting.done()
        broker.coordinator.partitions.on_resignation(index, 6)
        assert (await waiting).error is ErrorCode.NOT_COORDINATOR
        assert (await broker.join("g")).error is ErrorCode.NOT_COORDINATOR
        broker.coordinator.partitions.on_election(index, 5)
        assert (await broker.join("g")).error is ErrorCode.NOT_COORDINATOR, "an old election is ignored"
        broker.elect(index, 7)
        await broker.loaded()
        assert (await broker.join("g")).error is NONE

    in_virtual_time(scenario)


def test_resignation_while_loading_leaves_nothing_behind() -> None:
    async def scenario(clock: Clock) -> None:
        log = MemoryLog(clock)
        log.read_delay_s = 1.0
        broker = Broker(clock, log, partitions=1)
        await clock.sleep(0.5)
        broker.coordinator.partitions.on_resignation(0, 1)
        await clock.sleep(5.0)
        assert broker.coordinator.list()[0] is NONE and not [*broker.coordinator.list()[1]]
        assert (await broker.join("g")).error is ErrorCode.NOT_COORDINATOR

    in_virtual_time(scenario)


@pytest.mark.parametrize("is_stopped_before", [False, True])
def test_a_topic_that_was_deleted_and_made_again_is_led_from_its_first_epoch_on(is_stopped_before: bool) -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, epoch=5)
        await broker.loaded()
        index = partition_for("g", 4)
        if is_stopped_before:
            broker.coordinator.partitions.on_resignation(index, 5)
        broker.coordinator.partitions.on_resignation(index, None)
        broker.elect(index, 0)
        await broker.loaded()
        assert await broker.coordinator.commit("g", "", None, -1, {ORDERS: offset(1, clock)}) == {ORDERS: NONE}

    in_virtual_time(scenario)


def test_no_group_is_looked_for_before_it_is_known_how_many_partitions_there_are() -> None:
    async def scenario(clock: Clock) -> None:
        log = MemoryLog(clock)
        broker = Broker(clock, log)
        await broker.loaded()
        commits = {ORDERS: offset(5, clock)}
        assert await broker.coordinator.commit("g", "", None, -1, commits) == {ORDERS: NONE}
        again = Broker(clock, log, partitions=0)
        assert again.coordinator.partitions.index_of("g") == partition_for("g", 50), "of a topic that is to be created"
        for count in (0, None):  # what is read of the topic may be older than the election, or nothing
            again.partitions = count
            again.elect(partition_for("g", 4), 1)
            await again.loaded()
            assert again.coordinator.partitions.index_of("g") == NO_PARTITION
            refused = await again.coordinator.commit("g", "", None, -1, commits)
            assert refused == {ORDERS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
            assert again.coordinator.fetch("g", [ORDERS], require_stable=False)[0] is refused[ORDERS]
        again.partitions = 4
        _, (fetched,) = again.coordinator.fetch("g", [ORDERS], require_stable=False)
        assert fetched.committed is not None and fetched.committed.offset == 5
        assert len(log.batches[partition_for("g", 4)]) == 1

    in_virtual_time(scenario)


def test_a_leader_that_is_elected_again_keeps_its_groups() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        (member,) = await broker.stable_group("g", 1)
        broker.elect(partition_for("g", 4), 1)
        assert broker.coordinator.heartbeat("g", member, None, 1) is NONE
        answers = await broker.coordinator.commit("g", member, None, 1, {ORDERS: offset(3, clock)})
        assert answers == {ORDERS: NONE}

    in_virtual_time(scenario)


def with_open_transaction(clock: Clock, producer_id: int, group_id: str = "g") -> MemoryLog:
    """A log in which a leader before us took an offset, and another within a transaction."""
    log = MemoryLog(clock)
    for at, attributes in enumerate(({}, {"producer_id": producer_id, "attributes": 0x10})):
        records = build_records([offset_record(group_id, ORDERS, offset(1 + 8 * at, clock))], clock.now_ms(), at)
        log.batches.setdefault(0, []).append(bytes(build_batch(records, **attributes)))
    return log


def stable(broker: Broker, group_id: str = "g") -> int | ErrorCode:
    """The committed offset, or that it is not settled yet."""
    _, (found,) = broker.coordinator.fetch(group_id, [ORDERS], require_stable=True)
    if found.error is not NONE:
        return found.error
    assert found.committed is not None
    return found.committed.offset


@pytest.mark.parametrize(("is_commit", "expected"), [(True, 9), (False, 1)])
@pytest.mark.parametrize("is_loading", [False, True])
def test_a_marker_settles_what_was_loaded_of_its_transaction(is_loading: bool, is_commit: bool, expected: int) -> None:
    async def scenario(clock: Clock) -> None:
        log = with_open_transaction(clock, 7)
        log.read_delay_s = 1.0
        broker = Broker(clock, log, partitions=1, epoch=5)
        if not is_loading:
            await broker.loaded()
            assert stable(broker) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        broker.coordinator.end_transaction(0, 5, 8, 100, is_commit=not is_commit)  # somebody else's
        broker.coordinator.end_transaction(0, 5, 7, 100, is_commit=is_commit)
        broker.coordinator.end_transaction(0, 5, 7, 100, is_commit=not is_commit)  # of the next transaction
        await broker.loaded()
        assert stable(broker) == expected

    in_virtual_time(scenario)


def test_a_marker_of_an_earlier_leadership_settles_nothing_that_came_later() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, with_open_transaction(clock, 7), partitions=1, epoch=5)
        await broker.loaded()
        broker.coordinator.end_transaction(0, 3, 7, 100, is_commit=True)
        assert stable(broker) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        broker.elect(0, 6)  # again, without having followed
        broker.coordinator.end_transaction(0, 5, 7, 100, is_commit=True)
        assert stable(broker) == 9
        broker.coordinator.partitions.on_resignation(0, 7)
        broker.coordinator.end_transaction(0, 6, 7, 100, is_commit=True)

    in_virtual_time(scenario)


def test_a_marker_leaves_a_group_alone_that_was_made_again() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, with_open_transaction(clock, 7), partitions=1)
        await broker.loaded()
        assert await broker.coordinator.delete("g") is NONE
        broker.coordinator.end_transaction(0, 0, 7, 100, is_commit=True)
        assert committed(broker, "g") == {}

    in_virtual_time(scenario)


def test_session_timeouts_run_on_the_clock_and_heartbeats_move_them() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        leader, follower = await broker.stable_group("g", 2, session_timeout_ms=6_000)
        for _ in range(20):
            await clock.sleep(2.0)
            assert broker.coordinator.heartbeat("g", leader, None, 1) is NONE
            assert broker.coordinator.heartbeat("g", follower, None, 1) is NONE
        await clock.sleep(5.9)
        assert broker.coordinator.heartbeat("g", leader, None, 1) is NONE
        await clock.sleep(0.2)
        assert broker.coordinator.heartbeat("g", leader, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        assert broker.coordinator.heartbeat("g", follower, None, 1) is ErrorCode.UNKNOWN_MEMBER_ID

    in_virtual_time(scenario)


def test_a_session_timeout_that_was_made_shorter_counts_at_once() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        (member,) = await broker.stable_group("g", 1, session_timeout_ms=60_000)
        again = await broker.join("g", member, session_timeout_ms=6_000)
        await broker.sync("g", member, again.generation_id, {member: b"A"})
        await clock.sleep(6.1)
        assert broker.coordinator.heartbeat("g", member, None, 2) is ErrorCode.UNKNOWN_MEMBER_ID

    in_virtual_time(scenario)


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_session_timeouts_have_bounds(timeout_ms: int) -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        assert (await broker.join("g", session_timeout_ms=timeout_ms)).error is ErrorCode.INVALID_SESSION_TIMEOUT

    in_virtual_time(scenario)


def test_unknown_groups_and_ids_hear_kafkas_errors() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        coordinator = broker.coordinator
        invalid, unknown = ErrorCode.INVALID_GROUP_ID, ErrorCode.UNKNOWN_MEMBER_ID
        assert (await broker.join("")).error is invalid
        assert (await broker.sync("", "m", 1)).error is invalid
        assert coordinator.heartbeat("", "m", None, 1) is invalid
        assert (await coordinator.leave("", [LeavingMember("m")]))[0] is invalid
        assert (await coordinator.delete_offsets("", [ORDERS]))[0] is invalid
        assert (await broker.join("g", "m")).error is unknown
        assert (await broker.sync("g", "m", 1)).error is unknown
        assert coordinator.heartbeat("g", "m", None, 1) is unknown
        assert await coordinator.leave("g", [LeavingMember("m")]) == (NONE, [unknown])
        commit = {ORDERS: offset(1, clock)}
        assert await coordinator.commit("g", "m", None, 3, commit) == {ORDERS: ErrorCode.ILLEGAL_GENERATION}
        assert coordinator.describe("g").state == "Dead"
        assert await coordinator.delete("g") is ErrorCode.GROUP_ID_NOT_FOUND
        assert (await coordinator.delete_offsets("g", [ORDERS]))[0] is ErrorCode.GROUP_ID_NOT_FOUND
        assert coordinator.list()[0] is NONE and not [*coordinator.list()[1]]
        # The empty id is a group of the time before groups were managed.
        assert await coordinator.commit("", "", None, -1, commit) == {ORDERS: NONE}
        assert committed(broker, "") == {ORDERS: 1}
        assert await coordinator.delete("") is NONE

    in_virtual_time(scenario)


def test_groups_with_members_are_not_deleted() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        (member,) = await broker.stable_group("g", 1)
        await broker.coordinator.commit("g", member, None, 1, {ORDERS: offset(1, clock)})
        assert await broker.coordinator.delete("g") is ErrorCode.NON_EMPTY_GROUP
        await broker.coordinator.leave("g", [LeavingMember(member)])
        assert broker.coordinator.describe("g").state == "Empty"
        assert await broker.coordinator.delete("g") is NONE
        assert await broker.coordinator.delete("g") is ErrorCode.GROUP_ID_NOT_FOUND
        second = Broker(clock, broker.log, epoch=1)
        await second.loaded()
        assert second.coordinator.list()[0] is NONE and not [*second.coordinator.list()[1]]

    in_virtual_time(scenario)


def test_a_commit_on_its_way_does_not_bring_a_deleted_group_back() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        commit = clock.spawn(broker.coordinator.commit("g", "", None, -1, {ORDERS: offset(1, clock)}), name="commit")
        await clock.sleep(0.001)
        assert await broker.coordinator.delete("g") is NONE
        await commit
        assert broker.coordinator.list()[0] is NONE and not [*broker.coordinator.list()[1]]
        second = Broker(clock, broker.log, epoch=1)
        await second.loaded()
        assert second.coordinator.list()[0] is NONE and not [*second.coordinator.list()[1]]

    in_virtual_time(scenario)


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        (member,) = await broker.stable_group("g", 1, protocols=SUBSCRIBED_TO_ORDERS)
        await broker.coordinator.commit("g", member, None, 1, {ORDERS: offset(1, clock), PAYMENTS: offset(2, clock)})
        assert await broker.coordinator.delete_offsets("g", [ORDERS, PAYMENTS]) == (
            NONE,
            {ORDERS: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, PAYMENTS: NONE},
        )
        assert committed(broker, "g") == {ORDERS: 1}
        await broker.stable_group("connect", 1, protocol_type="connect")
        assert (await broker.coordinator.delete_offsets("connect", [ORDERS]))[0] is ErrorCode.NON_EMPTY_GROUP

    in_virtual_time(scenario)


def test_offsets_of_deleted_topics_go_and_stay_gone() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        await broker.coordinator.commit("g", "", None, -1, {ORDERS: offset(1, clock), PAYMENTS: offset(2, clock)})
        broker.coordinator.on_partitions_deleted([ORDERS])
        assert committed(broker, "g") == {PAYMENTS: 2}
        second = Broker(clock, broker.log, epoch=1)
        await second.loaded()
        assert committed(second, "g") == {PAYMENTS: 2}

    in_virtual_time(scenario)


def test_an_empty_groups_offsets_expire_together_when_it_has_been_empty_long_enough() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        (member,) = await broker.stable_group("g", 1, session_timeout_ms=1_800_000)
        await broker.coordinator.commit("g", member, None, 1, {ORDERS: offset(1, clock)})
        for _ in range(8 * 96):
            await clock.sleep(900.0)
            broker.coordinator.heartbeat("g", member, None, 1)
        assert committed(broker, "g") == {ORDERS: 1}, "a group with members keeps its offsets"
        await broker.coordinator.leave("g", [LeavingMember(member)])
        await clock.sleep(6.9 * DAY_S)
        assert committed(broker, "g") == {ORDERS: 1}
        await clock.sleep(0.2 * DAY_S)
        assert broker.coordinator.list()[0] is NONE and not [*broker.coordinator.list()[1]]
        second = Broker(clock, broker.log, epoch=1)
        await second.loaded()
        assert second.coordinator.list()[0] is NONE and not [*second.coordinator.list()[1]]

    in_virtual_time(scenario)


def test_offsets_of_topics_that_nobody_subscribes_to_expire() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, offsets__retention__minutes=60, offsets__retention__check__interval__ms=60_000)
        await broker.loaded()
        (member,) = await broker.stable_group("g", 1, protocols=SUBSCRIBED_TO_ORDERS, session_timeout_ms=1_800_000)
        await broker.coordinator.commit("g", member, None, 1, {ORDERS: offset(1, clock), PAYMENTS: offset(2, clock)})
        for _ in range(5):
            await clock.sleep(900.0)
            broker.coordinator.heartbeat("g", member, None, 1)
        assert committed(broker, "g") == {ORDERS: 1}

    in_virtual_time(scenario)


def test_offsets_of_a_group_without_members_expire_by_their_last_commit_or_their_own_time() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, offsets__retention__minutes=60, offsets__retention__check__interval__ms=60_000)
        await broker.loaded()
        own_time = CommittedOffset(3, -1, "", clock.now_ms(), clock.now_ms() + 7_200_000)
        await broker.coordinator.commit("g", "", None, -1, {ORDERS: offset(1, clock), PAYMENTS: own_time})
        await clock.sleep(3_590.0)
        assert committed(broker, "g") == {ORDERS: 1, PAYMENTS: 3}
        await clock.sleep(120.0)
        assert committed(broker, "g") == {PAYMENTS: 3}
        await clock.sleep(3_600.0)
        assert broker.coordinator.list()[0] is NONE and not [*broker.coordinator.list()[1]]

    in_virtual_time(scenario)


def test_the_search_for_expired_offsets_leaves_a_group_alone_that_was_made_again_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_module, "OFFSETS_PER_TURN", 1)

    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, partitions=1)
        await broker.loaded()
        for group_id in ("f", "g"):
            await broker.coordinator.commit(group_id, "", None, -1, {ORDERS: offset(1, clock)})
        pause = clock.sleep
        has_paused = False

        async def sleep(seconds: float) -> None:
            nonlocal has_paused
            if seconds == 0 and not has_paused:
                has_paused = True  # it has looked at "f"; requests have their turn
                assert await broker.coordinator.delete("g") is NONE
                assert await broker.coordinator.commit("g", "", None, -1, {ORDERS: offset(7, clock)}) == {ORDERS: NONE}
            await pause(seconds)

        monkeypatch.setattr(clock, "sleep", sleep)
        await broker.coordinator.expire_offsets()
        assert has_paused
        assert committed(broker, "g") == {ORDERS: 7}

    in_virtual_time(scenario)


def test_closing_answers_whoever_waits_and_refuses_the_rest() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        waiting = broker.join("g")
        await clock.sleep(0.1)
        broker.coordinator.close()
        assert (await waiting).error is ErrorCode.NOT_COORDINATOR
        assert (await broker.join("g")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert broker.coordinator.list()[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE

    in_virtual_time(scenario)


def test_metrics_follow_the_groups() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        (member,) = await broker.stable_group("g", 1)
        await broker.coordinator.commit("g", member, None, 1, {ORDERS: offset(1, clock)})
        await broker.coordinator.commit("simple", "", None, -1, {ORDERS: offset(1, clock)})
        text = Exposition(broker.metrics).text().decode()
        lines = [
            "kafka_coordinator_group_groupmetadatamanager_numgroups 2.0",
            "kafka_coordinator_group_groupmetadatamanager_numoffsets 2.0",
            "kafka_coordinator_group_groupmetadatamanager_numgroupsstable 1.0",
            "kafka_coordinator_group_groupmetadatamanager_numgroupsempty 1.0",
            "kafka_server_group_coordinator_metrics_offset_commit_total 2.0",
            "kafka_server_group_coordinator_metrics_group_completed_rebalance_total 1.0",
        ]
        assert [line for line in lines if line not in text.splitlines()] == []

    in_virtual_time(scenario)


def test_a_thousand_members_rebalance_together() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        members = await broker.stable_group("g", 1_000)
        rejoins = [broker.join("g", member) for member in members]
        answers = await asyncio.gather(*rejoins)
        assert {answer.generation_id for answer in answers} == {2}
        assert sum(bool(answer.members) for answer in answers) == 1

    in_virtual_time(scenario)


def test_a_group_that_does_not_fit_a_record_is_told_so_and_goes_on() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        join = await broker.join("g", client_id="x" * 40_000)
        sync = await broker.sync("g", join.member_id, 1, {join.member_id: b"A"})
        assert sync.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert broker.coordinator.heartbeat("g", join.member_id, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    in_virtual_time(scenario)


def test_the_log_tells_in_one_line_of_many_partitions_that_come_or_go(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, partitions=50)
        await broker.loaded()
        await broker.stable_group("g")
        for partition in range(49):
            broker.coordinator.partitions.on_resignation(partition, 1)
        await clock.sleep(0.001)
        broker.coordinator.close()

    with caplog.at_level("INFO", "ottla.groups"):
        in_virtual_time(scenario)
    told = [record.getMessage() for record in caplog.records if "loaded" in record.getMessage()]
    assert [words.split(" in ")[0] for words in told] == [
        "loaded 0 groups of 50 partitions of __consumer_offsets",
        "unloaded 1 group of 49 partitions of __consumer_offsets",
        "unloaded 0 groups of __consumer_offsets-49",
    ]
