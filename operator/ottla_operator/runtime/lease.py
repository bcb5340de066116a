"""The Lease of coordination.k8s.io that allows an operator to write, as in other controllers.

Of several operators one writes; the others watch and wait. An operator that cannot renew its lease stops writing before
another one may take it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from ottla_operator.api.objects import LEASE, Obj, dig, new
from ottla_operator.effects.ports import ApiError, KubernetesApi

DURATION_S = 15
RENEW_S = 5.0
NAME = "ottla-operator"
"""The default name. Two operators of one namespace that serve different namespaces need different names."""


def next_lease(live: Obj | None, namespace: str, holder: str, now: str, name: str = NAME) -> Obj | None:
    """The lease as `holder` would write it; None while the lease of another holder has not expired.

    >>> lease = next_lease(None, "ottla", "a", "2026-01-01T00:00:00Z")
    >>> lease["spec"]["holderIdentity"], next_lease(lease, "ottla", "b", "2026-01-01T00:00:14Z")
    ('a', None)
    >>> next_lease(lease, "ottla", "b", "2026-01-01T00:00:16Z")["spec"]["leaseTransitions"]
    1
    """
    spec = dig(live, "spec") or {}
    other = spec.get("holderIdentity")
    if other and other != holder:
        renewed = _time(str(spec.get("renewTime") or "1970-01-01T00:00:00Z"))
        if _time(now) < renewed + timedelta(seconds=int(spec.get("leaseDurationSeconds") or DURATION_S)):
            return None
    micro = now.replace("Z", ".000000Z") if "." not in now else now
    changed = {
        "holderIdentity": holder,
        "leaseDurationSeconds": DURATION_S,
        "renewTime": micro,
        "acquireTime": spec.get("acquireTime", micro) if other == holder else micro,
        "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (1 if other and other != holder else 0),
    }
    base = live if live is not None else new(LEASE, namespace, name, {"app.kubernetes.io/name": "ottla"})
    return {**base, "spec": changed}


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


class LeaseHolder:
    """Acquires and renews the lease."""

    def __init__(
        self, api: KubernetesApi, namespace: str, holder: str, now: Callable[[], str], *, name: str = NAME
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._holder = holder
        self._now = now
        self._name = name
        self._held = asyncio.Event()

    @property
    def is_held(self) -> bool:
        return self._held.is_set()

    async def wait(self) -> None:
        """Waits until the lease is held."""
        await self._held.wait()

    async def run(self, lost: Callable[[], Awaitable[None]]) -> None:
        """Acquires and renews the lease; calls `lost` and returns when it could not be renewed in time."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            started = loop.time()
            if await self.try_once():
                renewed = started
            elif self._held.is_set() and loop.time() - renewed > DURATION_S - RENEW_S:
                self._held.clear()
                await lost()
                return
            await asyncio.sleep(RENEW_S if self._held.is_set() else RENEW_S / 2)

    async def try_once(self) -> bool:
        """Tries once to acquire or renew the lease. Returns whether it is held."""
        try:
            live = await self._api.get(LEASE, self._namespace, self._name)
            wanted = next_lease(live, self._namespace, self._holder, self._now(), self._name)
            if wanted is None:
                return False
            await (self._api.create(wanted) if live is None else self._api.replace(wanted))
        except ApiError:
            return False
        self._held.set()
        return True

    async def release(self) -> None:
        """Shortens the lease, so that the next operator can acquire it at once."""
        if not self._held.is_set():
            return
        self._held.clear()
        try:
            live = await self._api.get(LEASE, self._namespace, self._name)
            if live is not None and dig(live, "spec", "holderIdentity") == self._holder:
                spec = {**live["spec"], "leaseDurationSeconds": 1}
                await self._api.replace({**live, "spec": spec})
        except ApiError:
            return
