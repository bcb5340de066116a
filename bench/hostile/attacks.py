"""What a hostile client does besides sending many elements: half frames, answers that it does not read, lookups in
large batches, half HTTP requests, TLS handshakes by the thousand. Nothing is measured here.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from bench.hostile.many_elements import TOPIC
from bench.systems import ask
from bench.tls import BenchTls
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.compression import Codec
from ottla_broker.records.record import Record, build_batch

_HALF_FRAMES = 16
_ANNOUNCED_BYTES = 100 * 1024 * 1024
_UNREAD_CONNECTIONS = 50
_UNREAD_REQUESTS = 40
_LOOKED_UP_RECORDS = 120_000
_HALF_HTTP = 300
_CERTIFIED_CLIENTS = 1000
_CONNECT_AT_ONCE = 100
_HOLD_S = 3.0

MANY_PARTITIONS = tuple(f"many-{number}" for number in range(5))
"""Topics that the broker leads from the start."""
PARTITIONS_OF_EACH = 1000


class AttackTarget(NamedTuple):
    """Where a broker is reached.

    Args:
        port: without TLS.
        tls_port: with TLS, where a certificate is required.
        http_port: 0 for a broker without HTTP.
        tls: the files of clients.
    """

    port: int
    tls_port: int
    http_port: int
    tls: BenchTls


Attack = Callable[[AttackTarget], None]


@contextlib.contextmanager
def _connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(count)]


def announced_lengths(target: AttackTarget) -> None:
    """16 connections announce 100 MiB and send 1 KB of it."""
    with _connections(target.port, _HALF_FRAMES) as connections:
        for connection in connections:
            connection.sendall((_ANNOUNCED_BYTES - 1).to_bytes(4, "big") + bytes((0, 3, 0, 1)) + bytes(1020))
        time.sleep(_HOLD_S)


def unread_answers(target: AttackTarget) -> None:
    """50 connections ask for all configurations of the broker 40 times, and read nothing."""
    configs = codec.module(ApiKey.DESCRIBE_CONFIGS)
    broker = configs.DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
    request = configs.DescribeConfigsRequest(resources=[broker], include_synonyms=True, include_documentation=True)
    frame = _joined(ApiKey.DESCRIBE_CONFIGS, 3, request)
    with _connections(target.port, _UNREAD_CONNECTIONS) as connections:
        for connection in connections:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(_UNREAD_REQUESTS):
                    connection.send(frame)
        time.sleep(_HOLD_S)


def lookups_in_compressed_batches(target: AttackTarget) -> None:
    """ListOffsets by a timestamp that ends in a compressed batch of 120 000 records, ten times."""
    produce, offsets = codec.module(ApiKey.PRODUCE), codec.module(ApiKey.LIST_OFFSETS)
    batch = build_batch([Record(at, 1_000 + at, None, b"") for at in range(_LOOKED_UP_RECORDS)], codec=Codec.GZIP)
    data = produce.PartitionProduceData(index=0, records=memoryview(batch))
    topic = produce.TopicProduceData(name=TOPIC, partition_data=[data])
    wanted = offsets.ListOffsetsPartition(partition_index=0, timestamp=1_000 + _LOOKED_UP_RECORDS - 1)
    lookup = offsets.ListOffsetsRequest(
        replica_id=-1, topics=[offsets.ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
    )
    with socket.create_connection(("127.0.0.1", target.port), timeout=60) as connection:
        ask(connection, ApiKey.PRODUCE, 8, produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]))
        for _ in range(10):
            ask(connection, ApiKey.LIST_OFFSETS, 5, lookup)


def fetches_of_many_partitions(target: AttackTarget) -> None:
    """Fetches of 5 000 partitions with a record each: without a session, the first of one, and all of it again."""
    fetch = codec.module(ApiKey.FETCH)
    topics = [
        fetch.FetchTopic(
            topic=topic,
            partitions=[
                fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000_000)
                for index in range(PARTITIONS_OF_EACH)
            ],
        )
        for topic in MANY_PARTITIONS
    ]

    def request(session_id: int, session_epoch: int) -> object:
        return fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50_000_000,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=topics if session_epoch <= 0 else [],
        )

    with socket.create_connection(("127.0.0.1", target.port), timeout=60) as connection:
        ask(connection, ApiKey.FETCH, 12, request(0, -1))
        opened = ask(connection, ApiKey.FETCH, 12, request(0, 0))
        ask(connection, ApiKey.FETCH, 12, request(opened.session_id, 1 if opened.session_id else -1))


def produce_to_many(port: int) -> None:
    """A record for each of `MANY_PARTITIONS`, before anything is measured."""
    produce = codec.module(ApiKey.PRODUCE)
    batch = memoryview(build_batch([Record(0, 1_000, None, b"x" * 100)]))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for topic in MANY_PARTITIONS:
            data = [produce.PartitionProduceData(index=index, records=batch) for index in range(PARTITIONS_OF_EACH)]
            topic_data = [produce.TopicProduceData(name=topic, partition_data=data)]
            request = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)
            answer = ask(connection, ApiKey.PRODUCE, 8, request)
            errors = {entry.error_code for each in answer.responses for entry in each.partition_responses}
            if errors != {0}:
                raise RuntimeError(f"Produce to {topic}: errors {errors}")


def half_http_requests(target: AttackTarget) -> None:
    """300 connections to /metrics that send half a request. Apache Kafka has no HTTP: nothing is done to it."""
    if not target.http_port:
        return
    with contextlib.ExitStack() as stack:
        for _ in range(_HALF_HTTP):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", target.http_port), timeout=5))
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        time.sleep(_HOLD_S)


def nothing(target: AttackTarget) -> None:
    """Nothing is sent: what the others are compared with."""
    time.sleep(_HOLD_S)


def clients_with_certificates(target: AttackTarget) -> None:
    """1 000 clients connect at once, each with its certificate, ask for Metadata, and stay until the last has come."""
    request = codec.module(ApiKey.METADATA).MetadataRequest(topics=[])
    context = ssl.create_default_context(cafile=str(target.tls.trust_store))
    context.load_cert_chain(target.tls.key_store)

    def connect(_: int) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", target.tls_port), timeout=60)
        connection = context.wrap_socket(plain, server_hostname="127.0.0.1")
        ask(connection, ApiKey.METADATA, 1, request)
        return connection

    with ThreadPoolExecutor(_CONNECT_AT_ONCE) as threads, contextlib.ExitStack() as stack:
        for connection in threads.map(connect, range(_CERTIFIED_CLIENTS)):
            stack.enter_context(connection)


def _joined(api_key: ApiKey, version: int, request: object) -> bytes:
    chunks = codec.frame_request(api_key, version, 1, "hostile", request)
    return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]  # no file ranges in a request


ATTACKS: dict[str, Attack] = {
    "nothing": nothing,
    "1 000 clients with certificates connect at once": clients_with_certificates,
    "Fetch of 5 000 different partitions": fetches_of_many_partitions,
    "16 announced lengths of 100 MiB": announced_lengths,
    "2 000 unread answers to DescribeConfigs": unread_answers,
    "10 lookups by time in a batch of 120 000 records": lookups_in_compressed_batches,
    "300 half HTTP requests": half_http_requests,
}
