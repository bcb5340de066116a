"""The operator as a process: adapters, store, supervisor, lease and kopf put together."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import kopf

from ottla_operator.effects.counted_api import CountedApi
from ottla_operator.effects.kubernetes_api import KubernetesClient
from ottla_operator.facts.intervals import RESYNC_S
from ottla_operator.facts.snapshot import ContainerImages
from ottla_operator.ports import ApiError, Environment
from ottla_operator.runtime.back_off import FIRST_BACK_OFF_S
from ottla_operator.runtime.handlers import FOLLOWED_KINDS, make_registry, watched_kinds
from ottla_operator.runtime.http_endpoint import HttpEndpoint
from ottla_operator.runtime.lease import NAME, LeaseHolder
from ottla_operator.runtime.object_cache import ObjectCache
from ottla_operator.runtime.object_watch import ObjectWatch
from ottla_operator.runtime.operator_metrics import OperatorMetrics
from ottla_operator.runtime.pipeline_supervisor import PIPELINE_KINDS, PipelineSupervisor, selector
from ottla_operator.runtime.pipeline_task import NO_IMAGE, PipelineImage
from ottla_operator.runtime.prerequisites import AGAIN_S, Prerequisites
from ottla_operator.runtime.scope import leave_dropped_namespaces
from ottla_operator.runtime.supervisor import TaskSupervisor
from ottla_operator.runtime.task_context import TaskContext

WATCHES_BEGIN_S = 10.0
"""A second list after this time finds what was deleted between the first list and the start of a watch."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The settings of one operator process.

    `watch_namespaces`: empty: all of them. `namespace`: the namespace of the lease. `identity`: the name of this
    process in the lease. `liveness`: where the HTTP port answers the probe; "" for no HTTP port. `most_rolling`: how
    many clusters may restart members at the same time, 0 for any number.
    """

    images: ContainerImages
    namespace: str
    identity: str
    watch_namespaces: tuple[str, ...]
    reads_nodes: bool
    liveness: str
    lease: str = NAME
    most_rolling: int = 0
    pipeline: PipelineImage = NO_IMAGE


class Operator:
    """One operator process. `run` returns when it is stopped or has lost its lease."""

    def __init__(self, settings: OperatorSettings, environment: Environment) -> None:
        self._settings = settings
        self._environment = environment
        self._cache = ObjectCache()
        self._stop = asyncio.Event()
        self._has_listed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._watches: list[ObjectWatch] = []
        self._client: KubernetesClient | None = None
        self._api: CountedApi | None = None
        self._metrics = OperatorMetrics()
        self._supervisor: TaskSupervisor | None = None
        self._prerequisites: Prerequisites | None = None
        self._pipelines: PipelineSupervisor | None = None
        self._pipeline_watches: list[ObjectWatch] = []
        self._lease: LeaseHolder | None = None
        self._http: HttpEndpoint | None = None
        self._log = logging.getLogger("ottla.operator")

    async def run(self) -> None:
        """Until SIGTERM, SIGINT, or the loss of the lease."""
        settings = self._settings
        self._client = await KubernetesClient.connect()
        self._api = CountedApi(self._client, self._metrics.wrote)
        self._lease = LeaseHolder(
            self._api, settings.namespace, settings.identity, self._environment.now, name=settings.lease
        )
        monotonic = asyncio.get_running_loop().time
        prerequisites = self._prerequisites = Prerequisites(self._api, monotonic)
        context = TaskContext(
            self._cache,
            self._api,
            self._environment,
            monotonic,
            prerequisites,
            self._metrics,
            settings.watch_namespaces,
        )
        self._supervisor = TaskSupervisor(
            context,
            settings.images,
            reads_nodes=settings.reads_nodes,
            may_write=self._may_write,
            most_rolling=settings.most_rolling,
        )
        self._pipelines = PipelineSupervisor(context, settings.pipeline, may_write=self._may_write_pipelines)
        supervisor, lease, pipelines = self._supervisor, self._lease, self._pipelines
        self._watches = [
            ObjectWatch(kind, namespace, self._client, supervisor.relist, supervisor.on_event)
            for kind in FOLLOWED_KINDS
            for namespace in (settings.watch_namespaces if kind.namespaced else ()) or (None,)
        ]
        self._pipeline_watches = [
            ObjectWatch(kind, namespace, self._client, pipelines.relist, pipelines.on_event, selector(kind))
            for kind in PIPELINE_KINDS
            for namespace in settings.watch_namespaces or (None,)
        ]

        def stuck_tasks() -> list[str]:
            return [*supervisor.stuck_tasks(), *pipelines.stuck_tasks()]

        self._metrics.show(
            self._cache,
            supervisor.topic_queues,
            lambda: lease.is_held,
            lambda: len(stuck_tasks()),
            prerequisites.lacking_now,
        )
        self._http = HttpEndpoint(settings.liveness, self._metrics, stuck_tasks)
        registry = make_registry(
            self._supervisor.on_event,
            self._started,
            self._stopped,
            reads_nodes=settings.reads_nodes,
            is_namespaced=bool(settings.watch_namespaces),
        )
        await kopf.operator(
            registry=registry,
            identity=settings.identity,  # type: ignore[arg-type] # else kopf looks the user up, and the image has none
            standalone=True,
            clusterwide=not settings.watch_namespaces,
            namespaces=settings.watch_namespaces,
            stop_flag=self._stop,
        )

    def stop(self) -> None:
        """Ends `run`, as SIGTERM does."""
        self._stop.set()

    async def _started(self) -> None:
        assert self._lease is not None and self._http is not None, "run makes them"
        await self._http.start()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._lease.run(self._lost), name="lease"),
            loop.create_task(self._resync(), name="resync"),
            loop.create_task(self._leave_dropped_namespaces(), name="scope"),
            *(loop.create_task(watch.run(), name="watch") for watch in (*self._watches, *self._pipeline_watches)),
        ]

    async def _lost(self) -> None:
        self._log.error("the lease could not be renewed; stopping before another operator may begin")
        self._stop.set()
        assert self._supervisor is not None and self._pipelines is not None, "run makes them"
        await self._supervisor.close()
        await self._pipelines.close()

    async def _stopped(self) -> None:
        assert self._supervisor is not None and self._lease is not None, "run makes them"
        assert self._pipelines is not None, "run makes it"
        assert self._client is not None and self._http is not None, "run makes them"
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._supervisor.close()
        await self._pipelines.close()
        await self._lease.release()
        await self._client.close()
        await self._http.close()

    async def _may_write(self) -> None:
        """Waits until this process holds the lease and has listed every object.

        The watches start one after the other: a reconciliation between them would take unseen objects for missing.
        """
        assert self._lease is not None, "run makes it"
        await self._has_listed.wait()
        await self._lease.wait()

    async def _may_write_pipelines(self) -> None:
        """The same for KafkaPipelines, whose watches list by themselves."""
        for watch in self._pipeline_watches:
            await watch.listed()
        await self._may_write()

    async def _leave_dropped_namespaces(self) -> None:
        """Once the lease is held, until it is done."""
        assert self._lease is not None and self._api is not None, "run makes them"
        settings = self._settings
        await self._lease.wait()
        while True:
            try:
                await leave_dropped_namespaces(
                    self._api, settings.namespace, settings.lease, settings.watch_namespaces, self._log
                )
                return
            except ApiError as error:
                self._log.warning("what is served no more could not be read or written: %s", error)
                if error.status == 403:
                    return  # the role is older than the operator; it is tried again at the next start
                await asyncio.sleep(AGAIN_S)

    async def _resync(self) -> None:
        """Lists every object at the start, once more when the watches have started, and then every ten minutes.

        The followed kinds list themselves.
        """
        assert self._supervisor is not None and self._prerequisites is not None, "run makes them"
        kinds = [kind for kind in watched_kinds(reads_nodes=self._settings.reads_nodes) if kind not in FOLLOWED_KINDS]
        for watch in self._watches:
            await watch.listed()
        before: frozenset[str] = frozenset()
        while True:
            try:
                await self._supervisor.resync(kinds, self._settings.watch_namespaces)
            except ApiError as error:
                self._log.warning("the resync could not read: %s", error)
                await asyncio.sleep(FIRST_BACK_OFF_S if not self._has_listed.is_set() else RESYNC_S)
                continue
            unlisted = self._prerequisites.unlisted
            if before - unlisted:  # kopf does not begin a watch again that was refused
                self._log.info("%s can be listed again; starting again, so that every watch begins", sorted(before))
                self._stop.set()
                return
            before = unlisted
            pause = RESYNC_S if self._has_listed.is_set() else WATCHES_BEGIN_S
            self._has_listed.set()
            await asyncio.sleep(AGAIN_S if unlisted else pause)
