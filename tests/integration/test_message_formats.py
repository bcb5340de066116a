"""Old clients, and topics that convert records: over the wire, against a whole broker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records import formats, legacy
from ottla_broker.records.batch import checksum
from ottla_broker.records.compression import Codec
from ottla_broker.records.record import Record, build_batch
from tests.integration.wire import Wire, batch, create_topic, produce_request

TIMESTAMP = 1_700_000_000_000
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=1) as found:
        yield found


@pytest.fixture
def wire(fleet: RunningCluster) -> Iterator[Wire]:
    with Wire(fleet.address(0)) as found:
        yield found


@pytest.fixture
def topic(fleet: RunningCluster, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own; an indirect parameter gives its configuration."""
    name = f"t{crc32(request.node.name.encode())}"
    create_topic(fleet.address(0), name, **getattr(request, "param", {}))
    return name


def produce(wire: Wire, topic: str, records: bytes | bytearray, *, version: int = 9, acks: int = -1) -> Any:
    response = wire.ask(ApiKey.PRODUCE, version, produce_request(topic, records, acks=acks))
    return response.responses[0].partition_responses[0]


def fetch(
    wire: Wire, topic: str, offset: int = 0, *, version: int = 4, partition_max_bytes: int = 1 << 20, **fields: Any
) -> Any:
    api = codec.module(ApiKey.FETCH)
    request = api.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            api.FetchTopic(
                topic=topic,
                partitions=[
                    api.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
                ],
            )
        ],
        **fields,
    )
    return wire.ask(ApiKey.FETCH, version, request).responses[0].partitions[0]


def decoded(records: bytes) -> list[Record]:
    return [
        record
        for position, header in formats.batches(records)
        for record in formats.decode_batch(records[position : position + header.size])
    ]


def old_set(values: Sequence[bytes], magic: int, compression: Codec = Codec.NONE) -> bytes:
    records = [Record(n, TIMESTAMP + n if magic else -1, b"key %d" % n, value) for n, value in enumerate(values)]
    return legacy.build_message_set(records, magic, codec=compression)


@pytest.mark.parametrize("compression", OLD_CODECS, ids=lambda one: one.name)
@pytest.mark.parametrize(("produce_version", "magic"), [(0, 0), (1, 0), (2, 0), (2, 1)])
def test_what_an_old_producer_sends_every_consumer_reads(
    wire: Wire, topic: str, produce_version: int, magic: int, compression: Codec
) -> None:
    values = [b"a", b"", b"c" * 500]
    produce(wire, topic, batch(b"new"))
    entry = produce(wire, topic, old_set(values, magic, compression), version=produce_version)
    assert (entry.error_code, entry.base_offset) == (0, 1)
    timestamps = [TIMESTAMP + n if magic else -1 for n in range(3)]
    for version in (0, 1, 2, 3, 4, 12):
        found = fetch(wire, topic, 1, version=version)
        assert found.error_code == 0 and found.high_watermark == 4
        stored = bytes(found.records)
        records = [record for record in decoded(stored) if record.offset >= 1]
        assert [(record.offset, record.key, record.value) for record in records] == [
            (1 + n, b"key %d" % n, value) for n, value in enumerate(values)
        ]
        expected_magic = {0: 0, 1: 0, 2: 1, 3: 1}.get(version, 2)
        assert {header.magic for _, header in formats.batches(stored)} == {expected_magic}
        assert [record.timestamp for record in records] == (timestamps if expected_magic else [-1] * 3)
        assert {header.codec for _, header in formats.batches(stored)} == {compression}


@pytest.mark.parametrize("compression", OLD_CODECS, ids=lambda one: one.name)
def test_what_a_new_producer_sends_an_old_consumer_reads(wire: Wire, topic: str, compression: Codec) -> None:
    records = [Record(n, TIMESTAMP + n, b"k", b"v%d" % n, (("h", b"x"),)) for n in range(30)]
    assert produce(wire, topic, build_batch(records, codec=compression)).error_code == 0
    for version in (0, 1, 2, 3):
        found = decoded(bytes(fetch(wire, topic, 0, version=version).records))
        assert found == [
            record._replace(headers=(), timestamp=record.timestamp if version > 1 else -1) for record in records
        ]


def test_a_large_fetch_of_an_old_consumer_goes_through_a_worker_and_comes_in_pieces(wire: Wire, topic: str) -> None:
    values = [b"%06d" % n + bytes(1000) for n in range(9000)]
    for start in range(0, len(values), 500):
        records = [Record(n, TIMESTAMP, None, value) for n, value in enumerate(values[start : start + 500])]
        assert produce(wire, topic, build_batch(records)).error_code == 0
    found: list[Record] = []
    while len(found) < len(values):
        part = bytes(fetch(wire, topic, len(found), version=2, partition_max_bytes=50 << 20).records)
        found += decoded(part)
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(len(values)))


def test_before_version_3_a_message_larger_than_the_limit_comes_cut(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch(bytes(5000)))
    cut = bytes(fetch(wire, topic, 0, version=2, partition_max_bytes=1000).records)
    assert len(cut) == 1000 and int.from_bytes(cut[8:12], "big") > 5000, "the client sees how large it has to be"
    whole = bytes(fetch(wire, topic, 0, version=3, partition_max_bytes=1000, max_bytes=1000).records)
    assert [record.value for record in decoded(whole)] == [bytes(5000)]


def test_from_version_3_on_producers_send_format_2(wire: Wire, topic: str) -> None:
    for version in (3, 7, 9):
        assert produce(wire, topic, old_set([b"a"], 1), version=version).error_code == ErrorCode.INVALID_RECORD
    assert fetch(wire, topic).high_watermark == 0


def test_zstd_is_only_for_clients_that_know_it(fleet: RunningCluster, wire: Wire, topic: str) -> None:
    squeezed = build_batch([Record(0, TIMESTAMP, None, b"v")], codec=Codec.ZSTD)
    assert produce(wire, topic, squeezed, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(wire, topic, squeezed, version=7).error_code == 0
    for version in (0, 3):
        assert fetch(wire, topic, version=version).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert fetch(wire, topic, version=4).error_code == 0
    create_topic(fleet.address(0), "always-zstd", compression_type="zstd")
    assert produce(wire, "always-zstd", batch(b"v"), version=3).error_code == 0
    for version in (0, 4, 9):
        assert fetch(wire, "always-zstd", version=version).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    stored = bytes(fetch(wire, "always-zstd", version=10).records)
    assert [header.codec for _, header in formats.batches(stored)] == [Codec.ZSTD]


@pytest.mark.parametrize("topic", [{"message_downconversion_enable": "false"}], indirect=True)
def test_conversion_for_old_consumers_can_be_switched_off(wire: Wire, topic: str) -> None:
    assert fetch(wire, topic, version=3).error_code == 0  # nothing to convert
    produce(wire, topic, batch(b"v"))
    assert fetch(wire, topic, version=3).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert fetch(wire, topic, version=4).error_code == 0


@pytest.mark.parametrize(
    "topic", [{"compression_type": name} for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd")], indirect=True
)
@pytest.mark.parametrize("source", list(Codec), ids=lambda one: one.name)
@pytest.mark.parametrize("count", [3, 3000])
def test_a_topic_stores_in_the_codec_it_asks_for(
    wire: Wire, topic: str, source: Codec, count: int, request: pytest.FixtureRequest
) -> None:
    asked = request.node.callspec.params["topic"]["compression_type"]
    records = [Record(n, TIMESTAMP + n, b"k", b"value %d" % n) for n in range(count)]
    assert produce(wire, topic, build_batch(records, codec=source)).error_code == 0
    if asked != "zstd":
        assert produce(wire, topic, old_set([b"old"], 1, Codec.GZIP), version=2).error_code == 0
    stored = bytes(fetch(wire, topic, version=10, partition_max_bytes=1 << 24).records)
    name = "none" if asked == "uncompressed" else asked
    assert {Codec(header.codec).name.lower() for _, header in formats.batches(stored)} == {name}
    assert decoded(stored)[:count] == records


@pytest.mark.parametrize("topic", [{"message_timestamp_type": "LogAppendTime"}], indirect=True)
def test_log_append_time_is_the_brokers(wire: Wire, topic: str) -> None:
    before = time.time_ns() // 1_000_000
    entries = [
        produce(wire, topic, batch(b"a", b"b")),
        produce(wire, topic, build_batch([Record(0, -1, None, b"c")], codec=Codec.SNAPPY)),
        produce(wire, topic, old_set([b"d"], 1), version=2),
        produce(wire, topic, old_set([b"e"], 0), version=2),
    ]
    after = time.time_ns() // 1_000_000
    stamps = [entry.log_append_time_ms for entry in entries]
    assert all(entry.error_code == 0 for entry in entries) and before <= stamps[0] and stamps[-1] <= after
    stored = bytes(fetch(wire, topic).records)
    assert all(
        header.has_append_time and formats.is_batch_intact(stored[position : position + header.size], 2)
        for position, header in formats.batches(stored)
    )
    assert [(record.value, record.timestamp) for record in decoded(stored)] == [
        *((b"a", stamps[0]), (b"b", stamps[0]), (b"c", stamps[1]), (b"d", stamps[2]), (b"e", stamps[3]))
    ]
    old = [record.timestamp for record in decoded(bytes(fetch(wire, topic, version=2).records))]
    assert old == [stamps[0], stamps[0], *stamps[1:]]


def test_create_time_answers_no_append_time(wire: Wire, topic: str) -> None:
    assert produce(wire, topic, batch(b"v")).log_append_time_ms == -1


@pytest.mark.parametrize(
    ("topic", "accepted", "refused"),
    [
        ({"message_timestamp_before_max_ms": "60000"}, [0, 10**9, -1], [-120_000]),
        ({"message_timestamp_after_max_ms": "60000"}, [0, -(10**9), -1], [120_000]),
        ({"message_timestamp_difference_max_ms": "60000"}, [0, -1], [-120_000, 120_000]),
        (
            {"message_timestamp_difference_max_ms": "60000", "message_timestamp_before_max_ms": "600000"},
            [-120_000],
            [-900_000, 120_000],
        ),
        ({"message_timestamp_before_max_ms": "1", "message_timestamp_type": "LogAppendTime"}, [-(10**9), 10**9], []),
    ],
    indirect=["topic"],
)
def test_timestamps_out_of_bounds_are_refused_record_by_record(
    wire: Wire, topic: str, accepted: list[int], refused: list[int]
) -> None:
    now = time.time_ns() // 1_000_000

    def at(*offsets: int) -> bytearray:
        return build_batch([Record(n, -1 if off == -1 else now + off, b"k", b"v") for n, off in enumerate(offsets)])

    for offset in accepted:
        assert produce(wire, topic, at(offset)).error_code == 0, offset
    end = fetch(wire, topic).high_watermark
    for offset in refused:
        entry = produce(wire, topic, at(0, offset, 0))
        assert entry.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in entry.record_errors] == [1] and entry.error_message
        entry = produce(wire, topic, at(0, offset, 0), version=7)
        assert entry.error_code == ErrorCode.INVALID_TIMESTAMP and entry.record_errors == []
    assert fetch(wire, topic).high_watermark == end


@pytest.mark.parametrize("topic", [{"max_message_bytes": "1000"}], indirect=True)
def test_size_is_what_is_stored(wire: Wire, topic: str) -> None:
    assert produce(wire, topic, batch(bytes(2000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(wire, topic, old_set([bytes(2000)], 1), version=2).error_code == ErrorCode.MESSAGE_TOO_LARGE
    # Each message fits, but not the batch of format 2 that they become.
    assert produce(wire, topic, old_set([bytes(400)] * 3, 1), version=2).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(wire, topic, old_set([bytes(400)], 1), version=2).error_code == 0


def find_coordinator(wire: Wire) -> None:
    """Asks until it is there, which makes the internal topic."""
    api = codec.module(ApiKey.FIND_COORDINATOR)
    deadline = time.monotonic() + 120
    while wire.ask(ApiKey.FIND_COORDINATOR, 0, api.FindCoordinatorRequest(key="g")).error_code:
        assert time.monotonic() < deadline


def test_clients_do_not_write_to_internal_topics(wire: Wire) -> None:
    find_coordinator(wire)
    entry = produce(wire, "__consumer_offsets", batch(b"v"))
    assert entry.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("topic", [{"compression_type": "gzip"}], indirect=True)
def test_the_order_of_a_connection_holds_through_the_workers(fleet: RunningCluster, wire: Wire, topic: str) -> None:
    """Large ones go to workers, small ones and those that are compressed already do not."""
    sent: list[bytes] = []
    for number in range(60):
        codec_of = (Codec.NONE, Codec.GZIP, Codec.ZSTD)[number % 3]
        count = (1, 400, 30)[number % 4 % 3]
        values = [b"%d/%d" % (number, n) + bytes(50) for n in range(count)]
        sent += values
        records = [Record(n, TIMESTAMP, None, value) for n, value in enumerate(values)]
        whole = build_batch(records, codec=codec_of, producer_id=77, producer_epoch=0, base_sequence=len(sent) - count)
        request = produce_request(topic, whole)
        wire.send(wire.request_bytes(ApiKey.PRODUCE, 9, request))
    expected = 0
    for number in range(60):
        entry = wire.answer(ApiKey.PRODUCE, 9).responses[0].partition_responses[0]
        assert (entry.error_code, entry.base_offset) == (0, expected), number
        expected += (1, 400, 30)[number % 4 % 3]
    found: list[Record] = []
    while len(found) < len(sent):
        found += [r for r in decoded(bytes(fetch(wire, topic, len(found)).records)) if r.offset >= len(found)]
    assert [record.value for record in found] == sent


@pytest.mark.parametrize("topic", [{"compression_type": "gzip"}], indirect=True)
def test_acks_zero_goes_through_the_workers_too(wire: Wire, topic: str) -> None:
    records = [Record(n, TIMESTAMP, None, bytes(100)) for n in range(500)]
    wire.send(wire.request_bytes(ApiKey.PRODUCE, 9, produce_request(topic, build_batch(records), acks=0)))
    assert produce(wire, topic, batch(b"after")).base_offset == 500


@pytest.mark.parametrize("topic", [{"message_timestamp_after_max_ms": "0"}], indirect=True)
def test_acks_zero_with_a_bad_record_closes_the_connection(fleet: RunningCluster, topic: str) -> None:
    for count in (1, 500):
        with Wire(fleet.address(0)) as wire:
            records = [Record(n, 2**45, None, bytes(100)) for n in range(count)]
            wire.send(wire.request_bytes(ApiKey.PRODUCE, 9, produce_request(topic, build_batch(records), acks=0)))
            assert wire.is_closed_by_broker()


def test_all_records_are_checked_where_the_broker_is_told_to() -> None:
    with cluster(brokers=1, config={"ottla.validate.records": "always"}) as strict:
        create_topic(strict.address(0), "t")
        with Wire(strict.address(0)) as wire:
            assert produce(wire, "t", batch(b"v", b"w")).error_code == 0
            spoilt = batch(b"v", b"w")
            spoilt[61] = 0x7F
            spoilt[17:21] = checksum(spoilt).to_bytes(4, "big")
            assert produce(wire, "t", spoilt).error_code == ErrorCode.INVALID_RECORD


def old_offsets(wire: Wire, topic: str, timestamp: int, count: int) -> list[int]:
    api = codec.module(ApiKey.LIST_OFFSETS)
    partition = api.ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
    request = api.ListOffsetsRequest(replica_id=-1, topics=[api.ListOffsetsTopic(name=topic, partitions=[partition])])
    answer = wire.ask(ApiKey.LIST_OFFSETS, 0, request).topics[0].partitions[0]
    assert answer.error_code == 0
    return list(answer.old_style_offsets)


@pytest.mark.parametrize("topic", [{"segment_bytes": "2000"}], indirect=True)
def test_version_0_of_list_offsets_names_segments(wire: Wire, topic: str) -> None:
    assert old_offsets(wire, topic, -1, 9) == [0]
    for number in range(9):
        records = [Record(0, TIMESTAMP + number, None, bytes(600))]
        assert produce(wire, topic, build_batch(records)).error_code == 0
    assert old_offsets(wire, topic, -1, 9) == [9, 8, 6, 4, 2, 0]
    assert old_offsets(wire, topic, -1, 1) == [9]
    assert old_offsets(wire, topic, -2, 9) == [0]
    assert old_offsets(wire, topic, TIMESTAMP + 5, 9) == [4, 2, 0]
    assert old_offsets(wire, topic, TIMESTAMP, 9) == []
    assert old_offsets(wire, topic, -1, 0) == []


def test_groups_are_loaded_from_an_offsets_topic_of_an_old_format(tmp_path: Path) -> None:
    commit, fetching = codec.module(ApiKey.OFFSET_COMMIT), codec.module(ApiKey.OFFSET_FETCH)
    part = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="x")
    with cluster(brokers=1, data=tmp_path, config={"offsets.topic.num.partitions": "1"}) as fleet:
        create_topic(fleet.address(0), "t")
        with Wire(fleet.address(0)) as wire:
            find_coordinator(wire)
            request = commit.OffsetCommitRequest(
                group_id="g", topics=[commit.OffsetCommitRequestTopic(name="t", partitions=[part])]
            )
            deadline = time.monotonic() + 120
            while wire.ask(ApiKey.OFFSET_COMMIT, 2, request).topics[0].partitions[0].error_code:
                assert time.monotonic() < deadline  # the coordinator is loading
        fleet.stop(0)
        (log,) = tmp_path.glob("broker-0/*/__consumer_offsets-0/0*.log")
        log.write_bytes(legacy.build_message_set(decoded(log.read_bytes()), 1, codec=Codec.GZIP))
        for index in log.parent.glob("0*index"):
            index.unlink()
        fleet.start(0)
        with Wire(fleet.address(0)) as wire:
            topic = fetching.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
            deadline = time.monotonic() + 120
            while True:
                found = wire.ask(ApiKey.OFFSET_FETCH, 2, fetching.OffsetFetchRequest(group_id="g", topics=[topic]))
                if not found.error_code:
                    break
                assert time.monotonic() < deadline
        answer = found.topics[0].partitions[0]
        assert (answer.committed_offset, answer.metadata) == (42, "x")


@pytest.mark.parametrize("topic", [{"cleanup_policy": "compact"}], indirect=True)
def test_compacted_topics_take_no_record_without_a_key(wire: Wire, topic: str) -> None:
    for count in (5, 500):
        records = [Record(n, TIMESTAMP, None if n in (1, 3) else b"k", b"v") for n in range(count)]
        for compression in Codec:
            entry = produce(wire, topic, build_batch(records, codec=compression))
            assert entry.error_code == ErrorCode.INVALID_RECORD
            assert [error.batch_index for error in entry.record_errors] == [1, 3]
            assert "without key" in entry.record_errors[0].batch_index_error_message
    assert produce(wire, topic, legacy.build_message_set(records, 1), version=2).error_code == ErrorCode.INVALID_RECORD
    assert fetch(wire, topic).high_watermark == 0
    records = [Record(n, TIMESTAMP, b"k", None) for n in range(500)]
    assert produce(wire, topic, build_batch(records)).base_offset == 0
