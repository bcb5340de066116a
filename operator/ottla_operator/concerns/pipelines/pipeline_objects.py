"""The objects of a KafkaPipeline: ServiceAccount, document, claim, and what runs the driver. Pure.

    trigger             runs as       why
    interval, or none   StatefulSet   replaces no pod before it is gone, also when its node is cut off
    availableNow        Job           ends; with a policy for failures it replaces no pod that has not ended
    schedule            CronJob       Forbid: a run that lasts longer than the schedule leaves the next one out

Without spec.executors the driver runs with `local[N]` and uses no Kubernetes API: its account has no rights, and no
token is mounted. With them: `pipeline_executors`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ottla_documents.kafka_pipeline import FAILED_FOR_GOOD, KafkaPipeline
from ottla_documents.pipeline_jdbc import PASSWORD_VARIABLE, JdbcSink
from ottla_documents.pipeline_sink import Target
from ottla_operator.api import names
from ottla_operator.api.names import HTTP_PORT
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    CRON_JOB,
    JOB,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Obj,
    ResourceKind,
    dig,
    name_of,
    namespace_of,
    new,
    owned,
    short_hash,
)
from ottla_operator.api.pipeline_report import DRIVER
from ottla_operator.concerns.pipelines import pipeline_executors, spark_sizes
from ottla_operator.objects.pods import (
    CONTAINER_SECURITY,
    REVISION_HISTORY,
    TERMINATION_POLICY,
    pod_security,
    resource_requirements,
)

DOCUMENT_DIR = "/etc/ottla"
DOCUMENT = "pipeline.yaml"
EXECUTOR_TEMPLATE = "executor.yaml"
CLAIM_DIR = "/var/lib/ottla"
TERMINATION_LOG = "/dev/termination-log"
"""Kubernetes' default of terminationMessagePath."""
GRACE_S = 300
"""How long a batch that is under way may take after SIGTERM. A batch that is killed is run again."""
START_S = 300
"""How long Python may take until it answers; Spark starts after that."""
_OF_THE_OPERATOR = ("executors", "image", "resources", "schedule", "suspend", "timeZone")
"""Fields that the operator serves. The driver does not get them, so that it goes on when one changes, where it can."""


def workload_kind(pipeline: KafkaPipeline) -> ResourceKind:
    """What runs the driver."""
    if pipeline.trigger.schedule:
        return CRON_JOB
    return JOB if pipeline.trigger.is_available_now else STATEFUL_SET


def service_account(resource: Obj) -> Obj:
    return _owned(resource, SERVICE_ACCOUNT, automountServiceAccountToken=False)


def document(resource: Obj, pipeline: KafkaPipeline) -> Obj:
    """The ConfigMap with what the driver reads, as JSON, which is YAML too."""
    files = {name: json.dumps(content, indent=1) + "\n" for name, content in _files(resource, pipeline).items()}
    return _owned(resource, CONFIG_MAP, data=files)


def claim(resource: Obj, pipeline: KafkaPipeline) -> Obj:
    """The claim of the checkpoint. With Retain nobody owns it, so it outlives the KafkaPipeline."""
    spec: Obj = {
        "accessModes": list(pipeline.claim.access_modes),
        "resources": {"requests": {"storage": pipeline.claim.size}},
    }
    if pipeline.claim.storage_class:
        spec["storageClassName"] = pipeline.claim.storage_class
    name = names.pipeline_object(name_of(resource))
    labels = names.pipeline_labels(name_of(resource))
    found = new(CLAIM, namespace_of(resource), name, labels, spec=spec)
    return owned(found, resource) if pipeline.claim.deletion_policy == "Delete" else found


def workload(resource: Obj, pipeline: KafkaPipeline, image: str, pull_policy: str, bootstrap: str) -> Obj:
    """The StatefulSet, Job or CronJob."""
    kind = workload_kind(pipeline)
    template = _template(resource, pipeline, image, pull_policy, bootstrap)
    if kind == STATEFUL_SET:
        return _owned(resource, kind, spec=_stateful_set(resource, pipeline, template))
    if kind == JOB:
        spec = {**_job(pipeline, template), "suspend": pipeline.is_suspended}
        return owned(new(kind, namespace_of(resource), job_name(resource), _labels(resource), spec=spec), resource)
    job = {"metadata": {"labels": _labels(resource)}, "spec": _job(pipeline, template)}
    spec = {
        "schedule": pipeline.trigger.schedule,
        "timeZone": pipeline.trigger.time_zone,
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 1,
        "suspend": pipeline.is_suspended,
        "jobTemplate": job,
    }
    return _owned(resource, kind, spec=spec)


def job_name(resource: Obj) -> str:
    """Another document is another Job, since the pods of a Job cannot be changed.

    It does not depend on the operator, whose upgrade runs nothing that has run already.
    """
    run = {key: value for key, value in resource["spec"].items() if key not in ("suspend", "checkpoint")}
    path = dig(resource, "spec", "checkpoint", "path")
    return f"{names.pipeline_object(name_of(resource))}-{short_hash([run, path])}"


def _labels(resource: Obj) -> dict[str, str]:
    return names.pipeline_labels(name_of(resource))


def _owned(resource: Obj, kind: ResourceKind, **parts: Any) -> Obj:
    name = names.pipeline_object(name_of(resource))
    return owned(new(kind, namespace_of(resource), name, _labels(resource), **parts), resource)


def _document(resource: Obj) -> Obj:
    """What the driver runs."""
    spec: Mapping[str, Any] = {key: value for key, value in resource["spec"].items() if key not in _OF_THE_OPERATOR}
    path = dig(spec, "checkpoint", "path")
    if "checkpoint" in spec:
        spec = {**spec, "checkpoint": {"path": path}} if path else {k: v for k, v in spec.items() if k != "checkpoint"}
    metadata = {"name": name_of(resource), "namespace": namespace_of(resource)}
    return {"apiVersion": resource["apiVersion"], "kind": resource["kind"], "metadata": metadata, "spec": spec}


def _files(resource: Obj, pipeline: KafkaPipeline) -> dict[str, Obj]:
    """The document, and the pod template of executors."""
    files = {DOCUMENT: _document(resource)}
    if pipeline.executors is not None:
        files[EXECUTOR_TEMPLATE] = pipeline_executors.pod_template(resource, pipeline.executors, CLAIM_DIR)
    return files


def _master(resource: Obj, pipeline: KafkaPipeline, image: str, pull_policy: str) -> list[str]:
    """Where Spark runs its tasks, as arguments of the driver."""
    if pipeline.executors is None:
        return ["--master", f"local[{spark_sizes.threads(pipeline.resources)}]"]
    template = f"{DOCUMENT_DIR}/{EXECUTOR_TEMPLATE}"
    settings = pipeline_executors.spark_settings(
        namespace_of(resource), pipeline.executors, image, pull_policy, template
    )
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return ["--master", pipeline_executors.API_SERVER, *given]


def _template(resource: Obj, pipeline: KafkaPipeline, image: str, pull_policy: str, bootstrap: str) -> Obj:
    is_stream, has_executors = workload_kind(pipeline) == STATEFUL_SET, pipeline.executors is not None
    heap = f"--driver-memory {spark_sizes.heap_mib(pipeline.resources)}m pyspark-shell"
    container: Obj = {
        "name": DRIVER,
        "image": image,
        "args": [
            "pipeline", "run", "-f", f"{DOCUMENT_DIR}/{DOCUMENT}",
            *_master(resource, pipeline, image, pull_policy),
            *(["--bootstrap-servers", bootstrap] if bootstrap else []),
            "--http", f"0.0.0.0:{HTTP_PORT}",
            "--end-status", TERMINATION_LOG,
            *(["--stay"] if is_stream else ["--available-now"]),
        ],
        "workingDir": CLAIM_DIR,
        "env": [
            {"name": "PYSPARK_SUBMIT_ARGS", "value": heap},
            {"name": "HOME", "value": "/tmp"},
            *(pipeline_executors.driver_environment() if has_executors else []),
            *_password(pipeline.sink.target),
        ],
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT},
            *(pipeline_executors.driver_ports() if has_executors else []),
        ],
        "volumeMounts": [
            {"name": "document", "mountPath": DOCUMENT_DIR, "readOnly": True},
            {"name": "checkpoint", "mountPath": CLAIM_DIR},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "startupProbe": _probe("/livez", period=5, failures=START_S // 5),
        "livenessProbe": _probe("/livez", period=20, failures=6),
        "readinessProbe": _probe("/readyz", period=10, failures=1),
        "resources": resource_requirements(pipeline.resources),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": TERMINATION_POLICY,
    }  # fmt: skip
    if pull_policy:
        container["imagePullPolicy"] = pull_policy
    name = names.pipeline_object(name_of(resource))
    spec: Obj = {
        "containers": [container],
        "volumes": [
            {"name": "document", "configMap": {"name": name}},
            {"name": "checkpoint", "persistentVolumeClaim": {"claimName": name}},
            {"name": "tmp", "emptyDir": {}},
        ],
        "serviceAccountName": name,
        "automountServiceAccountToken": has_executors,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": pod_security(),
        "restartPolicy": "Always" if is_stream else "Never",
    }
    read = _files(resource, pipeline) if has_executors else _document(resource)
    annotations = {names.CONFIG: short_hash(read)}
    return {"metadata": {"labels": _labels(resource), "annotations": annotations}, "spec": spec}


def _password(target: Target) -> list[Obj]:
    """The variable with the password of a database, from its Secret."""
    if not isinstance(target, JdbcSink) or target.password_secret is None:
        return []
    name, key = target.password_secret
    variable = target.password_variable or PASSWORD_VARIABLE
    return [{"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}]


def _stateful_set(resource: Obj, pipeline: KafkaPipeline, template: Obj) -> Obj:
    return {
        "replicas": 0 if pipeline.is_suspended else 1,
        "serviceName": names.pipeline_object(name_of(resource)),
        "podManagementPolicy": "Parallel",  # else a pod that never becomes ready is not replaced by a corrected one
        "updateStrategy": {"type": "RollingUpdate"},
        "revisionHistoryLimit": REVISION_HISTORY,
        "selector": {"matchLabels": _labels(resource)},
        "template": template,
    }


def _job(pipeline: KafkaPipeline, template: Obj) -> Obj:
    """The driver makes the attempts of its query itself; the Job those after what ended the driver otherwise."""
    failed = {"containerName": DRIVER, "operator": "In", "values": [FAILED_FOR_GOOD]}
    evicted = {"type": "DisruptionTarget", "status": "True"}
    return {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": pipeline.backoff_limit if pipeline.restart_policy == "OnFailure" else 0,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [evicted]},
                {"action": "FailJob", "onExitCodes": failed},
            ]
        },
        "podReplacementPolicy": "Failed",
        "template": template,
    }


def _probe(path: str, *, period: int, failures: int) -> Obj:
    return {
        "httpGet": {"path": path, "port": HTTP_PORT},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
