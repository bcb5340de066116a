"""Members of consumer groups over bare sockets, many in one process, with the frames that Kafka's Java consumer sends.

A member has a connection of its own, as a JoinGroup that waits holds up whatever follows it on the same connection.
Nothing runs between two calls: the session timeout has to outlast the pauses. A leader assigns a partition to each
member.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from typing import Any, cast

import uvloop

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode

SESSION_TIMEOUT_MS = 1_800_000
"""The largest that the shipped configuration admits."""
_REBALANCE_TIMEOUT_MS = 300_000
_JOIN_VERSION, _SYNC_VERSION, _HEARTBEAT_VERSION, _FIND_VERSION = 9, 5, 4, 1
_TOPIC = "members"
_CONNECTS_AT_ONCE = 32
"""Fewer than the shipped socket.listen.backlog.size: Linux forgets a connection that finds a full backlog, and its
client takes it for open."""
_FORMING_INTERVAL_S = 3.0
_LIMIT_S = 300.0


class MemberFailed(RuntimeError):
    """A member got an error that a rebalance does not explain."""


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[memoryview] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another base class

    def data_received(self, data: bytes) -> None:
        self._received += data
        length = int.from_bytes(self._received[:4], "big") + 4
        if len(self._received) < max(length, 8) or self._answer is None:
            return
        frame = memoryview(bytes(self._received[4:length]))
        del self._received[:length]
        answer, self._answer = self._answer, None
        answer.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(MemberFailed("the broker closed the connection"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def ask(self, frame: bytes) -> asyncio.Future[memoryview]:
        """Sends a whole frame; a future of the response's frame without its length."""
        assert self._transport is not None and self._answer is None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return self._answer


def frame(api_key: ApiKey, version: int, message: object) -> bytes:
    """The bytes of a request."""
    return b"".join(bytes(chunk) for chunk in codec.frame_request(api_key, version, 1, "bench", message))  # type: ignore[arg-type]


def subscription(version: int) -> bytes:
    """What a consumer says when it joins (ConsumerProtocolSubscription 0): one topic, and user data of 4 bytes."""
    topic = _TOPIC.encode()
    user_data = version.to_bytes(4, "big")
    return b"\0\0" + (1).to_bytes(4, "big") + len(topic).to_bytes(2, "big") + topic + b"\0\0\0\4" + user_data


def assignment(partition: int) -> bytes:
    """What a leader assigns to a member (ConsumerProtocolAssignment 0): one partition, no user data."""
    topic = _TOPIC.encode()
    numbers = (1).to_bytes(4, "big") + partition.to_bytes(4, "big")
    return b"\0\0" + (1).to_bytes(4, "big") + len(topic).to_bytes(2, "big") + topic + numbers + b"\xff\xff\xff\xff"


class BenchMember:
    """A dynamic member, as KIP-394 has it: its first JoinGroup gets the member id that the second one carries."""

    def __init__(self, group_id: str, connection: Connection) -> None:
        self.group_id = group_id
        self.connection = connection
        self.member_id = ""
        self.assigned = b""
        self.generation_id = 0
        self._heartbeat = b""

    async def rebalance(self, version: int) -> None:
        """JoinGroup and SyncGroup, again as long as the group rebalances; `version` makes the subscription differ from
        the last one, without which a follower's JoinGroup begins no rebalance. Raises MemberFailed."""
        while True:
            joined = await self._join(version)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            self._check(joined.error_code, "JoinGroup")
            synced = await self._sync(joined)
            if synced.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                break
        self._check(synced.error_code, "SyncGroup")
        self.assigned = bytes(synced.assignment)
        self.generation_id = joined.generation_id
        module = codec.module(ApiKey.HEARTBEAT)
        message = module.HeartbeatRequest(
            group_id=self.group_id, generation_id=joined.generation_id, member_id=self.member_id
        )
        self._heartbeat = frame(ApiKey.HEARTBEAT, _HEARTBEAT_VERSION, message)

    async def heartbeat(self) -> float:
        """One heartbeat: seconds until its response. Raises MemberFailed."""
        asked = time.perf_counter()
        error_code = await self._beat()
        seconds = time.perf_counter() - asked
        self._check(error_code, "Heartbeat")
        return seconds

    async def must_rejoin(self) -> bool:
        """Whether the response to a heartbeat says that the group rebalances. Raises MemberFailed."""
        error_code = await self._beat()
        if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return True
        self._check(error_code, "Heartbeat")
        return False

    async def _beat(self) -> int:
        answer = await self.connection.ask(self._heartbeat)
        return int(codec.read_response_frame(ApiKey.HEARTBEAT, _HEARTBEAT_VERSION, answer)[1].error_code)

    async def _join(self, version: int) -> Any:
        module = codec.module(ApiKey.JOIN_GROUP)
        message = module.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[module.JoinGroupRequestProtocol(name="range", metadata=subscription(version))],
        )
        answer = await self.connection.ask(frame(ApiKey.JOIN_GROUP, _JOIN_VERSION, message))
        return codec.read_response_frame(ApiKey.JOIN_GROUP, _JOIN_VERSION, answer)[1]

    async def _sync(self, joined: Any) -> Any:
        module = codec.module(ApiKey.SYNC_GROUP)
        members = sorted(member.member_id for member in joined.members)
        message = module.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                module.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment(number))
                for number, member_id in enumerate(members)
            ],
        )
        answer = await self.connection.ask(frame(ApiKey.SYNC_GROUP, _SYNC_VERSION, message))
        return codec.read_response_frame(ApiKey.SYNC_GROUP, _SYNC_VERSION, answer)[1]

    def _check(self, error_code: int, request: str) -> None:
        if error_code:
            raise MemberFailed(f"{self.group_id}: {request}: {ErrorCode.of(error_code).name}")


class Members:
    """`groups` groups of `size` members on the broker at `port`; `close` ends their connections."""

    def __init__(self, port: int, groups: int, size: int) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._members: list[BenchMember] = []
        self._version = 0
        self._runner.run(self._connect(port, groups, size))

    def close(self) -> None:
        async def close() -> None:
            for member in self._members:
                member.connection.close()

        self._runner.run(close())
        self._runner.close()

    @property
    def assignments(self) -> dict[str, set[bytes]]:
        """What the members of each group have been assigned last."""
        found: dict[str, set[bytes]] = {}
        for member in self._members:
            found.setdefault(member.group_id, set()).add(member.assigned)
        return found

    def form(self) -> None:
        """All members join for the first time. One that comes after the initial rebalance delay begins another
        rebalance, of which the others learn from their heartbeats."""
        groups: dict[str, list[BenchMember]] = {}
        for member in self._members:
            groups.setdefault(member.group_id, []).append(member)

        def is_formed(group: list[BenchMember]) -> bool:
            generations = {member.generation_id for member in group}
            return len(generations) == 1 and 0 not in generations

        async def join(member: BenchMember) -> None:
            await member.rebalance(self._version)
            while not is_formed(groups[member.group_id]):
                await asyncio.sleep(_FORMING_INTERVAL_S)
                if await member.must_rejoin():
                    await member.rebalance(self._version)

        self._runner.run(_all(join(member) for member in self._members))

    def rebalance(self) -> float:
        """All members of all groups join again with another subscription: seconds until each is assigned."""
        self._version += 1
        started = time.perf_counter()
        self._runner.run(_all(member.rebalance(self._version) for member in self._members))
        return time.perf_counter() - started

    def heartbeats(self, interval_s: float, count: int) -> list[float]:
        """Each member sends `count` heartbeats, one an interval, evenly spread: how long each took, in seconds."""
        found: list[float] = []

        async def beat(member: BenchMember, delay_s: float) -> None:
            loop = asyncio.get_running_loop()
            due = loop.time() + delay_s
            for _ in range(count):
                await asyncio.sleep(due - loop.time())
                found.append(await member.heartbeat())
                due += interval_s

        step_s = interval_s / len(self._members)
        self._runner.run(_all(beat(member, number * step_s) for number, member in enumerate(self._members)))
        return found

    async def _connect(self, port: int, groups: int, size: int) -> None:
        loop = asyncio.get_running_loop()
        turns = asyncio.Semaphore(_CONNECTS_AT_ONCE)

        async def connect(group_id: str) -> None:
            async with turns:
                _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
            self._members.append(BenchMember(group_id, connection))

        await _all(connect(f"group-{number % groups}") for number in range(groups * size))
        await _until_coordinated(self._members[0])


async def _until_coordinated(member: BenchMember) -> None:
    """Returns when the broker has made `__consumer_offsets` and answers FindCoordinator for the group."""
    module = codec.module(ApiKey.FIND_COORDINATOR)
    message = module.FindCoordinatorRequest(key=member.group_id, key_type=0)

    async def is_coordinated() -> bool:
        answer = await member.connection.ask(frame(ApiKey.FIND_COORDINATOR, _FIND_VERSION, message))
        found = codec.read_response_frame(ApiKey.FIND_COORDINATOR, _FIND_VERSION, answer)[1]
        return bool(found.error_code == ErrorCode.NONE)

    async with asyncio.timeout(_LIMIT_S):
        while not await is_coordinated():  # noqa: ASYNC110 - a broker can only be asked again
            await asyncio.sleep(0.1)


async def _all(coroutines: Iterable[Awaitable[None]]) -> None:
    async with asyncio.timeout(_LIMIT_S):
        await asyncio.gather(*coroutines)
