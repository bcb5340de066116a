"""Asks ZooKeeper servers that are older than the Secret of the super user whether they accept its password.

An answer counts for as long as the server's container runs, so each is asked for once by a process.
"""

from __future__ import annotations

import asyncio

from ottla_operator.api import names
from ottla_operator.api.objects import SECRET, Obj, uid_of
from ottla_operator.concerns.ensemble.super_user import can_answer, container_of, servers_to_ask, super_user_password
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.ports import Environment, KubernetesApi


class SuperUserAnswers:
    """The answers about one KafkaCluster, by the Secret's uid and the run of a server's container."""

    def __init__(self, api: KubernetesApi, environment: Environment) -> None:
        self._api = api
        self._environment = environment
        self._known: dict[tuple[str, tuple[str, int]], bool] = {}

    async def read(self, snapshot: Snapshot, secret: Obj | None) -> dict[int, bool]:
        """The answers by server id; a server that is not asked, or does not answer, is not there. Raises ApiError.

        Args:
            secret: the Secret of the super user, without what it holds.
        """
        pods = servers_to_ask(snapshot, secret)
        keys = {server: (uid_of(secret or {}), container_of(pod)) for server, pod in pods.items()}
        self._known = {key: self._known[key] for key in keys.values() if key in self._known}
        asked = [server for server, pod in pods.items() if keys[server] not in self._known and can_answer(pod)]
        if asked and (password := await self._password(snapshot, secret)) is not None:
            answers = await asyncio.gather(
                *(self._environment.accepts_super_user(pods[server], password) for server in asked)
            )
            for server, answer in zip(asked, answers, strict=True):
                if answer is not None:
                    self._known[keys[server]] = answer
        return {server: self._known[key] for server, key in keys.items() if key in self._known}

    async def _password(self, snapshot: Snapshot, secret: Obj | None) -> str | None:
        """The password of the Secret; None when it is another Secret by now, or holds none."""
        cluster = snapshot.cluster
        found = await self._api.get(SECRET, cluster.namespace, names.zookeeper_secret(cluster.name))
        if found is None or secret is None or uid_of(found) != uid_of(secret):
            return None
        return super_user_password(found)
