"""The KubernetesApi port over a network and a server that fail: refusals, lost answers, slow ones, and the death of the
operator at a call, before or after what it asked for was done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from ottla_operator.api.objects import KINDS, Obj, ResourceKind
from ottla_operator.ports import ApiError, ListPage
from tests.operator.kubernetes import InMemoryKubernetes

_Result = TypeVar("_Result")
Action = Literal["refuse", "lose answer", "slow", "die before", "die after"]
LATENCY_S = 0.01
SLOW_S = 20.0
REASONS = {403: "Forbidden", 409: "Conflict", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError"}


class Process(Protocol):
    """The operator's process. What it is about to do, it does not do once it is dead."""

    alive: bool


@dataclass(slots=True)
class Fault:
    """Befalls `times` calls after `skip` others, of those that concern `kind` ("" any)."""

    action: Action
    skip: int = 0
    times: int = 1
    kind: str = ""
    status: int = 500
    writes_only: bool = False


class Faults:
    """What is still to go wrong, in order."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []

    def add(self, fault: Fault) -> None:
        self._waiting.append(fault)

    def clear(self) -> None:
        self._waiting.clear()

    def of(self, kind: str, *, is_write: bool) -> Fault | None:
        """The one that befalls this call."""
        for fault in self._waiting:
            if (fault.kind and fault.kind != kind) or (fault.writes_only and not is_write):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._waiting.remove(fault)
            return fault
        return None


class UnreliableApi:
    """What one process of the operator has of the API server."""

    def __init__(self, kubernetes: InMemoryKubernetes, faults: Faults, process: Process) -> None:
        self._kubernetes = kubernetes
        self._faults = faults
        self._process = process

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        return await self._call(kind, False, lambda: self._kubernetes.get(kind, namespace, name))

    async def list(self, kind: ResourceKind, namespace: str | None, selector: str, fields: str = "") -> Sequence[Obj]:
        return await self._call(kind, False, lambda: self._kubernetes.list(kind, namespace, selector, fields))

    async def create(self, obj: Obj) -> Obj:
        return await self._call(KINDS[obj["kind"]], True, lambda: self._kubernetes.create(obj))

    async def is_valid(self, obj: Obj) -> bool:
        return await self._call(KINDS[obj["kind"]], False, lambda: self._kubernetes.is_valid(obj))

    async def apply(self, obj: Obj) -> Obj:
        return await self._call(KINDS[obj["kind"]], True, lambda: self._kubernetes.apply(obj))

    async def replace_status(self, obj: Obj) -> Obj:
        return await self._call(KINDS[obj["kind"]], True, lambda: self._kubernetes.replace_status(obj))

    async def list_page(self, kind: ResourceKind, namespace: str | None, selector: str, rest: str = "") -> ListPage:
        return await self._call(kind, False, lambda: self._kubernetes.list_page(kind, namespace, selector, rest))

    async def set_finalizers(
        self, obj: Obj, finalizers: Sequence[str], annotations: Mapping[str, str | None] | None = None
    ) -> Obj:
        return await self._call(
            KINDS[obj["kind"]], True, lambda: self._kubernetes.set_finalizers(obj, finalizers, annotations)
        )

    async def replace(self, obj: Obj) -> Obj:
        return await self._call(KINDS[obj["kind"]], True, lambda: self._kubernetes.replace(obj))

    async def delete(self, kind: ResourceKind, namespace: str, name: str, uid: str) -> bool:
        return await self._call(kind, True, lambda: self._kubernetes.delete(kind, namespace, name, uid))

    def __getattr__(self, name: str) -> Any:
        """Calls that were added to the port since: reads, as far as faults are concerned."""
        found = getattr(self._kubernetes, name)
        if not callable(found):
            raise AttributeError(name)

        async def call(*arguments: Any, **named: Any) -> Any:
            kind = next((one for one in arguments if isinstance(one, ResourceKind)), KINDS["Event"])
            return await self._call(kind, True, lambda: found(*arguments, **named))

        return call

    async def _call(self, kind: ResourceKind, is_write: bool, do: Callable[[], Awaitable[_Result]]) -> _Result:
        fault = self._faults.of(kind.kind, is_write=is_write)
        action = None if fault is None else fault.action
        await asyncio.sleep(SLOW_S if action == "slow" else LATENCY_S)
        if action == "die before":
            await self._die()
        if fault is not None and action == "refuse":
            status = fault.status if is_write or fault.status not in (409, 422) else 500
            raise ApiError(status, REASONS.get(status, "Error"), "the test refuses")
        answer = await do()
        if action == "die after":
            await self._die()
        await asyncio.sleep(LATENCY_S)  # a watch may be before the answer
        if action == "lose answer":
            raise ApiError(0, "NoAnswer", "the test loses the answer")
        return answer

    async def _die(self) -> None:
        self._process.alive = False
        await asyncio.get_running_loop().create_future()
