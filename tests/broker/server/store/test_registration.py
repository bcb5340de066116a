"""How a broker registers while sessions end, its own and that of its former incarnation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.config import BrokerConfig, Endpoint
from ottla_broker.coordination import znodes
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.ports import Ports
from ottla_broker.ports.coordination import SessionEvent
from ottla_broker.server.store.registration import Registration, make_path

ME = 1
ENDPOINT = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")


async def test_a_broker_that_waits_for_its_former_registration_registers_in_a_new_session(tmp_path: Path) -> None:
    """Otherwise the new session registers it while its start waits: its suspected power loss stays recorded when it is
    in sync again, and the next broker that loses power leads with fewer records (once fleet seed 63641)."""
    store = EmbeddedStore(str(tmp_path / "coordination"))
    await store.open()
    former, coordination = EmbeddedCoordination(store), EmbeddedCoordination(store)
    await former.start()
    await coordination.start()
    path = znodes.BrokerRegistration.path(ME)
    await make_path(former, path.rpartition("/")[0])
    endpoint = ENDPOINT
    registered = znodes.BrokerRegistration(broker_id=ME, endpoints=(endpoint,), timestamp_ms=1, rack=None)
    await former.create(path, registered.encode(), ephemeral=True)
    is_watched, is_connected = asyncio.Event(), asyncio.Event()
    exists = coordination.exists

    def noting_exists(path: str, watcher: Callable[..., None] | None = None) -> Any:
        if watcher is not None:
            is_watched.set()
        return exists(path, watcher)

    coordination.exists = noting_exists  # type: ignore[method-assign]
    coordination.add_session_listener(lambda event: event is SessionEvent.CONNECTED and is_connected.set())
    registration = Registration(
        ME,
        BrokerConfig.from_mapping({"zookeeper.session.timeout.ms": "3600000"}),
        _ports(coordination),
        _nothing,
        (ENDPOINT,),
        logging.LoggerAdapter(logging.getLogger("test")),
    )
    befores: list[int] = []

    async def before() -> None:
        befores.append(coordination.session_id)

    registration.before = before
    start = asyncio.ensure_future(registration.register())
    await is_watched.wait()
    store.expire_session(coordination.session_id)
    await is_connected.wait()
    await former.close()
    epoch = await registration.register()
    assert await start == epoch == registration.broker_epoch
    assert befores == [coordination.session_id], "once, and in the session that counts"
    await coordination.close()
    await store.close()


async def test_a_registration_does_not_hang_when_its_session_expires_while_it_checks_for_the_former_one(
    tmp_path: Path,
) -> None:
    """Its watch is lost with it; the later call would wait for the earlier one, and that for the watch."""
    store = EmbeddedStore(str(tmp_path / "coordination"))
    await store.open()
    former, coordination = EmbeddedCoordination(store), EmbeddedCoordination(store)
    await former.start()
    await coordination.start()
    path = znodes.BrokerRegistration.path(ME)
    await make_path(former, path.rpartition("/")[0])
    await former.create(path, b"", ephemeral=True)
    is_connected = asyncio.Event()
    coordination.add_session_listener(lambda event: event is SessionEvent.CONNECTED and is_connected.set())
    registration = Registration(
        ME,
        BrokerConfig.from_mapping({"zookeeper.session.timeout.ms": "3600000"}),
        _ports(coordination),
        _nothing,
        (ENDPOINT,),
        logging.LoggerAdapter(logging.getLogger("test")),
    )
    exists, again = coordination.exists, []

    async def exists_then_expires(path: str, watcher: Callable[..., None] | None = None) -> Any:
        stat = await exists(path, watcher)
        if watcher is not None and not again:
            store.expire_session(coordination.session_id)
            await is_connected.wait()
            again.append(asyncio.ensure_future(registration.register()))
            await asyncio.sleep(0)
            await former.close()
        return stat

    coordination.exists = exists_then_expires  # type: ignore[method-assign]
    epoch = await asyncio.wait_for(registration.register(), 60)
    assert await again[0] == epoch == registration.broker_epoch
    await coordination.close()
    await store.close()


async def _nothing(write: Callable[..., Any]) -> None:
    """Instead of the file that keeps the session for the next process."""


def _ports(coordination: EmbeddedCoordination) -> Ports:
    absent: Any = None
    return Ports(LoopClock(), SocketNetwork(asyncio.get_running_loop()), {}, coordination, absent)
