"""What a handler gets: the broker's services and the context of one request.

A handler module has one function. Most APIs answer when their coroutine returns:

    async def handle(services: Services, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse

The hot ones call back, because an answer often comes from a callback, and a task costs more than all of the rest:

    def handle(services: Services, context: RequestContext, request: FetchRequest,
               respond: Respond[FetchResponse]) -> None

The request and response are the classes that are generated for the API; a test compares each handler with them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from ottla_broker.authorization.access import NOTHING, Access
from ottla_broker.authorization.acls import Acls
from ottla_broker.authorization.resources import AclOperation, ResourceType, mask, operations_of
from ottla_broker.config import BrokerConfig
from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.ports.network import Chunk
from ottla_broker.protocol.api import NAMES
from ottla_broker.security.principals import Principal
from ottla_broker.server.turns import Each, LongWork

if TYPE_CHECKING:
    from ottla_broker.controller.controller import Controller
    from ottla_broker.groups.coordinator import GroupCoordinator
    from ottla_broker.metadata.cache import MetadataCache
    from ottla_broker.metadata.prepared import PreparedTopics
    from ottla_broker.metrics import Metrics
    from ottla_broker.ports import Clock, Coordination
    from ottla_broker.quotas.mutation_quotas import MutationCharge
    from ottla_broker.replication.append_queue import AppendQueues
    from ottla_broker.replication.fetch.engine import FetchEngine
    from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
    from ottla_broker.replication.marker_appends import MarkerAppends
    from ottla_broker.replication.transaction_verification import TransactionVerification
    from ottla_broker.server.peers.producer_ids import ProducerIds
    from ottla_broker.server.store.client_metrics_configs import ClientMetricsConfigs
    from ottla_broker.server.store.dynamic_config import DynamicConfig
    from ottla_broker.server.store.fleet_features import FleetFeatures
    from ottla_broker.server.store.stored_tokens import StoredTokens
    from ottla_broker.storage.log.record_search import RecordSearch
    from ottla_broker.telemetry.client_telemetry import ClientTelemetry
    from ottla_broker.transactions.coordinator import TransactionCoordinator


_CHECKS_AT_ONCE = 25
"""Rights that are asked for between two turns: each costs up to 20 µs when it is not known yet."""

_Response = TypeVar("_Response")
_Element = TypeVar("_Element")
_Name = TypeVar("_Name", bound=Hashable)

Respond = Callable[[_Response | None], None]
"""Sends the response of a request that calls back, once; None: the protocol wants none (Produce with acks=0)."""


CoroutineHandler = Callable[["Services", "RequestContext", Any], Coroutine[Any, Any, object]]
"""`handle` of most handler modules; the request and the response are the classes of its API."""

CallbackHandler = Callable[["Services", "RequestContext", Any, Respond[Any]], None]
"""`handle` of a hot API, which answers through its last argument, possibly later."""


LongCallbackHandler = Callable[["Services", "RequestContext", Any, Respond[Any]], Coroutine[Any, Any, None]]
"""`handle_long` of such an API: for a request of many elements, with turns; it answers in the same way."""


class RequestSource(Protocol):
    """The connection that a request came by, as its context uses it."""

    listener: str
    is_privileged: bool
    has_cluster_action: bool
    """It may send what needs the right ClusterAction on the cluster: the requests that only brokers send."""
    number: int
    peer: tuple[str, int]
    principal: Principal
    """The authenticated user; User:ANONYMOUS without authentication."""
    principal_name: str
    """Its name without the type."""
    access: Access | None
    """What it may do; None without an authorizer: everything."""
    client_software: tuple[str, str]
    """Name and version, as the client said in ApiVersions (KIP-511)."""

    @property
    def is_closed(self) -> bool: ...

    def complete(self, context: RequestContext, response: object | None) -> None:
        """Takes the response of a request."""
        ...

    def fail(self, reason: str) -> None:
        """Closes the connection and logs why."""
        ...


@runtime_checkable
class StreamedChunk(Protocol):
    """A part of a response that is made piece by piece, as the socket takes it (KIP-283)."""

    length: int
    """Of all pieces, in bytes."""

    async def next_piece_bytes(self) -> int:
        """What the next piece holds, about; known before it is made. Does not raise."""
        ...

    async def next_piece(self) -> bytes:
        """The next piece, b"" when there is no more. Does not raise: the length has been sent."""
        ...


class Throttle(Protocol):
    """The quotas of clients, as the handlers that count for them see them."""

    is_active: bool
    """Whether any client has a quota on bytes or request time: else a fetch is not counted."""

    def most_fetch_bytes(self, context: RequestContext) -> float:
        """The largest response that is not throttled after silence."""
        ...

    def is_fetch_throttled(self, context: RequestContext, size: int) -> bool:
        """Counts a response of `size` bytes to a consumer; whether an empty one is sent instead (KIP-219)."""
        ...

    def exempt(self, context: RequestContext) -> None:
        """The request is one of another broker: it is never throttled."""
        ...

    def mutation_charge(self, context: RequestContext, *, is_strict: bool) -> Callable[[int], None]:
        """What the controller calls with the number of partitions that it is about to create or delete (KIP-599).

        Args:
            is_strict: what is called raises KafkaError(THROTTLING_QUOTA_EXCEEDED) while the quota is used up.
        """
        ...


GoOnInTurns = Callable[["RequestContext", Callable[[LongWork], Coroutine[Any, Any, None]]], None]
"""Runs the work for a request of an API that calls back, where that is about many elements. The connection is closed
with what it raises."""


class CertificateStores(Protocol):
    """The stores of keys and certificates that the configuration names."""

    async def check(self, values: BrokerValues) -> None:
        """Raises KafkaError when those of other values could not be used."""
        ...

    async def refresh(self) -> None:
        """Brings those of the values in force into force."""
        ...


@dataclass(slots=True)
class Services:
    """The parts of a running broker, as the handlers see them. Made once by `server.assembly`."""

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    coordination: Coordination
    metrics: Metrics
    metadata: MetadataCache
    prepared_topics: PreparedTopics
    replica_manager: ReplicaManager
    append_queues: AppendQueues
    transaction_verification: TransactionVerification
    marker_appends: MarkerAppends
    fetch_engine: FetchEngine
    record_search: RecordSearch
    controller: Controller
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    producer_ids: ProducerIds
    dynamic_config: DynamicConfig
    certificate_stores: CertificateStores
    throttle: Throttle
    resolve: Callable[[str], Awaitable[list[str]]]
    """Network.resolve: the addresses of a host."""
    auto_create: Callable[[Sequence[str]], Awaitable[dict[str, int]]]
    """Asks the controller to create topics with the broker's defaults; gives the error code per name."""
    auto_create_internal: Callable[[str], Awaitable[int]]
    """The same for an internal topic, with its own defaults."""
    go_on_in_turns: GoOnInTurns
    listed_apis: Callable[[], list[tuple[int, int, int]]]
    """(api key, lowest version, highest version) of every API that is served."""
    acls: Acls | None
    """None without an authorizer that has them."""
    delegation_tokens: StoredTokens | None
    """None without delegation.token.secret.key."""
    fleet_features: FleetFeatures
    client_metrics_configs: ClientMetricsConfigs
    client_telemetry: ClientTelemetry


class RequestUsage:
    """What one request uses of the quotas of its client. Times are Clock.monotonic in seconds."""

    __slots__ = ("_since", "_time_s", "charge", "is_counted", "is_exempt", "throttle_ms")

    def __init__(self) -> None:
        self.throttle_ms = 0
        """For how long its client is throttled, as known so far."""
        self.charge: MutationCharge | None = None
        """Of the topics that it changes."""
        self.is_counted = False
        """Its time is counted, up to its response."""
        self.is_exempt = False
        self._time_s = 0.0
        self._since: float | None = None

    def start(self, now: float) -> None:
        """The loop works for the request from now on."""
        self._since = now

    def stop(self, now: float) -> None:
        """The loop works for others from now on."""
        if self._since is not None:
            self._time_s += now - self._since
            self._since = None

    def take(self, now: float) -> float:
        """The seconds of work since the last take."""
        is_running = self._since is not None
        self.stop(now)
        taken, self._time_s = self._time_s, 0.0
        if is_running:
            self.start(now)
        return taken


class RequestContext:
    """One request: its header, its connection, and the way of its response."""

    __slots__ = (
        "api_key",
        "api_version",
        "chunks",
        "client_id",
        "connection",
        "correlation_id",
        "is_done",
        "is_streamed",
        "received_at",
        "usage",
        "work",
    )

    def __init__(
        self,
        connection: RequestSource,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        received_at: float,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received_at = received_at
        self.chunks: Sequence[Chunk] = ()
        self.is_done = False
        self.is_streamed = False
        """The response may have `StreamedChunk`s."""
        self.usage: RequestUsage | None = None
        """None where nothing is counted: its client may have no quota."""
        self.work: LongWork | None = None
        """What takes turns for it. None for a short request of an API that calls back."""

    def each(self, elements: Iterable[_Element], cost: int = 1) -> Each[_Element]:
        """The elements one by one: between them the loop does other work, see `server.turns`. Not for an API that calls
        back.

        Args:
            cost: of one element: 1 for 5 µs.
        """
        assert self.work is not None
        return self.work.each(elements, cost)

    async def distinct(self, names: Iterable[_Name]) -> list[_Name]:
        """The names as they come, but from the hundredth on none that came before."""
        assert self.work is not None
        return await self.work.distinct(names)

    async def sorted(self, names: Sequence[str]) -> list[str]:
        """The names in order, as `each` with turns."""
        assert self.work is not None
        return await self.work.sorted(names)

    @property
    def api_name(self) -> str:
        """As logs and metrics have it: "ListOffsets"."""
        return NAMES[self.api_key]

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str, *, logs: bool = True) -> bool:
        """Whether the principal may do this with one resource.

        Args:
            logs: False where what is denied is left out of a response silently.
        """
        access = self.connection.access
        return access is None or access.allows(self.api_name, operation, resource_type, name, logs=logs)

    def denied(
        self, operation: AclOperation, resource_type: ResourceType, names: Collection[str], *, logs: bool = True
    ) -> Set[str]:
        """The names, of a few, on which the operation is denied. A name that comes twice is asked for once.

        Args:
            logs: see `may`.
        """
        access = self.connection.access
        return NOTHING if access is None else access.denied(self.api_name, operation, resource_type, names, logs=logs)

    async def denied_of_many(
        self, operation: AclOperation, resource_type: ResourceType, names: Iterable[str], *, logs: bool = True
    ) -> Set[str]:
        """As `denied`, with turns. Not for an API that calls back."""
        access = self.connection.access
        if access is None:
            return NOTHING
        times: dict[str, int] = {}
        async for name in self.each(names):
            times[name] = times.get(name, 0) + 1
        found: set[str] = set()
        different = list(times)
        async for first in self.each(range(0, len(different), _CHECKS_AT_ONCE), 4 * _CHECKS_AT_ONCE):
            some = {name: times[name] for name in different[first : first + _CHECKS_AT_ONCE]}
            found |= access.denied(self.api_name, operation, resource_type, some, logs=logs)
        return found

    def may_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the principal may do this with any resource of a type at all (KIP-679)."""
        access = self.connection.access
        return access is None or access.allows_any(operation, resource_type)

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """AuthorizedOperations of one resource (KIP-430)."""
        access = self.connection.access
        return mask(*operations_of(resource_type)) if access is None else access.operations(resource_type, name)

    @property
    def principal(self) -> Principal:
        """The authenticated user; User:ANONYMOUS without authentication."""
        return self.connection.principal

    @property
    def principal_name(self) -> str:
        """Its name without the type."""
        return self.connection.principal_name

    @property
    def listener(self) -> str:
        """Name of the listener the request came in by."""
        return self.connection.listener

    @property
    def is_privileged(self) -> bool:
        """True on the inter-broker listener."""
        return self.connection.is_privileged

    @property
    def connection_number(self) -> int:
        """Higher for connections that were made later."""
        return self.connection.number

    @property
    def peer(self) -> tuple[str, int]:
        return self.connection.peer

    def respond(self, response: object | None) -> None:
        """Answers once; None means that the protocol wants no answer (Produce with acks=0)."""
        self.connection.complete(self, response)

    def close_connection(self, reason: str) -> None:
        """Ends the connection instead of answering, and logs why."""
        self.connection.fail(reason)
