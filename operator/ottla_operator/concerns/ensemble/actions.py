"""Reconfigures the ensemble, with the super user's password."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar

from ottla_operator.api.fleet import Reconfiguration
from ottla_operator.api.objects import Obj
from ottla_operator.concerns.ensemble.observation import NO_FAILURE, ReconfigurationFailure
from ottla_operator.concerns.ensemble.super_user import super_user_password
from ottla_operator.facts.snapshot import ClusterAction


@dataclass(frozen=True, slots=True)
class Reconfigure(ClusterAction):
    """`leader`: the pod of the server that leads, None when none does."""

    excludes_deletion: ClassVar[bool] = True
    change: Reconfiguration
    leader: Obj | None


class EnsembleExecutor:
    """Carries out the actions of one ensemble.

    Args:
        read_secret: the Secret of the super user, read now. Raises ApiError.
        reconfigure: see `effects.ports.Environment`.
    """

    def __init__(
        self,
        read_secret: Callable[[], Awaitable[Obj | None]],
        reconfigure: Callable[[Obj, str, Reconfiguration], Awaitable[str]],
        log: logging.Logger,
    ) -> None:
        self._read_secret = read_secret
        self._reconfigure = reconfigure
        self._log = log
        self.failure = NO_FAILURE

    async def reconfigure(self, action: Reconfigure) -> None:
        """What came of it is read in the next reconciliation."""
        change, leader = action.change, action.leader
        password = super_user_password(await self._read_secret())
        if leader is None or password is None:
            why = "the Secret of the super user has no password" if password is None else ""
            self.failure = ReconfigurationFailure(change.version, why)
            return
        what = f"leaving {change.leaving}" if change.leaving is not None else f"joining {change.joining}"
        self._log.info("reconfiguring the ensemble: %s", what)
        failure = await self._reconfigure(leader, password, change)
        self.failure = ReconfigurationFailure(change.version, failure)
        if failure:
            self._log.warning("the ensemble is not reconfigured (%s): %s", what, failure)
