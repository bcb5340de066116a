"""The requests of the KafkaAdmin port that move replicas: reassignments, log directories, throttles.

Kafka's own requests (KIP-455, KIP-113, KIP-73), which a controller of Apache Kafka serves too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka import TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError as ClientError
from kafka.errors import UnknownBrokerIdError, for_code

from ottla_documents.limits import too_long_for_kafka
from ottla_operator.api.fleet import LogDirContents, ReplicaInLogDir
from ottla_operator.facts.fleet_values import UNKNOWN, MoveRequests, PartitionId, ReplicaId, ThrottleChange

NO_ERROR = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
NO_REASSIGNMENT_IN_PROGRESS = 85
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"


def list_reassignments(client: KafkaAdminClient, timeout_ms: int) -> dict[PartitionId, tuple[tuple[int, ...], ...]]:
    """(adding, removing) of every reassignment under way, as the controller knows it."""
    found = client.list_partition_reassignments(None, timeout_ms)
    return {
        (partition.topic, partition.partition): (
            tuple(answer["adding_replicas"]),
            tuple(answer["removing_replicas"]),
        )
        for partition, answer in found.items()
    }


def describe_log_dirs(client: KafkaAdminClient, brokers: Sequence[int]) -> dict[int, tuple[LogDirContents, ...]]:
    """The log directories of each broker that answers."""
    found: dict[int, tuple[LogDirContents, ...]] = {}
    for broker in brokers:
        try:
            answer = _ask_for_log_dirs(client, broker)
        except ClientError:
            continue  # a broker that is down has no answer, and the others are wanted all the same
        found[broker] = tuple(
            LogDirContents(
                path=str(directory["log_dir"]),
                replicas=tuple(
                    ReplicaInLogDir(
                        topic["name"],
                        partition["partition_index"],
                        partition["partition_size"],
                        bool(partition["is_future_key"]),
                    )
                    for topic in directory["topics"]
                    for partition in topic["partitions"]
                ),
                total_bytes=_bytes(directory.get("total_bytes")),
                usable_bytes=_bytes(directory.get("usable_bytes")),
                error=_name(directory["error_code"]) if directory["error_code"] != NO_ERROR else "",
            )
            for directory in answer["log_dirs"]
        )
    return found


def _ask_for_log_dirs(client: KafkaAdminClient, broker: int) -> Any:
    # The public call of the client names the topics of the metadata, which lacks topics in deletion.
    try:
        (answer,) = client._manager.run(client._async_describe_log_dirs, None, [broker])
    except UnknownBrokerIdError:
        # The client's own metadata is from while the broker was away, and is refreshed only after five minutes.
        client._manager.run(client._manager.cluster.refresh_metadata)
        (answer,) = client._manager.run(client._async_describe_log_dirs, None, [broker])
    return answer


def alter_log_dirs(client: KafkaAdminClient, targets: Mapping[ReplicaId, str]) -> dict[ReplicaId, str]:
    """Moves replicas to other log directories (AlterReplicaLogDirs). Returns the error's name of each refused one."""
    asked = {(topic, index, broker): path for (broker, topic, index), path in targets.items()}
    return {
        (replica.broker_id, replica.topic, replica.partition): _name(error.errno)
        for replica, error in client.alter_replica_log_dirs(asked).items()
        if error.errno != NO_ERROR
    }


def request_moves(client: KafkaAdminClient, requests: MoveRequests, timeout_ms: int) -> dict[PartitionId, str]:
    """Sets throttles, then directories, then reassignments. Returns the errors by partition, "topic-0: Name"."""
    if requests.throttle is not None:
        _throttle(client, requests.throttle, has_log_dirs=bool(requests.log_dirs))
    errors: dict[PartitionId, str] = {}
    if requests.log_dirs:
        for (_, topic, index), error in alter_log_dirs(client, requests.log_dirs).items():
            # A replica that does not exist yet is created in that directory: the broker remembers it (KIP-113).
            if error != "ReplicaNotAvailable":
                errors[topic, index] = f"{topic}-{index}: {error}"
    targets = {
        TopicPartition(topic, index): None if replicas is None else list(replicas)
        for (topic, index), replicas in requests.reassign.items()
        if (topic, index) not in errors
    }
    if targets:
        for partition, failed in client.alter_partition_reassignments(targets, timeout_ms).items():
            if failed is not None and failed.errno != NO_REASSIGNMENT_IN_PROGRESS:
                found = (partition.topic, partition.partition)
                errors[found] = f"{partition.topic}-{partition.partition}: {_name(failed.errno)}"
    return errors


def _throttle(client: KafkaAdminClient, change: ThrottleChange, *, has_log_dirs: bool) -> None:
    """Brokers first, so that a list of replicas never throttles to a rate that is not set.

    A topic that is deleted meanwhile needs no list.
    """
    rate = str(change.bytes_per_second)
    keys = (*RATES, LOG_DIR_RATE) if has_log_dirs or not change.bytes_per_second else RATES
    entry = dict.fromkeys(keys, (AlterConfigOp.SET, rate) if change.bytes_per_second else (AlterConfigOp.DELETE, None))
    lists = [
        ConfigResource(
            ConfigResourceType.TOPIC,
            topic,
            {
                LEADERS: (AlterConfigOp.SET, throttled_replicas(change.leaders[topic])),
                FOLLOWERS: (AlterConfigOp.SET, throttled_replicas(change.followers.get(topic, ()))),
            },
        )
        for topic in sorted(change.leaders)
    ]
    lists += [
        ConfigResource(
            ConfigResourceType.TOPIC,
            topic,
            {LEADERS: (AlterConfigOp.DELETE, None), FOLLOWERS: (AlterConfigOp.DELETE, None)},
        )
        for topic in change.unset
    ]
    brokers = [ConfigResource(ConfigResourceType.BROKER, str(broker), entry) for broker in change.brokers]
    if change.bytes_per_second:
        _alter(client, brokers, "broker")
        _alter(client, lists, "topic")
    else:
        _alter(client, lists, "topic")
        _alter(client, brokers, "broker")


def throttled_replicas(replicas: Sequence[str]) -> str:
    """The value of a list of throttled replicas: all of the topic where they do not fit into a string of Kafka.

    >>> throttled_replicas(["0:1", "1:2"]), throttled_replicas([f"{index}:1000" for index in range(5000)])
    ('0:1,1:2', '*')
    """
    value = ",".join(replicas)
    return "*" if too_long_for_kafka(value) else value


def _alter(client: KafkaAdminClient, resources: Sequence[ConfigResource], kind: str) -> None:
    if not resources:
        return
    answered = client.alter_configs(list(resources), raise_on_unknown=False, incremental=True)
    for name, text in answered.get(kind, {}).items():
        if text != "OK" and "UnknownTopicOrPartition" not in str(text):
            raise RuntimeError(f"throttle of {kind} {name}: {text}")


def _name(code: int) -> str:
    return str(for_code(code).__name__).removesuffix("Error")


def _bytes(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else UNKNOWN
