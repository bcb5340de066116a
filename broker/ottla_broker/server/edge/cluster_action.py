"""Decides who may send the requests that only brokers send, and what everybody else is answered.

In Apache Kafka they need the right ClusterAction on the cluster, which an authorizer grants to brokers. Here the
listener and the address of a connection decide first: it must be a listener of the brokers, and an address that
ottla.broker.request.addresses names. With an authorizer the principal needs the right as well. Each request is refused
as by a broker of Apache Kafka whose authorizer refuses it. Source: the calls of authorizeClusterOperation in
kafka.server.KafkaApis.

Not here: the other rights (`rights`).

What others may rely on:

- `connection.has_cluster_action` says whether a connection may send them by its listener and address; that is decided
  when it is accepted. The dispatcher refuses such a request before its handler is called, most of them before they are
  read. A handler does not ask again.
- A new API that only brokers send is a row of `ONLY_FROM_BROKERS` or of `REFUSALS`, and a case of
  `tests/beside/test_broker_requests.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address
from types import MappingProxyType
from typing import Any, Final

from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.edge.connection_limits import plain
from ottla_broker.server.handler_api import RequestContext

_DENIED: Final = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_TOPIC_DENIED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

ONLY_FROM_BROKERS: Final[Mapping[ApiKey, int]] = {
    ApiKey.LEADER_AND_ISR: 0,
    ApiKey.STOP_REPLICA: 0,
    ApiKey.UPDATE_METADATA: 0,
    ApiKey.CONTROLLED_SHUTDOWN: 0,
    ApiKey.ALTER_PARTITION: 0,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
    ApiKey.ADD_PARTITIONS_TO_TXN: 4,
}
"""APIs and their first version that only brokers send: refused without being read, with an error of the whole answer.

Producers stay below version 4 of AddPartitionsToTxn (KIP-890). Source: AddPartitionsToTxnRequest.Builder.forClient.
"""


class ClusterActionRule:
    """Which connections have the right ClusterAction.

    Args:
        listeners: the names of those that serve the requests of brokers.
        networks: where they may come from; empty for everywhere.
    """

    def __init__(self, listeners: Collection[str], networks: Collection[IPv4Network | IPv6Network]) -> None:
        self._listeners = listeners
        self._networks = networks

    def allows(self, listener: str, address: str) -> bool:
        """Whether a connection from `address` on `listener` has it."""
        if listener not in self._listeners:
            return False
        if not self._networks:
            return True
        sender = ip_address(plain(address))
        return any(sender in network for network in self._networks)


def has_right_of_brokers(context: RequestContext) -> bool:
    """Whether a request may be one that only brokers send: by its connection, and by the rights of its principal.

    An administrator may end transactions that hang, with Alter on the cluster. Source: KafkaApis.handleWriteTxnMarkers.
    """
    connection = context.connection
    if connection.access is None:
        return connection.has_cluster_action
    if connection.has_cluster_action and context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return True
    is_marker = context.api_key == ApiKey.WRITE_TXN_MARKERS
    return is_marker and context.may(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)


def refuse_whole(api_key: ApiKey, error: ErrorCode, others: Mapping[str, object] = MappingProxyType({})) -> Any:
    """An answer that has the error of the whole request, and the other fields that are given."""
    module = codec.module(api_key)
    name = api_key.name.replace("_", "").lower() + "response"
    response = next(kind for kind_name, kind in vars(module).items() if kind_name.lower() == name)
    return response(error_code=int(error), **others)


def is_from_broker(api_key: ApiKey, request: Any) -> bool:
    """Whether only brokers send this request of an API of `REFUSALS`: WriteTxnMarkers, the fetch of a follower."""
    if api_key is not ApiKey.FETCH:
        return True
    state = request.replica_state
    return bool((request.replica_id if state is None else state.replica_id) >= 0)


def refuse_fetch(request: Any) -> Any | None:
    """The answer to a fetch as a follower: every partition has the error; None for that of a consumer."""
    if not is_from_broker(ApiKey.FETCH, request):
        return None
    module = codec.module(ApiKey.FETCH)
    return module.FetchResponse(
        responses=[
            module.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    module.PartitionData(
                        partition_index=wanted.partition, error_code=_TOPIC_DENIED, high_watermark=-1, records=b""
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse_markers(request: Any) -> Any:
    """The answer to a WriteTxnMarkers: every partition has the error."""
    module = codec.module(ApiKey.WRITE_TXN_MARKERS)
    return module.WriteTxnMarkersResponse(
        markers=[
            module.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    module.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            module.WritableTxnMarkerPartitionResult(partition_index=index, error_code=_DENIED)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


REFUSALS: Final[Mapping[ApiKey, Callable[[Any], Any | None]]] = {
    ApiKey.FETCH: refuse_fetch,
    ApiKey.WRITE_TXN_MARKERS: refuse_markers,
}
"""Give the answer to a request that needs the right, None for one that does not."""
