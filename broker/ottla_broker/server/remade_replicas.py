"""What the log directories remember of replicas made anew, kept in the coordination store too.

The record (`storage.directory_record`) is in every live directory, so of two disks only the one that a replica was made
anew on knows that the copy on the other is the older one. When it fails too, and the first one is back at the next
start, nobody would be left to tell; so the record also stands in `/ottla/remade-replicas/<broker id>`, before a replica
made anew may count as one that has everything. The highest revision counts, wherever it is found. The node is plain
data that Apache Kafka never looks at: zlib of the same JSON as the file.

Worked example: t-0 is on d0. d0 hangs, t-0 is made anew on d1 and joins the ISR; d1 breaks, and the broker is started
with d0 alone, whose record (revision 1) says nothing. The node (revision 3) says
`RecreatedReplica("/d1", False, ("/d0",))`: the copy on d0 is set aside, and the broker waits for d1 instead of leading
with it.
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

ROOT = "/ottla/remade-replicas"


class RemadeReplicas:
    """Of one broker; `files` keep it up to date from here on."""

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
