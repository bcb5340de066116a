"""KafkaCluster as a value: brokers, racks, disks, configuration and the ZooKeeper ensemble."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from ottla_broker.config import UpdateMode, find_key
from ottla_broker.config.log_levels import LEVELS
from ottla_documents.broker_config import broker_value_problem, joint_problem
from ottla_documents.broker_pools import (
    DEFAULTED,
    MAIN_POOL,
    MOST_BROKERS,
    BrokerPool,
    parse_broker_config,
    parse_disks,
    parse_pools,
)
from ottla_documents.disk_spec import DiskSpec, parse_ensemble_disk
from ottla_documents.fields import Fields, Problem
from ottla_documents.kafka_version import PROTOCOL_KEY, parse_version
from ottla_documents.limits import cluster_problems
from ottla_documents.maintenance_windows import MaintenanceWindow, parse_maintenance_windows
from ottla_documents.overrides import BrokerOverride, parse_overrides
from ottla_documents.rebalance_spec import DEFAULT_REBALANCE, RebalanceSpec, parse_rebalance
from ottla_documents.resources import Resources, parse_resources
from ottla_documents.rolling import DEFAULT_ROLLING, RollingSpec, parse_rolling
from ottla_documents.templates import NO_TEMPLATE, Template, parse_template
from ottla_documents.topic_namespaces import ONLY_OWN_NAMESPACE, TopicNamespaces, parse_topic_namespaces

CLUSTER_NAME = r"[a-z]([a-z0-9-]*[a-z0-9])?"
"""Names of Services begin with the name of the cluster, and have to begin with a letter."""
CLUSTER_NAME_FORM = "lower case letters, digits and -, beginning with a letter and not ending with -"
CLUSTER_NAME_LENGTH = 40
DEFAULT_REPLICAS = 3
DEFAULT_ZOOKEEPER_REPLICAS = 3
DEFAULT_RACK_KEY = "topology.kubernetes.io/zone"
MOST_REPLICAS = 3
ClaimDeletionPolicy = Literal["Retain", "Delete"]
CLAIM_DELETION_POLICIES: tuple[str, ...] = get_args(ClaimDeletionPolicy)

IMAGE = r"[A-Za-z0-9][A-Za-z0-9._:/@-]*"
IMAGE_FORM = "the name of an image, such as registry.example.com/ottla:1.0"
IMAGE_PULL_POLICIES = ("", "Always", "IfNotPresent", "Never")
IMAGE_UPDATE_POLICIES = ("Keep", "FollowOperator")
OF_OWN_ENSEMBLE = ("replicas", "disk", "logDisk", "resources", "template", "image", "claimDeletionPolicy")
"""Fields of `zookeeper` that do not go with `connect`."""


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
    """Of the objects that are of no single broker."""
    unmanaged_config: frozenset[str] = frozenset()
    """Broker keys whose dynamic values the operator neither sets nor removes. `ottla local` ignores it."""
    log_level: str = ""
    """"": the broker's default. `ottla local` ignores it."""

    @property
    def replicas(self) -> int:
        """Of all pools."""
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
    """What KafkaTopics of the cluster may ask for; 0 for no limit. `ottla local` ignores it."""

    max_partitions_per_topic: int = 0
    max_partitions: int = 0
    namespaces: TopicNamespaces = ONLY_OWN_NAMESPACE
    """The other namespaces that may have KafkaTopics of the cluster."""


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
    """Of the brokers; "": `facts.images` decides. `ottla local` ignores the images."""
    image_pull_policy: str = ""
    image_update_policy: str = IMAGE_UPDATE_POLICIES[0]
    rebalance: RebalanceSpec = DEFAULT_REBALANCE
    """`ottla local` ignores it."""
    version: str = ""
    """The release of Apache Kafka whose protocol brokers speak with each other; "": `concerns.upgrades` decides."""
    maintenance_windows: tuple[MaintenanceWindow, ...] = ()
    """`ottla local` ignores them."""


def parse_cluster(document: Mapping[str, Any]) -> tuple[KafkaCluster, list[Problem]]:
    """Reads a KafkaCluster document (apiVersion and kind are not checked).

    Returns:
        The cluster, with a default in place of each wrong value, and the problems by field.
    """
    problems: list[Problem] = []
    root = Fields(document, "", problems, {"apiVersion", "kind", "status"})
    metadata = root.child("metadata")
    name = metadata.text("name", pattern=CLUSTER_NAME, form=CLUSTER_NAME_FORM)
    if len(name) > CLUSTER_NAME_LENGTH:
        metadata.problem("name", f"is longer than {CLUSTER_NAME_LENGTH} characters")
    namespace = metadata.text("namespace", "default")
    spec = root.child("spec")
    cluster = KafkaCluster(
        name,
        namespace,
        brokers=_parse_brokers(spec.child("brokers")),
        zookeeper=_parse_zookeeper(spec),
        topics=_parse_topics(spec.child("topics")),
        paused=spec.flag("paused"),
        rolling=parse_rolling(spec),
        image=spec.text("image", "", pattern=IMAGE, form=IMAGE_FORM),
        image_pull_policy=spec.choice("imagePullPolicy", IMAGE_PULL_POLICIES, ""),
        image_update_policy=spec.choice("imageUpdatePolicy", IMAGE_UPDATE_POLICIES, IMAGE_UPDATE_POLICIES[0]),
        rebalance=parse_rebalance(spec),
        version=parse_version(spec),
        maintenance_windows=parse_maintenance_windows(spec),
    )
    spec.finish()
    root.finish()
    problems += cluster_problems(document)
    _check_config_together(cluster, problems)
    return cluster, problems


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


def _parse_brokers(fields: Fields) -> BrokersSpec:
    config = parse_broker_config(fields)
    template = parse_template(fields, has_bootstrap=True)
    main = BrokerPool(
        MAIN_POOL,
        fields.whole("replicas", DEFAULT_REPLICAS, lowest=1, highest=MOST_BROKERS),
        disks=parse_disks(fields),
        config=config,
        resources=parse_resources(fields, DEFAULT_BROKER_RESOURCES),
        racks=fields.texts("racks"),
        template=template,
        written={name: f"{fields.path}.{name}" for name in (*DEFAULTED, *(["disks"] if fields.has("disks") else []))},
    )
    pools = parse_pools(fields, main)
    brokers = BrokersSpec(
        rack_key=fields.text("rackKey", DEFAULT_RACK_KEY),
        pools=pools,
        config=config,
        has_pools=fields.has("pools"),
        has_replicas=fields.has("replicas"),
        claim_deletion_policy=_parse_claim_deletion(fields),
        overrides=parse_overrides(fields),
        template=template,
        unmanaged_config=_parse_unmanaged(fields, {key for pool in (main, *pools) for key in pool.config}),
        log_level=_parse_logging(fields),
    )
    fields.finish()
    return brokers


def _parse_claim_deletion(fields: Fields) -> ClaimDeletionPolicy:
    return cast(ClaimDeletionPolicy, fields.choice("claimDeletionPolicy", CLAIM_DELETION_POLICIES, "Retain"))


def _parse_unmanaged(fields: Fields, config: Collection[str]) -> frozenset[str]:
    keys = fields.texts("unmanagedConfig")
    for key in keys:
        known = find_key(key)
        if key in config:
            fields.problem("unmanagedConfig", f"{key} is in config too; a key is either declared or left alone")
        elif known is None:
            fields.problem("unmanagedConfig", f"{key} {broker_value_problem(key, '')}")
        elif known.update_mode is UpdateMode.READ_ONLY:
            fields.problem("unmanagedConfig", f"{key} cannot change while a broker runs")
    return frozenset(keys)


def _parse_logging(parent: Fields) -> str:
    fields = parent.child("logging")
    level = fields.choice("level", tuple(LEVELS), "INFO") if fields.has("level") else ""
    fields.finish()
    return level


def _parse_topics(fields: Fields) -> TopicsSpec:
    found = TopicsSpec(
        fields.whole("maxPartitionsPerTopic", 0), fields.whole("maxPartitions", 0), parse_topic_namespaces(fields)
    )
    fields.finish()
    return found


def _parse_zookeeper(spec: Fields) -> ZooKeeperSpec:
    fields = spec.child("zookeeper")
    connect = fields.text("connect", "")
    if connect and any(fields.has(name) for name in OF_OWN_ENSEMBLE):
        without = f"{', '.join(OF_OWN_ENSEMBLE[:-1])} and {OF_OWN_ENSEMBLE[-1]}"
        fields.problem("connect", f"names an existing ensemble; {without} do not go with it")
    replicas = fields.whole("replicas", DEFAULT_ZOOKEEPER_REPLICAS, lowest=1, highest=9)
    if replicas % 2 == 0:
        fields.problem("replicas", f"must be odd, not {replicas}: an even ensemble survives no more failures")
    disk = parse_ensemble_disk(fields.child("disk"), has_policy=True)
    log_disk = parse_ensemble_disk(fields.child("logDisk"), has_policy=False) if fields.has("logDisk") else None
    resources = parse_resources(fields, DEFAULT_ZOOKEEPER_RESOURCES)
    template = parse_template(fields, has_bootstrap=False)
    image = fields.text("image", "", pattern=IMAGE, form=IMAGE_FORM)
    claims = _parse_claim_deletion(fields)
    fields.finish()
    return ZooKeeperSpec(connect, replicas, disk, log_disk, resources, template, image, claims)
