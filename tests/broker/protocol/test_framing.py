"""Headers and frames around messages."""

from __future__ import annotations

import contextlib
import random
import struct

import pytest

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import headers

EVERY_API = [pytest.param(spec, id=spec.name) for spec in codec.defined()]


def versions(spec: codec.ApiSpec) -> range:
    return range(spec.min_version, spec.max_version + 1)


def joined(chunks: list[codec.Chunk]) -> memoryview:
    return memoryview(b"".join(chunks))  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", EVERY_API)
def test_a_framed_request_gives_its_header_and_body_back(spec: codec.ApiSpec) -> None:
    module = codec.module(spec.api_key)
    request = getattr(module, f"{spec.name}Request")()
    for version in versions(spec):
        wire = joined(codec.frame_request(spec.api_key, version, 77, "cliänt", request))
        assert int.from_bytes(wire[:4], "big") == len(wire) - 4, version
        header = codec.read_request_header(wire[4:])
        assert (header.api_key, header.api_version, header.correlation_id) == (spec.api_key, version, 77)
        assert header.client_id == (None if spec.request_header_version(version) == 0 else "cliänt"), version
        body = module.read_request_at(version, wire[4:], header.body_offset)
        assert body == (request, len(wire) - 4), version


@pytest.mark.parametrize("spec", EVERY_API)
def test_a_framed_response_gives_correlation_id_and_body_back(spec: codec.ApiSpec) -> None:
    response = getattr(codec.module(spec.api_key), f"{spec.name}Response")()
    for version in versions(spec):
        wire = joined(codec.frame_response(spec.api_key, version, 78, response))
        assert int.from_bytes(wire[:4], "big") == len(wire) - 4, version
        assert codec.read_response_frame(spec.api_key, version, wire[4:]) == (78, response), version


@pytest.mark.parametrize("spec", EVERY_API)
def test_the_request_header_is_the_one_of_the_definition(spec: codec.ApiSpec) -> None:
    request = getattr(codec.module(spec.api_key), f"{spec.name}Request")()
    for version in versions(spec):
        header_version = spec.request_header_version(version)
        for client_id in (None, "", "a client"):
            defined = headers.RequestHeader(
                request_api_key=spec.api_key, request_api_version=version, correlation_id=5, client_id=client_id
            )
            if header_version == 0:
                defined.client_id = ""
            wire = joined(codec.frame_request(spec.api_key, version, 5, client_id, request))
            assert headers.read_request_header_at(header_version, wire, 4)[0] == defined, (version, client_id)


def test_the_header_of_an_api_versions_response_never_has_a_tag_section() -> None:
    api_versions = codec.module(ApiKey.API_VERSIONS)
    wire = joined(codec.frame_response(ApiKey.API_VERSIONS, 3, 1, api_versions.ApiVersionsResponse()))
    assert wire[4:10].hex() == "000000010000"


@pytest.mark.parametrize(("api_key", "version"), [(18, 99), (18, -1), (999, 0), (-1, 3), (0, 99)])
def test_a_header_of_an_unknown_api_or_version_is_read(api_key: int, version: int) -> None:
    frame = memoryview(b"".join(n.to_bytes(s, "big", signed=True) for n, s in ((api_key, 2), (version, 2), (9, 4))))
    with pytest.raises(codec.UnsupportedVersionError) as caught:
        codec.read_request_header(frame)
    assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (api_key, version, 9)


def test_a_header_cut_off_anywhere_is_a_decode_error() -> None:
    fetch = codec.module(ApiKey.FETCH)
    wire = joined(codec.frame_request(ApiKey.FETCH, 12, 5, "client", fetch.FetchRequest()))[4:]
    body = codec.read_request_header(wire).body_offset
    for end in range(body):
        with pytest.raises(codec.DecodeError):
            codec.read_request_header(wire[:end])
    for end in range(5):
        with pytest.raises(codec.DecodeError):
            codec.read_response_frame(ApiKey.FETCH, 12, wire[:end])


def test_random_bytes_are_a_header_or_a_decode_error() -> None:
    dice = random.Random(3)
    for number in range(4000):
        key, version = dice.choice((0, 1, 3, 7, 18, dice.randrange(-5, 80))), dice.randrange(-2, 20)
        frame = memoryview(struct.pack(">hh", key, version) + dice.randbytes(dice.choice((0, 1, 4, 6, 8, 30))))
        try:
            header = codec.read_request_header(frame)
        except codec.DecodeError:
            continue
        assert (header.api_key, header.api_version) == (key, version), number
        assert 8 <= header.body_offset <= len(frame)
    for _ in range(2000):
        frame = memoryview(dice.randbytes(dice.randrange(30)))
        with contextlib.suppress(codec.DecodeError):
            codec.read_response_frame(ApiKey.METADATA, dice.randrange(13), frame)


class Range:
    """The disk port's FileRange as the writer sees it."""

    def __init__(self, length: int) -> None:
        self.length = length


def test_records_become_chunks_without_a_copy() -> None:
    fetch = codec.module(ApiKey.FETCH)
    records, file_range = memoryview(bytes(100_000)), Range(3_000_000)
    response = fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic="t",
                partitions=[
                    fetch.PartitionData(partition_index=0, records=records),
                    fetch.PartitionData(partition_index=1, records=[file_range, b"tail"]),
                    fetch.PartitionData(partition_index=2, records=None),
                    fetch.PartitionData(partition_index=3, records=b""),
                ],
            )
        ]
    )
    chunks = codec.frame_response(ApiKey.FETCH, 12, 1, response)
    assert [type(chunk) for chunk in chunks] == [bytes, memoryview, bytes, Range, bytes, bytes]
    assert chunks[1] is records and chunks[3] is file_range
    total = 100_000 + 3_000_000 + sum(len(chunk) for chunk in chunks if isinstance(chunk, bytes))
    assert int.from_bytes(chunks[0][:4], "big") == total - 4  # type: ignore[index]


def test_every_error_code_has_a_message_and_says_whether_it_is_retriable() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 129))
    assert all(code.message.endswith(".") for code in ErrorCode)
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER and ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.MESSAGE_TOO_LARGE.retriable is False
