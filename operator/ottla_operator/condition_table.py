"""Every condition that the operator sets: the types, and for each type the reasons, what they mean and what to do.

`ottla_operator.reference` prints the table for the manual. A test refuses a condition that it does not have.
"""

from __future__ import annotations

from ottla_operator.api.condition_reasons import (
    ABNORMAL,
    CLUSTER,
    ONLY_A_CHANGE_ENDS,
    READY,
    RECONCILING,
    STALLED,
    ConditionType,
    lacking,
    of_cluster,
    reason_of_ready,
    usual_reasons,
)
from ottla_operator.concerns.brokers import reasons as brokers
from ottla_operator.concerns.config import reasons as config
from ottla_operator.concerns.disks import reasons as disks
from ottla_operator.concerns.ensemble import reasons as ensemble
from ottla_operator.concerns.fleet import reasons as fleet
from ottla_operator.concerns.pipelines import reasons as pipelines
from ottla_operator.concerns.roll import reasons as roll
from ottla_operator.concerns.topics import reasons as topics
from ottla_operator.concerns.upgrades import reasons as upgrades

_OF_CLUSTER_TYPES = (
    ConditionType(
        CLUSTER, READY,
        "Every other condition is True, Rolled, SpreadOverNodes, DiskSpace and NodesSchedulable excepted",
    ),
    ConditionType(
        CLUSTER, RECONCILING, "The operator brings the cluster to what is declared; absent otherwise (kstatus)",
    ),
    ConditionType(CLUSTER, STALLED, "Only a change of the document helps; absent otherwise (kstatus)"),
)  # fmt: skip

_OF_CLUSTER = (
    *usual_reasons(READY),
    *lacking(CLUSTER),
    of_cluster(
        READY, "False", "Paused", "spec.paused is true; the operator changes nothing.",
        "Set spec.paused to false when the operator may go on.",
    ),
    of_cluster(
        READY, "False", "ChangedByOthers",
        "A webhook or controller changes fields of the operator's objects back at each write. The operator writes a "
        "field at most three times in ten minutes.",
        "Stop what changes the fields that the message names, or declare the same values.",
    ),
    of_cluster(
        READY, "False", "NotOwned", "Objects with the names of this cluster's objects exist and do not belong to it.",
        "Delete or rename them; or give the KafkaCluster another name.",
    ),
    of_cluster(
        READY, "False", "WriteFailed", "The API server refused a write, or did not answer.",
        "Read the message: often a permission, a quota or an admission webhook. The operator tries again by itself.",
    ),
    of_cluster(
        READY, "Unknown", "ReadFailed", "The API server refused a read, or did not answer.",
        "Read the message: often a permission of the operator's role. The operator tries again by itself.",
    ),
    *(
        of_cluster(STALLED, "True", reason, "As the condition with this reason says, which the message names.")
        for reason in ONLY_A_CHANGE_ENDS
    ),
    of_cluster(
        RECONCILING, "True", "Progressing",
        "Ready is not True, or members are being restarted; the message has the reason. A roll that waits for an "
        "approval, a window or a turn is none.",
    ),
)  # fmt: skip

CONDITION_TYPES = (
    *_OF_CLUSTER_TYPES,
    *ensemble.TYPES,
    *fleet.TYPES,
    *brokers.TYPES,
    *disks.TYPES,
    *config.TYPES,
    *roll.TYPES,
    *topics.TYPES,
    *pipelines.TYPES,
)
CONDITION_REASONS = (
    *_OF_CLUSTER,
    *ensemble.REASONS,
    *fleet.REASONS,
    *brokers.REASONS,
    *disks.REASONS,
    *config.REASONS,
    *upgrades.REASONS,
    *roll.REASONS,
    *topics.REASONS,
    *pipelines.REASONS,
)

NOT_NEEDED_FOR_READY = ABNORMAL | {one.type for one in CONDITION_TYPES if not one.is_needed_for_ready}
"""The types that Ready of a KafkaCluster does not sum up: a roll is no failure."""

MENDED_BY_A_PERSON = {*ONLY_A_CHANGE_ENDS, *(row.reason for row in CONDITION_REASONS if row.needs_person)}
"""The reasons that last until a person does something. Ready shows them before what only takes its time."""

_LISTED = frozenset((row.type, row.status, row.reason) for row in CONDITION_REASONS) | frozenset(
    (READY, "False", reason_of_ready(row.type, row.reason))
    for row in CONDITION_REASONS
    if row.resource == CLUSTER and row.type != READY and row.status != "True" and row.type not in NOT_NEEDED_FOR_READY
)


def is_listed(type_: str, status: str, reason: str) -> bool:
    """Whether the table has this reason for this type and status."""
    return (type_, status, reason) in _LISTED
