"""One process of the operator: its cache, its supervisor, and the watches that feed it.

It ends as `kill -9` ends a process: the loop drops whatever belongs to it (`simulation.loop`). Watches deliver in the
order of each kind, late, twice, or break off and list again; then nothing shows what was deleted meanwhile but the next
resync, as with kopf.
"""

from __future__ import annotations

import asyncio
import contextvars

from ottla_operator.api.objects import Obj, ResourceKind
from ottla_operator.facts.intervals import RESYNC_S
from ottla_operator.facts.snapshot import ContainerImages
from ottla_operator.ports import ApiError, Environment
from ottla_operator.runtime.back_off import FIRST_BACK_OFF_S
from ottla_operator.runtime.handlers import watched_kinds
from ottla_operator.runtime.object_cache import Key, ObjectCache
from ottla_operator.runtime.operator import WATCHES_BEGIN_S
from ottla_operator.runtime.supervisor import TaskSupervisor
from simulation.loop import PROCESS
from tests.operator.kubernetes import InMemoryKubernetes
from tests.operator.task_contexts import task_context
from tests.operator.unreliable_api import Faults, UnreliableApi

WATCH_LAG_S = 0.02


class TopicsOnly(TaskSupervisor):
    """A supervisor without tasks for clusters: they stay as the test has made them."""

    async def _run_cluster(self, key: Key) -> None:
        await asyncio.get_running_loop().create_future()


class OperatorProcess:
    """`alive` until it is killed. `lag_s`: how late a watch is, by kind."""

    def __init__(
        self,
        kubernetes: InMemoryKubernetes,
        faults: Faults,
        environment: Environment,
        images: ContainerImages,
        supervisor: type[TaskSupervisor] = TaskSupervisor,
    ) -> None:
        self.alive = True
        self.lag_s: dict[str, float] = {}
        self.twice: set[str] = set()
        self._broken: set[str] = set()
        self._due: dict[str, float] = {}
        self._kubernetes = kubernetes
        self._loop = asyncio.get_running_loop()
        self._listed = asyncio.Event()
        self._context = contextvars.copy_context()
        self._context.run(PROCESS.set, self)
        api = UnreliableApi(kubernetes, faults, self)
        self.supervisor = supervisor(
            task_context(ObjectCache(), api, environment, self._loop.time),
            images,
            reads_nodes=True,
            may_write=self._may_write,  # type: ignore[arg-type]
        )
        self._kinds = {kind.kind: kind for kind in watched_kinds(reads_nodes=True)}
        for kind in self._kinds.values():
            self._list(kind)
        self._loop.create_task(self._resync(), context=self._context)

    def deliver(self, event: str | None, obj: Obj) -> None:
        """What happened at the API server, for the watches."""
        kind = obj["kind"]
        if not self.alive or kind in self._broken or kind not in self._kinds:
            return
        lag = self.lag_s.get(kind, WATCH_LAG_S)
        due = max(self._loop.time() + lag, self._due.get(kind, 0.0))
        self._due[kind] = due
        for _ in range(2 if kind in self.twice else 1):
            self._loop.call_at(due, self._see, event, obj, context=self._context)

    def break_watch(self, kind: ResourceKind) -> None:
        self._broken.add(kind.kind)

    def mend(self) -> None:
        """Watches are quick again, and those that broke begin with a list."""
        self.lag_s.clear()
        self.twice.clear()
        broken, self._broken = self._broken, set()
        for kind in sorted(broken):
            self._list(self._kinds[kind])

    def _see(self, event: str | None, obj: Obj) -> None:
        self.supervisor.on_event(event, obj)

    def _list(self, kind: ResourceKind) -> None:
        for obj in list(self._kubernetes.objects.values()):
            if obj["kind"] == kind.kind:
                self.deliver(None, obj)

    async def _may_write(self) -> None:
        await self._listed.wait()

    async def _resync(self) -> None:
        """As `Operator` does, which brings the real API server and kopf with it."""
        while True:
            try:
                await self.supervisor.resync(tuple(self._kinds.values()), ())
            except ApiError:
                await asyncio.sleep(FIRST_BACK_OFF_S if not self._listed.is_set() else RESYNC_S)
                continue
            pause = RESYNC_S if self._listed.is_set() else WATCHES_BEGIN_S
            self._listed.set()
            await asyncio.sleep(pause)
