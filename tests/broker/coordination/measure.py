"""Prints what coordination costs here: `python -m tests.broker.coordination.measure` (ZooKeeper where its jars are)."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable

from ottla.local.jars import MissingRequirement
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.coordination.zookeeper import ZooKeeperCoordination
from ottla_broker.ports.coordination import Coordination, Set

LONE, ROW, SHARED = 200, 5000, 50


async def measure(name: str, new: Callable[[], Coordination]) -> None:
    session = new()
    await session.start()
    await session.create("/a")
    start = time.perf_counter()
    for _ in range(LONE):
        await session.set("/a", b"x" * 100)
    lone = (time.perf_counter() - start) / LONE
    start = time.perf_counter()
    await asyncio.gather(*(session.set("/a", b"x" * 100) for _ in range(ROW)))
    row = (time.perf_counter() - start) / ROW
    start = time.perf_counter()
    for first in range(0, ROW, SHARED):
        await session.multi([Set("/a", b"x" * 100) for _ in range(first, first + SHARED)])
    shared = (time.perf_counter() - start) / ROW
    start = time.perf_counter()
    await asyncio.gather(*(session.get("/a") for _ in range(ROW)))
    read = (time.perf_counter() - start) / ROW
    await session.create("/broker", ephemeral=True)
    kept = (session.session_id, session.session_password)
    session.abandon()
    restarted = new()
    start = time.perf_counter()
    await restarted.start(kept)
    await restarted.create("/broker", ephemeral=True)
    taken_over = time.perf_counter() - start
    await restarted.close()
    print(
        f"{name}: lone write {lone * 1e6:.0f} µs, one of {ROW} {row * 1e6:.0f} µs, of {SHARED} in a transaction"
        f" {shared * 1e6:.0f} µs, read of {ROW} {read * 1e6:.0f} µs, take-over {taken_over * 1e3:.1f} ms"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:

        async def embedded() -> None:
            store = EmbeddedStore(f"{directory}/coordination.sqlite")
            await measure("embedded", lambda: EmbeddedCoordination(store))
            await store.close()

        asyncio.run(embedded())
        try:
            with ZooKeeperServer(f"{directory}/zookeeper") as server:
                asyncio.run(measure("ZooKeeper", lambda: ZooKeeperCoordination(server.connect)))
        except MissingRequirement as missing:
            print(f"ZooKeeper: {missing}")


if __name__ == "__main__":
    main()
