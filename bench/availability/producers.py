"""One producer per partition that runs without pause and measures its outages: the child of `outages`.

    python -m bench.availability.producers BOOTSTRAP TOPIC PARTITIONS

A producer sends one record after the other with acks=all to the leader, and looks up the leader after an error or a
disconnect, without the backoff of a client library, because the cluster is measured. It prints "ready" when every
partition has acknowledged a record. It measures from the first line of standard input on; at the end of the input it
prints one line of JSON with an `Outage` per partition.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.record import build_batch, build_records

_PRODUCE_VERSION = 9
_METADATA_VERSION = 9
_ANSWER_S = 60.0
_RETRY_S = 0.002
_BETWEEN_S = 0.002
"""Between two records of one partition: the resolution of what is measured."""

Address = tuple[str, int]


@dataclass
class Outage:
    """`leader`: who led at the start. `refused_ms`: from the first refusal to the next acknowledgement, the longest
    such time. `silent_ms`: the longest time between two acknowledgements. 0 where there was none."""

    partition: int
    leader: int
    refused_ms: float = 0.0
    silent_ms: float = 0.0
    acknowledged: int = 0


class Producers:
    """The parent's side: starts the child, waits for it, and reads what it has measured."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bench.availability.producers", bootstrap, topic, str(partitions)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._child.stdout is not None
        if self._child.stdout.readline().strip() != "ready":
            raise RuntimeError("the measuring producers did not get ready")

    def begin(self) -> None:
        """From now on outages count: what the warm-up of a system brings is none."""
        assert self._child.stdin is not None
        self._child.stdin.write("begin\n")
        self._child.stdin.flush()

    def end(self) -> list[Outage]:
        output, _ = self._child.communicate(timeout=_ANSWER_S)
        return [Outage(**found) for found in json.loads(output)]

    def close(self) -> None:
        """Ends a child that nobody asks any more. Idempotent."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()


class _Connection:
    """One request at a time. OSError, TimeoutError or EOFError when it is of no more use."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, address: Address) -> _Connection:
        return cls(*await asyncio.open_connection(*address))

    async def ask(self, api_key: ApiKey, version: int, request: object) -> Any:
        for chunk in codec.frame_request(api_key, version, 1, "bench", request):
            assert isinstance(chunk, bytes | bytearray | memoryview)
            self._writer.write(chunk)
        async with asyncio.timeout(_ANSWER_S):
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = await self._reader.readexactly(length)
        return codec.read_response_frame(api_key, version, memoryview(frame))[1]

    def close(self) -> None:
        self._writer.close()


class _Run:
    def __init__(self, bootstrap: list[Address], topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.is_ending = False
        self.outages = [Outage(number, -1) for number in range(partitions)]
        self._batch = bytes(build_batch(build_records([(b"", b"x" * 100)], 0)))
        self.all_ready = asyncio.Event()

    async def produce(self, outage: Outage) -> None:
        connection: _Connection | None = None
        refused_at: float | None = None
        last = 0.0
        tries = outage.partition
        while not self.is_ending:
            try:
                if connection is None:
                    leader, address = await self._find_leader(outage.partition, tries)
                    connection = await _Connection.to(address)
                    if outage.leader < 0:
                        outage.leader = leader
                error = await self._send(connection, outage.partition)
            except (OSError, EOFError, LookupError):
                error = -1
            now = time.perf_counter()
            if error == 0:
                if refused_at is not None:
                    outage.refused_ms = max(outage.refused_ms, (now - refused_at) * 1000)
                    refused_at = None
                if last:
                    outage.silent_ms = max(outage.silent_ms, (now - last) * 1000)
                last = now
                outage.acknowledged += 1
                if not self.all_ready.is_set() and all(one.acknowledged for one in self.outages):
                    self.all_ready.set()
                await asyncio.sleep(_BETWEEN_S)
                continue
            if last and refused_at is None:
                refused_at = now
            if connection is not None:
                connection.close()
                connection = None
            tries += 1
            await asyncio.sleep(_RETRY_S)

    async def _find_leader(self, partition: int, tries: int) -> tuple[int, Address]:
        """LookupError when there is none; any broker is asked, each in its turn."""
        api = codec.module(ApiKey.METADATA)
        connection = await _Connection.to(self._bootstrap[tries % len(self._bootstrap)])
        try:
            request = api.MetadataRequest(topics=[api.MetadataRequestTopic(name=self._topic)])
            found = await connection.ask(ApiKey.METADATA, _METADATA_VERSION, request)
        finally:
            connection.close()
        brokers = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
        leaders = {part.partition_index: part.leader_id for part in found.topics[0].partitions}
        return leaders[partition], brokers[leaders[partition]]

    async def _send(self, connection: _Connection, partition: int) -> int:
        api = codec.module(ApiKey.PRODUCE)
        data = api.PartitionProduceData(index=partition, records=self._batch)
        topic = api.TopicProduceData(name=self._topic, partition_data=[data])
        request = api.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        answer = await connection.ask(ApiKey.PRODUCE, _PRODUCE_VERSION, request)
        return int(answer.responses[0].partition_responses[0].error_code)


async def _measure(bootstrap: list[Address], topic: str, partitions: int) -> list[Outage]:
    run = _Run(bootstrap, topic, partitions)
    tasks = [asyncio.create_task(run.produce(outage)) for outage in run.outages]
    await run.all_ready.wait()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    for outage in run.outages:
        outage.refused_ms = outage.silent_ms = 0.0
    await asyncio.to_thread(sys.stdin.read)
    run.is_ending = True
    await asyncio.gather(*tasks)
    return run.outages


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    bootstrap, topic, partitions = sys.argv[1:]
    outages = asyncio.run(_measure([_address(one) for one in bootstrap.split(",")], topic, int(partitions)))
    sys.stdout.write(json.dumps([asdict(outage) for outage in outages]) + "\n")
