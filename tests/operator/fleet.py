"""The operator's own tasks on a Kubernetes and a Kafka in memory, driven step by step."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ottla_broker.config import BrokerConfig, is_changeable
from ottla_broker.config.properties import parse_properties
from ottla_broker.protocol.errors import KafkaError as BrokerError
from ottla_operator.api import names
from ottla_operator.api.fleet import (
    NO_ANSWER,
    BrokerReport,
    BrokerValue,
    BrokerValues,
    ClusterMetadata,
    ConfigChanges,
    LogDirContents,
    LogDirectoryReport,
    MembershipReport,
    PartitionReport,
    Reconfiguration,
    RecreationReport,
    ReplicaInLogDir,
    ServerReport,
)
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    KAFKA_CLUSTER,
    NODE,
    POD,
    STATEFUL_SET,
    Obj,
    dig,
    has_condition,
    uid_of,
)
from ottla_operator.api.pipeline_report import PipelineReport, read_pipeline_report
from ottla_operator.api.topics import (
    AlterTopicConfig,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    TopicChange,
    TopicDescription,
)
from ottla_operator.concerns.config.config import FILE
from ottla_operator.concerns.ensemble.ensemble_volumes import parse_ensemble_record
from ottla_operator.concerns.topics.reasons import TOPIC_ALREADY_EXISTS
from ottla_operator.facts.broker_claims import log_dir
from ottla_operator.facts.fleet_values import MoveRequests
from ottla_operator.facts.snapshot import ContainerImages
from ottla_operator.ports import ApiError, KafkaAdmin, KafkaUnavailable
from ottla_operator.runtime.cluster_task import ClusterTask
from ottla_operator.runtime.object_cache import ObjectCache
from tests.operator.kubernetes import NOW, InMemoryKubernetes, node
from tests.operator.membership import Membership
from tests.operator.task_contexts import task_context

CLUSTER: dict[str, Any] = {
    "apiVersion": "kafka.ottla.dev/v1alpha1",
    "kind": "KafkaCluster",
    "metadata": {"name": "orders", "namespace": "default"},
    "spec": {
        "brokers": {
            "replicas": 3,
            "disks": [
                {"name": "d0", "size": "100Gi", "storageClassName": "local"},
                {"name": "d1", "size": "100Gi", "storageClassName": "local"},
            ],
            "config": {"min.insync.replicas": 2},
        },
        "zookeeper": {"replicas": 3, "disk": {"size": "5Gi", "storageClassName": "local"}, "logDisk": {"size": "5Gi"}},
    },
}
KEY = ("default", "orders")
THROTTLE_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


class InMemoryKafka:
    """A fleet whose brokers are the ready pods; a replica is in sync unless `behind` names its broker."""

    def __init__(self, kubernetes: InMemoryKubernetes) -> None:
        self._kubernetes = kubernetes
        self.topics_there: dict[str, TopicDescription] = {}
        self.partitions: list[tuple[str, int, tuple[int, ...]]] = []
        self.minimums: dict[str, int] = {}
        """min.insync.replicas by topic; where it is not set 2, and 1 of a topic with fewer than three replicas."""
        self.described: list[str] = []
        """The topics whose min.insync.replicas was asked for, in order."""
        self.behind: set[int] = set()
        self.unregistered: set[int] = set()
        self.frozen: dict[str, ClusterMetadata] = {}
        """What brokers answer whose sessions have expired, by the uid of their pods (`freeze`)."""
        self.asked_only: set[int] = set()
        """The brokers that may be asked now; empty: all."""
        self.leaders: dict[tuple[str, int], int] = {}
        self.places: dict[tuple[int, str, int], str] = {}
        """The log directory of a replica, by broker and partition, once the broker was asked."""
        self.moving_log_dirs: dict[tuple[int, str, int], str] = {}
        """Where replicas move to that are not there yet."""
        self.moves_are_slow = False
        self.most_moves = 0
        """The most replicas that were asked to move in one request."""
        self.refused_dir_moves: dict[tuple[int, str, int], str] = {}
        """Why a broker does not move a replica to another log directory."""
        self.asked_dir_moves = 0
        """How many such moves were asked for."""
        self.leaderless: set[tuple[str, int]] = set()
        """Partitions whose only replica in sync is on a failed log directory."""
        self.elections: list[tuple[tuple[str, int], ...]] = []
        """What was asked for, one item for each request."""
        self.elects = True
        self.reorders: list[dict[tuple[str, int], Sequence[int]]] = []
        self.not_reordered: set[tuple[str, int]] = set()
        """Partitions that are being reassigned."""
        self._pods: dict[int, str] = {}
        self.moving: dict[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """Reassignments under way: the replicas before and after."""
        self.finishes_moves = True
        self.moves: list[MoveRequests] = []
        self.throttled_topics: set[str] = set()
        self.sizes: dict[str, int] = {}
        """Bytes of each replica, by topic."""
        self.on_disk: dict[int, tuple[str, ...]] = {}
        """Replicas in log directories that no metadata names, by broker."""
        self.requests: list[TopicChange] = []
        self.opened = 0
        self.closed = 0
        """How many clients were made, and how many of them have been closed."""
        self.created = 0
        self.asked: list[str] = []
        """The topics that were looked at, in order."""
        self.refusals: dict[str, str] = {}
        self.unanswered: dict[int | None, str] = {}
        """Why a broker does not answer a change of its configuration."""
        self.errors: dict[str, str] = {".": "InvalidTopic: '.' is no topic name"}
        """What the brokers answer instead of a topic."""
        self.unseen: set[str] = set()
        """Topics of which the brokers that are asked do not know yet."""
        self.answers = True
        self.dynamic: dict[int | None, dict[str, str]] = {}
        """Values that kafka-configs has set, by broker; None: the fleet's default."""
        self.config_changes: list[tuple[int | None, dict[str, str | None]]] = []
        """The changes of dynamic values that were made for the operator, in order."""
        self.set_again: dict[int | None, dict[str, str]] = {}
        """What somebody sets after each change, by broker."""
        self._files: dict[str, dict[str, str]] = {}
        self.features: dict[str, int] = {}
        """The finalized level by feature."""
        self.is_slow = False
        """Changes are done, after the client's timeout."""

    def ask_only(self, brokers: Collection[int]) -> None:
        self.asked_only = set(brokers)

    def freeze(self, broker: int) -> None:
        """The session of a broker expires: the others count it as dead, and it answers with what it knows now."""
        self.frozen[self._ready_pods()[broker]] = self._metadata(self.ready_brokers())

    def _ready_pods(self) -> dict[int, str]:
        """The uids of the ready pods by broker."""
        ready = {}
        for name in self._kubernetes.names(POD):
            pod = self._kubernetes.stored(POD, name)
            number = dig(pod, "metadata", "labels", names.BROKER_ID)
            if number is not None and has_condition(pod, "Ready") and not dig(pod, "metadata", "deletionTimestamp"):
                ready[int(number)] = uid_of(pod)
        return ready

    def ready_brokers(self) -> list[int]:
        """The registered ones."""
        pods = self._ready_pods()
        return sorted(number for number in pods.keys() - self.unregistered if pods[number] not in self.frozen)

    async def brokers(self) -> Sequence[int]:
        ready = self.ready_brokers()
        if not ready or not self.answers:
            raise KafkaUnavailable("no broker answers")
        return ready

    async def view(self) -> ClusterMetadata:
        """A broker whose metadata is old answers before any other that is asked."""
        asked = {number: uid for number, uid in self._ready_pods().items() if number in self.asked_only}
        old = [uid for uid in (asked or self._ready_pods()).values() if uid in self.frozen]
        if old and self.answers:
            return self.frozen[old[0]]
        ready = await self.brokers()
        if self.finishes_moves:
            self.finish_moves()
        return self._metadata(ready)

    def _metadata(self, ready: Sequence[int]) -> ClusterMetadata:
        now, in_sync = self._incarnations(), self.in_sync()
        partitions = tuple(
            PartitionReport(
                topic,
                index,
                -1 if (topic, index) in self.leaderless else self._leader(topic, index, replicas, now, in_sync),
                replicas,
                tuple(r for r in replicas if r in in_sync),
            )
            for topic, index, replicas in self.partitions
        )
        self._pods = now
        return ClusterMetadata("cluster-1", ready[0], tuple(ready), partitions)

    async def min_in_sync(self, topics: Sequence[str]) -> Mapping[str, int]:
        await self.brokers()
        self.described += topics
        sizes = {topic: len(replicas) for topic, _, replicas in self.partitions}
        return {topic: self.minimums.get(topic, 2 if sizes.get(topic, 3) > 2 else 1) for topic in topics}

    def _incarnations(self) -> dict[int, str]:
        return {
            int(pod["metadata"]["labels"][names.BROKER_ID]): uid_of(pod)
            for pod in (self._kubernetes.stored(POD, name) for name in self._kubernetes.names(POD))
            if dig(pod, "metadata", "labels", names.BROKER_ID) is not None
        }

    def _leader(
        self, topic: str, index: int, replicas: tuple[int, ...], now: Mapping[int, str], all_in_sync: set[int]
    ) -> int:
        """Who led goes on unless its pod was replaced or it is not in sync; then the first other one in sync leads."""
        leader = self.leaders.get((topic, index), replicas[0])
        in_sync = [replica for replica in replicas if replica in all_in_sync]
        if leader not in in_sync or self._pods.get(leader, now[leader]) != now[leader]:
            leader = next((replica for replica in in_sync if replica != leader), in_sync[0] if in_sync else -1)
        self.leaders[topic, index] = leader
        return leader

    def leads(self) -> dict[int, int]:
        """How many partitions each broker leads."""
        return dict(sorted(Counter(self.leaders.values()).items()))

    async def reassignments(self) -> Mapping[tuple[str, int], tuple[tuple[int, ...], ...]]:
        await self.brokers()
        return {
            partition: (tuple(sorted(set(after) - set(before))), tuple(sorted(set(before) - set(after))))
            for partition, (before, after) in self.moving.items()
        }

    def finish_moves(self) -> None:
        """Every replica that is being added is in sync."""
        for (topic, index), (_, after) in self.moving.items():
            self._replace(topic, index, after)
        self.moving = {}

    def _replace(self, topic: str, index: int, replicas: tuple[int, ...]) -> None:
        self.partitions = [
            (name, number, replicas if (name, number) == (topic, index) else there)
            for name, number, there in self.partitions
        ]

    async def move(self, requests: MoveRequests) -> Mapping[tuple[str, int], str]:
        await self.brokers()
        self.moves.append(requests)
        if requests.throttle is not None:
            change = requests.throttle
            if unknown := set(change.brokers) - set(self.ready_brokers()):
                raise KafkaUnavailable(f"UnknownBrokerIdError: {min(unknown)}")  # each is asked for its own values
            for number in change.brokers:
                values = {key: str(change.bytes_per_second) for key in THROTTLE_RATES if change.bytes_per_second}
                kept = {key: value for key, value in self.dynamic.get(number, {}).items() if key not in THROTTLE_RATES}
                self.dynamic[number] = kept | values
            self.throttled_topics |= set(change.leaders)
            self.throttled_topics -= set(change.unset)
        moved = self.moving_log_dirs if self.moves_are_slow else self.places
        moved |= requests.log_dirs
        errors = {}
        there = {(topic, index): replicas for topic, index, replicas in self.partitions}
        for partition, target in requests.reassign.items():
            if partition not in there:
                errors[partition] = f"{partition[0]}-{partition[1]}: UnknownTopicOrPartition"
            elif target is None:
                before, _ = self.moving.pop(partition, (there[partition], ()))
                self._replace(*partition, before)
            elif not set(target) <= set(self.ready_brokers()) | set(there[partition]):
                errors[partition] = f"{partition[0]}-{partition[1]}: InvalidReplicaAssignment"
            elif set(target) == set(there[partition]):
                self._replace(*partition, target)
            else:
                self.moving[partition] = (there[partition], target)
                self._replace(*partition, (*target, *(one for one in there[partition] if one not in target)))
        return errors

    async def elect_leaders(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], str]:
        self.elections.append(tuple(partitions))
        errors: dict[tuple[str, int], str] = {}
        in_sync, asked = self.in_sync(), set(partitions)
        for topic, index, replicas in self.partitions:
            if (topic, index) not in asked:
                continue
            if not self.elects or replicas[0] not in in_sync:
                errors[topic, index] = "PreferredLeaderNotAvailable"
            else:
                self.leaders[topic, index] = replicas[0]
        return errors

    async def log_dirs(self, brokers: Sequence[int]) -> Mapping[int, Sequence[LogDirContents]]:
        await self.brokers()
        return {number: self._contents(number) for number in brokers if number in self.ready_brokers()}

    def _contents(self, broker: int) -> tuple[LogDirContents, ...]:
        """`on_disk` is in the first log directory."""
        paths = self._paths(broker)
        found: dict[str, list[ReplicaInLogDir]] = {path: [] for path in paths}
        for topic, index, replicas in self.partitions:
            if broker in replicas:
                place = self.places.setdefault((broker, topic, index), self._placeable(broker)[0])
                found[place].append(ReplicaInLogDir(topic, index, self.sizes.get(topic, 0)))
                if target := self.moving_log_dirs.get((broker, topic, index)):
                    found[target].append(ReplicaInLogDir(topic, index, 0, is_future=True))
        for name in self.on_disk.get(broker, ()):
            topic, _, number = name.rpartition("-")
            found[paths[0]].append(ReplicaInLogDir(topic, int(number)))
        return tuple(LogDirContents(path, tuple(there), 100 << 30, 90 << 30) for path, there in found.items())

    async def move_replicas(self, broker: int, targets: Mapping[tuple[str, int], str]) -> Mapping[tuple[str, int], str]:
        self.most_moves = max(self.most_moves, len(targets))
        self.asked_dir_moves += len(targets)
        refused = {one: why for one in targets if (why := self.refused_dir_moves.get((broker, *one)))}
        for (topic, index), path in targets.items():
            assert path in self._placeable(broker), f"{path} is cordoned"
            if (topic, index) in refused:
                continue
            if self.moves_are_slow:
                self.moving_log_dirs[broker, topic, index] = path
            else:
                self.places[broker, topic, index] = path
        return refused

    async def set_broker_config(self, broker: int, key: str, value: str | None) -> str:
        values = {name: old for name, old in self.dynamic.get(broker, {}).items() if name != key}
        self.dynamic[broker] = values if value is None else {**values, key: value}
        return ""

    def _paths(self, broker: int) -> list[str]:
        pod = self._kubernetes.stored(POD, f"orders-broker-{broker}-0")
        volumes = pod["spec"]["volumes"]
        return [log_dir(volume["name"]) for volume in volumes if "persistentVolumeClaim" in volume]

    def _placeable(self, broker: int) -> list[str]:
        cordoned = self.dynamic.get(broker, {}).get("cordoned.log.dirs", "").split(",")
        return [path for path in self._paths(broker) if path not in cordoned]

    async def reorder(self, orders: Mapping[tuple[str, int], Sequence[int]]) -> Mapping[tuple[str, int], str]:
        await self.brokers()
        self.reorders.append(dict(orders))
        there = {(topic, index): replicas for topic, index, replicas in self.partitions}
        for partition, order in orders.items():
            assert sorted(order) == sorted(there[partition]), "the same replicas"
        refused = {partition: "ReassignmentInProgress" for partition in orders if partition in self.not_reordered}
        self.partitions = [
            (topic, index, tuple(orders.get((topic, index), replicas)) if (topic, index) not in refused else replicas)
            for topic, index, replicas in self.partitions
        ]
        return refused

    def in_sync(self) -> set[int]:
        return set(self.ready_brokers()) - self.behind

    async def finalized_features(self) -> Mapping[str, int]:
        await self.brokers()
        return self.features

    async def broker_values(self, broker_ids: Sequence[int]) -> Mapping[int, BrokerValues]:
        if not self.answers:
            raise KafkaUnavailable("no broker answers")
        return {number: self._values(number) for number in broker_ids}

    def _values(self, broker: int) -> BrokerValues:
        own, of_all, file = self.dynamic.get(broker, {}), self.dynamic.get(None, {}), self._file(broker)
        return {
            key: BrokerValue(own.get(key), of_all.get(key), file.get(key))
            for key in {*own, *of_all, *(key for key in file if is_changeable(key, file[key]))}
        }

    def _file(self, broker: int) -> dict[str, str]:
        """What a broker has read when its pod was seen first: later changes of the ConfigMap are for its next start."""
        name = f"orders-broker-{broker}-0"
        if name not in self._kubernetes.names(POD):
            return {}
        pod = self._kubernetes.stored(POD, name)
        if uid_of(pod) not in self._files:
            config = next(item["configMap"]["name"] for item in pod["spec"]["volumes"] if item["name"] == "config")
            if config not in self._kubernetes.names(CONFIG_MAP):
                return {}  # it cannot start yet
            self._files[uid_of(pod)] = parse_properties(self._kubernetes.stored(CONFIG_MAP, config)["data"][FILE])
        return self._files[uid_of(pod)]

    async def alter_broker_configs(self, changes: ConfigChanges) -> Mapping[tuple[int | None, str], str]:
        ready = await self.brokers()
        errors = {}
        for broker, values in changes.items():
            if broker is not None and broker not in ready:
                raise KafkaUnavailable(f"broker {broker} does not answer")
            if broker in self.unanswered:
                errors |= {(broker, key): f"{NO_ANSWER}{self.unanswered[broker]}" for key in values}
                continue
            if self._alter(broker, values, ready):
                refused = {key: self._alter(broker, {key: value}, ready) for key, value in values.items()}
                errors |= {(broker, key): error for key, error in refused.items() if error}
        return errors

    def _alter(self, broker: int | None, values: Mapping[str, str | None], ready: Sequence[int]) -> str:
        """As a broker checks it. Returns the error."""
        assert all(len(value) < 1 << 15 for value in values.values() if value), "the broker closes the connection"
        stored = self.dynamic.get(broker, {})
        new = {key: value for key, value in stored.items() if key not in values}
        new |= {key: value for key, value in values.items() if value is not None}
        answering = ready[0] if broker is None else broker
        config = BrokerConfig.from_mapping(self._file(answering))
        config.apply_dynamic(self.dynamic.get(answering, {}), self.dynamic.get(None, {}))
        try:
            config.check_update(stored, new, cluster_wide=broker is None)
        except BrokerError as error:
            return error.message
        self.dynamic[broker] = new
        self.config_changes.append((broker, dict(values)))
        if broker in self.set_again:
            self.dynamic[broker] = {**new, **self.set_again[broker]}
        return ""

    async def topics(self, wanted: Sequence[str]) -> Mapping[str, TopicDescription]:
        if not self.answers:
            raise KafkaUnavailable("no broker answers")
        self.asked += wanted
        failed = {
            name: TopicDescription(name, "", 0, 0, {}, error=self.errors[name])
            for name in wanted
            if name in self.errors
        }
        seen = {name: self.topics_there[name] for name in wanted if name in self.topics_there.keys() - self.unseen}
        return seen | failed

    async def change(self, changes: Sequence[TopicChange]) -> Mapping[str, str]:
        errors = {}
        for change in changes:
            if change.topic in self.refusals:
                errors[change.topic] = self.refusals[change.topic]
                continue
            if isinstance(change, CreateTopic) and change.topic in self.topics_there:
                errors[change.topic] = f"{TOPIC_ALREADY_EXISTS}: it is there"
                continue
            self.requests.append(change)
            live = self.topics_there.get(change.topic)
            if isinstance(change, CreateTopic):
                count = change.partitions if change.partitions > 0 else 1
                replicas = change.replicas if change.replicas > 0 else 1
                self.created += 1
                self.topics_there[change.topic] = TopicDescription(
                    change.topic, f"id-{self.created}", count, replicas, dict(change.config)
                )
            elif isinstance(change, DeleteTopic):
                if live is not None and change.topic_id in ("", live.topic_id):
                    del self.topics_there[change.topic]
            elif live is not None and isinstance(change, CreatePartitions):
                self.topics_there[change.topic] = TopicDescription(
                    live.name, live.topic_id, change.partitions, live.replicas, live.config
                )
            elif live is not None and isinstance(change, AlterTopicConfig):
                config = {key: value for key, value in live.config.items() if key not in change.unset} | change.set
                self.topics_there[change.topic] = TopicDescription(
                    live.name, live.topic_id, live.partitions, live.replicas, config
                )
        if self.is_slow:
            raise KafkaUnavailable("timed out")
        return errors

    async def close(self) -> None:
        self.closed += 1


@dataclass(slots=True)
class InMemorySurroundings:
    """Broker pods report a directory id per claim, as long as the claim's data exists (`directories`)."""

    kubernetes: InMemoryKubernetes
    fleet: InMemoryKafka
    directories: dict[str, str] = field(default_factory=dict)
    offline: set[str] = field(default_factory=set)
    """Claims whose log directory is offline, since NOW."""
    free_bytes: dict[str, int] = field(default_factory=dict)
    """Free bytes of the log directory on a claim, where they are reported."""
    recreation: dict[int, RecreationReport] = field(default_factory=dict)
    says: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """What brokers that are not ready report, by pod: the fields of a BrokerReport from `state` on."""
    """By broker, where replicas are being recreated."""
    refused_stores: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By broker, why stores of certificates are not in force."""
    strays: dict[str, int] = field(default_factory=dict)
    """Logs that are not assigned to the broker, by claim."""
    sessions: dict[str, str] = field(default_factory=dict)
    """State of a broker's session with ZooKeeper, by the name of its pod, where it is not connected."""
    session_for_ms: int = 60_000
    """How long every session has been in its state."""
    drivers: dict[str, Any] = field(default_factory=dict)
    """The /status of drivers of pipelines by the name of their pod; others do not answer."""
    reported: list[str] = field(default_factory=list)
    """The pods that were asked, in order."""
    ensemble_members: Membership = field(init=False)
    passed_s: int = 0
    """How long after NOW it is."""
    next_password: str = "secret"
    """The password of the next Secret of ZooKeeper's super user."""

    def __post_init__(self) -> None:
        self.ensemble_members = Membership(self.kubernetes)

    def now(self) -> str:
        return (datetime.fromisoformat(NOW) + timedelta(seconds=self.passed_s)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def password(self) -> str:
        return self.next_password

    async def broker_report(self, pod: Obj) -> BrokerReport | None:
        self.reported.append(str(pod["metadata"]["name"]))
        if not has_condition(pod, "Ready"):
            said = self.says.get(str(pod["metadata"]["name"]))
            return None if said is None else BrokerReport(uid_of(pod), "cluster-1", *said)
        found = []
        for volume in dig(pod, "spec", "volumes") or []:
            claim = dig(volume, "persistentVolumeClaim", "claimName")
            if claim is not None:
                identity = self.directories.setdefault(claim, f"directory-of-{claim}")
                state = "offline" if claim in self.offline else "online"
                since_ms = int(datetime.fromisoformat(NOW).timestamp() * 1000)
                free_bytes = self.free_bytes.get(claim, -1)
                strays, path = self.strays.get(claim, 0), log_dir(volume["name"])
                found.append(LogDirectoryReport(path, state, identity, since_ms, free_bytes, strays))
        session = "expired" if uid_of(pod) in self.fleet.frozen else "connected"
        session = self.sessions.get(pod["metadata"]["name"], session)
        recreation = self.recreation.get(int(pod["metadata"]["labels"][names.BROKER_ID]), RecreationReport())
        broker_id = int(pod["metadata"]["labels"][names.BROKER_ID])
        return BrokerReport(
            uid_of(pod), "cluster-1", "running", tuple(found), session, self.session_for_ms, 1767225600000, recreation,
            refused_stores=self.refused_stores.get(broker_id, ()),
        )  # fmt: skip

    def serving(self) -> list[int]:
        """The servers whose pods are ready, while those with a vote among them are a quorum."""
        self.ensemble_members.form()
        pods = [self.kubernetes.stored(POD, name) for name in self.kubernetes.names(POD)]
        ready = [
            int(number)
            for pod in pods
            if (number := dig(pod, "metadata", "labels", names.SERVER_ID)) is not None
            and has_condition(pod, "Ready")
            and not dig(pod, "metadata", "deletionTimestamp")
        ]
        return sorted(ready) if self.ensemble_members.has_quorum(ready) else []

    async def pipeline_report(self, pod: Obj) -> PipelineReport | None:
        return read_pipeline_report(uid_of(pod), self.drivers.get(str(pod["metadata"]["name"])))

    async def server_report(self, pod: Obj) -> ServerReport | None:
        serving, server = self.serving(), int(pod["metadata"]["labels"][names.SERVER_ID])
        if server not in serving:
            return ServerReport(uid_of(pod), "")
        leader = next(number for number in serving if number in self.ensemble_members.servers)
        return ServerReport(uid_of(pod), "leader" if server == leader else "follower")

    async def membership(self, leader: Obj) -> MembershipReport | None:
        return self.ensemble_members.report() if self.serving() else None

    async def accepts_super_user(self, pod: Obj, password: str) -> bool | None:
        return False

    async def reconfigure(self, leader: Obj, password: str, change: Reconfiguration) -> str:
        return self.ensemble_members.reconfigure(change, password, self.serving())

    def kafka(self, bootstrap: Sequence[str]) -> KafkaAdmin:
        self.fleet.opened += 1
        return self.fleet


class Fleet:
    """One cluster, its operator and everything around them."""

    make_kubernetes: Callable[[], InMemoryKubernetes] = InMemoryKubernetes
    """tests/operator/real_api puts a real API server here."""

    def __init__(self, document: dict[str, Any] = CLUSTER, *, reads_nodes: bool = True) -> None:
        self.kubernetes = self.make_kubernetes()
        self.kafka = InMemoryKafka(self.kubernetes)
        self.environment = InMemorySurroundings(self.kubernetes, self.kafka)
        self.images = ContainerImages("ottla:1", "zookeeper:3.9")
        self._reads_nodes = reads_nodes
        for index, zone in enumerate(("zone-a", "zone-b", "zone-c")):
            self.kubernetes.put(node(f"n{index + 1}", zone))
        self.kubernetes.put(document)
        self.restart_operator()

    def restart_operator(self) -> None:
        """A new process: it knows only what the API server has."""
        cache = ObjectCache()
        self.cache = cache
        for obj in list(self.kubernetes.objects.values()):
            cache.put(copy.deepcopy(obj))

        def see(event: str, obj: Obj) -> None:
            if event == "DELETED":
                cache.remove(obj)
            else:
                cache.put(obj)

        self.kubernetes.on_change = see
        self.time = 0.0
        context = task_context(cache, self.kubernetes, self.environment, lambda: self.time + self.environment.passed_s)
        self.task = ClusterTask(KEY, context, self.images, reads_nodes=self._reads_nodes)

    async def step(self) -> None:
        """One pass, then Kubernetes does its part."""
        try:
            await self.task.reconcile_once()
        except ApiError:
            pass  # the supervisor backs off and tries again
        self.kubernetes.settle()

    async def converge(self, passes: int = 80) -> None:
        """Reconciles until nothing is written and Kubernetes changes nothing."""
        for _ in range(passes):
            writes = len(self.kubernetes.writes)
            before = self.kubernetes.version
            await self.step()
            if len(self.kubernetes.writes) == writes and self.kubernetes.version == before:
                return
        raise AssertionError(f"no rest after {passes} passes: {self.kubernetes.writes[-10:]}")

    def edit(self, path: str, value: Any) -> None:
        """Changes a field of the KafkaCluster, as a user would; None takes it away."""
        document = self.kubernetes.there(KAFKA_CLUSTER, "orders")
        *parents, last = path.split(".")
        place = document
        for name in parents:
            place = place.setdefault(name, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
        self.kubernetes.put(document)

    def status(self, *path: str | int) -> Any:
        return dig(self.kubernetes.stored(KAFKA_CLUSTER, "orders"), "status", *path)

    def condition(self, kind: str) -> tuple[str, str, str]:
        """(status, reason, message)."""
        found = next(item for item in self.status("conditions") or [] if item["type"] == kind)
        return found["status"], found["reason"], found["message"]

    def properties(self, broker_id: int) -> str:
        """server.properties that the pod of a broker runs with."""
        pod = self.kubernetes.there(POD, f"orders-broker-{broker_id}-0")
        volume = next(item for item in pod["spec"]["volumes"] if item["name"] == "config")
        return str(self.kubernetes.there(CONFIG_MAP, volume["configMap"]["name"])["data"][FILE])

    def racks(self) -> dict[str, str]:
        """Rack by StatefulSet of a broker."""
        found = {}
        for name in self.kubernetes.names(STATEFUL_SET):
            rack = dig(self.kubernetes.stored(STATEFUL_SET, name), "metadata", "labels", names.RACK)
            if rack is not None:
                found[name] = rack
        return found

    def claims(self) -> list[str]:
        return self.kubernetes.names(CLAIM)

    def _annotations(self, obj: Obj) -> dict[str, Any]:
        """With the names of claims in place of their uids, and without how often the record was written."""
        found = dict(obj["metadata"].get("annotations") or {})
        if (record := parse_ensemble_record(found.get(names.ENSEMBLE))) is not None:
            by_uid = {uid_of(self.kubernetes.stored(CLAIM, name)): name for name in self.claims()}
            found[names.ENSEMBLE] = {
                server: [by_uid.get(uid) for uid in uids] for server, uids in record.served.items()
            }
        return found

    def picture(self) -> dict[str, Any]:
        """The state of the API server without what differs from run to run."""
        picture = {}
        for (kind, _, name), obj in self.kubernetes.objects.items():
            if kind in ("Event", "Pod", NODE.kind):
                continue
            metadata = {"labels": obj["metadata"].get("labels"), "annotations": self._annotations(obj)}
            status = copy.deepcopy(obj.get("status") if kind == "KafkaCluster" else None)
            picture[f"{kind}/{name}"] = {
                **{key: value for key, value in obj.items() if key not in ("metadata", "status")},
                "metadata": metadata,
                "status": status,
            }
        return picture
