"""The Lease of coordination.k8s.io that allows an operator to write, as in other controllers.

Of several operators one writes; the others watch and wait. An operator that cannot renew its lease stops writing before
another one may take it. Whether a lease has expired an operator decides by its own clock: it has seen the same lease
for as long as the lease lasts. Clocks of different nodes are never compared, as in client-go's leaderelection.

Times: the holder renews every 3 s, by one request, and stops 9 s after its last renewal, so that an API server may
take 4 s for each. Another operator looks every second, and takes the lease 12 s after it has seen the last renewal: at
the latest 14 s after the holder was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ottla_operator.api.objects import LEASE, Obj, dig, new
from ottla_operator.ports import ApiError, KubernetesApi

DURATION_S = 12
RENEW_S = 3.0
STOP_S = 9.0
"""How long after its last renewal a holder stops writing."""
RETRY_S = 1.0
"""How often a lease that is not held, or could not be renewed, is tried for."""
NAME = "ottla-operator"
"""The default name. Two operators of one namespace that serve different namespaces need different names."""


def next_lease(
    live: Obj | None, namespace: str, holder: str, now: str, name: str = NAME, *, unchanged_s: float = 0.0
) -> Obj | None:
    """The lease as `holder` would write it; None while the lease of another holder has not expired.

    Args:
        now: UTC, as Kubernetes writes it.
        unchanged_s: how long `live` has been seen as it is.

    >>> lease = next_lease(None, "ottla", "a", "2026-01-01T00:00:00Z")
    >>> lease["spec"]["holderIdentity"], next_lease(lease, "ottla", "b", "2026-01-01T00:00:11Z", unchanged_s=11)
    ('a', None)
    >>> next_lease(lease, "ottla", "b", "2026-01-01T00:00:12Z", unchanged_s=12)["spec"]["leaseTransitions"]
    1
    """
    spec = dig(live, "spec") or {}
    other = spec.get("holderIdentity")
    if other and other != holder and unchanged_s < int(spec.get("leaseDurationSeconds") or DURATION_S):
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


class LeaseHolder:
    """Acquires and renews the lease.

    Args:
        now: the time now, UTC, as Kubernetes writes it.
        monotonic: the time in seconds; that of the running loop by default.
    """

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        holder: str,
        now: Callable[[], str],
        *,
        name: str = NAME,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._holder = holder
        self._now = now
        self._name = name
        self._monotonic = monotonic or (lambda: asyncio.get_running_loop().time())
        self._held = asyncio.Event()
        self._written: Obj | None = None
        """The lease as this holder has written it last; None where somebody else may have written it since."""
        self._seen: Any = None
        self._seen_at = 0.0

    @property
    def is_held(self) -> bool:
        return self._held.is_set()

    async def wait(self) -> None:
        """Waits until the lease is held."""
        await self._held.wait()

    async def run(self, lost: Callable[[], Awaitable[None]]) -> None:
        """Acquires and renews the lease; calls `lost` and returns when it could not be renewed in time."""
        stop_at = self._monotonic() + STOP_S
        while True:
            started = self._monotonic()
            try:
                # An API server that does not answer must not keep a holder from stopping in time.
                async with asyncio.timeout(max(0.0, stop_at - started) if self.is_held else STOP_S):
                    is_renewed = await self.try_once()
            except TimeoutError:
                is_renewed = False
            if is_renewed:
                stop_at = started + STOP_S
            elif self._held.is_set() and self._monotonic() >= stop_at:
                self._held.clear()
                await lost()
                return
            pause = max(0.0, started + RENEW_S - self._monotonic()) if is_renewed else RETRY_S
            await asyncio.sleep(min(pause, max(0.0, stop_at - self._monotonic())) if self.is_held else pause)

    async def try_once(self) -> bool:
        """Tries once to acquire or renew the lease. Returns whether it is held."""
        if self._written is not None and self._held.is_set() and await self._renew(self._written):
            return True
        try:
            live = await self._api.get(LEASE, self._namespace, self._name)
            lease = next_lease(
                live, self._namespace, self._holder, self._now(), self._name, unchanged_s=self._unchanged_s(live)
            )
            if lease is None:
                return False
            self._written = await (self._api.create(lease) if live is None else self._api.replace(lease))
        except ApiError:
            return False
        self._held.set()
        return True

    async def _renew(self, written: Obj) -> bool:
        """Renews the lease as it was written last, without reading it. False when that was refused."""
        try:
            lease = next_lease(written, self._namespace, self._holder, self._now(), self._name)
            self._written = None if lease is None else await self._api.replace(lease)
        except ApiError:
            self._written = None
        return self._written is not None

    async def release(self) -> None:
        """Shortens the lease, so that the next operator can acquire it within two seconds."""
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

    def _unchanged_s(self, live: Obj | None) -> float:
        """How long the lease has been seen as it is."""
        spec = None if live is None else (live["metadata"].get("uid"), live.get("spec"))
        now = self._monotonic()
        if spec != self._seen:
            self._seen, self._seen_at = spec, now
        return now - self._seen_at
