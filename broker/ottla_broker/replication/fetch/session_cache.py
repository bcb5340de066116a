"""FetchSessionCache: the incremental fetch sessions of this broker's clients (KIP-227).

Lives here: which session a request names, its next epoch, and which session is evicted when the cache is full. Not
here: what a session's client has received (`session_fetch_state`), the client's side (`replication.leader_session`).
Pure: milliseconds come in, random ids come from a function.

With a session a client names only partitions whose position has changed, and the broker answers only those that have
something new. One session, request by request:

    (id 0, epoch 0)   a full request; the result names every partition and a new id, or 0: no session
    (id x, epoch 1)   names partitions that have another position, are added or are forgotten; the result has the news
    (id x, epoch 2)   and so on; after 2^31-1 comes 1
    (id x, epoch -1)  closes it; (id x, epoch 0) closes it and asks for another

When the cache is full, a new session evicts the least recently used one, if that was not used for
min.incremental.fetch.session.eviction.ms; else the one of the lowest rank, if the new one has a higher rank.
Followers' sessions rank above consumers', then larger ones above smaller ones. A session younger than that time is
evicted only by a follower's, and only if it is a consumer's.

Source: kafka.server.FetchSessionCache.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla_broker.metrics import Metrics
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.replication.leader_session import FINAL_EPOCH, INITIAL_EPOCH, LARGEST_EPOCH, NO_SESSION, next_epoch

MIN_EVICTION_MS = 120_000
"""min.incremental.fetch.session.eviction.ms; Kafka offers no configuration for it either."""


class SessionContent(Protocol):
    """The partitions of a session; its length is their number."""

    def __len__(self) -> int: ...

    def close(self) -> None:
        """The session is closed or evicted; called once."""
        ...


C = TypeVar("C", bound=SessionContent)


class _EvictionRank(NamedTuple):
    """Orders sessions by their value; the lowest is evicted first."""

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
    def _rank(self) -> _EvictionRank:
        return _EvictionRank(self.is_privileged, self._size, self.session_id)


class FetchSessionCache(Generic[C]):
    """At most `slots` (max.incremental.fetch.session.cache.slots) sessions.

    `random_below(n)` gives a random number from 0 to n - 1.
    """

    def __init__(
        self, slots: int, random_below: Callable[[int], int], metrics: Metrics, *, eviction_ms: int = MIN_EVICTION_MS
    ) -> None:
        self._slots = slots
        self._random_below = random_below
        self._eviction_ms = eviction_ms
        self._sessions: OrderedDict[int, FetchSession[C]] = OrderedDict()
        """By id, the least recently used first."""
        self._evictable_by_all: list[_EvictionRank] = []
        """Those that are old enough for any session of a higher rank, the lowest first."""
        self._evictable_by_followers: list[_EvictionRank] = []
        """Those, and every consumer's."""
        self._partition_count = 0
        self._evictions = metrics.counter(
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictions",
            "Incremental fetch sessions that were evicted for others.",
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
        self, size: int, content: Callable[[int], C], *, is_privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession[C] | None:
        """A new session of `size` partitions, or None: there is no room. `content` gets its id when there is."""
        if len(self._sessions) >= self._slots and not self._make_room(
            _EvictionRank(is_privileged, size, NO_SESSION), now_ms
        ):
            return None
        session_id = self._new_id()
        session = FetchSession(
            session_id, content(session_id), is_privileged=is_privileged, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        self._sessions[session_id] = session
        self._partition_count += session._size
        if not is_privileged:
            insort(self._evictable_by_followers, session._rank)
        return session

    def get(self, session_id: int) -> FetchSession[C] | None:
        """The session of this id, whatever its epoch."""
        return self._sessions.get(session_id)

    def find(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession[C] | ErrorCode:
        """The session that an incremental request continues.

        In this order: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR (it was
        opened with topic names and continues with topic ids, or the other way round).
        """
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def advance(self, session: FetchSession[C], now_ms: int) -> None:
        """A request of the session's epoch was accepted, and has changed the content."""
        self._sessions.move_to_end(session.session_id)
        session.last_used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        size = len(session.content)
        is_old = now_ms - session.created_ms > self._eviction_ms
        if size == session._size and is_old == session._is_old:
            return
        self._unrank(session)
        session._size = size
        session._is_old = is_old
        self._partition_count += size
        if is_old:
            insort(self._evictable_by_all, session._rank)
        if is_old or not session.is_privileged:
            insort(self._evictable_by_followers, session._rank)

    @contextmanager
    def taken(self, session: FetchSession[C]) -> Iterator[None]:
        """While a request changes the content in turns, no other one continues the session."""
        epoch, session.epoch = session.epoch, FINAL_EPOCH  # no request continues a session with it
        try:
            yield
        finally:
            session.epoch = epoch

    def close(self, session_id: int) -> bool:
        """Removes a session; False when there is none of this id."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        self._unrank(session)
        session.content.close()
        return True

    def _make_room(self, newcomer: _EvictionRank, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            evicted = oldest.session_id
        else:
            candidates = self._evictable_by_followers if newcomer.is_privileged else self._evictable_by_all
            if not candidates or newcomer < candidates[0]:
                return False
            evicted = candidates[0].session_id
        self.close(evicted)
        self._evictions.inc()
        return True

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self._random_below(LARGEST_EPOCH)
            if session_id not in self._sessions:
                return session_id

    def _unrank(self, session: FetchSession[C]) -> None:
        self._partition_count -= session._size
        rank = session._rank
        for candidates in (self._evictable_by_all, self._evictable_by_followers):
            position = bisect_left(candidates, rank)
            if position < len(candidates) and candidates[position] == rank:
                del candidates[position]
