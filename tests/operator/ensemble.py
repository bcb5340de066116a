"""A ZooKeeper ensemble in memory below the pods of tests/operator/kubernetes.py: what its volumes hold, who serves.

It follows the rules of the start script (`concerns/ensemble`) and of ZooKeeper's elections: the servers that may
vote and are a majority elect the one with the newest data, and the others copy it. An election that leaves behind what
was acknowledged is noted in `overwritten`.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from dataclasses import dataclass, field

from ottla_operator.api import names
from ottla_operator.api.fleet import Reconfiguration, ServerReport
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    KAFKA_CLUSTER,
    KINDS,
    POD,
    SECRET,
    STATEFUL_SET,
    Obj,
    dig,
    has_condition,
    is_terminating,
    uid_of,
)
from tests.operator.fleet import CLUSTER, Fleet, InMemorySurroundings

EMPTY = -1
SUPER_SECRET = "orders-zookeeper-super"


@dataclass(slots=True)
class _Server:
    """A container that runs. `zxid`: of its database; EMPTY ones have no vote. `password`: of the super user."""

    pod_uid: str
    volumes: tuple[str, ...]
    zxid: int
    password: str


@dataclass(slots=True)
class Ensemble:
    """`volumes`: by uid of a claim, the marker and the newest transaction. `refused`: why a container has ended."""

    fleet: Fleet
    volumes: dict[str, tuple[str, int]] = field(default_factory=dict)
    acknowledged: int = EMPTY
    overwritten: bool = False
    refused: dict[int, str] = field(default_factory=dict)
    down: set[int] = field(default_factory=set)
    """Servers whose node does not answer."""
    broken_images: set[str] = field(default_factory=set)
    broken_configs: set[str] = field(default_factory=set)
    """Hashes of configurations with which a server runs and finds none of the others."""
    leader: int | None = None
    _servers: dict[int, _Server] = field(default_factory=dict)
    _boots: int = 0

    def container_status(self, pod: Obj) -> Obj | None:
        number = dig(pod, "metadata", "labels", names.SERVER_ID)
        if number is None:
            return None
        server = int(number)
        if server in self.down:
            self._servers.pop(server, None)
            return _waiting("ContainerCreating")
        image = dig(pod, "spec", "containers", 0, "image")
        if image in self.broken_images:
            self._servers.pop(server, None)
            return _waiting("ImagePullBackOff")
        running = self._servers.get(server)
        if running is None or running.pod_uid != uid_of(pod):
            self._boot(server, pod)
        self._elect()
        if server in self.refused:
            return _waiting("CrashLoopBackOff", self.refused[server])
        if self.leader is None or server not in self._members():
            return {"name": "zookeeper", "ready": False, "started": True, "state": {"running": {}}}
        return None

    def mode(self, pod: Obj) -> str:
        """What the server answers to srvr."""
        number = int(str(dig(pod, "metadata", "labels", names.SERVER_ID)))
        self._elect()
        if self.leader is None or number not in self._members():
            return ""
        return "leader" if number == self.leader else "follower"

    def serving(self) -> list[int]:
        """The servers that are connected to the leader, with a vote or without."""
        self._elect()
        return [] if self.leader is None else sorted(self._members())

    def restart_container(self, server: int) -> None:
        """The kubelet starts the container again, in the same pod."""
        del self._servers[server]
        self.fleet.kubernetes.restarts[f"orders-zookeeper-{server}-0"] += 1
        self.fleet.kubernetes.settle()

    def passwords(self) -> dict[int, str]:
        """The password of the super user that each running server has started with."""
        return {server: running.password for server, running in sorted(self._members().items())}

    def write(self) -> None:
        """A client's transaction, acknowledged by every server that is there."""
        self._elect()
        assert self.leader is not None, "no quorum"
        self.acknowledged += 1
        for server in self._members().values():
            self._keep(server, self.acknowledged)

    def _boot(self, server: int, pod: Obj) -> None:
        """The start script."""
        self._servers.pop(server, None)
        self.refused.pop(server, None)
        uids = self._mounted(pod)
        if uids is None:
            return
        marked = {self.volumes.get(uid, ("", EMPTY)) for uid in uids}
        permission = self.fleet.kubernetes.stored(CONFIG_MAP, "orders-zookeeper")["data"].get(f"start-empty-{server}")
        if permission is None:
            self.refused[server] = f"key start-empty-{server} not found in ConfigMap"
            return
        zxid = max(zxid for _, zxid in marked)
        if permission == "add":
            zxid = EMPTY
        elif len({marker for marker, _ in marked}) > 1 or "" in {marker for marker, _ in marked}:
            if permission == "no":
                self.refused[server] = f"the data volume of server {server} is not the one that it served with"
                return
            zxid = EMPTY
        if SUPER_SECRET not in self.fleet.kubernetes.names(SECRET):
            self.refused[server] = f'secret "{SUPER_SECRET}" not found'
            return
        encoded = self.fleet.kubernetes.stored(SECRET, SUPER_SECRET)["data"]["password"]
        if zxid == EMPTY and permission == "initialize":
            zxid = 0
        self._boots += 1
        self._servers[server] = _Server(uid_of(pod), uids, zxid, base64.b64decode(encoded).decode())
        for uid in uids:
            self.volumes[uid] = (f"{self._boots} {server}", zxid)

    def _mounted(self, pod: Obj) -> tuple[str, ...] | None:
        claims = [dig(volume, "persistentVolumeClaim", "claimName") for volume in pod["spec"]["volumes"]]
        found = self.fleet.kubernetes.names(CLAIM)
        if any(claim is not None and claim not in found for claim in claims):
            return None
        return tuple(uid_of(self.fleet.kubernetes.stored(CLAIM, claim)) for claim in claims if claim is not None)

    def _members(self) -> dict[int, _Server]:
        """The servers that run and find each other."""
        alive = {}
        for server, running in self._servers.items():
            name = f"orders-zookeeper-{server}-0"
            if name not in self.fleet.kubernetes.names(POD):
                continue
            pod = self.fleet.kubernetes.stored(POD, name)
            config = dig(pod, "metadata", "annotations", names.CONFIG)
            if uid_of(pod) == running.pod_uid and not is_terminating(pod) and config not in self.broken_configs:
                alive[server] = running
        return alive

    def _elect(self) -> None:
        members = self._members()
        membership = self.fleet.environment.ensemble_members
        membership.form()
        voters = {server: one for server, one in members.items() if one.zxid != EMPTY and server in membership.servers}
        if not membership.has_quorum(voters):
            self.leader = None
            return
        if self.leader not in voters:
            self.leader = max(voters, key=lambda server: (voters[server].zxid, server))
        newest = voters[self.leader].zxid
        self.overwritten = self.overwritten or newest < self.acknowledged
        for one in members.values():
            self._keep(one, newest)

    def _keep(self, server: _Server, zxid: int) -> None:
        server.zxid = zxid
        for uid in server.volumes:
            self.volumes[uid] = (self.volumes[uid][0], zxid)


class EnsembleSurroundings(InMemorySurroundings):
    """Servers answer as the ensemble in memory does."""

    ensemble: Ensemble
    silent: Collection[int] = ()
    """The servers that do not answer whether they accept a password."""
    asked: list[int]
    """The servers that were asked that, in order."""

    def serving(self) -> list[int]:
        return self.ensemble.serving()

    async def server_report(self, pod: Obj) -> ServerReport | None:
        return ServerReport(uid_of(pod), self.ensemble.mode(pod))

    async def accepts_super_user(self, pod: Obj, password: str) -> bool | None:
        server = int(str(dig(pod, "metadata", "labels", names.SERVER_ID)))
        self.asked.append(server)
        return None if server in self.silent else self.ensemble.passwords()[server] == password

    async def reconfigure(self, leader: Obj, password: str, change: Reconfiguration) -> str:
        server = int(str(dig(leader, "metadata", "labels", names.SERVER_ID)))
        if self.ensemble.passwords().get(server) != password:
            return "NoAuth"
        return self.ensemble_members.reconfigure(change, "secret", self.serving())


class EnsembleFleet(Fleet):
    """A fleet whose ZooKeeper has volumes and elections."""

    def __init__(self, document: Obj = CLUSTER) -> None:
        super().__init__(document)
        self._lost: dict[str, Obj] = {}
        self.ensemble = Ensemble(self)
        self.kubernetes.container_status = self.ensemble.container_status
        self.environment = EnsembleSurroundings(self.kubernetes, self.kafka)
        self.environment.ensemble = self.ensemble
        self.environment.asked = []
        self.restart_operator()

    async def converge(self, passes: int = 150) -> None:
        """Until nothing changes in two reconciliations: what the first has asked of ZooKeeper shows in the second."""
        quiet = 0
        for _ in range(passes):
            before = self._acts()
            await self.step()
            self.check()
            quiet = quiet + 1 if self._acts() == before else 0
            if quiet == 2:
                return
        raise AssertionError(f"no rest after {passes} passes: {self.kubernetes.writes[-10:]}")

    def _acts(self) -> tuple[int, int, int]:
        return len(self.kubernetes.writes), self.kubernetes.version, self.environment.ensemble_members.version

    def check(self) -> None:
        """What has to hold after each reconciliation; for tests."""

    def is_serving(self, server: int) -> bool:
        name = f"orders-zookeeper-{server}-0"
        return name in self.kubernetes.names(POD) and has_condition(self.kubernetes.stored(POD, name), "Ready")

    def stop(self, *servers: int) -> None:
        """Their StatefulSets are scaled to zero by hand and their pods are gone."""
        for server in servers:
            name = f"orders-zookeeper-{server}"
            spec = self.kubernetes.there(STATEFUL_SET, name)["spec"]
            self.kubernetes.edit(STATEFUL_SET, name, spec={**spec, "replicas": 0})
            if f"{name}-0" in self.kubernetes.names(POD):
                self.kubernetes.remove(POD, f"{name}-0")

    def lose_claims(self, *servers: int, roles: tuple[str, ...] = ("data", "log")) -> None:
        """The claims are deleted, and the pods that hold them."""
        for server in servers:
            if f"orders-zookeeper-{server}-0" in self.kubernetes.names(POD):
                self.kubernetes.remove(POD, f"orders-zookeeper-{server}-0")
            for role in roles:
                name = f"orders-zookeeper-{server}-{role}-1"
                self._lost[name] = self.kubernetes.there(CLAIM, name)
                self.kubernetes.remove(CLAIM, name)
        self.kubernetes.settle()

    def recreate_claims(self, *servers: int, with_data: bool) -> None:
        """A person applies lost claims again: bound to their old volumes, or to new ones."""
        for server in servers:
            for role in ("data", "log"):
                name = f"orders-zookeeper-{server}-{role}-1"
                self.kubernetes.put(self._lost[name])
                uid = uid_of(self.kubernetes.stored(CLAIM, name))
                if with_data and uid_of(self._lost[name]) in self.ensemble.volumes:
                    self.ensemble.volumes[uid] = self.ensemble.volumes[uid_of(self._lost[name])]
        self.kubernetes.settle()

    def restore_namespace(self, *, with_data: bool) -> None:
        """Everything is gone; the document and the claims come back from a backup as they were, with other uids."""
        before = [
            obj for (kind, _, _), obj in self.kubernetes.objects.items() if kind in (CLAIM.kind, KAFKA_CLUSTER.kind)
        ]
        self.kubernetes.remove(KAFKA_CLUSTER, "orders")
        for _ in range(3):
            self.kubernetes.settle()
        for name in self.claims():
            self.kubernetes.remove(CLAIM, name)
        for obj in before:
            self.kubernetes.put(obj)
            uid = uid_of(self.kubernetes.stored(KINDS[obj["kind"]], obj["metadata"]["name"]))
            if with_data and uid_of(obj) in self.ensemble.volumes:
                self.ensemble.volumes[uid] = self.ensemble.volumes[uid_of(obj)]
        self.restart_operator()


def _waiting(reason: str, message: str = "") -> Obj:
    status: Obj = {"name": "zookeeper", "ready": False, "started": False, "state": {"waiting": {"reason": reason}}}
    if message:
        status["lastState"] = {"terminated": {"exitCode": 1, "message": message}}
    return status
