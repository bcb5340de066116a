"""This broker's place in the coordination store: the cluster's id, its own id, and `/brokers/ids/N`.

A restart after kill -9 registers at once: the session's id and password are kept in a file of mode 0600 in the first
log directory, and the next process re-attaches to that session and ends it, which takes the old registration away
(`Coordination.start` does it). A registration that still belongs to somebody else is either a living broker of the
same id, which answers at its endpoint, and then this one refuses to start; or one that died elsewhere, and then this
one waits for its session to end.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ottla_broker.config import Endpoint
from ottla_broker.coordination import znodes
from ottla_broker.ports import Clock, Coordination, Disk, Network
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

SESSION_FILE = ".ottla-session"
_PROBE_TIMEOUT_S = 2.0
_WAIT_MARGIN_S = 5.0


class RegistrationRefused(Exception):
    """Another living broker has this id, the cluster is not the one that the directories belong to, or there is no host
    that clients could be told."""


async def make_persistent_paths(coordination: Coordination) -> None:
    """Makes what every broker expects to find, parents first."""
    for path in znodes.PERSISTENT_PATHS:
        await make_path(coordination, path)


async def cluster_id(coordination: Coordination, clock: Clock) -> str:
    """The cluster's id; the first broker of all makes one (22 characters of base64, as Kafka's Uuid prints)."""
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
    """Before a broker registers in a new session: an ensemble that has come back without its data is another one.

    Its controller would know of no topic and of no replica. Apache Kafka compares the id at its start only.

    Raises:
        RegistrationRefused: the coordination store has another cluster id, or none.
    """
    try:
        data, _stat = await coordination.get(znodes.CLUSTER_ID)
    except NoNode:
        raise RegistrationRefused(
            f"{znodes.CLUSTER_ID} is gone: the ensemble has lost its data, and this broker is in cluster {known}. "
            "Nothing is written; restore the ensemble's data"
        ) from None
    found = znodes.decode_cluster_id(data)
    if found != known:
        raise RegistrationRefused(
            f"the ensemble is that of cluster {found} now, and this broker is in cluster {known}. Nothing is written; "
            "restore the ensemble's data, or correct zookeeper.connect"
        )


async def generated_broker_id(coordination: Coordination, reserved_max_id: int) -> int:
    """An id no broker has had: the data version of `/brokers/seqid` above `reserved.broker.max.id`."""
    stat = await coordination.set(znodes.BROKER_SEQUENCE_ID, b"")
    return reserved_max_id + stat.version


class Registration:
    """Keeps `/brokers/ids/N` of one broker, over sessions that end.

    Args:
        on_disk: does something on the first live log directory, whose `.lock` this process holds. One that fails over
            it is offline, and the broker goes on.
        endpoints: the advertised addresses, CLIENT and INTERNAL.
        max_partition_replicas: what the controller is to know of the broker's room for them; None: it has no limit.
    """

    def __init__(
        self,
        broker_id: int,
        config: Mapping[str, Any],
        coordination: Coordination,
        network: Network,
        clock: Clock,
        on_disk: Callable[[Callable[[Disk], Awaitable[object]]], Awaitable[None]],
        endpoints: tuple[Endpoint, ...],
        inter_broker_listener: str,
        logger: logging.LoggerAdapter[Any],
        max_partition_replicas: int | None = None,
    ) -> None:
        self._max_partition_replicas = max_partition_replicas
        self._broker_id = broker_id
        self._config = config
        self._coordination = coordination
        self._network = network
        self._clock = clock
        self._on_disk = on_disk
        self._endpoints = endpoints
        self._inter_broker_listener = inter_broker_listener
        self._logger = logger
        self.before: Callable[[], Awaitable[None]] | None = None
        """Awaited once, when the broker's former registration is gone and before the new one is made."""
        self.broker_epoch = -1
        """The czxid of our registration: requests of a controller that knows another one are refused."""
        self._registering = asyncio.Lock()
        self._waiting: asyncio.Event | None = None
        """While the end of a former registration is waited for."""

    async def register(self) -> int:
        """Registers and gives the broker epoch; called again in each session that comes.

        One at a time. Whoever still waits for the end of a former registration looks again first: its watch went with
        the session that has ended. Otherwise the later call would register the broker while its start, which has to
        say that it has lost nothing any more, waited on.

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
            timeout_s = self._config["zookeeper.session.timeout.ms"] / 1000.0
            if deadline is None:
                deadline = now + timeout_s + _WAIT_MARGIN_S
                self._logger.warning("%s belongs to another session; waiting for its end (%.0f s)", path, timeout_s)
            elif now > deadline:
                raise RegistrationRefused(f"{path} is held by a session that does not end: is broker.id used twice?")
            await self._wait_until_gone(path, deadline - now)

    async def forget_session(self) -> None:
        """After an orderly end there is nothing to re-attach to."""
        await self._on_disk(lambda disk: disk.delete(SESSION_FILE))

    async def _create(self, path: str) -> Stat | None:
        """One try; None when somebody else's registration stands there."""
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
            rack=self._config["broker.rack"],
            max_partition_replicas=self._max_partition_replicas,
        )

    async def _refuse_if_alive(self, path: str) -> None:
        """A broker that answers where the registration points is alive.

        Our own address is not asked: we listen there ourselves by now, and whoever registered it before us (this
        broker, whose kept session was lost with the power) is gone or unreachable. Its session ends by its timeout.
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
        # Before it looks: the session may end with the answer, and the watch with it, before this goes on.
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
    """(id, password) of the session that the last process here had and did not end."""
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
