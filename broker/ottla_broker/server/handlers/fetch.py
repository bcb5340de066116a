"""Fetch (key 1): records from an offset on, for consumers and followers.

Behaviour
    This module decodes and encodes; `replication.fetch` finds, waits and reads.
    Answers at once when `min_bytes` are there, there is something in a closed segment, the client does not want to
    wait, or a partition has an error or diverges; otherwise waits for as long as `max_wait_ms`. Consumers see records
    below the high watermark, those with isolation level read_committed below the last stable offset, followers all.
    The first batch of the response is returned even when it is larger than `max_bytes` (KIP-74). Records leave as file
    ranges, untouched. A fetch as a follower acknowledges everything below its offset.
    Sessions (KIP-227): an incremental response names only partitions with news. A request that comes while another of
    its session waits (over a second connection) takes its place; the former gets INVALID_FETCH_SESSION_EPOCH. A request
    that leaves no partition closes the session and is answered without one. To another principal than the one that
    opened it there is no such session.
    Closest replica (KIP-392, replica.selector.class): the leader answers a consumer that names its rack with a
    PreferredReadReplica instead of records; a follower serves what is below its own high watermark. So that this does
    not lag, the leader then answers a follower's delayed fetch when the high watermark has advanced.
    Client quotas (KIP-219): a consumer above its quota gets an empty response, with the throttle time, and max_bytes is
    at most what the quota allows in one window.
    Throttled replicas (KIP-73): a follower that the high watermark does not wait for gets nothing of them above the
    rate.
    Versions 0 to 3 get message formats 0 and 1 (KIP-283).
    read_committed (KIP-98): the response names the aborted transactions among its records (producer id and first
    offset, in the order of the markers); the consumer drops their records up to the marker, which it gets too. The last
    stable offset only advances when the high watermark does, so what waits for the one waits for the other.
Rights, in this order
    ClusterAction:Cluster (a fetch as a follower): TOPIC_AUTHORIZATION_FAILED in every partition.
    Read:Topic (each topic of a consumer's fetch): the error in each of its partitions.
Errors, in this order
    whole request: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
    partition: UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR (as NOT_LEADER_OR_FOLLOWER before v6),
    NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID, FENCED_LEADER_EPOCH,
    UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER (a follower, and a client before v11), UNKNOWN_LEADER_EPOCH (a fetch
    as a follower by a broker that is no replica; NOT_LEADER_OR_FOLLOWER when it names no current leader epoch),
    OFFSET_OUT_OF_RANGE, UNSUPPORTED_COMPRESSION_TYPE (before v10: the topic's compression.type is zstd; before v4: a
    batch is zstd), UNSUPPORTED_VERSION (before v4: message.downconversion.enable is off), CORRUPT_MESSAGE (before v4:
    a batch cannot be converted).
Versions
    0: message format 0. 1: throttle time. 2: message format 1. 3: max_bytes, one batch at least (KIP-74).
    4: isolation level, last stable offset. 5: log start offset (KIP-107). 7: sessions. 9: current leader epoch
    (KIP-320). 10: zstd. 11: rack (KIP-392): consumers may read from followers. 12: flexible, last fetched epoch and
    diverging epoch (KIP-595). 13: topic ids (KIP-516). 15: replica epoch (KIP-903). 16: node endpoints (KIP-951).
    17: directory ids (KIP-853). 18: the follower's high watermark (KIP-1166), which only KRaft's own log uses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    write_response,
    write_response_in_slices,
)
from ottla_broker.protocol.primitives import Chunk, chunk_length
from ottla_broker.replication.fetch.fetch_values import FetchCapabilities, FetchParams, FetchResult, Turn
from ottla_broker.server.handler_api import RequestContext, Respond, Services, Throttle
from ottla_broker.server.handlers.shared.leader_hints import NodeHints, current_leader
from ottla_broker.server.handlers.shared.long_fetches import without_missing
from ottla_broker.server.turns import ELEMENTS_PER_TURN

logger = logging.getLogger("ottla.server")

_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_WITH_LEADER_HINT = (_NOT_LEADER, int(ErrorCode.FENCED_LEADER_EPOCH))

_LAST_CONVERTED_VERSION = 3
_LAST_VERSION_THAT_CUTS = 2
_FIRST_VERSION_WITH_STORAGE_ERRORS = 6
_FIRST_VERSION_WITH_ZSTD = 10
_FIRST_VERSION_WITH_RACKS = 11
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_FIRST_VERSION_WITH_HINTS = 16
_LAST_VERSION = 18

_LENGTH_FIELD_BYTES = 4


async def handle_long(
    services: Services, context: RequestContext, request: FetchRequest, respond: Respond[FetchResponse]
) -> None:
    """A request of many partitions is handled in turns. Those that are not here, or are named again, come first."""
    missing = await without_missing(services, context, request)

    def respond_with_missing(response: FetchResponse | None) -> None:
        if response is not None:
            response.responses += missing
        respond(response)

    handle(services, context, request, respond_with_missing)


def handle(services: Services, context: RequestContext, request: FetchRequest, respond: Respond[FetchResponse]) -> None:
    """Responds through `respond` once, possibly later."""
    engine = services.fetch_engine
    connection = context.connection
    state = request.replica_state
    replica_id = request.replica_id if state is None else state.replica_id
    max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
    throttle = services.throttle if services.throttle.is_active else None
    if throttle is not None:
        if replica_id >= 0:
            throttle.exempt(context)
            throttle = None
        else:
            max_bytes = int(min(max_bytes, throttle.most_fetch_bytes(context)))
    capabilities = _CAPABILITIES[context.api_version]
    context.is_streamed = capabilities.magic is not None
    params = FetchParams(
        replica_id,
        -1 if state is None else state.replica_epoch,
        request.max_wait_ms,
        # A client that wants more than a response may hold would wait for the whole of max_wait_ms with every fetch.
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.isolation_level,
        request.rack_id if engine.chooses_by_rack and replica_id < 0 else "",
        connection.listener,
        engine.chooses_by_rack and replica_id >= 0,
        capabilities,
        context.received_at,
        None if connection.access is None or replica_id >= 0 else _RightToRead(context),
        connection.principal,
    )
    reply = _Reply(services, context, respond, throttle)
    epoch, topics, forgotten = request.session_epoch, request.topics, request.forgotten_topics_data
    if context.work is None:
        engine.fetch(params, request.session_id, epoch, topics, forgotten, reply)
    else:
        fetch = engine.fetch_in_turns
        reply.go_on_in_turns(partial(fetch, params, request.session_id, epoch, topics, forgotten, reply))


def magic_of_version(version: int) -> int | None:
    """The message format that a fetch of this version is answered in, None: as stored.

    >>> [magic_of_version(version) for version in (0, 1, 2, 3, 4)]
    [0, 0, 1, 1, None]
    """
    if version > _LAST_CONVERTED_VERSION:
        return None
    return 0 if version <= 1 else 1


def response_size(version: int, topics: list[FetchableTopicResponse]) -> int:
    """What a response of these topics counts for a quota, in bytes: its length field and its body, not its header.

    Source: org.apache.kafka.common.requests.FetchResponse.sizeOf.
    """
    return _size(write_response(version, FetchResponse(responses=topics)))


def _size(body: list[Chunk]) -> int:
    return _LENGTH_FIELD_BYTES + sum([chunk_length(chunk) for chunk in body])


_CAPABILITIES = tuple(
    FetchCapabilities(
        uses_topic_ids=version >= _FIRST_VERSION_WITH_TOPIC_IDS,
        may_read_from_followers=version >= _FIRST_VERSION_WITH_RACKS,
        reads_zstd=version >= _FIRST_VERSION_WITH_ZSTD,
        magic=magic_of_version(version),
        cuts_first_batch=version <= _LAST_VERSION_THAT_CUTS,
    )
    for version in range(_LAST_VERSION + 1)
)
"""By version."""


class _RightToRead:
    """Whether a consumer may read a topic now: a fetch that waits is checked again. Logged once for each topic."""

    __slots__ = ("_context", "_logged")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._logged: set[str] = set()

    def __call__(self, topic: str) -> bool:
        logs = topic not in self._logged
        if logs:
            self._logged.add(topic)
        return self._context.may(AclOperation.READ, ResourceType.TOPIC, topic, logs=logs)


class _Reply:
    """Encodes the result of one request. A `FetchReply`."""

    __slots__ = ("_context", "_respond", "_services", "_throttle")

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        respond: Respond[FetchResponse],
        throttle: Throttle | None,
    ) -> None:
        self._services = services
        self._context = context
        self._respond = respond
        self._throttle = throttle

    @property
    def has_quota(self) -> bool:
        return self._throttle is not None

    def is_throttled(self, topics: list[FetchableTopicResponse]) -> bool:
        assert self._throttle is not None
        size = response_size(self._context.api_version, topics)
        return self._throttle.is_fetch_throttled(self._context, size)

    async def is_throttled_in_turns(self, topics: list[FetchableTopicResponse], turn: Turn) -> bool:
        assert self._throttle is not None
        chunks: list[Chunk] = []
        version = self._context.api_version
        for _ in write_response_in_slices(version, FetchResponse(responses=topics), chunks):
            await turn(ELEMENTS_PER_TURN)
        return self._throttle.is_fetch_throttled(self._context, _size(chunks))

    def go_on_in_turns(self, run: Callable[[Turn], Coroutine[Any, Any, None]]) -> None:
        self._services.go_on_in_turns(self._context, lambda work: run(work.count))

    def answer(self, result: FetchResult) -> None:
        version = self._context.api_version
        if version < _FIRST_VERSION_WITH_STORAGE_ERRORS:
            _replace_storage_errors(result)
        response = FetchResponse(error_code=result.error_code, session_id=result.session_id, responses=result.topics)
        if version >= _FIRST_VERSION_WITH_HINTS:
            self._add_leader_hints(result, response)
        self._respond(response)

    def fail(self, error: Exception) -> None:
        logger.error("a fetch of version %d failed", self._context.api_version, exc_info=error)
        self._context.close_connection(f"internal error in FETCH: {error!r}")

    def _add_leader_hints(self, result: FetchResult, response: FetchResponse) -> None:
        hints: NodeHints | None = None
        for topic in result.topics:
            for data in topic.partitions:
                if data.error_code in _WITH_LEADER_HINT:
                    # The id was resolved to a name before: an unknown one has another error.
                    name = self._services.replica_manager.topic_name(topic.topic_id) or ""
                    leader, epoch = current_leader(self._services, name, data.partition_index)
                    data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                    hints = hints or NodeHints(self._services, self._context.listener)
                    hints.add(leader)
        if hints is not None:
            response.node_endpoints = [
                NodeEndpoint(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                for broker, endpoint in hints
            ]


def _replace_storage_errors(result: FetchResult) -> None:
    """KAFKA_STORAGE_ERROR came with version 6 (KIP-112)."""
    for topic in result.topics:
        for data in topic.partitions:
            if data.error_code == _STORAGE_ERROR:
                data.error_code = _NOT_LEADER
