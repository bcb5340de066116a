"""Registers this broker in the coordination store: the cluster's id, its own id, and `/brokers/ids/N`.

A restart after kill -9 registers at once: the session's id and password are kept in a file of mode 0600 in the first
log directory, and the next process attaches to that session again and closes it, which deletes the old registration
(`Coordination.start` does it). A registration that belongs to another session is either that of a live broker of the
same id, which answers at its endpoint: then this one refuses to start; or that of one that died elsewhere: then this
one waits for its session to end.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla_broker.config import BrokerConfig, Endpoint, features
from ottla_broker.coordination import znodes
from ottla_broker.ports import Clock, Coordination, Disk, Ports
from ottla_broker.ports.coordination import (
    ConnectionLoss,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Set,
    Stat,
)
from ottla_broker.server.peers.broker_client import BrokerClient, BrokerDisconnected

OTTLA_VERSION: Final = 1
"""The member `ottla_version` of a registration: by it the others see that this broker is one of ours."""
SESSION_FILE = ".ottla-session"
_PROBE_TIMEOUT_S = 2.0
_WAIT_MARGIN_S = 5.0


class RegistrationRefused(Exception):
    """A live broker has this id, the cluster is not that of the directories, or there is no host to advertise."""


async def make_persistent_paths(coordination: Coordination) -> None:
    """Creates the znodes that every broker expects, parents first."""
    for path in znodes.PERSISTENT_PATHS:
        await make_path(coordination, path)


async def cluster_id(coordination: Coordination, clock: Clock) -> str:
    """The cluster's id; the first broker generates one (22 characters of base64, as Kafka's Uuid prints)."""
    while True:
        try:
            data, _stat = await coordination.get(znodes.CLUSTER_ID)
            return znodes.decode_cluster_id(data)
        except NoNode:
            made = base64.urlsafe_b64encode(clock.uuid4().bytes).rstrip(b"=").decode()
            await make_path(coordination, znodes.CLUSTER_ID.rpartition("/")[0])
            try:
                await coordination.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(made))
            except NodeExists:
                continue  # another broker was first


async def refuse_other_cluster(coordination: Coordination, known: str) -> None:
    """Checks before a broker registers in a new session that the ensemble has not lost its data.

    A controller without that data would know no topic and no replica. Apache Kafka compares the id only at its start.

    Raises:
        RegistrationRefused: the coordination store has another cluster id, or none.
    """
    try:
        data, _stat = await coordination.get(znodes.CLUSTER_ID)
    except NoNode:
        raise RegistrationRefused(
            f"{znodes.CLUSTER_ID} is missing: the ensemble has lost its data, and this broker is in cluster {known}. "
            "Nothing is written; restore the ensemble's data"
        ) from None
    found = znodes.decode_cluster_id(data)
    if found != known:
        raise RegistrationRefused(
            f"the ensemble is that of cluster {found} now, and this broker is in cluster {known}. Nothing is written; "
            "restore the ensemble's data, or correct zookeeper.connect"
        )


async def generated_broker_id(coordination: Coordination, reserved_max_id: int) -> int:
    """An id that no broker has had: the data version of `/brokers/seqid` above `reserved.broker.max.id`."""
    stat = await coordination.set(znodes.BROKER_SEQUENCE_ID, b"")
    return reserved_max_id + stat.version


class Registration:
    """Registers `/brokers/ids/N` of one broker, again in every new session.

    Args:
        on_disk: runs an operation on the first live log directory, whose `.lock` this process holds. A directory on
            which it fails goes offline, and the next one is used.
        endpoints: the advertised endpoints, one per listener.
        max_partition_replicas: how many replicas the controller may place on the broker; None: no limit.
    """

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        ports: Ports,
        on_disk: Callable[[Callable[[Disk], Awaitable[object]]], Awaitable[None]],
        endpoints: tuple[Endpoint, ...],
        logger: logging.LoggerAdapter[Any],
        max_partition_replicas: int | None = None,
    ) -> None:
        self._max_partition_replicas = max_partition_replicas
        self._broker_id = broker_id
        self._config = config
        self._coordination = ports.coordination
        self._network = ports.network
        self._clock = ports.clock
        self._on_disk = on_disk
        self._endpoints = endpoints
        self._logger = logger
        self.before: Callable[[], Awaitable[None]] | None = None
        """Awaited once, when the broker's former registration is gone and before the new one is made."""
        self.broker_epoch = -1
        """The czxid of the registration: requests of a controller that knows another one are refused."""
        self._registering = asyncio.Lock()
        self._waiting: asyncio.Event | None = None
        """While the end of a former registration is waited for."""

    async def register(self) -> int:
        """Registers and returns the broker epoch; called again in each new session.

        One call at a time. A call that waits for the end of a former registration is woken first: it has lost its watch
        with its session. Otherwise the later call would register the broker while its start, which has to clear the
        suspicion of a power loss, still waited.

        Raises:
            RegistrationRefused: a living broker has the id.
        """
        if self._waiting is not None:
            self._waiting.set()
        async with self._registering:
            return await self._register()

    async def _register(self) -> int:
        path = znodes.BrokerRegistration.path(self._broker_id)
        deadline: float | None = None
        while True:
            if self.before is not None and await self._coordination.exists(path) is None:
                await self.before()
                self.before = None
            stat = await self._create(path) if self.before is None else None
            if stat is not None:
                self.broker_epoch = stat.czxid
                await self._keep_session()
                self._logger.info("registered at %s with broker epoch %d", path, stat.czxid)
                return stat.czxid
            await self._refuse_if_alive(path)
            now = self._clock.monotonic()
            timeout_s = self._config.zookeeper_session_timeout_ms / 1000.0
            if deadline is None:
                deadline = now + timeout_s + _WAIT_MARGIN_S
                self._logger.warning("%s belongs to another session; waiting for its end (%.0f s)", path, timeout_s)
            elif now > deadline:
                raise RegistrationRefused(f"{path} is held by a session that does not end: is broker.id used twice?")
            await self._wait_until_gone(path, deadline - now)

    async def forget_session(self) -> None:
        """After a clean stop there is no session to attach to."""
        await self._on_disk(lambda disk: disk.delete(SESSION_FILE))

    async def _create(self, path: str) -> Stat | None:
        """One attempt; None when another session has registered the id."""
        data = self._registration().encode()
        try:
            # Two steps in one transaction, so that the data version is 1 and never the bare node is seen (KAFKA-6584).
            results = await self._coordination.multi([Create(path, b"", ephemeral=True), Set(path, data, 0)])
            assert results
        except MultiFailed as error:
            if not isinstance(error.cause, NodeExists):
                raise
        except ConnectionLoss:
            pass  # it may have happened: look
        stat = await self._coordination.exists(path)
        if stat is None:
            return None
        if stat.ephemeral_owner == self._coordination.session_id:
            return stat
        return None

    def _registration(self) -> znodes.BrokerRegistration:
        return znodes.BrokerRegistration(
            broker_id=self._broker_id,
            endpoints=self._endpoints,
            timestamp_ms=self._clock.now_ms(),
            rack=self._config.broker_rack,
            features=features.registered(features.SUPPORTED),
            max_partition_replicas=self._max_partition_replicas,
            ottla_version=OTTLA_VERSION,
        )

    async def _refuse_if_alive(self, path: str) -> None:
        """A broker that answers where the registration points is alive.

        Its own address is not probed: this broker listens there by now, so the former registration (its own, whose
        session file was lost with the power) is stale. That session ends by its timeout.
        """
        ours = {(endpoint.host, endpoint.port) for endpoint in self._endpoints}
        try:
            data, _stat = await self._coordination.get(path)
            other = znodes.BrokerRegistration.decode(self._broker_id, data)
        except (NoNode, znodes.ZnodeError):
            return
        for endpoint in other.endpoints:
            if (endpoint.host, endpoint.port) in ours:
                continue
            client = BrokerClient(
                self._network,
                self._clock,
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{self._broker_id}",
                connect_timeout_s=_PROBE_TIMEOUT_S,
            )
            try:
                await client.connect()
            except BrokerDisconnected:
                continue
            client.close()
            raise RegistrationRefused(
                f"broker {self._broker_id} is already running at {endpoint.host}:{endpoint.port} ({path}); "
                "give this one another broker.id"
            )

    async def _wait_until_gone(self, path: str, limit_s: float) -> None:
        changed = asyncio.Event()
        # Before the check: the session may end with its answer, and the watch with it, before this resumes.
        self._waiting = changed
        try:
            if await self._coordination.exists(path, lambda _event: changed.set()) is None:
                return
            timer = self._clock.call_later(max(limit_s, 0.0), changed.set)
            await changed.wait()
            timer.cancel()
        finally:
            self._waiting = None

    async def _keep_session(self) -> None:
        """Without the file, as on a full directory, the next process waits for the session's end after a crash."""
        session = {"id": self._coordination.session_id, "password": self._coordination.session_password.hex()}
        content = json.dumps(session).encode()
        await self._on_disk(lambda disk: disk.write_file(SESSION_FILE, content, is_private=True))


async def kept_session(disk: Disk) -> tuple[int, bytes] | None:
    """(id, password) of the session that the last process here had and did not close."""
    try:
        content = json.loads(await disk.read_file(SESSION_FILE))
        return int(content["id"]), bytes.fromhex(content["password"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


async def make_path(coordination: Coordination, path: str) -> None:
    made = ""
    for part in path.strip("/").split("/"):
        made += f"/{part}"
        if await coordination.exists(made) is None:
            try:
                await coordination.create(made)
            except NodeExists:
                pass  # another broker was first
