"""The reconciliation of one KafkaPipeline: what is known, decide, write what differs, delete what is stale, status.

`concerns.pipelines.pipelines` decides. One task runs for each KafkaPipeline, one reconciliation at a time.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from ottla_documents.kafka_pipeline import KafkaPipeline, parse_pipeline
from ottla_documents.pipeline_sink import TopicSink
from ottla_documents.schema.marks import Problem
from ottla_operator.api.condition_reasons import READY
from ottla_operator.api.conditions import condition_false
from ottla_operator.api.events import WARNING, new_event
from ottla_operator.api.objects import KAFKA_CLUSTER, KAFKA_PIPELINE, Obj, dig, is_terminating, name_of
from ottla_operator.concerns.pipelines.observation import PipelineFacts
from ottla_operator.concerns.pipelines.pipeline_state import PipelineState
from ottla_operator.concerns.pipelines.pipeline_status import pipeline_events, pipeline_status
from ottla_operator.concerns.pipelines.pipelines import ASK_S, PipelineDecision, current_pod, decide_pipeline, last_run
from ottla_operator.facts.contested_writes import ContestedWrites
from ottla_operator.ports import ApiError
from ottla_operator.runtime.adoption import may_adopt
from ottla_operator.runtime.object_cache import Key, ObjectCache
from ottla_operator.runtime.pipeline_writer import PipelineWriter
from ottla_operator.runtime.prerequisites import AGAIN_S, status_with
from ottla_operator.runtime.task_context import TaskContext
from ottla_pipeline.running.query_options import wrong_config


@dataclass(frozen=True, slots=True)
class PipelineImage:
    """The image of drivers whose document names none. `image` "": there is none.

    `pull_policy` "": the default of Kubernetes.
    """

    image: str = ""
    pull_policy: str = ""


NO_IMAGE = PipelineImage()


class PipelineTask:
    """Reconciles one KafkaPipeline. `reconcile_once` does it once and returns when to do it again."""

    def __init__(
        self,
        key: Key,
        cache: ObjectCache,
        context: TaskContext,
        image: PipelineImage,
    ) -> None:
        """`cache`: KafkaPipelines and their objects."""
        api = context.api
        self._prerequisites = context.prerequisites
        self.key = key
        self._cache = cache
        self._clusters = context.cache
        self._api = api
        self._environment = context.environment
        self._image = image
        self._contested = ContestedWrites(context.monotonic)
        self._log = logging.getLogger(f"ottla.operator.{key[0]}.{key[1]}.pipeline")
        self._writer = PipelineWriter(cache, api, self._contested, self._log)

    async def reconcile_once(self) -> float | None:
        """One reconciliation.

        Returns:
            The seconds until the next one, None when the KafkaPipeline is absent or terminating.

        Raises:
            ApiError: something could not be read or written. What was done before stays done.
        """
        resource = self._cache.get(KAFKA_PIPELINE, *self.key)
        if resource is None or is_terminating(resource) or self._clusters.is_namespace_terminating(self.key[0]):
            return None  # Kubernetes deletes what it owns; the claim stays unless spec says otherwise
        try:
            return await self._reconcile(resource)
        except ApiError as error:
            self._prerequisites.was_refused(KAFKA_PIPELINE, self.key[0], error)
            raise

    async def _reconcile(self, resource: Obj) -> float:
        shortfall = await self._prerequisites.shortfall(KAFKA_PIPELINE, self.key[0], [resource])
        if shortfall is not None:
            ready = condition_false(READY, shortfall.reason, shortfall.message)
            now = self._environment.now()
            if await self._prerequisites.may_write_status(KAFKA_PIPELINE, resource, shortfall):
                event = new_event(resource, WARNING, shortfall.reason, shortfall.message, now)
                await self._writer.write_status(resource, status_with(resource, ready, now), [event])
            return AGAIN_S
        facts = await self._facts(resource)
        objects = (obj for found in facts.objects.values() for obj in found.values())
        if not await may_adopt(self._api, resource, objects):
            return ASK_S  # its deletion is about to be seen, and nothing is written for it any more
        decision = decide_pipeline(facts)
        failed: ApiError | None = None
        try:
            await self._writer.delete(decision.delete)
            foreign = await self._writer.apply(resource, decision.desired)
            if foreign:
                decision = _not_owned(decision, foreign)
        except ApiError as error:
            failed = error
            decision = _with_reason(decision, "WriteFailed", str(error))
        before = resource.get("status") or {}
        status = pipeline_status(resource, decision.state, decision.problems, facts.now, last_run(facts))
        answer = await self._writer.write_status(resource, status, pipeline_events(resource, before, status, facts.now))
        if answer is not None:
            self._prerequisites.wrote_status(KAFKA_PIPELINE, status, answer)
        if failed is not None:
            raise failed
        return decision.requeue_after_s

    async def _facts(self, resource: Obj) -> PipelineFacts:
        pipeline, problems = parse_pipeline(resource)
        if isinstance(pipeline.sink.target, TopicSink) and not problems:
            problems += _config_problems(pipeline.sink.target)
        facts = PipelineFacts(
            resource=resource,
            pipeline=pipeline,
            problems=tuple(problems),
            objects=self._cache.of_cluster(self.key),
            has_cluster=self._has_cluster(pipeline),
            image=self._image.image,
            pull_policy=self._image.pull_policy,
            now=self._environment.now(),
        )
        pod = current_pod(facts)
        if pod is None or not dig(pod, "status", "podIP") or is_terminating(pod):
            return facts
        return replace(facts, report=await self._environment.pipeline_report(pod))

    def _has_cluster(self, pipeline: KafkaPipeline) -> bool:
        return self._clusters.get(KAFKA_CLUSTER, pipeline.namespace, pipeline.cluster) is not None


def _config_problems(sink: TopicSink) -> list[Problem]:
    """What is wrong with the producer's keys, as `ottla pipeline validate` says it."""
    field, _, message = wrong_config(sink).partition(": ")
    return [Problem(field, message)] if field else []


def _not_owned(decision: PipelineDecision, foreign: list[Obj]) -> PipelineDecision:
    text = ", ".join(f"{obj['kind']} {name_of(obj)}" for obj in foreign)
    return _with_reason(decision, "NotOwned", f"exist and do not belong to this pipeline: {text}")


def _with_reason(decision: PipelineDecision, reason: str, message: str) -> PipelineDecision:
    """The decision with another reason why the pipeline is not ready; what is known of the driver stays."""
    state = decision.state
    name = state.name if state.pod else "Pending"
    return replace(decision, state=PipelineState(name, reason, message, state.degraded, state.report, state.pod))
