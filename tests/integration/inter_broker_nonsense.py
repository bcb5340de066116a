"""Requests that no broker should send, and the responses of Apache Kafka 3.9.1: a table.

The scene is the same for every broker under test: broker 1 is alone, is the controller, and finds in ZooKeeper
- topic "t" with partition 0 on brokers 1 and 2, led by 1 at leader epoch 5, and partition 1 on 2 and 1, which only
  broker 2, which is dead, could lead; partition 2 has no znode;
- controller epoch 7, so that its own is 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import allocate_producer_ids as ids_api
from ottla_broker.protocol.generated import alter_partition as alter_api
from ottla_broker.protocol.generated import controlled_shutdown as shutdown_api
from ottla_broker.protocol.generated import fetch as fetch_api
from ottla_broker.protocol.generated import leader_and_isr as leader_api
from ottla_broker.protocol.generated import list_offsets as offsets_api
from ottla_broker.protocol.generated import offset_for_leader_epoch as epochs_api
from ottla_broker.protocol.generated import stop_replica as stop_api
from ottla_broker.protocol.generated import update_metadata as metadata_api

US, DEAD, STRANGER = 1, 2, 9
LEADER_EPOCH = 5
PARTITION_EPOCH = 1
FORMER_CONTROLLER_EPOCH = 7
CONTROLLER_EPOCH = 8
RECORDS = 3
"""In partition 0 of "t", all below the high watermark."""

TOPIC = "t"
TOPIC_ID = bytes(range(16))
UNKNOWN_ID = bytes(range(1, 17))


@dataclass(frozen=True)
class Scene:
    """What a sender has to know of the broker it talks to."""

    broker_epoch: int


@dataclass(frozen=True)
class Case:
    """A request in some versions, and its answer: the code of the whole, then those of the partitions.

    `only`: where answers differ on purpose (decision 26), the broker that gives this one, "ours" or "apache".
    What Apache Kafka would carry out is not sent to it.
    """

    name: str
    api_key: ApiKey
    versions: Sequence[int]
    request: Callable[[Scene, int], Any]
    whole: ErrorCode = ErrorCode.NONE
    partitions: tuple[ErrorCode, ...] = ()
    only: str = ""


def codes(response: Any) -> tuple[ErrorCode, tuple[ErrorCode, ...]]:
    """(code of the whole answer, codes of its partitions in their order)."""
    whole = getattr(response, "error_code", 0)
    parts: list[int] = []
    for name in ("topics", "responses"):
        for topic in getattr(response, name, ()):
            for inner in ("partitions", "partition_errors"):
                parts.extend(part.error_code for part in getattr(topic, inner, ()))
    parts.extend(part.error_code for part in getattr(response, "partition_errors", ()))
    return ErrorCode.of(whole), tuple(ErrorCode.of(part) for part in parts)


# Requests, right in everything that is not named


def leader_and_isr(
    scene: Scene,
    version: int,
    *,
    controller_epoch: int = CONTROLLER_EPOCH,
    broker_epoch_change: int = 0,
    partition: int = 0,
    leader: int = US,
    leader_epoch: int = LEADER_EPOCH,
    replicas: Sequence[int] = (US, DEAD),
    topic: str = TOPIC,
    topic_id: bytes = TOPIC_ID,
) -> Any:
    state = leader_api.LeaderAndIsrPartitionState(
        topic_name=topic,
        partition_index=partition,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=[leader],
        partition_epoch=3,
        replicas=list(replicas),
        is_new=version >= 1,
    )
    request = leader_api.LeaderAndIsrRequest(
        controller_id=US,
        controller_epoch=controller_epoch,
        broker_epoch=scene.broker_epoch + broker_epoch_change,
        type=1 if version >= 5 else 0,
    )
    if version >= 2:
        request.topic_states = [
            leader_api.LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[state])
        ]
    else:
        request.ungrouped_partition_states = [state]
    return request


def stop_replica(
    scene: Scene,
    version: int,
    *,
    controller_epoch: int = CONTROLLER_EPOCH,
    broker_epoch_change: int = 0,
    topic: str = TOPIC,
    partition: int = 0,
    leader_epoch: int = LEADER_EPOCH,
    delete: bool = True,
) -> Any:
    request = stop_api.StopReplicaRequest(
        controller_id=US,
        controller_epoch=controller_epoch,
        broker_epoch=scene.broker_epoch + broker_epoch_change,
    )
    if version >= 3:
        state = stop_api.StopReplicaPartitionState(
            partition_index=partition, leader_epoch=leader_epoch, delete_partition=delete
        )
        request.topic_states = [stop_api.StopReplicaTopicState(topic_name=topic, partition_states=[state])]
        return request
    request.delete_partitions = delete
    if version >= 1:
        request.topics = [stop_api.StopReplicaTopicV1(name=topic, partition_indexes=[partition])]
    else:
        request.ungrouped_partitions = [stop_api.StopReplicaPartitionV0(topic_name=topic, partition_index=partition)]
    return request


def update_metadata(
    scene: Scene, version: int, *, controller_epoch: int = CONTROLLER_EPOCH, broker_epoch_change: int = 0
) -> Any:
    """Nobody lives, and the topic is being deleted: whoever took that in would forget everything."""
    state = metadata_api.UpdateMetadataPartitionState(
        topic_name=TOPIC, partition_index=0, leader=-2, isr=[], replicas=[]
    )
    request = metadata_api.UpdateMetadataRequest(
        controller_id=STRANGER,
        controller_epoch=controller_epoch,
        broker_epoch=scene.broker_epoch + broker_epoch_change,
        live_brokers=[],
    )
    if version >= 5:
        request.topic_states = [
            metadata_api.UpdateMetadataTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=[state])
        ]
    else:
        request.ungrouped_partition_states = [state]
    return request


def alter_partition(
    scene: Scene,
    version: int,
    *,
    broker: int = US,
    broker_epoch_change: int = 0,
    topic: str = TOPIC,
    topic_id: bytes = TOPIC_ID,
    partition: int = 0,
    leader_epoch: int = LEADER_EPOCH,
    partition_epoch: int = PARTITION_EPOCH,
    isr: Sequence[int] = (US, DEAD),
    member_epoch: int = -1,
    recovery: int = 0,
) -> Any:
    data = alter_api.PartitionData(
        partition_index=partition,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        leader_recovery_state=recovery if version >= 1 else 0,
    )
    if version >= 3:
        data.new_isr_with_epochs = [
            alter_api.BrokerState(broker_id=member, broker_epoch=scene.broker_epoch if member == US else member_epoch)
            for member in isr
        ]
    else:
        data.new_isr = list(isr)
    named = alter_api.TopicData(topic_name=topic) if version < 2 else alter_api.TopicData(topic_id=topic_id)
    named.partitions = [data]
    return alter_api.AlterPartitionRequest(
        broker_id=broker, broker_epoch=scene.broker_epoch + broker_epoch_change, topics=[named]
    )


def fetch(
    scene: Scene,
    version: int,
    *,
    replica: int = DEAD,
    topic: str = TOPIC,
    topic_id: bytes = TOPIC_ID,
    partition: int = 0,
    offset: int = 0,
    current_epoch: int = LEADER_EPOCH,
    last_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
) -> Any:
    asked = fetch_api.FetchPartition(
        partition=partition,
        current_leader_epoch=current_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch if version >= 12 else -1,
        log_start_offset=0,
        partition_max_bytes=1000,
    )
    request = fetch_api.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[fetch_api.FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])],
    )
    if version >= 15:
        request.replica_state = fetch_api.ReplicaState(replica_id=replica, replica_epoch=-1)
    else:
        request.replica_id = replica
    return request


def offset_for_leader_epoch(
    scene: Scene,
    version: int,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    current_epoch: int = LEADER_EPOCH,
    epoch: int = LEADER_EPOCH,
) -> Any:
    asked = epochs_api.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current_epoch, leader_epoch=epoch
    )
    return epochs_api.OffsetForLeaderEpochRequest(
        replica_id=DEAD, topics=[epochs_api.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )


def list_offsets(
    scene: Scene,
    version: int,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    current_epoch: int = LEADER_EPOCH,
    timestamp: int = -1,
) -> Any:
    asked = offsets_api.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=current_epoch, timestamp=timestamp
    )
    return offsets_api.ListOffsetsRequest(
        replica_id=DEAD, topics=[offsets_api.ListOffsetsTopic(name=topic, partitions=[asked])]
    )


def allocate_producer_ids(scene: Scene, version: int, *, broker: int = US, broker_epoch_change: int = 0) -> Any:
    return ids_api.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=scene.broker_epoch + broker_epoch_change)


def controlled_shutdown(scene: Scene, version: int, *, broker: int = US, broker_epoch_change: int = 0) -> Any:
    return shutdown_api.ControlledShutdownRequest(
        broker_id=broker, broker_epoch=scene.broker_epoch + broker_epoch_change
    )


# The table


def _case(
    name: str,
    api_key: ApiKey,
    versions: Sequence[int],
    make: Callable[..., Any],
    answer: ErrorCode | tuple[ErrorCode, ...],
    *,
    only: str = "",
    **wrong: Any,
) -> Case:
    """`answer`: the code of the whole, or those of the partitions; `wrong` is what is wrong with the request."""
    whole, parts = (answer, ()) if isinstance(answer, ErrorCode) else (ErrorCode.NONE, answer)

    def request(scene: Scene, version: int) -> Any:
        return make(scene, version, **wrong)

    return Case(f"{codec.spec(api_key).name}: {name}", api_key, versions, request, whole, parts, only)


E = ErrorCode
_LEADER, _STOP, _UPDATE = ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA
_ALTER, _FETCH, _EPOCHS, _OFFSETS = (
    ApiKey.ALTER_PARTITION,
    ApiKey.FETCH,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.LIST_OFFSETS,
)
_IDS, _SHUTDOWN = ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.CONTROLLED_SHUTDOWN
_STALE = {"controller_epoch": FORMER_CONTROLLER_EPOCH, "leader_epoch": LEADER_EPOCH + 1}

_LEADER_AND_ISR = (
    # A whole request that is refused names no partition before version 5, and from then on each with the same code.
    _case("stale controller epoch", _LEADER, range(8), leader_and_isr, E.STALE_CONTROLLER_EPOCH, **_STALE),
    _case(
        "stale broker epoch", _LEADER, range(2, 8), leader_and_isr, E.STALE_BROKER_EPOCH, broker_epoch_change=-1,
        leader_epoch=LEADER_EPOCH + 1,
    ),
    _case(
        "both stale", _LEADER, (2, 5, 7), leader_and_isr, E.STALE_BROKER_EPOCH, broker_epoch_change=-1, **_STALE
    ),
    _case(
        "another leader at the known leader epoch", _LEADER, (5, 6, 7), leader_and_isr, (E.STALE_CONTROLLER_EPOCH,),
        leader=DEAD,
    ),
    # Without topic ids, which the partition has: a controller of a release before 2.8 has come.
    _case("another leader at the known leader epoch, without topic ids", _LEADER, range(5), leader_and_isr, (E.NONE,),
        leader=DEAD,
    ),
    _case(
        "this leader at the known leader epoch, without topic ids", _LEADER, range(5), leader_and_isr,
        (E.STALE_CONTROLLER_EPOCH,),
    ),
    _case(
        "a leader epoch of the past", _LEADER, range(8), leader_and_isr, (E.STALE_CONTROLLER_EPOCH,),
        leader_epoch=LEADER_EPOCH - 1, leader=DEAD,
    ),
    _case(
        "a negative leader epoch", _LEADER, (1, 7), leader_and_isr, (E.STALE_CONTROLLER_EPOCH,), leader_epoch=-3,
        leader=DEAD,
    ),
    _case(
        "another topic of that name", _LEADER, (5, 6, 7), leader_and_isr, (E.INCONSISTENT_TOPIC_ID,),
        topic_id=UNKNOWN_ID, leader_epoch=LEADER_EPOCH + 1, leader=DEAD,
    ),
    _case(
        "a later epoch, and this broker holds no replica", _LEADER, range(8), leader_and_isr,
        (E.UNKNOWN_TOPIC_OR_PARTITION,), leader_epoch=LEADER_EPOCH + 1, leader=DEAD, replicas=(DEAD, STRANGER),
    ),
    _case(
        "a new partition of which this broker holds no replica", _LEADER, (1, 7), leader_and_isr,
        (E.UNKNOWN_TOPIC_OR_PARTITION,), partition=6, leader=DEAD, replicas=(DEAD, STRANGER),
    ),
    _case(
        "a name that leads out of the log directory", _LEADER, (1, 4, 7), leader_and_isr,
        (E.INVALID_TOPIC_EXCEPTION,), topic="../t", topic_id=ZERO_UUID, only="ours",
    ),
    _case(
        "a negative partition", _LEADER, (1, 4, 7), leader_and_isr, (E.INVALID_PARTITIONS,), partition=-1,
        only="ours",
    ),
)  # fmt: skip

_STOP_REPLICA = (
    _case(
        "stale controller epoch", _STOP, range(5), stop_replica, E.STALE_CONTROLLER_EPOCH,
        controller_epoch=FORMER_CONTROLLER_EPOCH,
    ),
    _case("stale broker epoch", _STOP, range(1, 5), stop_replica, E.STALE_BROKER_EPOCH, broker_epoch_change=-1),
    _case(
        "a leader epoch of the past", _STOP, (3, 4), stop_replica, (E.FENCED_LEADER_EPOCH,),
        leader_epoch=LEADER_EPOCH - 1,
    ),
    _case(
        "a leader epoch that means nothing", _STOP, (3, 4), stop_replica, (E.FENCED_LEADER_EPOCH,), leader_epoch=-3
    ),
    _case("an unknown partition", _STOP, range(5), stop_replica, (E.NONE,), partition=6),
    _case("an unknown topic", _STOP, range(5), stop_replica, (E.NONE,), topic="unknown"),
    _case("an unknown topic, not to be deleted", _STOP, range(5), stop_replica, (E.NONE,), topic="u", delete=False),
)  # fmt: skip

_UPDATE_METADATA = (
    _case(
        "stale controller epoch", _UPDATE, range(9), update_metadata, E.STALE_CONTROLLER_EPOCH,
        controller_epoch=FORMER_CONTROLLER_EPOCH,
    ),
    _case("stale broker epoch", _UPDATE, range(5, 9), update_metadata, E.STALE_BROKER_EPOCH, broker_epoch_change=-1),
)  # fmt: skip

_ALTER_PARTITION = (
    _case("stale broker epoch", _ALTER, range(4), alter_partition, E.STALE_BROKER_EPOCH, broker_epoch_change=-1),
    _case("a broker epoch to come", _ALTER, range(4), alter_partition, E.STALE_BROKER_EPOCH, broker_epoch_change=1),
    _case("an unknown broker", _ALTER, range(4), alter_partition, E.STALE_BROKER_EPOCH, broker=STRANGER),
    _case("a broker that is dead", _ALTER, range(4), alter_partition, E.STALE_BROKER_EPOCH, broker=DEAD),
    _case("an unknown topic id", _ALTER, (2, 3), alter_partition, (E.UNKNOWN_TOPIC_ID,), topic_id=UNKNOWN_ID),
    _case("no topic id", _ALTER, (2, 3), alter_partition, (E.UNKNOWN_TOPIC_ID,), topic_id=ZERO_UUID),
    _case("an unknown topic", _ALTER, (0, 1), alter_partition, (E.UNKNOWN_TOPIC_OR_PARTITION,), topic="unknown"),
    _case("an unknown partition", _ALTER, range(4), alter_partition, (E.UNKNOWN_TOPIC_OR_PARTITION,), partition=6),
    _case("a negative partition", _ALTER, range(4), alter_partition, (E.UNKNOWN_TOPIC_OR_PARTITION,), partition=-1),
    _case(
        "a leader epoch of the past", _ALTER, range(4), alter_partition, (E.FENCED_LEADER_EPOCH,),
        leader_epoch=LEADER_EPOCH - 1,
    ),
    _case(
        "a leader epoch from the future", _ALTER, range(4), alter_partition, (E.NOT_CONTROLLER,),
        leader_epoch=LEADER_EPOCH + 1,
    ),
    _case(
        "a partition epoch from the future", _ALTER, range(4), alter_partition, (E.NOT_CONTROLLER,),
        partition_epoch=PARTITION_EPOCH + 1,
    ),
    _case(
        "a partition epoch of the past", _ALTER, range(4), alter_partition, (E.INVALID_UPDATE_VERSION,),
        partition_epoch=PARTITION_EPOCH - 1,
    ),
    _case("a dead member", _ALTER, (0, 1), alter_partition, (E.OPERATION_NOT_ATTEMPTED,)),
    _case("a dead member", _ALTER, (2, 3), alter_partition, (E.INELIGIBLE_REPLICA,)),
    _case(
        "a dead member with an epoch", _ALTER, (3,), alter_partition, (E.INELIGIBLE_REPLICA,), member_epoch=4
    ),
    _case("recovering, with two members", _ALTER, (1, 2, 3), alter_partition, (E.INVALID_REQUEST,), recovery=1),
    _case(
        "recovered, back to recovering", _ALTER, (1, 2, 3), alter_partition, (E.INVALID_REQUEST,), recovery=1, isr=(US,)
    ),
    _case("the ISR that it is", _ALTER, range(4), alter_partition, (E.NONE,), isr=(US,)),
    _case(
        "the ISR that it is, at an old partition epoch", _ALTER, range(4), alter_partition, (E.NONE,), isr=(US,),
        partition_epoch=PARTITION_EPOCH - 1,
    ),
    _case("an empty ISR", _ALTER, range(4), alter_partition, (E.INVALID_REQUEST,), isr=(), only="ours"),
    _case(
        "an ISR without the leader", _ALTER, range(4), alter_partition, (E.INVALID_REQUEST,), isr=(DEAD,), only="ours"
    ),
    _case(
        "a member that holds no replica", _ALTER, range(4), alter_partition, (E.INVALID_REQUEST,),
        isr=(US, STRANGER), only="ours",
    ),
    _case("a member twice", _ALTER, range(4), alter_partition, (E.INVALID_REQUEST,), isr=(US, US), only="ours"),
    _case(
        "a recovery state that does not exist", _ALTER, (1, 2, 3), alter_partition, (E.INVALID_REQUEST,), recovery=7,
        isr=(US,), only="ours",
    ),
)  # fmt: skip

_REPLICA_FETCHES = (4, 8, 9, 11, 12, 13, 14, 15, 16, 17)
_WITH_EPOCH = (9, 11, 12, 13, 14, 15, 16, 17)
_BY_NAME = (4, 9, 12)
_BY_ID = (13, 15, 17)

_FETCH_AS_REPLICA = (
    _case(
        "by a broker that is no replica", _FETCH, _WITH_EPOCH, fetch, (E.UNKNOWN_LEADER_EPOCH,), replica=STRANGER
    ),
    _case(
        "by a broker that is no replica and does not say which leader it means", _FETCH, _REPLICA_FETCHES, fetch,
        (E.NOT_LEADER_OR_FOLLOWER,), replica=STRANGER, current_epoch=-1,
    ),
    _case(
        "by a broker that is no replica, with a negative leader epoch", _FETCH, _WITH_EPOCH, fetch,
        (E.NOT_LEADER_OR_FOLLOWER,), replica=STRANGER, current_epoch=-7,
    ),
    _case("by the leader itself", _FETCH, _WITH_EPOCH, fetch, (E.UNKNOWN_LEADER_EPOCH,), replica=US),
    _case(
        "a leader epoch from the future", _FETCH, _WITH_EPOCH, fetch, (E.UNKNOWN_LEADER_EPOCH,),
        current_epoch=LEADER_EPOCH + 1,
    ),
    _case(
        "a leader epoch of the past", _FETCH, _WITH_EPOCH, fetch, (E.FENCED_LEADER_EPOCH,),
        current_epoch=LEADER_EPOCH - 1,
    ),
    _case(
        "by no replica, with a leader epoch of the past", _FETCH, _WITH_EPOCH, fetch, (E.FENCED_LEADER_EPOCH,),
        current_epoch=LEADER_EPOCH - 1, replica=STRANGER,
    ),
    _case("an unknown topic", _FETCH, _BY_NAME, fetch, (E.UNKNOWN_TOPIC_OR_PARTITION,), topic="unknown"),
    _case("an unknown topic id", _FETCH, _BY_ID, fetch, (E.UNKNOWN_TOPIC_ID,), topic_id=UNKNOWN_ID),
    _case("no topic id", _FETCH, _BY_ID, fetch, (E.UNKNOWN_TOPIC_ID,), topic_id=ZERO_UUID),
    _case("an unknown partition", _FETCH, _REPLICA_FETCHES, fetch, (E.UNKNOWN_TOPIC_OR_PARTITION,), partition=6),
    _case("a negative partition", _FETCH, _REPLICA_FETCHES, fetch, (E.UNKNOWN_TOPIC_OR_PARTITION,), partition=-1),
    _case(
        "of a partition that this broker does not lead", _FETCH, _REPLICA_FETCHES, fetch,
        (E.NOT_LEADER_OR_FOLLOWER,), partition=1, current_epoch=-1,
    ),
    _case("beyond the log's end", _FETCH, _REPLICA_FETCHES, fetch, (E.OFFSET_OUT_OF_RANGE,), offset=RECORDS + 1),
    _case("a negative offset", _FETCH, _REPLICA_FETCHES, fetch, (E.OFFSET_OUT_OF_RANGE,), offset=-5),
    _case(
        "a last record from a later epoch", _FETCH, (12, 13, 17), fetch, (E.OFFSET_OUT_OF_RANGE,),
        last_epoch=LEADER_EPOCH + 4, offset=1,
    ),
    _case(
        "a last record from a later epoch, beyond the end", _FETCH, (12, 13, 17), fetch, (E.OFFSET_OUT_OF_RANGE,),
        last_epoch=LEADER_EPOCH + 4, offset=RECORDS + 5,
    ),
    _case(
        "in a session that was never given", _FETCH, (7, 12, 17), fetch, E.FETCH_SESSION_ID_NOT_FOUND,
        session_id=4711, session_epoch=3,
    ),
    _case(
        "in the middle of no session", _FETCH, (7, 12, 17), fetch, E.FETCH_SESSION_ID_NOT_FOUND, session_epoch=3
    ),
)  # fmt: skip

_OFFSET_FOR_LEADER_EPOCH = (
    _case(
        "a current epoch from the future", _EPOCHS, (2, 3, 4), offset_for_leader_epoch, (E.UNKNOWN_LEADER_EPOCH,),
        current_epoch=LEADER_EPOCH + 1,
    ),
    _case(
        "a current epoch of the past", _EPOCHS, (2, 3, 4), offset_for_leader_epoch, (E.FENCED_LEADER_EPOCH,),
        current_epoch=LEADER_EPOCH - 1,
    ),
    _case(
        "an unknown topic", _EPOCHS, range(5), offset_for_leader_epoch, (E.UNKNOWN_TOPIC_OR_PARTITION,),
        topic="unknown",
    ),
    _case(
        "an unknown partition", _EPOCHS, range(5), offset_for_leader_epoch, (E.UNKNOWN_TOPIC_OR_PARTITION,),
        partition=6,
    ),
    _case(
        "a partition that this broker does not lead", _EPOCHS, range(5), offset_for_leader_epoch,
        (E.NOT_LEADER_OR_FOLLOWER,), partition=1, current_epoch=-1,
    ),
    _case("an epoch that is not yet", _EPOCHS, range(5), offset_for_leader_epoch, (E.NONE,), epoch=LEADER_EPOCH + 9),
    _case("a negative epoch", _EPOCHS, range(5), offset_for_leader_epoch, (E.NONE,), epoch=-7),
)  # fmt: skip

_LIST_OFFSETS = (
    _case(
        "a current epoch from the future", _OFFSETS, (4, 6, 9), list_offsets, (E.UNKNOWN_LEADER_EPOCH,),
        current_epoch=LEADER_EPOCH + 1,
    ),
    _case(
        "a current epoch of the past", _OFFSETS, (4, 6, 9), list_offsets, (E.FENCED_LEADER_EPOCH,),
        current_epoch=LEADER_EPOCH - 1,
    ),
    _case(
        "an unknown topic", _OFFSETS, (1, 4, 9), list_offsets, (E.UNKNOWN_TOPIC_OR_PARTITION,), topic="unknown"
    ),
    _case(
        "a partition that this broker does not lead", _OFFSETS, (1, 4, 9), list_offsets,
        (E.NOT_LEADER_OR_FOLLOWER,), partition=1, current_epoch=-1,
    ),
)  # fmt: skip

_ALLOCATE_PRODUCER_IDS = (
    _case("stale broker epoch", _IDS, (0,), allocate_producer_ids, E.STALE_BROKER_EPOCH, broker_epoch_change=-1),
    _case("a broker epoch to come", _IDS, (0,), allocate_producer_ids, E.STALE_BROKER_EPOCH, broker_epoch_change=1),
    _case("an unknown broker", _IDS, (0,), allocate_producer_ids, E.BROKER_ID_NOT_REGISTERED, broker=STRANGER),
)

_CONTROLLED_SHUTDOWN = (
    _case(
        "stale broker epoch", _SHUTDOWN, (2, 3), controlled_shutdown, E.STALE_BROKER_EPOCH, broker_epoch_change=-1
    ),
    _case("an unknown broker", _SHUTDOWN, (0, 1), controlled_shutdown, E.BROKER_NOT_AVAILABLE, broker=STRANGER),
    _case("a broker that is dead", _SHUTDOWN, (0, 1), controlled_shutdown, E.BROKER_NOT_AVAILABLE, broker=DEAD),
    _case(
        "an unknown broker with an epoch", _SHUTDOWN, (2, 3), controlled_shutdown, E.UNKNOWN_SERVER_ERROR,
        broker=STRANGER, only="apache",
    ),
    _case(
        "an unknown broker with an epoch", _SHUTDOWN, (2, 3), controlled_shutdown, E.BROKER_NOT_AVAILABLE,
        broker=STRANGER, only="ours",
    ),
)  # fmt: skip

CASES = (
    *_LEADER_AND_ISR,
    *_STOP_REPLICA,
    *_UPDATE_METADATA,
    *_ALTER_PARTITION,
    *_FETCH_AS_REPLICA,
    *_OFFSET_FOR_LEADER_EPOCH,
    *_LIST_OFFSETS,
    *_ALLOCATE_PRODUCER_IDS,
    *_CONTROLLED_SHUTDOWN,
)
