"""Fetcher: the task that fetches from one leader (KIP-101, KIP-279, KIP-595). Source: AbstractFetcherThread.

Lives here: which partitions a request names, its fetch session, pauses after errors and under a quota. Not here: what
is done with a partition's response (`follower`), which fetcher has which partition (`fetchers`), what the leader knows
of our session (`leader_session`). On the calling side of Clock; connections are given.

Each fetcher has a connection and a fetch session of its own, and one request in flight. A partition is left out of it
while its last records are being written (the next fetch offset acknowledges them), while it is truncating, and for
replica.fetch.backoff.ms after an error; so a slow directory delays its own partitions, not the others.

The cost of a request is what has changed since the one before, not the number of partitions: only followers that got a
response, or notified the fetcher, are looked at. What no follower notices (retention moves a log's start) is found
every `SWEEP_S`. Thousands of followers join a session in several requests: the leader, and this broker with the
response, do other work in between. Where thousands have moved, they are looked at in slices, and so is the response. A
follower may come and go between two slices, so each is looked up again behind one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ottla_broker.config import BrokerConfig
from ottla_broker.config.inter_broker import InterBrokerVersions
from ottla_broker.metadata.cache import BrokerEndpoint, MetadataCache
from ottla_broker.metrics import Counter
from ottla_broker.ports import Clock
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import FetchPartition, FetchRequest, ReplicaState
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.fetch_client import ConnectToBroker, LeaderConnection
from ottla_broker.replication.follower import Follower, backoff_s
from ottla_broker.replication.leader_session import NO_SESSION, SESSION_ERRORS, LeaderSession
from ottla_broker.replication.partition import CONSUMER, Logger
from ottla_broker.replication.quotas import ReplicationQuotas

SETTLE_S = 0.05
"""How long a round waits for partitions whose writes are under way before it goes on without them."""

QUOTA_POLL_S = (0.01, 1.0)
"""Shortest and longest wait for room under a quota: a changed rate is noticed after the latter."""

NAMED_PARTITIONS = 20
"""In a line of the log about an error: a leader that leaves returns one for each of its partitions."""

JOINING = 500
"""How many followers join a session with one request."""

SLICE = 50
"""Partitions that are looked at, or appended to, before the loop does other work: about 2 ms."""

SWEEP_S = 1.0
"""How often all followers of a session are held against what the leader holds of them."""

_FIRST_VERSION_WITH_IDS = 13
_VERSION_WITH_NAMES = 12


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """What every fetcher of a broker needs.

    Args:
        broker_epoch: the epoch of this broker's registration.
        connect: makes a connection to a host and port.
        listener: the inter-broker listener.
        versions: the request versions of inter.broker.protocol.version.
        bytes_in: counts the bytes fetched from leaders.
    """

    broker_id: int
    config: BrokerConfig
    clock: Clock
    metadata: MetadataCache
    broker_epoch: Callable[[], int]
    connect: ConnectToBroker
    listener: str
    logger: Logger
    quotas: ReplicationQuotas
    versions: InterBrokerVersions
    bytes_in: Counter


class _Plan(NamedTuple):
    """Who can be fetched now; who stays in the session unasked for; who else will be ready in a moment."""

    ready: list[Follower]
    staying: int
    is_busy: bool
    is_hurried: bool


class Fetcher:
    """Fetches from one leader. The task lives until `close`."""

    def __init__(self, context: FetcherContext, leader_id: int, number: int) -> None:
        self._context = context
        self._clock = context.clock
        self._leader_id = leader_id
        self._followers: dict[Follower, None] = {}
        self._moved: dict[Follower, None] = {}
        """Those whose position the leader may not know."""
        self._session: LeaderSession[Follower] = LeaderSession()
        self._session_errors = 0
        self._is_without_session = False
        """The leader has given no session: each request has to name everybody."""
        self._swept_at = context.clock.monotonic()
        self._client: LeaderConnection | None = None
        self._endpoint: BrokerEndpoint | None = None
        self._changed = asyncio.Event()
        self._is_closed = False
        self._is_settled = False
        self._failures = 0
        config = context.config
        self._longest_backoff_s: float = config.replica_fetch_backoff_ms / 1000
        self._request_timeout_s: float = config.replica_socket_timeout_ms / 1000
        self._partition_max_bytes: int = config.replica_fetch_max_bytes
        self._version = context.versions.fetch
        self._request = FetchRequest(
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
        )
        self._max_wait_ms: int = config.replica_fetch_wait_max_ms
        self._bytes_in: Counter = context.bytes_in
        self._quota = context.quotas.follower
        self._is_quota_exceeded = False
        """At the last look, which holds for the request that follows it."""
        self._held_back = 0
        """Followers that the last look left out because of it."""
        self._task = self._clock.spawn(self._run(), name=f"fetcher {number} of broker {leader_id}")

    @property
    def is_empty(self) -> bool:
        return not self._followers

    @property
    def session_id(self) -> int:
        """The id of the session that the leader has given, 0: none."""
        return self._session.session_id

    def add(self, follower: Follower) -> None:
        self._followers[follower] = None
        self._session.join(follower)
        follower.start(partial(self._notice, follower))
        self._notice(follower)

    def remove(self, follower: Follower) -> None:
        self._followers.pop(follower, None)
        self._moved.pop(follower, None)
        self._session.leave(follower)

    def on_metadata_changed(self) -> None:
        endpoint = self._context.metadata.endpoint(self._leader_id, self._context.listener)
        if endpoint != self._endpoint and self._client is not None:
            self._client.close()
        self._changed.set()

    def close(self) -> None:
        self._is_closed = True
        self._task.cancel()
        if self._client is not None:
            self._client.close()
            self._client = None

    def _notice(self, follower: Follower) -> None:
        if follower in self._followers:
            self._moved[follower] = None
        self._changed.set()

    async def _run(self) -> None:
        while not self._is_closed:
            self._changed.clear()
            plan = await self._plan()
            if not plan.ready and not plan.staying:
                await self._wait_for_change()
                continue
            if plan.is_busy and await self._settle():
                continue
            try:
                client = await self._connected()
                if client is None:
                    await self._changed.wait()
                    continue
                asking = [follower for follower in plan.ready if follower.needs_leader_high_watermark]
                for follower in asking:
                    follower.fetch_leader_high_watermark(client)
                if not asking:
                    await self._round(client, plan)
            except OSError as error:
                # A leader that is down is logged once, not at every attempt.
                level = logging.DEBUG if self._failures else logging.INFO
                self._context.logger.log(level, "fetching from broker %d failed: %s", self._leader_id, error)
                await self._pause()
            except Exception:
                # Whatever it was, its partitions must not be left behind for good.
                self._context.logger.exception("fetching from broker %d failed", self._leader_id)
                await self._pause()

    async def _wait_for_change(self) -> None:
        """Until somebody can be fetched, or the quota may have room again for those that it holds back."""
        if not self._held_back:
            await self._changed.wait()
            return
        shortest, longest = QUOTA_POLL_S
        timer = self._clock.call_later(max(shortest, min(longest, self._quota.wait_s())), self._changed.set)
        await self._changed.wait()
        timer.cancel()

    async def _pause(self) -> None:
        self._session.renew()
        self._failures += 1
        await self._clock.sleep(backoff_s(self._failures, self._longest_backoff_s))

    async def _plan(self) -> _Plan:
        session = self._session
        if not session.is_full:
            await self._sweep()
        ready = []
        is_busy = is_hurried = False
        staying = 0 if session.is_full else len(session)
        self._is_quota_exceeded = self._quota.is_exceeded
        self._held_back = 0
        async for follower in self._each(self._followers if session.is_full else self._moved):
            if self._is_ready(follower):
                ready.append(follower)
                continue
            self._held_back += follower.is_ready
            is_busy = is_busy or follower.is_busy
            is_hurried = is_hurried or follower.is_in_short_backoff
            if staying and session.holds(follower):
                staying -= 1
        return _Plan(ready, staying, is_busy, is_busy or is_hurried)

    async def _each(self, followers: Iterable[Follower]) -> AsyncIterator[Follower]:
        """The partitions that are still followed when it is their turn, in slices with turns between them."""
        for number, follower in enumerate(list(followers), 1):
            if not number % SLICE:
                await self._clock.sleep(0)
            if follower in self._followers:
                yield follower

    def _is_ready(self, follower: Follower) -> bool:
        return follower.is_ready and not (self._is_quota_exceeded and follower.can_be_throttled)

    async def _sweep(self) -> None:
        now = self._clock.monotonic()
        if now - self._swept_at < SWEEP_S:
            return
        self._swept_at = now
        session = self._session
        async for follower in self._each(self._followers):
            if follower not in self._moved and not session.has_position(
                follower, follower.request_part(self._partition_max_bytes)
            ):
                self._moved[follower] = None
        if not session.uses_topic_ids and self._can_use_topic_ids(self._followers):
            session.renew()

    def _can_use_topic_ids(self, followers: Iterable[Follower]) -> bool:
        """A topic without an id (made before 2.8) can only be asked for by name."""
        return self._version >= _FIRST_VERSION_WITH_IDS and all(
            follower.topic_id != ZERO_UUID for follower in followers
        )

    async def _settle(self) -> bool:
        """Waits a moment for writes; True when something changed."""
        timer = self._clock.call_later(SETTLE_S, self._settled)
        self._is_settled = False
        await self._changed.wait()
        timer.cancel()
        return not self._is_settled

    def _settled(self) -> None:
        self._is_settled = True
        self._changed.set()

    async def _connected(self) -> LeaderConnection | None:
        """A connection, or None while the leader has no address."""
        endpoint = self._context.metadata.endpoint(self._leader_id, self._context.listener)
        if endpoint is None:
            return None
        if self._client is None or endpoint != self._endpoint:
            if self._client is not None:
                self._client.close()
            self._client = self._context.connect(endpoint.host, endpoint.port)
            self._endpoint = endpoint
        if not self._client.is_connected:
            self._session.renew()
            await self._client.connect()
        return self._client

    async def _round(self, client: LeaderConnection, plan: _Plan) -> None:
        """One request and its answer."""
        session = self._session
        version = await self._ask(is_hurried=plan.is_hurried)
        if version is None:
            return
        response = await client.send(int(ApiKey.FETCH), version, self._request, timeout_s=self._request_timeout_s)
        if response.error_code:
            self._on_error(ErrorCode.of(response.error_code))
            return
        self._failures = self._session_errors = 0
        session.on_answer(response.session_id)
        self._is_without_session = session.session_id == NO_SESSION
        errors = await self._process(response, client)
        for code, partitions in errors.items():
            named = ", ".join(map(str, partitions[:NAMED_PARTITIONS]))
            more = f" and {len(partitions) - NAMED_PARTITIONS} more" if len(partitions) > NAMED_PARTITIONS else ""
            text = "broker %d returns %s for %s%s"
            self._context.logger.info(text, self._leader_id, ErrorCode.of(code).name, named, more)

    async def _process(self, response: Any, client: LeaderConnection) -> dict[int, list[TopicPartition]]:
        """Hands the partitions of an answer to their followers, in slices between which the loop does other work.

        Returns: the partitions with an error, by error code.
        """
        by_id = self._session.uses_topic_ids
        errors: dict[int, list[TopicPartition]] = {}
        done = 0
        for topic in response.responses:
            name = topic.topic_id if by_id else topic.topic
            for data in topic.partitions:
                done += 1
                if not done % SLICE:
                    await self._clock.sleep(0)
                found = self._session.holder((name, data.partition_index))
                if found is not None and found in self._followers:
                    self._moved[found] = None
                    if data.error_code:
                        errors.setdefault(data.error_code, []).append(found.partition.topic_partition)
                    size = found.process_partition_data(data, client)
                    self._bytes_in.inc(size)
                    if size:
                        self._count(found, size)
        return errors

    def _count(self, follower: Follower, size: int) -> None:
        if self._context.broker_id in follower.partition.adding:
            self._context.quotas.reassigned_in.inc(size)
        if follower.is_throttled:
            self._quota.record(size)

    async def _ask(self, *, is_hurried: bool) -> int | None:
        """Fills the request in; gives its version, or None when the session has to begin again meanwhile."""
        context, request, session = self._context, self._request, self._session
        is_full = session.is_full
        candidates = list(self._followers if is_full else self._moved)
        ready = [follower async for follower in self._each(candidates) if self._is_ready(follower)]
        if session.is_full is not is_full:
            return None
        if is_full:
            session.uses_topic_ids = self._can_use_topic_ids(ready)
        version = self._version if session.uses_topic_ids else min(self._version, _VERSION_WITH_NAMES)
        ready, later = self._divide(ready)
        parts: dict[Follower, FetchPartition] = {}
        async for follower in self._each(ready):
            if self._is_ready(follower):
                parts[follower] = follower.request_part(self._partition_max_bytes)
                self._moved.pop(follower, None)  # what moves it from here on is for the next request
        if session.is_full is not is_full:
            return None
        for follower in candidates:
            if follower in self._followers and follower not in parts:
                self._moved[follower] = None
                session.leave(follower)
        request.session_id, request.session_epoch = session.session_id, session.epoch
        request.topics, request.forgotten_topics_data = session.question(
            pair for pair in parts.items() if pair[0] in self._followers
        )
        request.max_wait_ms = min(self._max_wait_ms, int(SETTLE_S * 1000)) if is_hurried else self._max_wait_ms
        if later:
            request.max_wait_ms = 0
        if version >= 15:
            request.replica_id = CONSUMER
            request.replica_state = ReplicaState(replica_id=context.broker_id, replica_epoch=context.broker_epoch())
        else:
            request.replica_id = context.broker_id
            request.replica_state = None
        return version

    def _divide(self, ready: list[Follower]) -> tuple[list[Follower], list[Follower]]:
        """Who is asked for now, and who joins the session with a later request."""
        session = self._session
        if len(ready) <= JOINING or self._is_without_session:
            return ready, []
        # The session has the old position of those that it holds, and would send the same again.
        held = [] if session.is_full else [follower for follower in ready if session.holds(follower)]
        joining = ready if session.is_full else [follower for follower in ready if not session.holds(follower)]
        return held + joining[:JOINING], joining[JOINING:]

    def _on_error(self, error: ErrorCode) -> None:
        """The whole request was refused. A session that the leader has lost is replaced at once, the second time in
        a row after a pause."""
        self._session_errors += 1
        if error not in SESSION_ERRORS or self._session_errors > 1:
            raise ConnectionError(f"the leader answered {error.name}")
        self._context.logger.info("fetch session with broker %d: %s, starting a new one", self._leader_id, error.name)
        self._session.on_error(error)
