"""Every condition that the operator sets: the types, and for each type the reasons, what they mean and what to do.

`conditions.Condition` accepts only what is listed here, so a reason that a user can see has an entry that explains it.
`ottla_operator.reference` prints the table for the manual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["True", "False", "Unknown"]

CLUSTER = "KafkaCluster"
TOPIC = "KafkaTopic"
PIPELINE = "KafkaPipeline"

READY = "Ready"
ZOOKEEPER_READY = "ZooKeeperReady"
RACKS_READY = "RacksReady"
BROKERS_READY = "BrokersReady"
DISKS_READY = "DisksReady"
CONFIG_VALID = "ConfigValid"
SERVICES_READY = "ServicesReady"
SPREAD_OVER_NODES = "SpreadOverNodes"
DISK_SPACE = "DiskSpace"
NODES_SCHEDULABLE = "NodesSchedulable"
ROLLED = "Rolled"
VALID = "Valid"
RUNNING = "Running"
DEGRADED = "Degraded"
RECONCILING = "Reconciling"
STALLED = "Stalled"
ABNORMAL = frozenset({RECONCILING, STALLED})
"""The types that are there only while they are True, as kstatus wants it."""

AS_DECLARED = "AsDeclared"
INVALID_SPEC = "InvalidSpec"
INTERNAL_ERROR = "InternalError"
DEFINITION_OUTDATED = "DefinitionOutdated"
RIGHTS_MISSING = "RightsMissing"
KAFKA_ERROR = "KafkaError"


ONLY_A_CHANGE_ENDS = (
    INVALID_SPEC, "NoSize", "SizeDecreased", "LogDiskChanged", "DiskResizeNotSupported", "ProgressDeadlineExceeded",
)  # fmt: skip
"""The reasons that nothing but a change of the document ends. A node that is back may end others, as ClaimLost."""

MENDED_BY_A_PERSON = frozenset({
    *ONLY_A_CHANGE_ENDS, "NoDisk", "ClaimLost", "NodeGone", "NodesNotReadable", "NoRack", "NoNodeInRack",
    "RackMismatch", "NoFreeId", "ExpansionNotAllowed", "DiskRemoved", "ResizeFailed", "LogDirNotOnline",
    "ReplacementBlocked", "DirectoryIdChanged", "DynamicRefused", "VersionDowngrade", "FeatureFinalized",
})  # fmt: skip
"""The reasons that last until a person does something. Ready shows them before what only takes its time."""


class UnlistedReason(ValueError):
    """A condition that this module does not list."""


@dataclass(frozen=True, slots=True)
class ConditionType:
    """A type of condition of one kind of object, and what it says when it is True."""

    resource: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class ConditionReason:
    """One reason of one type: what has happened, and what a person does about it ("" when nothing is to be done)."""

    resource: str
    type: str
    status: Status
    reason: str
    meaning: str
    action: str = ""


CONDITION_TYPES = (
    ConditionType(
        CLUSTER, READY,
        "Every other condition is True, Rolled, SpreadOverNodes, DiskSpace and NodesSchedulable excepted",
    ),
    ConditionType(CLUSTER, ZOOKEEPER_READY, "The ZooKeeper ensemble is as declared and each of its servers is ready"),
    ConditionType(CLUSTER, RACKS_READY, "Every rack exists and each broker runs in its rack"),
    ConditionType(CLUSTER, BROKERS_READY, "The declared number of brokers is there and each of them is ready"),
    ConditionType(CLUSTER, DISKS_READY, "Every broker has its disks as declared, and its log directories are online"),
    ConditionType(CLUSTER, CONFIG_VALID, "The broker configuration is valid and in effect"),
    ConditionType(CLUSTER, SERVICES_READY, "The Services and disruption budgets are as declared"),
    ConditionType(CLUSTER, SPREAD_OVER_NODES, "No two brokers run on one node"),
    ConditionType(CLUSTER, DISK_SPACE, "No log directory will be full within a day at the rate of the last day"),
    ConditionType(CLUSTER, NODES_SCHEDULABLE, "No node that runs a broker or ZooKeeper server is cordoned"),
    ConditionType(CLUSTER, ROLLED, "Every broker and ZooKeeper server runs with the declared template"),
    ConditionType(
        CLUSTER, RECONCILING, "The operator brings the cluster to what is declared; absent otherwise (kstatus)",
    ),
    ConditionType(CLUSTER, STALLED, "Only a change of the document helps; absent otherwise (kstatus)"),
    ConditionType(TOPIC, READY, "The topic exists and is as declared"),
    ConditionType(PIPELINE, READY, "The pipeline does what its document says, or has done it"),
    ConditionType(PIPELINE, VALID, "Every field of the document can be used"),
    ConditionType(PIPELINE, RUNNING, "The driver runs the query"),
    ConditionType(PIPELINE, DEGRADED, "Something has failed; the message has the last line of the error"),
)  # fmt: skip

_WAIT = "Nothing; the operator goes on by itself."
_CORRECT = "Correct the fields that the message names."
_REPORT = "Look into the log of the operator and report a bug; the operator tries again by itself."
_RESTORE = "Restore the volume, or give its data up: docs/operating/kubernetes-failures.md, When a disk fails."


def _cluster(type_: str, status: Status, reason: str, meaning: str, action: str = "") -> ConditionReason:
    return ConditionReason(CLUSTER, type_, status, reason, meaning, action)


def _topic(status: Status, reason: str, meaning: str, action: str = "") -> ConditionReason:
    return ConditionReason(TOPIC, READY, status, reason, meaning, action)


def _of_every_concern() -> tuple[ConditionReason, ...]:
    declared = tuple(
        _cluster(type_, "True", AS_DECLARED, "It is as declared.")
        for type_ in (
            READY, ZOOKEEPER_READY, RACKS_READY, BROKERS_READY, DISKS_READY, CONFIG_VALID, SERVICES_READY,
            SPREAD_OVER_NODES, ROLLED, DISK_SPACE, NODES_SCHEDULABLE,
        )
    )  # fmt: skip
    invalid = tuple(
        _cluster(type_, "False", INVALID_SPEC, "Fields of spec have values that cannot be used.", _CORRECT)
        for type_ in (
            READY, ZOOKEEPER_READY, RACKS_READY, BROKERS_READY, DISKS_READY, CONFIG_VALID, SERVICES_READY, ROLLED,
        )
    )  # fmt: skip
    failed = tuple(
        _cluster(type_, "Unknown", INTERNAL_ERROR, "The operator has a bug; it changes nothing here.", _REPORT)
        for type_ in (
            READY, ZOOKEEPER_READY, RACKS_READY, BROKERS_READY, DISKS_READY, CONFIG_VALID, SERVICES_READY, ROLLED,
            NODES_SCHEDULABLE,
        )
    )  # fmt: skip
    return (*declared, *invalid, *failed)


def _lacking(resource: str) -> tuple[ConditionReason, ...]:
    return (
        ConditionReason(
            resource, READY, "False", DEFINITION_OUTDATED,
            "The CustomResourceDefinition lacks fields that this release of the operator needs, so that the API server "
            "drops them. The operator changes nothing; its other conditions are those of before.",
            "Apply the CustomResourceDefinitions of the release: kubectl apply --server-side --force-conflicts -f "
            "crds/. Then look whether the document still has the fields that the message names.",
        ),
        ConditionReason(
            resource, READY, "False", RIGHTS_MISSING,
            "The operator lacks rights in the namespace that it needs for the object. It changes nothing; its other "
            "conditions are those of before.",
            "Give it the rights that the message names: those of the chart of its release, and with watchNamespaces a "
            "RoleBinding in the namespace. It goes on by itself.",
        ),
    )  # fmt: skip


_OF_CLUSTERS = (
    *_lacking(CLUSTER),
    _cluster(
        SERVICES_READY, "False", "Paused", "Services do not exist, and none is created while spec.paused is true.",
        "Set spec.paused to false.",
    ),
    _cluster(
        READY, "False", "Paused", "spec.paused is true; the operator changes nothing.",
        "Set spec.paused to false when the operator may go on.",
    ),
    _cluster(
        READY, "False", "ChangedByOthers",
        "A webhook or controller changes fields of the operator's objects back at each write. The operator writes a "
        "field at most three times in ten minutes.",
        "Stop what changes the fields that the message names, or declare the same values.",
    ),
    _cluster(
        READY, "False", "NotOwned", "Objects with the names of this cluster's objects exist and do not belong to it.",
        "Delete or rename them; or give the KafkaCluster another name.",
    ),
    _cluster(
        ROLLED, "False", "NotOwned",
        "StatefulSets with the names of brokers or servers belong to somebody else; they run what that one declares.",
        "Delete or rename them; or give the KafkaCluster another name.",
    ),
    _cluster(
        READY, "False", "WriteFailed", "The API server refused a write, or did not answer.",
        "Read the message: often a permission, a quota or an admission webhook. The operator tries again by itself.",
    ),
    _cluster(
        READY, "Unknown", "ReadFailed", "The API server refused a read, or did not answer.",
        "Read the message: often a permission of the operator's role. The operator tries again by itself.",
    ),
    _cluster(
        ZOOKEEPER_READY, "True", "ExistingEnsemble",
        "spec.zookeeper.connect names an ensemble that exists. The operator does not look at it.",
    ),
    _cluster(
        ZOOKEEPER_READY, "False", "NoSize", "spec.zookeeper.disk.size is absent.", "Set it; Kubernetes needs a size.",
    ),
    _cluster(
        ZOOKEEPER_READY, "False", "Resizing",
        "Servers join or leave the ensemble, one at a time, until it has spec.zookeeper.replicas. The members serve.",
        "Wait. If it lasts, read in the message which server it waits for and why.",
    ),
    _cluster(
        ZOOKEEPER_READY, "False", "DiskResizeNotSupported",
        "The size of a disk in spec.zookeeper differs from its claims. The claims keep their size.",
        "Set the size to the one that the message names.",
    ),
    _cluster(
        ZOOKEEPER_READY, "False", "LogDiskChanged",
        "spec.zookeeper.logDisk was added or removed. The ensemble keeps its transaction logs where they are.",
        "Undo the change.",
    ),
    _cluster(
        ZOOKEEPER_READY, "False", "ClaimTerminating",
        "The claim of a running server was deleted. The server loses the volume when its pod stops; no roll stops it.",
        "To replace the server, delete its pod while the other servers are ready.",
    ),
    _cluster(
        ZOOKEEPER_READY, "False", "ClaimLost",
        "Servers do not have the volumes that they served with. Where an empty volume could overwrite the data of the "
        "others, nothing is created.",
        "Restore the claims with their volumes, get the servers that the message names to run, or declare the loss "
        "with the command in the message.",
    ),
    _cluster(
        ZOOKEEPER_READY, "False", "NodeGone",
        "The volumes of a server are on a node that does not exist any more or is out of service. With "
        "spec.zookeeper.disk.onFailure Replace the server gets new ones while all other servers serve.",
        "Bring the node back, or set onFailure to Replace; get the servers that the message names to run.",
    ),
    _cluster(
        ZOOKEEPER_READY, "False", "ReplacingServer",
        "A server starts on new volumes and copies the data of the others; one server at a time.", _WAIT,
    ),
    _cluster(
        ZOOKEEPER_READY, "False", "NoQuorum", "Fewer servers than a quorum are ready, so ZooKeeper serves no client.",
        "Read in the message why the servers are not ready; get a majority of them to run.",
    ),
    _cluster(
        ZOOKEEPER_READY, "False", "WaitingForServers", "Servers are not ready.",
        "If it lasts, read in the message why their pods are not ready.",
    ),
    _cluster(
        RACKS_READY, "False", "NodesNotReadable", "The operator may not read nodes and spec.brokers.racks is absent.",
        "Name the racks in spec.brokers.racks, or install the chart with readNodes=true.",
    ),
    _cluster(
        RACKS_READY, "False", "NoRack", "No node carries the label spec.brokers.rackKey.",
        "Label the nodes, or create the KafkaCluster with a rackKey that they carry.",
    ),
    _cluster(
        RACKS_READY, "False", "NoNodeInRack", "No node carries a rack that spec.brokers.racks names.",
        "Correct the name, or label or add a node in that rack.",
    ),
    _cluster(
        RACKS_READY, "False", "RackMismatch", "A broker runs on a node whose rack label is not the broker's rack.",
        "Give the node its label back, or move the pod: delete it once a node of the broker's rack has room.",
    ),
    _cluster(
        BROKERS_READY, "False", "WaitingForRack", "New brokers need a rack, and there is none; RacksReady says why.",
        "See RacksReady.",
    ),
    _cluster(
        BROKERS_READY, "False", "WaitingForKafka",
        "No broker answers which replicas there are. A new broker must not get the id of an existing replica, and a "
        "broker is removed only when it is known to be empty.",
        "Get a broker to run; BrokersReady and the pods say what is wrong with them.",
    ),
    _cluster(
        BROKERS_READY, "False", "NoFreeId",
        "A pool lacks brokers, and no id of its idRange is free: brokers, kept claims of other pools or replicas have "
        "them.",
        "Widen spec.brokers.pools[].idRange, or delete claims of removed brokers that nobody needs.",
    ),
    _cluster(
        BROKERS_READY, "False", "WaitingToCreate", "New brokers wait for the conditions that the message names.",
        "See those conditions.",
    ),
    _cluster(
        BROKERS_READY, "False", "WaitingForBrokers", "Brokers are not ready, and not because a roll restarts them.",
        "If it lasts, read in the message why their pods are not ready.",
    ),
    _cluster(
        BROKERS_READY, "False", "ZooKeeperSessionLost",
        "Brokers have had no session with ZooKeeper for 15 s or more. They serve on, outside of the cluster.",
        "See ZooKeeperReady; look for a network that parts brokers and ZooKeeper.",
    ),
    _cluster(
        BROKERS_READY, "False", "HoldReplicas",
        "spec.brokers.replicas, or that of a pool, is smaller than the number of brokers, or a pool is not named now, "
        "and the brokers to remove hold replicas.",
        "See what the message says is in the way. With spec.rebalance.mode DryRun or Off: move the replicas with "
        "kafka-reassign-partitions. Or set the number back.",
    ),
    _cluster(
        BROKERS_READY, "False", "BeingRemoved",
        "A broker is being emptied and then removed (spec.brokers.replicas or pools).", _WAIT,
    ),
    _cluster(
        BROKERS_READY, "Unknown", "DesiredStateUnknown", "Which brokers there should be is not known; see RacksReady.",
        "See RacksReady.",
    ),
    _cluster(
        DISKS_READY, "False", "NoDisk", "spec.brokers.disks is absent.", "Name at least one disk with a size.",
    ),
    _cluster(
        DISKS_READY, "False", "NoSize", "A disk of spec.brokers.disks has no size.", "Set it; Kubernetes needs a size.",
    ),
    _cluster(
        DISKS_READY, "False", "SizeDecreased", "A disk is declared smaller than its claims. Volumes never shrink.",
        "Set the size to that of the claims or more.",
    ),
    _cluster(
        DISKS_READY, "False", "Draining",
        "Log directories are being emptied: their replicas move to the other log directories of their broker, and no "
        "new one is placed there; where the broker has no other one, they move to other brokers.",
        "Nothing, unless the message says that there is no room or no broker for them.",
    ),
    _cluster(
        DISKS_READY, "False", "ExpansionNotAllowed",
        "A disk is declared larger, and its StorageClass does not allow volumes to grow (allowVolumeExpansion).",
        "Allow it in the StorageClass, or set the size back.",
    ),
    _cluster(
        DISKS_READY, "False", "DiskRemoved",
        "A disk that brokers have is no longer declared, and its log directories hold replicas. The brokers keep it, "
        "and are not restarted for any change.",
        "Declare the disk again with state: Drain, and remove it once it is drained.",
    ),
    _cluster(
        DISKS_READY, "False", "Resizing", "Volumes are smaller than declared; Kubernetes is resizing them.",
        "If it lasts, read the message; some storage has nothing that resizes volumes.",
    ),
    _cluster(
        DISKS_READY, "False", "ResizeFailed", "Kubernetes reports an error of resizing a volume.",
        "Read the message; the error is that of the storage provider.",
    ),
    _cluster(
        DISKS_READY, "True", "StraysKept",
        "claimDeletionPolicy is Delete, and claims of removed brokers or disks stay: logs that are not assigned to the "
        "broker (-stray) are on their volumes.",
    ),
    _cluster(
        DISKS_READY, "False", "ClaimLost",
        "The claim of a broker was deleted, or its PersistentVolume is gone. The operator creates none in its place: "
        "an empty volume could be taken for the data.",
        "Restore the claim or the volume, or accept the loss as the message says (spec.brokers.overrides[].disks[]"
        ".acceptDataLoss): the broker gets an empty volume and fetches from the others.",
    ),
    _cluster(
        DISKS_READY, "False", "ClaimTerminating",
        "A claim of a running broker was deleted. The broker loses the volume when its pod stops; no roll stops it.",
        _RESTORE,
    ),
    _cluster(
        DISKS_READY, "False", "LogDirNotOnline", "A broker reports that one of its log directories is not online.",
        "Repair or replace the disk that the message names. Its partitions are served by other replicas.",
    ),
    _cluster(
        DISKS_READY, "False", "Replacing",
        "A volume has failed and is being replaced by an empty one (spec.brokers.disks[].onFailure); its broker then "
        "fetches from the others what it had.",
        _WAIT,
    ),
    _cluster(
        DISKS_READY, "False", "ReplacementBlocked",
        "A log directory is offline and is to be replaced (spec.brokers.disks[].onFailure), which is not safe now.",
        "Remove the obstacle that the message names. For a last copy: repair the disk, or give its data up with "
        "`ottla disk forget`.",
    ),
    _cluster(
        DISKS_READY, "False", "NodeGone",
        "Volumes of a broker are on a node that does not exist any more or is out of service. With "
        "spec.brokers.disks[].onFailure Replace they are replaced once nothing on them is a last copy.",
        "Bring the node back, or set onFailure to Replace; remove the obstacle that the message names.",
    ),
    _cluster(
        DISKS_READY, "False", "DirectoryIdChanged",
        "A claim shows another directory.id (KIP-858) than it held: its volume has been exchanged or formatted.",
        "Bring the volume back that belongs to the claim.",
    ),
    _cluster(
        DISKS_READY, "False", "WaitingForVolumes", "Claims are not bound to a volume yet.",
        "If it lasts, look at the events of the claims.",
    ),
    _cluster(
        CONFIG_VALID, "False", "DynamicOverride",
        "Brokers have dynamic values that nobody declares (KIP-226), as kafka-configs sets them. The operator removes "
        "them.",
        "Declare the value in spec.brokers.config, or name the key in spec.brokers.unmanagedConfig.",
    ),
    _cluster(
        CONFIG_VALID, "False", "DynamicRefused",
        "Brokers refuse a declared value while they run. They keep the value of before, also when they restart; a roll "
        "for another change brings the declared one.",
        "Correct the value by what the message says. The operator tries it again in ten minutes.",
    ),
    _cluster(
        CONFIG_VALID, "False", "DynamicPending",
        "Values that change without a restart are not in effect yet, because the brokers do not take requests.",
        "Nothing; if it lasts, see BrokersReady.",
    ),
    _cluster(
        CONFIG_VALID, "False", "ChangedByOthers",
        "Something else sets a dynamic value of brokers again each time. The operator writes one at most three times "
        "in ten minutes.",
        "Stop what sets it, declare the same value, or name the key in spec.brokers.unmanagedConfig.",
    ),
    _cluster(
        CONFIG_VALID, "False", "VersionDowngrade",
        "spec.version is lower than inter.broker.protocol.version of brokers. Brokers keep theirs.",
        "Set spec.version to the release that the message names.",
    ),
    _cluster(
        CONFIG_VALID, "False", "FeatureFinalized",
        "As VersionDowngrade, and features are finalized that earlier releases do not support.",
        "Set spec.version to the release that the message names. `kafka-features.sh describe` shows the features.",
    ),
    _cluster(
        DISK_SPACE, "False", "FillingUp",
        "Log directories will be full within the hours that the message names. A full one refuses produce requests.",
        "Shorten retention, add or grow disks (autoGrow grows them), or move replicas to other brokers.",
    ),
    _cluster(
        NODES_SCHEDULABLE, "False", "Cordoned",
        "Nodes that run brokers or servers are cordoned; their pods may be evicted, one broker at a time.",
        "Nothing: kubectl drain goes on by itself.",
    ),
    _cluster(
        NODES_SCHEDULABLE, "False", "VolumesOnNode",
        "Nodes that run brokers or servers are cordoned, and the volumes of these are on the node.",
        "Uncordon the node after its maintenance. If it does not come back: docs/operating/kubernetes-failures.md, "
        "When a node is gone with its disks.",
    ),
    _cluster(
        NODES_SCHEDULABLE, "False", "EvictionBlocked",
        "A broker on a cordoned node is not evicted now, because another replica or broker is missing.",
        "Nothing; the drain goes on once what the message names is back.",
    ),
    _cluster(
        SPREAD_OVER_NODES, "False", "SharedNode", "Several brokers run on one node, and fail together with it.",
        "Add nodes, or free the ones that there are; then delete one of the pods.",
    ),
    _cluster(
        ROLLED, "False", "RaisesProtocol",
        "spec.version is higher than inter.broker.protocol.version of the brokers. They restart once more for it when "
        "all run what is declared and every replica is in sync.",
        "Nothing; if it lasts, remove the obstacle that the message names.",
    ),
    *(
        _cluster(STALLED, "True", reason, "As the condition with this reason says, which the message names.")
        for reason in ONLY_A_CHANGE_ENDS
    ),
    _cluster(
        RECONCILING, "True", "Progressing",
        "Ready is not True, or members are being restarted; the message has the reason. A roll that waits for an "
        "approval, a window or a turn is none.",
    ),
    _cluster(ROLLED, "False", "Rolling", "A rolling restart is under way; status.roll shows its step.", _WAIT),
    _cluster(
        ROLLED, "False", "Blocked", "A rolling restart has waited for two minutes or longer in one step.",
        "Remove the obstacle that the message names. The roll then goes on by itself.",
    ),
    _cluster(
        ROLLED, "False", "ProgressDeadlineExceeded",
        "Members that a roll has restarted do not come back: no progress for spec.rolling.progressDeadlineSeconds. "
        "Nobody else is restarted.",
        "Read in the message what they wait for and how their containers ended. Correct the change or take it back: "
        "these members are restarted first. If they only need more time, nothing: the roll goes on by itself.",
    ),
    _cluster(
        ROLLED, "False", "AwaitingApproval",
        "spec.rolling.approval is Manual, and the restarts that status.roll.plan lists are not approved yet.",
        "Look at status.roll.plan, then set the annotation with the command in the message.",
    ),
    _cluster(
        ROLLED, "False", "AwaitingWindow",
        "Restarts wait for one of spec.maintenanceWindows; status.maintenance says when the next one opens.",
        "Nothing; or open one with the annotation kafka.ottla.dev/maintenance-until.",
    ),
    _cluster(
        ROLLED, "False", "AwaitingTurn",
        "As many clusters as the operator restarts at a time (maxRollingClusters of the chart) are being restarted.",
        "Nothing; it goes on when one of the clusters that the message names is done, or waits for a person.",
    ),
    _cluster(
        ROLLED, "False", "Held",
        "spec.brokers.overrides holds brokers that have a change pending. All others run with the declared template.",
        "Set their state to Active, or remove their entries, when they may be restarted.",
    ),
    _cluster(
        ROLLED, "False", "DesiredStateUnknown",
        "What should run is not known because of the conditions that the message names; what runs stays as it is.",
        "See those conditions.",
    ),
)  # fmt: skip

_OF_TOPICS = (
    _topic("True", AS_DECLARED, "The topic exists and is as declared."),
    *_lacking(TOPIC),
    _topic("False", INVALID_SPEC, "Fields of spec have values that cannot be used.", _CORRECT),
    _topic(
        "False", "ClusterNotFound", "There is no KafkaCluster of that name in the namespace, or it is terminating.",
        "Correct spec.clusterRef, or create the KafkaCluster.",
    ),
    _topic(
        "False", "NamespaceNotAllowed",
        "The KafkaCluster is in another namespace, and does not allow KafkaTopics of this one. The topic, if there is "
        "one, stays as it is.",
        "Add the namespace to spec.topics.namespaces of the KafkaCluster, by name or by a label that its selector has.",
    ),
    _topic(
        "False", "ConflictingTopic", "An older KafkaTopic names the same topic and has it.",
        "Delete one of the two, or give this one another spec.topicName.",
    ),
    _topic("False", "Paused", "The KafkaCluster is paused.", "Set its spec.paused to false."),
    _topic("False", "InternalTopic", "The topic belongs to the brokers.", "Delete the KafkaTopic; use kafka-configs."),
    _topic("False", "WaitingForKafka", "No broker answers.", "See the conditions of the KafkaCluster."),
    _topic(
        "False", "NotEnoughBrokers", "spec.replicas is larger than the number of registered brokers.",
        "Start more brokers, or set fewer replicas.",
    ),
    _topic(
        "False", "PartitionLimit",
        "The topic would have more partitions than spec.topics of the KafkaCluster allows. What exists stays.",
        "Ask for fewer partitions, or raise the limit that the message names.",
    ),
    _topic("False", "Changing", "The topic is being changed, as the message says.", _WAIT),
    _topic(
        "False", "PartitionsDecreased", "spec.partitions is smaller than the number of partitions. Kafka removes none.",
        "Set it to the number that the topic has or more.",
    ),
    _topic(
        "False", "ReplicasChangeNotSupported",
        "spec.replicas differs from the replication factor, and spec.rebalance.mode of the KafkaCluster is not Auto.",
        "Set it back; kafka-reassign-partitions changes the replication factor, and spec.replicas follows.",
    ),
    _topic(
        "False", "Terminating", "The KafkaTopic is being deleted and waits for what the message names.",
        "If it lasts, set spec.deletionPolicy to Retain, which deletes the KafkaTopic and keeps the topic.",
    ),
)  # fmt: skip

_NOT_RUNNING = (
    ("Pending", "The driver has no pod yet.", "If it lasts, read the Events of the object that the message names."),
    ("Starting", "The driver's pod starts, or Spark does.", "If it lasts, the message says why the pod is not ready."),
    ("Restarting", "The query has failed and is tried again.", "If it lasts, read the error in the message."),
    ("Replacing", "The driver of the former document ends before the next one begins.", _WAIT),
    ("Suspended", "spec.suspend is true. The checkpoint stays.", "Set spec.suspend to false."),
    (
        "Failed", "The pipeline has failed, and is not tried again.",
        "Correct what the error in the message names. A change of the document starts the driver, and a deletion of "
        "its pod or Job does too.",
    ),
    (
        "CannotStart",
        "Spark or the checkpoint does not accept the document: a column does not exist, or files know "
        "batches which the checkpoint does not.",
        "Correct the field that the message names; or begin without the checkpoint: "
        "docs/operating/kubernetes-pipelines.md.",
    ),
    (
        "ClusterNotFound", "There is no KafkaCluster of the name in spec.clusterRef in this namespace.",
        "Create it, or correct spec.clusterRef.name.",
    ),
    (
        "NotOwned", "Objects with the names of this pipeline's objects exist and do not belong to it.",
        "Delete or rename them; or give the KafkaPipeline another name.",
    ),
    (
        "WriteFailed", "The API server refused a write, or did not answer.",
        "Read the message: often a permission, a quota or an admission webhook. The operator tries again by itself.",
    ),
)  # fmt: skip
_AT_REST = (
    ("Waiting", "The pipeline waits for the next time of spec.schedule."),
    ("Completed", "What was there is read and written."),
)


def _pipeline(type_: str, status: Status, reason: str, meaning: str, action: str = "") -> ConditionReason:
    return ConditionReason(PIPELINE, type_, status, reason, meaning, action)


_OF_PIPELINES = (
    *_lacking(PIPELINE),
    _pipeline(READY, "True", "QueryRunning", "The driver runs the query."),
    *(_pipeline(READY, "True", *row) for row in _AT_REST),
    *(_pipeline(READY, "False", *row) for row in _NOT_RUNNING),
    _pipeline(READY, "False", INVALID_SPEC, "Fields of spec have values that cannot be used.", _CORRECT),
    _pipeline(VALID, "True", AS_DECLARED, "Every field can be used."),
    _pipeline(VALID, "False", INVALID_SPEC, "Fields of spec have values that cannot be used.", _CORRECT),
    _pipeline(RUNNING, "True", "QueryRunning", "The driver runs the query."),
    *(_pipeline(RUNNING, "False", *row) for row in _NOT_RUNNING),
    *(_pipeline(RUNNING, "False", *row, "Nothing.") for row in _AT_REST),
    _pipeline(DEGRADED, "False", AS_DECLARED, "Nothing has failed.", "Nothing."),
    *(_pipeline(DEGRADED, "True", *row) for row in _NOT_RUNNING if row[0] in ("Restarting", "Failed", "CannotStart")),
    _pipeline(
        DEGRADED, "True", "PodNotReady", "The driver's pod is not ready, and says why.",
        "Read the message: an image, a volume, a node or too little memory.",
    ),
    _pipeline(
        DEGRADED, "True", "ExecutorsNotReady", "An executor does not start. What it would do waits for the others.",
        "Read the message: a node with less free cpu or memory than spec.executors.resources asks for, an image, or a "
        "volume that cannot be on several nodes.",
    ),
    _pipeline(
        DEGRADED, "True", "LastRunFailed", "The last run of the schedule has failed; the next one comes.",
        "Read the error in the message.",
    ),
)  # fmt: skip

TOPIC_ALREADY_EXISTS = "TopicAlreadyExists"
TOPIC_DELETION_DISABLED = "TopicDeletionDisabled"
"""The error of a refused creation from which follows that the topic was there before."""

_KAFKA_ERRORS = (
    _topic(
        "False", TOPIC_ALREADY_EXISTS,
        "There is a topic of that name, or of a name that differs only in dots and underscores.",
        "Give this one another spec.topicName, or delete the other topic.",
    ),
    _topic("False", "InvalidTopic", "The brokers do not accept the name.", "Give it another spec.topicName."),
    _topic("False", "InvalidPartitions", "The brokers do not accept the partitions.", "Correct spec.partitions."),
    _topic(
        "False", "InvalidReplicationFactor", "The brokers do not accept the replication factor.",
        "Correct spec.replicas, or start more brokers.",
    ),
    _topic("False", "InvalidConfiguration", "The brokers do not accept the configuration.", "Correct spec.config."),
    _topic("False", "InvalidRequest", "The brokers do not accept the request.", "Read the message and correct spec."),
    _topic("False", "PolicyViolation", "A policy of the brokers forbids it.", "Read the message and correct spec."),
    _topic(
        "False", "TopicAuthorizationFailed", "The brokers do not allow the operator to change the topic.",
        "Allow it, by an ACL for the topic.",
    ),
    _topic(
        "False", "ClusterAuthorizationFailed", "The brokers do not allow the operator to change topics.",
        "Allow it, by an ACL for the cluster.",
    ),
    _topic("False", TOPIC_DELETION_DISABLED, "delete.topic.enable is false.", "Set it, or deletionPolicy: Retain."),
    _topic(
        "False", "ThrottlingQuotaExceeded", "The quota for changes of partitions is exhausted (KIP-599).",
        "Nothing; the operator tries again by itself.",
    ),
    _topic(
        "False", "ReassignmentInProgress", "Partitions of the topic are being reassigned.",
        "Nothing; the operator tries again when the reassignment is over.",
    ),
    _topic(
        "False", KAFKA_ERROR, "The brokers answered another error; the message begins with its name.",
        "Read the message. The operator tries again by itself.",
    ),
)  # fmt: skip

CONDITION_REASONS = (*_of_every_concern(), *_OF_CLUSTERS, *_OF_TOPICS, *_KAFKA_ERRORS, *_OF_PIPELINES)

NOT_NEEDED_FOR_READY = ABNORMAL | frozenset({ROLLED, SPREAD_OVER_NODES, DISK_SPACE, NODES_SCHEDULABLE})
"""The types that Ready of a KafkaCluster does not sum up: a roll is no failure."""

_KAFKA_ERROR_NAMES = frozenset(row.reason for row in _KAFKA_ERRORS)


def reason_of_ready(type_: str, reason: str) -> str:
    """The reason of Ready of a KafkaCluster that sums up this reason of another type.

    >>> reason_of_ready("ZooKeeperReady", "NoQuorum"), reason_of_ready("ConfigValid", "InvalidSpec")
    ('ZooKeeperNoQuorum', 'ConfigInvalidSpec')
    """
    return type_.removesuffix("Ready").removesuffix("Valid") + reason


def reason_of_kafka_error(name: str) -> str | None:
    """The reason for an error of Kafka by its name; None when the table has none of its own for it.

    >>> reason_of_kafka_error("PolicyViolation"), reason_of_kafka_error("SnapshotNotFound")
    ('PolicyViolation', None)
    """
    return name if name in _KAFKA_ERROR_NAMES else None


_LISTED = frozenset((row.type, row.status, row.reason) for row in CONDITION_REASONS) | frozenset(
    (READY, "False", reason_of_ready(row.type, row.reason))
    for row in CONDITION_REASONS
    if row.resource == CLUSTER and row.type != READY and row.status != "True" and row.type not in NOT_NEEDED_FOR_READY
)


def require_listed(type_: str, status: str, reason: str) -> None:
    """
    Raises:
        UnlistedReason: the table does not have this reason for this type and status.
    """
    if (type_, status, reason) not in _LISTED:
        raise UnlistedReason(f"{type_}={status} {reason} is not in api/condition_reasons.py")
