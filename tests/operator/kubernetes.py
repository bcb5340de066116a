"""A Kubernetes in memory: the KubernetesApi port, and the controllers whose work the operator waits for.

Objects are stored as JSON, writes are recorded, and `settle` does what the StatefulSet controller, the scheduler, the
kubelets and the garbage collector would have done by now.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla_operator.api.comparison import key_of, list_keys
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    JOB,
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    NAMESPACE,
    NODE,
    POD,
    STATEFUL_SET,
    VOLUME,
    Obj,
    ResourceKind,
    dig,
    has_condition,
    is_terminating,
    name_of,
    uid_of,
)
from ottla_operator.api.rights import Right
from ottla_operator.ports import ApiError, ListPage
from tests.operator.definitions import fields_v1, without_fields

NOW = "2026-01-01T00:00:00Z"
GRACEFUL = (POD.kind,)
SERVER_FIELDS = ("uid", "resourceVersion", "generation", "creationTimestamp")
MUTABLE_OF_STATEFUL_SETS = {
    "minReadySeconds", "ordinals", "persistentVolumeClaimRetentionPolicy", "replicas", "revisionHistoryLimit",
    "template", "updateStrategy",
}  # fmt: skip
"""ValidateStatefulSetUpdate of Kubernetes."""
IMMUTABLE_OF_JOBS = {"completionMode", "podFailurePolicy", "selector", "template"}
"""ValidateJobUpdate, of what we declare."""


class Killed(BaseException):
    """The operator's process ends here."""


class InMemoryKubernetes:
    """`writes` are (verb, kind, name). `kill_after`: how many more writes happen before the operator dies."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Obj] = {}
        self.writes: list[tuple[str, str, str]] = []
        self.kill_after: int | None = None
        self.clock: Callable[[], str] = lambda: NOW
        self.on_change: Callable[[str, Obj], None] | None = None
        self.before_delete: Callable[[Obj], None] | None = None
        """Called with what the operator deletes, while it is still there."""
        self.resizes = True
        """Whether anything makes volumes larger whose claims ask for more."""
        self.local_volumes = False
        """Whether a volume is on the node of the first pod that has it, and pods are only started there."""
        self.restarts: Counter[str] = Counter()
        """How often the container of a pod was started again, by the pod's name."""
        self.refuses_pods = ""
        """Why no pod is admitted."""
        self.not_starting: set[str] = set()
        """ConfigMaps with which a broker does not become ready."""
        self.dates_readiness = False
        """Whether pods say since when they are ready, as a kubelet does: the test has to let time pass then."""
        self.container_status: Callable[[Obj], Obj | None] | None = None
        """The status of a pod's only container that is not ready; None when it is. Called at each `settle`."""
        self.webhook: Callable[[Obj], Obj] | None = None
        """A mutating admission webhook."""
        self.lacks: dict[str, set[Right]] = {}
        """The rights that the operator does not have, by namespace."""
        self.pruned: dict[str, tuple[str, ...]] = {}
        """By kind, the fields that its definition lacks: they are stored as long as nobody writes the object."""
        self._applied: dict[tuple[str, str, str], Obj] = {}
        """What the operator's applies own."""
        self.container_state: Obj = {"waiting": {"reason": "CrashLoopBackOff"}}
        """The state of a container that does not become ready."""
        self._version = 1000
        self._uids = 0
        self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})

    # What the test does

    def put(self, obj: Obj) -> Obj:
        """As a user or controller: creates or replaces, without being recorded."""
        stored = without_fields(_copy(obj), self.pruned.get(obj["kind"], ()))
        key = self._key(stored)
        before = self.objects.get(key)
        metadata = stored["metadata"]
        metadata["uid"] = uid_of(before) if before else self._new_uid()
        metadata.setdefault("creationTimestamp", self.clock())
        generation = int(dig(before, "metadata", "generation") or 0)
        changed = before is None or before.get("spec") != stored.get("spec")
        metadata["generation"] = generation + 1 if changed else generation
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        self.objects[key] = stored
        if (
            before
            and dig(before, "metadata", "finalizers")
            and is_terminating(stored)
            and not metadata.get("finalizers")
        ):
            self._drop(stored)
        else:
            self._tell("MODIFIED" if before else "ADDED", stored)
        return _copy(stored)

    def edit(self, kind: ResourceKind, name: str, **parts: Any) -> Obj:
        """Changes top-level parts (spec, status, data) of an object."""
        return self.put({**self.there(kind, name), **parts})

    def there(self, kind: ResourceKind, name: str) -> Obj:
        return _copy(self.stored(kind, name))

    def stored(self, kind: ResourceKind, name: str) -> Obj:
        """As `there`, to be read only: no copy."""
        return self.objects[kind.kind, "default" if kind.namespaced else "", name]

    def names(self, kind: ResourceKind) -> list[str]:
        return sorted(name for found, _, name in self.objects if found == kind.kind)

    def remove(self, kind: ResourceKind, name: str) -> None:
        """Deletes as `kubectl delete` does: finalizers and running pods hold an object back."""
        key = (kind.kind, "default" if kind.namespaced else "", name)
        obj = self.objects[key]
        if dig(obj, "metadata", "finalizers"):
            self.put({**obj, "metadata": {**obj["metadata"], "deletionTimestamp": self.clock()}})
            return
        if kind == CLAIM and self._is_mounted(name):
            self.put({**obj, "metadata": {**obj["metadata"], "deletionTimestamp": self.clock()}})
            return
        del self.objects[key]
        self._tell("DELETED", obj)
        for other in list(self.objects.values()):
            if any(owner["uid"] == uid_of(obj) for owner in dig(other, "metadata", "ownerReferences") or []):
                self.remove(_kind(other), name_of(other))

    def evict(self, name: str) -> None:
        """As the eviction API does, with a disruption controller that is up to date.

        Raises ApiError: 429 when a disruption budget does not allow it, 500 when two budgets match the pod.
        Source: canIgnorePDB and unhealthyPodEvictionPolicy in pkg/registry/core/pod/storage/eviction.go of Kubernetes.
        """
        pod = self.there(POD, name)
        budgets = [obj for obj in self._all(DISRUPTION_BUDGET.kind) if _selects(obj["spec"]["selector"], pod)]
        if len(budgets) > 1:
            raise ApiError(500, "InternalError", "more than one PodDisruptionBudget")
        for budget in budgets:
            if not has_condition(pod, "Ready") and budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                continue
            matching = [other for other in self._all(POD.kind) if _selects(budget["spec"]["selector"], other)]
            healthy = [other for other in matching if has_condition(other, "Ready") and not is_terminating(other)]
            needed = budget["spec"]["minAvailable"]
            if not has_condition(pod, "Ready") and len(healthy) >= needed > 0:
                continue  # IfHealthyBudget, which is the default
            if len(healthy) <= needed:
                raise ApiError(429, "TooManyRequests", f"{name_of(budget)} does not allow it")
        self.remove(POD, name)

    def settle(self) -> None:
        """Lets the controllers of Kubernetes do their work."""
        for obj in self._all(POD.kind):
            if is_terminating(obj):
                self._drop(obj)
        for obj in self._all(CLAIM.kind):
            if is_terminating(obj) and not self._is_mounted(name_of(obj)):
                self._drop(obj)
            elif (status := self._bound(obj)) != (obj.get("status") or {}):
                self.put({**obj, "status": status})
        for obj in self._all(STATEFUL_SET.kind):
            self._run(obj)
        for obj in self._all(JOB.kind):
            self._run_job(obj)

    # The port

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        self._require("get", kind.kind, namespace)
        found = self.objects.get((kind.kind, namespace, name))
        return None if found is None else self._read(found)

    async def lacking_rights(self, namespace: str, wanted: Sequence[Right]) -> Sequence[Right]:
        return [right for right in wanted if right in self.lacks.get(namespace, ())]

    def _require(self, verb: str, kind: str, namespace: str | None, subresource: str = "") -> None:
        if not self.lacks:
            return
        group, _, _ = _kind({"kind": kind}).api_version.rpartition("/")
        right = Right(group, _kind({"kind": kind}).plural + subresource, verb)
        places = self.lacks if namespace is None else (namespace,)
        if any(right in self.lacks.get(place, ()) for place in places):
            raise ApiError(403, "Forbidden", f"cannot {right}")

    def _read(self, obj: Obj) -> Obj:
        """What the API server answers of a stored object."""
        lacking = self.pruned.get(obj["kind"], ())
        if not lacking:
            return _copy(obj)
        found = without_fields(_copy(obj), lacking)
        owned = [{"manager": "kubectl", "fieldsV1": fields_v1({"spec": obj.get("spec")})}]
        return {**found, "metadata": {**found["metadata"], "managedFields": owned}}

    @property
    def version(self) -> int:
        """The newest resource version."""
        return self._version

    async def list(self, kind: ResourceKind, namespace: str | None, selector: str, fields: str = "") -> Sequence[Obj]:
        self._require("list", kind.kind, namespace)
        return [
            self._read(obj)
            for (found, where, _), obj in sorted(self.objects.items())
            if found == kind.kind
            and namespace in (None, where)
            and (not selector or dig(obj, "metadata", "labels", selector) is not None)
            and all(dig(obj, *path.split(".")) == value for path, _, value in _pairs(fields))
        ]

    async def create(self, obj: Obj) -> Obj:
        self._require("create", obj["kind"], dig(obj, "metadata", "namespace") or "")
        if self._key(obj) in self.objects:
            raise ApiError(409, "AlreadyExists", name_of(obj))
        return self._admitted("create", obj)

    async def is_valid(self, obj: Obj) -> bool:
        return not _fault(obj if self.webhook is None else self.webhook(_copy(obj)))

    async def apply(self, obj: Obj) -> Obj:
        self._require("patch", obj["kind"], dig(obj, "metadata", "namespace") or "")
        before = self.objects.get(self._key(obj))
        wanted_uid = obj["metadata"].get("uid")
        if wanted_uid and (before is None or uid_of(before) != wanted_uid):
            raise ApiError(409, "Conflict", f"uid of {name_of(obj)}")
        last = self._applied.get(self._key(obj), {}) if before is not None else {}
        merged = _merge(_without(before or {}, last, obj), obj)
        changed = self._admitted("apply", merged)
        self._applied[self._key(obj)] = _copy(obj)
        return changed

    async def replace_status(self, obj: Obj) -> Obj:
        self._require("update", obj["kind"], dig(obj, "metadata", "namespace") or "", "/status")
        before = self._checked(obj)
        return self._write("status", {**before, "status": obj["status"]})

    async def list_page(self, kind: ResourceKind, namespace: str | None, selector: str, rest: str = "") -> ListPage:
        return ListPage(await self.list(kind, namespace, selector), str(self._version))

    async def set_finalizers(
        self, obj: Obj, finalizers: Sequence[str], annotations: Mapping[str, str | None] | None = None
    ) -> Obj:
        self._require("patch", obj["kind"], dig(obj, "metadata", "namespace") or "")
        before = self._checked(obj)
        metadata = {**before["metadata"], "finalizers": list(finalizers)}
        if annotations:
            wanted = {**metadata.get("annotations", {}), **annotations}
            metadata["annotations"] = {key: value for key, value in wanted.items() if value is not None}
        return self._write("finalizers", {**before, "metadata": metadata})

    async def replace(self, obj: Obj) -> Obj:
        self._require("update", obj["kind"], dig(obj, "metadata", "namespace") or "")
        self._checked(obj)
        return self._admitted("replace", obj)

    async def delete(self, kind: ResourceKind, namespace: str, name: str, uid: str) -> bool:
        self._require("delete", kind.kind, namespace)
        obj = self.objects.get((kind.kind, namespace, name))
        if obj is None or uid_of(obj) != uid:
            return False
        self._record("delete", obj)
        if self.before_delete is not None:
            self.before_delete(obj)
        if kind.kind in GRACEFUL:
            self.put({**obj, "metadata": {**obj["metadata"], "deletionTimestamp": self.clock()}})
        else:
            self._drop(obj)
        return True

    # Inside

    def _admitted(self, verb: str, obj: Obj) -> Obj:
        """A write through admission and validation."""
        obj = _copy(obj) if self.webhook is None else self.webhook(_copy(obj))
        for key, text in obj.pop("stringData", {}).items():
            obj.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
        if fault := _fault(obj) or _immutable_field(self.objects.get(self._key(obj)), obj):
            raise ApiError(422, "Invalid", f'{obj["kind"]} "{name_of(obj)}" is invalid: {fault}')
        return self._write(verb, obj)

    def _write(self, verb: str, obj: Obj) -> Obj:
        self._record(verb, obj)
        there = self.objects.get(self._key(obj))
        servers = {} if there is None else {key: there["metadata"].get(key) for key in SERVER_FIELDS}
        if there is not None and {**obj, "metadata": {**servers, **obj["metadata"]}} == there:
            return _copy(there)  # the server keeps the resource version, and there is no watch event
        return self.put(obj)

    def _record(self, verb: str, obj: Obj) -> None:
        if self.kill_after is not None:
            if self.kill_after == 0:
                raise Killed
            self.kill_after -= 1
        self.writes.append((verb, obj["kind"], name_of(obj)))

    def _checked(self, obj: Obj) -> Obj:
        before = self.objects.get(self._key(obj))
        if before is None:
            raise ApiError(404, "NotFound", name_of(obj))
        if before["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", f"{name_of(obj)} was changed")
        return before

    def _key(self, obj: Obj) -> tuple[str, str, str]:
        return obj["kind"], dig(obj, "metadata", "namespace") or "", name_of(obj)

    def _new_uid(self) -> str:
        self._uids += 1
        return f"uid-{self._uids}"

    def _tell(self, event: str, obj: Obj) -> None:
        if self.on_change is not None:
            self.on_change(event, self._read(obj))

    def _drop(self, obj: Obj) -> None:
        del self.objects[self._key(obj)]
        self._version += 1
        self._tell("DELETED", obj)

    def _all(self, kind: str) -> list[Obj]:
        """To be read only: no copies."""
        return [obj for key, obj in sorted(self.objects.items()) if key[0] == kind]

    def _bound(self, claim: Obj) -> Obj:
        """The status of a claim: bound to a volume as large as asked, which grows if something resizes volumes."""
        status: Obj = claim.get("status") or {}
        if self.resizes or dig(status, "capacity") is None:
            size = str(dig(claim, "spec", "resources", "requests", "storage"))
            return {**status, "phase": "Bound", "capacity": {"storage": size}}
        return status

    def _is_mounted(self, claim: str) -> bool:
        return any(claim in _claims(pod) and dig(pod, "spec", "nodeName") for pod in self._all(POD.kind))

    def _run(self, stateful_set: Obj) -> None:
        template = stateful_set["spec"]["template"]
        revision = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]
        status = {"observedGeneration": stateful_set["metadata"]["generation"], "updateRevision": revision}
        if stateful_set.get("status") != status:
            self.put({**stateful_set, "status": status})
        name = f"{name_of(stateful_set)}-0"
        pod = self.objects.get((POD.kind, "default", name))
        if pod is None and self.refuses_pods:
            self._refuse(stateful_set)
        elif pod is None and stateful_set["spec"]["replicas"] == 1:
            pod = self.put(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": name,
                        "namespace": "default",
                        "labels": {**template["metadata"]["labels"], "controller-revision-hash": revision},
                        "annotations": dict(template["metadata"]["annotations"]),
                        "ownerReferences": [{"kind": "StatefulSet", "uid": uid_of(stateful_set)}],
                    },
                    "spec": _copy(template["spec"]),
                }
            )
        is_rolled = dig(stateful_set, "spec", "updateStrategy", "type") == "RollingUpdate"
        is_old = pod is not None and is_rolled and pod["metadata"]["labels"]["controller-revision-hash"] != revision
        if pod is not None and (stateful_set["spec"]["replicas"] == 0 or is_old) and not is_terminating(pod):
            self.put({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": NOW}})
            return
        if pod is not None and not is_terminating(pod):
            self._start(_copy(pod))

    def _run_job(self, job: Obj) -> None:
        """The pod of a Job that has not ended and is not suspended."""
        name = f"{name_of(job)}-0"
        pod = self.objects.get((POD.kind, "default", name))
        is_finished = has_condition(job, "Complete") or has_condition(job, "Failed")
        if pod is not None and dig(job, "spec", "suspend") and not is_terminating(pod):
            self.put({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": NOW}})
        elif pod is None and not dig(job, "spec", "suspend") and not is_finished:
            template = _copy(job["spec"]["template"])
            metadata = {**template["metadata"], "name": name, "namespace": "default"}
            metadata["ownerReferences"] = [{"kind": "Job", "uid": uid_of(job)}]
            pod = self.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
        if pod is not None and not is_terminating(pod) and not is_finished:
            self._start(_copy(pod))

    def _node_of_volumes(self, pod: Obj) -> str | None:
        """The node that has the volumes of a pod, "" when any will do; None when it does not exist."""
        place = ""
        for name in _claims(pod):
            volume = self.objects.get((VOLUME.kind, "", str(dig(self._claim(name), "spec", "volumeName"))))
            term = dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms", 0, "matchExpressions", 0)
            if term is not None:
                place = term["values"][0]
        if place and (NODE.kind, "", place) not in self.objects:
            return None
        return place

    def _claim(self, name: str) -> Obj | None:
        return self.objects.get((CLAIM.kind, "default", name))

    def _place_volumes(self, pod: Obj) -> None:
        """A volume on the node of the pod for each of its claims that has none."""
        for name in _claims(pod):
            claim = self._claim(name)
            if claim is None or dig(claim, "spec", "volumeName"):
                continue
            expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [pod["spec"]["nodeName"]]}
            affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
            volume = f"pv-{uid_of(claim)}"
            metadata = {"name": volume, "labels": {}}
            spec = {"nodeAffinity": affinity, "storageClassName": dig(claim, "spec", "storageClassName")}
            self.put({"apiVersion": "v1", "kind": VOLUME.kind, "metadata": metadata, "spec": spec})
            self.put({**claim, "spec": {**claim["spec"], "volumeName": volume}})

    def _refuse(self, stateful_set: Obj) -> None:
        """Creates the Event of the StatefulSet controller for a pod that it cannot create."""
        name = name_of(stateful_set)
        event_name = f"{name}.{uid_of(stateful_set)}"
        about = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "namespace": "default"}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event_name, "namespace": "default"},
            "involvedObject": {**about, "uid": uid_of(stateful_set)},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": f"create Pod {name}-0 in StatefulSet {name} failed error: {self.refuses_pods}",
            "source": {"component": "statefulset-controller"},
            "firstTimestamp": NOW,
            "lastTimestamp": NOW,
        }
        if not self._has_event(event_name):
            self.put(event)

    def _has_event(self, name: str) -> bool:
        return ("Event", "default", name) in self.objects

    def _start(self, pod: Obj) -> None:
        volumes = dig(pod, "spec", "volumes") or []
        needs = [(CLAIM, name) for name in _claims(pod)]
        needs += [(CONFIG_MAP, v["configMap"]["name"]) for v in volumes if "configMap" in v]
        if any((kind.kind, "default", name) not in self.objects for kind, name in needs):
            return
        place = self._node_of_volumes(pod) if self.local_volumes else ""
        if place is None:
            unscheduled = {"type": "PodScheduled", "status": "False", "message": "volume node affinity conflict"}
            if (status := {"phase": "Pending", "conditions": [unscheduled]}) != pod.get("status"):
                self.put({**pod, "status": status})
            return
        config = next((v["configMap"]["name"] for v in volumes if v["name"] == "config"), "")
        container = None if self.container_status is None else self.container_status(pod)
        ready = "False" if config in self.not_starting or container is not None else "True"
        status: Obj = {"podIP": "10.0.0.1", "conditions": [self._ready_condition(pod, ready)]}
        if container is not None:
            status["containerStatuses"] = [container]
        elif self.restarts[name_of(pod)]:
            again = {"name": "zookeeper", "ready": True, "restartCount": self.restarts[name_of(pod)]}
            status["containerStatuses"] = [{**again, "state": {"running": {}}}]
        if config in self.not_starting:
            status["containerStatuses"] = [{"name": "broker", "ready": False, "state": self.container_state}]
        spec = {**pod["spec"], "nodeName": pod["spec"].get("nodeName") or place or self._node_for(pod)}
        if pod.get("status") != status or pod["spec"] != spec:
            self.put({**pod, "spec": spec, "status": status})
        if self.local_volumes:
            self._place_volumes({**pod, "spec": spec})

    def _ready_condition(self, pod: Obj, ready: str) -> Obj:
        condition = {"type": "Ready", "status": ready}
        if not self.dates_readiness:
            return condition
        known = [item for item in dig(pod, "status", "conditions") or [] if condition.items() <= item.items()]
        return known[0] if known else {**condition, "lastTransitionTime": self.clock()}

    def _node_for(self, pod: Obj) -> str:
        affinity = dig(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        term = dig(affinity, "nodeSelectorTerms", 0, "matchExpressions", 0) or {}
        for node in self._all(NODE.kind):
            if not term or dig(node, "metadata", "labels", term["key"]) in term["values"]:
                return name_of(node)
        return ""


def _pairs(fields: str) -> list[tuple[str, str, str]]:
    return [pair.partition("=") for pair in fields.split(",") if pair]


def _copy(value: Any) -> Any:
    """A deep copy of JSON values, several times as fast as the general one."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _claims(pod: Obj) -> list[str]:
    volumes = dig(pod, "spec", "volumes") or []
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]


def _selects(selector: Obj, obj: Obj) -> bool:
    """matchLabels and NotIn, which is all that we use."""
    labels = dig(obj, "metadata", "labels") or {}
    wanted = all(labels.get(key) == value for key, value in selector["matchLabels"].items())
    return wanted and all(
        labels.get(expression["key"]) not in expression["values"]
        for expression in selector.get("matchExpressions") or []
        if expression["operator"] == "NotIn"
    )


def _kind(obj: Obj) -> ResourceKind:
    from ottla_operator.api.objects import KINDS

    return KINDS[obj["kind"]]


def _merge(live: Any, wanted: Any, field: str = "") -> Any:
    """As a server-side apply does it: keyed items are merged, other lists are one value."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        return {**live, **{key: _merge(live.get(key), value, key) for key, value in wanted.items()}}
    keys = list_keys(field, wanted) if isinstance(live, list) and isinstance(wanted, list) else None
    if keys is None or list_keys(field, live) != keys:
        return _copy(wanted)
    merged = {key_of(item, keys): item for item in live}
    for item in wanted:
        merged[key_of(item, keys)] = _merge(merged.get(key_of(item, keys)), item)
    return list(merged.values())


def _without(live: Any, last: Any, wanted: Any, field: str = "") -> Any:
    """`live` without what the last apply named and this one does not."""
    if isinstance(live, dict) and isinstance(last, dict):
        wanted = wanted if isinstance(wanted, dict) else {}
        return {
            key: _without(value, last.get(key), wanted.get(key), key)
            for key, value in live.items()
            if key not in last or key in wanted
        }
    if isinstance(live, list) and isinstance(last, list):
        keys = list_keys(field, last) if isinstance(wanted, list) else None
        if keys is None or list_keys(field, live) != keys:
            return live
        before = {key_of(item, keys): item for item in last}
        now = {key_of(item, keys): item for item in wanted}
        return [
            _without(item, before.get(key_of(item, keys)), now.get(key_of(item, keys)))
            for item in live
            if key_of(item, keys) not in before or key_of(item, keys) in now
        ]
    return live


def _fault(obj: Obj) -> str:
    """Why an API server refuses an object: what others and we have written of it does not go together."""
    spec = obj.get("spec") or {}
    if fault := _oversize(obj):
        return fault
    ports = [port.get("name") for port in spec.get("ports") or []] if obj["kind"] == "Service" else []
    if len(set(ports)) != len(ports):
        return "spec.ports: Duplicate value"
    if obj["kind"] == "PodDisruptionBudget" and {"minAvailable", "maxUnavailable"} <= set(spec):
        return "minAvailable and maxUnavailable cannot be both set"
    for volume in dig(spec, "template", "spec", "volumes") or []:
        if len(volume) > 2:
            return f"volume {volume['name']}: may not specify more than 1 volume type"
    return ""


def _oversize(obj: Obj) -> str:
    """What of an object is longer than an API server takes. Pods get a label with their StatefulSet's name and a hash.

    Source: validation.go of k8s.io/apimachinery and of pkg/apis/core.
    """
    if len(name_of(obj)) > (52 if obj["kind"] == STATEFUL_SET.kind else 253):
        return "metadata.name: Invalid value: must be no more than 253 characters"
    for metadata in (obj["metadata"], dig(obj, "spec", "template", "metadata") or {}):
        for key, value in (metadata.get("labels") or {}).items():
            if len(value) > 63:
                return f"metadata.labels: Invalid value: {key}: must be no more than 63 bytes"
        annotations = metadata.get("annotations") or {}
        if sum(len(f"{key}{value}".encode()) for key, value in annotations.items()) > 256 << 10:
            return "metadata.annotations: Too long: may not be more than 262144 bytes"
    data = obj.get("data") or {} if obj["kind"] == "ConfigMap" else {}
    if sum(len(f"{key}{value}".encode()) for key, value in data.items()) > 1 << 20:
        return "[]: Too long: may not be more than 1048576 bytes"
    return ""


def _immutable_field(before: Obj | None, obj: Obj) -> str:
    """What an API server does not change of an object that exists."""
    if before is None:
        return ""
    if before.get("immutable") and before.get("data") != obj.get("data"):
        return "data: Forbidden: field is immutable when `immutable` is set"
    was, now = before.get("spec") or {}, obj.get("spec") or {}
    changed = {field for field in {*was, *now} if was.get(field) != now.get(field)}
    if obj["kind"] == STATEFUL_SET.kind and (fields := changed - MUTABLE_OF_STATEFUL_SETS):
        return f"spec: Forbidden: updates to statefulset spec for {', '.join(sorted(fields))} are forbidden"
    if obj["kind"] == JOB.kind and (fields := changed & IMMUTABLE_OF_JOBS):
        return f"spec.{min(fields)}: Invalid value: field is immutable"
    return ""


def node(name: str, zone: str) -> Obj:
    labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


WATCHED = (KAFKA_CLUSTER, KAFKA_TOPIC, STATEFUL_SET, POD, CLAIM, CONFIG_MAP, NODE, NAMESPACE)
