"""KafkaCluster as a value: brokers, racks, disks, configuration and the ZooKeeper ensemble."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from ottla_broker.config import UpdateMode, find_key
from ottla_documents.broker_config import broker_value_problem, joint_problem
from ottla_documents.broker_pools import (
    DEFAULTED,
    MAIN_POOL,
    MOST_BROKERS,
    BrokerPool,
    PoolDocument,
    Racks,
    broker_config,
    disks_declared,
    pools_declared,
)
from ottla_documents.disk_spec import Disks, DiskSpec, EnsembleDiskDocument, LogDiskDocument
from ottla_documents.document_root import read_root
from ottla_documents.field_types import CLUSTER_NAME_LENGTH, Config, ConfigKeys, Image
from ottla_documents.kafka_version import PROTOCOL_KEY, canonical_version, version_problem
from ottla_documents.limits import cluster_problems
from ottla_documents.maintenance_windows import MaintenanceWindow, MaintenanceWindows
from ottla_documents.overrides import BrokerOverride, Overrides
from ottla_documents.rebalance_spec import DEFAULT_REBALANCE, RebalanceSpec
from ottla_documents.resources import Resources
from ottla_documents.rolling import DEFAULT_ROLLING, RollingSpec
from ottla_documents.schema.marks import Items, Problem, Rule, Text, WholeNumber
from ottla_documents.schema.nodes import read_object
from ottla_documents.templates import (
    NO_BROKERS_TEMPLATE,
    NO_TEMPLATE,
    BrokersTemplateDocument,
    EnsembleTemplateDocument,
    Template,
)
from ottla_documents.topic_namespaces import ONLY_OWN_NAMESPACE, TopicNamespaces

CLUSTER_NAME = Text(
    r"[a-z]([a-z0-9-]*[a-z0-9])?",
    "lower case letters, digits and -, beginning with a letter and not ending with -",
    most=CLUSTER_NAME_LENGTH,
)
"""Names of Services begin with the name of the cluster, and have to begin with a letter."""
DEFAULT_REPLICAS = 3
DEFAULT_ZOOKEEPER_REPLICAS = 3
DEFAULT_RACK_KEY = "topology.kubernetes.io/zone"
MOST_REPLICAS = 3
ClaimDeletionPolicy = Literal["Retain", "Delete"]
LogLevelName = Literal["", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"]
OF_OWN_ENSEMBLE = ("replicas", "disk", "logDisk", "resources", "template", "image", "claimDeletionPolicy")
"""Fields of `zookeeper` that do not go with `connect`."""
_OWN_IN_WORDS = f"{', '.join(OF_OWN_ENSEMBLE[:-1])} and {OF_OWN_ENSEMBLE[-1]}"


DEFAULT_BROKER_RESOURCES = Resources({"cpu": "250m", "memory": "256Mi"}, {})
"""A broker without load uses 60 to 75 MiB and hardly any CPU; with load up to a whole CPU. The request only has to keep
its sessions and probes alive beside other pods."""
DEFAULT_ZOOKEEPER_RESOURCES = Resources({"cpu": "100m", "memory": "512Mi"}, {})
"""A server without load uses 80 MiB; the heap may grow to 1000 MB in the image zookeeper:3.9 (ZK_SERVER_HEAP)."""


@dataclass(frozen=True, slots=True)
class BrokersSpec:
    """What holds for all brokers; what differs between them is in `pools`."""

    rack_key: str
    pools: tuple[BrokerPool, ...]
    """One, `main`, when the document names none; empty when it is not known which it names."""
    config: Mapping[str, str]
    """What no pool says otherwise."""
    has_pools: bool = False
    has_replicas: bool = False
    """Whether the document says how many brokers there are, where it names no pools."""
    claim_deletion_policy: ClaimDeletionPolicy = "Retain"
    """What happens to a claim that no broker has any more because its disk was replaced or removed."""
    overrides: tuple[BrokerOverride, ...] = ()
    """`ottla local` ignores them."""
    template: Template = NO_TEMPLATE
    """What is added to the objects that belong to no single broker."""
    unmanaged_config: frozenset[str] = frozenset()
    """Broker keys whose dynamic values the operator neither sets nor removes. `ottla local` ignores it."""
    log_level: str = ""
    """"": the broker's default. `ottla local` ignores it."""

    @property
    def replicas(self) -> int:
        """The number of brokers of all pools."""
        return sum(pool.replicas for pool in self.pools)


@dataclass(frozen=True, slots=True)
class ZooKeeperSpec:
    """Either `connect` ("host:2181,host:2181/chroot"), or an ensemble of `replicas` with these disks."""

    connect: str
    replicas: int
    disk: DiskSpec
    log_disk: DiskSpec | None
    resources: Resources = DEFAULT_ZOOKEEPER_RESOURCES
    template: Template = NO_TEMPLATE
    image: str = ""
    claim_deletion_policy: ClaimDeletionPolicy = "Retain"
    """What happens to the claims of a server that has left."""


@dataclass(frozen=True, slots=True)
class TopicsSpec:
    """What KafkaTopics of this cluster may ask for."""

    max_partitions_per_topic: Annotated[int, WholeNumber(1)] = 0
    """The highest number of partitions of one topic. A KafkaTopic that asks for more reports PartitionLimit, and its
    topic is neither created nor grown; a topic that exists keeps its partitions. Default: no limit."""
    max_partitions: Annotated[int, WholeNumber(1)] = 0
    """The highest number of partitions of all KafkaTopics of this cluster together, without their replicas; topics
    without a KafkaTopic do not count. What would exceed it reports PartitionLimit until there is room. Default: no
    limit."""
    namespaces: TopicNamespaces = ONLY_OWN_NAMESPACE


NO_TOPIC_LIMITS = TopicsSpec()


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    name: str
    namespace: str
    brokers: BrokersSpec
    zookeeper: ZooKeeperSpec
    topics: TopicsSpec = NO_TOPIC_LIMITS
    paused: bool = False
    """The operator changes nothing of this cluster. `ottla local` ignores it."""
    rolling: RollingSpec = DEFAULT_ROLLING
    """`ottla local` ignores it."""
    image: str = ""
    """The image of the brokers; "": `facts.images` decides. `ottla local` ignores the images."""
    image_pull_policy: str = ""
    image_update_policy: str = "Keep"
    rebalance: RebalanceSpec = DEFAULT_REBALANCE
    """`ottla local` ignores it."""
    version: str = ""
    """The release of Apache Kafka whose protocol brokers speak with each other; "": `concerns.upgrades` decides."""
    maintenance_windows: tuple[MaintenanceWindow, ...] = ()
    """`ottla local` ignores them."""


@dataclass(frozen=True, slots=True)
class LoggingDocument:
    """The log of the brokers. `ottla local` ignores it."""

    level: LogLevelName = ""
    """The level of the root logger, as Kafka names it. Default: INFO. A change restarts the brokers in batches;
    kafka-configs --entity-type broker-loggers changes a level until the next restart."""


@dataclass(frozen=True, slots=True)
class BrokersDocument:
    """The brokers of the cluster. All of them have the same disks, resources and configuration, unless pools says
    otherwise."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.replicas) || !has(self.pools)", "replicas does not go with pools, each pool has its own replicas"
        ),
    )
    replicas: Annotated[int | None, WholeNumber(1, MOST_BROKERS)] = None
    """The number of brokers, where there are no pools. Default: 3, for a new cluster; it is required while there are
    more brokers, or brokers of pools. A larger number creates brokers with the lowest free ids. A smaller number
    removes the brokers with the highest ids, one at a time, each once it holds no replica; status.rebalance shows how
    they are emptied. Their PersistentVolumeClaims stay, unless claimDeletionPolicy says otherwise. The scale
    subresource sets this field."""
    rack_key: Annotated[str, Text(least=1, most=317)] = DEFAULT_RACK_KEY
    """The node label whose value is a node's rack. It becomes broker.rack, and binds the pods of a broker to the nodes
    of its rack. Default: topology.kubernetes.io/zone. It cannot change."""
    racks: Racks = ()
    """The racks that new brokers are placed in. The rack with the fewest brokers gets the next one; of equal ones, the
    first in this list. Default: every value of rackKey on the nodes. A change applies to new brokers; a broker keeps
    its rack. Required when the operator may not read nodes."""
    disks: Disks | None = None
    """The log directories (log.dirs) of every broker, each on a PersistentVolumeClaim of its own. At least one is
    required on Kubernetes. Adding a disk creates a claim for each broker and restarts the brokers in batches. A disk
    that is removed here is taken from each broker where it holds no replica (state Drain empties it), and the broker
    restarts without it."""
    claim_deletion_policy: ClaimDeletionPolicy = "Retain"
    """What happens to the PersistentVolumeClaim of a disk that was replaced or removed, once the broker runs without
    it, and to those of brokers that were removed, which were empty. Retain: it stays, with the label
    kafka.ottla.dev/retired or kafka.ottla.dev/removed; brokers that are added again take those of removed brokers.
    Delete: the operator deletes it, and the reclaim policy of its StorageClass decides about the volume; but not while
    logs that are not assigned to the broker (-stray) are on it."""
    resources: Resources = DEFAULT_BROKER_RESOURCES
    """CPU and memory of the container of every broker, as in a pod. Default: requests of 250m CPU and 256Mi memory, no
    limits. A value replaces the whole default, so {} requests nothing. A change restarts the brokers in batches. `ottla
    local` ignores it."""
    config: Config = field(default_factory=dict)
    """Broker configuration: Kafka's keys, with values of any scalar type. Default: Kafka's defaults,
    zookeeper.session.timeout.ms=6000, ottla.shutdown.serve.ms=5000, and replication factors of 3
    (default.replication.factor too), or as many as there are brokers. A key of a pool replaces the same key of
    spec.brokers. A change restarts the brokers in batches. An unknown key, a wrong value, a secret or a key that the
    operator sets changes nothing; ConfigValid names it."""
    unmanaged_config: ConfigKeys = ()
    """Broker configuration keys whose dynamic values the operator neither sets nor removes, for values that
    kafka-configs or other tools set. Default: none. A key must not be in config too."""
    overrides: Overrides = ()
    """What holds for single brokers. Default: nothing, so that every broker is Active."""
    logging: LoggingDocument = LoggingDocument()
    template: BrokersTemplateDocument = NO_BROKERS_TEMPLATE
    pools: Annotated[tuple[PoolDocument, ...] | None, Items(least=1, most=50, key="name", keeps_places=True)] = None
    """Groups of brokers that differ from each other. What a pool does not have, it has from the fields above. A broker
    stays in its pool, which the label kafka.ottla.dev/pool of its claims records. The brokers of a pool that is removed
    here are emptied and removed, as with a smaller replicas. When a cluster gets pools, its brokers join them, the
    lowest ids first, and nothing moves; when the last pools go and replicas stands in their place, all brokers are of
    the only pool, main. Default: one pool of all brokers."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.replicas is not None and self.pools is not None:
            yield "replicas", "does not go with pools: each pool has its own replicas"


@dataclass(frozen=True, slots=True)
class ZooKeeperDocument:
    """The ZooKeeper ensemble of the cluster: one that the operator creates, or with connect one that exists. Default:
    an ensemble of three servers."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.connect) || !({' || '.join(f'has(self.{name})' for name in OF_OWN_ENSEMBLE)})",
            f"connect names an existing ensemble; {_OWN_IN_WORDS} do not go with it",
        ),
    )
    connect: Annotated[
        str,
        Text(least=1, most=2048),
        Rule(
            "(self.indexOf('/') < 0 ? '' : self.substring(self.indexOf('/'))) == "
            "(oldSelf.indexOf('/') < 0 ? '' : oldSelf.substring(oldSelf.indexOf('/')))",
            "the chroot of zookeeper.connect cannot change",
        ),
    ] = ""
    """zookeeper.connect of the brokers, host:port,.../chroot, of an ensemble that exists. The operator then creates no
    ensemble, and the other fields of zookeeper must be absent. A change of the hosts restarts the brokers in batches;
    the chroot cannot change, and neither can whether this field is set. Default: none."""
    replicas: Annotated[
        int | None,
        WholeNumber(1, 9),
        Rule("self % 2 == 1", "the number of servers is odd: an even ensemble survives no more failures"),
    ] = None
    """The number of servers of the ensemble, an odd number. Default: 3. A change adds or removes servers one at a time
    by ZooKeeper's own reconfiguration, while the members serve; no broker restarts. Claims of servers that leave get
    the label kafka.ottla.dev/removed (claimDeletionPolicy); a server that joins again gets them and copies its data
    from the others."""
    claim_deletion_policy: ClaimDeletionPolicy | None = None
    """What happens to the PersistentVolumeClaims of servers that have left the ensemble. Retain: they stay. Delete: the
    operator deletes them, also those of servers that have left before, while the ensemble has the members of spec and
    all of them serve. The reclaim policy of the StorageClass decides about the volumes. Default: Retain."""
    image: Image = ""
    """The image of the servers, a ZooKeeper 3.9 with bash, flock and zkServer.sh in its PATH. Default: the one that the
    servers run, and for a new cluster the operator's (see imageUpdatePolicy). A change restarts the servers one at a
    time. `ottla local` ignores it."""
    resources: Resources | None = None
    """CPU and memory of the container of every server, as in a pod. Default: requests of 100m CPU and 512Mi memory, no
    limits. A value replaces the whole default, so {} requests nothing. A change restarts the servers one at a time.
    `ottla local` ignores it."""
    template: EnsembleTemplateDocument | None = None
    disk: EnsembleDiskDocument | None = None
    log_disk: LogDiskDocument | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        own = (
            self.replicas,
            self.disk,
            self.log_disk,
            self.resources,
            self.template,
            self.image or None,
            self.claim_deletion_policy,
        )
        if self.connect and any(one is not None for one in own):
            yield "connect", f"names an existing ensemble; {_OWN_IN_WORDS} do not go with it"
        if self.replicas is not None and self.replicas % 2 == 0:
            yield "replicas", f"must be odd, not {self.replicas}: an even ensemble survives no more failures"


@dataclass(frozen=True, slots=True)
class KafkaClusterDocument:
    """The desired state of the cluster. The operator brings the cluster to it."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(has(self.zookeeper) && has(self.zookeeper.connect)) == "
            "(has(oldSelf.zookeeper) && has(oldSelf.zookeeper.connect))",
            "zookeeper cannot change between an ensemble of its own and an existing one (connect)",
        ),
        Rule(
            f"(has(self.brokers) && has(self.brokers.rackKey) ? self.brokers.rackKey : '{DEFAULT_RACK_KEY}') == "
            f"(has(oldSelf.brokers) && has(oldSelf.brokers.rackKey) ? oldSelf.brokers.rackKey : '{DEFAULT_RACK_KEY}')",
            "brokers.rackKey cannot change, brokers keep their racks while they hold data",
        ),
    )
    version: Annotated[str, Text(most=16)] = ""
    """The release of Apache Kafka whose protocol brokers speak with each other (inter.broker.protocol.version), such as
    "3.9", from 2.8 on. A higher one is rolled out once every broker runs the declared image and configuration and every
    replica is in sync; a lower one than brokers have spoken is refused. Default: what the cluster speaks; new clusters,
    the newest."""
    topics: TopicsSpec = TopicsSpec()
    rebalance: RebalanceSpec = DEFAULT_REBALANCE
    paused: bool = False
    """Pauses the operator for this cluster. While it is true the operator writes status and changes nothing else,
    neither objects of Kubernetes nor topics. Brokers run on."""
    maintenance_windows: MaintenanceWindows = ()
    """The times at which disruptive steps that can wait may begin: restarts by a roll, the rebalance, drains of log
    directories, and volumes that are replaced because spec asks for it. What is under way when a window closes goes on
    to a safe point. What brings a failed broker or volume back never waits. The annotation
    kafka.ottla.dev/maintenance-until with a time such as 2026-11-28T21:00:00Z opens a window until then. Default: such
    steps may always begin. `ottla local` ignores it."""
    rolling: RollingSpec = DEFAULT_ROLLING
    image: Image = ""
    """The image of the brokers. Default: the one that the cluster runs, and for a new cluster the operator's (see
    imageUpdatePolicy). A change restarts the brokers in batches. `ottla local` ignores it."""
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    """When the kubelet pulls the images of brokers and ZooKeeper servers. Default: the operator's setting. A change
    restarts them as a roll does."""
    image_update_policy: Literal["Keep", "FollowOperator"] = "Keep"
    """What an upgrade of the operator does where image or zookeeper.image is absent. Keep: the cluster keeps the image
    that it runs. FollowOperator: it gets the operator's image, by a roll."""
    brokers: BrokersDocument = BrokersDocument()
    zookeeper: ZooKeeperDocument = ZooKeeperDocument()

    def problems(self) -> Iterator[tuple[str, str]]:
        if wrong := version_problem(self.version):
            yield "version", wrong


def parse_cluster(document: Mapping[str, Any]) -> tuple[KafkaCluster, list[Problem]]:
    """Reads a KafkaCluster document (apiVersion and kind are not checked).

    Returns:
        The cluster, with a default in place of each wrong value, and the problems by field.
    """
    problems: list[Problem] = []
    root = read_root(document, KafkaClusterDocument, CLUSTER_NAME, problems)
    spec = root.spec
    cluster = KafkaCluster(
        root.name,
        root.namespace,
        brokers=_brokers(spec.brokers, problems),
        zookeeper=_zookeeper(spec.zookeeper),
        topics=replace(spec.topics, namespaces=topic_namespaces_of(document)),
        paused=spec.paused,
        rolling=spec.rolling,
        image=spec.image,
        image_pull_policy=spec.image_pull_policy,
        image_update_policy=spec.image_update_policy,
        rebalance=spec.rebalance,
        version=canonical_version(spec.version),
        maintenance_windows=spec.maintenance_windows,
    )
    problems += cluster_problems(document)
    _check_config_together(cluster, problems)
    return cluster, problems


def topic_namespaces_of(document: Mapping[str, Any]) -> TopicNamespaces:
    """spec.topics.namespaces of a KafkaCluster document whose problems are reported elsewhere."""
    value: Any = document
    for name in ("spec", "topics", "namespaces"):
        value = value.get(name) if isinstance(value, Mapping) else None
    problems: list[Problem] = []
    found = read_object(TopicNamespaces, value, "", problems) if isinstance(value, Mapping) else ONLY_OWN_NAMESPACE
    return found.without_selector() if problems else found


def _check_config_together(cluster: KafkaCluster, problems: list[Problem]) -> None:
    """Reports the keys that are good by themselves and not together, of each pool, once where pools share them."""
    if any(".config" in problem.path for problem in problems):
        return
    defaults = default_broker_config(cluster)
    found = [
        joint_problem(pool.path_of("config"), pool.config, defaults) for pool in cluster.brokers.pools if pool.config
    ]
    problems += dict.fromkeys(problem for problem in found if problem is not None)


def default_broker_config(cluster: KafkaCluster, brokers: int | None = None) -> dict[str, str]:
    """The broker keys that follow from other fields; `config` may override those that depend on the number of brokers.

    Args:
        brokers: how many there are; as many as the document declares when it is not given.

    Kafka's default of three replicas for internal topics does not work on fewer brokers. Its default of one replica for
    all other topics would have every roll take them away from clients.

    >>> from ottla_documents.kafka_cluster import KafkaCluster, parse_cluster
    >>> cluster, _ = parse_cluster({"metadata": {"name": "c"}, "spec": {"brokers": {"replicas": 2}}})
    >>> default_broker_config(cluster)["offsets.topic.replication.factor"]
    '2'
    """
    factor = max(1, min(MOST_REPLICAS, cluster.brokers.replicas if brokers is None else brokers))
    return {
        **({PROTOCOL_KEY: cluster.version} if cluster.version else {}),
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(max(1, factor - 1)),
    }


def _brokers(document: BrokersDocument, problems: list[Problem]) -> BrokersSpec:
    path = "spec.brokers"
    config = broker_config(document.config, path, problems)
    main = BrokerPool(
        MAIN_POOL,
        DEFAULT_REPLICAS if document.replicas is None else document.replicas,
        disks=disks_declared(document.disks),
        config=config,
        resources=document.resources,
        racks=document.racks,
        template=document.template.template,
        written={name: f"{path}.{name}" for name in (*DEFAULTED, *([] if document.disks is None else ["disks"]))},
    )
    pools = pools_declared(document.pools, main, f"{path}.pools", problems)
    for key in dict.fromkeys(document.unmanaged_config):
        if wrong := _unmanaged_problem(key, {key for pool in (main, *pools) for key in pool.config}):
            problems.append(Problem(f"{path}.unmanagedConfig", wrong))
    return BrokersSpec(
        rack_key=document.rack_key,
        pools=pools,
        config=config,
        has_pools=document.pools is not None,
        has_replicas=document.replicas is not None,
        claim_deletion_policy=document.claim_deletion_policy,
        overrides=document.overrides,
        template=main.template,
        unmanaged_config=frozenset(document.unmanaged_config),
        log_level=document.logging.level,
    )


def _unmanaged_problem(key: str, declared: Collection[str]) -> str:
    config_key = find_key(key)
    if key in declared:
        return f"{key} is in config too; a key is either declared or left alone"
    if config_key is None:
        return f"{key} {broker_value_problem(key, '')}"
    return f"{key} cannot change while a broker runs" if config_key.update_mode is UpdateMode.READ_ONLY else ""


def _zookeeper(document: ZooKeeperDocument) -> ZooKeeperSpec:
    return ZooKeeperSpec(
        document.connect,
        DEFAULT_ZOOKEEPER_REPLICAS if document.replicas is None else document.replicas,
        disk=(document.disk or EnsembleDiskDocument()).disk,
        log_disk=None if document.log_disk is None else document.log_disk.disk,
        resources=DEFAULT_ZOOKEEPER_RESOURCES if document.resources is None else document.resources,
        template=NO_TEMPLATE if document.template is None else document.template.template,
        image=document.image,
        claim_deletion_policy=document.claim_deletion_policy or "Retain",
    )
