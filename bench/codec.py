"""Speed of the codec beside kio: `python -m bench.codec [--rounds N]`.

Both alternate, round by round, in one process; the table shows the median time of one call and the spread over the
rounds in µs. The two goals are ratios: decode of a Fetch v12 request with 50 partitions at most 2 times kio's (its
reader is native code), encode of the response with 50 partitions at most 0.1 times. With --check the exit status is 1
when a goal is missed.
"""

from __future__ import annotations

import argparse
import gc
import io
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from kio.serial import entity_reader, entity_writer

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey

PARTITIONS = 50
RECORDS_BYTES = 1000


class Duel(NamedTuple):
    """One message, encoded or decoded by both."""

    name: str
    ours: Callable[[], object]
    kio: Callable[[], object]
    goal: float | None
    """Largest ratio ours / kio, None where there is no goal."""


class Result(NamedTuple):
    """Times of one call in µs, one per round."""

    duel: Duel
    ours: list[float]
    kio: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.kio)


def fetch_request() -> Any:
    """What a consumer of 50 partitions of one topic asks for."""
    fetch = codec.module(ApiKey.FETCH)
    partitions = [
        fetch.FetchPartition(
            partition=number, current_leader_epoch=3, fetch_offset=123_456_789 + number, partition_max_bytes=1048576
        )
        for number in range(PARTITIONS)
    ]
    return fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        topics=[fetch.FetchTopic(topic="flights", partitions=partitions)],
    )


def fetch_response() -> Any:
    """The answer with one small batch in every partition."""
    fetch = codec.module(ApiKey.FETCH)
    records = memoryview(bytes(RECORDS_BYTES))
    partitions = [
        fetch.PartitionData(
            partition_index=number,
            high_watermark=123_456_790 + number,
            last_stable_offset=123_456_790 + number,
            log_start_offset=0,
            aborted_transactions=None,
            records=records,
        )
        for number in range(PARTITIONS)
    ]
    return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic="flights", partitions=partitions)])


def produce_request() -> Any:
    """One batch of 16 kB to one partition."""
    produce = codec.module(ApiKey.PRODUCE)
    data = produce.PartitionProduceData(index=0, records=bytes(16384))
    topic = produce.TopicProduceData(name="flights", partition_data=[data])
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def metadata_response() -> Any:
    """A fleet of 3 brokers and 10 topics of 12 partitions."""
    metadata = codec.module(ApiKey.METADATA)
    brokers = [metadata.MetadataResponseBroker(node_id=number, host="127.0.0.1", port=9092) for number in range(3)]
    partitions = [
        metadata.MetadataResponsePartition(
            partition_index=number, leader_id=0, leader_epoch=4, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )
        for number in range(12)
    ]
    topics = [
        metadata.MetadataResponseTopic(name=f"topic-{number}", topic_id=bytes(15) + b"\1", partitions=partitions)
        for number in range(10)
    ]
    return metadata.MetadataResponse(brokers=brokers, cluster_id="x", controller_id=0, topics=topics)


def decoding(name: str, api_key: ApiKey, version: int, kind: str, message: Any, goal: float | None = None) -> Duel:
    """Decode `message` (kind `request` or `response`); checks first that kio reads all of it."""
    module = codec.module(api_key)
    wire = b"".join(getattr(module, f"write_{kind}")(version, message))
    view = memoryview(wire)
    read = getattr(module, f"read_{kind}")
    schema = kio_schema(api_key, version, kind)
    read_kio = entity_reader(schema)
    if read_kio(wire, 0)[1] != len(wire) or read(version, view) != message:
        raise AssertionError(f"{name}: the two do not read the same")
    return Duel(name, lambda: read(version, view), lambda: read_kio(wire, 0), goal)


def encoding(name: str, api_key: ApiKey, version: int, kind: str, message: Any, goal: float | None = None) -> Duel:
    """Encode `message`: ours to chunks for the socket, kio's to a stream; checks first that the bytes are equal."""
    module = codec.module(api_key)
    write = getattr(module, f"write_{kind}")
    wire = b"".join(write(version, message))
    schema = kio_schema(api_key, version, kind)
    theirs, _ = entity_reader(schema)(wire, 0)
    write_kio = entity_writer(schema)

    def kio() -> bytes:
        with io.BytesIO() as stream:
            write_kio(stream, theirs)
            return stream.getvalue()

    if kio() != wire:
        raise AssertionError(f"{name}: the two do not write the same")
    return Duel(name, lambda: write(version, message), kio, goal)


def kio_schema(api_key: ApiKey, version: int, kind: str) -> Any:
    """kio's class of a message."""
    name = codec.spec(api_key)
    return getattr(import_module(f"kio.schema.{name.module_name}.v{version}.{kind}"), name.name + kind.capitalize())


def duels() -> list[Duel]:
    """What is measured."""
    fetch, produce, metadata = ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.METADATA
    return [
        decoding("decode Fetch v12 request, 50 partitions", fetch, 12, "request", fetch_request(), 2.0),
        encoding("encode Fetch v12 response, 50 partitions", fetch, 12, "response", fetch_response(), 0.1),
        decoding("decode Fetch v12 response, 50 partitions", fetch, 12, "response", fetch_response()),
        encoding("encode Fetch v12 request, 50 partitions", fetch, 12, "request", fetch_request()),
        decoding("decode Produce v9 request, 16 kB", produce, 9, "request", produce_request()),
        decoding("decode Produce v3 request, 16 kB", produce, 3, "request", produce_request()),
        encoding("encode Metadata v12 response, 120 partitions", metadata, 12, "response", metadata_response()),
    ]


def time_per_call(call: Callable[[], object], seconds: float) -> float:
    """Mean time of one call in µs over about `seconds`."""
    started = time.perf_counter()
    call()
    calls = max(1, int(seconds / max(time.perf_counter() - started, 1e-7)))
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls * 1e6


def measure(duel: Duel, rounds: int, seconds: float) -> Result:
    """Alternating rounds, after one that does not count; without the cycle collector, which both would trigger."""
    result = Result(duel, [], [])
    gc.disable()
    try:
        for number in range(rounds + 1):
            ours, kio = time_per_call(duel.ours, seconds), time_per_call(duel.kio, seconds)
            if number:
                result.ours.append(ours)
                result.kio.append(kio)
    finally:
        gc.enable()
    return result


def spread(times: list[float]) -> str:
    """Median and range, for the table."""
    return f"{statistics.median(times):8.2f} ({min(times):.2f} - {max(times):.2f})"


def main() -> int:
    """Measure, print the table, and with --check judge the goals."""
    parser = argparse.ArgumentParser(description="speed of the codec beside kio")
    parser.add_argument("--rounds", type=int, default=9, help="counted rounds (default 9)")
    parser.add_argument("--seconds", type=float, default=0.05, help="length of one round (default 0.05)")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a goal is missed")
    options = parser.parse_args()
    missed = 0
    print(f"{'':46}{'ours, µs':>26}{'kio, µs':>30}{'ratio':>8}{'goal':>7}")
    for duel in duels():
        result = measure(duel, options.rounds, options.seconds)
        goal = "" if duel.goal is None else f"{duel.goal:.1f}"
        print(f"{duel.name:46}{spread(result.ours):>26}{spread(result.kio):>30}{result.ratio:8.3f}{goal:>7}")
        missed += duel.goal is not None and result.ratio > duel.goal
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
