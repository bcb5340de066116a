"""Dispatches requests: which APIs the broker serves, in which versions, to whom, and which module handles each.

`LISTED` is what ApiVersions answers: an API is in it only when every version of its range is complete. In a fleet
without brokers of Apache Kafka the ranges of `ABOVE_KAFKA_3_9` replace it (`listed`). A handler module and the reader
of its API are imported when the first request comes; `warm` does it for the APIs that every client uses. Not here: the
order of requests of one connection (`connection`), what is known of the fleet (`store.fleet_features`).

What others may rely on:

- A range is listed when each of its versions is complete. One of Apache Kafka 3.9 is a row of `LISTED`; one above it
  is a row of `ABOVE_KAFKA_3_9`, with the feature or the broker key that it waits for, and a definition that is
  compared with the jar of 4.3.1 (`HIGHEST_IN_3_9` in `tests/broker/protocol/test_kafka_jar.py`).
- ApiVersions follows the registered brokers; what is served does not
  (docs/internals/decisions/0040-versions-that-follow-the-fleet.md).
- A feature that is complete is one line of `SUPPORTED` in `config.features`. What it changes asks
  `services.fleet_features.view.finalized` at the time.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Coroutine, Iterator, Set
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla_broker.config.features import GROUP_VERSION, TRANSACTION_VERSION, Levels
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.coordination import ConnectionLoss, SessionExpired
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.edge import element_limits
from ottla_broker.server.edge.cluster_action import (
    ONLY_FROM_BROKERS,
    REFUSALS,
    has_right_of_brokers,
    is_from_broker,
    refuse_whole,
)
from ottla_broker.server.edge.long_reads import LongReadQueues
from ottla_broker.server.edge.request_scheduling import CONTROL_APIS
from ottla_broker.server.edge.rights import ERROR_WITHOUT, RIGHTS, ApiRights
from ottla_broker.server.edge.throttling import measured
from ottla_broker.server.edge.withheld import withhold
from ottla_broker.server.handler_api import (
    CallbackHandler,
    CoroutineHandler,
    LongCallbackHandler,
    RequestContext,
    Services,
)
from ottla_broker.server.turns import ClientIsGone, LongWork, Turns

logger = logging.getLogger("ottla.server")


class Listing(NamedTuple):
    """One served API: a `CallbackHandler` when it `calls_back`, else a `CoroutineHandler` (`server.handler_api`)."""

    api_key: ApiKey
    lowest: int
    highest: int
    module: str
    calls_back: bool = False


LISTED = (
    Listing(ApiKey.PRODUCE, 0, 11, "produce", calls_back=True),
    Listing(ApiKey.FETCH, 0, 17, "fetch", calls_back=True),
    Listing(ApiKey.LIST_OFFSETS, 0, 9, "list_offsets"),
    Listing(ApiKey.METADATA, 0, 12, "metadata"),
    Listing(ApiKey.LEADER_AND_ISR, 0, 7, "leader_and_isr"),
    Listing(ApiKey.STOP_REPLICA, 0, 4, "stop_replica"),
    Listing(ApiKey.UPDATE_METADATA, 0, 8, "update_metadata"),
    Listing(ApiKey.CONTROLLED_SHUTDOWN, 0, 3, "controlled_shutdown"),
    Listing(ApiKey.OFFSET_COMMIT, 0, 9, "offset_commit"),
    Listing(ApiKey.OFFSET_FETCH, 0, 9, "offset_fetch"),
    Listing(ApiKey.FIND_COORDINATOR, 0, 6, "find_coordinator"),
    Listing(ApiKey.JOIN_GROUP, 0, 9, "join_group"),
    Listing(ApiKey.HEARTBEAT, 0, 4, "heartbeat", calls_back=True),
    Listing(ApiKey.LEAVE_GROUP, 0, 5, "leave_group"),
    Listing(ApiKey.SYNC_GROUP, 0, 5, "sync_group"),
    Listing(ApiKey.DESCRIBE_GROUPS, 0, 5, "describe_groups"),
    Listing(ApiKey.LIST_GROUPS, 0, 5, "list_groups"),
    Listing(ApiKey.SASL_HANDSHAKE, 0, 1, "sasl_handshake"),
    Listing(ApiKey.API_VERSIONS, 0, 4, "api_versions"),
    Listing(ApiKey.CREATE_TOPICS, 0, 7, "create_topics"),
    Listing(ApiKey.DELETE_TOPICS, 0, 6, "delete_topics"),
    Listing(ApiKey.DELETE_RECORDS, 0, 2, "delete_records"),
    Listing(ApiKey.INIT_PRODUCER_ID, 0, 5, "init_producer_id"),
    Listing(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4, "offset_for_leader_epoch"),
    Listing(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, "add_partitions_to_txn"),
    Listing(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, "add_offsets_to_txn"),
    Listing(ApiKey.END_TXN, 0, 4, "end_txn"),
    Listing(ApiKey.WRITE_TXN_MARKERS, 0, 1, "write_txn_markers", calls_back=True),
    Listing(ApiKey.TXN_OFFSET_COMMIT, 0, 4, "txn_offset_commit"),
    Listing(ApiKey.DESCRIBE_ACLS, 0, 3, "describe_acls"),
    Listing(ApiKey.CREATE_ACLS, 0, 3, "create_acls"),
    Listing(ApiKey.DELETE_ACLS, 0, 3, "delete_acls"),
    Listing(ApiKey.DESCRIBE_CONFIGS, 0, 4, "describe_configs"),
    Listing(ApiKey.ALTER_CONFIGS, 0, 2, "alter_configs"),
    Listing(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, 2, "alter_replica_log_dirs"),
    Listing(ApiKey.DESCRIBE_LOG_DIRS, 0, 4, "describe_log_dirs"),
    Listing(ApiKey.SASL_AUTHENTICATE, 0, 2, "sasl_authenticate"),
    Listing(ApiKey.CREATE_PARTITIONS, 0, 3, "create_partitions"),
    Listing(ApiKey.CREATE_DELEGATION_TOKEN, 0, 3, "create_delegation_token"),
    Listing(ApiKey.RENEW_DELEGATION_TOKEN, 0, 2, "renew_delegation_token"),
    Listing(ApiKey.EXPIRE_DELEGATION_TOKEN, 0, 2, "expire_delegation_token"),
    Listing(ApiKey.DESCRIBE_DELEGATION_TOKEN, 0, 3, "describe_delegation_token"),
    Listing(ApiKey.DELETE_GROUPS, 0, 2, "delete_groups"),
    Listing(ApiKey.ELECT_LEADERS, 0, 2, "elect_leaders"),
    Listing(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "incremental_alter_configs"),
    Listing(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 0, "alter_partition_reassignments"),
    Listing(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, "list_partition_reassignments"),
    Listing(ApiKey.OFFSET_DELETE, 0, 0, "offset_delete"),
    Listing(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, "describe_client_quotas"),
    Listing(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, "alter_client_quotas"),
    Listing(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, "describe_user_scram_credentials"),
    Listing(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, "alter_user_scram_credentials"),
    Listing(ApiKey.ALTER_PARTITION, 0, 3, "alter_partition"),
    Listing(ApiKey.UPDATE_FEATURES, 0, 1, "update_features"),
    Listing(ApiKey.DESCRIBE_CLUSTER, 0, 1, "describe_cluster"),
    Listing(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "describe_producers"),
    Listing(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, "describe_transactions"),
    Listing(ApiKey.LIST_TRANSACTIONS, 0, 1, "list_transactions"),
    Listing(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, "allocate_producer_ids"),
    Listing(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 0, "consumer_group_heartbeat"),
    Listing(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 0, "consumer_group_describe"),
)


class FleetListing(NamedTuple):
    """A range that is listed only when every registered broker is one of ours, in place of a row before it.

    With `feature` it is listed once that feature is finalized at `level` or above; with `option` where this broker key
    is not 0. With `stays_served` clients that have agreed on it keep it while the level is lower.
    """

    listing: Listing
    feature: str = ""
    level: int = 0
    option: str = ""
    stays_served: bool = False


CLIENT_METRICS: Final = "ottla.client.metrics.max.series"
"""Clients ask every broker that lists the APIs, so they are not listed where nothing becomes of the metrics."""

ABOVE_KAFKA_3_9: tuple[FleetListing, ...] = (
    FleetListing(Listing(ApiKey.PRODUCE, 0, 13, "produce", calls_back=True)),
    FleetListing(Listing(ApiKey.FETCH, 0, 18, "fetch", calls_back=True)),
    FleetListing(Listing(ApiKey.LIST_OFFSETS, 0, 11, "list_offsets")),
    FleetListing(Listing(ApiKey.METADATA, 0, 13, "metadata")),
    FleetListing(Listing(ApiKey.OFFSET_COMMIT, 0, 10, "offset_commit")),
    FleetListing(Listing(ApiKey.OFFSET_FETCH, 0, 10, "offset_fetch")),
    FleetListing(Listing(ApiKey.DESCRIBE_GROUPS, 0, 6, "describe_groups")),
    FleetListing(Listing(ApiKey.DESCRIBE_LOG_DIRS, 0, 5, "describe_log_dirs")),
    FleetListing(Listing(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, "alter_partition_reassignments")),
    FleetListing(Listing(ApiKey.UPDATE_FEATURES, 0, 2, "update_features")),
    FleetListing(Listing(ApiKey.DESCRIBE_CLUSTER, 0, 2, "describe_cluster")),
    FleetListing(
        Listing(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, "get_telemetry_subscriptions"), option=CLIENT_METRICS
    ),
    FleetListing(Listing(ApiKey.PUSH_TELEMETRY, 0, 0, "push_telemetry"), option=CLIENT_METRICS),
    FleetListing(Listing(ApiKey.LIST_CLIENT_METRICS_RESOURCES, 0, 0, "list_client_metrics_resources")),
    FleetListing(Listing(ApiKey.LIST_TRANSACTIONS, 0, 2, "list_transactions")),
    FleetListing(Listing(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "describe_topic_partitions")),
    FleetListing(Listing(ApiKey.WRITE_TXN_MARKERS, 0, 2, "write_txn_markers", calls_back=True)),
    FleetListing(Listing(ApiKey.INIT_PRODUCER_ID, 0, 6, "init_producer_id"), TRANSACTION_VERSION, 2, stays_served=True),
    FleetListing(Listing(ApiKey.END_TXN, 0, 5, "end_txn"), TRANSACTION_VERSION, 2, stays_served=True),
    FleetListing(
        Listing(ApiKey.TXN_OFFSET_COMMIT, 0, 5, "txn_offset_commit"), TRANSACTION_VERSION, 2, stays_served=True
    ),
    FleetListing(Listing(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, "consumer_group_heartbeat"), GROUP_VERSION, 1),
    FleetListing(Listing(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, "consumer_group_describe"), GROUP_VERSION, 1),
)
"""A client picks a version for each broker alone, but it expects the features of a version from all of them; and a
broker of Apache Kafka 3.9 ends when a feature is finalized."""


def listed(finalized: Levels, fleet_is_ours: bool, options: Set[str] = frozenset()) -> tuple[Listing, ...]:
    """What is listed, by API key.

    Args:
        finalized: the finalized level by feature (KIP-584).
        fleet_is_ours: every registered broker is one of ours.
        options: the broker keys that rows wait for and that are not 0.

    >>> {listing.api_key: listing.highest for listing in listed({}, False)}[ApiKey.UPDATE_FEATURES]
    1
    >>> {listing.api_key: listing.highest for listing in listed({}, True)}[ApiKey.UPDATE_FEATURES]
    2
    """
    found = {listing.api_key: listing for listing in LISTED}
    if fleet_is_ours:
        for row in ABOVE_KAFKA_3_9:
            has_level = not row.feature or finalized.get(row.feature, 0) >= row.level
            if has_level and (not row.option or row.option in options):
                found[row.listing.api_key] = row.listing
    return tuple(sorted(found.values()))


def served(finalized: Levels, options: Set[str] = frozenset()) -> tuple[Listing, ...]:
    """What is served, by API key: what `listed` says of a fleet of ours, and what clients may have agreed on before a
    downgrade.

    >>> {listing.api_key: listing.highest for listing in listed({}, True)}[ApiKey.END_TXN]
    4
    >>> {listing.api_key: listing.highest for listing in served({})}[ApiKey.END_TXN]
    5
    """
    kept = {row.feature: row.level for row in ABOVE_KAFKA_3_9 if row.stays_served}
    levels = {feature: max(finalized.get(feature, 0), level) for feature, level in kept.items()}
    return listed({**finalized, **levels}, True, options)


LARGE_FRAME_BYTES: Final = 4096
"""A request of less is read at once."""

FEW_ELEMENTS: Final = 500
"""A request of no more is read at once, whatever its size: most large frames are batches of records."""

_REFUSALS_LOGGED_EVERY_S = 60.0

WARM = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS)


@dataclass(slots=True)
class _LoadedApi:
    listing: Listing
    read_request: Callable[[int, memoryview, int], Any]
    read_in_slices: Callable[[int, memoryview, int], Iterator[Any]]
    handle: CoroutineHandler
    """Without `calls_back`."""
    handle_with_callback: CallbackHandler
    """With `calls_back`; the same function."""
    handle_long: LongCallbackHandler | None
    """With `calls_back`: for a request of many elements, where it is handled in turns."""
    only_from_brokers: int | None
    """The first version that only brokers send."""
    refuse: Callable[[Any], Any | None] | None
    """The answer to a request that only brokers send, None for one of clients; of an API that both send."""
    rights: ApiRights
    asks_for_whole: bool
    """A right of the row is on a resource that the request is about."""

    def needs_cluster_action(self, request: Any) -> bool:
        """Whether only brokers send this request, of an API that clients send too."""
        return self.refuse is not None and is_from_broker(self.listing.api_key, request)


class Dispatcher:
    """Reads the body of a request and calls its handler.

    Args:
        options: the broker keys that rows of `ABOVE_KAFKA_3_9` wait for and that are not 0.
        max_elements: ottla.request.max.elements.
    """

    def __init__(
        self,
        clock: Clock,
        options: Set[str] = frozenset(),
        max_elements: int = element_limits.DEFAULT,
    ) -> None:
        self._clock = clock
        self._options = options
        self._turns = Turns(clock)
        self._reads = LongReadQueues(clock)
        self._max_elements = max_elements
        self._loaded: dict[int, _LoadedApi] = {}
        self._logs_refusals_at = 0.0
        self.fleet_changed({}, False)
        self.services: Services | None = None

    def fleet_changed(self, finalized: Levels, fleet_is_ours: bool) -> None:
        """Lists what `listed` says from here on.

        What would be listed in a fleet of ours is served in any case: a client that has agreed on a version keeps its
        connection when a broker of Apache Kafka joins, and a transaction that is open during a downgrade ends as it
        began.
        """
        self._listed = listed(finalized, fleet_is_ours, self._options)
        self._listings = {int(listing.api_key): listing for listing in served(finalized, self._options)}
        for api_key in list(self._loaded):
            if self._loaded[api_key].listing != self._listings.get(api_key):
                del self._loaded[api_key]

    def listed_apis(self) -> list[tuple[int, int, int]]:
        return [(int(listing.api_key), listing.lowest, listing.highest) for listing in self._listed]

    def warm(self) -> None:
        for api_key in WARM:
            self._load(api_key)

    def dispatch(self, context: RequestContext, frame: memoryview, body_offset: int) -> None:
        """Never raises: an error closes the connection with one log line."""
        api_key, version = context.api_key, context.api_version
        entry = self._loaded.get(api_key) or self._load(api_key)
        services = self.services
        if entry is None or services is None:
            context.close_connection(f"api key {api_key} is not served")
            return
        if not entry.listing.lowest <= version <= entry.listing.highest:
            self._answer_unsupported_version(context, entry.listing)
            return
        is_of_brokers = entry.only_from_brokers is not None and version >= entry.only_from_brokers
        if is_of_brokers and not has_right_of_brokers(context):
            self._refuse(context, refuse_whole(entry.listing.api_key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            return
        try:
            if len(frame) < LARGE_FRAME_BYTES:
                request = entry.read_request(version, frame, body_offset)
            else:
                steps = entry.read_in_slices(version, frame, body_offset)
                for request in steps:
                    if request.__class__ is int and request > FEW_ELEMENTS:
                        work = self._work(context)
                        work.is_long = True
                        context.work = work
                        self._spawn(context, self._read_long(entry, services, context, work, steps, len(frame)))
                        return
                request = request[0]
        except codec.DecodeError as error:
            self._malformed(context, error)
            return
        if entry.refuse is not None and entry.needs_cluster_action(request) and not has_right_of_brokers(context):
            self._refuse(context, entry.refuse(request))
            return
        if entry.asks_for_whole and not self._has_rights(entry, context, request):
            return
        if entry.listing.calls_back:
            try:
                entry.handle_with_callback(services, context, request, context.respond)
            except Exception as error:
                self._fail(context, error)
            return
        context.work = self._work(context)
        self._spawn(context, self._run(entry, services, context, request))

    def go_on_in_turns(self, context: RequestContext, run: Callable[[LongWork], Coroutine[Any, Any, None]]) -> None:
        """A `GoOnInTurns`."""
        work = context.work = context.work or self._work(context)
        self._spawn(context, self._go_on(context, run(work)))

    async def _go_on(self, context: RequestContext, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ClientIsGone:
            pass
        except Exception as error:
            self._fail(context, error)

    def _work(self, context: RequestContext) -> LongWork:
        return LongWork(self._turns, context.connection, is_urgent=context.api_key in CONTROL_APIS)

    def _spawn(self, context: RequestContext, run: Coroutine[Any, Any, None]) -> None:
        if context.usage is not None:
            run = measured(run, context.usage, self._clock.monotonic)
        self._clock.spawn(run, name=f"request {ApiKey(context.api_key).name}")

    def _refuse(self, context: RequestContext, response: Any) -> None:
        """Answers a request that only brokers send, to whoever may not send it, with a log line now and then."""
        now = self._clock.monotonic()
        if now >= self._logs_refusals_at:
            self._logs_refusals_at = now + _REFUSALS_LOGGED_EVERY_S
            logger.warning(
                "refusing %s of %s from %s:%d on %s: brokers alone send it, with the right ClusterAction, to "
                "inter.broker.listener.name, control.plane.listener.name or ottla.broker.request.listeners; the next "
                "line about this comes after %d s at the earliest",
                ApiKey(context.api_key).name,
                context.principal,
                *context.peer,
                context.listener,
                _REFUSALS_LOGGED_EVERY_S,
            )
        context.respond(response)

    def _has_rights(self, entry: _LoadedApi, context: RequestContext, request: object) -> bool:
        """Whether the request has the rights that its row asks for as a whole; one without is answered here."""
        if context.connection.access is None:
            return True
        for right in entry.rights.rights:
            name = None if right.name is None else right.name(request)
            if name is not None and not context.may(right.operation, right.resource_type, name):
                error, others = ERROR_WITHOUT[right.resource_type], entry.rights.beside_error
                context.respond(refuse_whole(entry.listing.api_key, error, others(context.api_version, error)))
                return False
        return True

    async def _run(self, entry: _LoadedApi, services: Services, context: RequestContext, request: object) -> None:
        entries = entry.rights.entries
        try:
            if entries is None or context.connection.access is None:
                context.respond(await entry.handle(services, context, request))
                return
            withheld = await withhold(services, context, request, entries)
            response = await entry.handle(services, context, request)
            if withheld:
                getattr(response, entries.answered).extend(withheld)
            context.respond(response)
        except ClientIsGone:
            pass
        except Exception as error:
            self._fail(context, error)

    async def _read_long(
        self,
        entry: _LoadedApi,
        services: Services,
        context: RequestContext,
        work: LongWork,
        steps: Iterator[Any],
        size: int,
    ) -> None:
        """Reads a request of many elements in slices, and calls its handler.

        Args:
            size: bytes of its frame.
        """
        if work.is_urgent:
            request = await self._elements(context, work, steps)
        else:
            reads = self._reads.of(context.api_key, size)
            await reads.begin(size)
            try:
                request = await self._elements(context, work, steps)
            finally:
                reads.end(size)
        if request is not None:
            await self._run_long(entry, services, context, work, request)

    async def _elements(self, context: RequestContext, work: LongWork, steps: Iterator[Any]) -> Any:
        """The request with its elements; None when it was refused, or its client is gone."""
        most = min(self._max_elements, element_limits.MOST.get(context.api_key, self._max_elements))
        request: Any = None
        try:
            for request in steps:
                if request.__class__ is int:
                    if request > most:
                        context.close_connection(
                            f"{ApiKey(context.api_key).name} request of more than {most} elements: no client of Apache"
                            " Kafka sends so many"
                        )
                        return None
                    await work.turn()
        except ClientIsGone:
            return None
        except codec.DecodeError as error:
            self._malformed(context, error)
            return None
        return request[0]

    async def _run_long(
        self, entry: _LoadedApi, services: Services, context: RequestContext, work: LongWork, request: Any
    ) -> None:
        if entry.needs_cluster_action(request) and not has_right_of_brokers(context):
            context.close_connection(f"{ApiKey(context.api_key).name} of many partitions: brokers alone send it")
            return
        if entry.asks_for_whole and not self._has_rights(entry, context, request):
            return
        if entry.handle_long is not None:
            await self._go_on(context, entry.handle_long(services, context, request, context.respond))
        elif entry.listing.calls_back:
            try:
                entry.handle_with_callback(services, context, request, context.respond)
            except Exception as error:
                self._fail(context, error)
        else:
            await self._run(entry, services, context, request)
            await work.release(request)

    def _malformed(self, context: RequestContext, error: codec.DecodeError) -> None:
        context.close_connection(f"malformed {ApiKey(context.api_key).name} v{context.api_version} request: {error}")

    def _fail(self, context: RequestContext, error: Exception) -> None:
        name = ApiKey(context.api_key).name
        if isinstance(error, (ConnectionLoss, SessionExpired)):  # the client tries again, here or on another broker
            context.close_connection(f"{name} needs the coordination store: {error}")
            return
        logger.error("%s v%d from %s failed", name, context.api_version, context.client_id, exc_info=error)
        context.close_connection(f"internal error in {name}: {error!r}")

    def _answer_unsupported_version(self, context: RequestContext, listing: Listing) -> None:
        """KIP-511: an ApiVersions request that is too new gets a version 0 response with the versions it may use."""
        if listing.api_key is not ApiKey.API_VERSIONS:
            served = f"v{listing.lowest} to v{listing.highest} are"
            context.close_connection(f"{listing.api_key.name} v{context.api_version} is not served ({served})")
            return
        module = codec.module(ApiKey.API_VERSIONS)
        context.api_version = 0
        context.respond(
            module.ApiVersionsResponse(
                error_code=int(ErrorCode.UNSUPPORTED_VERSION),
                api_keys=[
                    module.ApiVersion(
                        api_key=int(listing.api_key), min_version=listing.lowest, max_version=listing.highest
                    )
                ],
            )
        )

    def _load(self, api_key: int) -> _LoadedApi | None:
        listing = self._listings.get(api_key)
        if listing is None:
            return None
        handler = importlib.import_module(f"ottla_broker.server.handlers.{listing.module}")
        wire = codec.module(listing.api_key)
        key = listing.api_key
        entry = self._loaded[api_key] = _LoadedApi(
            listing,
            wire.read_request,
            wire.read_request_in_slices,
            handler.handle,
            handler.handle,
            getattr(handler, "handle_long", None),
            ONLY_FROM_BROKERS.get(key),
            REFUSALS.get(key),
            RIGHTS[key],
            any(right.name is not None for right in RIGHTS[key].rights),
        )
        return entry
