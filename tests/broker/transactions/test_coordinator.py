"""The transaction coordinator in virtual time: what producers hear, what the log gets, where markers go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.transactions.coordinator import END_WAIT_S
from ottla_broker.transactions.decisions import LAST_GIVEN_EPOCH, ProducerIdAndEpoch, TransactionMetadata
from ottla_broker.transactions.records import transaction_record
from ottla_broker.transactions.states import TransactionState
from tests.broker.groups.surroundings import in_virtual_time
from tests.broker.transactions.surroundings import T0, T1, T2, Broker, Here, MemoryLog, started

NONE = ErrorCode.NONE
S = TransactionState


def virtual(scenario: Callable[[Clock], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(scenario)
    def test() -> None:
        in_virtual_time(scenario)

    del test.__wrapped__  # type: ignore[attr-defined]
    return test


@virtual
async def test_a_transaction_commits(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0, T1)
    assert producer == (1000, 0)
    assert await broker.end("id", producer, is_commit=True) is NONE
    assert await broker.coordinator.add_partitions("id", *producer, [T2]) is ErrorCode.CONCURRENT_TRANSACTIONS
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert broker.leaders.written == {T0: [(1000, 0, True)], T1: [(1000, 0, True)]}
    assert broker.log.history("id") == [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT]
    assert await broker.end("id", producer, is_commit=True) is NONE
    assert await broker.end("id", producer, is_commit=False) is ErrorCode.INVALID_TXN_STATE


@virtual
async def test_the_next_transaction_begins_when_the_last_one_has_its_markers(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    assert await broker.end("id", producer, is_commit=True) is NONE
    assert broker.state("id") is S.PREPARE_COMMIT
    assert await broker.coordinator.add_partitions("id", *producer, [T1], waits_for_end=True) is NONE
    assert broker.leaders.written == {T0: [(1000, 0, True)]}
    assert broker.log.history("id") == [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT, S.ONGOING]


@virtual
async def test_a_producer_tries_again_when_the_last_transaction_does_not_end(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    broker.leaders.dead = {1}
    assert await broker.end("id", producer, is_commit=True) is NONE
    asked = clock.monotonic()
    waiting = [broker.coordinator.add_partitions("id", *producer, [T1], waits_for_end=True) for _ in range(2)]
    assert await asyncio.gather(*waiting) == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    assert clock.monotonic() - asked == pytest.approx(END_WAIT_S)
    broker.leaders.dead = set()
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert await broker.coordinator.add_partitions("id", *producer, [T1], waits_for_end=True) is NONE


@virtual
async def test_a_producer_that_waits_hears_that_its_coordinator_has_moved(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    broker.leaders.dead = {1}
    assert await broker.end("id", producer, is_commit=True) is NONE
    waiting = clock.spawn(
        broker.coordinator.add_partitions("id", *producer, [T1], waits_for_end=True), name="the next transaction"
    )
    await clock.sleep(0.01)
    broker.coordinator.partitions.on_resignation(broker.index("id"), 1)
    assert await waiting is ErrorCode.NOT_COORDINATOR


@virtual
async def test_a_fenced_producer_does_not_wait(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    broker.leaders.dead = {1}
    await broker.coordinator.initialize("id", 60_000, None)
    asked = clock.monotonic()
    answer = await broker.coordinator.add_partitions("id", *producer, [T1], waits_for_end=True)
    assert (answer, clock.monotonic()) == (ErrorCode.PRODUCER_FENCED, asked)


@virtual
async def test_partitions_of_the_coordinators_broker_get_their_markers_without_a_request(clock: Clock) -> None:
    here = Here(clock, answers=[ErrorCode.NOT_LEADER_OR_FOLLOWER])
    broker = Broker(clock, here=here)
    await broker.loaded()
    broker.leaders.leaders[T1] = 2
    producer = await broker.begin("id", T0, T1)
    assert await broker.end("id", producer, is_commit=True) is NONE
    await broker.reaches("id", S.COMPLETE_COMMIT)
    # T0 twice: the first one was refused.
    assert [marker.partitions for marker in here.written] == [(T0,), (T0,)]
    assert [(to, [one.partitions for one in markers]) for to, markers in broker.leaders.requests] == [(2, [(T1,)])]


@virtual
async def test_a_marker_that_is_committed_after_the_coordinator_has_moved_ends_nothing(clock: Clock) -> None:
    here = Here(clock, delay_s=1.0)
    broker = Broker(clock, here=here)
    await broker.loaded()
    producer = await broker.begin("id", T0)
    assert await broker.end("id", producer, is_commit=True) is NONE
    assert here.written == [], "the producer hears of the outcome first"
    await clock.sleep(0)
    assert [marker.partitions for marker in here.written] == [(T0,)]
    broker.coordinator.partitions.on_resignation(broker.index("id"), 1)
    await clock.sleep(2.0)
    assert broker.log.history("id") == [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT]


@virtual
async def test_a_coordinator_that_moves_before_the_markers_leaves_them_to_the_next_one(clock: Clock) -> None:
    here = Here(clock)
    broker = Broker(clock, here=here)
    await broker.loaded()
    producer = await broker.begin("id", T0)
    assert await broker.end("id", producer, is_commit=True) is NONE
    broker.coordinator.partitions.on_resignation(broker.index("id"), 1)
    await clock.sleep(1.0)
    assert here.written == []
    broker.log.lead(broker.index("id"), 2)
    broker.coordinator.partitions.on_election(broker.index("id"), 2)
    await broker.loaded()
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert [(marker.partitions, marker.coordinator_epoch) for marker in here.written] == [((T0,), 2)]


@virtual
async def test_a_transaction_aborts_and_the_next_one_begins(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    assert await broker.end("id", producer, is_commit=False) is NONE
    await broker.reaches("id", S.COMPLETE_ABORT)
    assert await broker.coordinator.add_partitions("id", *producer, [T1]) is NONE
    assert await broker.end("id", producer, is_commit=True) is NONE
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert broker.leaders.written == {T0: [(1000, 0, False)], T1: [(1000, 0, True)]}


@virtual
async def test_a_transaction_without_partitions_needs_no_marker(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id")
    assert await broker.end("id", producer, is_commit=True) is NONE
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert broker.leaders.requests == []


@virtual
async def test_a_second_producer_fences_the_first(clock: Clock) -> None:
    broker = await started(clock)
    first = await broker.begin("id", T0)
    answer = await broker.coordinator.initialize("id", 60_000, None)
    assert answer[:3] == (ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)
    assert await broker.end("id", first, is_commit=True) is ErrorCode.PRODUCER_FENCED
    assert await broker.initialize("id") == (NONE, 1000, 2)
    assert broker.leaders.written == {T0: [(1000, 1, False)]}
    assert await broker.coordinator.add_partitions("id", *first, [T1]) is ErrorCode.PRODUCER_FENCED


@virtual
async def test_two_producers_that_start_at_once_get_different_epochs(clock: Clock) -> None:
    broker = await started(clock)
    answers = await asyncio.gather(broker.initialize("id"), broker.initialize("id"))
    assert {answer.error for answer in answers} == {NONE}
    assert len({(answer.producer_id, answer.producer_epoch) for answer in answers}) == 2
    assert len({answer.producer_id for answer in answers}) == 1


@virtual
async def test_an_open_transaction_is_aborted_after_its_timeout(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    await clock.sleep(59)
    assert broker.state("id") is S.ONGOING
    await clock.sleep(12)
    assert broker.state("id") is S.COMPLETE_ABORT
    assert broker.leaders.written == {T0: [(1000, 1, False)]}
    assert await broker.end("id", producer, is_commit=True) is ErrorCode.PRODUCER_FENCED


@virtual
async def test_an_idle_transactional_id_expires(clock: Clock) -> None:
    broker = await started(clock, transactional__id__expiration__ms=3_600_000)
    for number in range(3):
        await broker.initialize(f"idle-{number}")
    open_one = await broker.begin("open", T0)
    del open_one
    await clock.sleep(2 * 3_600)
    for number in range(3):
        assert broker.coordinator.describe(f"idle-{number}")[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert broker.log.history(f"idle-{number}") == [S.EMPTY, None]
    assert await broker.end("idle-0", ProducerIdAndEpoch(1000, 0), is_commit=True) is (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    assert (await broker.initialize("idle-0")).producer_epoch == 0


@virtual
async def test_an_id_whose_tombstone_is_not_stored_stays(clock: Clock) -> None:
    broker = await started(clock, transactional__id__expiration__ms=1_000)
    producer = await broker.initialize("id")
    await clock.sleep(2)
    broker.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    await broker.coordinator.remove_expired()
    await clock.sleep(1)
    assert await broker.coordinator.add_partitions("id", *producer[1:], [T0]) is NONE


@virtual
async def test_what_is_refused_before_any_state_is_looked_at(clock: Clock) -> None:
    broker = await started(clock, partitions=1)
    for timeout_ms in (0, -1, 900_001):
        answer = await broker.coordinator.initialize("id", timeout_ms, None)
        assert answer.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await broker.coordinator.initialize("", 1, None)).error is ErrorCode.INVALID_REQUEST
    assert (await broker.coordinator.initialize("x" * 40_000, 1, None)).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await broker.coordinator.add_partitions("", 1, 0, [T0]) is ErrorCode.INVALID_REQUEST
    assert await broker.coordinator.end("", 1, 0, is_commit=True) is ErrorCode.INVALID_REQUEST
    assert broker.coordinator.verify_partitions("", 1, 0, [T0]) == {T0: ErrorCode.INVALID_REQUEST}
    assert broker.coordinator.describe("")[0] is ErrorCode.INVALID_REQUEST
    assert await broker.coordinator.add_partitions("new", 1, 0, [T0]) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    broker.coordinator.partitions.on_resignation(0, 1)
    assert (await broker.coordinator.initialize("id", 1, None)).error is ErrorCode.NOT_COORDINATOR
    assert await broker.coordinator.end("id", 1, 0, is_commit=True) is ErrorCode.NOT_COORDINATOR
    broker.log.read_delay_s = 1.0
    broker.elect(0, 2)
    assert (await broker.coordinator.initialize("id", 1, None)).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.coordinator.list((), None, -1) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    await broker.loaded()


@virtual
async def test_a_partition_is_verified_while_it_is_in_the_transaction(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    verify = broker.coordinator.verify_partitions
    assert verify("id", *producer, [T0, T1]) == {T0: NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}
    await broker.end("id", producer, is_commit=True)
    assert verify("id", *producer, [T0]) == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert verify("id", *producer, [T0]) == {T0: ErrorCode.TRANSACTION_ABORTABLE}


@virtual
async def test_a_record_that_is_not_committed_is_answered_as_apache_kafka_does(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    for append_error, answer in (
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        broker.log.errors = [append_error]
        assert await broker.end("id", producer, is_commit=True) is answer
        assert broker.leaders.requests == []
        assert broker.state("id") is S.ONGOING
    assert await broker.end("id", producer, is_commit=True) is NONE
    await broker.reaches("id", S.COMPLETE_COMMIT)


@virtual
async def test_a_fence_that_is_not_committed_is_repeated_with_the_same_epoch(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    broker.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert (await broker.coordinator.initialize("id", 60_000, None)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await broker.end("id", producer, is_commit=True) is ErrorCode.PRODUCER_FENCED
    assert await broker.initialize("id") == (NONE, 1000, 2)
    assert broker.leaders.written == {T0: [(1000, 1, False)]}


@virtual
async def test_a_completion_that_cannot_be_stored_is_appended_again(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    assert await broker.end("id", producer, is_commit=True) is NONE
    broker.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 20
    await clock.sleep(0.05)
    assert "logappendretryqueuesize 1.0" in broker.exposed()
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert "logappendretryqueuesize 0.0" in broker.exposed()
    assert broker.leaders.written == {T0: [(1000, 0, True)]}


@virtual
async def test_a_producer_id_whose_epochs_are_used_up_is_replaced(clock: Clock) -> None:
    log = MemoryLog(clock)
    log.lead(0, 0)
    last = TransactionMetadata(7, LAST_GIVEN_EPOCH, 60_000, S.EMPTY, clock.now_ms())
    await log.append(0, 0, [transaction_record("id", last)], required_acks=-1, timeout_ms=1)
    broker = await started(clock, log, partitions=1)
    await broker.loaded()
    answers = await asyncio.gather(
        broker.initialize("id", expected=ProducerIdAndEpoch(7, LAST_GIVEN_EPOCH)), broker.initialize("id")
    )
    assert {answer.error for answer in answers} == {NONE}
    assert len({answer[1:] for answer in answers}) == 2
    assert all(answer.producer_id >= 1000 for answer in answers)


@virtual
async def test_a_producer_hears_why_there_is_no_producer_id(clock: Clock) -> None:
    broker = await started(clock)

    async def refuse() -> int:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    broker.coordinator._next_producer_id = refuse
    answer = await broker.coordinator.initialize("id", 1_000, None)
    assert answer[:3] == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert broker.coordinator.describe("id")[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


# Loading


@virtual
async def test_another_broker_takes_over_with_what_the_log_has(clock: Clock) -> None:
    first = await started(clock)
    producer = await first.begin("id", T0)
    second = Broker(clock, first.log, first.leaders, epoch=1)
    assert await first.end("id", producer, is_commit=True) is ErrorCode.NOT_COORDINATOR
    await second.loaded()
    assert second.coordinator.verify_partitions("id", *producer, [T0]) == {T0: NONE}
    assert await second.end("id", producer, is_commit=True) is NONE
    await second.reaches("id", S.COMPLETE_COMMIT)
    marker = first.leaders.requests[-1][1][0]
    assert (marker.coordinator_epoch, marker.producer_epoch) == (1, 0)


@virtual
async def test_the_next_coordinator_writes_the_markers_that_are_missing(clock: Clock) -> None:
    for is_commit in (True, False):
        first = await started(clock)
        first.leaders.dead = {1}
        producer = await first.begin("id", T0, T1)
        assert await first.end("id", producer, is_commit=is_commit) is NONE
        await clock.sleep(1)
        assert first.leaders.written == {}
        for index in range(4):
            first.coordinator.partitions.on_resignation(index, 1)
        first.leaders.dead = set()
        second = Broker(clock, first.log, first.leaders, epoch=1)
        await second.loaded()
        await second.reaches("id", S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT)
        assert first.leaders.written == {T0: [(1000, 0, is_commit)], T1: [(1000, 0, is_commit)]}


@virtual
async def test_nothing_is_served_before_what_was_loaded_is_committed(clock: Clock) -> None:
    """The record may be on the new coordinator alone: `Leaders` refuses a marker whose outcome is not committed."""
    first = await started(clock)
    producer = await first.begin("id", T0)
    first.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert await first.end("id", producer, is_commit=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    for index in range(4):
        first.coordinator.partitions.on_resignation(index, 1)
    first.log.is_replicating = False
    second = Broker(clock, first.log, first.leaders, epoch=1)
    await clock.sleep(60)
    assert await second.end("id", producer, is_commit=True) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert first.leaders.requests == []
    first.log.is_replicating = True
    await second.loaded()
    await second.reaches("id", S.COMPLETE_COMMIT)
    assert first.leaders.written == {T0: [(1000, 0, True)]}


def test_a_broker_that_is_elected_again_while_it_loads_loads_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(clock: Clock) -> None:
        first = await started(clock)
        producer = await first.begin("id", T0)
        first.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
        assert await first.end("id", producer, is_commit=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        first.log.is_replicating = False
        second = Broker(clock, first.log, first.leaders, epoch=1)
        await clock.sleep(10)
        second.elect(second.index("id"), 2)
        first.log.is_replicating = True
        await second.loaded()
        await second.reaches("id", S.COMPLETE_COMMIT)
        assert second.leaders.requests[-1][1][0].coordinator_epoch == 2

    with caplog.at_level(logging.ERROR, "ottla.transactions"):
        in_virtual_time(scenario)
    assert caplog.records == []


@virtual
async def test_no_transactional_id_is_looked_for_before_it_is_known_how_many_partitions_there_are(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    for count in (0, None):  # what is read of the topic may be older than the election, or nothing
        broker.partition_count = count
        assert (await broker.initialize("id")).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await broker.end("id", producer, is_commit=True) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert not broker.coordinator.partitions.owns(broker.index("id"))
    broker.partition_count = 4
    assert await broker.end("id", producer, is_commit=True) is NONE


@virtual
async def test_a_log_that_cannot_be_read_is_read_again(clock: Clock) -> None:
    first = await started(clock)
    await first.initialize("id")
    first.log.failing_reads = 6
    second = Broker(clock, first.log, first.leaders, epoch=1)
    await second.loaded()
    assert await second.initialize("id") == (NONE, 1000, 1)


@virtual
async def test_a_request_that_waits_for_its_record_hears_of_a_resignation(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    ending = clock.spawn(broker.end("id", producer, is_commit=True), name="end")
    await clock.sleep(0.001)
    broker.coordinator.partitions.on_resignation(broker.index("id"), 1)
    assert await ending is ErrorCode.NOT_COORDINATOR
    await clock.sleep(1)
    assert broker.leaders.requests == []


@virtual
async def test_an_old_election_or_resignation_changes_nothing(clock: Clock) -> None:
    broker = await started(clock, epoch=5)
    index = broker.index("id")
    await broker.initialize("id")
    broker.coordinator.partitions.on_resignation(index, 4)
    broker.coordinator.partitions.on_election(index, 4)
    assert await broker.initialize("id") == (NONE, 1000, 1)
    broker.coordinator.partitions.on_resignation(index, 6)
    broker.coordinator.partitions.on_election(index, 5)
    assert not broker.coordinator.partitions.owns(index)
    broker.coordinator.partitions.on_resignation(index, None)
    broker.elect(index, 0)
    await broker.loaded()
    assert broker.coordinator.partitions.owns(index)


@virtual
async def test_a_broker_that_is_elected_again_keeps_what_it_has(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    broker.elect(broker.index("id"), 1)
    assert await broker.end("id", producer, is_commit=True) is NONE
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert broker.leaders.requests[-1][1][0].coordinator_epoch == 1


@virtual
async def test_a_coordinator_that_is_closed_answers_nobody(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    broker.coordinator.close()
    assert await broker.end("id", producer, is_commit=True) is ErrorCode.NOT_COORDINATOR
    assert broker.coordinator.describe("id")[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.coordinator.list((), None, -1) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    await clock.sleep(100)
    assert broker.leaders.requests == []


# Markers


@virtual
async def test_markers_that_wait_for_one_broker_leave_in_one_request(clock: Clock) -> None:
    broker = await started(clock)
    producers = {name: await broker.begin(name, T0, T1) for name in ("a", "b", "c")}
    broker.leaders.leaders = {T1: 2}
    await asyncio.gather(*[broker.end(name, producer, is_commit=True) for name, producer in producers.items()])
    for name in producers:
        await broker.reaches(name, S.COMPLETE_COMMIT)
    assert [(broker_id, len(markers)) for broker_id, markers in broker.leaders.requests] == [(1, 3), (2, 3)]


@virtual
async def test_a_marker_is_sent_again_to_the_leader_by_then(clock: Clock) -> None:
    for error in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    ):
        broker = await started(clock)
        producer = await broker.begin("id", T0, T1)
        broker.leaders.answers = [error]
        await broker.end("id", producer, is_commit=True)
        await clock.sleep(0.02)
        broker.leaders.leaders = {T0: 2}
        await broker.reaches("id", S.COMPLETE_COMMIT)
        assert [(to, markers[0].partitions) for to, markers in broker.leaders.requests] == [(1, (T0, T1)), (2, (T0,))]


@virtual
async def test_a_marker_for_a_broker_that_died_goes_to_the_next_leader(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    broker.leaders.dead = {1}
    await broker.end("id", producer, is_commit=False)
    await clock.sleep(0.5)
    assert broker.state("id") is S.PREPARE_ABORT
    broker.leaders.leaders = {T0: 2}
    await broker.reaches("id", S.COMPLETE_ABORT)
    assert broker.leaders.written == {T0: [(1000, 0, False)]}


@virtual
async def test_a_marker_waits_for_a_leader(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0, T1)
    broker.leaders.leaders = {T0: -1}
    await broker.end("id", producer, is_commit=True)
    await clock.sleep(5)
    assert broker.leaders.written == {T1: [(1000, 0, True)]}
    assert "unknowndestinationqueuesize 1.0" in broker.exposed()
    assert broker.coordinator.describe("id")[1].partitions == {T0}  # type: ignore[union-attr]
    broker.leaders.leaders = {}
    broker.coordinator.on_metadata()
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert "unknowndestinationqueuesize 0.0" in broker.exposed()


@virtual
async def test_a_partition_that_is_deleted_needs_no_marker(clock: Clock) -> None:
    broker = await started(clock)
    one, all_gone = await broker.begin("one", T0, T1), await broker.begin("all", T0)
    broker.leaders.leaders = {T0: None}
    await asyncio.gather(broker.end("one", one, is_commit=True), broker.end("all", all_gone, is_commit=False))
    await broker.reaches("one", S.COMPLETE_COMMIT)
    await broker.reaches("all", S.COMPLETE_ABORT)
    assert broker.leaders.written == {T1: [(one.producer_id, 0, True)]}


@virtual
async def test_a_partition_of_an_old_message_format_needs_no_marker(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0, T1)
    broker.leaders.answers = [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
    await broker.end("id", producer, is_commit=True)
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert broker.leaders.written == {T1: [(1000, 0, True)]}


@virtual
async def test_a_coordinator_that_is_fenced_sends_no_more_markers(clock: Clock) -> None:
    for error in (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        broker = await started(clock)
        producer = await broker.begin("id", T0)
        broker.leaders.answers = [error]
        await broker.end("id", producer, is_commit=True)
        await clock.sleep(60)
        assert broker.state("id") is S.PREPARE_COMMIT
        assert len(broker.leaders.requests) == 1


@virtual
async def test_markers_of_a_partition_that_moved_away_are_dropped(clock: Clock) -> None:
    broker = await started(clock)
    producer = await broker.begin("id", T0, T1, T2)
    broker.leaders.leaders = {T0: -1, T1: 2}
    broker.leaders.dead = {2}
    await broker.end("id", producer, is_commit=True)
    await clock.sleep(0.2)
    count = len(broker.leaders.requests)
    broker.coordinator.partitions.on_resignation(broker.index("id"), 1)
    broker.leaders.leaders, broker.leaders.dead = {}, set()
    broker.coordinator.on_metadata()
    await clock.sleep(5)
    assert len(broker.leaders.requests) <= count + 1  # one may be under way
    assert T0 not in broker.leaders.written and broker.log.history("id")[-1] is S.PREPARE_COMMIT


@virtual
async def test_the_response_to_a_marker_of_an_earlier_leadership_counts_no_more(clock: Clock) -> None:
    """It may be of a transaction before: the marker is written again."""
    broker = await started(clock)
    producer = await broker.begin("id", T0)
    broker.leaders.delay_s = 2.0
    await broker.end("id", producer, is_commit=True)
    await clock.sleep(1)
    index = broker.index("id")
    broker.coordinator.partitions.on_resignation(index, 1)
    broker.elect(index, 2)
    await broker.loaded()
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert [markers[0].coordinator_epoch for _, markers in broker.leaders.requests] == [0, 2]
    assert broker.leaders.written == {T0: [(1000, 0, True)] * 2}


@pytest.mark.parametrize("is_here", [False, True])
def test_the_response_to_a_marker_of_an_earlier_load_in_the_same_epoch_counts_no_more(is_here: bool) -> None:
    """The log directory was offline meanwhile. Both loads write the marker."""

    @virtual
    async def scenario(clock: Clock) -> None:
        here = Here(clock) if is_here else None
        broker = Broker(clock, here=here)
        await broker.loaded()
        producer = await broker.begin("id", T0)
        (here or broker.leaders).delay_s = 2.0
        assert await broker.end("id", producer, is_commit=True) is NONE
        await clock.sleep(1)
        index = broker.index("id")
        broker.coordinator.partitions.on_resignation(index, None)
        broker.elect(index, 0)
        await broker.loaded()
        await clock.sleep(1.5)
        assert broker.state("id") is S.PREPARE_COMMIT, "that was the response to the load before"
        await broker.reaches("id", S.COMPLETE_COMMIT)
        assert (len(broker.leaders.requests) if here is None else len(here.written)) == 2
        assert broker.log.history("id") == [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT]

    scenario()


@virtual
async def test_the_response_to_a_marker_of_a_deleted_topics_coordinator_counts_no_more(clock: Clock) -> None:
    """`__transaction_state` was created again: its epochs begin below those of the former one."""
    here = Here(clock, delay_s=2.0)
    broker = Broker(clock, here=here, epoch=5)
    await broker.loaded()
    producer = await broker.begin("id", T0)
    assert await broker.end("id", producer, is_commit=True) is NONE
    await clock.sleep(1)
    index = broker.index("id")
    broker.coordinator.partitions.on_resignation(index, None)
    broker.log.batches[index].clear()
    broker.log.committed[index] = 0
    broker.elect(index, 0)
    await broker.loaded()
    producer = await broker.begin("id", T0)
    await clock.sleep(2)
    assert broker.state("id") is S.ONGOING
    assert await broker.end("id", producer, is_commit=True) is NONE
    await broker.reaches("id", S.COMPLETE_COMMIT)


@virtual
async def test_markers_leave_after_a_request_that_failed_in_an_unforeseen_way(clock: Clock) -> None:
    failures: list[BaseException] = []
    clock.on_task_failure = lambda name, error: failures.append(error)
    broker = await started(clock)
    transactions = [(name, await broker.begin(name, T0)) for name in ("under way", "queued")]
    broker.leaders.unforeseen.append(RuntimeError("no such request"))
    for name, producer in transactions:
        assert await broker.end(name, producer, is_commit=True) is NONE
        await clock.sleep(0)
    assert [[one.transactional_id for one in markers] for _, markers in broker.leaders.requests] == [["under way"]]
    for name, _ in transactions:
        await broker.reaches(name, S.COMPLETE_COMMIT)
    assert [str(error) for error in failures] == ["no such request"]


# Administration


@virtual
async def test_transactions_are_listed_by_producer_id_state_and_duration(clock: Clock) -> None:
    broker = await started(clock)
    await broker.initialize("empty")
    await broker.begin("old", T0)
    await clock.sleep(20)
    young = await broker.begin("young", T0)

    def names(producer_ids: tuple[int, ...] = (), states: set[S] | None = None, duration_ms: int = -1) -> list[str]:
        error, found = broker.coordinator.list(producer_ids, states, duration_ms)
        assert error is NONE
        return sorted(one.transactional_id for one in found)

    assert names() == ["empty", "old", "young"]
    assert names(producer_ids=(young.producer_id,)) == ["young"]
    assert names(states={S.ONGOING}) == ["old", "young"]
    assert names(states=set()) == []
    assert names(states={S.ONGOING}, duration_ms=10_000) == ["old"]


@virtual
async def test_a_duration_leaves_out_a_producer_whose_last_transaction_began_since(clock: Clock) -> None:
    """Apache Kafka compares with the beginning of the last transaction, until the coordinator loads again."""
    broker = await started(clock)
    producer = await broker.begin("used", T0)
    await broker.end("used", producer, is_commit=True)
    await broker.reaches("used", S.COMPLETE_COMMIT)
    await broker.initialize("used")
    await broker.initialize("never used")

    def names(duration_ms: int) -> set[str]:
        return {one.transactional_id for one in broker.coordinator.list((), {S.EMPTY}, duration_ms)[1]}

    assert names(-1) == {"used", "never used"}
    assert names(3_600_000) == {"never used"}
    index = broker.index("used")
    broker.coordinator.partitions.on_resignation(index, 1)
    broker.elect(index, 2)
    await broker.loaded()
    assert names(3_600_000) == {"used", "never used"}


@virtual
async def test_the_time_of_a_load_is_measured(clock: Clock) -> None:
    broker = await started(clock, partitions=1)
    await broker.loaded()
    assert "kafka_server_transaction_coordinator_metrics_partition_load_time_seconds_count 1.0" in (broker.exposed())


# transaction.version 2 (KIP-890)


@virtual
async def test_each_transaction_of_version_2_ends_with_a_raised_epoch(clock: Clock) -> None:
    broker = await started(clock)
    broker.finalized_version = 2
    producer = await broker.begin("id", T0)
    answer = await broker.coordinator.end_with_next_epoch("id", *producer, is_commit=True)
    assert answer == (NONE, 1000, 1)
    again = await broker.coordinator.end_with_next_epoch("id", *producer, is_commit=True)
    assert again == (ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert await broker.coordinator.end_with_next_epoch("id", *producer, is_commit=True) == (NONE, 1000, 1)
    assert await broker.coordinator.add_partitions("id", *producer, [T1], 2) is ErrorCode.PRODUCER_FENCED
    assert await broker.coordinator.add_partitions("id", 1000, 1, [T1], 2) is NONE
    assert await broker.coordinator.end_with_next_epoch("id", 1000, 1, is_commit=False) == (NONE, 1000, 2)
    await broker.reaches("id", S.COMPLETE_ABORT)
    assert await broker.coordinator.end_with_next_epoch("id", 1000, 2, is_commit=False) == (NONE, 1000, 3)
    await broker.reaches("id", S.COMPLETE_ABORT)
    assert broker.leaders.written == {T0: [(1000, 1, True)], T1: [(1000, 2, False)]}
    assert {marker.transaction_version for _, markers in broker.leaders.requests for marker in markers} == {2}


@virtual
async def test_the_epochs_of_a_producer_id_are_used_up_by_ends_of_version_2(clock: Clock) -> None:
    """The next producer id is in the record: the next coordinator completes with it."""
    log = MemoryLog(clock)
    first = TransactionMetadata(7, LAST_GIVEN_EPOCH, 60_000, S.ONGOING, 0, 0, frozenset({T0}))
    broker = Broker(clock, log)
    index = broker.index("id")
    log.append(index, 0, [transaction_record("id", first)], required_acks=-1, timeout_ms=1_000)
    broker.coordinator.partitions.on_resignation(index, 1)
    broker.elect(index, 2)
    await broker.loaded()
    broker.leaders.leaders[T0] = -1
    answer = await broker.coordinator.end_with_next_epoch("id", 7, LAST_GIVEN_EPOCH, is_commit=True)
    assert answer == (NONE, 1000, 0)
    broker.coordinator.partitions.on_resignation(index, 3)
    broker.leaders.leaders[T0] = 1
    broker.elect(index, 4)
    await broker.loaded()
    await broker.reaches("id", S.COMPLETE_COMMIT)
    assert broker.leaders.written == {T0: [(7, LAST_GIVEN_EPOCH + 1, True)]}
    assert await broker.coordinator.end_with_next_epoch("id", 7, LAST_GIVEN_EPOCH, is_commit=True) == (NONE, 1000, 0)
    assert await broker.coordinator.add_partitions("id", 1000, 0, [T0], 2) is NONE
