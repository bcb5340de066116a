"""A producer's batch to a partition is refused with a retriable error, over the wire: the next one must not be written
before it, and gets the same error.

librdkafka takes the success of the second for that of the first, and an OUT_OF_ORDER_SEQUENCE_NUMBER for a reason to
begin a new epoch in every partition.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.ports.disk import Buffer
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import produce as produce_api
from ottla_broker.server.peers.broker_client import BrokerDisconnected
from tests.broker.replication.fleet import INTERNAL, Fleet, produce_request, topic_id_of, until
from tests.broker.replication.test_replication import stop_request
from tests.broker.replication.test_transactions import part

NONE, NOT_LEADER, STORAGE_ERROR = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR


def numbered(sequence: int, value: str, producer_id: int = 7, epoch: int = 0) -> bytes:
    """A batch of one record of an idempotent producer."""
    return part(producer_id, sequence, value, epoch=epoch, attributes=0)


async def send(
    fleet: Fleet,
    sequence: int,
    value: str,
    *,
    broker: int = 1,
    acks: int = -1,
    topic_id: bytes = b"",
    records: bytes = b"",
    **producer: int,
) -> ErrorCode:
    """The error code of a batch of one record for orders-0; by the topic's id if that is given."""
    request = produce_request("orders", records or numbered(sequence, value, **producer), acks=acks)
    if topic_id:
        request.topic_data[0].topic_id = topic_id
    response = await fleet.ask(broker, ApiKey.PRODUCE, 13 if topic_id else 11, request)
    return ErrorCode.of(response.responses[0].partition_responses[0].error_code)


async def assert_later_batches_wait(
    fleet: Fleet, refused_with: ErrorCode, broker: int = 1, acks: int = -1, **how: Any
) -> None:
    """The batch with sequence 0 and the value "a" was refused, and nothing stands in its way any more."""
    assert await send(fleet, 1, "b", broker=broker, acks=acks, **how) is refused_with
    assert await send(fleet, 0, "other", broker=broker, acks=acks, producer_id=8, **how) is NONE
    assert await send(fleet, 0, "a", broker=broker, acks=acks, **how) is NONE
    assert await send(fleet, 1, "b", broker=broker, acks=acks, **how) is NONE
    partition = fleet.nodes[broker].partition("orders")
    await until(lambda: partition.log.state.high_watermark == 3, "the records are committed")
    assert await fleet.values(broker, "orders") == ["other", "a", "b"]


async def test_a_topic_that_this_broker_does_not_know_yet(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    assert await send(fleet, 0, "a") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await fleet.create("orders", (1,))
    await assert_later_batches_wait(fleet, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    fleet.stop()


async def test_a_broker_that_has_no_metadata_yet(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    manager = fleet.nodes[1].manager
    manager.metadata, known = MetadataCache(1), manager.metadata
    assert await send(fleet, 0, "a") is NOT_LEADER
    manager.metadata = known
    await fleet.create("orders", (1,))
    await assert_later_batches_wait(fleet, NOT_LEADER)
    fleet.stop()


async def test_a_topic_id_that_this_broker_does_not_know_yet(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    topic_id = topic_id_of("orders")
    assert await send(fleet, 0, "a", topic_id=topic_id) is ErrorCode.UNKNOWN_TOPIC_ID
    await fleet.create("orders", (1,))
    await assert_later_batches_wait(fleet, ErrorCode.UNKNOWN_TOPIC_ID, topic_id=topic_id)
    fleet.stop()


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_follower_that_is_elected_afterwards(three: Fleet, acks: int) -> None:
    assert await send(three, 0, "a", broker=2, acks=acks) is NOT_LEADER
    await three.elect("orders", 2, (1, 2, 3))
    await assert_later_batches_wait(three, NOT_LEADER, broker=2, acks=acks)


async def test_too_small_an_isr(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {"min.insync.replicas": "2"})
    await fleet.start(1)
    await fleet.create("orders", (1, 2), isr=(1,))
    assert await send(fleet, 0, "a") is ErrorCode.NOT_ENOUGH_REPLICAS
    await fleet.start(2)
    await fleet.command("orders")
    partition = fleet.nodes[1].partition("orders")
    await until(lambda: partition.in_sync.committed == (1, 2), "broker 2 joins the ISR")
    await assert_later_batches_wait(fleet, ErrorCode.NOT_ENOUGH_REPLICAS)
    fleet.stop()


async def test_a_full_log_directory(one: Fleet) -> None:
    log = one.nodes[1].partition("orders").log
    log.state.mark_full()
    assert await send(one, 0, "a") is STORAGE_ERROR
    log.truncation.resume_appends()
    await assert_later_batches_wait(one, STORAGE_ERROR)


async def test_a_write_that_finds_no_room(one: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch was appended, its producer known, before its write failed."""
    write_all = disk_calls.write_all

    def write(descriptor: int, buffers: Sequence[Buffer]) -> int:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(disk_calls, "write_all", write)
    assert await send(one, 0, "a") is STORAGE_ERROR
    monkeypatch.setattr(disk_calls, "write_all", write_all)
    log = one.nodes[1].partition("orders").log
    log.truncation.resume_appends()
    await until(lambda: not log.state.is_full, "the log takes appends again")
    assert log.state.producers.expected(7, 0) is None
    await assert_later_batches_wait(one, STORAGE_ERROR)


async def test_a_batch_that_was_damaged_on_its_way(one: Fleet) -> None:
    assert await send(one, 0, "a", records=numbered(0, "a")[:-1] + b"!") is ErrorCode.CORRUPT_MESSAGE
    await assert_later_batches_wait(one, ErrorCode.CORRUPT_MESSAGE)


async def test_a_transaction_whose_first_batch_is_refused_before_it_is_verified(three: Fleet) -> None:
    """KIP-890 has the same rule for batches that are refused afterwards."""

    async def send_in_transaction(sequence: int, value: str) -> ErrorCode:
        request = produce_request("orders", part(7, sequence, value))
        request.transactional_id = "tx"
        response = await three.ask(2, ApiKey.PRODUCE, 11, request)
        return ErrorCode.of(response.responses[0].partition_responses[0].error_code)

    assert await send_in_transaction(0, "a") is NOT_LEADER
    await three.elect("orders", 2, (1, 2, 3))
    codes = [await send_in_transaction(sequence, value) for sequence, value in ((1, "b"), (0, "a"), (1, "b"))]
    assert codes == [NOT_LEADER, NONE, NONE]
    assert await three.values(2, "orders") == ["a", "b"]


async def test_a_batch_that_is_refused_after_its_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    node = fleet.nodes[1]
    node.overrides = {"compression.type": "zstd"}
    await fleet.create("orders", (1,))
    log = node.partition("orders").log
    run = node.workers.run

    def fill_the_directory_and_run(*job: Any) -> Any:
        log.state.mark_full()
        return run(*job)

    monkeypatch.setattr(node.workers, "run", fill_the_directory_and_run)
    large = part(7, 0, *["a" * 200] * 200, attributes=0)
    assert await send(fleet, 0, "a", records=large) is STORAGE_ERROR
    log.truncation.resume_appends()
    assert await send(fleet, 200, "b") is STORAGE_ERROR
    monkeypatch.setattr(node.workers, "run", run)
    assert await send(fleet, 0, "a", records=large) is NONE
    assert await send(fleet, 200, "b") is NONE
    fleet.stop()


async def test_each_partition_of_a_request_by_itself(one: Fleet) -> None:
    one.nodes[1].partition("orders").log.state.mark_full()

    async def send_to_both(sequence: int) -> list[ErrorCode]:
        request = produce_request("orders", numbered(sequence, str(sequence)))
        request.topic_data[0].partition_data.append(
            produce_api.PartitionProduceData(index=1, records=numbered(sequence, str(sequence)))
        )
        response = await one.ask(1, ApiKey.PRODUCE, 11, request)
        return [ErrorCode.of(each.error_code) for each in response.responses[0].partition_responses]

    assert await send_to_both(0) == [STORAGE_ERROR, NONE]
    one.nodes[1].partition("orders").log.truncation.resume_appends()
    assert await send_to_both(1) == [STORAGE_ERROR, NONE]
    assert await send_to_both(0) == [NONE, NONE]
    assert await send_to_both(1) == [NONE, NONE]
    assert [await one.values(1, "orders", index) for index in (0, 1)] == [["0", "1"], ["0", "1"]]


async def test_a_producer_whose_state_is_gone_from_the_log(one: Fleet) -> None:
    """It was idle for long, so that its sequences do not begin with 0."""
    log = one.nodes[1].partition("orders").log
    log.state.mark_full()
    assert await send(one, 500, "a") is STORAGE_ERROR
    log.truncation.resume_appends()
    codes = [await send(one, sequence, str(sequence)) for sequence in (501, 500, 501)]
    assert codes == [STORAGE_ERROR, NONE, NONE]


async def test_a_write_that_finds_no_room_for_a_producer_that_the_log_knows(
    one: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await send(one, 0, "a") is NONE
    write_all = disk_calls.write_all

    def write(descriptor: int, buffers: Sequence[Buffer]) -> int:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(disk_calls, "write_all", write)
    assert await send(one, 1, "b") is STORAGE_ERROR
    monkeypatch.setattr(disk_calls, "write_all", write_all)
    log = one.nodes[1].partition("orders").log
    log.truncation.resume_appends()
    await until(lambda: not log.state.is_full, "the log takes appends again")
    assert log.state.producers.expected(7, 0) == 1
    codes = [await send(one, sequence, value) for sequence, value in ((2, "c"), (1, "b"), (2, "c"))]
    assert codes == [STORAGE_ERROR, NONE, NONE]
    assert await one.values(1, "orders") == ["a", "b", "c"]


@pytest.mark.parametrize("epoch", [0, 1])
async def test_a_producer_that_the_log_knows(one: Fleet, epoch: int) -> None:
    """`epoch`: of the refused batch and those behind it; 1 begins with sequence 0."""
    assert [await send(one, sequence, str(sequence)) for sequence in (0, 1)] == [NONE, NONE]
    first = 2 if epoch == 0 else 0
    log = one.nodes[1].partition("orders").log
    log.state.mark_full()
    assert await send(one, first, "first", epoch=epoch) is STORAGE_ERROR
    log.truncation.resume_appends()
    sent = [(1, "second"), (2, "third"), (0, "first"), (1, "second"), (2, "third"), (1, "second")]
    codes = [await send(one, first + behind, value, epoch=epoch) for behind, value in sent]
    assert codes == [STORAGE_ERROR, STORAGE_ERROR, NONE, NONE, NONE, NONE]
    assert await send(one, first + 4, "another gap", epoch=epoch) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await one.values(1, "orders") == ["0", "1", "first", "second", "third"]


async def test_a_new_epoch_begins_at_once(one: Fleet) -> None:
    """librdkafka and Java's client begin one when a batch behind an unacknowledged one is out of order."""
    log = one.nodes[1].partition("orders").log
    log.state.mark_full()
    assert await send(one, 0, "a") is STORAGE_ERROR
    log.truncation.resume_appends()
    codes = [await send(one, sequence, str(sequence), epoch=1) for sequence in (0, 1)]
    assert codes == [NONE, NONE]


async def test_a_batch_that_is_refused_for_good_holds_up_nobody(one: Fleet) -> None:
    """Its producer gives it up, and some clients go on with the next sequence."""
    assert await send(one, 0, "x" * 2_000_000) is ErrorCode.MESSAGE_TOO_LARGE
    assert await send(one, 1, "b") is NONE


async def test_a_batch_of_acks_zero_that_is_refused_holds_up_nobody(one: Fleet) -> None:
    """Its producer does not hear of it, and does not send it again."""
    one.nodes[1].partition("orders").log.state.mark_full()
    with pytest.raises(BrokerDisconnected):
        await send(one, 0, "a", acks=0)
    one.nodes[1].partition("orders").log.truncation.resume_appends()
    assert await send(one, 1, "b") is NONE


async def test_a_topic_that_was_created_again_begins_without_refusals(one: Fleet) -> None:
    services: Any = one.nodes[1].dispatcher.services
    services.group_coordinator = SimpleNamespace(on_partitions_deleted=lambda partitions: None)
    one.nodes[1].partition("orders").log.state.mark_full()
    assert await send(one, 0, "a") is STORAGE_ERROR
    await one.ask(1, ApiKey.STOP_REPLICA, 4, stop_request(4, -2, delete=True), INTERNAL)
    one.topics["orders"].topic_id = topic_id_of("orders, again")
    await one.command("orders", is_new=True)
    assert await send(one, 1, "b") is NONE
