"""The KubernetesApi port against a server that answers as an API server does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from aiohttp import web
from kubernetes.aio import client

from ottla_operator.api.objects import KAFKA_TOPIC
from ottla_operator.effects.kubernetes_api import LARGEST_EVENT, KubernetesClient
from ottla_operator.ports import ApiError

_LARGEST_OBJECT = 1_500_000
"""Bytes; etcd takes no more in one request."""


@pytest.fixture
async def lines() -> list[bytes]:
    """What a watch gets."""
    return []


@pytest.fixture
async def api(lines: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubernetesClient]:
    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line + b"\n")
        return response

    server = web.Application()
    server.router.add_get("/{path:.*}", watch)
    runner = web.AppRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    entry = {"name": "test", "cluster": {"server": f"http://{host}:{port}"}, "user": {}, "context": {"cluster": "test"}}
    entry["context"]["user"] = "test"
    lists = {"clusters": [entry], "users": [entry], "contexts": [entry]}
    (tmp_path / "kubeconfig").write_text(json.dumps({"current-context": "test", **lists}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    connected = await KubernetesClient.connect()
    yield connected
    await connected.close()
    client.Configuration.set_default(None)
    await runner.cleanup()


def _event(name: str, size: int) -> bytes:
    return json.dumps({"type": "MODIFIED", "object": {"metadata": {"name": name}, "spec": "x" * size}}).encode()


async def test_an_object_as_large_as_the_api_server_stores_comes_through_a_watch(
    api: KubernetesClient, lines: list[bytes]
) -> None:
    lines += [_event("large", _LARGEST_OBJECT), _event("small", 1)]
    async with aclosing(api.watch(KAFKA_TOPIC, None, "7")) as events:
        seen = [(event, obj["metadata"]["name"], obj["kind"]) async for event, obj in events]
    assert seen == [("MODIFIED", "large", "KafkaTopic"), ("MODIFIED", "small", "KafkaTopic")]


@pytest.mark.parametrize("line", [b"x" * (LARGEST_EVENT + 1), b"no JSON"])
async def test_a_watch_that_cannot_be_read_is_an_error_of_the_api(
    api: KubernetesClient, lines: list[bytes], line: bytes
) -> None:
    """Whoever follows the objects begins another watch, or lists again; a ValueError would end the operator."""
    lines += [line]
    with pytest.raises(ApiError):
        async with aclosing(api.watch(KAFKA_TOPIC, None, "7")) as events:
            async for _ in events:
                pass
