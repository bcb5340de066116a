"""Requests that wait: exactly-once completion, order, and a timer heap that does not grow."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import fetch as fetch_api
from ottla_broker.protocol.generated.produce import PartitionProduceResponse
from ottla_broker.records.record import Record, build_batch
from ottla_broker.replication.delayed import AckQueue, DelayedProduce, TimerWheel
from tests.broker.groups.surroundings import in_virtual_time
from tests.broker.replication.fleet import CLIENT, INTERNAL, Fleet, fetch_request, produce_request, until


class _Waiting:
    def __init__(self) -> None:
        self.bucket: dict[object, None] | None = None
        self.fired = asyncio.Event()

    def on_timeout(self) -> None:
        assert not self.fired.is_set()
        self.fired.set()


def test_fifty_thousand_waiting_requests_cost_a_handful_of_timers() -> None:
    async def scenario(clock: Clock) -> None:  # in virtual time all of them are armed at one moment
        wheel = TimerWheel(clock)
        operations = [_Waiting() for _ in range(50_000)]
        for operation in operations:
            wheel.arm(operation, 30.0)
            wheel.disarm(operation)
            wheel.arm(operation, 0.5)
        assert wheel.timer_count <= 2
        for operation in operations:
            wheel.disarm(operation)
            wheel.disarm(operation)
            assert operation.bucket is None

    in_virtual_time(scenario)


def test_whatever_delays_clients_name_the_timers_do_not_grow_with_the_requests() -> None:
    async def scenario(clock: Clock) -> None:
        wheel = TimerWheel(clock)
        delays = (0.5, 30.0, 60.0, 600.0, 7_200.0, 2_000_000.0)
        most = 0
        for number in range(50_000):  # each completed before the next comes, over fourteen hours
            operation = _Waiting()
            wheel.arm(operation, delays[number % len(delays)] + number % 7 / 10)
            if number % 5 == 0:
                await clock.sleep(5.0)
            wheel.disarm(operation)
            most = max(most, wheel.timer_count)
        assert most < 1_500 and wheel.count(object) == 0

    in_virtual_time(scenario)


async def test_fetches_that_are_answered_early_leave_nothing_behind(one: Fleet) -> None:
    node = one.nodes[1]
    topic_id = one.topics["orders"].topic_id
    partition = node.partition("orders")
    clients = [await one.client(1) for _ in range(20)]
    for offset in range(50):
        waiting = [
            client.send(int(ApiKey.FETCH), 17, fetch_request(topic_id, "orders", offset, max_wait_ms=30_000 + number))
            for number, client in enumerate(clients)
        ]
        await until(lambda: len(partition.watermark_waiters) == 20, "all wait")
        await one.produce(1, "orders", "x")
        await asyncio.gather(*waiting)
        assert not partition.watermark_waiters
    assert node.manager.wheel.count(object) == 0
    assert node.manager.wheel.timer_count < 1_000


async def test_a_timeout_never_comes_early_and_never_after_disarming() -> None:
    clock = LoopClock()
    wheel = TimerWheel(clock)
    late, cancelled = _Waiting(), _Waiting()
    started = clock.monotonic()
    wheel.arm(cancelled, 0.005)
    wheel.arm(late, 0.02)
    wheel.disarm(cancelled)
    await late.fired.wait()
    assert clock.monotonic() - started >= 0.02
    assert not cancelled.fired.is_set()


async def test_one_that_fails_takes_nobody_with_it() -> None:
    wheel = TimerWheel(LoopClock())
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))

    class _Failing(_Waiting):
        def on_timeout(self) -> None:
            raise RuntimeError("on purpose")

    failing, other = _Failing(), _Waiting()
    wheel.arm(failing, 0.0)
    wheel.arm(other, 0.0)
    await other.fired.wait()
    assert [str(error) for error in reported] == ["on purpose"]
    assert wheel.timer_count == 0


def test_a_request_over_two_partitions_is_answered_once_when_both_are_acknowledged() -> None:
    answers: list[str] = []
    operation = DelayedProduce(lambda: answers.append("done"))
    first, second = AckQueue(), AckQueue()
    entries = [PartitionProduceResponse(index=0), PartitionProduceResponse(index=1)]
    first.add(5, operation, entries[0])
    second.add(9, operation, entries[1])
    first.advance(4)
    first.advance(5)
    assert answers == []
    second.advance(100)
    second.advance(101)
    operation.on_timeout()
    assert answers == ["done"]
    assert [entry.error_code for entry in entries] == [0, 0]


def test_a_timed_out_request_tells_which_partitions_were_not_acknowledged_and_leaves_the_queues() -> None:
    answers: list[str] = []
    operation = DelayedProduce(lambda: answers.append("done"))
    quick, slow = AckQueue(), AckQueue()
    entries = [PartitionProduceResponse(index=0, base_offset=4), PartitionProduceResponse(index=1, base_offset=8)]
    quick.add(5, operation, entries[0])
    slow.add(9, operation, entries[1])
    quick.advance(5)
    operation.on_timeout()
    slow.advance(9)
    assert answers == ["done"]
    assert [entry.error_code for entry in entries] == [0, ErrorCode.REQUEST_TIMED_OUT]
    assert len(quick) == len(slow) == 0


def test_losing_leadership_fails_what_waits_and_later_requests_are_not_touched() -> None:
    answers: list[str] = []
    queue = AckQueue()
    old, new = DelayedProduce(lambda: answers.append("old")), DelayedProduce(lambda: answers.append("new"))
    entries = [PartitionProduceResponse(base_offset=1), PartitionProduceResponse(base_offset=7)]
    queue.add(2, old, entries[0])
    queue.fail(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    queue.add(8, new, entries[1])
    queue.advance(8, int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    assert answers == ["old", "new"]
    assert (entries[0].error_code, entries[0].base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert (entries[1].error_code, entries[1].base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 7)


def test_what_was_sent_again_is_acknowledged_with_its_first_offset_and_not_behind_later_requests() -> None:
    """A duplicate of an idempotent producer has the offset of the batch that was written."""
    answers: list[int] = []
    queue = AckQueue()
    for number, required_offset in enumerate((3, 5, 5, 9, 5, 3, 9)):
        operation = DelayedProduce(partial(answers.append, number))
        queue.add(required_offset, operation, PartitionProduceResponse())
    queue.advance(2)
    assert answers == []
    queue.advance(3)
    assert answers == [0, 5]
    queue.advance(8)
    assert answers == [0, 5, 1, 2, 4]
    queue.advance(9)
    assert answers == [0, 5, 1, 2, 4, 3, 6] and len(queue) == 0


async def test_a_batch_that_is_sent_again_is_answered_once_the_first_is_committed(tmp_path: Path) -> None:
    """Its producer lost the connection. What was written meanwhile takes longer to reach the other replica."""
    fleet = Fleet(tmp_path, {"replica.lag.time.max.ms": "3600000"})
    await fleet.start(1, 2)
    await fleet.create("orders", (1, 2))
    partition = fleet.nodes[1].partition("orders")
    fleet.nodes[2].kill()  # the test asks in its place
    sent = []
    for number, sequence in enumerate((0, 1, 0), 1):
        records = [Record(0, 1_000, None, b"x")]
        batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)
        client = await fleet.client(1, CLIENT)
        sent.append(client.send(int(ApiKey.PRODUCE), 9, produce_request("orders", bytes(batch))))
        await until(lambda number=number: len(partition.acks_all) == number, "it waits")

    async def follow(offset: int) -> None:
        request = fetch_request(fleet.topics["orders"].topic_id, "orders", offset)
        request.replica_state = fetch_api.ReplicaState(replica_id=2, replica_epoch=-1)
        await fleet.ask(1, ApiKey.FETCH, 17, request, INTERNAL)

    await follow(1)
    assert partition.log.state.high_watermark == 1
    for answer in (await sent[0], await sent[2]):
        part = answer.responses[0].partition_responses[0]
        assert (part.error_code, part.base_offset) == (0, 0)
    assert not sent[1].done()
    await follow(2)
    assert (await sent[1]).responses[0].partition_responses[0].base_offset == 1
    fleet.stop()
