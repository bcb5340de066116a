"""Verification before a transaction's first append to a log (KIP-890)."""

from __future__ import annotations

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.verification import (
    FROM_CLIENT,
    FROM_CLIENT_THAT_ADDS_NOTHING,
    AppendOrigin,
    TransactionalAppend,
    Verification,
    VerificationNeeded,
)
from tests.broker.storage.logs import LogSetup, batch, transactional
from tests.broker.storage.transactions import ABORT, COMMIT, end


@pytest.fixture
async def log(setup: LogSetup) -> Log:
    log = await setup.open()
    log.configure(LogConfig(verifies_transactions=True))
    return log


def append(
    log: Log,
    sequence: int = 0,
    verification: Verification | None = None,
    epoch: int = 0,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> int:
    given = TransactionalAppend(verification, origin)
    return log.append_as_leader(transactional((7, epoch, sequence), b"v"), 0, transaction=given).first_offset


def begin(log: Log, sequence: int = 0, epoch: int = 0) -> Verification:
    found = log.state.producers.begin_verification(7, epoch, sequence, 1_000)
    assert found is not None
    return found


def refused(log: Log, code: ErrorCode, *given: object) -> None:
    with pytest.raises(KafkaError) as caught:
        append(log, *given)  # type: ignore[arg-type]
    assert caught.value.code is code


async def test_the_first_append_of_a_transaction_needs_a_verification_and_later_ones_none(log: Log) -> None:
    with pytest.raises(VerificationNeeded) as needed:
        append(log)
    assert (needed.value.producer_id, needed.value.producer_epoch, needed.value.base_sequence) == (7, 0, 0)
    assert log.state.assigned_offset == 0
    assert append(log, 0, begin(log)) == 0
    assert append(log, 1) == 1
    assert log.state.producers.begin_verification(7, 0, 2, 1_000) is None
    assert len(log.state.producers.verifications) == 0


async def test_a_partition_that_the_leader_adds_needs_the_coordinator_even_without_verification(log: Log) -> None:
    """Produce 12: transaction.partition.verification.enable is about producers that add partitions themselves."""
    log.configure(LogConfig(verifies_transactions=False))
    assert log.append_as_leader(transactional((8, 0, 0), b"v"), 0, transaction=FROM_CLIENT).first_offset == 0
    first = transactional((7, 0, 0), b"v")
    with pytest.raises(VerificationNeeded):
        log.append_as_leader(first, 0, transaction=FROM_CLIENT_THAT_ADDS_NOTHING)
    verification = begin(log)
    added = TransactionalAppend(verification, adds_partition=True)
    assert log.append_as_leader(first, 0, transaction=added).first_offset == 1


async def test_a_batch_that_is_part_of_no_transaction_needs_no_verification(log: Log) -> None:
    log.append_as_leader(batch(b"v"), 0, transaction=FROM_CLIENT)
    log.append_as_leader(batch(b"v", producer=(7, 0, 0)), 0, transaction=FROM_CLIENT)


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
async def test_a_marker_ends_a_verification_so_that_its_answer_comes_too_late(log: Log, kind: object) -> None:
    verification = begin(log)
    end(log, kind)  # type: ignore[arg-type]
    with pytest.raises(VerificationNeeded):
        append(log, 0, verification)
    newer = begin(log)
    assert newer is not verification
    with pytest.raises(VerificationNeeded):
        append(log, 0, verification)
    assert append(log, 0, newer) == 1


async def test_a_transaction_of_an_older_epoch_verifies_nothing_of_a_newer_one(log: Log) -> None:
    append(log, 0, begin(log))
    with pytest.raises(VerificationNeeded):
        append(log, 0, None, 1)


async def test_a_later_batch_is_not_appended_before_an_earlier_one_whose_verification_failed(log: Log) -> None:
    begin(log, sequence=3)
    verification = begin(log, sequence=4)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 4, verification)
    assert begin(log, sequence=0, epoch=1) is verification
    assert append(log, 0, verification, 1) == 0


async def test_a_fetched_transaction_ends_the_verification_of_a_replica_that_led_before(log: Log) -> None:
    begin(log)
    log.append_as_follower(memoryview(bytearray(transactional((7, 0, 0), b"v"))))
    assert len(log.state.producers.verifications) == 0


async def test_a_verification_whose_batch_never_came_back_expires_with_the_producers(log: Log) -> None:
    begin(log)
    log.state.producers.remove_expired(1_000 + 59, 60)
    assert len(log.state.producers.verifications) == 1
    log.state.producers.remove_expired(1_000 + 60, 60)
    assert len(log.state.producers.verifications) == 0


async def test_batches_of_the_group_coordinator_have_no_sequence_and_are_fenced_by_their_epoch(log: Log) -> None:
    assert append(log, 0, begin(log, -1, 2), 2, AppendOrigin.COORDINATOR) == 0
    assert append(log, 0, None, 2, AppendOrigin.COORDINATOR) == 1
    refused(log, ErrorCode.INVALID_PRODUCER_EPOCH, 0, None, 1, AppendOrigin.COORDINATOR)


async def test_nothing_is_verified_when_the_broker_is_configured_so(log: Log) -> None:
    log.configure(LogConfig())
    assert append(log) == 0


async def test_an_older_epoch_than_that_of_the_open_transaction_is_fenced_by_the_log_itself(log: Log) -> None:
    append(log, 0, begin(log, 0, 2), 2)
    refused(log, ErrorCode.INVALID_PRODUCER_EPOCH, 1, None, 1)
