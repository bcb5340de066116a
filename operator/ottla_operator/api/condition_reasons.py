"""The vocabulary of conditions: the types, the reasons that several of them have, and what a row of a table says.

Each concern lists its conditions and their reasons in `concerns/*/reasons.py`; `condition_table` puts them together.
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


@dataclass(frozen=True, slots=True)
class ConditionType:
    """A type of condition of one kind of object, and what it says when it is True."""

    resource: str
    type: str
    meaning: str
    is_needed_for_ready: bool = True
    """Ready of a KafkaCluster sums it up."""


@dataclass(frozen=True, slots=True)
class ConditionReason:
    """One reason of one type: what has happened, and what a person does about it ("" when nothing is to be done)."""

    resource: str
    type: str
    status: Status
    reason: str
    meaning: str
    action: str = ""
    needs_person: bool = False
    """Whether it lasts until a person does something. Ready shows it before what only takes its time."""


WAIT = "Nothing; the operator goes on by itself."
CORRECT = "Correct the fields that the message names."
RESTORE = "Restore the volume, or give its data up: docs/operating/kubernetes-failures.md, When a disk fails."
_REPORT = "Look into the log of the operator and report a bug; the operator tries again by itself."


def of_cluster(
    type_: str, status: Status, reason: str, meaning: str, action: str = "", *, needs_person: bool = False
) -> ConditionReason:
    """A reason of a condition of a KafkaCluster."""
    return ConditionReason(CLUSTER, type_, status, reason, meaning, action, needs_person)


def usual_reasons(type_: str, *, follows_spec: bool = True, may_fail: bool = True) -> tuple[ConditionReason, ...]:
    """The reasons of nearly every condition of a KafkaCluster.

    Args:
        follows_spec: fields of spec decide it.
        may_fail: it becomes Unknown when its concern raises.
    """
    found = [of_cluster(type_, "True", AS_DECLARED, "It is as declared.")]
    if follows_spec:
        wrong = "Fields of spec have values that cannot be used."
        found.append(of_cluster(type_, "False", INVALID_SPEC, wrong, CORRECT, needs_person=True))
    if may_fail:
        bug = "The operator has a bug; it changes nothing here."
        found.append(of_cluster(type_, "Unknown", INTERNAL_ERROR, bug, _REPORT))
    return tuple(found)


def lacking(resource: str) -> tuple[ConditionReason, ...]:
    """The reasons of Ready when the operator lacks fields or rights for a kind of object."""
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


def reason_of_ready(type_: str, reason: str) -> str:
    """The reason of Ready of a KafkaCluster that sums up this reason of another type.

    >>> reason_of_ready("ZooKeeperReady", "NoQuorum"), reason_of_ready("ConfigValid", "InvalidSpec")
    ('ZooKeeperNoQuorum', 'ConfigInvalidSpec')
    """
    return type_.removesuffix("Ready").removesuffix("Valid") + reason
