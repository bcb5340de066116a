"""What the fetch engine gets and gives: the parameters of a request, its partitions, and its result.

`FetchParams` says nothing of API versions: the handler translates a version into what it means for reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ottla_broker.protocol.generated.fetch import FetchableTopicResponse
from ottla_broker.replication.leader_session import NO_SESSION
from ottla_broker.replication.partition import Waiter

if TYPE_CHECKING:
    from ottla_broker.metadata.cache import MetadataCache
    from ottla_broker.metrics import Metrics
    from ottla_broker.ports import Clock, Workers
    from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager

CONVERSIONS = 4
"""Pieces that are read and converted at a time: each is one batch at least, which may be as large as any."""

MANY: Final = 500
"""More partitions than these are found, checked, read and answered in turns (`long_fetch`)."""

SLICE: Final = 50
"""Partitions that are checked or read at once then."""

READ_COST: Final = 4
"""Of reading a partition, where checking one costs 1."""

Turn: TypeAlias = "Callable[[int], Awaitable[None]]"
"""Called when so many partitions were worked at: others may go first. Raises when nobody could read the answer."""

READ_COMMITTED = 1
"""Isolation level of a consumer that reads below the last stable offset (KIP-98); 0 reads below the high watermark."""

TopicKey: TypeAlias = "str | bytes"
"""A topic as the request names it: its name, or its id (KIP-516)."""


class RequestedPartition(Protocol):
    """One partition of a request, as the generated reader gives it. Epochs are -1 where the client names none."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class RequestedTopic(Protocol):
    """One topic of a request; `topic` is "" where it names ids, `topic_id` zeros where it names topics."""

    topic: str
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[RequestedPartition]: ...


class ForgottenPartitions(Protocol):
    """Partitions of one topic that an incremental request removes from its session."""

    topic: str
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class FetchCapabilities:
    """What the version of a request means for reading.

    Args:
        uses_topic_ids: the request names topic ids (KIP-516).
        may_read_from_followers: the client understands KIP-392.
        reads_zstd: the client understands zstd (KIP-110).
        magic: the message format that records are converted to, None: they are sent as stored.
        cuts_first_batch: with `magic`: no limit for the whole result, and a batch that is too large is cut (before
            KIP-74).
    """

    uses_topic_ids: bool
    may_read_from_followers: bool
    reads_zstd: bool
    magic: int | None
    cuts_first_batch: bool


class FetchParams:
    """What a request says of all its partitions.

    Source: org.apache.kafka.server.storage.log.FetchParams.

    Args:
        replica_id: the follower's broker id, -1 for a consumer.
        replica_epoch: the follower's broker epoch (KIP-903), -1 where it names none.
        max_wait_ms: how long the result may be delayed for `min_bytes`; 0 or less: not at all.
        isolation_level: READ_COMMITTED or 0.
        rack: the consumer's rack (KIP-392), "" where it names none or replica.selector.class does not use it.
        listener: the listener that the client uses; a follower that is not on it is not its closest replica.
        reports_high_watermark: the follower gets a changed high watermark at once, because consumers read from it.
        capabilities: of the request's version.
        received_at: Clock.monotonic in seconds.
        may_read: whether the client has the right to read a topic; None: any.
        client: who fetches: nobody else continues or closes his session.
    """

    __slots__ = (
        "capabilities",
        "client",
        "isolation_level",
        "listener",
        "max_bytes",
        "max_wait_ms",
        "may_read",
        "min_bytes",
        "rack",
        "received_at",
        "replica_epoch",
        "replica_id",
        "reports_high_watermark",
    )

    def __init__(
        self,
        replica_id: int,
        replica_epoch: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        rack: str,
        listener: str,
        reports_high_watermark: bool,
        capabilities: FetchCapabilities,
        received_at: float,
        may_read: Callable[[str], bool] | None = None,
        client: Hashable = None,
    ) -> None:
        self.client = client
        self.may_read = may_read
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.rack = rack
        self.listener = listener
        self.reports_high_watermark = reports_high_watermark
        self.capabilities = capabilities
        self.received_at = received_at


class FetchResult:
    """The result of one request: an error of the session as a whole, or topics and the id of its session."""

    __slots__ = ("error_code", "session_id", "topics")

    def __init__(self, topics: list[FetchableTopicResponse], session_id: int = NO_SESSION, error_code: int = 0) -> None:
        self.topics = topics
        self.session_id = session_id
        self.error_code = error_code


class FetchReply(Protocol):
    """Where the result of one request goes; one of `answer` and `fail` is called, once."""

    @property
    def has_quota(self) -> bool:
        """Whether a quota of the client may throttle the request: only then is `is_throttled` called."""
        ...

    def is_throttled(self, topics: list[FetchableTopicResponse]) -> bool:
        """Counts a response of these topics; whether an empty result is sent instead. Called once at most."""
        ...

    async def is_throttled_in_turns(self, topics: list[FetchableTopicResponse], turn: Turn) -> bool:
        """As `is_throttled`, for many partitions."""
        ...

    def go_on_in_turns(self, run: Callable[[Turn], Coroutine[Any, Any, None]]) -> None:
        """Runs what is left to do for a request that is about many partitions. What it raises ends it."""
        ...

    def answer(self, result: FetchResult) -> None:
        """Sends the result."""
        ...

    def fail(self, error: Exception) -> None:
        """Ends the connection: the engine itself failed."""
        ...


class WaitingFetch(Waiter, Protocol):
    """A fetch in purgatory, as contexts and sessions see it."""

    def end_with(self, result: FetchResult) -> None:
        """Answers with this result instead, unless an answer is under way."""
        ...


@dataclass(frozen=True, slots=True)
class FetchEnvironment:
    """The parts of the broker that fetches use."""

    replicas: ReplicaManager
    metadata: MetadataCache
    clock: Clock
    workers: Workers
    metrics: Metrics
    conversions: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONVERSIONS))
    """Held while records are converted for an old consumer."""
