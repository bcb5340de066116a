"""The configuration of an ensemble: read and changed with kazoo, each call in a session and a thread of its own.

Only a resize asks, every few seconds, so nothing is kept open. A server is asked once whether it has the password of
the super user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, UnimplementedError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import int_struct, read_string

from ottla_operator.api.fleet import MembershipReport, Reconfiguration
from ottla_operator.api.objects import Obj, dig
from ottla_operator.concerns.ensemble.zookeeper_files import CLIENT_PORT

CONFIG_NODE = "/zookeeper/config"
TIMEOUT_S = 10.0
SUPER_USER = "super"

_Result = TypeVar("_Result")


async def membership(leader: Obj, port: int = CLIENT_PORT) -> MembershipReport | None:
    """The committed configuration, as the server in this pod has it after a sync; None when it does not answer."""

    def read(client: KazooClient) -> MembershipReport:
        client.sync_async("/").get(timeout=TIMEOUT_S)
        data, _ = client.get_async(CONFIG_NODE).get(timeout=TIMEOUT_S)
        return read_config(data.decode())

    try:
        return await _with_session(leader, port, None, read)
    except (KazooException, KazooTimeoutError, OSError, ValueError):
        return None


class _WhoAmI:
    """A request for the identities of the session (OpCode.whoAmI, ZooKeeper 3.7); kazoo does not have it."""

    type = 107

    @staticmethod
    def serialize() -> bytes:
        return b""

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[str]:
        """The schemes of a WhoAmIResponse: a vector of (scheme, user)."""
        count = int_struct.unpack_from(data, offset)[0]
        offset += int_struct.size
        schemes = []
        for _ in range(count):
            scheme, offset = read_string(data, offset)
            _, offset = read_string(data, offset)
            schemes.append(scheme)
        return schemes


async def accepts_super_user(pod: Obj, password: str, port: int = CLIENT_PORT) -> bool | None:
    """Whether this is the super user's password for the server in this pod; None when it does not answer.

    Source: DigestAuthenticationProvider of ZooKeeper: such a session has the scheme `super` beside its others.
    """

    def ask(client: KazooClient) -> bool:
        answer = client.handler.async_result()
        client._call(_WhoAmI(), answer)
        return SUPER_USER in answer.get(timeout=TIMEOUT_S)

    try:
        return await _with_session(pod, port, password, ask)
    except UnimplementedError:
        return False
    except (KazooException, KazooTimeoutError, OSError):
        return None


async def reconfigure(leader: Obj, password: str, change: Reconfiguration, port: int = CLIENT_PORT) -> str:
    """Makes the change through the server in this pod. Returns why it failed or is not known to be done, else ""."""

    def send(client: KazooClient) -> str:
        leaving = None if change.leaving is None else str(change.leaving)
        client.reconfig_async(change.joining or None, leaving, None, change.version).get(timeout=TIMEOUT_S)
        return ""

    try:
        return await _with_session(leader, port, password, send)
    except (KazooException, KazooTimeoutError, OSError) as error:
        return f"{type(error).__name__.removesuffix('Error')} {error}".strip()


async def _with_session(leader: Obj, port: int, password: str | None, act: Callable[[KazooClient], _Result]) -> _Result:
    address = str(dig(leader, "status", "podIP") or "")
    host = f"[{address}]" if ":" in address else address

    def run() -> _Result:
        auth = None if password is None else [("digest", f"{SUPER_USER}:{password}")]
        client = KazooClient(f"{host}:{port}", timeout=TIMEOUT_S, auth_data=auth)
        try:
            client.start(TIMEOUT_S)
            return act(client)
        finally:
            client.stop()
            client.close()

    return await asyncio.to_thread(run)


def read_config(text: str) -> MembershipReport:
    """Parses what /zookeeper/config holds. Raises ValueError.

    >>> read_config("server.1=a:2888:3888:participant;0.0.0.0:2181\\nversion=100000003")
    MembershipReport(version=4294967299, servers={1: 'a:2888:3888:participant;0.0.0.0:2181'})
    """
    version, servers = None, {}
    for line in text.splitlines():
        key, _, value = line.strip().partition("=")
        if key == "version":
            version = int(value, 16)
        elif key.startswith("server."):
            servers[int(key.removeprefix("server."))] = value
    if version is None:
        raise ValueError(f"no version in {text!r}")
    return MembershipReport(version, servers)
