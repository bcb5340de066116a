"""The state of a pipeline: from its StatefulSet, Job or CronJob, its pod, and what the driver says. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla_documents.executors import Executors
from ottla_documents.kafka_pipeline import KafkaPipeline
from ottla_operator.api.objects import CRON_JOB, JOB, Obj, dig, has_condition, is_terminating, name_of, uid_of
from ottla_operator.api.pipeline_report import PipelineReport, driver_status, ended_report
from ottla_operator.concerns.pipelines.pipeline_executors import executor_not_ready_reason, running_executors
from ottla_operator.objects.pods import not_ready_reason

AT_REST = ("QueryRunning", "Waiting", "Completed")
"""The reasons with which a pipeline is ready."""


@dataclass(frozen=True, slots=True)
class PipelineState:
    """`name`: status.state. `reason`: of Ready and Running. `degraded`: the reason of Degraded, or ""."""

    name: str
    reason: str
    message: str = ""
    degraded: str = ""
    report: PipelineReport | None = None
    pod: str = ""
    executors: int | None = None


def decide_state(
    workload: Obj | None,
    pod: Obj | None,
    report: PipelineReport | None,
    pipeline: KafkaPipeline,
    *,
    last_run: Obj | None = None,
) -> PipelineState:
    """The state of a pipeline.

    Args:
        pod: the driver's, if there is one.
        report: the driver's answer; it counts for that pod only.
        last_run: the newest Job of a schedule.
    """
    job = last_run if workload is not None and workload["kind"] == CRON_JOB.kind else workload
    if job is not None and job["kind"] == JOB.kind:
        if has_condition(job, "Complete"):
            return _completed(pod, pipeline)
        if has_condition(job, "Failed"):
            return _failed(job, pod, pipeline)
    if pipeline.is_suspended:
        message = f"the pod {name_of(pod)} ends after its batch" if pod is not None else "spec.suspend is true"
        return PipelineState("Suspended", "Suspended", message, pod=name_of(pod) if pod is not None else "")
    if pod is None:
        return _without_pod(workload, pipeline)
    if is_terminating(pod):
        return PipelineState("Starting", "Starting", f"the pod {name_of(pod)} ends", pod=name_of(pod))
    if report is None or report.pod_uid != uid_of(pod):
        return _silent(pod)
    return _as_reported(report, pod)


def with_executors(state: PipelineState, declared: Executors, pods: Sequence[Obj]) -> PipelineState:
    """The state with the executors: how many run, and of a query that runs why one does not start."""
    running = running_executors(pods)
    if state.reason != "QueryRunning":
        return replace(state, executors=running)
    message = f"{state.message} with {running} of {declared.instances} executors"
    why = executor_not_ready_reason(pods)
    if why and not state.degraded:
        return replace(state, message=f"{message}: {why}", degraded="ExecutorsNotReady", executors=running)
    return replace(state, message=message, executors=running)


def _as_reported(report: PipelineReport, pod: Obj) -> PipelineState:
    name = name_of(pod)
    if report.phase == "Running":
        return PipelineState("Running", "QueryRunning", f"in the pod {name}", "", report, name)
    if report.phase == "Restarting":
        return PipelineState("Restarting", "Restarting", report.last_error, "Restarting", report, name)
    if report.phase == "Failed":
        reason = "Failed" if report.has_begun else "CannotStart"
        return PipelineState("Failed", reason, report.last_error, reason, report, name)
    if report.phase == "Completed":
        return PipelineState("Completed", "Completed", "", "", report, name)
    return PipelineState("Starting", "Starting", f"Spark starts in the pod {name}", "", report, name)


def _silent(pod: Obj) -> PipelineState:
    """A pod whose driver does not answer: it starts, cannot, or is busy while its readiness probe says that it runs."""
    status, name = driver_status(pod), name_of(pod)
    if has_condition(pod, "Ready"):
        return PipelineState("Running", "QueryRunning", f"in the pod {name}", pod=name)
    why = f"the pod {name} {not_ready_reason(pod)}"
    has_failed = bool(
        dig(status, "restartCount")
        or dig(status, "state", "terminated")
        or dig(status, "state", "waiting", "reason") not in (None, "ContainerCreating", "PodInitializing")
    )
    is_unscheduled = any(
        one.get("type") == "PodScheduled" and one.get("status") == "False"
        for one in dig(pod, "status", "conditions") or []
    )
    return PipelineState("Starting", "Starting", why, "PodNotReady" if has_failed or is_unscheduled else "", pod=name)


def _without_pod(workload: Obj | None, pipeline: KafkaPipeline) -> PipelineState:
    if pipeline.trigger.schedule and workload is not None:
        return PipelineState("Waiting", "Waiting", f"for the next time of {pipeline.trigger.schedule}")
    what = f"{workload['kind']} {name_of(workload)}" if workload is not None else "what runs the driver"
    return PipelineState("Pending", "Pending", f"{what} has no pod yet")


def _completed(pod: Obj | None, pipeline: KafkaPipeline) -> PipelineState:
    report = None if pod is None else ended_report(pod)
    if pipeline.is_suspended:
        return PipelineState("Suspended", "Suspended", "spec.suspend is true", report=report)
    if pipeline.trigger.schedule:
        return PipelineState("Waiting", "Waiting", f"for the next time of {pipeline.trigger.schedule}", report=report)
    return PipelineState("Completed", "Completed", "", report=report, pod=name_of(pod) if pod is not None else "")


def _failed(job: Obj, pod: Obj | None, pipeline: KafkaPipeline) -> PipelineState:
    report = None if pod is None else ended_report(pod)
    error = report.last_error if report is not None and report.last_error else _end_of(job, pod)
    if pipeline.is_suspended:
        return PipelineState("Suspended", "Suspended", "spec.suspend is true", report=report)
    if pipeline.trigger.schedule:
        message = f"for the next time of {pipeline.trigger.schedule}; the last run has failed: {error}"
        return PipelineState("Waiting", "Waiting", message, "LastRunFailed", report)
    reason = "CannotStart" if report is not None and not report.has_begun else "Failed"
    return PipelineState("Failed", reason, error, reason, report, name_of(pod) if pod is not None else "")


def _end_of(job: Obj, pod: Obj | None) -> str:
    """Why a Job has failed whose driver left no status: the end of its log, or else what the Job says."""
    ended = dig(driver_status(pod), "state", "terminated") or {}
    lines = str(ended.get("message") or "").strip().splitlines()
    if lines:
        return lines[-1]
    if ended.get("reason"):
        return f"the container ended: {ended['reason']}, exit code {ended.get('exitCode')}"
    conditions = dig(job, "status", "conditions") or []
    return next((str(one.get("message") or "") for one in conditions if one.get("type") == "Failed"), "")
