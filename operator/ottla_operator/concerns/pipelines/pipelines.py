"""Decides what a KafkaPipeline needs, from what is known about it at one time. Pure.

One driver at a time: while something of a former document runs (another kind of object, or the Job of another
document), it is deleted first, and the next one is created when its pods are gone. The lock in the folder of the
checkpoint and the epochs of the sink are there for what nobody decides, such as two operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ottla_documents.field_types import CLUSTER_NAME_LENGTH
from ottla_documents.kafka_pipeline import KafkaPipeline
from ottla_documents.limits import too_large_for_a_config_map
from ottla_documents.pipeline_sink import FileSink
from ottla_documents.pipeline_source import FileSource
from ottla_documents.quantity import quantity
from ottla_documents.schema.marks import Problem
from ottla_operator.api import names
from ottla_operator.api.names import CLIENT_PORT
from ottla_operator.api.objects import (
    CLAIM,
    CRON_JOB,
    JOB,
    POD,
    ROLE,
    ROLE_BINDING,
    STATEFUL_SET,
    Obj,
    dig,
    has_condition,
    is_owned_by,
    is_terminating,
    name_of,
    namespace_of,
)
from ottla_operator.api.ownership import is_orphan_of, is_ours
from ottla_operator.concerns.pipelines import pipeline_executors, pipeline_objects
from ottla_operator.concerns.pipelines.observation import PipelineFacts
from ottla_operator.concerns.pipelines.pipeline_state import PipelineState, decide_state, with_executors

WORKLOADS = (STATEFUL_SET, JOB, CRON_JOB)
NAME_LENGTH = CLUSTER_NAME_LENGTH
ASK_S = 10.0
"""How often a driver is asked for its status, and a change waited for that no watch reports."""
REST_S = 600.0


@dataclass(frozen=True, slots=True)
class PipelineDecision:
    """`desired`: written in this order. `delete`: with the reason. `state`: what status shows."""

    state: PipelineState
    problems: tuple[Problem, ...] = ()
    desired: tuple[Obj, ...] = ()
    delete: tuple[tuple[Obj, str], ...] = ()
    requeue_after_s: float = ASK_S


def decide_pipeline(facts: PipelineFacts) -> PipelineDecision:
    """What to write and to delete, and what the status says."""
    pipeline, resource = facts.pipeline, facts.resource
    problems = (*facts.problems, *_problems(facts))
    if problems:  # what runs goes on as it is
        state = decide_state(workload_of(facts), current_pod(facts), facts.report, pipeline)
        return PipelineDecision(state, problems, requeue_after_s=ASK_S if current_pod(facts) else REST_S)
    if pipeline.cluster and pipeline.has_topics and not facts.has_cluster and workload_of(facts) is None:
        message = f"spec.clusterRef.name: there is no KafkaCluster {pipeline.cluster} in {namespace_of(resource)}"
        return PipelineDecision(PipelineState("Pending", "ClusterNotFound", message))
    desired = [
        pipeline_objects.service_account(resource),
        pipeline_objects.document(resource, pipeline),
        pipeline_objects.claim(resource, pipeline),
    ]
    if pipeline.executors is not None:
        desired += [pipeline_executors.role(resource), pipeline_executors.role_binding(resource)]
    workload = _workload(facts)
    stale = [
        obj for obj in _own_workloads(facts) if (obj["kind"], name_of(obj)) != (workload["kind"], name_of(workload))
    ]
    if stale or (workload_of(facts) is None and (left := _left(facts))):
        names_left = ", ".join(f"{obj['kind']} {name_of(obj)}" for obj in (stale or left))
        delete = tuple((obj, "another document runs next") for obj in stale if not is_terminating(obj))
        return PipelineDecision(
            PipelineState("Pending", "Replacing", f"waits until {names_left} is gone"), (), tuple(desired), delete
        )
    live = workload_of(facts)
    if live is None or workload["kind"] != JOB.kind:
        desired.append(workload)
    elif not _is_finished(live) and bool(dig(live, "spec", "suspend")) != pipeline.is_suspended:
        desired.append(_as_it_runs(workload, live))
    elif not is_owned_by(live, resource):
        desired.append({**workload, "spec": live["spec"]})  # it is adopted, and runs nothing once more
    pod = current_pod(facts)
    delete = (
        *((job, "spec.suspend is true") for job in _to_suspend(facts)),
        *((obj, "spec.executors is gone, and no driver has a token") for obj in _unused_rights(facts)),
        *((one, "its driver is gone") for one in pipeline_executors.left_executors(executors(facts), pod)),
    )
    state = decide_state(live, pod, facts.report, pipeline, last_run=last_run(facts))
    if pipeline.executors is not None and pod is not None and _is_active(pod):
        state = with_executors(state, pipeline.executors, executors(facts))
    is_at_rest = (pod is None or not _is_active(pod)) and state.reason in (
        "Completed",
        "Waiting",
        "Suspended",
        "Failed",
    )
    return PipelineDecision(state, (), tuple(desired), delete, REST_S if is_at_rest else ASK_S)


def workload_of(facts: PipelineFacts) -> Obj | None:
    """The StatefulSet, Job or CronJob of the document, if it exists."""
    kind = pipeline_objects.workload_kind(facts.pipeline)
    name = names.pipeline_object(name_of(facts.resource))
    if kind == JOB:
        name = pipeline_objects.job_name(facts.resource)
    found = facts.objects.get(kind.kind, {}).get(name)
    return found if found is not None and _is_own(facts, found) else None


def executors(facts: PipelineFacts) -> list[Obj]:
    """The pods that drivers have created."""
    return [pod for pod in facts.all(POD) if pipeline_executors.is_executor(pod)]


def current_pod(facts: PipelineFacts) -> Obj | None:
    """The driver's pod: the newest, of those that are not terminating where there are such."""
    pods = [pod for pod in _drivers(facts) if _is_active(pod) or not is_terminating(pod)]
    staying = [pod for pod in pods if not is_terminating(pod)] or pods
    return max(staying, key=lambda pod: str(dig(pod, "metadata", "creationTimestamp") or ""), default=None)


def last_run(facts: PipelineFacts) -> Obj | None:
    """The newest Job of a schedule."""
    jobs = [job for job in facts.all(JOB) if not _is_own(facts, job)]
    return max(jobs, key=lambda job: str(dig(job, "metadata", "creationTimestamp") or ""), default=None)


def bootstrap_servers(pipeline: KafkaPipeline) -> str:
    """The brokers of the KafkaCluster; "" where the document names them, or needs none."""
    if not pipeline.cluster:
        return ""
    return f"{names.host(names.bootstrap_service(pipeline.cluster), pipeline.namespace)}:{CLIENT_PORT}"


def _workload(facts: PipelineFacts) -> Obj:
    image = facts.pipeline.image or facts.image
    servers = bootstrap_servers(facts.pipeline)
    return pipeline_objects.workload(facts.resource, facts.pipeline, image, facts.pull_policy, servers)


def _own_workloads(facts: PipelineFacts) -> list[Obj]:
    """What this KafkaPipeline owns itself; the Jobs of a CronJob are the CronJob's."""
    return [obj for kind in WORKLOADS for obj in facts.all(kind) if _is_own(facts, obj)]


def _is_own(facts: PipelineFacts, obj: Obj) -> bool:
    """Whether the KafkaPipeline owns it, or adopts it: of Jobs only its own one, others are runs of a schedule."""
    if is_owned_by(obj, facts.resource):
        return True
    is_run = obj["kind"] == JOB.kind and name_of(obj) != pipeline_objects.job_name(facts.resource)
    return not is_run and is_orphan_of(obj, facts.resource)


def _left(facts: PipelineFacts) -> list[Obj]:
    """What may still run of a former document."""
    jobs = [job for job in facts.all(JOB) if not _is_finished(job)]
    return [*jobs, *(pod for pod in facts.all(POD) if _is_active(pod))]


def _drivers(facts: PipelineFacts) -> list[Obj]:
    return [pod for pod in facts.all(POD) if not pipeline_executors.is_executor(pod)]


def _unused_rights(facts: PipelineFacts) -> list[Obj]:
    """The rights to pods, once no driver needs them: that of the former document may still end its last batch."""
    if facts.pipeline.executors is not None:
        return []
    if any(_is_active(pod) and dig(pod, "spec", "automountServiceAccountToken") for pod in _drivers(facts)):
        return []
    found = (obj for kind in (ROLE_BINDING, ROLE) for obj in facts.all(kind))
    return [obj for obj in found if is_ours(obj, facts.resource)]


def _is_active(pod: Obj) -> bool:
    return dig(pod, "status", "phase") not in ("Succeeded", "Failed")


def _is_finished(obj: Obj) -> bool:
    return obj["kind"] == JOB.kind and (has_condition(obj, "Complete") or has_condition(obj, "Failed"))


def _as_it_runs(workload: Obj, live: Obj) -> Obj:
    """The Job with the pods that it has: they cannot be changed, and the operator may be another one by now."""
    return {**workload, "spec": {**live["spec"], "suspend": workload["spec"]["suspend"]}}


def _to_suspend(facts: PipelineFacts) -> list[Obj]:
    """The run of a schedule that is under way: suspending a CronJob starts no other one, and ends none."""
    if not facts.pipeline.is_suspended or not facts.pipeline.trigger.schedule:
        return []
    jobs = (job for job in facts.all(JOB) if not _is_own(facts, job))
    return [job for job in jobs if not _is_finished(job) and not is_terminating(job)]


def _problems(facts: PipelineFacts) -> list[Problem]:
    """What is wrong on Kubernetes only."""
    pipeline, found = facts.pipeline, []
    if len(pipeline.name) > NAME_LENGTH:
        found.append(Problem("metadata.name", f"must have at most {NAME_LENGTH} characters"))
    if not pipeline.image and not facts.image:
        found.append(Problem("spec.image", "is required: the operator has no image of its own (values pipeline.image)"))
    if not facts.problems:
        data = pipeline_objects.document(facts.resource, pipeline)["data"]
        if wrong := too_large_for_a_config_map(sum(len(name) + len(text.encode()) for name, text in data.items())):
            found.append(Problem("spec", f"as JSON, with the template of executors, {wrong}"))
    folders = {"spec.checkpoint.path": pipeline.checkpoint}
    if isinstance(pipeline.source, FileSource):
        folders["spec.source.files.path"] = pipeline.source.path
    if isinstance(pipeline.sink.target, FileSink):
        folders[f"spec.sink.{pipeline.sink.target.format}.path"] = pipeline.sink.target.path
    for field, path in folders.items():
        if path.startswith("/") or ".." in path.split("/"):
            found.append(Problem(field, f"must be a folder of the claim, relative to its root, not {path}"))
    live = facts.objects.get(CLAIM.kind, {}).get(names.pipeline_object(pipeline.name))
    if live is not None:
        found += _claim_problems(pipeline, live)
    return found


def _claim_problems(pipeline: KafkaPipeline, live: Obj) -> Iterator[Problem]:
    """What Kubernetes does not change of a claim."""
    size, declared = str(dig(live, "spec", "resources", "requests", "storage") or "0"), pipeline.claim
    if quantity(declared.size) < quantity(size):
        yield Problem("spec.checkpoint.size", f"the claim has {size}, and a volume does not become smaller")
    live_class = dig(live, "spec", "storageClassName") or ""
    if declared.storage_class and declared.storage_class != live_class:
        yield Problem(
            "spec.checkpoint.storageClassName", f"the claim has the class {live_class or 'none'} and keeps it"
        )
    modes = list(dig(live, "spec", "accessModes") or [])
    if set(modes) != set(declared.access_modes):
        yield Problem("spec.checkpoint.accessModes", f"the claim has {', '.join(modes) or 'none'} and keeps it")
