"""The status of a KafkaPipeline and the Events of its changes. Pure.

Progress alone is written at most once a minute; a change of anything else is written at once, with the progress then.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_documents.schema.marks import Problem
from ottla_operator.api.condition_reasons import AS_DECLARED, DEGRADED, INVALID_SPEC, READY, RUNNING, VALID
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec, merged
from ottla_operator.api.events import NORMAL, WARNING, new_event
from ottla_operator.api.objects import Obj, dig
from ottla_operator.api.pipeline_report import PipelineProgress
from ottla_operator.api.times import seconds_between
from ottla_operator.concerns.pipelines.pipeline_state import AT_REST, PipelineState

PROGRESS_S = 60.0
ERROR_LENGTH = 1024


def pipeline_status(
    resource: Obj, state: PipelineState, problems: Sequence[Problem], time: str, last_run: Obj | None
) -> Obj:
    """The new status.

    Args:
        state: what the pipeline does.
        problems: fields of the document that cannot be used.
        time: UTC, as Kubernetes writes it.
        last_run: the newest Job of a schedule.
    """
    before = resource.get("status") or {}
    generation = int(dig(resource, "metadata", "generation") or 0)
    status: Obj = {
        "observedGeneration": generation,
        "state": state.name,
        "conditions": merged(before.get("conditions"), _conditions(state, problems), generation, time),
    }
    if state.pod:
        status["pod"] = state.pod
    if state.executors is not None:
        status["executors"] = state.executors
    report = state.report
    restarts = report.restarts if report is not None else before.get("restarts")
    if restarts:
        status["restarts"] = restarts
    error = report.last_error if report is not None else before.get("lastError")
    if error or (error := state.message if state.reason in ("Failed", "CannotStart") else ""):
        status["lastError"] = str(error)[:ERROR_LENGTH]
    if last_run is not None:
        status["lastRunTime"] = dig(last_run, "metadata", "creationTimestamp")
    if progress := _progress(before, status, report.progress if report is not None else None, time):
        status["progress"] = progress
    return status


def pipeline_events(resource: Obj, before: Obj, after: Obj, time: str) -> list[Obj]:
    """The Events for a change: what has started, ended, failed, or cannot be used."""
    found: list[Obj] = []
    then, now = before.get("state"), after.get("state")
    error, invalid = after.get("lastError", ""), _condition(after, VALID)
    if invalid.get("reason") == INVALID_SPEC and invalid.get("message") != _condition(before, VALID).get("message"):
        found.append(new_event(resource, WARNING, INVALID_SPEC, str(invalid["message"]), time))
    if now == "Running" and then != now:
        found.append(new_event(resource, NORMAL, "Started", f"runs in the pod {after.get('pod', '')}", time))
    reasons = [_condition(status, DEGRADED).get("reason") for status in (before, after)]
    is_new_failure = reasons[0] != reasons[1] or error != before.get("lastError", "")
    if _condition(after, DEGRADED).get("status") == "True" and is_new_failure:
        message = str(_condition(after, DEGRADED).get("message") or error)
        found.append(new_event(resource, WARNING, str(reasons[1]), message, time))
    has_run = now == "Completed" or (now == "Waiting" and then in ("Running", "Starting", "Restarting"))
    if has_run and then != now and reasons[1] == AS_DECLARED:
        found.append(new_event(resource, NORMAL, "Completed", "what was there is read and written", time))
    if now == "Suspended" and then != now:
        found.append(new_event(resource, NORMAL, "Suspended", "spec.suspend is true; the checkpoint stays", time))
    return found


def _conditions(state: PipelineState, problems: Sequence[Problem]) -> list[Condition]:
    found = [_degraded(state)]
    if state.reason == "QueryRunning":
        found.append(condition_true(RUNNING, "QueryRunning", state.message))
    else:
        found.append(condition_false(RUNNING, state.reason, state.message))
    if problems:
        return [*found, invalid_spec(VALID, problems), invalid_spec(READY, problems)]
    is_ready = state.reason in AT_REST
    ready = (
        condition_true(READY, state.reason, state.message)
        if is_ready
        else condition_false(READY, state.reason, state.message)
    )
    return [*found, condition_true(VALID), ready]


def _degraded(state: PipelineState) -> Condition:
    if state.degraded:
        return condition_true(DEGRADED, state.degraded, state.message)
    return condition_false(DEGRADED, AS_DECLARED, "")


def _condition(status: Obj, type_: str) -> Obj:
    return next((one for one in status.get("conditions") or [] if one.get("type") == type_), {})


def _progress(before: Obj, status: Obj, reported: PipelineProgress | None, time: str) -> Obj | None:
    """What status.progress says: of the driver, or what it said a short time ago and nothing else has changed."""
    shown = before.get("progress")
    if reported is None:
        return shown
    progress: Obj = {
        "lastBatchId": reported.batch_id,
        "lastBatchDurationMs": reported.duration_ms,
        "rowsPerSecond": reported.rows_per_second,
        "inputRows": reported.input_rows,
        "lag": reported.lag,
    }
    progress |= {"lastBatchTime": reported.batch_time} if reported.batch_time else {}
    progress |= {"watermark": reported.watermark} if reported.watermark else {}
    if shown is None:
        return {**progress, "updateTime": time}
    if progress == {name: value for name, value in shown.items() if name != "updateTime"}:
        return dict(shown)
    is_same = {**status, "progress": shown} == before
    passed = seconds_between(str(shown.get("updateTime") or ""), time)
    return dict(shown) if is_same and passed is not None and passed < PROGRESS_S else {**progress, "updateTime": time}
