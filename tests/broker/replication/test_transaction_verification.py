"""A leader asks the transaction coordinator before a transaction's first batch (KIP-890), over the wire."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.peers.broker_client import BrokerClient
from tests.broker.replication.fleet import Fleet, produce_request, until
from tests.broker.replication.test_transactions import ABORT, COMMIT, end, mark, part, produce

NONE = int(ErrorCode.NONE)


def asked(fleet: Fleet) -> list[tuple[int, int, int]]:
    """(producer id, epoch, partition) of each question."""
    return [(producer_id, epoch, partition.partition) for _, producer_id, epoch, partition in fleet.coordinator.asked]


def send(client: BrokerClient, records: bytes, *, index: int = 0, acks: int = -1, version: int = 11) -> Any:
    request = produce_request("orders", records, index=index, acks=acks)
    request.transactional_id = "tx"
    return client.send(int(ApiKey.PRODUCE), version, request)


def outcome(response: Any) -> tuple[int, int]:
    """(error code, base offset)"""
    entry = response.responses[0].partition_responses[0]
    return entry.error_code, entry.base_offset


async def test_each_transaction_is_verified_once_in_each_partition(one: Fleet) -> None:
    for sequence in range(3):
        assert (await produce(one, part(7, sequence, "a"))).error_code == NONE
    assert one.coordinator.asked == [("tx", 7, 0, TopicPartition("orders", 0))]
    assert (await produce(one, part(7, 0, "a"), index=1)).error_code == NONE
    assert asked(one) == [(7, 0, 0), (7, 0, 1)]
    await mark(one, end(7, COMMIT, 0, 1))
    assert (await produce(one, part(7, 3, "b"))).error_code == NONE
    assert asked(one) == [(7, 0, 0), (7, 0, 1), (7, 0, 0)]


@pytest.mark.parametrize("is_verified", ["true", "false"])
async def test_produce_12_has_its_partition_added_whether_or_not_others_are_verified(
    tmp_path: Path, is_verified: str
) -> None:
    """transaction.partition.verification.enable is about producers that add partitions themselves."""
    fleet = Fleet(tmp_path, {"transaction.partition.verification.enable": is_verified})
    await fleet.start(1)
    await fleet.create("orders", (1,))
    client = await fleet.client(1)
    assert outcome(await send(client, part(8, 0, "a"))) == (NONE, 0)
    assert fleet.coordinator.added == []
    fleet.coordinator.error = ErrorCode.CONCURRENT_TRANSACTIONS
    assert outcome(await send(client, part(7, 0, "a"), version=12)) == (RETRIABLE, -1)
    fleet.coordinator.error = ErrorCode.NONE
    assert outcome(await send(client, part(7, 0, "a"), version=12)) == (NONE, 1)
    assert outcome(await send(client, part(7, 1, "a"), version=12)) == (NONE, 2)
    assert fleet.coordinator.added == [TopicPartition("orders", 0)] * 2
    client.close()
    fleet.stop()


async def test_batches_without_a_transaction_are_not_verified(one: Fleet) -> None:
    assert (await produce(one, part(7, 0, "a", attributes=0))).error_code == NONE
    await one.produce(1, "orders", "plain")
    assert one.coordinator.asked == []


async def test_batches_wait_in_order_for_their_own_transaction_alone(one: Fleet) -> None:
    one.coordinator.is_silent = True
    client, other = await one.client(1), await one.client(1)
    mine = [send(client, part(7, sequence, "a")) for sequence in range(3)]
    await until(lambda: len(one.coordinator.unanswered) == 1, "the coordinator is asked")
    assert outcome(await send(other, part(8, 0, "b", attributes=0))) == (NONE, 0)
    assert (await one.produce(1, "orders", "plain")).base_offset == 1
    mine.append(send(other, part(7, 3, "a")))  # the same producer, by another connection
    waiting = one.nodes[1].dispatcher.services.transaction_verification  # type: ignore[union-attr]
    await until(lambda: sum(len(q.waiting) for q in waiting._questions.values()) == 4, "all wait")
    assert asked(one) == [(7, 0, 0)]
    one.coordinator.answer()
    assert [outcome(await each) for each in mine] == [(NONE, 2), (NONE, 3), (NONE, 4), (NONE, 5)]
    client.close()
    other.close()


@pytest.mark.parametrize("setting", [{"compression.type": "zstd"}, {"message.timestamp.type": "LogAppendTime"}])
async def test_batches_that_are_prepared_are_verified_and_keep_their_order(
    tmp_path: Path, setting: dict[str, str]
) -> None:
    fleet = Fleet(tmp_path)
    await fleet.start(1)
    fleet.nodes[1].overrides = setting
    await fleet.create("orders", (1,))
    fleet.coordinator.is_silent = True
    client = await fleet.client(1)
    large = ["x" * 200] * 200  # prepared by a worker
    answers = [send(client, part(7, 200 * number, *large)) for number in range(3)]
    answers.append(send(client, part(7, 600, "small")))
    await until(lambda: bool(fleet.coordinator.unanswered), "the coordinator is asked")
    fleet.coordinator.answer()
    fleet.coordinator.is_silent = False
    assert [outcome(await each) for each in answers] == [(NONE, 0), (NONE, 200), (NONE, 400), (NONE, 600)]
    client.close()
    fleet.stop()


RETRIABLE = int(ErrorCode.NOT_ENOUGH_REPLICAS)


@pytest.mark.parametrize(
    ("error", "version", "expected"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_TXN_STATE, 11, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 3, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
async def test_a_producer_is_told_what_it_knows_how_to_handle(
    one: Fleet, error: ErrorCode, version: int, expected: ErrorCode
) -> None:
    one.coordinator.error = error
    client = await one.client(1)
    assert outcome(await send(client, part(7, 0, "a"), version=version)) == (int(expected), -1)
    assert one.nodes[1].partition("orders").log.state.assigned_offset == 0
    one.coordinator.error = ErrorCode.NONE
    assert outcome(await send(client, part(7, 0, "a"), version=version)) == (NONE, 0)
    client.close()


async def test_a_batch_whose_transaction_ends_while_it_is_verified_is_not_appended(one: Fleet) -> None:
    one.coordinator.is_silent = True
    client = await one.client(1)
    late = send(client, part(7, 0, "late"))
    await until(lambda: bool(one.coordinator.unanswered), "the coordinator is asked")
    assert await mark(one, end(7, ABORT)) == {7: [0]}
    one.coordinator.answer()  # what it knew before it ended the transaction
    assert outcome(await late) == (int(ErrorCode.INVALID_TXN_STATE), -1)
    partition = one.nodes[1].partition("orders")
    assert partition.log.state.assigned_offset == 1 and partition.log.state.first_unstable_offset is None
    client.close()


async def test_a_later_batch_does_not_overtake_one_that_could_not_be_verified(one: Fleet) -> None:
    client = await one.client(1)
    one.coordinator.error = ErrorCode.NOT_COORDINATOR
    assert outcome(await send(client, part(7, 0, "first"))) == (RETRIABLE, -1)
    one.coordinator.error = ErrorCode.NONE
    out_of_order = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert outcome(await send(client, part(7, 1, "second"))) == (out_of_order, -1)
    assert outcome(await send(client, part(7, 0, "first"))) == (NONE, 0)
    assert outcome(await send(client, part(7, 1, "second"))) == (NONE, 1)
    client.close()


async def test_a_leader_that_was_replaced_meanwhile_appends_nothing(three: Fleet) -> None:
    three.coordinator.is_silent = True
    client = await three.client(1)
    late = send(client, part(7, 0, "late"))
    await until(lambda: bool(three.coordinator.unanswered), "the coordinator is asked")
    await three.elect("orders", 2, (1, 2, 3))
    await three.elect("orders", 1, (1, 2, 3))
    three.coordinator.answer()
    assert outcome(await late) == (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1)
    three.coordinator.is_silent = False
    assert outcome(await send(client, part(7, 0, "again"))) == (NONE, 0)
    client.close()


async def test_transactional_batches_of_two_producers_are_refused_together(one: Fleet) -> None:
    request = produce_request("orders", part(7, 0, "a"))
    request.topic_data += produce_request("orders", part(8, 0, "a"), index=1).topic_data
    request.transactional_id = "tx"
    response = await one.ask(1, ApiKey.PRODUCE, 11, request)
    codes = [entry.error_code for topic in response.responses for entry in topic.partition_responses]
    assert codes == [int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)] * 2
    assert one.coordinator.asked == []


async def test_without_acknowledgements_a_refusal_closes_the_connection(one: Fleet) -> None:
    one.coordinator.error = ErrorCode.INVALID_TXN_STATE
    client = await one.client(1)
    send(client, part(7, 0, "a"), acks=0).add_done_callback(lambda done: done.exception())
    await until(lambda: not client.is_connected, "the connection is closed")
    assert one.nodes[1].partition("orders").log.state.assigned_offset == 0


async def test_nothing_is_verified_where_the_configuration_says_so(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {"transaction.partition.verification.enable": "false"})
    await fleet.start(1)
    await fleet.create("orders", (1,))
    assert (await produce(fleet, part(7, 0, "a"))).error_code == NONE
    assert fleet.coordinator.asked == []
    fleet.stop()


async def test_a_batch_that_is_sent_again_while_it_is_verified_is_appended_once(one: Fleet) -> None:
    one.coordinator.is_silent = True
    client, again = await one.client(1), await one.client(1)
    answers = [send(client, part(7, 0, "a"))]
    await until(lambda: bool(one.coordinator.unanswered), "the coordinator is asked")
    answers.append(send(again, part(7, 0, "a")))
    await asyncio.sleep(0)
    await one.produce(1, "orders", "plain")
    one.coordinator.answer()
    assert {outcome(await each) for each in answers} == {(NONE, 1)}
    assert one.nodes[1].partition("orders").log.state.assigned_offset == 2
    client.close()
    again.close()
