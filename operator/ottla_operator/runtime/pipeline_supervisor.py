"""A task for each KafkaPipeline, woken by watch events of it and of its objects.

Apart from the tasks of clusters: where the CustomResourceDefinition of KafkaPipeline does not exist, its watches fail
and nothing else waits for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla_operator.api.names import PIPELINE
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    CRON_JOB,
    JOB,
    KAFKA_PIPELINE,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Obj,
    ResourceKind,
    name_of,
    namespace_of,
)
from ottla_operator.runtime.object_cache import Key, ObjectCache, pipeline_of
from ottla_operator.runtime.pipeline_task import PipelineImage, PipelineTask
from ottla_operator.runtime.reconciling import STUCK_S, RunningTask, reconcile_forever
from ottla_operator.runtime.relisting import relist
from ottla_operator.runtime.task_context import TaskContext

PIPELINE_KINDS = (
    KAFKA_PIPELINE, STATEFUL_SET, JOB, CRON_JOB, POD, CONFIG_MAP, CLAIM, SERVICE_ACCOUNT, ROLE, ROLE_BINDING,
)  # fmt: skip
"""What is watched: KafkaPipelines, and of the others those with the label of one."""


class PipelineSupervisor:
    """Gets watch events (`on_event`) and runs the tasks. Nothing is written before `may_write` returns."""

    def __init__(
        self,
        context: TaskContext,
        image: PipelineImage,
        *,
        may_write: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = context
        self._cache = ObjectCache(pipeline_of)
        self._image = image
        self._may_write = may_write
        self._tasks: dict[Key, RunningTask] = {}
        self._log = logging.getLogger("ottla.operator")

    def on_event(self, event: str | None, obj: Obj) -> None:
        """Handles one watch event: ADDED, MODIFIED, DELETED, or None for an object of the first list."""
        if self._cache.remove(obj) if event == "DELETED" else self._cache.put(obj):
            self._wake(obj)

    async def relist(self, kind: ResourceKind, namespace: str | None) -> str:
        """Compares the cache with what the API server lists. Returns the version of the list."""
        gone, version = await relist(self._context.api, self._cache, kind, namespace, selector(kind), self.on_event)
        for obj in gone:
            self._wake(obj)
        return version

    def stuck_tasks(self) -> list[str]:
        """The tasks that have made no step for ten minutes."""
        now = asyncio.get_running_loop().time()
        return [f"pipeline {key[0]}/{key[1]}" for key, one in self._tasks.items() if now - one.step_at > STUCK_S]

    async def close(self) -> None:
        tasks = [running.task for running in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    def _wake(self, obj: Obj) -> None:
        is_pipeline = obj["kind"] == KAFKA_PIPELINE.kind
        key = (namespace_of(obj), name_of(obj)) if is_pipeline else pipeline_of(obj)
        if key is None:
            return
        if self._cache.get(KAFKA_PIPELINE, *key) is not None:
            self._running(key).dirty.set()
        elif key in self._tasks:
            self._tasks[key].dirty.set()

    def _running(self, key: Key) -> RunningTask:
        running = self._tasks.get(key)
        if running is None or running.task.done():
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._run(key), name=f"pipeline {key[0]}/{key[1]}")
            running = self._tasks[key] = RunningTask(task, asyncio.Event(), loop.time())
        return running

    async def _run(self, key: Key) -> None:
        loop = asyncio.get_running_loop()
        task = PipelineTask(key, self._cache, self._context, self._image)

        async def reconcile() -> float | None:
            with self._context.metrics.measured(KAFKA_PIPELINE.kind, loop.time):
                return await task.reconcile_once()

        async def gone() -> None:
            """Nothing is held."""

        await reconcile_forever(
            f"pipeline {key[0]}/{key[1]}", lambda: self._tasks[key], self._may_write, reconcile, gone, self._log
        )


def selector(kind: ResourceKind) -> str:
    """The label selector with which a kind is listed and watched."""
    return "" if kind == KAFKA_PIPELINE else PIPELINE
