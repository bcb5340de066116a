"""Fetch within an incremental session (KIP-227).

Lives here: what a session's client has been told, which partitions may have news for it, and the two fetches of a
session: the one that opens it and those that go on with it. Not here: ids, epochs and eviction
(`server.fetch_sessions`), errors and reading (`fetch`).

Behaviour
    An incremental answer names a partition only with records, an error, a diverging epoch, a preferred replica, or
    when its high watermark or log start offset is another than last told. After an error the next state is told in
    any case, and so it is when a partition is named with another leader epoch: whoever follows in that epoch has begun
    anew, and may have left aside what the one before was told. A partition that had records goes behind the others, so
    that under max_bytes each has its turn. A request that leaves no partition closes the session and is answered
    without one. A request that comes while another of its session waits (over a second connection) takes its place;
    the former gets INVALID_FETCH_SESSION_EPOCH.

What a fetch costs depends on what has changed, not on the partitions of its session. Each partition of a session stands
among the waiters of its replica, but for the time from the first news to the next request. One is *active* when its
client named it in the request, when something happened to its replica, or while there is more to say; only active ones
are looked at. When there is nothing to say of it, it comes to rest. For what wakes nobody (retention moves a log's
start), all are looked at in turns, each at least every `SWEEP_MS` of a session that is used.

A follower that rests at its leader's end acknowledges that end with each fetch, without being looked at: the time of
the session's last fetch is noted for it when it becomes active again, and whoever is not in the ISR never rests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from ottla_broker.metrics import Metrics
from ottla_broker.ports.disk import FileRange
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla_broker.replication.delayed import TimerWheel
from ottla_broker.replication.fetch.session_cache import FetchSession, FetchSessions
from ottla_broker.replication.leader_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Key
from ottla_broker.replication.partition import Partition, Waiter
from ottla_broker.server.context import RequestContext, Services
from ottla_broker.server.handlers.fetch import Fetching, Item

SWEEP_MS = 2000

_FIRST_VERSION_WITH_IDS = 13


class SessionFetches:
    """The sessions of a broker; the fetch handler's way in.

    `slots` is max.incremental.fetch.session.cache.slots, `draw(n)` gives a random number from 0 to n - 1.
    """

    def __init__(self, slots: int, draw: Callable[[int], int], metrics: Metrics) -> None:
        self.sessions: FetchSessions[Ledger] = FetchSessions(slots, draw, metrics)

    def begin(self, services: Services, context: RequestContext, request: Any, respond: Callable[[Any], None]) -> None:
        """A fetch that names a session or asks for one."""
        sessions = self.sessions
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            sessions.close(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                Fetching(services, context, request, respond).begin()
            else:
                _OpeningFetch(services, context, request, respond, sessions).begin()
            return
        by_id = context.api_version >= _FIRST_VERSION_WITH_IDS
        found = sessions.find(request.session_id, request.session_epoch, uses_topic_ids=by_id)
        if not isinstance(found, ErrorCode) and found.content.replica_id != _replica_id(request):
            found = ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # somebody else's
        if isinstance(found, ErrorCode):
            respond(FetchResponse(error_code=int(found)))
            return
        ledger = found.content
        ledger.update(request, by_id)
        if not len(ledger):
            sessions.close(found.session_id)
            Fetching(services, context, request, respond).begin()
            return
        sessions.go_on(found, services.replica_manager.now_ms())
        _IncrementalFetch(services, context, request, respond, found).begin()


class SessionItem(Item):
    """A partition of a session; the `Waiter` of its replica.

    `sent_high_watermark` and `sent_log_start` are what the client was told last, -1 when it has to be told anew.
    """

    __slots__ = ("is_woken", "key", "ledger", "sent_high_watermark", "sent_log_start")

    def __init__(self, ledger: Ledger, key: Key, topic: str, asked: Any) -> None:
        super().__init__(topic, asked)
        self.ledger = ledger
        self.key = key
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.is_woken = False

    def on_progress(self) -> None:
        self.ledger.on_progress(self)

    def park(self) -> None:
        """Nobody wants to hear more of it until the next request, which may never come: no append is to pay for it."""
        self.is_woken = True
        assert self.partition is not None
        for waiters in self.ledger.waiters_of(self.partition):
            waiters.pop(self, None)

    def return_to_waiters(self) -> None:
        self.is_woken = False
        if self.partition is not None:
            for waiters in self.ledger.waiters_of(self.partition):
                waiters[self] = None

    def attach(self, partition: Partition) -> None:
        if self.partition is partition:
            return
        self.detach()
        self.partition = partition
        for waiters in self.ledger.waiters_of(partition):
            waiters[self] = None

    def detach(self) -> None:
        if self.partition is not None:
            for waiters in self.ledger.waiters_of(self.partition):
                waiters.pop(self, None)
            self.partition = None


class Ledger:
    """What one session's client knows and asks for. See the module for `active`."""

    def __init__(self, services: Services, request: Any) -> None:
        manager = services.replica_manager
        self.replica_id = _replica_id(request)
        self.partitions: dict[Key, SessionItem] = {}
        self.active: dict[SessionItem, None] = {}
        self.waiting: _IncrementalFetch | None = None
        self._wake = manager.wake
        self.is_closed = False
        self._tells_high_watermark = services.sends_to_closest_replica and self.replica_id >= 0
        self._mode = _mode(request)
        self._last_fetch_ms = manager.now_ms()
        self._swept_ms = self._last_fetch_ms
        self._to_sweep: Iterator[SessionItem] = iter(())

    def __len__(self) -> int:
        return len(self.partitions)

    def add(self, key: Key, topic: str, asked: Any) -> SessionItem:
        named_before = self.partitions.get(key)
        if named_before is not None:  # twice in one request
            self.active.pop(named_before, None)
        item = self.partitions[key] = SessionItem(self, key, topic, asked)
        self.active[item] = None
        return item

    def update(self, request: Any, by_id: bool) -> None:
        """Takes over what the request asks for: first what it names, then what it wants forgotten."""
        for topic in request.topics:
            name = topic.topic_id if by_id else topic.topic
            for asked in topic.partitions:
                item = self.partitions.get((name, asked.partition))
                if item is None:
                    self.add((name, asked.partition), topic.topic, asked)
                else:
                    if asked.current_leader_epoch != item.asked.current_leader_epoch:
                        item.sent_high_watermark = item.sent_log_start = -1
                    item.asked = asked
                    self._activate(item)
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if by_id else topic.topic
            for index in topic.partitions:
                item = self.partitions.pop((name, index), None)
                if item is not None:
                    self.active.pop(item, None)
                    item.detach()
        mode = _mode(request)
        if mode != self._mode:
            self._mode = mode
            for item in self.partitions.values():
                self._activate(item)

    def sweep(self, now_ms: int) -> None:
        """Has its share of the partitions looked at: all of them every `SWEEP_MS`."""
        count = min(len(self.partitions), len(self.partitions) * (now_ms - self._swept_ms) // SWEEP_MS)
        if count <= 0:
            return
        self._swept_ms = now_ms
        for _ in range(count):
            item = next(self._to_sweep, None)
            if item is None:
                self._to_sweep = iter(list(self.partitions.values()))
                item = next(self._to_sweep)
            if self.partitions.get(item.key) is item:
                self._activate(item)

    def on_fetch(self, now_ms: int) -> None:
        """A request of the session was taken in, and its active partitions acknowledged."""
        self._last_fetch_ms = now_ms

    def on_progress(self, item: SessionItem) -> None:
        """Something happened to the item's replica."""
        if self.is_closed or item.partition is None:
            return
        self._activate(item)
        if self.waiting is None:
            item.park()
        else:
            self._wake((self.waiting,))

    def rest(self, item: SessionItem) -> None:
        """There is nothing to say of it."""
        del self.active[item]

    def rotate(self, answered: Iterable[tuple[SessionItem, PartitionData]]) -> None:
        """Whoever had records comes behind the others next time: only who comes first is given a batch of any size."""
        for item, data in answered:
            if data.records and item in self.active:
                del self.active[item]
                self.active[item] = None

    def waiters_of(self, partition: Partition) -> Iterable[dict[Waiter, None]]:
        """Where the session's items stand to hear of what concerns them."""
        if self.replica_id < 0:
            return (partition.watermark_waiters,)
        if self._tells_high_watermark:
            return (partition.end_waiters, partition.watermark_waiters)
        return (partition.end_waiters,)

    def close(self) -> None:
        self.is_closed = True
        for item in self.partitions.values():
            item.detach()
        self.active.clear()
        if self.waiting is not None:
            self.waiting.give_way()

    def _activate(self, item: SessionItem) -> None:
        if item in self.active:
            return
        self.active[item] = None
        # Whoever is out of the ISR since it came to rest was taken out by the controller: nobody is to wait for it.
        if self.replica_id >= 0 and item.partition is not None and self.replica_id in item.partition.in_sync.committed:
            follower = item.partition.followers.get(self.replica_id)
            if follower is not None and follower.log_end_offset >= 0:
                follower.on_repeated_fetch(self._last_fetch_ms)


class _OpeningFetch(Fetching):
    """A full fetch that asks for a session. All that it names is answered; what it opens begins with that answer."""

    __slots__ = ("_sessions",)

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        request: Any,
        respond: Callable[[Any], None],
        sessions: FetchSessions[Ledger],
    ) -> None:
        super().__init__(services, context, request, respond)
        self._sessions = sessions

    def _response(self, done: list[PartitionData]) -> FetchResponse:
        response = super()._response(done)
        session = self._sessions.open(
            len(self._items),
            lambda: self._ledger(done),
            is_privileged=self._replica_id >= 0,
            uses_topic_ids=self._context.api_version >= _FIRST_VERSION_WITH_IDS,
            now_ms=self._services.replica_manager.now_ms(),
        )
        response.session_id = NO_SESSION if session is None else session.session_id
        return response

    def _ledger(self, done: list[PartitionData]) -> Ledger:
        ledger = Ledger(self._services, self._request)
        by_id = self._context.api_version >= _FIRST_VERSION_WITH_IDS
        opened = [
            ledger.add((topic.topic_id if by_id else topic.topic, item.asked.partition), item.topic, item.asked)
            for topic, items in self._topics
            for item in items
        ]
        answered = list(zip(opened, done, strict=True))
        for item, data in answered:
            _note_sent(item, data)
        ledger.rotate(answered)
        return ledger


class _IncrementalFetch(Fetching):
    """A fetch that goes on with a session."""

    __slots__ = ("_epoch", "_ledger", "_session")

    _items: list[SessionItem]  # type: ignore[assignment]

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        request: Any,
        respond: Callable[[Any], None],
        session: FetchSession[Ledger],
    ) -> None:
        super().__init__(services, context, request, respond)
        self._session = session
        self._epoch = session.epoch
        self._ledger = session.content

    def begin(self) -> None:
        ledger = self._ledger
        if ledger.waiting is not None:
            ledger.waiting.give_way()
        now_ms = self._services.replica_manager.now_ms()
        ledger.sweep(now_ms)
        self._look()
        if self._replica_id >= 0:
            self._acknowledge()
        ledger.on_fetch(now_ms)
        if self._request.max_wait_ms <= 0 or self._is_satisfied():
            self._answer()
        else:
            self._wait(self._request.max_wait_ms / 1000)

    def give_way(self) -> None:
        """Another request of the session has come, or it was closed: this one ends."""
        if not self._is_done:
            self._is_done = True
            self._stop_waiting()
            self._respond(self._out_of_turn())

    def _look(self) -> None:
        """Takes the partitions that may have news as those of this request, as of now."""
        items = self._items = list(self._ledger.active)
        for item in items:
            item.error = 0
            item.diverging = None
            item.preferred = -1
            if item.is_woken:
                item.return_to_waiters()
            partition = item.partition
            if partition is None or partition.is_removed or partition.log.is_failed:
                self._find(item)
            else:
                self._check(item)

    def _find(self, item: SessionItem) -> None:
        """Looks for the item's replica anew, and at it."""
        manager = self._services.replica_manager
        name, index = item.key
        topic = manager.topic_name(name) if isinstance(name, bytes) else name
        if topic is None:
            item.detach()
            item.error = int(ErrorCode.UNKNOWN_TOPIC_ID)
            return
        item.topic = topic
        found = manager.partition_or_error(topic, index)
        if isinstance(found, ErrorCode):
            item.detach()
            item.error = int(found)
        elif isinstance(name, bytes) and found.topic_id != name:
            item.detach()
            item.error = int(ErrorCode.INCONSISTENT_TOPIC_ID)
        else:
            item.attach(found)
            self._check(item)

    # Waiting: the partitions of the session wait for us

    def _wait(self, longest_s: float) -> None:
        self._ledger.waiting = self
        self._is_registered = True
        self._services.replica_manager.wheel.arm(self, longest_s)

    def on_progress(self) -> None:
        if self._is_done or not self._is_registered:
            return
        self._look()
        if self._is_satisfied():
            self._answer()

    def on_timeout(self) -> None:
        if not self._is_done:
            self._look()
            self._answer()

    def _stop_waiting(self) -> None:
        if self._is_registered:
            self._is_registered = False
            TimerWheel.disarm(self)
            self._ledger.waiting = None

    # Answering

    def _answer(self) -> None:
        self._is_done = True
        self._stop_waiting()
        ledger = self._ledger
        worth_telling = []
        for item in self._items:
            if self._is_at_rest(item):
                ledger.rest(item)
            else:
                worth_telling.append(item)
        self._items = worth_telling
        self._read_from(0, self._request.max_bytes, [])

    def _is_at_rest(self, item: SessionItem) -> bool:
        if item.error or item.diverging is not None or item.preferred >= 0:
            return False
        partition = item.partition
        assert partition is not None
        log = partition.log
        if log.high_watermark != item.sent_high_watermark or log.log_start_offset != item.sent_log_start:
            return False
        if item.asked.fetch_offset < self._upper_offset(partition):
            return False
        if self._replica_id < 0:
            return True
        return log.high_watermark == log.log_end_offset and self._replica_id in partition.in_sync.committed

    def _response(self, done: list[PartitionData]) -> FetchResponse:
        if self._session.epoch != self._epoch or self._ledger.is_closed:
            for data in done:
                for chunk in cast("tuple[FileRange, ...]", data.records or ()):
                    chunk.release()
            return self._out_of_turn()
        response = FetchResponse(session_id=self._session.session_id, responses=[])
        topics: dict[str | bytes, FetchableTopicResponse] = {}
        answered = list(zip(self._items, done, strict=True))
        self._ledger.rotate(answered)
        for item, data in answered:
            if not _is_news(item, data):
                continue
            _note_sent(item, data)
            name = item.key[0]
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchableTopicResponse(partitions=[])
                if isinstance(name, bytes):
                    topic.topic_id = name
                else:
                    topic.topic = name
                response.responses.append(topic)
            topic.partitions.append(data)
        return response

    def _out_of_turn(self) -> FetchResponse:
        return FetchResponse(error_code=int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), session_id=self._session.session_id)


def _is_news(item: SessionItem, data: PartitionData) -> bool:
    return bool(
        data.records
        or data.error_code
        or data.high_watermark != item.sent_high_watermark
        or data.log_start_offset != item.sent_log_start
        or data.diverging_epoch is not None
        or data.preferred_read_replica >= 0
    )


def _note_sent(item: SessionItem, data: PartitionData) -> None:
    # Whoever is told that its log parts takes nothing else from the answer: a follower cuts its log and asks again.
    is_taken = not data.error_code and data.diverging_epoch is None
    item.sent_high_watermark = data.high_watermark if is_taken else -1
    item.sent_log_start = data.log_start_offset


def _replica_id(request: Any) -> int:
    state = request.replica_state
    replica_id: int = request.replica_id if state is None else state.replica_id
    return replica_id


def _mode(request: Any) -> tuple[int, int, str]:
    """What a request says of all partitions: what changes here may change the answer of each."""
    state = request.replica_state
    return request.isolation_level, -1 if state is None else state.replica_epoch, request.rack_id
