"""FetchSessions: the incremental fetch sessions that this broker keeps for its clients (KIP-227).

Lives here: which session a request means, how epochs go on, who has to make room when the cache is full. Not here:
what a session has sent and what is new in its partitions (`handlers.session_fetch`), the side that asks
(`replication.leader_session`). Pure: milliseconds come in, random ids come from a function.

A session spares its client to name partitions whose position has not changed, and the broker to answer partitions
about which there is nothing to say. The walk of one:

    (id 0, epoch 0)   a full request; the answer names every partition and a new id, or 0: no session
    (id x, epoch 1)   names the partitions that moved, were added or are forgotten; the answer only what is new
    (id x, epoch 2)   and so on; behind 2^31-1 comes 1
    (id x, epoch -1)  closes it; (id x, epoch 0) closes it and asks for another

When the cache is full, a newcomer takes the place of the session that was used longest ago, if that is more than
min.incremental.fetch.session.eviction.ms; else of the least valuable one, if the newcomer is worth more. Followers'
sessions are worth more than consumers', then larger ones more than smaller ones. A session younger than that time is
only given up for a follower's, and only if it is a consumer's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla_broker.metrics import Metrics
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.replication.leader_session import INITIAL_EPOCH, LARGEST_EPOCH, NO_SESSION, next_epoch

MIN_EVICTION_MS = 120_000
"""min.incremental.fetch.session.eviction.ms; Kafka offers no configuration for it either."""


class Content(Protocol):
    """What a session is about; the cache wants to know how many partitions that are."""

    def __len__(self) -> int: ...

    def close(self) -> None:
        """The session is closed or evicted; called once."""
        ...


C = TypeVar("C", bound=Content)


class _Worth(NamedTuple):
    """The order in which sessions are given up, the least worth first."""

    is_privileged: bool
    size: int
    session_id: int


class FetchSession(Generic[C]):
    """One session. A follower's is privileged. `epoch` is that of its next request."""

    def __init__(self, session_id: int, content: C, *, is_privileged: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.content = content
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self._size = len(content)
        self._is_old = False

    @property
    def _worth(self) -> _Worth:
        return _Worth(self.is_privileged, self._size, self.session_id)


class FetchSessions(Generic[C]):
    """The cache: at most `slots` (max.incremental.fetch.session.cache.slots) sessions.

    `draw(n)` gives a random number from 0 to n - 1.
    """

    def __init__(
        self, slots: int, draw: Callable[[int], int], metrics: Metrics, *, eviction_ms: int = MIN_EVICTION_MS
    ) -> None:
        self._slots = slots
        self._draw = draw
        self._eviction_ms = eviction_ms
        self._sessions: OrderedDict[int, FetchSession[C]] = OrderedDict()
        """By id, the one that was used longest ago first."""
        self._open_to_all: list[_Worth] = []
        """Those old enough to make room for any session that is worth more, the least worth first."""
        self._open_to_followers: list[_Worth] = []
        """Those, and every consumer's."""
        self._partition_count = 0
        self._evictions = metrics.counter(
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictions",
            "Incremental fetch sessions that made room for others.",
        )
        metrics.gauge(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "Incremental fetch sessions kept.",
            lambda: len(self._sessions),
        )
        metrics.gauge(
            "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
            "Partitions of the incremental fetch sessions.",
            lambda: self._partition_count,
        )

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions of all sessions, as of their last requests."""
        return self._partition_count

    def open(
        self, size: int, content: Callable[[], C], *, is_privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession[C] | None:
        """A new session of `size` partitions, or None: there is no room. `content` is called when there is."""
        if len(self._sessions) >= self._slots and not self._make_room(_Worth(is_privileged, size, NO_SESSION), now_ms):
            return None
        session_id = self._new_id()
        session = FetchSession(
            session_id, content(), is_privileged=is_privileged, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        self._sessions[session_id] = session
        self._partition_count += session._size
        if not is_privileged:
            insort(self._open_to_followers, session._worth)
        return session

    def find(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession[C] | ErrorCode:
        """The session that an incremental request goes on with.

        In this order: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR (it was
        opened with topic names and goes on with topic ids, or the other way round).
        """
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def go_on(self, session: FetchSession[C], now_ms: int) -> None:
        """A request of the session's epoch has been taken in, and the content changed accordingly."""
        self._sessions.move_to_end(session.session_id)
        session.last_used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        size = len(session.content)
        is_old = now_ms - session.created_ms > self._eviction_ms
        if size == session._size and is_old == session._is_old:
            return
        self._take_out(session)
        session._size = size
        session._is_old = is_old
        self._partition_count += size
        if is_old:
            insort(self._open_to_all, session._worth)
        if is_old or not session.is_privileged:
            insort(self._open_to_followers, session._worth)

    def close(self, session_id: int) -> bool:
        """Forgets a session; False when there is none of this id."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        self._take_out(session)
        session.content.close()
        return True

    def _make_room(self, newcomer: _Worth, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            evicted = oldest.session_id
        else:
            candidates = self._open_to_followers if newcomer.is_privileged else self._open_to_all
            if not candidates or newcomer < candidates[0]:
                return False
            evicted = candidates[0].session_id
        self.close(evicted)
        self._evictions.inc()
        return True

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self._draw(LARGEST_EPOCH)
            if session_id not in self._sessions:
                return session_id

    def _take_out(self, session: FetchSession[C]) -> None:
        self._partition_count -= session._size
        worth = session._worth
        for candidates in (self._open_to_all, self._open_to_followers):
            position = bisect_left(candidates, worth)
            if position < len(candidates) and candidates[position] == worth:
                del candidates[position]
