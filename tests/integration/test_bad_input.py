"""Invalid requests: they get Kafka's error or a closed connection and one log line, and affect no other client."""

from __future__ import annotations

import logging
import os
import random
import struct
from collections.abc import Iterator

import crc32c
import psutil
import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.batch import HEADER_BYTES
from ottla_broker.records.compression import Codec
from tests.integration.wire import Wire, batch, create_topic, produce_request


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=1) as found:
        create_topic(found.address(0), "t")
        yield found


@pytest.fixture
def bystander(fleet: RunningCluster) -> Iterator[Wire]:
    """A connection that must go on working whatever the test does on another."""
    with Wire(fleet.address(0)) as wire:
        assert_served(wire)
        yield wire
        assert_served(wire)


def assert_served(wire: Wire) -> None:
    response = wire.ask(ApiKey.PRODUCE, 9, produce_request("t", batch(b"still here")))
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def api_versions() -> object:
    return codec.module(ApiKey.API_VERSIONS).ApiVersionsRequest(
        client_software_name="test", client_software_version="1"
    )


def closings(caplog: pytest.LogCaptureFixture, peer: str) -> list[str]:
    """What the broker's server says of this client. It may still have to say something of those of other tests."""
    return [r.getMessage() for r in caplog.records if f"{peer} " in r.getMessage() and r.name == "ottla.server"]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", 2**31 - 1), id="a length of 2 GiB"),
        pytest.param(struct.pack(">i", -1), id="a negative length"),
        pytest.param(struct.pack(">ihhih", 10, 9999, 0, 1, -1), id="an unknown API key"),
        pytest.param(struct.pack(">ihhih", 10, 0, 99, 1, -1), id="a version out of range"),
        pytest.param(struct.pack(">ihhih", 10, 0, -3, 1, -1), id="a negative version"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="a frame shorter than a header"),
        pytest.param(struct.pack(">i", 0), id="an empty frame"),
        pytest.param(struct.pack(">ihhih", 10, 3, 4, 1, 30000), id="a client id beyond the frame"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1), id="an array of two thousand million"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600), id="TLS"),
    ],
)
def test_nonsense_closes_the_connection_with_one_line(
    fleet: RunningCluster, bystander: Wire, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    caplog.set_level(logging.INFO, logger="ottla")
    with Wire(fleet.address(0)) as wire:
        host, port = wire.socket.getsockname()
        wire.send(data)
        assert wire.is_closed_by_broker()
    assert_served(bystander)  # the loop has turned since
    found = closings(caplog, f"{host}:{port}")
    assert len(found) == 1, found


def test_a_frame_cut_off_by_the_client_is_forgotten(fleet: RunningCluster, bystander: Wire) -> None:
    with Wire(fleet.address(0)) as wire:
        whole = wire.request_bytes(ApiKey.PRODUCE, 9, produce_request("t", batch(b"cut")))
        wire.send(whole[:-5])
    assert_served(bystander)


def test_an_unknown_version_of_api_versions_is_answered_with_what_is_known(fleet: RunningCluster) -> None:
    with Wire(fleet.address(0)) as wire:
        wire.send(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 77, 5, -1))
        frame = wire.frame()
        assert frame is not None
        _, response = codec.read_response_frame(ApiKey.API_VERSIONS, 0, memoryview(frame))
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(a.api_key, a.max_version) for a in response.api_keys] == [(ApiKey.API_VERSIONS, 4)]
        assert wire.ask(ApiKey.API_VERSIONS, 3, api_versions()).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda b: b[:17] + bytes([b[17] ^ 1]) + b[18:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:16] + b"\x01" + b[17:], ErrorCode.INVALID_RECORD),
        (lambda b: b[:-4], ErrorCode.INVALID_RECORD),
        (lambda b: b"", ErrorCode.INVALID_RECORD),
        (lambda b: b + b, ErrorCode.INVALID_RECORD),
    ],
    ids=["wrong CRC", "flipped byte", "old format", "cut off", "empty", "two batches"],
)
def test_a_bad_batch_gets_kafkas_error_and_is_not_stored(
    fleet: RunningCluster, bystander: Wire, spoil: object, expected: ErrorCode
) -> None:
    good = bytes(batch(b"a value", b"another"))
    assert callable(spoil)
    with Wire(fleet.address(0)) as wire:
        before = end_offset(wire)
        response = wire.ask(ApiKey.PRODUCE, 9, produce_request("t", spoil(good)))
        assert ErrorCode.of(response.responses[0].partition_responses[0].error_code) is expected
        assert end_offset(wire) == before


@pytest.mark.parametrize(
    ("records", "expected", "is_told"),
    [
        (batch(b"x", producer_id=77, producer_epoch=0, base_sequence=5), ErrorCode.NONE, True),
        (batch(b"x", producer_id=77, producer_epoch=0, base_sequence=9), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
        (batch(b"x", attributes=0x20), ErrorCode.INVALID_RECORD, True),
        (batch(b"x") * 2, ErrorCode.INVALID_RECORD, False),
        (batch(b"x")[:-1] + b"y", ErrorCode.CORRUPT_MESSAGE, False),
    ],
    ids=["stored", "out of order", "control batch", "two batches", "wrong CRC"],
)
def test_most_refusals_tell_where_the_log_starts(
    fleet: RunningCluster, records: bytes, expected: ErrorCode, is_told: bool
) -> None:
    """A producer that nobody knows any more asks itself whether its records were deleted (KIP-360)."""
    with Wire(fleet.address(0)) as wire:
        response = wire.ask(ApiKey.PRODUCE, 9, produce_request("t", records))
        (answer,) = response.responses[0].partition_responses
        assert ErrorCode.of(answer.error_code) is expected
        assert answer.log_start_offset == (0 if is_told else -1)


def test_a_name_of_the_greatest_length_is_refused_with_an_error_that_quotes_it(fleet: RunningCluster) -> None:
    api = codec.module(ApiKey.DESCRIBE_CONFIGS)
    name = "a" * 32_767
    request = api.DescribeConfigsRequest(resources=[api.DescribeConfigsResource(resource_type=2, resource_name=name)])
    for version in (0, 4):
        with Wire(fleet.address(0)) as wire:
            (result,) = wire.ask(ApiKey.DESCRIBE_CONFIGS, version, request).results
            assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert result.error_message.endswith("...")


def test_acks_that_do_not_exist_are_refused(fleet: RunningCluster) -> None:
    with Wire(fleet.address(0)) as wire:
        response = wire.ask(ApiKey.PRODUCE, 9, produce_request("t", batch(b"x"), acks=2))
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_an_error_with_acks_0_closes_the_connection(fleet: RunningCluster, bystander: Wire) -> None:
    with Wire(fleet.address(0)) as wire:
        wire.send(wire.request_bytes(ApiKey.PRODUCE, 9, produce_request("no-such-topic", batch(b"x"), acks=0)))
        assert wire.is_closed_by_broker()


def test_a_frame_may_be_split_at_every_byte(fleet: RunningCluster) -> None:
    with Wire(fleet.address(0)) as wire:
        whole = wire.request_bytes(ApiKey.PRODUCE, 9, produce_request("t", batch(b"split")))
        for position in range(1, len(whole)):
            with Wire(fleet.address(0)) as other:
                other.send(whole[:position])
                other.send(whole[position:])
                response = other.answer(ApiKey.PRODUCE, 9)
                assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        for byte in whole:
            wire.send(bytes([byte]))
        assert wire.answer(ApiKey.PRODUCE, 9).responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_random_bytes_never_disturb_anybody(fleet: RunningCluster, bystander: Wire) -> None:
    generator = random.Random(20260101)
    for _ in range(200):
        with Wire(fleet.address(0)) as wire:
            body = generator.randbytes(generator.randrange(200))
            if generator.random() < 0.7:  # a plausible header in front of nonsense
                api_key = generator.choice([0, 1, 2, 3, 8, 9, 10, 11, 18, 19, 32, 44])
                body = struct.pack(">hhi", api_key, generator.randrange(12), 1) + body
            wire.send(struct.pack(">i", len(body)) + body)
    assert_served(bystander)


def test_a_client_that_never_reads_costs_bounded_memory(fleet: RunningCluster, bystander: Wire) -> None:
    """It asks for far more than it takes; the broker stops reading from it."""
    with Wire(fleet.address(0)) as producer:
        big = batch(os.urandom(900_000))
        for _ in range(20):
            response = producer.ask(ApiKey.PRODUCE, 9, produce_request("t", big))
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    api = codec.module(ApiKey.FETCH)
    request = api.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=50_000_000,
        topics=[
            api.FetchTopic(
                topic="t",
                partitions=[api.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)],
            )
        ],
    )
    process = psutil.Process()
    before = process.memory_info().rss
    with Wire(fleet.address(0), receive_buffer=4096) as wire:
        wire.socket.settimeout(0.5)
        frame = wire.request_bytes(ApiKey.FETCH, 11, request)
        sent = 0
        try:
            for _ in range(200_000):
                wire.send(frame)
                sent += 1
        except TimeoutError:
            pass
        assert sent < 200_000, "the broker kept reading from a client that does not read"
        assert_served(bystander)
        assert process.memory_info().rss - before < 64 * 2**20


def end_offset(wire: Wire) -> int:
    api = codec.module(ApiKey.LIST_OFFSETS)
    response = wire.ask(
        ApiKey.LIST_OFFSETS,
        5,
        api.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                api.ListOffsetsTopic(name="t", partitions=[api.ListOffsetsPartition(partition_index=0, timestamp=-1)])
            ],
        ),
    )
    offset: int = response.topics[0].partitions[0].offset
    return offset


def unreadable(kind: Codec) -> bytes:
    """A batch with a right header and checksum, whose records nobody can read."""
    found = batch(b"v" * 200, codec=kind)
    found[HEADER_BYTES:] = b"\xfb" * (len(found) - HEADER_BYTES)
    found[17:21] = struct.pack(">I", crc32c.crc32c(bytes(found[21:])))
    return bytes(found)


@pytest.mark.parametrize("timestamp", [5, -3], ids=["a time", "the largest timestamp"])
@pytest.mark.parametrize("kind", Codec, ids=lambda kind: kind.name)
def test_a_lookup_in_records_that_nobody_can_read_is_an_error_and_one_line(
    fleet: RunningCluster, bystander: Wire, caplog: pytest.LogCaptureFixture, kind: Codec, timestamp: int
) -> None:
    """What a client has stored is no bug of the broker: no traceback."""
    topic = f"unreadable-{kind.name}{timestamp}"
    create_topic(fleet.address(0), topic)
    api = codec.module(ApiKey.LIST_OFFSETS)
    wanted = api.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = api.ListOffsetsRequest(topics=[api.ListOffsetsTopic(name=topic, partitions=[wanted])])
    with Wire(fleet.address(0)) as wire:
        stored = wire.ask(ApiKey.PRODUCE, 9, produce_request(topic, unreadable(kind)))
        assert stored.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        with caplog.at_level(logging.INFO, "ottla"):
            answer = wire.ask(ApiKey.LIST_OFFSETS, 9, request)
    assert answer.topics[0].partitions[0].error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    lines = [record for record in caplog.records if topic in record.getMessage()]
    assert [(line.levelno, line.exc_info) for line in lines] == [(logging.WARNING, None)], caplog.text
