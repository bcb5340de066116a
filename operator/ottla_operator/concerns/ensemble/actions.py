"""Reconfigures the ensemble, and creates the Secret with the super user's password."""

from __future__ import annotations

import base64
import hashlib
import logging
from dataclasses import dataclass
from typing import ClassVar

from ottla_operator.api import names
from ottla_operator.api.fleet import Reconfiguration
from ottla_operator.api.objects import SECRET, Obj
from ottla_operator.api.ownership import is_ours
from ottla_operator.concerns.ensemble.observation import NO_FAILURE, ReconfigurationFailure
from ottla_operator.concerns.ensemble.super_user import super_user_password
from ottla_operator.concerns.ensemble.zookeeper_objects import super_secret
from ottla_operator.facts.snapshot import ClusterAction, Snapshot
from ottla_operator.ports import ApiError, Environment, KubernetesApi


@dataclass(frozen=True, slots=True)
class Reconfigure(ClusterAction):
    """`leader`: the pod of the server that leads, None when none does."""

    excludes_deletion: ClassVar[bool] = True
    change: Reconfiguration
    leader: Obj | None


class EnsembleExecutor:
    """Carries out the actions of one ensemble.

    Args:
        key: namespace and name of the KafkaCluster.
    """

    def __init__(self, key: tuple[str, str], api: KubernetesApi, environment: Environment, log: logging.Logger) -> None:
        self._key = key
        self._api = api
        self._environment = environment
        self._log = log
        self.failure = NO_FAILURE

    async def create_secret(self, snapshot: Snapshot) -> Obj | None:
        """Creates the Secret of the super user.

        Returns:
            It, or the one that is there; None when that is somebody else's, or that of a former cluster of this name,
            which Kubernetes deletes.

        Raises:
            ApiError: it is neither created nor there.
        """
        password = self._environment.password()
        hashed = base64.b64encode(hashlib.sha1(f"super:{password}".encode()).digest()).decode()
        created = super_secret(snapshot, password, f"super:{hashed}")
        try:
            return await self._api.create(created)
        except ApiError as error:
            if error.status != 409:
                raise
            there = await self._secret()
            return there if there is not None and is_ours(there, snapshot.resource) else None

    async def reconfigure(self, action: Reconfigure) -> None:
        """What came of it is read in the next reconciliation."""
        change, leader = action.change, action.leader
        password = super_user_password(await self._secret())
        if leader is None or password is None:
            why = "the Secret of the super user has no password" if password is None else ""
            self.failure = ReconfigurationFailure(change.version, why)
            return
        what = f"leaving {change.leaving}" if change.leaving is not None else f"joining {change.joining}"
        self._log.info("reconfiguring the ensemble: %s", what)
        failure = await self._environment.reconfigure(leader, password, change)
        self.failure = ReconfigurationFailure(change.version, failure)
        if failure:
            self._log.warning("the ensemble is not reconfigured (%s): %s", what, failure)

    async def _secret(self) -> Obj | None:
        namespace, name = self._key
        return await self._api.get(SECRET, namespace, names.zookeeper_secret(name))
