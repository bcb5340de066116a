"""Reads what decisions about the ensemble need beyond the snapshot: reports of its servers, and a Secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import ZOOKEEPER_READY
from ottla_operator.api.fleet import ServerReport
from ottla_operator.api.objects import SECRET, Obj, dig, has_condition, is_terminating, uid_of
from ottla_operator.api.ownership import is_ours
from ottla_operator.concerns.ensemble.observation import EnsembleObservation, ReconfigurationFailure
from ottla_operator.concerns.ensemble.super_user_answers import SuperUserAnswers
from ottla_operator.concerns.ensemble.zookeeper import leader_pod, needs_membership, needs_reports
from ottla_operator.facts.intervals import REQUEUE_AFTER_S, RESYNC_S
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.ports import Environment, KubernetesApi


@dataclass(frozen=True, slots=True)
class _KnownSecret:
    """The Secret of the super user, without what it holds; None when there is none.

    `cluster`: the uid of the KafkaCluster that it was read for; the Secret is deleted with the cluster.
    """

    cluster: str
    secret: Obj | None
    read_at: float


class EnsembleObserver:
    """Observes one ensemble."""

    def __init__(self, api: KubernetesApi, environment: Environment, monotonic: Callable[[], float]) -> None:
        self._api = api
        self._environment = environment
        self._monotonic = monotonic
        self._known: _KnownSecret | None = None
        self._super_user = SuperUserAnswers(api, environment)

    async def observe(self, snapshot: Snapshot, failure: ReconfigurationFailure) -> EnsembleObservation:
        """Raises ApiError.

        Args:
            failure: what came of the last reconfiguration.
        """
        secret = await self._secret(snapshot)
        servers = await self._ask_servers(snapshot) if needs_reports(snapshot) else {}
        observed = EnsembleObservation(servers, super_secret=secret, failure=failure)
        pod = leader_pod(snapshot, observed) if needs_membership(snapshot) else None
        return replace(
            observed,
            membership=None if pod is None else await self._environment.membership(pod),
            accepts_super_user=await self._super_user.read(snapshot, secret),
        )

    def note_secret(self, snapshot: Snapshot, created: Obj) -> None:
        """Records that the Secret of the super user has been created."""
        self._known = _KnownSecret(uid_of(snapshot.resource), _without_data(created), self._monotonic())

    async def _secret(self, snapshot: Snapshot) -> Obj | None:
        """Read at the start and every ten minutes.

        More often while the ensemble is not ready: its pods do not start without the Secret.
        """
        now, cluster = self._monotonic(), uid_of(snapshot.resource)
        most_s = RESYNC_S if has_condition(snapshot.resource, ZOOKEEPER_READY) else REQUEUE_AFTER_S
        if self._known is not None and self._known.cluster == cluster and now - self._known.read_at < most_s:
            return self._known.secret
        secret: Obj | None = None
        if not snapshot.cluster.zookeeper.connect:
            name = names.zookeeper_secret(snapshot.cluster.name)
            found = await self._api.get(SECRET, snapshot.cluster.namespace, name)
            if found is not None and is_ours(found, snapshot.resource):
                secret = _without_data(found)
        self._known = _KnownSecret(cluster, secret, now)
        return secret

    async def _ask_servers(self, snapshot: Snapshot) -> dict[int, ServerReport]:
        pods = {
            server: pod
            for server in snapshot.zookeeper_ids()
            if (pod := snapshot.pod(names.pod_of(names.zookeeper_name(snapshot.cluster.name, server)))) is not None
            and dig(pod, "status", "podIP")
            and not is_terminating(pod)
        }
        answers = await asyncio.gather(*(self._environment.server_report(pod) for pod in pods.values()))
        return {server: report for server, report in zip(pods, answers, strict=True) if report is not None}


def _without_data(secret: Obj) -> Obj:
    return {key: value for key, value in secret.items() if key not in ("data", "stringData")}
