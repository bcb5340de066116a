"""The production adapter of Environment: wall clock, secrets, /status over HTTP, srvr over TCP, Kafka clients."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import aiohttp

from ottla_operator.api.fleet import (
    BrokerReport,
    LogDirectoryReport,
    MembershipReport,
    Reconfiguration,
    RecreationReport,
    ServerReport,
)
from ottla_operator.api.names import HTTP_PORT
from ottla_operator.api.objects import Obj, dig, uid_of
from ottla_operator.api.pipeline_report import PipelineReport, read_pipeline_report
from ottla_operator.concerns.ensemble.zookeeper_files import CLIENT_PORT
from ottla_operator.effects import zookeeper_admin
from ottla_operator.effects.kafka_admin import KafkaPythonAdmin
from ottla_operator.ports import KafkaAdmin

STATUS_TIMEOUT_S = 3.0
PASSWORD_BYTES = 24


class ProductionEnvironment:
    """The environment of one operator process."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    def now(self) -> str:
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def password(self) -> str:
        return secrets.token_urlsafe(PASSWORD_BYTES)

    async def broker_report(self, pod: Obj) -> BrokerReport | None:
        status = await self._status(pod)
        return None if status is None else read_report(uid_of(pod), status)

    async def pipeline_report(self, pod: Obj) -> PipelineReport | None:
        status = await self._status(pod)
        return None if status is None else read_pipeline_report(uid_of(pod), status)

    async def _status(self, pod: Obj) -> Any:
        """The JSON of /status of the process in a pod; None when it does not answer."""
        address = dig(pod, "status", "podIP")
        if not address:
            return None
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=STATUS_TIMEOUT_S))
        host = f"[{address}]" if ":" in address else address
        try:
            async with self._session.get(f"http://{host}:{HTTP_PORT}/status") as response:
                return await response.json()
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
            return None

    async def server_report(self, pod: Obj) -> ServerReport | None:
        address = dig(pod, "status", "podIP")
        if not address:
            return None
        answer = await srvr(str(address), CLIENT_PORT)
        return None if answer is None else read_srvr(uid_of(pod), answer)

    async def membership(self, leader: Obj) -> MembershipReport | None:
        return await zookeeper_admin.membership(leader)

    async def accepts_super_user(self, pod: Obj, password: str) -> bool | None:
        return await zookeeper_admin.accepts_super_user(pod, password)

    async def reconfigure(self, leader: Obj, password: str, change: Reconfiguration) -> str:
        return await zookeeper_admin.reconfigure(leader, password, change)

    def kafka(self, bootstrap: Sequence[str]) -> KafkaAdmin:
        return KafkaPythonAdmin(bootstrap)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def read_report(pod_uid: str, status: Any) -> BrokerReport | None:
    """Parses a broker's /status; None when it is not a JSON object."""
    if not isinstance(status, dict):
        return None
    directories = tuple(
        LogDirectoryReport(
            str(item.get("path")),
            str(item.get("state")),
            str(item.get("directory_id") or ""),
            max(0, _whole(item.get("since_ms"))),
            _whole(item.get("free_bytes", -1)),
            _whole(item.get("strays", 0)),
        )
        for item in status.get("log_dirs") or []
        if isinstance(item, dict)
    )
    session = status.get("session")
    session = session if isinstance(session, dict) else {}
    recreation = status.get("recreation")
    recreation = recreation if isinstance(recreation, dict) else {}
    listeners = [item for item in status.get("tls") or () if isinstance(item, dict)]
    refused = [str(item["refused"]) for item in listeners if item.get("refused")]
    return BrokerReport(
        pod_uid,
        str(status.get("cluster") or ""),
        str(status.get("state") or ""),
        directories,
        str(session.get("state") or ""),
        _whole(session.get("for_ms")),
        _whole(session.get("since_ms")),
        RecreationReport(
            _whole(recreation.get("waiting")),
            _whole(recreation.get("catching_up")),
            _whole(recreation.get("lost")),
            tuple(map(str, recreation.get("lost_partitions") or ())),
        ),
        str(status.get("last_line") or ""),
        refused_stores=tuple(dict.fromkeys(refused)),
    )


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


async def srvr(host: str, port: int) -> str | None:
    """The answer of a ZooKeeper server to the four-letter word srvr; None when it does not answer."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(STATUS_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"srvr")
            return (await reader.read()).decode(errors="replace")
    except (TimeoutError, OSError):
        return None
    finally:
        if writer is not None:
            writer.close()


def read_srvr(pod_uid: str, answer: str) -> ServerReport:
    """
    >>> read_srvr("u", "Zookeeper version: 3.9.5\\nZxid: 0x100000002\\nMode: follower\\nNode count: 5\\n").mode
    'follower'
    >>> read_srvr("u", "This ZooKeeper instance is not currently serving requests").is_serving
    False
    """
    modes = [line.removeprefix("Mode: ").strip() for line in answer.splitlines() if line.startswith("Mode: ")]
    return ServerReport(pod_uid, modes[0] if modes else "")
