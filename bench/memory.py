"""What clients that send without end or do not read cost a broker: resident memory before, at its peak and after.

`python -m bench.memory` starts a broker of its own for each case, in one process with the embedded coordination store:

    announced     200 connections announce 100 MB each and send six bytes
    unfinished    20 connections announce 19 MB each and send 10 MB (KIP-72)
    old-format    250 connections ask for 30 MB with Fetch 3 and do not read (KIP-283)
    metadata      250 connections ask for the metadata of 2 000 names and do not read
    requests      20 connections send 100 requests of 1 MB each, and read: a peak of ordinary work

Meanwhile a good client produces; its longest wait is the last column. The limits are the defaults of a pod of 2 GiB.
"""

from __future__ import annotations

import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ottla.testing import cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.record import Record, build_batch

KEYS = {"queued.max.request.bytes": str(256 << 20), "ottla.queued.max.response.bytes": str(128 << 20)}
SETTLE_S = 60.0
_TOPIC = "memory"


class BareClient:
    """One connection, with raw requests."""

    def __init__(self, address: str, receive_buffer: int = 0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(120)
        self.socket.connect((host, int(port)))

    def send(self, api_key: ApiKey, version: int, request: Any) -> None:
        chunks = codec.frame_request(api_key, version, 1, "bench", request)
        self.socket.sendall(b"".join(bytes(chunk) for chunk in chunks))  # type: ignore[arg-type]

    def receive(self, api_key: ApiKey, version: int) -> Any:
        frame = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        return codec.read_response_frame(api_key, version, memoryview(frame))[1]

    def ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        self.send(api_key, version, request)
        return self.receive(api_key, version)

    def produce(self, size: int, records: int = 1) -> int:
        api = codec.module(ApiKey.PRODUCE)
        data = build_batch([Record(number, 1, None, bytes(size)) for number in range(records)])
        partition = api.PartitionProduceData(index=0, records=data)
        topics = [api.TopicProduceData(name=_TOPIC, partition_data=[partition])]
        request = api.ProduceRequest(acks=-1, timeout_ms=30000, topic_data=topics)
        answer = self.ask(ApiKey.PRODUCE, 9, request)
        return int(answer.responses[0].partition_responses[0].error_code)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker has closed the connection")
            data += part
        return bytes(data)


class Served:
    """A broker in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "bench.memory", "--serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        self.peak_mb = 0
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()

    @property
    def resident_mb(self) -> int:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() >> 20

    def _look(self) -> None:
        while not self._is_over.wait(0.02):
            self.peak_mb = max(self.peak_mb, self.resident_mb)

    def close(self) -> None:
        self._is_over.set()
        self._watch.join()
        self._process.communicate("\n")


def announced(address: str, stack: ExitStack) -> None:
    for _ in range(200):
        _open(address, stack).socket.sendall(struct.pack(">i", 100_000_000) + bytes(2))


def unfinished(address: str, stack: ExitStack) -> None:
    for _ in range(20):
        client = _open(address, stack)
        threading.Thread(target=_send_half, args=(client,), daemon=True).start()


def old_format(address: str, stack: ExitStack) -> None:
    api = codec.module(ApiKey.FETCH)
    partition = api.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=30 << 20)
    topics = [api.FetchTopic(topic=_TOPIC, partitions=[partition])]
    for _ in range(250):
        client = _open(address, stack, 4096)
        client.send(ApiKey.FETCH, 3, api.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=30 << 20, topics=topics))


def metadata(address: str, stack: ExitStack) -> None:
    api = codec.module(ApiKey.METADATA)
    names = [api.MetadataRequestTopic(name=f"{number:04}" + "n" * 240) for number in range(2000)]
    request = api.MetadataRequest(topics=names, allow_auto_topic_creation=False)
    for _ in range(250):
        with suppress(OSError):
            client = _open(address, stack, 4096)
            for _ in range(3):
                client.send(ApiKey.METADATA, 9, request)


def requests(address: str, stack: ExitStack) -> None:
    def work(client: BareClient) -> None:
        for _ in range(100):
            client.produce(10_000, 100)

    threads = [threading.Thread(target=work, args=(_open(address, stack),)) for _ in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


CASES: tuple[Callable[[str, ExitStack], None], ...] = (announced, unfinished, old_format, metadata, requests)


def measure(case: Callable[[str, ExitStack], None]) -> str:
    """One line of the table."""
    served = Served()
    try:
        with ExitStack() as stack:
            good = _open(served.address, stack)
            _create(good)
            for _ in range(30):
                good.produce(10_000, 100)
            time.sleep(15)
            before = served.peak_mb = served.resident_mb
            longest = 0.0
            worker = threading.Thread(target=case, args=(served.address, stack))
            worker.start()
            ends = time.monotonic() + 10
            while worker.is_alive() or time.monotonic() < ends:
                began = time.monotonic()
                good.produce(1000)
                longest = max(longest, time.monotonic() - began)
                time.sleep(0.02)
            peak = served.peak_mb
        time.sleep(SETTLE_S)
        return f"| {case.__name__} | {before} | {peak} | {served.resident_mb} | {longest * 1000:.0f} |"
    finally:
        served.close()


def serve() -> None:
    """A broker until the end of the input."""
    with cluster(brokers=1, config=KEYS) as fleet:
        print(fleet.address(0), flush=True)
        sys.stdin.readline()


def main(names: list[str]) -> None:
    """Prints the table."""
    print("| case | before, MB | peak, MB | a minute later, MB | longest wait of a good client, ms |")
    print("|---|---|---|---|---|")
    for case in CASES:
        if not names or case.__name__ in names:
            print(measure(case), flush=True)


def _open(address: str, stack: ExitStack, receive_buffer: int = 0) -> BareClient:
    client = BareClient(address, receive_buffer)
    stack.callback(client.socket.close)
    return client


def _send_half(client: BareClient) -> None:
    with suppress(OSError):
        client.socket.sendall(struct.pack(">i", 19_000_000) + bytes(10_000_000))


def _create(client: BareClient) -> None:
    api = codec.module(ApiKey.CREATE_TOPICS)
    config = api.CreatableTopicConfig(name="max.message.bytes", value="10000000")
    topic = api.CreatableTopic(name=_TOPIC, num_partitions=1, replication_factor=1, configs=[config])
    client.ask(ApiKey.CREATE_TOPICS, 5, api.CreateTopicsRequest(topics=[topic], timeout_ms=30000))
    deadline = time.monotonic() + 60
    while client.produce(1):
        if time.monotonic() > deadline:
            raise TimeoutError("the topic has no leader")
        time.sleep(0.05)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    elif "--help" in sys.argv:
        print(__doc__, "\nArguments: the cases to run; all without any.", sep="")
    else:
        main(sys.argv[1:])
