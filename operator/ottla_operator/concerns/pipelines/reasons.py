"""The conditions of a KafkaPipeline, and their reasons."""

from __future__ import annotations

from ottla_operator.api.condition_reasons import (
    AS_DECLARED,
    CORRECT,
    DEGRADED,
    INVALID_SPEC,
    PIPELINE,
    READY,
    RUNNING,
    VALID,
    WAIT,
    ConditionReason,
    ConditionType,
    Status,
    lacking,
)

TYPES = (
    ConditionType(PIPELINE, READY, "The pipeline does what its document says, or has done it"),
    ConditionType(PIPELINE, VALID, "Every field of the document can be used"),
    ConditionType(PIPELINE, RUNNING, "The driver runs the query"),
    ConditionType(PIPELINE, DEGRADED, "Something has failed; the message has the last line of the error"),
)  # fmt: skip

_NOT_RUNNING = (
    ("Pending", "The driver has no pod yet.", "If it lasts, read the Events of the object that the message names."),
    ("Starting", "The driver's pod starts, or Spark does.", "If it lasts, the message says why the pod is not ready."),
    ("Restarting", "The query has failed and is tried again.", "If it lasts, read the error in the message."),
    ("Replacing", "The driver of the former document ends before the next one begins.", WAIT),
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


REASONS = (
    *lacking(PIPELINE),
    _pipeline(READY, "True", "QueryRunning", "The driver runs the query."),
    *(_pipeline(READY, "True", *row) for row in _AT_REST),
    *(_pipeline(READY, "False", *row) for row in _NOT_RUNNING),
    _pipeline(READY, "False", INVALID_SPEC, "Fields of spec have values that cannot be used.", CORRECT),
    _pipeline(VALID, "True", AS_DECLARED, "Every field can be used."),
    _pipeline(VALID, "False", INVALID_SPEC, "Fields of spec have values that cannot be used.", CORRECT),
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
