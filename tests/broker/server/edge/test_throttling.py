"""A throttled client is answered at once and its connection muted (KIP-219), on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.metrics import Gauge, Metrics
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla_broker.protocol.generated.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla_broker.protocol.generated.produce import ProduceRequest, ProduceResponse
from ottla_broker.quotas.entities import DEFAULT, QuotaEntity
from ottla_broker.quotas.shares import INACTIVE_S
from ottla_broker.server.edge.connection import ClientConnection, ConnectionEnvironment
from ottla_broker.server.edge.dispatch import LISTED
from ottla_broker.server.edge.request_scheduling import RequestScheduler
from ottla_broker.server.edge.response_memory import ResponseMemory
from ottla_broker.server.edge.throttling import Throttling, measured
from ottla_broker.server.handler_api import RequestContext, RequestUsage

EVERYBODY = QuotaEntity(user=DEFAULT)


class Timer:
    def __init__(self, at: float, callback: Callable[[], object]) -> None:
        self.at = at
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """Stands still until `advance`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[Timer] = []

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[..., object]) -> Timer:
        timer = Timer(self.now + delay_s, callback)
        self.timers.append(timer)
        return timer

    def call_soon(self, callback: Callable[..., object]) -> None:
        self.call_later(0.0, callback)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [one for one in self.timers if one.at <= self.now]:
            self.timers.remove(timer)
            if timer.callback is not None:
                timer.callback()


def _unused(*_: object, **__: object) -> None:
    raise AssertionError("no answer here is made piece by piece")


class Socket:
    """What the client sent arrives while it is read; keeps what is sent to it."""

    def __init__(self) -> None:
        self.peer = ("10.0.0.1", 40000)
        self.unsent_bytes = 0
        self.is_closed = False
        self.is_read = True
        self.sent: list[bytes] = []
        self.handler: Any = None
        self._received: list[memoryview] = []

    def send(self, chunks: Any, *, now: bool = False) -> None:
        self.sent.append(b"".join(bytes(chunk) for chunk in chunks))

    def pause(self) -> None:
        self.is_read = False

    def resume(self) -> None:
        self.is_read = True
        self.receive()

    def close(self) -> None:
        self.is_closed = True

    def receive(self, *frames: memoryview) -> None:
        self._received += frames
        while self._received and self.is_read:
            self.handler.on_frame(self._received.pop(0))


class Edge:
    """One connection with its quotas; a request waits until the test answers it, unless it is answered at once."""

    def __init__(self, **keys: str) -> None:
        self.clock = Clock()
        self.metrics = Metrics()
        clock: Any = self.clock
        config = BrokerConfig.from_mapping({key.replace("_", "."): value for key, value in keys.items()})
        self.throttling = Throttling(clock, config, self.metrics)
        self.requests: list[RequestContext] = []
        self.work_s = 0.0
        self.answers: Callable[[RequestContext], Any] | None = None
        scheduler = RequestScheduler(clock, 500)
        self.socket = Socket()
        socket: Any = self.socket
        self.connection = ClientConnection(
            ConnectionEnvironment(
                self._dispatch,
                scheduler,
                self.throttling,
                clock.monotonic,
                clock.call_later,
                ResponseMemory(clock, -1, lambda: None),
                _unused,
                lambda context: None,
                lambda connection: None,
            ),
            socket,
            "CLIENT",
            False,
            1,
            False,
        )
        self.socket.handler = self.connection

    def _dispatch(self, context: RequestContext, frame: memoryview, body_offset: int) -> None:
        self.clock.now += self.work_s
        self.requests.append(context)
        if self.answers is not None:
            context.respond(self.answers(context))

    def quota(self, entity: QuotaEntity = EVERYBODY, **values: float) -> None:
        self.throttling.set_quotas(
            entity, {key: f"{value:.0f}" if key.endswith("byte_rate") else str(value) for key, value in values.items()}
        )

    def receive(self, request: Any, api_key: ApiKey, version: int, client_id: str = "c", size: int = 0) -> None:
        """A request of `size` bytes, or of its own where that is more."""
        frame = b"".join(bytes(one) for one in codec.frame_request(int(api_key), version, 7, client_id, request))[4:]
        self.socket.receive(memoryview(frame.ljust(size, b"\0")))

    def produce(self, size: int, client_id: str = "c") -> None:
        self.receive(ProduceRequest(acks=1, topic_data=[]), ApiKey.PRODUCE, 9, client_id, size)

    def heartbeat(self) -> None:
        self.receive(HeartbeatRequest(), ApiKey.HEARTBEAT, 4)

    def throttle_ms(self, api_key: ApiKey, version: int) -> list[int]:
        """The throttle times of the responses sent since the last call."""
        sent, self.socket.sent = self.socket.sent, []
        responses = [codec.read_response_frame(api_key, version, memoryview(one)[4:])[1] for one in sent]
        return [response.throttle_time_ms for response in responses]

    def value(self, name: str, **labels: str) -> float | None:
        """Of a gauge; None where it is not there."""
        family = self.metrics.families.get(name)
        child = None if family is None else family.children.get(tuple(labels[one] for one in family.label_names))
        if child is None:
            return None
        assert isinstance(child, Gauge)
        return child.value


def answer(context: RequestContext) -> Any:
    return ProduceResponse() if context.api_key == ApiKey.PRODUCE else HeartbeatResponse()


def test_a_producer_over_its_quota_is_answered_at_once_and_not_read_for_the_throttle_time() -> None:
    edge = Edge()
    edge.answers = answer
    edge.quota(producer_byte_rate=1000)
    edge.produce(10_000)
    assert (edge.throttle_ms(ApiKey.PRODUCE, 9), edge.socket.is_read) == ([0], True)
    edge.produce(500)
    assert (edge.throttle_ms(ApiKey.PRODUCE, 9), edge.socket.is_read) == ([500], False)
    edge.produce(100)
    edge.clock.advance(0.499)
    assert len(edge.requests) == 2
    edge.clock.advance(0.001)
    assert len(edge.requests) == 3


def test_throttles_that_are_not_over_are_in_the_queue_of_their_quota() -> None:
    edge = Edge()
    edge.answers = answer
    assert edge.value("kafka_server_produce_queue_size") == 0.0
    edge.quota(producer_byte_rate=1000)
    edge.produce(10_500)
    assert edge.value("kafka_server_produce_queue_size") == 1.0
    assert edge.value("kafka_server_fetch_queue_size") == 0.0
    edge.clock.advance(0.5)
    assert edge.value("kafka_server_produce_queue_size") == 0.0


def test_pipelined_requests_of_a_producer_do_not_pass_the_throttle() -> None:
    edge = Edge()
    edge.quota(producer_byte_rate=1000)
    for _ in range(5):
        edge.produce(10_100)
    assert (len(edge.requests), edge.socket.is_read) == (1, False), "it is throttled before it is answered"
    edge.requests[0].respond(ProduceResponse())
    assert (edge.throttle_ms(ApiKey.PRODUCE, 9), edge.socket.is_read) == ([100], False)
    edge.clock.advance(0.1)
    assert len(edge.requests) == 2


def test_an_answer_and_a_client_that_reads_do_not_end_a_throttle() -> None:
    edge = Edge()
    edge.quota(producer_byte_rate=1000)
    edge.produce(20_000)
    edge.requests[0].respond(ProduceResponse())
    edge.connection.on_sent()
    edge.connection.dispatch_waiting()
    assert not edge.socket.is_read
    edge.clock.advance(10.0)
    assert edge.socket.is_read


def test_a_throttled_client_has_been_idle_since_its_answer() -> None:
    """connections.max.idle.ms closes its connection, also when the client has gone; one whose request waits stays."""
    edge = Edge()
    edge.quota(producer_byte_rate=1000)
    edge.produce(1_000_000)
    edge.clock.advance(20.0)
    assert not edge.socket.is_read and edge.connection.waits_for_broker
    edge.requests[0].respond(ProduceResponse())
    assert not edge.socket.is_read and not edge.connection.waits_for_broker
    assert edge.connection.last_active == edge.clock.now
    edge.clock.advance(20.0)
    assert not edge.socket.is_read and edge.connection.last_active == edge.clock.now - 20.0


def test_a_request_that_came_before_the_throttle_waits_for_its_end() -> None:
    edge = Edge()
    edge.quota(request_percentage=1.0)
    edge.work_s = 0.2
    edge.heartbeat()
    edge.heartbeat()
    edge.requests[0].respond(HeartbeatResponse())
    assert (edge.throttle_ms(ApiKey.HEARTBEAT, 4), len(edge.requests)) == ([1000], 1)
    edge.clock.advance(1.0)
    assert len(edge.requests) == 2


def test_request_time_counts_from_dispatch_to_response_and_throttles_for_one_sample_at_most() -> None:
    edge = Edge()
    edge.answers = answer
    edge.work_s = 0.1
    edge.quota(QuotaEntity(client_id="c"), request_percentage=1.0)
    edge.heartbeat()
    assert edge.throttle_ms(ApiKey.HEARTBEAT, 4) == [0], "a tenth of a second in ten"
    edge.clock.advance(0.0)  # the next iteration of the loop has a slice of its own
    edge.heartbeat()
    assert (edge.throttle_ms(ApiKey.HEARTBEAT, 4), edge.socket.is_read) == ([1000], False)
    labels = {"user": "", "client_id": "c"}
    assert edge.value("kafka_server_request_throttle_time", **labels) == 1000.0
    edge.clock.advance(1.0)
    assert edge.socket.is_read


def test_requests_of_the_controller_are_counted_apart_and_never_throttled() -> None:
    edge = Edge()
    edge.answers = lambda context: LeaderAndIsrResponse()
    edge.work_s = 0.5
    edge.quota(request_percentage=0.001)
    edge.receive(LeaderAndIsrRequest(topic_states=[], live_leaders=[]), ApiKey.LEADER_AND_ISR, 7)
    assert edge.socket.is_read
    assert edge.value("kafka_server_request_exempt_request_time") == pytest.approx(5.0)
    assert edge.value("kafka_server_request_request_time", user="ANONYMOUS", client_id="") is None


def test_a_producer_without_acknowledgements_is_throttled_for_its_bytes_alone() -> None:
    edge = Edge()
    edge.answers = lambda context: None
    edge.work_s = 0.5
    edge.quota(producer_byte_rate=1000, request_percentage=0.001)
    edge.produce(100)
    assert edge.socket.is_read
    edge.produce(20_000)
    assert not edge.socket.is_read


def test_a_new_quota_is_in_force_for_the_next_request_and_a_removed_one_no_more() -> None:
    edge = Edge()
    edge.answers = answer
    edge.produce(10**6)
    assert not edge.throttling.is_active and edge.requests[0].usage is None
    edge.quota(producer_byte_rate=1000)
    edge.produce(20_000)
    assert edge.throttle_ms(ApiKey.PRODUCE, 9) == [0, 10_000]
    edge.clock.advance(10.0)
    edge.quota()
    assert not edge.throttling.is_active
    edge.produce(10**6)
    assert (edge.throttle_ms(ApiKey.PRODUCE, 9), edge.socket.is_read) == ([0], True)


def test_a_stored_value_that_is_no_number_is_not_in_force_and_the_others_are(caplog: Any) -> None:
    edge = Edge()
    edge.throttling.set_quotas(EVERYBODY, {"producer_byte_rate": "fast", "consumer_byte_rate": "10"})
    assert (edge.throttling.produce.shares.is_enabled, edge.throttling.fetch.shares.is_enabled) == (False, True)
    assert "producer_byte_rate: 'fast' is no whole number" in caplog.text


def test_a_throttle_and_a_full_queue_end_each_for_itself() -> None:
    edge = Edge()
    edge.answers = answer
    edge.quota(producer_byte_rate=1000)
    edge.produce(20_000)
    edge.connection.hold()
    edge.clock.advance(10.0)
    assert not edge.socket.is_read, "too many requests wait"
    edge.produce(10_000)
    edge.connection.release()
    assert (len(edge.requests), edge.socket.is_read) == (2, False), "it was read, and is throttled again"
    edge.connection.hold()
    edge.connection.release()
    assert not edge.socket.is_read
    edge.clock.advance(30.0)
    assert edge.socket.is_read


def test_a_request_that_waits_is_dispatched_while_the_queue_is_full() -> None:
    edge = Edge()
    edge.heartbeat()
    edge.heartbeat()
    edge.connection.hold()
    edge.requests[0].respond(HeartbeatResponse())
    assert (len(edge.requests), edge.socket.is_read) == (2, False)
    edge.requests[1].respond(HeartbeatResponse())
    assert not edge.socket.is_read
    edge.connection.release()
    assert edge.socket.is_read


def test_a_connection_that_closes_while_it_is_muted_is_left_alone() -> None:
    edge = Edge()
    edge.answers = answer
    edge.quota(producer_byte_rate=1000)
    edge.produce(20_000)
    edge.socket.is_closed = True
    edge.connection.on_close("")
    edge.clock.advance(100.0)
    assert not edge.socket.is_read


def test_the_windows_of_the_configuration_are_those_of_the_quotas() -> None:
    edge = Edge(quota_window_num="3", quota_window_size_seconds="5")
    edge.answers = answer
    edge.quota(producer_byte_rate=100)
    edge.produce(1000)
    edge.produce(100)
    assert edge.throttle_ms(ApiKey.PRODUCE, 9) == [0, 1000], "two whole samples of five seconds"


def test_metrics_of_a_client_appear_with_its_first_request_and_go_when_it_is_inactive() -> None:
    edge = Edge()
    edge.answers = answer
    edge.quota(QuotaEntity(client_id=DEFAULT), producer_byte_rate=1000)
    edge.produce(20_000)
    labels = {"user": "", "client_id": "c"}
    assert edge.value("kafka_server_produce_byte_rate", **labels) == 2000.0
    assert edge.value("kafka_server_produce_throttle_time", **labels) == 10_000.0
    edge.clock.advance(INACTIVE_S)
    assert edge.value("kafka_server_produce_byte_rate", **labels) is None


@pytest.mark.parametrize("listing", LISTED, ids=lambda one: one.api_key.name)
def test_a_throttle_time_does_not_keep_any_response_from_being_written(listing: Any) -> None:
    """Versions without the field leave it out: the client is throttled all the same."""
    module = codec.module(listing.api_key)
    kind = getattr(module, f"{codec.spec(listing.api_key).name}Response")
    for version in range(listing.lowest, listing.highest + 1):
        context: Any = SimpleNamespace(api_key=int(listing.api_key), principal_name="ANONYMOUS", client_id="c")
        usage, response = RequestUsage(), kind()
        usage.throttle_ms = 1234
        Edge().throttling.answer(context, usage, response)
        written = b"".join(bytes(one) for one in codec.frame_response(int(listing.api_key), version, 7, response))
        read = codec.read_response_frame(listing.api_key, version, memoryview(written)[4:])[1]
        assert getattr(read, "throttle_time_ms", 0) in (0, 1234)


class Handled:
    """A request whose handler asks for what it needs."""

    def __init__(self, client_id: str = "c") -> None:
        self.edge = Edge()
        self.context: Any = SimpleNamespace(
            api_key=int(ApiKey.CREATE_TOPICS), principal_name="ANONYMOUS", client_id=client_id, usage=None
        )


def test_a_strict_change_is_refused_with_the_throttle_time_and_a_permissive_one_is_throttled() -> None:
    handled = Handled()
    edge, context = handled.edge, handled.context
    edge.throttling.mutation_charge(context, is_strict=True)(10**6)
    assert context.usage is None, "without a quota nothing is counted"
    edge.quota(controller_mutation_rate=5.0)
    edge.throttling.mutation_charge(context, is_strict=True)(60)
    response = SimpleNamespace(throttle_time_ms=0)
    assert (edge.throttling.answer(context, context.usage, response), response.throttle_time_ms) == (0, 0)
    with pytest.raises(KafkaError) as refused:
        edge.throttling.mutation_charge(context, is_strict=True)(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (edge.throttling.answer(context, context.usage, response), response.throttle_time_ms) == (1000, 1000)
    edge.throttling.mutation_charge(context, is_strict=False)(5)
    assert edge.throttling.answer(context, context.usage, response) == 2000
    assert edge.value("kafka_server_controllermutation_tokens", user="ANONYMOUS", client_id="") == -10.0


def test_a_consumer_over_its_quota_gets_nothing_and_it_is_not_counted() -> None:
    handled = Handled()
    edge, context = handled.edge, handled.context
    edge.quota(consumer_byte_rate=100)
    assert edge.throttling.most_fetch_bytes(context) == 1000.0
    for size, is_throttled, throttle_ms in ((1000, False, 0), (500, True, 5000), (500, True, 5000)):
        context.usage = RequestUsage()
        assert edge.throttling.is_fetch_throttled(context, size) is is_throttled
        response = SimpleNamespace(throttle_time_ms=0)
        assert edge.throttling.answer(context, context.usage, response) == response.throttle_time_ms == throttle_ms


async def test_the_steps_of_a_handler_count_and_what_it_waits_for_does_not() -> None:
    clock, usage, gate = Clock(), RequestUsage(), asyncio.Event()

    async def handler() -> None:
        clock.now += 1.0
        await gate.wait()
        clock.now += 2.0
        try:
            await failing()
        except KeyError:
            clock.now += 4.0

    async def failing() -> None:
        await asyncio.sleep(0)
        raise KeyError

    task = asyncio.ensure_future(measured(handler(), usage, clock.monotonic))
    await asyncio.sleep(0)
    clock.now += 100.0
    gate.set()
    await task
    assert usage.take(clock.now) == 7.0


async def test_a_handler_that_is_cancelled_or_fails_ends_as_without_measuring() -> None:
    usage, clock = RequestUsage(), Clock()
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def failing() -> None:
        raise KeyError("x")

    task = asyncio.ensure_future(measured(endless(), usage, clock.monotonic))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(KeyError):
        await measured(failing(), usage, clock.monotonic)
    assert ended == ["cancelled"]
