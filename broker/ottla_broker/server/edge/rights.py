"""The rights that each API needs, and what it answers without them: one row for each.

An API without a row is not served.

Three places ask for the rights of a row:

- the dispatcher, before the handler is called, where `NeededRight.name` says which resource the request is about. The
  answer has the error as that of the whole request;
- the dispatcher, where the row has `entries`: entries of the request without their right never reach the handler, and
  the answer gets their errors (`withheld`);
- the handler, for every other right, with `context.may` and `context.denied`.

The requests that only brokers send are refused by `cluster_action`. docs/reference/rights.md is written from here.

Source: the calls of authHelper in kafka.server.KafkaApis, and of authorize in AclApis, AuthHelper and ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla_broker.authorization.authorizer import AclCheck
from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.config.config_resources import ConfigResourceType
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.number_text import whole_number

if TYPE_CHECKING:
    from ottla_broker.server.handler_api import Services

READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, ALTER, DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
CLUSTER_ACTION, IDEMPOTENT_WRITE = AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
CREATE_TOKENS, DESCRIBE_TOKENS = AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID, USER = ResourceType.TRANSACTIONAL_ID, ResourceType.USER
DELEGATION_TOKEN = ResourceType.DELEGATION_TOKEN

ERROR_WITHOUT: Final[Mapping[ResourceType, ErrorCode]] = MappingProxyType(
    {
        TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
        CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
"""The error of a right on a resource of each type."""

WHOLE: Final = "the error of the whole answer"
LEFT_OUT: Final = "left out of the answer"
_IN_PARTITIONS: Final = "the error in each of its partitions"
_TOPIC_ERROR: Final = "TOPIC_AUTHORIZATION_FAILED in every partition"
_IN_EVERY_PARTITION: Final = "the error in every partition"


class NeededRight(NamedTuple):
    """One right of a row.

    Args:
        of: what of the request it is about, in words.
        without: what is answered without it, in words.
        name: of a right that the dispatcher asks for: the resource that a request is about, None where it needs none.
    """

    operation: AclOperation
    resource_type: ResourceType
    of: str
    without: str
    name: Callable[[Any], str | None] | None = None

    @property
    def label(self) -> str:
        """
        >>> NeededRight(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "each id", "").label
        'Describe:TransactionalId'
        """
        return f"{self.operation.label}:{self.resource_type.label}"


Refused = tuple[Any, Iterable[Any]]
"""The entry of an answer for one that is refused, and the partitions that go into its `partitions`."""


class Entries(NamedTuple):
    """A list in the request whose entries need a right each.

    Args:
        requested: the field of the request.
        answered: the field of the answer.
        check: the question about one entry; None where there is none, as for a topic id that is unknown.
        refused: gives the answer to one entry.
        whole: questions about the request, in their order; without one of them each entry is refused.
        instead: a right that stands for those of all entries; nobody is told that it is missing.
        identity: where entries that come twice reach the handler, which refuses them for that: what makes two the same.
        only_at_controller: another broker answers NOT_CONTROLLER for each, and asks for no right.
    """

    requested: str
    answered: str
    check: Callable[[Services, Any, Any], AclCheck | None]
    refused: Callable[[Any, Any, ErrorCode], Refused]
    whole: tuple[Callable[[Any], AclCheck | None], ...] = ()
    instead: AclCheck | None = None
    identity: Callable[[Any], Hashable] | None = None
    only_at_controller: bool = False


def _nothing_else(version: int, error: ErrorCode) -> Mapping[str, object]:
    return {}


class ApiRights(NamedTuple):
    """A row: the rights in the order in which they are asked for.

    Args:
        beside_error: the fields of an answer to a whole request that are no defaults, by version and error.
    """

    rights: tuple[NeededRight, ...] = ()
    entries: Entries | None = None
    beside_error: Callable[[int, ErrorCode], Mapping[str, object]] = _nothing_else


def _cluster(_: Any) -> str:
    return CLUSTER_NAME


def _group(request: Any) -> str:
    name: str = request.group_id
    return name


def _transactional_id(request: Any) -> str:
    name: str = request.transactional_id
    return name


def _read_group(request: Any) -> AclCheck:
    return AclCheck(READ, GROUP, request.group_id)


def _topic_of(operation: AclOperation, field: str = "name") -> Callable[[Services, Any, Any], AclCheck]:
    return lambda services, request, topic: AclCheck(operation, TOPIC, getattr(topic, field))


def _named(operation: AclOperation, resource_type: ResourceType) -> Callable[[Services, Any, Any], AclCheck]:
    return lambda services, request, name: AclCheck(operation, resource_type, name)


def _committed_topic(services: Services, request: Any, topic: Any) -> AclCheck | None:
    name = topic.name or services.metadata.topic_name(topic.topic_id)
    return None if name is None else AclCheck(READ, TOPIC, name)


def _config_of(
    operation: AclOperation, on_cluster: Collection[ConfigResourceType], *, of_any_broker: bool = False
) -> Callable[[Services, Any, Any], AclCheck | None]:
    """The handler refuses resources of other types than those on the cluster, and topics; and other brokers' ones."""

    def check(services: Services, request: Any, resource: Any) -> AclCheck | None:
        kind, name = resource.resource_type, resource.resource_name
        if kind == ConfigResourceType.TOPIC:
            return AclCheck(operation, TOPIC, name)
        if kind not in on_cluster:
            return None
        is_of_broker = kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        if is_of_broker and name and not of_any_broker and whole_number(name) != services.broker_id:
            return None
        return AclCheck(operation, CLUSTER, CLUSTER_NAME)

    return check


def _list_offsets(wire: Any, topic: Any, error: ErrorCode) -> Refused:
    return wire.ListOffsetsTopicResponse(name=topic.name), (
        wire.ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=int(error))
        for one in topic.partitions
    )


def _epochs(wire: Any, topic: Any, error: ErrorCode) -> Refused:
    return wire.OffsetForLeaderTopicResult(topic=topic.topic), (
        wire.EpochEndOffset(partition=one.partition, error_code=int(error)) for one in topic.partitions
    )


def _commit(wire: Any, topic: Any, error: ErrorCode) -> Refused:
    return wire.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id), (
        wire.OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=int(error))
        for one in topic.partitions
    )


def _commit_in_transaction(wire: Any, topic: Any, error: ErrorCode) -> Refused:
    return wire.TxnOffsetCommitResponseTopic(name=topic.name), (
        wire.TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=int(error))
        for one in topic.partitions
    )


def _deleted_records(wire: Any, topic: Any, error: ErrorCode) -> Refused:
    return wire.DeleteRecordsTopicResult(name=topic.name), (
        wire.DeleteRecordsPartitionResult(partition_index=one.partition_index, low_watermark=-1, error_code=int(error))
        for one in topic.partitions
    )


def _deleted_offsets(wire: Any, topic: Any, error: ErrorCode) -> Refused:
    return wire.OffsetDeleteResponseTopic(name=topic.name), (
        wire.OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=int(error))
        for one in topic.partitions
    )


def _producers(wire: Any, topic: Any, error: ErrorCode) -> Refused:
    return wire.TopicResponse(name=topic.name), (
        wire.PartitionResponse(partition_index=index, error_code=int(error), error_message=error.message)
        for index in topic.partition_indexes
    )


def _described_group(wire: Any, group_id: str, error: ErrorCode) -> Refused:
    return wire.DescribedGroup(group_id=group_id, error_code=int(error)), ()


def _deleted_group(wire: Any, group_id: str, error: ErrorCode) -> Refused:
    return wire.DeletableGroupResult(group_id=group_id, error_code=int(error)), ()


def _transaction(wire: Any, transactional_id: str, error: ErrorCode) -> Refused:
    return wire.TransactionState(transactional_id=transactional_id, error_code=int(error)), ()


def _grown_topic(wire: Any, topic: Any, error: ErrorCode) -> Refused:
    message = "The topic authorization is failed."
    return wire.CreatePartitionsTopicResult(name=topic.name, error_code=int(error), error_message=message), ()


def _described_configs(wire: Any, resource: Any, error: ErrorCode) -> Refused:
    return wire.DescribeConfigsResult(
        error_code=int(error),
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    ), ()


def _altered_configs(wire: Any, resource: Any, error: ErrorCode) -> Refused:
    return wire.AlterConfigsResourceResponse(
        error_code=int(error),
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    ), ()


def _altered_quotas(wire: Any, entry: Any, error: ErrorCode) -> Refused:
    return wire.ResponseEntryData(
        error_code=int(error),
        error_message=error.message,
        entity=[wire.EntityData(entity_type=one.entity_type, entity_name=one.entity_name) for one in entry.entity],
    ), ()


_OF_BROKERS: Final = ApiRights((NeededRight(CLUSTER_ACTION, CLUSTER, "the cluster", WHOLE),))
_ALTER_CONFIGS: Final = (
    NeededRight(ALTER_CONFIGS, TOPIC, "each topic", "the error of its result"),
    NeededRight(ALTER_CONFIGS, CLUSTER, "each other resource", "the error of its result"),
)
_ON_CLUSTER: Final = frozenset(ConfigResourceType) - {ConfigResourceType.TOPIC}
_NO_MEMBER: Final = (NeededRight(READ, GROUP, "the group", WHOLE, _group),)

RIGHTS: Final[Mapping[ApiKey, ApiRights]] = MappingProxyType(
    {
        ApiKey.PRODUCE: ApiRights(
            (
                NeededRight(
                    WRITE, TRANSACTIONAL_ID, "the transactional id, with a transactional batch", _IN_EVERY_PARTITION
                ),
                NeededRight(WRITE, TOPIC, "each topic", _IN_PARTITIONS),
            )
        ),
        ApiKey.FETCH: ApiRights(
            (
                NeededRight(CLUSTER_ACTION, CLUSTER, "a fetch as a follower", _TOPIC_ERROR),
                NeededRight(READ, TOPIC, "each topic of a consumer's fetch", _IN_PARTITIONS),
            )
        ),
        ApiKey.LIST_OFFSETS: ApiRights(
            (NeededRight(DESCRIBE, TOPIC, "each topic", _IN_PARTITIONS),),
            Entries("topics", "topics", _topic_of(DESCRIBE), _list_offsets),
        ),
        ApiKey.METADATA: ApiRights(
            (
                NeededRight(DESCRIBE, TOPIC, "each named topic", "the error of the topic, without its partitions"),
                NeededRight(DESCRIBE, TOPIC, "each topic, when all are asked for", LEFT_OUT),
                NeededRight(
                    CREATE, TOPIC, "each topic that would be created, or Create:Cluster", "the error of the topic"
                ),
                NeededRight(DESCRIBE, CLUSTER, "the authorized operations of the cluster", "no operation"),
            )
        ),
        ApiKey.LEADER_AND_ISR: _OF_BROKERS,
        ApiKey.STOP_REPLICA: _OF_BROKERS,
        ApiKey.UPDATE_METADATA: _OF_BROKERS,
        ApiKey.CONTROLLED_SHUTDOWN: _OF_BROKERS,
        ApiKey.OFFSET_COMMIT: ApiRights(
            (
                NeededRight(READ, GROUP, "the group", _IN_EVERY_PARTITION),
                NeededRight(READ, TOPIC, "each topic", _IN_PARTITIONS),
            ),
            Entries("topics", "topics", _committed_topic, _commit, (_read_group,)),
        ),
        ApiKey.OFFSET_FETCH: ApiRights(
            (
                NeededRight(
                    DESCRIBE, GROUP, "each group", "the error of the group, in versions 0 and 1 of every partition"
                ),
                NeededRight(DESCRIBE, TOPIC, "each named topic", _IN_PARTITIONS),
                NeededRight(DESCRIBE, TOPIC, "each topic, when all are asked for", LEFT_OUT),
            )
        ),
        ApiKey.FIND_COORDINATOR: ApiRights(
            (
                NeededRight(DESCRIBE, GROUP, "each group", "the error of the key"),
                NeededRight(DESCRIBE, TRANSACTIONAL_ID, "each transactional id", "the error of the key"),
            )
        ),
        ApiKey.JOIN_GROUP: ApiRights(
            _NO_MEMBER,
            # Null only since version 7.
            beside_error=lambda version, error: {"protocol_name": None if version >= 7 else ""},
        ),
        ApiKey.HEARTBEAT: ApiRights(_NO_MEMBER),
        ApiKey.LEAVE_GROUP: ApiRights(_NO_MEMBER),
        ApiKey.SYNC_GROUP: ApiRights(_NO_MEMBER),
        ApiKey.DESCRIBE_GROUPS: ApiRights(
            (NeededRight(DESCRIBE, GROUP, "each group", "the error of the group, without its members"),),
            Entries("groups", "groups", _named(DESCRIBE, GROUP), _described_group),
        ),
        ApiKey.LIST_GROUPS: ApiRights(
            (
                NeededRight(DESCRIBE, CLUSTER, "all groups", "the next right decides"),
                NeededRight(DESCRIBE, GROUP, "each group", LEFT_OUT),
            )
        ),
        ApiKey.SASL_HANDSHAKE: ApiRights(),
        ApiKey.API_VERSIONS: ApiRights(),
        ApiKey.CREATE_TOPICS: ApiRights(
            (
                NeededRight(CREATE, CLUSTER, "all topics", "the next right decides"),
                NeededRight(CREATE, TOPIC, "each topic", "the error of the topic"),
                NeededRight(
                    DESCRIBE_CONFIGS, TOPIC, "the configuration of each topic (v5+)", "the error beside the topic"
                ),
            )
        ),
        ApiKey.DELETE_TOPICS: ApiRights(
            (
                NeededRight(DESCRIBE, TOPIC, "each topic", "the error of the topic, by id (v6+) without its name"),
                NeededRight(DELETE, TOPIC, "each topic", "the error of the topic"),
            )
        ),
        ApiKey.DELETE_RECORDS: ApiRights(
            (NeededRight(DELETE, TOPIC, "each topic", _IN_PARTITIONS),),
            Entries("topics", "topics", _topic_of(DELETE), _deleted_records),
        ),
        ApiKey.INIT_PRODUCER_ID: ApiRights(
            (
                NeededRight(WRITE, TRANSACTIONAL_ID, "the transactional id", WHOLE, _transactional_id),
                NeededRight(
                    IDEMPOTENT_WRITE, CLUSTER, "without one: the cluster, or Write on any topic (KIP-679)", WHOLE
                ),
            ),
            beside_error=lambda version, error: {"producer_epoch": -1},
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiRights(
            (
                NeededRight(CLUSTER_ACTION, CLUSTER, "all topics", "the next right decides"),
                NeededRight(DESCRIBE, TOPIC, "each topic", _IN_PARTITIONS),
            ),
            Entries(
                "topics",
                "topics",
                _topic_of(DESCRIBE, "topic"),
                _epochs,
                instead=AclCheck(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME),
            ),
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: ApiRights(
            (
                NeededRight(CLUSTER_ACTION, CLUSTER, "a request of a broker (v4+)", WHOLE),
                NeededRight(WRITE, TRANSACTIONAL_ID, "the transactional id (v0 to v3)", _IN_EVERY_PARTITION),
                NeededRight(
                    WRITE,
                    TOPIC,
                    "each topic (v0 to v3)",
                    "the error in its partitions, OPERATION_NOT_ATTEMPTED in all others",
                ),
            )
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: ApiRights(
            (
                NeededRight(WRITE, TRANSACTIONAL_ID, "the transactional id", WHOLE, _transactional_id),
                NeededRight(READ, GROUP, "the group", WHOLE, _group),
            )
        ),
        ApiKey.END_TXN: ApiRights(
            (NeededRight(WRITE, TRANSACTIONAL_ID, "the transactional id", WHOLE, _transactional_id),)
        ),
        ApiKey.WRITE_TXN_MARKERS: ApiRights(
            (NeededRight(CLUSTER_ACTION, CLUSTER, "the cluster, or Alter:Cluster", _IN_EVERY_PARTITION),)
        ),
        ApiKey.TXN_OFFSET_COMMIT: ApiRights(
            (
                NeededRight(WRITE, TRANSACTIONAL_ID, "the transactional id", _IN_EVERY_PARTITION),
                NeededRight(READ, GROUP, "the group", _IN_EVERY_PARTITION),
                NeededRight(READ, TOPIC, "each topic", _IN_PARTITIONS),
            ),
            Entries(
                "topics",
                "topics",
                _topic_of(READ),
                _commit_in_transaction,
                (lambda request: AclCheck(WRITE, TRANSACTIONAL_ID, request.transactional_id), _read_group),
            ),
        ),
        ApiKey.DESCRIBE_ACLS: ApiRights((NeededRight(DESCRIBE, CLUSTER, "the cluster", WHOLE),)),
        ApiKey.CREATE_ACLS: ApiRights((NeededRight(ALTER, CLUSTER, "the cluster", "the error of each creation"),)),
        ApiKey.DELETE_ACLS: ApiRights((NeededRight(ALTER, CLUSTER, "the cluster", "the error of each filter"),)),
        ApiKey.DESCRIBE_CONFIGS: ApiRights(
            (
                NeededRight(DESCRIBE_CONFIGS, TOPIC, "each topic", "the error of its result"),
                NeededRight(DESCRIBE_CONFIGS, CLUSTER, "each other resource", "the error of its result"),
            ),
            Entries(
                "resources",
                "results",
                _config_of(DESCRIBE_CONFIGS, _ON_CLUSTER, of_any_broker=True),
                _described_configs,
            ),
        ),
        ApiKey.ALTER_CONFIGS: ApiRights(
            _ALTER_CONFIGS,
            Entries(
                "resources",
                "responses",
                _config_of(ALTER_CONFIGS, _ON_CLUSTER - {ConfigResourceType.BROKER_LOGGER}),
                _altered_configs,
            ),
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: ApiRights((NeededRight(ALTER, CLUSTER, "the cluster", _IN_EVERY_PARTITION),)),
        ApiKey.DESCRIBE_LOG_DIRS: ApiRights(
            (NeededRight(DESCRIBE, CLUSTER, "the cluster", f"{WHOLE} (v3+), no result", _cluster),)
        ),
        ApiKey.SASL_AUTHENTICATE: ApiRights(),
        ApiKey.CREATE_PARTITIONS: ApiRights(
            (NeededRight(ALTER, TOPIC, "each topic", "the error of the topic"),),
            Entries(
                "topics",
                "results",
                _topic_of(ALTER),
                _grown_topic,
                identity=lambda topic: topic.name,
                only_at_controller=True,
            ),
        ),
        ApiKey.CREATE_DELEGATION_TOKEN: ApiRights(
            (NeededRight(CREATE_TOKENS, USER, "another owner than the requester", WHOLE),)
        ),
        ApiKey.RENEW_DELEGATION_TOKEN: ApiRights(),
        ApiKey.EXPIRE_DELEGATION_TOKEN: ApiRights(),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: ApiRights(
            (
                NeededRight(DESCRIBE_TOKENS, USER, "each owner of tokens of others", "the next right decides"),
                NeededRight(DESCRIBE, DELEGATION_TOKEN, "each token of others", LEFT_OUT),
            )
        ),
        ApiKey.DELETE_GROUPS: ApiRights(
            (NeededRight(DELETE, GROUP, "each group", "the error of the group"),),
            Entries("groups_names", "results", _named(DELETE, GROUP), _deleted_group),
        ),
        ApiKey.ELECT_LEADERS: ApiRights(
            (
                NeededRight(
                    ALTER, CLUSTER, "the cluster", "the error of the whole answer (v1+) and of each named partition"
                ),
            )
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiRights(
            _ALTER_CONFIGS,
            Entries(
                "resources",
                "responses",
                _config_of(ALTER_CONFIGS, _ON_CLUSTER),
                _altered_configs,
                identity=lambda resource: (resource.resource_type, resource.resource_name),
            ),
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiRights(
            (NeededRight(ALTER, CLUSTER, "the cluster", "the error of the whole answer and of each partition"),)
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiRights(
            (NeededRight(DESCRIBE, CLUSTER, "the cluster", WHOLE, _cluster),)
        ),
        ApiKey.OFFSET_DELETE: ApiRights(
            (
                NeededRight(DELETE, GROUP, "the group", WHOLE, _group),
                NeededRight(READ, TOPIC, "each topic", _IN_PARTITIONS),
            ),
            Entries("topics", "topics", _topic_of(READ), _deleted_offsets),
        ),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiRights((NeededRight(DESCRIBE_CONFIGS, CLUSTER, "the cluster", WHOLE),)),
        ApiKey.ALTER_CLIENT_QUOTAS: ApiRights(
            (NeededRight(ALTER_CONFIGS, CLUSTER, "the cluster", "the error of each entry"),),
            Entries(
                "entries",
                "entries",
                lambda services, request, one: AclCheck(ALTER_CONFIGS, CLUSTER, CLUSTER_NAME),
                _altered_quotas,
            ),
        ),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiRights(
            (NeededRight(DESCRIBE, CLUSTER, "the cluster", "the error of the whole answer and of each named user"),)
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiRights(
            (NeededRight(ALTER, CLUSTER, "the cluster", "the error of each user"),)
        ),
        ApiKey.ALTER_PARTITION: _OF_BROKERS,
        ApiKey.UPDATE_FEATURES: ApiRights(
            (NeededRight(ALTER, CLUSTER, "the cluster", WHOLE, _cluster),),
            beside_error=lambda version, error: {"error_message": error.message},
        ),
        ApiKey.DESCRIBE_CLUSTER: ApiRights(
            (NeededRight(DESCRIBE, CLUSTER, "the authorized operations of the cluster", "no operation"),)
        ),
        ApiKey.DESCRIBE_PRODUCERS: ApiRights(
            (NeededRight(READ, TOPIC, "each topic", _IN_PARTITIONS),),
            Entries("topics", "topics", _topic_of(READ), _producers),
        ),
        ApiKey.DESCRIBE_TRANSACTIONS: ApiRights(
            (
                NeededRight(DESCRIBE, TRANSACTIONAL_ID, "each transactional id", "the error of the transaction"),
                NeededRight(DESCRIBE, TOPIC, "each topic of a transaction", LEFT_OUT),
            ),
            Entries(
                "transactional_ids",
                "transaction_states",
                _named(DESCRIBE, TRANSACTIONAL_ID),
                _transaction,
            ),
        ),
        ApiKey.LIST_TRANSACTIONS: ApiRights((NeededRight(DESCRIBE, TRANSACTIONAL_ID, "each transaction", LEFT_OUT),)),
        ApiKey.ALLOCATE_PRODUCER_IDS: _OF_BROKERS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiRights(
            (
                NeededRight(READ, GROUP, "the group", WHOLE),
                NeededRight(DESCRIBE, TOPIC, "each topic that a member names", WHOLE),
                NeededRight(DESCRIBE, TOPIC, "each topic that matches its regular expression", LEFT_OUT),
            )
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: ApiRights(
            (
                NeededRight(DESCRIBE, GROUP, "each group", "the error of the group"),
                NeededRight(
                    DESCRIBE, TOPIC, "each topic of its members", "the error of the group, without its members"
                ),
            ),
        ),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ApiRights(),
        ApiKey.PUSH_TELEMETRY: ApiRights(),
        ApiKey.LIST_CLIENT_METRICS_RESOURCES: ApiRights(
            (NeededRight(DESCRIBE_CONFIGS, CLUSTER, "the cluster", WHOLE, _cluster),)
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiRights(
            (
                NeededRight(DESCRIBE, TOPIC, "each named topic", "the error of the topic, without its partitions"),
                NeededRight(DESCRIBE, TOPIC, "each topic, when all are asked for", LEFT_OUT),
            )
        ),
    }
)
