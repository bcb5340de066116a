"""FindCoordinator (key 10).

Behaviour
    Names the broker that leads the partition of `__consumer_offsets` (key type 0, a group) or of
    `__transaction_state` (1, a transactional id), with its endpoint on the listener of the request. If the topic does
    not exist, it is created, and the client gets COORDINATOR_NOT_AVAILABLE until the partition has a leader. It also
    does while this broker does not know how many partitions the topic has, and while it is the leader and has not
    loaded the partition: the controller's UpdateMetadata may come before its LeaderAndIsr, and a client that comes here
    too early would get NOT_COORDINATOR, which not every client retries (librdkafka reports it to the application).
    Share groups (2) do not exist here.
Rights, in this order
    Describe:Group (each group): the error of the key.
    Describe:TransactionalId (each transactional id): the error of the key.
Errors, per key
    INVALID_REQUEST (another key type), GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    COORDINATOR_NOT_AVAILABLE.
Versions
    1: key types, throttle time, error message (KIP-98). 3: flexible. 4: several keys (KIP-699). 5: one more error of
    transactions (KIP-890). 6: share groups (KIP-932).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from ottla_broker.authorization.access import NOTHING
from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.config.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla_broker.groups.coordinator import GroupCoordinator
from ottla_broker.metadata.cache import BrokerEndpoint
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla_broker.server.handler_api import RequestContext, Services
from ottla_broker.transactions.coordinator import TransactionCoordinator

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1

_TOPICS = {KEY_TYPE_GROUP: CONSUMER_OFFSETS, KEY_TYPE_TRANSACTION: TRANSACTION_STATE}
_RESOURCES = {KEY_TYPE_GROUP: ResourceType.GROUP, KEY_TYPE_TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_DENIED = {
    KEY_TYPE_GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    KEY_TYPE_TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_NOBODY = BrokerEndpoint("", -1, 0)


async def handle(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Waits only for the creation of the topic, once for all keys."""
    topic = _TOPICS.get(request.key_type)
    keys = [request.key] if context.api_version < 4 else request.coordinator_keys
    denied = await _denied(context, request.key_type, keys)
    if topic is not None and len(denied) < len(set(keys)) and services.metadata.partition_count(topic) == 0:
        await services.auto_create_internal(topic)
    if context.api_version < 4:
        error, node_id, endpoint = _find(services, context, request.key_type, request.key, denied)
        return FindCoordinatorResponse(
            error_code=int(error),
            error_message="NONE" if error is ErrorCode.NONE else error.message,
            node_id=node_id,
            host=endpoint.host,
            port=endpoint.port,
        )
    coordinators = []
    async for key in context.each(request.coordinator_keys):
        error, node_id, endpoint = _find(services, context, request.key_type, key, denied)
        coordinators.append(
            Coordinator(
                key=key,
                node_id=node_id,
                host=endpoint.host,
                port=endpoint.port,
                error_code=int(error),
                error_message="" if error is ErrorCode.NONE or key in denied else error.message,
            )
        )
    return FindCoordinatorResponse(coordinators=coordinators)


async def _denied(context: RequestContext, key_type: int, keys: Sequence[str]) -> Set[str]:
    """The keys that the principal may not describe."""
    kind = _RESOURCES.get(key_type)
    if kind is None:
        return NOTHING
    return await context.denied_of_many(AclOperation.DESCRIBE, kind, keys)


def _find(
    services: Services, context: RequestContext, key_type: int, key: str, denied: Set[str]
) -> tuple[ErrorCode, int, BrokerEndpoint]:
    topic = _TOPICS.get(key_type)
    if topic is None:
        return ErrorCode.INVALID_REQUEST, -1, _NOBODY
    if key in denied:
        return _DENIED[key_type], -1, _NOBODY
    coordinator: GroupCoordinator | TransactionCoordinator = services.group_coordinator
    if key_type == KEY_TYPE_TRANSACTION:
        coordinator = services.transaction_coordinator
    metadata = services.metadata
    index = coordinator.partitions.index_of(key)
    partition = metadata.partition(topic, index)
    endpoint = None if partition is None else metadata.endpoint(partition.leader, context.listener)
    if partition is None or endpoint is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, _NOBODY
    if partition.leader == services.broker_id and not coordinator.partitions.owns(index):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, _NOBODY
    return ErrorCode.NONE, partition.leader, endpoint
