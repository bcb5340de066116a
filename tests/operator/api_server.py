"""The Kubernetes in memory behind HTTP, as far as kopf and our client use it: discovery, list, watch, and the writes.

Requests that change something and are none of the port's calls are recorded as ("other", method, path), so that a test
sees whether kopf wrote anything.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from ottla_operator.api.objects import KINDS, Obj, ResourceKind, dig
from ottla_operator.ports import ApiError
from tests.operator.kubernetes import InMemoryKubernetes


class ApiServer:
    """`url` after `start`."""

    def __init__(self, kubernetes: InMemoryKubernetes) -> None:
        self.kubernetes = kubernetes
        self.url = ""
        self.reads: list[str] = []
        self.slow: dict[str, float] = {}
        """Seconds that the list of a kind takes, by plural."""
        self._watchers: list[tuple[str, str, asyncio.Queue[tuple[str, Obj] | None]]] = []
        self._runner: web.AppRunner | None = None
        kubernetes.on_change = self._publish

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        for _, _, queue in self._watchers:
            queue.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self) -> str:
        cluster = {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": {}}]
        return json.dumps(
            {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "users": users,
             "current-context": "x"}
        )  # fmt: skip

    def _publish(self, event: str, obj: Obj) -> None:
        for kind, selector, queue in self._watchers:
            if kind == obj["kind"] and (not selector or dig(obj, "metadata", "labels", selector) is not None):
                queue.put_nowait((event, obj))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ApiError as error:
            return web.json_response({"reason": error.reason, "message": error.message}, status=error.status)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        found = _discovery(parts)
        if found is not None:
            return web.json_response(found)
        version, rest = ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        kind = next((k for k in KINDS.values() if (k.api_version, k.plural) == (version, rest[0])), None)
        if kind is None:
            return web.json_response({"reason": "NotFound", "message": request.path}, status=404)
        name, subresource = [*rest[1:], None, None][:2]
        body = json.loads(text) if (text := await request.text()) else {}
        if request.method == "GET":
            return await self._read(request, kind, namespace, name)
        return web.json_response(await self._change(request, kind, namespace or "", name, subresource, body))

    async def _read(
        self, request: web.Request, kind: ResourceKind, namespace: str | None, name: str | None
    ) -> web.StreamResponse:
        selector = request.query.get("labelSelector", "")
        if request.query.get("watch"):
            return await self._watch(request, kind, selector)
        self.reads.append(request.path)
        if name is not None:
            obj = await self.kubernetes.get(kind, namespace or "", name)
            if obj is None:
                raise ApiError(404, "NotFound", name)
            return web.json_response(obj)
        await asyncio.sleep(self.slow.get(kind.plural, 0))
        items = await self.kubernetes.list(kind, namespace, selector)
        version = str(self.kubernetes.version)
        return web.json_response(
            {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "items": list(items),
             "metadata": {"resourceVersion": version}}
        )  # fmt: skip

    async def _watch(self, request: web.Request, kind: ResourceKind, selector: str) -> web.StreamResponse:
        response = web.StreamResponse()
        queue: asyncio.Queue[tuple[str, Obj] | None] = asyncio.Queue()
        since = int(request.query.get("resourceVersion", "0"))
        for obj in await self.kubernetes.list(kind, None, selector):
            if int(obj["metadata"]["resourceVersion"]) > since:
                queue.put_nowait(("MODIFIED", obj))
        watcher = (kind.kind, selector, queue)
        self._watchers.append(watcher)
        await response.prepare(request)
        try:
            while (item := await queue.get()) is not None:
                await response.write(json.dumps({"type": item[0], "object": item[1]}).encode() + b"\n")
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._watchers.remove(watcher)
        return response

    async def _change(
        self,
        request: web.Request,
        kind: ResourceKind,
        namespace: str,
        name: str | None,
        subresource: str | None,
        body: Any,
    ) -> Any:
        kubernetes = self.kubernetes
        ours = request.query.get("fieldManager", "").startswith("ottla-operator")
        content = request.content_type
        if request.method == "DELETE" and name is not None:
            uid = dig(body, "preconditions", "uid")
            if uid is None:
                kubernetes.writes.append(("other", request.method, request.path))
            await kubernetes.delete(kind, namespace, name, uid)
            return {}
        if not ours:
            kubernetes.writes.append(("other", request.method, request.path))
            return {}
        if request.method == "POST":
            return await kubernetes.create(body)
        if request.method == "PUT":
            return await (kubernetes.replace_status(body) if subresource == "status" else kubernetes.replace(body))
        if content == "application/apply-patch+yaml" and request.query.get("force") == "true":
            return await kubernetes.apply(body)
        if content == "application/merge-patch+json" and name is not None:
            obj = kubernetes.there(kind, name)
            obj["metadata"]["resourceVersion"] = body["metadata"]["resourceVersion"]
            metadata = body["metadata"]
            return await kubernetes.set_finalizers(obj, metadata["finalizers"], metadata.get("annotations"))
        raise ApiError(415, "UnsupportedMediaType", content)


def _discovery(parts: list[str]) -> Obj | None:
    versions = sorted({kind.api_version for kind in KINDS.values()})
    if parts == ["version"]:
        return {"major": "1", "minor": "37"}
    if parts == ["api"]:
        return {"versions": ["v1"]}
    if parts == ["apis"]:
        groups = []
        for version in versions:
            group, slash, number = version.partition("/")
            if slash:
                entry = {"groupVersion": version, "version": number}
                groups.append({"name": group, "versions": [entry], "preferredVersion": entry})
        return {"groups": groups}
    version = "/".join(parts[1:])
    if version not in versions:
        return None
    verbs = ["list", "watch", "get", "patch", "create", "update", "delete"]
    resources = [
        {"name": kind.plural, "kind": kind.kind, "singularName": kind.kind.lower(), "namespaced": kind.namespaced,
         "verbs": verbs}
        for kind in KINDS.values()
        if kind.api_version == version
    ]  # fmt: skip
    return {"resources": resources}
