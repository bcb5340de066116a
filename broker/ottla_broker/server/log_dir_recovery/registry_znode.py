"""Keeps a copy of the replica registry in the coordination store, in `/ottla/recreated-replicas/<broker id>`.

The registry (`storage.log_dirs.replica_registry`) is a file in every live directory. When a replica is recreated on d1
because d0 is offline, only d1 knows that the copy on d0 is stale. When d1 fails too, and d0 is back at the next start,
no directory could tell; so the registry is also written here, before a recreated replica may count as caught up. The
highest revision counts, wherever it is found. The znode is plain data that Apache Kafka never reads: zlib of the same
JSON as the file.

Worked example: t-0 is on d0. d0 hangs, t-0 is recreated on d1 and joins the ISR; d1 breaks, and the broker is started
with d0 alone, whose registry (revision 1) says nothing. The znode (revision 3) says that t-0 is on /d1 and replaces the
copy on /d0: that one becomes a stray, and the broker waits for d1 instead of leading with it.
"""

from __future__ import annotations

import asyncio
import zlib

from ottla_broker.ports import Coordination
from ottla_broker.ports.coordination import CoordinationError, NodeExists, NoNode
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.log_dirs.registry_files import ReplicaRegistryFiles
from ottla_broker.storage.log_dirs.replica_registry import decode, encode

ROOT = "/ottla/recreated-replicas"


class RegistryZnode:
    """The registry of one broker; `files` keep it up to date from here on."""

    def __init__(self, broker_id: int, coordination: Coordination, files: ReplicaRegistryFiles) -> None:
        self._path = f"{ROOT}/{broker_id}"
        self._coordination = coordination
        self._files = files
        self._lock = asyncio.Lock()
        self._kept = -1
        """The highest revision that is known to stand there."""
        files.save_elsewhere = self._keep

    async def recall(self) -> None:
        """At a start, after the directories' records are read. Raises CoordinationError, CheckpointError."""
        try:
            data, _stat = await self._coordination.get(self._path)
        except NoNode:
            return
        try:
            found = decode(self._path, zlib.decompress(data))
        except zlib.error as error:
            raise CheckpointError(f"{self._path}: {error}") from None
        self._files.merge(found)

    async def _keep(self) -> None:
        """The record as it is now stands in the coordination store when this returns. KafkaError when it does not."""
        asked = self._files.registry.revision
        async with self._lock:
            if self._kept >= asked:
                return  # a call before has taken this one's along
            revision = self._files.registry.revision
            try:
                await self._write(zlib.compress(encode(self._files.registry)))
            except CoordinationError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"the coordination store does not take {self._path}: {error}"
                ) from error
            self._kept = revision

    async def _write(self, data: bytes) -> None:
        try:
            await self._coordination.set(self._path, data)
            return
        except NoNode:
            pass
        for path in (ROOT.rpartition("/")[0], ROOT):
            try:
                await self._coordination.create(path)
            except NodeExists:
                pass  # by another broker
        try:
            await self._coordination.create(self._path, data)
        except NodeExists:
            await self._coordination.set(self._path, data)
