"""The floor of a broker in Python: Ottla's network adapter and codec, a checksum and a plain write, and nothing else.

Every request is parsed; the CRC of each batch is checked, its bytes are appended to a file of the partition, and it is
acknowledged. There is no log, no index, no producer state and no replica: the difference to the real broker is what
these cost. `python -m bench.null_broker PORT DIRECTORY`; the directory takes a file of at most `FILE_BYTES` for each
partition.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import uvloop

from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.ports.network import Chunk, Connection, ConnectionHandler
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import api_versions, init_producer_id, metadata, produce
from ottla_broker.records.batch import is_intact

PARTITIONS = 16
FILE_BYTES = 1 << 28
_SERVED = ((ApiKey.PRODUCE, 0, 11), (ApiKey.FETCH, 4, 17), (ApiKey.METADATA, 0, 12), (ApiKey.API_VERSIONS, 0, 4),
           (ApiKey.INIT_PRODUCER_ID, 0, 5))  # fmt: skip


class PartitionFiles:
    """A file for each partition of the topic that is written to, which is emptied when it is full."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._topic = ""
        self._files: dict[int, int] = {}
        self._sizes: dict[int, int] = {}

    def append(self, topic: str, index: int, records: memoryview) -> None:
        """Writes the bytes behind those of before. The files of another topic are deleted. OSError."""
        if topic != self._topic:
            self._begin(topic)
        file = self._files.get(index)
        if file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            file = self._files[index] = os.open(self._directory / f"{topic}-{index}", flags)
            self._sizes[index] = 0
        if self._sizes[index] >= FILE_BYTES:
            os.ftruncate(file, 0)
            self._sizes[index] = 0
        self._sizes[index] += os.write(file, records)

    def _begin(self, topic: str) -> None:
        for index, file in self._files.items():
            os.close(file)
            (self._directory / f"{self._topic}-{index}").unlink()
        self._files.clear()
        self._topic = topic


class NullBroker:
    """Leader of every partition of every topic."""

    def __init__(self, port: int, files: PartitionFiles) -> None:
        self._port = port
        self._files = files
        self._next_offset = 0
        self._handlers: dict[int, Callable[[int, Any], object | None]] = {
            int(ApiKey.PRODUCE): self._produce,
            int(ApiKey.METADATA): self._metadata,
            int(ApiKey.API_VERSIONS): self._api_versions,
            int(ApiKey.INIT_PRODUCER_ID): self._init_producer_id,
        }

    def answer(self, connection: Connection, frame: memoryview) -> None:
        """One request in, one answer out, at once."""
        try:
            header = codec.read_request_header(frame)
        except codec.UnsupportedVersionError as error:
            if error.api_key != ApiKey.API_VERSIONS:
                raise
            response = api_versions.ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
            self._send(connection, ApiKey.API_VERSIONS, 0, error.correlation_id, response)
            return
        version = header.api_version
        request = codec.module(header.api_key).read_request(version, frame, header.body_offset)
        answer = self._handlers[header.api_key](version, request)
        if answer is not None:
            self._send(connection, header.api_key, version, header.correlation_id, answer)

    @staticmethod
    def _send(connection: Connection, api_key: int, version: int, correlation_id: int, response: object) -> None:
        connection.send(cast(Sequence[Chunk], codec.frame_response(api_key, version, correlation_id, response)))

    def _produce(self, version: int, request: Any) -> object | None:
        responses = []
        for topic in request.topic_data:
            partitions = []
            for partition in topic.partition_data:
                error = ErrorCode.NONE if is_intact(partition.records) else ErrorCode.CORRUPT_MESSAGE
                if error is ErrorCode.NONE:
                    self._files.append(topic.name, partition.index, partition.records)
                partitions.append(
                    produce.PartitionProduceResponse(
                        index=partition.index,
                        error_code=int(error),
                        base_offset=self._next_offset,
                        log_append_time_ms=-1,
                    )
                )
                self._next_offset += 1
            responses.append(produce.TopicProduceResponse(name=topic.name, partition_responses=partitions))
        return None if request.acks == 0 else produce.ProduceResponse(responses=responses)

    def _metadata(self, version: int, request: Any) -> object:
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self._port)],
            cluster_id="null",
            controller_id=0,
            topics=[
                metadata.MetadataResponseTopic(
                    error_code=0,
                    name=topic.name,
                    partitions=[
                        metadata.MetadataResponsePartition(
                            error_code=0, partition_index=index, leader_id=0, replica_nodes=[0], isr_nodes=[0]
                        )
                        for index in range(PARTITIONS)
                    ],
                )
                for topic in request.topics or ()
            ],
        )

    def _api_versions(self, version: int, request: Any) -> object:
        return api_versions.ApiVersionsResponse(
            error_code=0,
            api_keys=[
                api_versions.ApiVersion(api_key=int(key), min_version=low, max_version=high)
                for key, low, high in _SERVED
            ],
        )

    def _init_producer_id(self, version: int, request: Any) -> object:
        return init_producer_id.InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=0)


class _Handler:
    """A ConnectionHandler."""

    def __init__(self, broker: NullBroker, connection: Connection) -> None:
        self._broker = broker
        self._connection = connection

    def on_frame(self, frame: memoryview) -> None:
        self._broker.answer(self._connection, frame)

    def on_sent(self) -> None:
        return

    def on_close(self, reason: str) -> None:
        return


async def serve(port: int, directory: Path) -> None:
    """Serves until SIGTERM."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    network = SocketNetwork(loop)
    broker = NullBroker(port, PartitionFiles(directory))

    def factory(connection: Connection) -> ConnectionHandler:
        return _Handler(broker, connection)

    await network.listen("127.0.0.1", port, factory, max_frame_bytes=104857600)
    gc.freeze()
    await stopped.wait()
    network.close()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
