"""Requests about what does not exist, and about the internal topics, in the first and last version that can say them.

`absent` names topics, partitions, ids, groups and entities that neither broker has; `internal` names what the brokers
keep for themselves. `OWN_DIRECTORY` and `PRODUCER_ID` stand for what each broker has of its own (`filled`). Not here:
what random requests draw (`requests`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.record import Record, build_batch
from ottla_broker.server.edge.dispatch import LISTED
from tests.beside.requests import IN_TRANSACTIONS, Request

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
_NOBODY = "nobody"
_TIME_MS = 1_700_000_000_000
_UNKNOWN_ID = b"\7" * 16
_PLACES = (("nope", 0), ("t", 99), ("t", -1), ("t", 0), ("bad name", 0), ("", 0))
"""A topic that does not exist, partitions that do not, one that does, names that cannot be."""
_INTERNAL_PLACES = (
    (OFFSETS, 0),
    (OFFSETS, 99),
    (TRANSACTIONS, 0),
    ("__cluster_metadata", 0),
    ("__share_group_state", 0),
)


OWN_DIRECTORY = "<own>"
"""Stands for the log directory of the broker that is asked."""
PRODUCER_ID = -77
"""Stands for the producer id that the last InitProducerId has given."""


class Case(NamedTuple):
    """A request and what it is about."""

    about: str
    request: Request


def absent() -> Iterator[Case]:
    """Of what does not exist."""
    for topic, partition in _PLACES:
        yield from _of_a_partition(topic, partition)
    yield from _of_topics("nope")
    yield from _of_a_topic_id()
    yield from _of_groups()
    yield from _of_transactions()
    yield from _of_configs()
    yield from _of_moves()
    yield from _of_a_plug_in()


def internal() -> Iterator[Case]:
    """Of topics that the brokers keep for themselves; the last ones change them."""
    for topic, partition in _INTERNAL_PLACES:
        yield from _of_a_partition(topic, partition)
    for topic in (OFFSETS, TRANSACTIONS, "__cluster_metadata", "__share_group_state"):
        yield from _of_topics(topic)
        yield from _in_a_transaction(topic)


def _every_version(about: str, api_key: ApiKey, body: Any, lowest: int = 0, highest: int = 99) -> Iterator[Case]:
    listing = next(one for one in LISTED if one.api_key is api_key)
    can_say = []
    for version in range(max(lowest, listing.lowest), min(highest, listing.highest) + 1):
        try:
            codec.frame_request(int(api_key), version, 1, "beside", body)
        except ValueError:
            continue
        can_say.append(version)
    for version in dict.fromkeys((*can_say[:1], *can_say[-1:])):
        yield Case(f"{about}, {api_key.name} v{version}", Request(api_key, version, body))


def _of_a_partition(topic: str, partition: int) -> Iterator[Case]:
    about = f"{topic}-{partition}"
    m = codec.module(ApiKey.PRODUCE)
    batch = bytes(build_batch([Record(0, _TIME_MS, b"k", b"v")]))
    data = m.TopicProduceData(name=topic, partition_data=[m.PartitionProduceData(index=partition, records=batch)])
    for acks in (1, -1):
        body = m.ProduceRequest(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=[data])
        if topic != "t" or partition != 0:
            yield from _every_version(about, ApiKey.PRODUCE, body, 3)
    m = codec.module(ApiKey.FETCH)
    wanted = m.FetchPartition(partition=partition, current_leader_epoch=-1, fetch_offset=1 << 40, partition_max_bytes=1)
    body = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        topics=[m.FetchTopic(topic=topic, partitions=[wanted])],
        session_epoch=-1,
        replica_id=-1,
        isolation_level=0,
    )
    yield from _every_version(about, ApiKey.FETCH, body, 4, 12)
    m = codec.module(ApiKey.LIST_OFFSETS)
    for epoch in (-1, 99):
        for timestamp in (-1, -2, -3, 5):
            if timestamp == -3 and topic == OFFSETS:
                continue
            of = m.ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
            if topic in (OFFSETS, TRANSACTIONS) and epoch == -1:
                continue  # what each has written there differs
            body = m.ListOffsetsRequest(
                replica_id=-1, isolation_level=0, topics=[m.ListOffsetsTopic(name=topic, partitions=[of])]
            )
            yield from _every_version(about, ApiKey.LIST_OFFSETS, body, 4 if epoch >= 0 else 1)
    m = codec.module(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    for replica, current, epoch in ((-1, -1, 5), (-1, 99, 5), (-1, -1, -1), (7, -1, 5)):
        of = m.OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
        body = m.OffsetForLeaderEpochRequest(
            replica_id=replica, topics=[m.OffsetForLeaderTopic(topic=topic, partitions=[of])]
        )
        if topic in (OFFSETS, TRANSACTIONS) and epoch >= 0 and partition == 0:
            continue
        yield from _every_version(about, ApiKey.OFFSET_FOR_LEADER_EPOCH, body)
    m = codec.module(ApiKey.DELETE_RECORDS)
    for offset in (-1, 0, 1 << 40, -5):
        of = m.DeleteRecordsPartition(partition_index=partition, offset=offset)
        body = m.DeleteRecordsRequest(topics=[m.DeleteRecordsTopic(name=topic, partitions=[of])], timeout_ms=5000)
        yield from _every_version(about, ApiKey.DELETE_RECORDS, body)
    m = codec.module(ApiKey.ELECT_LEADERS)
    for kind in (0, 1):
        named = m.TopicPartitions(topic=topic, partitions=[partition])
        body = m.ElectLeadersRequest(election_type=kind, topic_partitions=[named], timeout_ms=5000)
        yield from _every_version(about, ApiKey.ELECT_LEADERS, body, kind)
    m = codec.module(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    for replicas in ([1], [9], [], [1, 9], None, [1, 1], [-1]):
        of = m.ReassignablePartition(partition_index=partition, replicas=replicas)
        body = m.AlterPartitionReassignmentsRequest(
            timeout_ms=5000, topics=[m.ReassignableTopic(name=topic, partitions=[of])]
        )
        yield from _every_version(about, ApiKey.ALTER_PARTITION_REASSIGNMENTS, body)
    m = codec.module(ApiKey.LIST_PARTITION_REASSIGNMENTS)
    body = m.ListPartitionReassignmentsRequest(
        timeout_ms=5000, topics=[m.ListPartitionReassignmentsTopics(name=topic, partition_indexes=[partition])]
    )
    yield from _every_version(about, ApiKey.LIST_PARTITION_REASSIGNMENTS, body)
    m = codec.module(ApiKey.DESCRIBE_PRODUCERS)
    if (topic, partition) != (OFFSETS, 0):
        body = m.DescribeProducersRequest(topics=[m.TopicRequest(name=topic, partition_indexes=[partition])])
        yield from _every_version(about, ApiKey.DESCRIBE_PRODUCERS, body)
    m = codec.module(ApiKey.OFFSET_COMMIT)
    of = m.OffsetCommitRequestPartition(partition_index=partition, committed_offset=3, committed_metadata="")
    for group in ("g1", _NOBODY, ""):
        body = m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[m.OffsetCommitRequestTopic(name=topic, partitions=[of])],
        )
        yield from _every_version(about, ApiKey.OFFSET_COMMIT, body, 1)
    m = codec.module(ApiKey.OFFSET_FETCH)
    for group in ("g1", "never-was", ""):
        of = m.OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])
        body = m.OffsetFetchRequest(group_id=group, topics=[of])
        yield from _every_version(about, ApiKey.OFFSET_FETCH, body, 1, 7)
        one = m.OffsetFetchRequestGroup(
            group_id=group, topics=[m.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        )
        yield from _every_version(about, ApiKey.OFFSET_FETCH, m.OffsetFetchRequest(groups=[one]), 8)
    m = codec.module(ApiKey.OFFSET_DELETE)
    of = m.OffsetDeleteRequestPartition(partition_index=partition)
    for group in ("g1", "never-was", ""):
        body = m.OffsetDeleteRequest(group_id=group, topics=[m.OffsetDeleteRequestTopic(name=topic, partitions=[of])])
        yield from _every_version(about, ApiKey.OFFSET_DELETE, body)
    m = codec.module(ApiKey.ALTER_REPLICA_LOG_DIRS)
    for path in ("/nowhere", "nowhere", "", OWN_DIRECTORY):
        of = m.AlterReplicaLogDir(path=path, topics=[m.AlterReplicaLogDirTopic(name=topic, partitions=[partition])])
        yield from _every_version(
            about + " to " + path, ApiKey.ALTER_REPLICA_LOG_DIRS, m.AlterReplicaLogDirsRequest(dirs=[of]), 1
        )
    m = codec.module(ApiKey.DESCRIBE_LOG_DIRS)
    if (topic, partition) not in ((OFFSETS, 0), (TRANSACTIONS, 0)):
        of = m.DescribableLogDirTopic(topic=topic, partitions=[partition])
        yield from _every_version(about, ApiKey.DESCRIBE_LOG_DIRS, m.DescribeLogDirsRequest(topics=[of]))


def _of_topics(topic: str) -> Iterator[Case]:
    m = codec.module(ApiKey.METADATA)
    body = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    yield from _every_version(topic, ApiKey.METADATA, body)
    m = codec.module(ApiKey.CREATE_PARTITIONS)
    for count in (0, 1, 2):
        named = m.CreatePartitionsTopic(name=topic, count=count, assignments=None)
        body = m.CreatePartitionsRequest(topics=[named], timeout_ms=5000, validate_only=True)
        yield from _every_version(f"{topic} of {count}", ApiKey.CREATE_PARTITIONS, body)
    m = codec.module(ApiKey.CREATE_TOPICS)
    named = m.CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    body = m.CreateTopicsRequest(topics=[named], timeout_ms=5000, validate_only=True)
    yield from _every_version(topic, ApiKey.CREATE_TOPICS, body, 1)
    m = codec.module(ApiKey.DESCRIBE_CONFIGS)
    of = m.DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=["retention.ms", "nope"])
    yield from _every_version(topic, ApiKey.DESCRIBE_CONFIGS, m.DescribeConfigsRequest(resources=[of]), 1)
    m = codec.module(ApiKey.ALTER_CONFIGS)
    of = m.AlterConfigsResource(
        resource_type=2, resource_name=topic, configs=[m.AlterableConfig(name="retention.ms", value="1000")]
    )
    yield from _every_version(topic, ApiKey.ALTER_CONFIGS, m.AlterConfigsRequest(resources=[of], validate_only=True))
    m = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    for operation in (0, 1, 2, 3):
        of = m.AlterConfigsResource(
            resource_type=2,
            resource_name=topic,
            configs=[m.AlterableConfig(name="cleanup.policy", config_operation=operation, value="compact")],
        )
        body = m.IncrementalAlterConfigsRequest(resources=[of], validate_only=True)
        yield from _every_version(topic, ApiKey.INCREMENTAL_ALTER_CONFIGS, body)
    m = codec.module(ApiKey.DELETE_TOPICS)
    if topic not in (OFFSETS, TRANSACTIONS):
        body = m.DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000)
        yield from _every_version(topic, ApiKey.DELETE_TOPICS, body, 0, 5)
        body = m.DeleteTopicsRequest(topics=[m.DeleteTopicState(name=topic)], timeout_ms=5000)
        yield from _every_version(topic, ApiKey.DELETE_TOPICS, body, 6)


def _of_a_topic_id() -> Iterator[Case]:
    m = codec.module(ApiKey.FETCH)
    wanted = m.FetchPartition(partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1)
    body = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        topics=[m.FetchTopic(topic_id=_UNKNOWN_ID, partitions=[wanted])],
        session_epoch=-1,
        isolation_level=0,
        replica_id=-1,
    )
    yield from _every_version("unknown id", ApiKey.FETCH, body, 13)
    m = codec.module(ApiKey.METADATA)
    body = m.MetadataRequest(
        topics=[m.MetadataRequestTopic(topic_id=_UNKNOWN_ID, name=None)], allow_auto_topic_creation=False
    )
    yield from _every_version("unknown id", ApiKey.METADATA, body, 10)
    m = codec.module(ApiKey.DELETE_TOPICS)
    body = m.DeleteTopicsRequest(topics=[m.DeleteTopicState(name=None, topic_id=_UNKNOWN_ID)], timeout_ms=5000)
    yield from _every_version("unknown id", ApiKey.DELETE_TOPICS, body, 6)


def _of_groups() -> Iterator[Case]:
    for group in ("never-was", ""):
        for member in ("", "nobody"):
            for instance in (None, "nobody"):
                about = f"group {group!r} member {member!r} instance {instance!r}"
                m = codec.module(ApiKey.HEARTBEAT)
                body = m.HeartbeatRequest(group_id=group, generation_id=3, member_id=member, group_instance_id=instance)
                yield from _every_version(about, ApiKey.HEARTBEAT, body)
                m = codec.module(ApiKey.SYNC_GROUP)
                body = m.SyncGroupRequest(
                    group_id=group,
                    generation_id=3,
                    member_id=member,
                    group_instance_id=instance,
                    assignments=[],
                    protocol_type="consumer",
                    protocol_name="range",
                )
                yield from _every_version(about, ApiKey.SYNC_GROUP, body, 5)
                body = m.SyncGroupRequest(
                    group_id=group, generation_id=3, member_id=member, group_instance_id=instance, assignments=[]
                )
                yield from _every_version(about, ApiKey.SYNC_GROUP, body)
                m = codec.module(ApiKey.LEAVE_GROUP)
                yield from _every_version(
                    about, ApiKey.LEAVE_GROUP, m.LeaveGroupRequest(group_id=group, member_id=member), 0, 2
                )
                body = m.LeaveGroupRequest(
                    group_id=group, members=[m.MemberIdentity(member_id=member, group_instance_id=instance)]
                )
                yield from _every_version(about, ApiKey.LEAVE_GROUP, body, 3)
                m = codec.module(ApiKey.OFFSET_COMMIT)
                of = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
                body = m.OffsetCommitRequest(
                    group_id=group,
                    generation_id_or_member_epoch=3,
                    member_id=member,
                    group_instance_id=instance,
                    topics=[m.OffsetCommitRequestTopic(name="t", partitions=[of])],
                )
                yield from _every_version(about, ApiKey.OFFSET_COMMIT, body, 1)
                m = codec.module(ApiKey.JOIN_GROUP)
                if member:
                    protocol = m.JoinGroupRequestProtocol(name="range", metadata=b"")
                    body = m.JoinGroupRequest(
                        group_id=group,
                        session_timeout_ms=10_000,
                        rebalance_timeout_ms=10_000,
                        member_id=member,
                        group_instance_id=instance,
                        protocol_type="consumer",
                        protocols=[protocol],
                    )
                    yield from _every_version(about, ApiKey.JOIN_GROUP, body)
                m = codec.module(ApiKey.TXN_OFFSET_COMMIT)
                part = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
                body = m.TxnOffsetCommitRequest(
                    transactional_id="never-was",
                    group_id=group,
                    producer_id=99,
                    producer_epoch=0,
                    generation_id=3,
                    member_id=member,
                    group_instance_id=instance,
                    topics=[m.TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
                )
                yield from _every_version(about, ApiKey.TXN_OFFSET_COMMIT, body)
        m = codec.module(ApiKey.DESCRIBE_GROUPS)
        yield from _every_version(group, ApiKey.DESCRIBE_GROUPS, m.DescribeGroupsRequest(groups=[group]))
        m = codec.module(ApiKey.DELETE_GROUPS)
        yield from _every_version(group, ApiKey.DELETE_GROUPS, m.DeleteGroupsRequest(groups_names=[group]))


def _of_transactions() -> Iterator[Case]:
    for transactional_id in ("never-was", ""):
        m = codec.module(ApiKey.DESCRIBE_TRANSACTIONS)
        body = m.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        yield from _every_version(transactional_id, ApiKey.DESCRIBE_TRANSACTIONS, body)
        for producer_id in (99, -1):
            about = f"{transactional_id!r} {producer_id}"
            m = codec.module(ApiKey.END_TXN)
            body = m.EndTxnRequest(
                transactional_id=transactional_id, producer_id=producer_id, producer_epoch=0, committed=True
            )
            yield from _every_version(about, ApiKey.END_TXN, body)
            m = codec.module(ApiKey.ADD_OFFSETS_TO_TXN)
            body = m.AddOffsetsToTxnRequest(
                transactional_id=transactional_id, producer_id=producer_id, producer_epoch=0, group_id="g1"
            )
            yield from _every_version(about, ApiKey.ADD_OFFSETS_TO_TXN, body)
            m = codec.module(ApiKey.INIT_PRODUCER_ID)
            body = m.InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=1000,
                producer_id=producer_id if producer_id > 0 else 5,
                producer_epoch=0,
            )
            yield from _every_version(about, ApiKey.INIT_PRODUCER_ID, body, 3)
            m = codec.module(ApiKey.ADD_PARTITIONS_TO_TXN)
            for topic in (IN_TRANSACTIONS, "nope"):
                named = m.AddPartitionsToTxnTopic(name=topic, partitions=[0])
                body = m.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=transactional_id,
                    v3_and_below_producer_id=producer_id,
                    v3_and_below_producer_epoch=0,
                    v3_and_below_topics=[named],
                )
                yield from _every_version(about, ApiKey.ADD_PARTITIONS_TO_TXN, body, 0, 3)
                for verify in (False, True):
                    one = m.AddPartitionsToTxnTransaction(
                        transactional_id=transactional_id,
                        producer_id=producer_id,
                        producer_epoch=0,
                        verify_only=verify,
                        topics=[named],
                    )
                    yield from _every_version(
                        about, ApiKey.ADD_PARTITIONS_TO_TXN, m.AddPartitionsToTxnRequest(transactions=[one]), 4
                    )
    m = codec.module(ApiKey.LIST_TRANSACTIONS)
    body = m.ListTransactionsRequest(state_filters=["nope"], producer_id_filters=[424242])
    yield from _every_version("", ApiKey.LIST_TRANSACTIONS, body)


def _of_configs() -> Iterator[Case]:
    m, alter, incremental = (
        codec.module(key) for key in (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
    )
    for kind in (0, 1, 2, 3, 4, 8, 16, 32, 77):
        for name in ("", "1", "9", "nope", "-1"):
            about = f"resource {kind} {name!r}"
            of = m.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=["nope", "my.reporter.url", "kafka.nope"]
            )
            yield from _every_version(about, ApiKey.DESCRIBE_CONFIGS, m.DescribeConfigsRequest(resources=[of]), 1)
            for key in ("nope", "log.cleaner.threads"):
                of = alter.AlterConfigsResource(
                    resource_type=kind, resource_name=name, configs=[alter.AlterableConfig(name=key, value="1")]
                )
                yield from _every_version(
                    about, ApiKey.ALTER_CONFIGS, alter.AlterConfigsRequest(resources=[of], validate_only=True)
                )
                for operation in (0, 1, 2, 3, 9):
                    of = incremental.AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[incremental.AlterableConfig(name=key, config_operation=operation, value="1")],
                    )
                    body = incremental.IncrementalAlterConfigsRequest(resources=[of], validate_only=True)
                    yield from _every_version(f"{about} {key} {operation}", ApiKey.INCREMENTAL_ALTER_CONFIGS, body)


def _of_a_plug_in() -> Iterator[Case]:
    """A key that no broker knows: set, described and removed (KIP-226, custom configurations)."""
    describe, alter = codec.module(ApiKey.DESCRIBE_CONFIGS), codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    for name in ("", "1"):
        for key in ("my.reporter.url", "listener.name.plaintext.my.url"):
            for operation in (0, 1):
                change = alter.AlterableConfig(
                    name=key, config_operation=operation, value="x" if not operation else None
                )
                of = alter.AlterConfigsResource(resource_type=4, resource_name=name, configs=[change])
                body = alter.IncrementalAlterConfigsRequest(resources=[of])
                yield from _every_version(f"{key} of {name!r} {operation}", ApiKey.INCREMENTAL_ALTER_CONFIGS, body)
                shown = describe.DescribeConfigsResource(resource_type=4, resource_name=name, configuration_keys=[key])
                body = describe.DescribeConfigsRequest(resources=[shown], include_synonyms=True)
                yield from _every_version(f"{key} of {name!r} {operation}", ApiKey.DESCRIBE_CONFIGS, body, 1)


def _of_moves() -> Iterator[Case]:
    m = codec.module(ApiKey.FIND_COORDINATOR)
    for kind in (0, 1, 2, 9):
        yield from _every_version(
            f"coordinator {kind}",
            ApiKey.FIND_COORDINATOR,
            m.FindCoordinatorRequest(key="never-was", key_type=kind),
            0,
            3,
        )
        yield from _every_version(
            f"coordinator {kind}",
            ApiKey.FIND_COORDINATOR,
            m.FindCoordinatorRequest(coordinator_keys=["never-was"], key_type=kind),
            4,
        )


def _in_a_transaction(topic: str) -> Iterator[Case]:
    """Partitions of it, alone and beside another topic, of a producer that exists."""
    init, add, end = (
        codec.module(key) for key in (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN)
    )
    offsets = codec.module(ApiKey.TXN_OFFSET_COMMIT)
    transactional_id = f"in {topic}"
    body = init.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    yield Case(f"init {topic}", Request(ApiKey.INIT_PRODUCER_ID, 4, body))
    for others in ((), (IN_TRANSACTIONS,), ("nope",), (IN_TRANSACTIONS, "nope")):
        for topics in ((topic, *others), (*others, topic)):
            named = [
                add.AddPartitionsToTxnTopic(name=one, partitions=[0, 99] if one == topic else [0]) for one in topics
            ]
            body = add.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=PRODUCER_ID,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=named,
            )
            yield from _every_version(f"{topics}", ApiKey.ADD_PARTITIONS_TO_TXN, body, 0, 3)
    of = offsets.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    body = offsets.TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id="g1",
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        topics=[offsets.TxnOffsetCommitRequestTopic(name=topic, partitions=[of])],
    )
    yield from _every_version(topic, ApiKey.TXN_OFFSET_COMMIT, body, 0, 2)
    body = end.EndTxnRequest(
        transactional_id=transactional_id, producer_id=PRODUCER_ID, producer_epoch=0, committed=True
    )
    yield Case(f"end {topic}", Request(ApiKey.END_TXN, 3, body))


def filled(value: Any, directory: str, producer_id: int) -> Any:
    """A request, or a part of one, with the own values of a broker in the places that stand for them."""
    if hasattr(value, "__slots__"):
        return type(value)(**{name: filled(getattr(value, name), directory, producer_id) for name in value.__slots__})
    if isinstance(value, list):
        return [filled(one, directory, producer_id) for one in value]
    if isinstance(value, str):
        return directory if value == OWN_DIRECTORY else value
    return producer_id if value == PRODUCER_ID and type(value) is int else value
