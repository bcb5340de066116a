"""Follows the objects of one kind: a list, and then a watch from its version on, so that nothing between is missed.

For kinds with thousands of objects. kopf keeps some 10 KiB for each object and takes a millisecond for each event; here
an object costs what the cache keeps of it. The other kinds are watched through kopf (`handlers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from ottla_operator.api.objects import Obj, ResourceKind, dig
from ottla_operator.facts.intervals import RESYNC_S
from ottla_operator.ports import ApiError, WatchApi
from ottla_operator.runtime.back_off import back_off_s

BOOKMARK = "BOOKMARK"
BROKEN_WATCHES = 3
"""After so many in a row that gave no event, what they should have given is listed."""
PAUSE_S = 1.0
"""How long after a watch that showed nothing the next one begins."""


class ObjectWatch:
    """The objects of a kind in one namespace, or in all.

    Args:
        namespace: None: all.
        relist: lists the objects into the cache; gives the resource version of the list.
        on_event: gets each event that is no bookmark.
        selector: a label selector; "" matches all.
    """

    def __init__(
        self,
        kind: ResourceKind,
        namespace: str | None,
        api: WatchApi,
        relist: Callable[[ResourceKind, str | None], Awaitable[str]],
        on_event: Callable[[str, Obj], None],
        selector: str = "",
    ) -> None:
        self._kind = kind
        self._namespace = namespace
        self._api = api
        self._relist = relist
        self._on_event = on_event
        self._selector = selector
        self._has_listed = asyncio.Event()
        self._log = logging.getLogger("ottla.operator")

    async def listed(self) -> None:
        """Returns once every object has been listed."""
        await self._has_listed.wait()

    async def run(self) -> None:
        """Until it is cancelled. Lists again every ten minutes, and after what a watch cannot make up for."""
        failures = 0
        while True:
            try:
                version = await self._relist(self._kind, self._namespace)
                self._has_listed.set()
                failures = 0
                try:
                    async with asyncio.timeout(RESYNC_S):
                        await self._follow(version)
                except TimeoutError:
                    continue
            except ApiError as error:
                failures += 1
                pause = back_off_s(failures)
                self._log.warning(
                    "%s cannot be listed or watched: %s; again in %.0f s", self._kind.plural, error, pause
                )
                await asyncio.sleep(pause)

    async def _follow(self, version: str) -> None:
        """One watch after the other. Returns when the API server no longer has the version, or when several in a row
        were broken.

        Raises:
            ApiError: the API server refuses the watch.
        """
        failures = 0
        while True:
            is_silent = True
            try:
                async with aclosing(self._api.watch(self._kind, self._namespace, version, self._selector)) as events:
                    async for event, obj in events:
                        is_silent, failures = False, 0
                        version = str(dig(obj, "metadata", "resourceVersion") or version)
                        if event != BOOKMARK:
                            self._handle(event, obj)
            except ApiError as error:
                if error.status == 410:
                    return
                if error.status:
                    raise
                failures += 1
                if failures > BROKEN_WATCHES:
                    return
                await asyncio.sleep(back_off_s(failures))
                continue
            if is_silent:
                await asyncio.sleep(PAUSE_S)

    def _handle(self, event: str, obj: Obj) -> None:
        try:
            self._on_event(event, obj)
        except Exception:  # a bug; the other objects go on
            self._log.exception("%s %s: a bug of the operator", self._kind.kind, dig(obj, "metadata", "name"))
