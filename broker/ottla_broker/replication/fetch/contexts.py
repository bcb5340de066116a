"""What a fetch request is about: a sessionless, a full or an incremental context (KIP-227).

    SessionlessContext   all partitions that the request names; no session
    FullContext          the same, and the result opens a session when the cache has room
    IncrementalContext   the partitions of a session that may have news; the result names only those that have

Source: kafka.server.FetchContext and its classes of the same names. What a session's client has received is
`session_fetch_state`; ids, epochs and eviction are `session_cache`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Generic, Protocol, TypeVar, cast

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import FetchableTopicResponse, PartitionData
from ottla_broker.replication.fetch import checks
from ottla_broker.replication.fetch.fetch_values import (
    MANY,
    SLICE,
    FetchEnvironment,
    FetchParams,
    FetchResult,
    RequestedTopic,
    TopicKey,
    Turn,
    WaitingFetch,
)
from ottla_broker.replication.fetch.partition_fetch import PartitionFetch
from ottla_broker.replication.fetch.partition_reads import check_again, release
from ottla_broker.replication.fetch.session_cache import FetchSession, FetchSessionCache
from ottla_broker.replication.fetch.session_fetch_state import CachedPartition, SessionFetchState, has_news, record_sent
from ottla_broker.replication.leader_session import NO_SESSION


class FetchContext(Protocol):
    """The partitions of one request, from its arrival to its result."""

    @property
    def waits_without_partitions(self) -> bool:
        """Whether a request without a partition to read waits, instead of being answered at once."""
        ...

    @property
    def has_many(self) -> bool:
        """Whether its partitions have become too many to be checked at once, while it waited."""
        ...

    @property
    def is_overtaken(self) -> bool:
        """Whether another request of its session has come, or the session is closed."""
        ...

    @property
    def items(self) -> Sequence[PartitionFetch]:
        """The partitions, as the last check found them (`checks.check`)."""
        ...

    def begin(self) -> None:
        """Finds and checks the items; acknowledges a follower's fetch. Called once, first."""
        ...

    def check_again(self) -> None:
        """Finds and checks the items as of now."""
        ...

    def register(self, fetch: WaitingFetch) -> None:
        """From now on `fetch.on_progress` is called when something happens to a partition."""
        ...

    def unregister(self, fetch: WaitingFetch) -> None:
        """The fetch waits no more."""
        ...

    def select(self) -> None:
        """Keeps the items that are worth reading. Called once, last before they are read."""
        ...

    def topics(self, results: list[PartitionData]) -> list[FetchableTopicResponse]:
        """What `result` would name. Nothing changes."""
        ...

    def result(self, results: list[PartitionData]) -> FetchResult:
        """The result of the request from the results of the items."""
        ...

    def throttled(self) -> FetchResult:
        """The empty result of a request whose client is throttled (KIP-219); the session stays as it is."""
        ...

    # The same in slices, for `long_fetch`.

    def begin_in_slices(self) -> Iterator[Sequence[PartitionFetch]]:
        """As `begin`; gives the items that it has found and checked."""
        ...

    def check_in_slices(self) -> Iterator[Sequence[PartitionFetch]]:
        """As `check_again`; gives the items that it has checked. Those of a slice were found when the pass began."""
        ...

    def selected(self, items: Sequence[PartitionFetch]) -> Sequence[PartitionFetch]:
        """As `select`: those of these items, checked just now, that are worth reading."""
        ...

    async def topics_in_turns(
        self, items: Sequence[PartitionFetch], results: list[PartitionData], turn: Turn
    ) -> list[FetchableTopicResponse]:
        """As `topics`, with the items that were read."""
        ...

    async def result_in_turns(
        self, items: Sequence[PartitionFetch], results: list[PartitionData], turn: Turn
    ) -> FetchResult:
        """As `result`, with the items that were read."""
        ...


class SessionlessContext:
    """All partitions that the request names."""

    __slots__ = ("_environment", "_params", "_requested", "items", "requested_topics")

    waits_without_partitions = False
    has_many = False  # else `long_fetch` has it from the beginning
    is_overtaken = False

    def __init__(self, requested: Sequence[RequestedTopic], params: FetchParams, environment: FetchEnvironment) -> None:
        self._requested = requested
        self._params = params
        self._environment = environment
        self.requested_topics: list[tuple[TopicKey, str, int]] = []
        """Key, name ("" when it is unknown) and number of partitions of each topic, in the order of the request."""
        self.items: list[PartitionFetch] = []

    def begin(self, part: Sequence[RequestedTopic] | None = None) -> None:
        """With `part` for these topics alone, which become the items."""
        params, environment = self._params, self._environment
        items: list[PartitionFetch] = []
        self.items = items
        replicas = environment.replicas
        by_id = params.capabilities.uses_topic_ids
        for topic in self._requested if part is None else part:
            name = replicas.topic_name(topic.topic_id) if by_id else topic.topic
            is_denied = params.may_read is not None and name is not None and not params.may_read(name)
            by_index = replicas.topics.get(name) if name is not None else None
            self.requested_topics.append((topic.topic_id if by_id else topic.topic, name or "", len(topic.partitions)))
            for requested in topic.partitions:
                item = PartitionFetch(name or "", requested)
                items.append(item)
                if name is None:
                    item.error = int(ErrorCode.UNKNOWN_TOPIC_ID)
                    continue
                if is_denied:
                    item.error = checks.DENIED
                    continue
                partition = None if by_index is None else by_index.get(requested.partition)
                if partition is None or partition.log.state.is_failed:
                    found = replicas.partition_or_error(name, requested.partition)
                    item.error = int(found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    continue
                if by_id and partition.topic_id != topic.topic_id:
                    item.error = int(ErrorCode.INCONSISTENT_TOPIC_ID)
                    continue
                item.partition = partition
                checks.check(item, params, environment)
        if params.replica_id >= 0:
            checks.acknowledge(items, params)

    def check_again(self) -> None:
        for item in self.items:
            checks.check(item, self._params, self._environment)

    def register(self, fetch: WaitingFetch) -> None:
        is_consumer = self._params.replica_id < 0
        for item in self.items:
            partition = item.partition
            assert partition is not None
            (partition.watermark_waiters if is_consumer else partition.end_waiters)[fetch] = None
            if self._params.reports_high_watermark:
                partition.watermark_waiters[fetch] = None

    def unregister(self, fetch: WaitingFetch) -> None:
        is_consumer = self._params.replica_id < 0
        for item in self.items:
            partition = item.partition
            if partition is not None:
                (partition.watermark_waiters if is_consumer else partition.end_waiters).pop(fetch, None)
                if self._params.reports_high_watermark:
                    partition.watermark_waiters.pop(fetch, None)

    def select(self) -> None:
        pass

    def topics(self, results: list[PartitionData]) -> list[FetchableTopicResponse]:
        topics = []
        position = 0
        for key, _, count in self.requested_topics:
            topics.append(_new_topic(key, results[position : position + count]))
            position += count
        return topics

    def result(self, results: list[PartitionData]) -> FetchResult:
        return FetchResult(self.topics(results))

    def throttled(self) -> FetchResult:
        return FetchResult([])

    def begin_in_slices(self) -> Iterator[Sequence[PartitionFetch]]:
        found: list[PartitionFetch] = []
        for part in in_slices(self._requested):
            self.begin(part)
            found += self.items
            yield self.items
        self.items = found
        self.requested_topics = [
            (key, name, sum(count for _, _, count in parts))
            for (key, name), parts in groupby(self.requested_topics, itemgetter(0, 1))
        ]

    def check_in_slices(self) -> Iterator[Sequence[PartitionFetch]]:
        for start in range(0, len(self.items), SLICE):
            items = self.items[start : start + SLICE]
            for item in items:
                if item.partition is not None:
                    check_again(item, self._params, self._environment)
            yield items

    def selected(self, items: Sequence[PartitionFetch]) -> Sequence[PartitionFetch]:
        return items

    async def topics_in_turns(
        self, items: Sequence[PartitionFetch], results: list[PartitionData], turn: Turn
    ) -> list[FetchableTopicResponse]:
        topics = []
        position = 0
        for key, _, count in self.requested_topics:
            await turn(1)
            topics.append(_new_topic(key, results[position : position + count]))
            position += count
        return topics

    async def result_in_turns(
        self, items: Sequence[PartitionFetch], results: list[PartitionData], turn: Turn
    ) -> FetchResult:
        return FetchResult(await self.topics_in_turns(items, results, turn))


class FullContext:
    """A request that asks for a session. Its result names every partition; the session begins with that result."""

    __slots__ = ("_cache", "_environment", "_params", "_partitions")

    waits_without_partitions = False
    has_many = False
    is_overtaken = False

    def __init__(
        self,
        requested: Sequence[RequestedTopic],
        params: FetchParams,
        environment: FetchEnvironment,
        cache: FetchSessionCache[SessionFetchState],
    ) -> None:
        self._partitions = SessionlessContext(requested, params, environment)
        self._params = params
        self._environment = environment
        self._cache = cache

    @property
    def items(self) -> Sequence[PartitionFetch]:
        return self._partitions.items

    def begin(self) -> None:
        self._partitions.begin()

    def check_again(self) -> None:
        self._partitions.check_again()

    def register(self, fetch: WaitingFetch) -> None:
        self._partitions.register(fetch)

    def unregister(self, fetch: WaitingFetch) -> None:
        self._partitions.unregister(fetch)

    def select(self) -> None:
        pass

    def topics(self, results: list[PartitionData]) -> list[FetchableTopicResponse]:
        return self._partitions.topics(results)

    def result(self, results: list[PartitionData]) -> FetchResult:
        partitions, params, replicas = self._partitions, self._params, self._environment.replicas
        now_ms = replicas.now_ms()

        def new_state(session_id: int) -> SessionFetchState:
            state = SessionFetchState(session_id, params, replicas.wake, now_ms)
            state.rotate(state.open_with(self._topic_of_each(), partitions.items, results))
            return state

        result = partitions.result(results)
        result.session_id = self._open(new_state, now_ms)
        return result

    def throttled(self) -> FetchResult:
        return self._partitions.throttled()

    def begin_in_slices(self) -> Iterator[Sequence[PartitionFetch]]:
        return self._partitions.begin_in_slices()

    def check_in_slices(self) -> Iterator[Sequence[PartitionFetch]]:
        return self._partitions.check_in_slices()

    def selected(self, items: Sequence[PartitionFetch]) -> Sequence[PartitionFetch]:
        return items

    async def topics_in_turns(
        self, items: Sequence[PartitionFetch], results: list[PartitionData], turn: Turn
    ) -> list[FetchableTopicResponse]:
        return await self._partitions.topics_in_turns(items, results, turn)

    async def result_in_turns(
        self, items: Sequence[PartitionFetch], results: list[PartitionData], turn: Turn
    ) -> FetchResult:
        """The session is complete before it is in the cache."""
        replicas = self._environment.replicas
        state = SessionFetchState(NO_SESSION, self._params, replicas.wake, replicas.now_ms())
        topics = self._topic_of_each()
        answered: list[tuple[CachedPartition, PartitionData]] = []
        for start in range(0, len(items), SLICE):
            some = slice(start, start + SLICE)
            answered += state.open_with(topics, items[some], results[some])
            await turn(SLICE)
        state.rotate(answered)
        result = await self._partitions.result_in_turns(items, results, turn)

        def identified(session_id: int) -> SessionFetchState:
            state.session_id = session_id
            return state

        result.session_id = self._open(identified, replicas.now_ms())
        return result

    def _topic_of_each(self) -> Iterator[tuple[TopicKey, str]]:
        """Key and name of the topic of each item."""
        return ((key, name) for key, name, count in self._partitions.requested_topics for _ in range(count))

    def _open(self, new_state: Callable[[int], SessionFetchState], now_ms: int) -> int:
        """The id of the session, NO_SESSION where the cache has no room."""
        session = self._cache.open(
            len(self._partitions.items),
            new_state,
            is_privileged=self._params.replica_id >= 0,
            uses_topic_ids=self._params.capabilities.uses_topic_ids,
            now_ms=now_ms,
        )
        return NO_SESSION if session is None else session.session_id


class IncrementalContext:
    """A request that continues a session, whose state already has what the request changes."""

    __slots__ = ("_environment", "_epoch", "_now_ms", "_params", "_session", "_state", "items")

    waits_without_partitions = True

    def __init__(
        self, session: FetchSession[SessionFetchState], params: FetchParams, environment: FetchEnvironment, now_ms: int
    ) -> None:
        self._now_ms = now_ms
        self._session = session
        self._epoch = session.epoch
        self._state = session.content
        self._params = params
        self._environment = environment
        self.items: list[CachedPartition] = []

    @property
    def has_many(self) -> bool:
        return len(self._state.active) > MANY

    @property
    def is_overtaken(self) -> bool:
        return self._session.epoch != self._epoch or self._state.is_closed

    def begin(self) -> None:
        state = self._state
        if state.waiting is not None:
            state.displace_waiting()
        self.check_again()
        if self._params.replica_id >= 0:
            checks.acknowledge(self.items, self._params)
        state.on_fetch(self._now_ms)

    def check_again(self, part: Sequence[CachedPartition] | None = None) -> None:
        """The items are the active partitions of the session. With `part` these alone are checked."""
        params, environment = self._params, self._environment
        if part is None:
            part = self.items = list(self._state.active)
        for item in part:
            item.error = 0
            item.diverging = None
            item.preferred = -1
            if item.is_woken:
                item.return_to_waiters()
            partition = item.partition
            if partition is None or not partition.is_assigned or partition.log.state.is_failed:
                self._find(item)
            else:
                checks.check(item, params, environment)

    def register(self, fetch: WaitingFetch) -> None:
        self._state.waiting = fetch

    def unregister(self, fetch: WaitingFetch) -> None:
        self._state.waiting = None

    def select(self) -> None:
        """Keeps those that have something new; the others come to rest until something happens to them."""
        selected = []
        for item in self.items:
            if self._is_at_rest(item):
                self._state.rest(item)
            else:
                selected.append(item)
        self.items = selected

    def topics(self, results: list[PartitionData]) -> list[FetchableTopicResponse]:
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        _group(((item, data) for item, data in zip(self.items, results, strict=True) if has_news(item, data)), topics)
        return list(topics.values())

    def result(self, results: list[PartitionData]) -> FetchResult:
        state = self._state
        if self._session.epoch != self._epoch or state.is_closed:
            for data in results:
                release(data)
            return state.invalid_epoch()
        answered = list(zip(self.items, results, strict=True))
        state.rotate(answered)
        news = [pair for pair in answered if has_news(*pair)]
        for item, data in news:
            record_sent(item, data)
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        _group(news, topics)
        return FetchResult(list(topics.values()), self._session.session_id)

    def throttled(self) -> FetchResult:
        if self._session.epoch != self._epoch or self._state.is_closed:
            return self._state.invalid_epoch()
        return FetchResult([], self._session.session_id)

    def begin_in_slices(self) -> Iterator[Sequence[PartitionFetch]]:
        state = self._state
        state.displace_waiting()
        for items in self._checked_in_slices():
            if self._params.replica_id >= 0:
                checks.acknowledge(items, self._params)
            yield items
        if not self.is_overtaken:
            state.on_fetch(self._now_ms)

    def check_in_slices(self) -> Iterator[Sequence[PartitionFetch]]:
        return self._checked_in_slices()

    def _checked_in_slices(self) -> Iterator[Sequence[CachedPartition]]:
        items = self.items = list(self._state.active)
        for start in range(0, len(items), SLICE):
            if self.is_overtaken:
                return
            some = items[start : start + SLICE]
            self.check_again(some)
            yield some

    def selected(self, items: Sequence[PartitionFetch]) -> Sequence[PartitionFetch]:
        selected = []
        for item in cast("Sequence[CachedPartition]", items):
            if self._is_at_rest(item):
                self._state.rest(item)
            else:
                selected.append(item)
        return selected

    async def topics_in_turns(
        self, items: Sequence[PartitionFetch], results: list[PartitionData], turn: Turn
    ) -> list[FetchableTopicResponse]:
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        answered = list(zip(cast("Sequence[CachedPartition]", items), results, strict=True))
        for start in range(0, len(answered), SLICE):
            _group((pair for pair in answered[start : start + SLICE] if has_news(*pair)), topics)
            await turn(SLICE)
        return list(topics.values())

    async def result_in_turns(
        self, items: Sequence[PartitionFetch], results: list[PartitionData], turn: Turn
    ) -> FetchResult:
        """What the session has sent is recorded in slices: no other request of it is handled meanwhile without ending
        this one."""
        state = self._state
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        answered = list(zip(cast("Sequence[CachedPartition]", items), results, strict=True))
        for start in range(0, len(answered), SLICE):
            if self.is_overtaken:
                break
            news = [pair for pair in answered[start : start + SLICE] if has_news(*pair)]
            for item, data in news:
                record_sent(item, data)
            _group(news, topics)
            await turn(SLICE)
        if self.is_overtaken:
            for data in results:
                release(data)
            return state.invalid_epoch()
        state.rotate(answered)
        return FetchResult(list(topics.values()), self._session.session_id)

    def _find(self, item: CachedPartition) -> None:
        """Looks for the item's replica, which is another one or none, and checks it."""
        replicas = self._environment.replicas
        name, index = item.key
        topic = replicas.topic_name(name) if isinstance(name, bytes) else name
        if topic is None:
            item.detach()
            item.error = int(ErrorCode.UNKNOWN_TOPIC_ID)
            return
        item.topic = topic
        may_read = self._params.may_read
        if may_read is not None and not may_read(topic):
            item.detach()
            item.error = checks.DENIED
            return
        found = replicas.partition_or_error(topic, index)
        if isinstance(found, ErrorCode):
            item.detach()
            item.error = int(found)
        elif isinstance(name, bytes) and found.topic_id != name:
            item.detach()
            item.error = int(ErrorCode.INCONSISTENT_TOPIC_ID)
        else:
            item.attach(found)
            checks.check(item, self._params, self._environment)

    def _is_at_rest(self, item: CachedPartition) -> bool:
        if item.error or item.diverging is not None or item.preferred >= 0:
            return False
        partition = item.partition
        assert partition is not None
        log = partition.log.state
        if log.high_watermark != item.sent_high_watermark or log.log_start_offset != item.sent_log_start:
            return False
        if item.requested.fetch_offset < checks.upper_offset(partition, self._params):
            return False
        replica_id = self._params.replica_id
        if replica_id < 0:
            return True
        return log.high_watermark == log.log_end_offset and replica_id in partition.in_sync.committed


def in_slices(topics: Iterable[_Topic[P]]) -> Iterator[list[TopicPart[P]]]:
    """The topics in lists of about `SLICE` partitions; one of more is divided."""
    part: list[TopicPart[P]] = []
    count = 0
    for topic in topics:
        for start in range(0, len(topic.partitions), SLICE):
            some = topic.partitions[start : start + SLICE]
            part.append(TopicPart(topic.topic, topic.topic_id, some))
            count += len(some)
            if count >= SLICE:
                yield part
                part, count = [], 0
    if part:
        yield part


P = TypeVar("P", covariant=True)


class _Topic(Protocol[P]):
    """A `RequestedTopic`, or the `ForgottenPartitions` of one."""

    topic: str
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[P]: ...


@dataclass(slots=True)
class TopicPart(Generic[P]):
    """Some partitions of such a topic."""

    topic: str
    topic_id: bytes
    partitions: Sequence[P]


def _group(
    answered: Iterable[tuple[CachedPartition, PartitionData]], topics: dict[TopicKey, FetchableTopicResponse]
) -> None:
    """Adds the results to their topics, in the order in which the topics come first."""
    for item, data in answered:
        key = item.key[0]
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = _new_topic(key, [])
        topic.partitions.append(data)


def _new_topic(key: TopicKey, results: list[PartitionData]) -> FetchableTopicResponse:
    if isinstance(key, bytes):
        return FetchableTopicResponse(topic_id=key, partitions=results)
    return FetchableTopicResponse(topic=key, partitions=results)
