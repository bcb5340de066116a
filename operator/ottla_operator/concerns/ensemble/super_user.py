"""Which ZooKeeper servers restart because the Secret of the super user was made again after they had read it.

A server knows the digest of the password that the Secret held when its container started. A pod that is newer than
the Secret has read it. An older one may have waited for it, or its container has started again since: such a server is
asked whether it accepts the password. When a container has started is no proof: that is the time of its node's clock.
"""

from __future__ import annotations

import base64

from ottla_operator.api import names
from ottla_operator.api.objects import STATEFUL_SET, Obj, annotation, dig, has_condition, is_terminating, uid_of
from ottla_operator.api.times import seconds_between
from ottla_operator.concerns.ensemble.observation import EnsembleObservation
from ottla_operator.facts.snapshot import Snapshot


def servers_to_ask(snapshot: Snapshot, secret: Obj | None) -> dict[int, Obj]:
    """The pods of the servers that may have another password than the Secret holds, by server id."""
    if secret is None:
        return {}
    found: dict[int, Obj] = {}
    for server in snapshot.zookeeper_ids():
        name = names.zookeeper_name(snapshot.cluster.name, server)
        pod = snapshot.pod(names.pod_of(name))
        if pod is None or is_terminating(pod) or _restarts_for(snapshot, name) == uid_of(secret):
            continue
        if seconds_between(_created(pod), _created(secret)):
            found[server] = pod
    return found


def can_answer(pod: Obj) -> bool:
    """Whether the server may open a session: it is ready, so that the ensemble has a quorum."""
    return has_condition(pod, "Ready") and bool(dig(pod, "status", "podIP"))


def container_of(pod: Obj) -> tuple[str, int]:
    """What identifies the run of the server's container: the pod's uid, and how often it has started again."""
    statuses = dig(pod, "status", "containerStatuses") or []
    restarts = (int(one.get("restartCount") or 0) for one in statuses if one.get("name") == names.ZOOKEEPER)
    return uid_of(pod), sum(restarts)


def restart_annotation(snapshot: Snapshot, observed: EnsembleObservation, server: int) -> dict[str, str]:
    """The annotation with which a server restarts once it is known that it does not accept the Secret's password.

    Whoever has the password has no annotation, so an operator that begins to write it restarts nobody.
    """
    secret_uid = _restarts_for(snapshot, names.zookeeper_name(snapshot.cluster.name, server))
    if observed.super_secret is not None and observed.accepts_super_user.get(server) is False:
        secret_uid = uid_of(observed.super_secret)
    return {names.SUPER_USER: secret_uid} if secret_uid else {}


def super_user_password(secret: Obj | None) -> str | None:
    """The password in the Secret of the super user; None where there is none."""
    encoded = dig(secret, "data", "password")
    return None if encoded is None else base64.b64decode(encoded).decode(errors="replace")


def _restarts_for(snapshot: Snapshot, name: str) -> str | None:
    """The uid of the Secret for which the server restarts, or has restarted last."""
    return annotation(dig(snapshot.get(STATEFUL_SET, name), "spec", "template"), names.SUPER_USER)


def _created(obj: Obj) -> str:
    return str(dig(obj, "metadata", "creationTimestamp") or "")
