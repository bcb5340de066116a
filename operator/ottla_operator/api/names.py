"""The names, labels and annotations of our objects. Names are never parsed: labels have the meaning."""

from __future__ import annotations

from ottla_documents.documents import API_VERSION

GROUP, VERSION = API_VERSION.split("/")
CLUSTERS = "kafkaclusters"
TOPICS = "kafkatopics"

INTERNAL_PORT = 9091
CLIENT_PORT = 9092
HTTP_PORT = 8080
"""Ports of a broker, by listener, and that of its status and metrics."""

CLUSTER = f"{GROUP}/cluster"
POOL = f"{GROUP}/pool"
"""Label of a claim: the pool of its broker, which is its record. Other objects have it for people who select by it."""
BROKER_ID = f"{GROUP}/broker-id"
SERVER_ID = f"{GROUP}/server-id"
RACK = f"{GROUP}/rack"
DISK = f"{GROUP}/disk"
GENERATION = f"{GROUP}/generation"

CLUSTER_ID = f"{GROUP}/cluster-id"
"""Annotation of a claim: the Kafka cluster whose data it holds."""
DIRECTORY_ID = f"{GROUP}/directory-id"
"""Annotation of a claim: directory.id as the broker reported it. A volume with it is never formatted."""
DISKS = f"{GROUP}/disks"
"""Annotation of a claim: the disks of its broker, so that one claim records that another existed."""
ENSEMBLE = f"{GROUP}/ensemble"
"""Annotation of the ensemble's ConfigMap and of each of its claims: which servers hold data, by the uids of claims."""
ACCEPT_LOSS = f"{GROUP}/accept-zookeeper-loss"
"""Annotation of a KafkaCluster, written by a person: the ZooKeeper servers whose data is declared lost."""
APPROVE_ROLL = f"{GROUP}/approve-roll"
"""Annotation of a KafkaCluster, written by a person: the roll that may go on, by status.roll.awaitingApproval."""
MAINTENANCE_UNTIL = f"{GROUP}/maintenance-until"
"""Annotation of a KafkaCluster, written by a person: until this time what waits for a maintenance window may begin."""
IN_SYNC = f"{GROUP}/in-sync"
"""Label of a broker's pod: "true" once that pod has been seen ready and in every ISR its broker belongs to."""
CONFIG = f"{GROUP}/config"
"""Annotation of a pod template: the ConfigMap with its server.properties."""
SUPER_USER = f"{GROUP}/super-user"
"""Annotation of a ZooKeeper server's pod template: the uid of the Secret of the super user for which it restarts."""
PROTOCOL = f"{GROUP}/inter-broker-protocol"
"""Annotation of a broker's pod template: inter.broker.protocol.version in its server.properties."""
APPLIED = f"{GROUP}/applied"
"""Annotation of an object: a hash of its last declaration, which shows that a field is no longer declared."""
TEMPLATE = f"{GROUP}/template"
"""Annotation of a claim: a hash of the labels and annotations that spec adds to it."""

REMOVED = f"{GROUP}/removed"
"""Label of a claim: "true" once its empty broker was removed. Such a claim counts for no broker."""

REPLACED_BY = f"{GROUP}/replaced-by"
"""Annotation of a claim: the claim that takes its place. It is written before that claim is created."""
REPLACED_BECAUSE = f"{GROUP}/replaced-because"
"""Annotation of a claim: why it is replaced, a `concerns.disks.disk_replacement.Cause` and a text."""
ACCEPTED_LOSS = f"{GROUP}/accepted-loss"
"""Annotation of a claim that is replaced: partitions that only it had, and whose loss spec accepts."""
RETIRED = f"{GROUP}/retired"
"""Label of a claim that its broker has no more: "replaced" once the broker has served with the claim in its place,
"removed" once it runs without the disk."""
CORDONED = f"{GROUP}/cordoned"
"""Annotation of a claim: "true" from before the operator puts its log directory into cordoned.log.dirs (KIP-1066) until
after it has taken it out."""
STRAYS = f"{GROUP}/strays"
"""Annotation of a claim: how many logs its broker has found on the volume that are not assigned to it (`-stray`)."""
REMOVING = f"{GROUP}/removing"
"""Annotation of a claim: "true" once its disk, which spec no longer names, was empty: the broker restarts without."""

SERVED = f"{GROUP}/served"
"""Annotation of the Lease: the namespaces that its last holder has served, or "*"."""
TOPIC_FINALIZER = f"{GROUP}/topic"
CREATED = f"{GROUP}/created"
"""Annotation of a KafkaTopic: its uid and the topic that is created for it. It is written with our finalizer, before
the topic is created; in a copy of the document it means nothing."""
PIPELINE = f"{GROUP}/pipeline"
"""Label of the objects of a KafkaPipeline: its name. They have no label of a cluster."""
APPLICATION = "ottla"
FIELD_MANAGER = "ottla-operator"

BROKER = "broker"
ZOOKEEPER = "zookeeper"
PIPELINE_DRIVER = "pipeline"
PIPELINE_EXECUTOR = "pipeline-executor"


def labels(cluster: str, component: str, **extra: str) -> dict[str, str]:
    """The labels of every object of a cluster. `extra`: further ones of our group, with _ for -.

    >>> labels("orders", "broker", broker_id="7")["kafka.ottla.dev/broker-id"]
    '7'
    """
    return {
        "app.kubernetes.io/name": APPLICATION,
        "app.kubernetes.io/instance": cluster,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
        CLUSTER: cluster,
        **{f"{GROUP}/{name.replace('_', '-')}": value for name, value in extra.items()},
    }


def pipeline_labels(pipeline: str) -> dict[str, str]:
    """The labels of every object of a KafkaPipeline, but for the pods of executors."""
    return {
        "app.kubernetes.io/name": APPLICATION,
        "app.kubernetes.io/instance": pipeline,
        "app.kubernetes.io/component": PIPELINE_DRIVER,
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
        PIPELINE: pipeline,
    }


def executor_labels(pipeline: str) -> dict[str, str]:
    """The labels of executors: no StatefulSet or PodMonitor of drivers selects them."""
    return {**pipeline_labels(pipeline), "app.kubernetes.io/component": PIPELINE_EXECUTOR}


def pipeline_object(pipeline: str) -> str:
    """The objects of a KafkaPipeline, but for its Jobs."""
    return f"{pipeline}-pipeline"


def broker_name(cluster: str, broker_id: int) -> str:
    """StatefulSet of a broker, and the Service that advertises it."""
    return f"{cluster}-broker-{broker_id}"


def brokers_service(cluster: str) -> str:
    return f"{cluster}-brokers"


def behind_budget(cluster: str) -> str:
    """The disruption budget of the broker pods that have not been seen in sync."""
    return f"{brokers_service(cluster)}-behind"


def bootstrap_service(cluster: str) -> str:
    return f"{cluster}-bootstrap"


def format_permission(cluster: str, broker_id: int) -> str:
    """ConfigMap with the log directories that a broker may format."""
    return f"{broker_name(cluster, broker_id)}-format"


def broker_claim(cluster: str, broker_id: int, disk: str, generation: int) -> str:
    return f"{broker_name(cluster, broker_id)}-{disk}-{generation}"


def zookeeper_service(cluster: str) -> str:
    return f"{cluster}-zookeeper"


def zookeeper_name(cluster: str, server_id: int) -> str:
    return f"{cluster}-zookeeper-{server_id}"


def zookeeper_claim(cluster: str, server_id: int, disk: str, generation: int) -> str:
    return f"{zookeeper_name(cluster, server_id)}-{disk}-{generation}"


def zookeeper_secret(cluster: str) -> str:
    return f"{cluster}-zookeeper-super"


def pod_of(stateful_set: str) -> str:
    """The only pod of a StatefulSet with one replica."""
    return f"{stateful_set}-0"


def host(name: str, namespace: str) -> str:
    """DNS name of a Service, or of a pod below its Service ("pod.service")."""
    return f"{name}.{namespace}.svc"
