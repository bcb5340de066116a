"""The process behind `ottla local up`, without brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.local.control import SOCKET_NAME, ask
from ottla.local.daemon import Daemon, locked
from ottla_documents.documents import load_documents

_CLUSTER = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaCluster
metadata: {name: orders}
spec: {brokers: {replicas: 1}}
"""


class NoBrokers:
    restarts = False

    def __init__(self) -> None:
        self.is_started = asyncio.Event()

    async def start(self) -> None:
        self.is_started.set()

    async def stop(self) -> None: ...


async def test_whoever_is_told_that_the_fleet_is_stopped_may_delete_its_directory_or_start_it_again(
    tmp_path: Path,
) -> None:
    with locked(tmp_path) as lock:
        daemon = Daemon(tmp_path, lock, load_documents([("", _CLUSTER)]), processes=False, zookeeper="")
        runner = daemon._runner = NoBrokers()  # type: ignore[assignment]
        answer = daemon._control._handler
        there: list[bool] = []

        async def look(request: dict[str, Any]) -> dict[str, Any]:
            answered = await answer(request)
            with locked(tmp_path):
                there.append((tmp_path / SOCKET_NAME).exists())
            return answered

        daemon._control._handler = look
        running = asyncio.ensure_future(daemon.run())
        await runner.is_started.wait()
        with pytest.raises(BlockingIOError), locked(tmp_path):
            pass
        assert await asyncio.to_thread(ask, tmp_path, {"command": "down"}) == {"stopped": True}
        assert await running == 0
        assert there == [False]
