"""A real API server in the place of the Kubernetes in memory, so that the same tests run against both.

There are no controllers: `settle` does their work as it does in memory, but through the API, with everything the API
server checks, defaults and refuses. Nobody else writes, so what was listed of a kind is kept until one is written.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from e2e.kubernetes_api import Kubernetes, Refused
from ottla_operator.api.names import FIELD_MANAGER
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    CRON_JOB,
    DISRUPTION_BUDGET,
    EVENT,
    JOB,
    KAFKA_CLUSTER,
    KAFKA_PIPELINE,
    KAFKA_TOPIC,
    NODE,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    STORAGE_CLASS,
    Obj,
    ResourceKind,
    dig,
    has_condition,
    is_terminating,
    name_of,
    uid_of,
)
from ottla_operator.effects.kubernetes_api import KubernetesClient, path_of
from ottla_operator.ports import ListPage
from tests.operator.kubernetes import InMemoryKubernetes, _claims, _kind

SEEN = (
    NODE, STORAGE_CLASS, KAFKA_CLUSTER, KAFKA_TOPIC, KAFKA_PIPELINE, STATEFUL_SET, CRON_JOB, JOB, POD, CLAIM,
    CONFIG_MAP, SERVICE, SERVICE_ACCOUNT, ROLE_BINDING, ROLE, SECRET, DISRUPTION_BUDGET, EVENT,
)  # fmt: skip
PROTECTION = "kubernetes.io/pvc-protection"
HAS_STATUS = (KAFKA_CLUSTER, KAFKA_TOPIC, KAFKA_PIPELINE, STATEFUL_SET, JOB, POD, CLAIM)
SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "deletionTimestamp")


class RealKubernetes(InMemoryKubernetes):
    """`api` is the cluster's administrator. Starts with everything of the namespace `default` deleted."""

    api: Kubernetes

    def __init__(self) -> None:
        self.writes = []
        self.kill_after = None
        self.on_change = None
        self.not_starting = set()
        self.container_status = None
        self.container_state = {"waiting": {"reason": "CrashLoopBackOff"}}
        self.refuses_pods = ""
        self.resizes = True
        self.local_volumes = False
        self.lacks = {}
        self.pruned = {}
        self._version = 0
        self._known: dict[str, Obj] = {}
        self._listed: dict[str, dict[str, Obj]] = {}
        self._written: set[str] = set()
        """Kinds that `put`, `remove` and `settle` have written: what they listed before counts until they are done."""
        self._port: KubernetesClient | None = None
        for kind in SEEN:
            for obj in self._list(kind):
                self._delete_now(kind, obj)
        self._listed.clear()

    # What the test does

    def put(self, obj: Obj) -> Obj:
        kind, wanted = _kind(obj), _without_server_fields(obj)
        self._written.add(kind.kind)
        status = wanted.pop("status", {})
        live = self.api.get(kind, name_of(obj))
        if live is None:
            live = self.api.request("POST", path_of(kind, "default", None), wanted)
        else:
            version = {"resourceVersion": live["metadata"]["resourceVersion"]}
            changed = {**wanted, "metadata": {**wanted["metadata"], **version}}
            live = self.api.request("PUT", path_of(kind, "default", name_of(obj)), changed)
        if kind in HAS_STATUS and (live.get("status") or {}) != status and (status or kind == KAFKA_CLUSTER):
            live = self.api.request(
                "PUT", f"{path_of(kind, 'default', name_of(obj))}/status", {**live, "status": status}
            )
        self._refresh()
        return live

    def there(self, kind: ResourceKind, name: str) -> Obj:
        return copy.deepcopy(self._all_of(kind)[name])

    def names(self, kind: ResourceKind) -> list[str]:
        return sorted(self._all_of(kind))

    @property
    def objects(self) -> dict[tuple[str, str, str], Obj]:  # type: ignore[override]
        """Without the addresses that the API server gives out, which differ from run to run."""
        found = {}
        for kind in SEEN:
            for obj in self._list(kind):
                if kind == SERVICE and dig(obj, "spec", "clusterIP") != "None":
                    obj = {
                        **obj,
                        "spec": {k: v for k, v in obj["spec"].items() if k not in ("clusterIP", "clusterIPs")},
                    }
                found[kind.kind, dig(obj, "metadata", "namespace") or "", name_of(obj)] = obj
        return found

    @objects.setter
    def objects(self, value: object) -> None:
        raise AttributeError("the API server has the objects")

    def remove(self, kind: ResourceKind, name: str) -> None:
        obj = self.there(kind, name)
        self._written.add(kind.kind)
        if kind == CLAIM and self._is_mounted(name):
            self.api.patch(kind, name, {"metadata": {"finalizers": [PROTECTION]}})
        self.api.delete(kind, name, grace_s=0)
        if self.api.get(kind, name) is None:
            self._collect_garbage(uid_of(obj))
        self._refresh()

    def settle(self) -> None:
        for pod in self._list(POD):
            if is_terminating(pod):
                self._written.add(POD.kind)
                self.api.delete(POD, name_of(pod), grace_s=0)
                del self._all_of(POD)[name_of(pod)]
        for claim in self._list(CLAIM):
            if is_terminating(claim):
                if not self._is_mounted(name_of(claim)):
                    self._written.add(CLAIM.kind)
                    self.api.patch(CLAIM, name_of(claim), {"metadata": {"finalizers": None}})
                    del self._all_of(CLAIM)[name_of(claim)]
            elif (status := self._bound(claim)) != (claim.get("status") or {}):
                self._set_status(CLAIM, claim, {**status, "conditions": None})
        for stateful_set in self._list(STATEFUL_SET):
            self._run(stateful_set)
        for job in self._list(JOB):
            self._run_job(job)
        self._refresh()

    # The port: what the operator's own client does

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        return await (await self._client()).get(kind, namespace, name)

    async def list(self, kind: ResourceKind, namespace: str | None, selector: str, fields: str = "") -> Sequence[Obj]:
        return await (await self._client()).list(kind, namespace, selector, fields)

    async def list_page(self, kind: ResourceKind, namespace: str | None, selector: str, rest: str = "") -> ListPage:
        return await (await self._client()).list_page(kind, namespace, selector, rest)

    async def create(self, obj: Obj) -> Obj:
        if self.api.get(_kind(obj), name_of(obj)) is None:  # else it is refused: no write
            self._record("create", obj)
        return await (await self._client(_kind(obj))).create(obj)

    async def is_valid(self, obj: Obj) -> bool:
        return await (await self._client()).is_valid(obj)

    async def apply(self, obj: Obj) -> Obj:
        self._record("apply", obj)
        return await (await self._client(_kind(obj))).apply(obj)

    async def replace_status(self, obj: Obj) -> Obj:
        self._record("status", obj)
        return await (await self._client(_kind(obj))).replace_status(obj)

    async def set_finalizers(
        self, obj: Obj, finalizers: Sequence[str], annotations: Mapping[str, str | None] | None = None
    ) -> Obj:
        self._record("finalizers", obj)
        changed = await (await self._client(_kind(obj))).set_finalizers(obj, finalizers, annotations)
        self._refresh()
        return changed

    async def replace(self, obj: Obj) -> Obj:
        self._record("replace", obj)
        return await (await self._client(_kind(obj))).replace(obj)

    async def delete(self, kind: ResourceKind, namespace: str, name: str, uid: str) -> bool:
        live = self.api.get(kind, name)
        if live is not None and uid_of(live) == uid:
            self._record("delete", live)
        return await (await self._client(kind)).delete(kind, namespace, name, uid)

    async def close(self) -> None:
        if self._port is not None:
            await self._port.close()

    # Inside

    async def _client(self, writes: ResourceKind | None = None) -> KubernetesClient:
        if self._port is None:
            self._port = await KubernetesClient.connect()
        if writes is not None:
            self._listed.pop(writes.kind, None)
        return self._port

    def _all_of(self, kind: ResourceKind) -> dict[str, Obj]:
        """The objects of a kind by name, as they were listed last."""
        listed = self._listed.get(kind.kind)
        if listed is None:
            items = [{**obj, "apiVersion": kind.api_version, "kind": kind.kind} for obj in self.api.list(kind)]
            listed = self._listed[kind.kind] = {name_of(obj): obj for obj in items}
            if kind == SERVICE:
                listed.pop("kubernetes", None)
            if kind == EVENT:  # the API server has Events of its own, such as about addresses
                listed = {name: event for name, event in listed.items() if _is_ours(event)}
                self._listed[kind.kind] = listed
        return listed

    def _list(self, kind: ResourceKind) -> list[Obj]:
        return [copy.deepcopy(obj) for _, obj in sorted(self._all_of(kind).items())]

    def _refresh(self) -> None:
        """Delivers what has changed since the last call, as watches do."""
        for written in self._written:
            self._listed.pop(written, None)
        self._written.clear()
        now = {uid_of(obj): obj for kind in SEEN for obj in self._all_of(kind).values()}
        before, self._known = self._known, now
        for uid, obj in before.items():
            if uid not in now:
                self._version += 1
                self._tell("DELETED", obj)
        for uid, obj in now.items():
            known = before.get(uid)
            if known is None or known["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self._version += 1
                self._tell("ADDED" if known is None else "MODIFIED", obj)

    def _all(self, kind: str) -> list[Obj]:
        return self._list(next(known for known in SEEN if known.kind == kind))

    def _delete_now(self, kind: ResourceKind, obj: Obj) -> None:
        try:
            if dig(obj, "metadata", "finalizers"):
                self.api.patch(kind, name_of(obj), {"metadata": {"finalizers": None}})
            self.api.delete(kind, name_of(obj), grace_s=0)
        except Refused as refused:
            if refused.status != 404:
                raise

    def _collect_garbage(self, owner: str) -> None:
        for kind in SEEN:
            for obj in self._list(kind):
                if any(reference["uid"] == owner for reference in dig(obj, "metadata", "ownerReferences") or []):
                    self._written.add(kind.kind)
                    self.api.delete(kind, name_of(obj), grace_s=0)
                    self._collect_garbage(uid_of(obj))

    def _has_event(self, event: str) -> bool:
        return self.api.get(EVENT, event) is not None

    def _set_status(self, kind: ResourceKind, obj: Obj, status: Obj) -> None:
        self._written.add(kind.kind)
        self.api.patch(kind, name_of(obj), {"status": status}, subresource="status")

    def _run(self, stateful_set: Obj) -> None:
        template = stateful_set["spec"]["template"]
        revision = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]
        generation = stateful_set["metadata"]["generation"]
        status = {
            "replicas": stateful_set["spec"]["replicas"],
            "observedGeneration": generation,
            "updateRevision": revision,
        }
        if any(dig(stateful_set, "status", key) != value for key, value in status.items()):
            self._set_status(STATEFUL_SET, stateful_set, status)
        name = f"{name_of(stateful_set)}-0"
        pod = self._all_of(POD).get(name)
        if pod is None and self.refuses_pods:
            self._refuse(stateful_set)
        elif pod is None and stateful_set["spec"]["replicas"] == 1:
            owner = {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": name_of(stateful_set),
                "uid": uid_of(stateful_set),
                "controller": True,
            }
            metadata = {
                "name": name,
                "namespace": "default",
                "labels": {**template["metadata"]["labels"], "controller-revision-hash": revision},
                "annotations": dict(template["metadata"].get("annotations") or {}),
                "ownerReferences": [owner],
            }
            spec = copy.deepcopy(template["spec"])
            wanted = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            self._written.add(POD.kind)
            pod = self.api.request("POST", path_of(POD, "default", None), wanted)
        is_rolled = dig(stateful_set, "spec", "updateStrategy", "type") == "RollingUpdate"
        is_old = pod is not None and is_rolled and pod["metadata"]["labels"]["controller-revision-hash"] != revision
        if pod is not None and (stateful_set["spec"]["replicas"] == 0 or is_old) and not is_terminating(pod):
            self._written.add(POD.kind)
            self.api.delete(POD, name)
            return
        if pod is not None and not is_terminating(pod):
            self._start(pod)

    def _run_job(self, job: Obj) -> None:
        name = f"{name_of(job)}-0"
        pod = self._all_of(POD).get(name)
        is_finished = has_condition(job, "Complete") or has_condition(job, "Failed")
        if pod is not None and dig(job, "spec", "suspend") and not is_terminating(pod):
            self._written.add(POD.kind)
            self.api.delete(POD, name)
            return
        if pod is None and not dig(job, "spec", "suspend") and not is_finished:
            owner = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": name_of(job),
                "uid": uid_of(job),
                "controller": True,
            }
            template = copy.deepcopy(job["spec"]["template"])
            metadata = {
                "name": name,
                "namespace": "default",
                "labels": template["metadata"]["labels"],
                "annotations": template["metadata"].get("annotations") or {},
                "ownerReferences": [owner],
            }
            wanted = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            self._written.add(POD.kind)
            pod = self.api.request("POST", path_of(POD, "default", None), wanted)
        if pod is not None and not is_terminating(pod) and not is_finished:
            self._start(pod)

    def _start(self, pod: Obj) -> None:
        volumes = dig(pod, "spec", "volumes") or []
        needs = [(CLAIM, name) for name in _claims(pod)]
        needs += [(CONFIG_MAP, v["configMap"]["name"]) for v in volumes if "configMap" in v]
        if any(name not in self._all_of(kind) for kind, name in needs):
            return
        if not dig(pod, "spec", "nodeName"):
            node = self._node_for(pod)
            if not node:
                return
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            self._written.add(POD.kind)
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name_of(pod)}, "target": target}
            self.api.request("POST", f"{path_of(POD, 'default', name_of(pod))}/binding", binding)
        config = next((v["configMap"]["name"] for v in volumes if v["name"] == "config"), "")
        container = None if self.container_status is None else self.container_status(pod)
        if config in self.not_starting:
            container = {"name": "broker", "state": self.container_state}
        known = dig(pod, "status", "conditions") or []
        ready = {"type": "Ready", "status": "True" if container is None else "False"}
        if dig(pod, "status", "podIP") is None or ready not in [
            {"type": item["type"], "status": item["status"]} for item in known
        ]:
            status = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [ready]}
            if container is not None:
                needed = {"image": "ottla:1", "imageID": "", "ready": False, "restartCount": 1}
                status["containerStatuses"] = [{**needed, **container}]
            self._set_status(POD, pod, status)


def _is_ours(event: Obj) -> bool:
    return bool(dig(event, "source", "component") == FIELD_MANAGER)


def _without_server_fields(obj: Obj) -> Obj:
    wanted: dict[str, Any] = copy.deepcopy(obj)
    for field in SERVER_FIELDS:
        wanted["metadata"].pop(field, None)
    return wanted
