"""One round: a broker on the simulated ports, its cases one after the other, and what is wrong with its answers.

Time is virtual, so a request may ask to wait for an hour, and the answer is awaited. The processor time and the memory
of a case are real.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from ottla_broker.ports.network import Connection
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.record import build_batch, build_records, decode_records
from simulation.client import Client
from simulation.cluster import CLIENT_PORT, SimulatedFleet
from simulation.network import SimulatedNetwork
from simulation.world import World
from tests.fuzz.drawing import TOPICS, Drawing, Known
from tests.fuzz.mutations import mutate, whole_frames

CASES_PER_ROUND = 500
CPU_LIMIT_S = 10.0
"""A case that computes for longer hangs the broker for everybody."""
MEMORY_LIMIT_KIB = 256 << 10
"""So much may the process grow at its largest within one case."""
ANSWER_WITHIN_S = 120.0
"""Virtual, on top of what the request itself asks for."""
LONGEST_WAIT_S = 3600.0
"""Virtual: whoever asked for a longer one closes the connection then. The broker's own tasks of a month take minutes of
processor time."""
_CHECK_EVERY = 50
_UNTOUCHED = "untouched"
"""The topic that no case names."""
_SETTINGS = {
    "ottla.client.metrics.max.series": "100",
    "log.retention.ms": "-1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "zookeeper.session.timeout.ms": "18000",
    "socket.request.max.bytes": "2000000",
}
_FRAME_LIMIT = int(_SETTINGS["socket.request.max.bytes"])
_START = struct.Struct(">hhi")
_FULL = 2


class HangError(BaseException):
    """A case computes for longer than CPU_LIMIT_S. No Exception: a handler that catches those must not survive it."""


@dataclass
class Finding:
    """What is wrong, and the case after which it was seen."""

    seed: int
    case: int
    what: str
    sent: bytes

    @property
    def kind(self) -> str:
        """Without what differs from case to case: many findings are of one kind."""
        return re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "#", self.what)[:120]

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, case {self.case}: {self.what}\n  sent {len(self.sent)} bytes: {self.sent[:300].hex()}"
        )


@dataclass
class Round:
    """How a round went."""

    seed: int
    cases: int = 0
    answered: int = 0
    closed: int = 0
    findings: list[Finding] = field(default_factory=list)


class _Peer:
    """The fuzzer's end of one connection."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.is_closed = False
        self._loop = loop
        self._changed: asyncio.Future[None] = loop.create_future()

    def on_frame(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self._wake()

    def on_sent(self) -> None:
        pass

    def on_close(self, reason: str) -> None:
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        if not self._changed.done():
            self._changed.set_result(None)

    async def until(self, frames: int, within_s: float) -> bool:
        """False when neither so many frames nor the end have come in time."""
        deadline = self._loop.time() + within_s
        while len(self.frames) < frames and not self.is_closed:
            self._changed = self._loop.create_future()
            timer = self._loop.call_at(deadline, self._wake)
            await self._changed
            timer.cancel()
            if self._loop.time() >= deadline and len(self.frames) < frames and not self.is_closed:
                return False
        return True


def run_round(seed: int, cases: int = CASES_PER_ROUND) -> Round:
    """Runs the cases of one seed. What is wrong is in `Round.findings`; the first hang or crash ends the round."""
    world = World(seed)
    world.loop.has_no_limit = True
    outcome = Round(seed)
    fuzzer = _Fuzzer(world, outcome)
    with _cpu_limit(), _errors_reported(fuzzer.report):
        try:
            world.run(fuzzer.run(cases))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            fuzzer.report(f"the round ended with {error!r}")
    world.discard()
    return outcome


class _Fuzzer:
    def __init__(self, world: World, outcome: Round) -> None:
        self._world = world
        self._outcome = outcome
        self._draw = world.stream("fuzz")
        self._known = Known()
        self._drawing = Drawing(self._draw, self._known)
        self._fleet = SimulatedFleet(world, 1, _SETTINGS)
        self._client = Client(world, self._fleet.fabric, "bystander", "10.1.0.1", self._fleet.bootstrap)
        self._network = SimulatedNetwork(self._fleet.fabric, world.machine("fuzzer", "10.1.0.2"))
        self._peer: _Peer | None = None
        self._sent = b""
        self._produced = 0
        self._problems = 0
        self._longest_wait_s = 0.0
        """Of the members of groups: it is for them that a SyncGroup waits."""

    def report(self, what: str) -> None:
        self._outcome.findings.append(Finding(self._outcome.seed, self._outcome.cases, what, self._sent))

    async def run(self, cases: int) -> None:
        await self._fleet.start()
        await self._create_topics()
        await self._check_bystander()
        for _ in range(cases):
            self._outcome.cases += 1
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._sent = self._next()
            signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await self._case(self._sent)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            if grown > MEMORY_LIMIT_KIB:
                self.report(f"the case took {grown >> 10} MiB")
            if self._outcome.cases % _CHECK_EVERY == 0:
                await self._check_bystander()
            self._take_problems()
        await self._check_bystander()
        if self._peer is not None:
            self._peer.connection.close()
        self._client.close()
        self._network.close()
        signal.setitimer(signal.ITIMER_PROF, 0)
        await asyncio.sleep(ANSWER_WITHIN_S)
        self._check_remains()
        self._take_problems()

    def _next(self) -> bytes:
        """What the next case sends."""
        while True:
            _, _, frame = self._drawing.frame()
            _, _, other = self._drawing.frame()
            sent = mutate(self._draw, frame, other)
            if not any(_deletes_everything(one) for one in whole_frames(sent, _FRAME_LIMIT)[0]):
                return sent

    def _take_problems(self) -> None:
        for problem in self._world.problems[self._problems :]:
            self.report(problem)
        self._problems = len(self._world.problems)

    async def _case(self, sent: bytes) -> None:
        frames, is_whole = whole_frames(sent, _FRAME_LIMIT)
        peer = await self._open()
        before = len(peer.frames)
        peer.connection.send([sent])
        expected = [one for one in frames if not _is_unanswered(one)]
        if is_whole:  # and one that is answered always, behind those that are not
            expected.append(_PING[4:])
            peer.connection.send([_PING])
        waits_s = sum(self._wait_of(one) for one in expected) + ANSWER_WITHIN_S
        if not await peer.until(before + len(expected), min(waits_s, LONGEST_WAIT_S)) and waits_s <= LONGEST_WAIT_S:
            names = [_name(one) for one in expected]
            self.report(f"{len(peer.frames) - before} answers to {names} within {waits_s:g} s, and no end")
        self._read_answers(peer.frames[before:], expected)
        if peer.is_closed:
            self._outcome.closed += 1
        else:
            self._outcome.answered += 1
        if not is_whole or len(peer.frames) - before != len(expected) or self._draw.random() < 0.05:
            peer.connection.close()
            self._peer = None

    async def _open(self) -> _Peer:
        """The connection of the last case, unless it has ended."""
        if self._peer is not None and not self._peer.is_closed:
            return self._peer
        peers: list[_Peer] = []

        def attach(connection: Connection) -> _Peer:
            peers.append(_Peer(connection, self._world.loop))
            return peers[0]

        host = self._fleet.brokers[0].host
        await self._network.connect(host, CLIENT_PORT, attach, timeout_s=30.0, max_frame_bytes=1 << 30)
        self._peer = peers[0]
        return self._peer

    def _wait_of(self, frame: bytes) -> float:
        """Seconds that a request itself lets the broker wait: the sum of its fields in milliseconds."""
        request = _request(frame)
        if request is None:
            return 0.0
        wait_s = sum(
            max(0, getattr(request, name)) / 1000 for name in getattr(request, "__slots__", ()) if name.endswith("_ms")
        )
        api_key = _START.unpack_from(frame)[0]
        if api_key == ApiKey.JOIN_GROUP:
            # Those before it in the group are waited for as long as they asked for.
            self._longest_wait_s = max(self._longest_wait_s, wait_s)
        return self._longest_wait_s if api_key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP) else wait_s

    def _read_answers(self, answers: list[bytes], expected: list[bytes]) -> None:
        if len(answers) > len(expected):
            self.report(f"{len(answers)} answers to {len(expected)} requests")
        for answer, request in zip(answers, expected, strict=False):
            api_key, version, correlation_id = _START.unpack_from(request)
            if (api_key == ApiKey.API_VERSIONS and version > 4) or version < 0:
                version = 0  # KIP-511
            try:
                found, response = codec.read_response_frame(api_key, version, memoryview(answer))
            except (codec.DecodeError, KeyError) as error:
                self.report(f"the answer to {_name(request)} is unreadable: {error!r}")
                continue
            if found != correlation_id:
                self.report(f"the answer to {_name(request)} has correlation id {found}, not {correlation_id}")
            if _has_unknown_error(response):
                self.report(f"UNKNOWN_SERVER_ERROR from {_name(request)}: {response!r:.300}")
            self._known.learn(response)

    def _check_remains(self) -> None:
        """What is left of the requests when all of them are over: nothing."""
        endpoints = self._fleet.fabric.endpoints.values()
        if found := sum(one.peer_host == self._network.host for one in endpoints):
            self.report(f"{found} connections remain")
        names = [task.get_name() for task in asyncio.all_tasks(self._world.loop) if not task.done()]
        if found := [name for name in names if "/request " in name or "fetch with conversion" in name]:
            self.report(f"tasks remain: {found}")
        broker = self._fleet.brokers[0]
        for path, image in broker.machine.disks.items():
            directories = image.root.entries
            open_files = [name for name in broker.open_files(path) if name.partition("/")[0] not in directories]
            if open_files:
                self.report(f"open files of directories that are gone: {open_files}")

    async def _create_topics(self) -> None:
        module = codec.module(ApiKey.CREATE_TOPICS)
        request = module.CreateTopicsRequest(
            topics=[
                module.CreatableTopic(
                    name=name,
                    num_partitions=2,
                    replication_factor=1,
                    configs=[module.CreatableTopicConfig(name="cleanup.policy", value="compact")]
                    if name == "compacted"
                    else [],
                )
                for name in (*TOPICS, _UNTOUCHED)
            ],
            timeout_ms=30_000,
        )
        answer = await self._client.request(self._client.bootstrap[0], ApiKey.CREATE_TOPICS, 7, request)
        assert not any(topic.error_code for topic in answer.topics), answer
        self._known.secret = {bytes(one.topic_id) for one in answer.topics if one.name == _UNTOUCHED}
        self._known.learn(answer)

    async def _check_bystander(self) -> None:
        """A produce and a fetch by somebody who does nothing wrong."""
        produce, fetch = codec.module(ApiKey.PRODUCE), codec.module(ApiKey.FETCH)
        address = self._client.bootstrap[0]
        value = b"%d" % self._produced
        records = bytes(build_batch(build_records([(None, value)], timestamp=1_700_000_000_000)))
        part = produce.PartitionProduceData(index=0, records=records)
        data = produce.TopicProduceData(name=_UNTOUCHED, partition_data=[part])
        request = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
        answer = await self._client.request(address, ApiKey.PRODUCE, 9, request, timeout_s=60.0)
        (placed,) = answer.responses[0].partition_responses
        if (placed.error_code, placed.base_offset) != (ErrorCode.NONE, self._produced):
            self.report(f"a produce by another client: {ErrorCode(placed.error_code).name}, {placed.base_offset}")
            return
        part = fetch.FetchPartition(partition=0, fetch_offset=self._produced, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[fetch.FetchTopic(topic=_UNTOUCHED, partitions=[part])],
        )
        answer = await self._client.request(address, ApiKey.FETCH, 12, request, timeout_s=60.0)
        (fetched,) = answer.responses[0].partitions
        values = [one.value for one in decode_records(fetched.records)] if fetched.records else []
        if fetched.error_code or values != [value]:
            self.report(f"a fetch by another client: {ErrorCode(fetched.error_code).name}, {values}, not {[value]}")
        self._produced += 1


def _request(frame: bytes, *api_keys: ApiKey) -> Any:
    """What the broker will read; None when it is unreadable, or of another API than these."""
    try:
        header = codec.read_request_header(memoryview(frame))
        if api_keys and header.api_key not in api_keys:
            return None
        return codec.module(header.api_key).read_request(header.api_version, memoryview(frame), header.body_offset)
    except (codec.DecodeError, KeyError):
        return None


def _is_unanswered(frame: bytes) -> bool:
    """A Produce with acks=0."""
    request = _request(frame, ApiKey.PRODUCE)
    return request is not None and request.acks == 0


def _deletes_everything(frame: bytes) -> bool:
    """A full request of the controller: a replica or a topic that it does not name is deleted, and that is right."""
    request = _request(frame, ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA)
    return request is not None and request.type == _FULL


def _name(frame: bytes) -> str:
    if len(frame) < _START.size:
        return "no request"
    api_key, version, _ = _START.unpack_from(frame)
    name = ApiKey(api_key).name if api_key in set(ApiKey) else str(api_key)
    return f"{name} v{version}"


def _has_unknown_error(response: Any) -> bool:
    for name in getattr(response, "__slots__", ()):
        value = getattr(response, name)
        if name.endswith("error_code") and value == ErrorCode.UNKNOWN_SERVER_ERROR:
            return True
        if isinstance(value, list):
            if any(_has_unknown_error(one) for one in value):
                return True
        elif hasattr(value, "__slots__") and _has_unknown_error(value):
            return True
    return False


def _ping() -> bytes:
    request = codec.module(ApiKey.API_VERSIONS).ApiVersionsRequest()
    return b"".join(bytes(one) for one in codec.frame_request(ApiKey.API_VERSIONS, 0, 7, "fuzz", request))  # type: ignore[arg-type]


_PING = _ping()


class _Errors(logging.Handler):
    def __init__(self, report: Any) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:  # the world reports those with one
            self._report(f"{record.name} logs: {record.getMessage()}")


@contextmanager
def _errors_reported(report: Any) -> Iterator[None]:
    handler = _Errors(report)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


@contextmanager
def _cpu_limit() -> Iterator[None]:
    previous = signal.signal(signal.SIGPROF, _on_alarm)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def _on_alarm(signum: int, frame: FrameType | None) -> None:
    raise HangError(f"a case computes for more than {CPU_LIMIT_S:g} s")
