"""The KubernetesApi port on the asynchronous half of the official client.

Objects are plain JSON, not typed models, so that fields which the client does not know are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
from kubernetes.aio import client, config

from ottla_operator.api.names import FIELD_MANAGER
from ottla_operator.api.objects import KINDS, Obj, ResourceKind, dig, name_of
from ottla_operator.effects.ports import ApiError

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
REQUEST_TIMEOUT_S = 30
PAGE = 500


class KubernetesClient:
    """A connection pool to one API server."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    @classmethod
    async def connect(cls) -> KubernetesClient:
        """Connects with the pod's service account, else with KUBECONFIG."""
        try:
            config.load_incluster_config()  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))  # type: ignore[no-untyped-call]
        return cls(client.ApiClient())

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
        query = {"limit": str(PAGE)}
        if selector:
            query["labelSelector"] = selector
        if fields:
            query["fieldSelector"] = fields
        while True:
            page = await self._request("GET", path_of(kind, namespace, None), query)
            items = page.get("items") or []
            found += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in items]
            more = dig(page, "metadata", "continue")
            if not more:
                return found
            query["continue"] = str(more)

    async def create(self, obj: Obj) -> Obj:
        kind, namespace = _place(obj)
        return await self._request("POST", path_of(kind, namespace, None), _MANAGER, obj)

    async def apply(self, obj: Obj) -> Obj:
        kind, namespace = _place(obj)
        query = {**_MANAGER, "force": "true"}
        return await self._request("PATCH", path_of(kind, namespace, name_of(obj)), query, obj, APPLY)

    async def replace_status(self, obj: Obj) -> Obj:
        kind, namespace = _place(obj)
        return await self._request("PUT", f"{path_of(kind, namespace, name_of(obj))}/status", _MANAGER, obj)

    async def set_finalizers(self, obj: Obj, finalizers: Sequence[str]) -> Obj:
        kind, namespace = _place(obj)
        version = obj["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version, "finalizers": list(finalizers)}}
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

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Obj | None = None,
        content_type: str = "application/json",
    ) -> Obj:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            _, url, headers, sent, _ = await self._api.param_serialize(
                method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
                auth_settings=["BearerToken"],
            )  # fmt: skip
            response = await self._api.call_api(method, url, headers, sent, _request_timeout=REQUEST_TIMEOUT_S)
            text = await response.read()  # type: ignore[no-untyped-call]
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ApiError(0, "NoAnswer", f"{method} {path}: {error or type(error).__name__}") from error
        answer = _json(text)
        if response.status >= 400:
            raise ApiError(response.status, str(answer.get("reason", "Error")), str(answer.get("message", text[:200])))
        return answer


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


def _json(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
