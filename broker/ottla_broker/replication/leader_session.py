"""LeaderSession: the follower's side of a fetch session with a leader (KIP-227). Source: FetchSessionHandler.

Lives here: which partitions a request names, which it removes from the session, and the session's epoch after a
response or a failure. Not here: the leader's side (`fetch.session_cache`), which partitions may be fetched now
(`fetchers`). Pure.

    (id 0, epoch 0)   full: names all; the leader may give an id, or 0: the next request is full again
    (id x, epoch n)   incremental: names what has moved, what is new and what is to be forgotten
    (id x, epoch 0)   after a failure: closes x and starts a new session

Until a full request has a response nothing is known to be in the session; after a response that never came nobody knows
what is, so every failure leads to a full request. So does a follower that replaces another one of its partition: the
leader does not repeat what it has sent to the former. That may happen while a request is in flight, whose response then
does not continue the session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
LARGEST_EPOCH = (1 << 31) - 1

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""Errors of a whole request after which a full one succeeds."""

Key: TypeAlias = "tuple[str | bytes, int]"
"""A partition as the session names it: topic or topic id, and partition."""


def next_epoch(epoch: int) -> int:
    """The epoch behind this one.

    >>> next_epoch(INITIAL_EPOCH), next_epoch(7), next_epoch(LARGEST_EPOCH), next_epoch(FINAL_EPOCH)
    (1, 8, 1, -1)
    """
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == LARGEST_EPOCH else epoch + 1


class Asking(Protocol):
    """Whoever fetches one partition."""

    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def index(self) -> int: ...


class Position(NamedTuple):
    """What a request says of one partition."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


A = TypeVar("A", bound=Asking)


class LeaderSession(Generic[A]):
    """See the module. `session_id` and `epoch` are those of the next request."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.uses_topic_ids = True
        self._held: dict[Key, tuple[A, Position]] = {}
        self._gone: dict[Key, str] = {}
        self._is_renewed = False
        """Since the last request: its response does not continue the session."""

    @property
    def is_full(self) -> bool:
        """The next request has to name every partition."""
        return self.epoch == INITIAL_EPOCH

    def __len__(self) -> int:
        """Partitions in the leader's session that are not to be removed."""
        return len(self._held) - len(self._gone)

    def key(self, asking: Asking) -> Key:
        return (asking.topic_id if self.uses_topic_ids else asking.topic, asking.index)

    def holder(self, key: Key) -> A | None:
        """Who asked for a partition of the answer, None: nobody did."""
        held = self._held.get(key)
        return None if held is None else held[0]

    def holds(self, asking: A) -> bool:
        return self.holder(self.key(asking)) is asking

    def has_position(self, asking: A, part: FetchPartition) -> bool:
        """Whether the leader's session has this position of it."""
        held = self._held.get(self.key(asking))
        return held is not None and held[0] is asking and held[1] == _position(part)

    def renew(self) -> None:
        """The next request is full."""
        self.epoch = INITIAL_EPOCH
        self._is_renewed = True

    def join(self, asking: A) -> None:
        """A new follower. One that replaces another (a new leader epoch) needs everything again."""
        if self.key(asking) in self._held or (self.uses_topic_ids and asking.topic_id == ZERO_UUID):
            self.renew()

    def leave(self, asking: A) -> None:
        """Not fetched until it is named again."""
        key = self.key(asking)
        held = self._held.get(key)
        if held is not None and held[0] is asking:
            self._gone[key] = asking.topic

    def question(self, parts: Iterable[tuple[A, FetchPartition]]) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """(topics, forgotten topics) of the next request, in which `parts` are asked for: all of them, or what moved.

        Whoever left is forgotten. The caller takes `session_id` and `epoch` before.
        """
        self._is_renewed = False
        if self.is_full:
            self._held.clear()
            self._gone.clear()
        topics: dict[str, FetchTopic] = {}
        for asking, part in parts:
            key = self.key(asking)
            position = _position(part)
            self._gone.pop(key, None)
            if self._held.get(key) == (asking, position):
                continue
            self._held[key] = (asking, position)
            topic = topics.get(asking.topic)
            if topic is None:
                topic = topics[asking.topic] = FetchTopic(topic=asking.topic, topic_id=asking.topic_id)
            topic.partitions.append(part)
        return list(topics.values()), self._forget()

    def on_answer(self, session_id: int) -> None:
        """The request was answered without an error."""
        if session_id == NO_SESSION:
            self.epoch = INITIAL_EPOCH
        elif not self._is_renewed:  # else the full request closes this session
            self.epoch = next_epoch(self.epoch)
        self.session_id = session_id

    def on_error(self, error: ErrorCode) -> None:
        """The whole request was answered with one of `SESSION_ERRORS`."""
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = NO_SESSION
        self.renew()

    def _forget(self) -> list[ForgottenTopic]:
        forgotten: dict[str | bytes, ForgottenTopic] = {}
        for key, name in self._gone.items():
            del self._held[key]
            topic = forgotten.get(key[0])
            if topic is None:
                topic = forgotten[key[0]] = ForgottenTopic(topic=name)
                if isinstance(key[0], bytes):
                    topic.topic_id = key[0]
            topic.partitions.append(key[1])
        self._gone.clear()
        return list(forgotten.values())


def _position(part: FetchPartition) -> Position:
    return Position(
        part.current_leader_epoch,
        part.fetch_offset,
        part.last_fetched_epoch,
        part.log_start_offset,
        part.partition_max_bytes,
    )
