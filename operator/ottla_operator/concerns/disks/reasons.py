"""The conditions of disks, and their reasons."""

from __future__ import annotations

from ottla_operator.api.condition_reasons import (
    CLUSTER,
    DISK_SPACE,
    DISKS_READY,
    RESTORE,
    WAIT,
    ConditionType,
    of_cluster,
    usual_reasons,
)

TYPES = (
    ConditionType(CLUSTER, DISKS_READY, "Every broker has its disks as declared, and its log directories are online"),
    ConditionType(
        CLUSTER, DISK_SPACE, "No log directory will be full within a day at the rate of the last day",
        is_needed_for_ready=False,
    ),
)  # fmt: skip

REASONS = (
    *usual_reasons(DISKS_READY),
    *usual_reasons(DISK_SPACE, follows_spec=False, may_fail=False),
    of_cluster(
        DISKS_READY, "False", "NoDisk", "spec.brokers.disks is absent.", "Name at least one disk with a size.",
        needs_person=True,
    ),
    of_cluster(
        DISKS_READY, "False", "NoSize", "A disk of spec.brokers.disks has no size.", "Set it; Kubernetes needs a size.",
    ),
    of_cluster(
        DISKS_READY, "False", "SizeDecreased", "A disk is declared smaller than its claims. Volumes never shrink.",
        "Set the size to that of the claims or more.",
    ),
    of_cluster(
        DISKS_READY, "False", "Draining",
        "Log directories are being emptied: their replicas move to the other log directories of their broker, and no "
        "new one is placed there; where the broker has no other one, they move to other brokers.",
        "Nothing, unless the message says that there is no room or no broker for them.",
    ),
    of_cluster(
        DISKS_READY, "False", "ExpansionNotAllowed",
        "A disk is declared larger, and its StorageClass does not allow volumes to grow (allowVolumeExpansion).",
        "Allow it in the StorageClass, or set the size back.",
        needs_person=True,
    ),
    of_cluster(
        DISKS_READY, "False", "DiskRemoved",
        "A disk that brokers have is no longer declared, and its log directories hold replicas. The brokers keep it, "
        "and are not restarted for any change.",
        "Declare the disk again with state: Drain, and remove it once it is drained.",
        needs_person=True,
    ),
    of_cluster(
        DISKS_READY, "False", "ResizeFailed", "Kubernetes reports an error of resizing a volume.",
        "Read the message; the error is that of the storage provider.",
        needs_person=True,
    ),
    of_cluster(
        DISKS_READY, "True", "StraysKept",
        "claimDeletionPolicy is Delete, and claims of removed brokers or disks stay: logs that are not assigned to the "
        "broker (-stray) are on their volumes.",
    ),
    of_cluster(
        DISKS_READY, "False", "ClaimLost",
        "The claim of a broker was deleted, or its PersistentVolume is gone. The operator creates none in its place: "
        "an empty volume could be taken for the data.",
        "Restore the claim or the volume, or accept the loss as the message says (spec.brokers.overrides[].disks[]"
        ".acceptDataLoss): the broker gets an empty volume and fetches from the others.",
        needs_person=True,
    ),
    of_cluster(
        DISKS_READY, "False", "ClaimTerminating",
        "A claim of a running broker was deleted. The broker loses the volume when its pod stops; no roll stops it.",
        RESTORE,
    ),
    of_cluster(
        DISKS_READY, "False", "LogDirNotOnline", "A broker reports that one of its log directories is not online.",
        "Repair or replace the disk that the message names. Its partitions are served by other replicas.",
        needs_person=True,
    ),
    of_cluster(
        DISKS_READY, "False", "Replacing",
        "A volume has failed and is being replaced by an empty one (spec.brokers.disks[].onFailure); its broker then "
        "fetches from the others what it had.",
        WAIT,
    ),
    of_cluster(
        DISKS_READY, "False", "ReplacementBlocked",
        "A log directory is offline and is to be replaced (spec.brokers.disks[].onFailure), which is not safe now.",
        "Remove the blocker that the message names. For a last copy: repair the disk, or give its data up with "
        "`ottla disk forget`.",
        needs_person=True,
    ),
    of_cluster(
        DISKS_READY, "False", "NodeGone",
        "Volumes of a broker are on a node that does not exist any more or is out of service. With "
        "spec.brokers.disks[].onFailure Replace they are replaced once nothing on them is a last copy.",
        "Bring the node back, or set onFailure to Replace; remove the blocker that the message names.",
        needs_person=True,
    ),
    of_cluster(
        DISKS_READY, "False", "DirectoryIdChanged",
        "A claim shows another directory.id (KIP-858) than it held: its volume has been exchanged or formatted.",
        "Bring the volume back that belongs to the claim.",
        needs_person=True,
    ),
    of_cluster(
        DISKS_READY, "False", "WaitingForVolumes", "Claims are not bound to a volume yet.",
        "If it lasts, look at the events of the claims.",
    ),
    of_cluster(
        DISK_SPACE, "False", "FillingUp",
        "Log directories will be full within the hours that the message names. A full one refuses produce requests.",
        "Shorten retention, add or grow disks (autoGrow grows them), or move replicas to other brokers.",
    ),
    of_cluster(
        DISKS_READY, "False", "Resizing", "Volumes are smaller than declared; Kubernetes is resizing them.",
        "If it lasts, read the message; some storage has nothing that resizes volumes.",
    ),
)  # fmt: skip
