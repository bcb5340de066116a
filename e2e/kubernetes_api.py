"""The client of the tests: objects as JSON through the official client, kubectl for files and exec."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from e2e.machine import CommandFailed, NotInTime, run
from ottla_operator.api.objects import KAFKA_CLUSTER, KINDS, NODE, POD, Obj, ResourceKind, dig, uid_of
from ottla_operator.effects.kubernetes_api import path_of

DEPLOYMENT = ResourceKind("apps/v1", "Deployment", "deployments")
VOLUME = ResourceKind("v1", "PersistentVolume", "persistentvolumes", namespaced=False)
POLL_S = 0.5
WATCH_S = 3600.0
"""How long a watch may be silent."""
LIMIT_S = 300.0
"""The limit for waiting: nothing that works takes longer, on a busy machine either."""


class Refused(RuntimeError):
    """The API server refused a request. `status`: the HTTP status, 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Kubernetes:
    """One API server, with the rights of its kubeconfig. Namespaces default to `default`."""

    def __init__(self, kubeconfig: Path, kubectl: str) -> None:
        self._kubeconfig = kubeconfig
        self._kubectl = kubectl
        config.load_kube_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        self._client = client.ApiClient()

    def get(self, kind: ResourceKind, name: str, namespace: str = "default") -> Obj | None:
        try:
            return self.request("GET", path_of(kind, namespace, name))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def there(self, kind: ResourceKind, name: str, namespace: str = "default") -> Obj:
        """An object that has to exist."""
        found = self.get(kind, name, namespace)
        assert found is not None, f"{kind.kind} {namespace}/{name} does not exist"
        return found

    def list(self, kind: ResourceKind, namespace: str | None = "default", selector: str = "") -> Sequence[Obj]:
        query = f"?labelSelector={selector}" if selector else ""
        return list(self.request("GET", path_of(kind, namespace, None) + query)["items"])

    def changes(
        self, kind: ResourceKind, namespace: str | None = "default", selector: str = ""
    ) -> Iterator[tuple[str, Obj]]:
        """The objects, as ADDED, and then each event of a watch, as it comes. Ends when the API server ends the watch,
        or raises Refused; whoever asks again gets all objects again, but not those that were deleted meanwhile."""
        path = path_of(kind, namespace, None)
        found = self.request("GET", f"{path}?labelSelector={selector}")
        for item in found["items"]:
            yield "ADDED", {"kind": kind.kind, **item}
        version = found["metadata"]["resourceVersion"]
        query = f"?watch=1&labelSelector={selector}&resourceVersion={version}"
        try:
            for line in self._ask("GET", path + query, timeout_s=WATCH_S).response:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Refused(int(event["object"].get("code") or 0), str(event["object"].get("message")))
                yield event["type"], event["object"]
        except HTTPError as error:
            raise Refused(0, f"watch of {path}: {error}") from error

    def create(self, obj: Obj) -> Obj:
        kind = KINDS[obj["kind"]]
        return self.request("POST", path_of(kind, dig(obj, "metadata", "namespace") or "default", None), obj)

    def patch(
        self, kind: ResourceKind, name: str, change: Obj, namespace: str = "default", subresource: str = ""
    ) -> Obj:
        """A merge patch."""
        path = path_of(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, change, "application/merge-patch+json")

    def delete(self, kind: ResourceKind, name: str, namespace: str = "default", grace_s: int | None = None) -> None:
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        self.request("DELETE", path_of(kind, namespace, name), options)

    def evict(self, pod: str, namespace: str = "default") -> None:
        """Evicts a pod, as a drain does. Raises Refused with status 429 when a disruption budget does not allow it."""
        metadata = {"name": pod, "namespace": namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        self.request("POST", f"{path_of(POD, namespace, pod)}/eviction", eviction)

    def cordon(self, node: str, cordoned: bool) -> None:
        self.patch(NODE, node, {"spec": {"unschedulable": cordoned}})

    def kubectl(self, *arguments: str, text: str | None = None, timeout_s: float = 120) -> str:
        return run([self._kubectl, "--kubeconfig", self._kubeconfig, *arguments], text=text, timeout_s=timeout_s)

    def execute(self, pod: str, *command: str, timeout_s: float = LIMIT_S) -> str:
        """The standard output of a command in a pod's first container."""
        return self.kubectl("exec", pod, "--", *command, timeout_s=timeout_s)

    def start(self, pod: str, *command: str, output: Path) -> subprocess.Popen[bytes]:
        """Starts a command in a pod; its output goes to a file."""
        arguments = ["--kubeconfig", str(self._kubeconfig), "exec", pod, "--", *command]
        with open(output, "wb") as file:
            return subprocess.Popen([self._kubectl, *arguments], stdout=file, stderr=file, stdin=subprocess.DEVNULL)

    def until(self, holds: Callable[[], Any], what: str, timeout_s: float = LIMIT_S) -> None:
        """Waits until a condition holds. An error counts as False."""
        deadline = time.monotonic() + timeout_s
        last = ""
        while True:
            try:
                if holds():
                    return
            except (Refused, CommandFailed) as error:
                last = f" ({error})"
            if time.monotonic() > deadline:
                raise NotInTime(f"{what}: not within {timeout_s:.0f} s{last}")
            time.sleep(POLL_S)

    def until_replaced(self, pod: str, uid: str, namespace: str = "default", *, ready: bool = True) -> None:
        """Waits until another pod of that name exists, and is ready unless `ready` is False."""

        def replaced() -> bool:
            found = self.get(POD, pod, namespace)
            return found is not None and uid_of(found) != uid and (is_ready(found) or not ready)

        self.until(replaced, f"pod {pod} is replaced")

    def until_condition(
        self,
        kind: ResourceKind,
        name: str,
        condition: str,
        reason: str = "",
        *,
        namespace: str = "default",
        timeout_s: float = LIMIT_S,
    ) -> Obj:
        """Waits for a condition to be True, or, with a reason, to have that reason; gives the condition."""
        found: Obj = {}

        def holds() -> bool:
            found.clear()
            found.update(condition_of(self.there(kind, name, namespace), condition))
            return found.get("reason") == reason if reason else found.get("status") == "True"

        try:
            self.until(holds, f"{condition} of {kind.kind} {name}", timeout_s)
        except NotInTime as error:
            said = dig(self.there(kind, name, namespace), "status", "conditions") or []
            lines = [f"{item['type']} {item['status']} {item['reason']}: {item.get('message', '')}" for item in said]
            raise NotInTime("\n".join([str(error), *lines])) from error
        return found

    def until_ready(self, name: str = "orders", *, namespace: str = "default", timeout_s: float = LIMIT_S) -> Obj:
        """Waits until a KafkaCluster is Ready and no roll is under way, for its newest generation; gives its status."""

        def holds() -> bool:
            live = self.there(KAFKA_CLUSTER, name, namespace)
            ready = condition_of(live, "Ready")
            is_seen = dig(live, "status", "observedGeneration") == live["metadata"]["generation"]
            rolled = condition_of(live, "Rolled").get("status") == "True" and dig(live, "status", "roll") is None
            return bool(is_seen and rolled and ready.get("status") == "True")

        try:
            self.until(holds, f"KafkaCluster {name} is Ready", timeout_s)
        except NotInTime as error:
            status = dig(self.there(KAFKA_CLUSTER, name, namespace), "status")
            raise NotInTime(f"{error}\n{json.dumps(status, indent=1)}") from error
        return dict(self.there(KAFKA_CLUSTER, name, namespace)["status"])

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Obj:
        try:
            response = self._ask(method, path, body, content_type)
            text = response.read()  # type: ignore[no-untyped-call]
        except HTTPError as error:  # no answer in time, or its end is missing
            raise Refused(0, f"{method} {path}: {error}") from error
        answer = json.loads(text) if text else {}
        if response.status >= 400:
            raise Refused(response.status, str(answer.get("message", text[:300])))
        return dict(answer)

    def _ask(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", timeout_s: float = 120
    ) -> client.rest.RESTResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        url = f"{self._client.configuration.host}{path}"
        # update_params_for_auth, so that tokens and exec plugins of a kubeconfig work too
        queries: list[tuple[str, str]] = []
        self._client.update_params_for_auth(headers, queries, ["BearerToken"], path, method, body)
        try:
            return self._client.call_api(method, url, headers, body, _request_timeout=timeout_s)
        except client.ApiException as error:
            raise Refused(int(error.status or 0), str(error.body)) from error


def condition_of(obj: Obj, kind: str) -> Obj:
    """One condition of an object's status, {} when it has none of that type."""
    return next((item for item in dig(obj, "status", "conditions") or [] if item["type"] == kind), {})


def is_ready(pod: Obj | None) -> bool:
    return pod is not None and condition_of(pod, "Ready").get("status") == "True" and not is_terminating(pod)


def is_terminating(obj: Obj) -> bool:
    return dig(obj, "metadata", "deletionTimestamp") is not None
