"""The KubernetesApi port on the asynchronous half of the official client.

Objects are plain JSON, not typed models, so that fields which the client does not know are kept.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.http_exceptions import LineTooLong
from kubernetes.aio import client, config
from kubernetes.aio.client.rest import RESTResponse

from ottla_operator.api.names import FIELD_MANAGER
from ottla_operator.api.objects import KINDS, Obj, ResourceKind, dig, name_of
from ottla_operator.api.rights import Right
from ottla_operator.effects.access_reviews import read_lacking_rights
from ottla_operator.ports import ApiError, ListPage

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
REQUEST_TIMEOUT_S = 30
PAGE = 500
WATCH_S = 300
"""How long a watch is asked to last."""
QUIET_S = 70.0
"""A watch that has been silent for so long is broken: an API server sends a bookmark every minute."""
LARGEST_EVENT = 4 * 1024 * 1024
"""Bytes of one line of a watch. etcd stores 1.5 MiB for an object; JSON escapes may double that."""


class NoKubernetes(Exception):
    """No API server is known; the message says what to set."""


async def _load_kube_config(path: str | None) -> None:
    if absent := _absent(path):
        raise NoKubernetes(f"no Kubernetes: {absent}")
    try:
        await config.load_kube_config(config_file=path)  # type: ignore[no-untyped-call]
    except Exception as error:  # of YAML, of certificates that are not there, of fields that are not as expected
        name = path or config.KUBE_CONFIG_DEFAULT_LOCATION
        raise NoKubernetes(f"no Kubernetes: {name} cannot be used: {' '.join(str(error).split())}") from error


def _absent(path: str | None) -> str:
    """What to say when no file of KUBECONFIG, or the one without it, is there; "" when one is."""
    name = path or config.KUBE_CONFIG_DEFAULT_LOCATION
    if any(Path(one).expanduser().is_file() for one in name.split(os.pathsep)):
        return ""
    if path is None:
        return "neither ~/.kube/config nor the service account of a pod; set KUBECONFIG"
    return f"KUBECONFIG is {name}, and there is no such file"


class KubernetesClient:
    """A connection pool to one API server."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    @classmethod
    async def connect(cls) -> KubernetesClient:
        """Connects with the pod's service account, else with KUBECONFIG.

        Raises:
            NoKubernetes: there is neither, or the file cannot be used.
        """
        try:
            config.load_incluster_config()  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await _load_kube_config(os.environ.get("KUBECONFIG") or None)
        settings = client.Configuration.get_default_copy()
        # aiohttp reads ~/.netrc for every request when it may look at the environment, which is for proxies.
        settings.client_session_kwargs = {
            "trust_env": bool(urllib.request.getproxies()),
            "read_bufsize": LARGEST_EVENT // 2,  # aiohttp refuses a line of more than twice as much
        }
        return cls(client.ApiClient(settings))

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Obj | None:
        try:
            return await self._request("GET", path_of(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: ResourceKind, namespace: str | None, selector: str, fields: str = "") -> Sequence[Obj]:
        found: list[Obj] = []
        rest = ""
        while True:
            page = await self._page(kind, namespace, selector, fields, rest)
            found += page.items
            if not page.rest:
                return found
            rest = page.rest

    async def list_page(self, kind: ResourceKind, namespace: str | None, selector: str, rest: str = "") -> ListPage:
        return await self._page(kind, namespace, selector, "", rest)

    async def _page(self, kind: ResourceKind, namespace: str | None, selector: str, fields: str, rest: str) -> ListPage:
        query = {"limit": str(PAGE)}
        if selector:
            query["labelSelector"] = selector
        if fields:
            query["fieldSelector"] = fields
        if rest:
            query["continue"] = rest
        found = await self._request("GET", path_of(kind, namespace, None), query)
        items = [{**item, "apiVersion": kind.api_version, "kind": kind.kind} for item in found.get("items") or []]
        return ListPage(
            items, str(dig(found, "metadata", "resourceVersion") or ""), str(dig(found, "metadata", "continue") or "")
        )

    async def watch(
        self, kind: ResourceKind, namespace: str | None, version: str, selector: str = ""
    ) -> AsyncGenerator[tuple[str, Obj]]:
        path = path_of(kind, namespace, None)
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        if selector:
            query["labelSelector"] = selector
        timeout = aiohttp.ClientTimeout(total=None, connect=REQUEST_TIMEOUT_S, sock_read=QUIET_S)
        try:
            response = await self._send("GET", path, query, within=timeout)
            try:
                if response.status >= 400:
                    raise _error(response.status, await response.read())  # type: ignore[no-untyped-call]
                async for line in response.response.content:
                    event = _json(line)
                    obj = event.get("object")
                    if not isinstance(obj, dict):
                        raise ApiError(0, "NoEvent", f"GET {path}: a watch gave {line[:200]!r}")
                    if event.get("type") == "ERROR":
                        raise _error(int(obj.get("code") or 500), line, obj)
                    yield str(event.get("type")), {**obj, "apiVersion": kind.api_version, "kind": kind.kind}
            finally:
                response.response.close()
        except (TimeoutError, aiohttp.ClientError, OSError, LineTooLong) as error:
            raise ApiError(0, "NoAnswer", f"GET {path}: {error or type(error).__name__}") from error

    async def create(self, obj: Obj) -> Obj:
        kind, namespace = _place(obj)
        return await self._request("POST", path_of(kind, namespace, None), _MANAGER, obj)

    async def is_valid(self, obj: Obj) -> bool:
        kind, namespace = _place(obj)
        try:
            await self._request("POST", path_of(kind, namespace, None), {**_MANAGER, "dryRun": "All"}, obj)
        except ApiError as error:
            if error.status == 422:
                return False
            if error.status != 409:  # the name exists, which is looked at after everything else
                raise
        return True

    async def apply(self, obj: Obj) -> Obj:
        kind, namespace = _place(obj)
        query = {**_MANAGER, "force": "true"}
        return await self._request("PATCH", path_of(kind, namespace, name_of(obj)), query, obj, APPLY)

    async def replace_status(self, obj: Obj) -> Obj:
        kind, namespace = _place(obj)
        return await self._request("PUT", f"{path_of(kind, namespace, name_of(obj))}/status", _MANAGER, obj)

    async def set_finalizers(
        self, obj: Obj, finalizers: Sequence[str], annotations: Mapping[str, str | None] | None = None
    ) -> Obj:
        kind, namespace = _place(obj)
        metadata: Obj = {"resourceVersion": obj["metadata"]["resourceVersion"], "finalizers": list(finalizers)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        body = {"metadata": metadata}
        return await self._request("PATCH", path_of(kind, namespace, name_of(obj)), _MANAGER, body, MERGE)

    async def replace(self, obj: Obj) -> Obj:
        kind, namespace = _place(obj)
        return await self._request("PUT", path_of(kind, namespace, name_of(obj)), _MANAGER, obj)

    async def delete(self, kind: ResourceKind, namespace: str, name: str, uid: str) -> bool:
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._request("DELETE", path_of(kind, namespace, name), {}, body)
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    async def lacking_rights(self, namespace: str, wanted: Sequence[Right]) -> Sequence[Right]:
        return await read_lacking_rights(lambda path, body: self._request("POST", path, {}, body), namespace, wanted)

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Obj | None = None,
        content_type: str = "application/json",
    ) -> Obj:
        try:
            response = await self._send(method, path, query, body, content_type)
            text = await response.read()  # type: ignore[no-untyped-call]
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ApiError(0, "NoAnswer", f"{method} {path}: {error or type(error).__name__}") from error
        if response.status >= 400:
            raise _error(response.status, text)
        return _json(text)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Obj | None = None,
        content_type: str = "application/json",
        within: float | aiohttp.ClientTimeout = REQUEST_TIMEOUT_S,
    ) -> RESTResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        _, url, headers, sent, _ = await self._api.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        return await self._api.call_api(method, url, headers, sent, _request_timeout=within)


_MANAGER = {"fieldManager": FIELD_MANAGER}


def path_of(kind: ResourceKind, namespace: str | None, name: str | None) -> str:
    """
    >>> path_of(KINDS["StatefulSet"], "default", "a")
    '/apis/apps/v1/namespaces/default/statefulsets/a'
    >>> path_of(KINDS["Node"], None, None)
    '/api/v1/nodes'
    """
    root = "/api" if "/" not in kind.api_version else "/apis"
    scope = f"/namespaces/{namespace}" if kind.namespaced and namespace else ""
    return f"{root}/{kind.api_version}{scope}/{kind.plural}" + (f"/{name}" if name else "")


def _place(obj: Obj) -> tuple[ResourceKind, str | None]:
    return KINDS[obj["kind"]], dig(obj, "metadata", "namespace")


def _error(status: int, text: bytes, body: Mapping[str, Any] | None = None) -> ApiError:
    answer = _json(text) if body is None else body
    return ApiError(status, str(answer.get("reason", "Error")), str(answer.get("message", text[:200])))


def _json(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
