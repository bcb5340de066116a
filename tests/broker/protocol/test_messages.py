"""Every message in every version: round trips with ourselves, and bytes that are no message."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated import fetch, list_offsets, metadata, produce, update_metadata
from tests.broker.protocol.messages import FEW_EXAMPLES, Case, drawn, messages


@pytest.mark.parametrize("versions", messages())
@FEW_EXAMPLES
@given(data=st.data())
def test_what_is_written_is_read_back(versions: list[Case], data: st.DataObject) -> None:
    for case, value in drawn(data, versions):
        wire = case.write(value)
        back, end = case.read(wire)
        assert end == len(wire)
        assert back == value
        assert case.write(back) == wire


@pytest.mark.parametrize("versions", messages())
@FEW_EXAMPLES
@given(data=st.data())
def test_a_truncated_or_corrupted_message_is_a_message_or_a_decode_error(
    versions: list[Case], data: st.DataObject
) -> None:
    for case, value in drawn(data, versions):
        wire = case.write(value)
        dice = random.Random(len(wire))
        for end in sorted(dice.sample(range(len(wire)), min(len(wire), 12))):
            with pytest.raises(codec.DecodeError):
                case.read(wire[:end])
        for _ in range(12 if wire else 0):
            garbled = bytearray(wire)
            for _ in range(dice.randint(1, 4)):
                garbled[dice.randrange(len(garbled))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            _message_or_decode_error(case, bytes(garbled))


@pytest.mark.parametrize("versions", messages())
def test_random_bytes_are_a_message_or_a_decode_error(versions: list[Case]) -> None:
    for case in versions:
        dice = random.Random(case.version)
        for _ in range(60):
            size = dice.choice((0, 1, 2, 3, 5, 8, 13, 40, 200))
            _message_or_decode_error(case, dice.randbytes(size))
            _message_or_decode_error(case, bytes(dice.choice((0, 0, 0, 1, 2, 255)) for _ in range(size)))


@pytest.mark.parametrize("version", [8, 12])  # a length of two bytes, a compact one
def test_a_string_has_at_most_32767_bytes_in_every_version(version: int) -> None:
    def asking_for(name: str) -> metadata.MetadataRequest:
        return metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)])

    longest = asking_for("t" * 32_767)
    wire = b"".join(metadata.write_request(version, longest))
    assert metadata.read_request(version, memoryview(wire)) == longest
    with pytest.raises(codec.EncodeError):
        metadata.write_request(version, asking_for("t" * 32_768))


def test_a_longer_string_is_refused_although_a_compact_length_can_announce_it() -> None:
    """As Apache Kafka does. Only flexible versions have the length for it; null stays null."""
    count, length_plus_1, rest = b"\2", b"\x81\x80\2", bytes(4)
    wire = count + bytes(16) + length_plus_1 + b"t" * 32_768 + rest
    with pytest.raises(codec.DecodeError, match=r"topics\[\]\.name has the length 32768, .*at most 32767"):
        metadata.read_request(12, memoryview(wire))


def _message_or_decode_error(case: Case, wire: bytes) -> None:
    try:
        _, end = case.read(wire)
    except codec.DecodeError as error:
        assert case.message.name in str(error)
    else:
        assert end <= len(wire)


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, -2, -(2**31)])
def test_a_hostile_count_is_refused_before_anything_is_allocated(count: int) -> None:
    wire = count.to_bytes(4, "big", signed=True) + bytes(64)
    tracemalloc.start()
    try:
        with pytest.raises(codec.DecodeError, match="topics"):
            metadata.read_request(1, memoryview(wire))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("wire", "complaint"),
    [
        ("ffff", "truncated"),
        ("fffe 0001 00000000 00000000", "transactional_id has the length -2"),
        ("ffff 0001 00000000 00000001 ffff 00000000", r"topic_data\[\].name is null"),
        ("ffff 0001 00000000 00000001 0002 c328 00000000", "garbled"),
        ("ffff 0001 00000000 00000001 0001 41 00000001 00000000 fffffffe", "records has the length -2"),
        ("ffff 0001 00000000 00000001 0001 41 00000001 00000000 00000005 0102", "truncated"),
        ("ffff 0001 00000000 ffffffff", "topic_data is null"),
    ],
)
def test_a_decode_error_names_the_field(wire: str, complaint: str) -> None:
    with pytest.raises(codec.DecodeError, match=f"ProduceRequest v3: .*{complaint}"):
        produce.read_request(3, memoryview(bytes.fromhex(wire)))


def test_a_variable_length_integer_of_six_bytes_is_refused() -> None:
    with pytest.raises(codec.DecodeError, match="variable-length"):
        metadata.read_request(9, memoryview(b"\xff\xff\xff\xff\xff\x01" + bytes(20)))
    with pytest.raises(codec.DecodeError, match="32 bits"):
        metadata.read_request(9, memoryview(b"\xff\xff\xff\xff\x7f" + bytes(20)))


def test_records_are_a_slice_of_the_frame() -> None:
    frame = bytearray(
        b"".join(
            produce.write_request(
                9,
                produce.ProduceRequest(
                    acks=-1,
                    topic_data=[
                        produce.TopicProduceData(
                            name="t", partition_data=[produce.PartitionProduceData(index=4, records=b"abc" * 999)]
                        )
                    ],
                ),
            )
        )
    )
    records = produce.read_request(9, memoryview(frame)).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview) and records.obj is frame and records.nbytes == 2997


def _tag(number: int, payload: bytes) -> bytes:
    return bytes((number, len(payload))) + payload


def test_unknown_tags_are_skipped_everywhere() -> None:
    request = list_offsets.ListOffsetsRequest(
        topics=[
            list_offsets.ListOffsetsTopic(
                name="t",
                partitions=[
                    list_offsets.ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(3)
                ],
            )
        ]
    )
    wire = b"".join(list_offsets.write_request(6, request))
    assert wire[-3:] == b"\0\0\0"
    one, two = _tag(3, b"later"), _tag(90, b"")
    tagged = wire[:-3] + b"\1" + one + b"\2" + one + two + b"\1" + two
    assert list_offsets.read_request_at(6, memoryview(tagged)) == (request, len(tagged))
    with pytest.raises(codec.DecodeError):
        list_offsets.read_request(6, memoryview(tagged[:-1]))


def test_a_known_tag_of_another_size_is_refused() -> None:
    wire = b"".join(fetch.write_request(12, fetch.FetchRequest(cluster_id="abc")))
    at = wire.index(b"\1\0\4\4abc")
    assert fetch.read_request(12, memoryview(wire)).cluster_id == "abc"
    with pytest.raises(codec.DecodeError, match="cluster_id"):
        fetch.read_request(12, memoryview(wire[:at] + b"\1\0\5\4abcd"))


def test_a_tagged_value_equal_to_its_default_is_not_sent() -> None:
    bare = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=[fetch.PartitionData()])])
    spelled_out = fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                partitions=[
                    fetch.PartitionData(
                        diverging_epoch=fetch.EpochEndOffset(),
                        current_leader=fetch.LeaderIdAndEpoch(),
                        snapshot_id=fetch.SnapshotId(),
                    )
                ]
            )
        ],
        node_endpoints=[],
    )
    assert fetch.write_response(16, bare) == fetch.write_response(16, spelled_out)


@pytest.mark.parametrize(
    ("version", "request_", "field"),
    [
        (2, produce.ProduceRequest(transactional_id="t"), "transactional_id"),
        (3, produce.ProduceRequest(topic_data=None), "topic_data"),
    ],
)
def test_a_value_that_the_version_cannot_carry_is_refused(version: int, request_: Any, field: str) -> None:
    with pytest.raises(codec.EncodeError, match=f"ProduceRequest v{version}: {field}"):
        produce.write_request(version, request_)


def test_an_ignorable_value_is_dropped_in_versions_without_it() -> None:
    response = metadata.MetadataResponse(cluster_id="c", controller_id=3, throttle_time_ms=9)
    assert metadata.read_response(0, b"".join(metadata.write_response(0, response))) == metadata.MetadataResponse()


@pytest.mark.parametrize("value", [2**31, "x", None])
def test_a_value_of_the_wrong_type_or_size_is_an_encode_error(value: Any) -> None:
    with pytest.raises(codec.EncodeError, match="MetadataResponse v1"):
        metadata.write_response(1, metadata.MetadataResponse(controller_id=value))


def test_a_version_that_is_not_defined_is_refused_on_both_sides() -> None:
    for version in (-1, 9):
        with pytest.raises(codec.UnsupportedVersionError, match="6 version"):
            update_metadata.read_request(version, memoryview(bytes(100)))
        with pytest.raises(codec.UnsupportedVersionError):
            update_metadata.write_request(version, update_metadata.UpdateMetadataRequest())


def test_messages_compare_by_value_and_show_their_fields() -> None:
    one, other = fetch.FetchTopic(topic="a"), fetch.FetchTopic(topic="a")
    assert one == other and one is not other
    other.partitions.append(fetch.FetchPartition(partition=1))
    assert one != other and one != "a"
    assert repr(one) == f"FetchTopic(topic='a', topic_id={bytes(16)!r}, partitions=[])"
    with pytest.raises(TypeError):
        fetch.FetchTopic(tpoic="a")
    with pytest.raises(AttributeError):
        one.tpoic = "a"


def test_modules_are_imported_on_first_use_and_named_by_key() -> None:
    assert codec.module(ApiKey.FETCH) is fetch
    assert codec.spec(ApiKey.FETCH) == codec.spec(1)
    assert (codec.spec(1).name, codec.spec(1).min_version, codec.spec(1).max_version) == ("Fetch", 0, 18)
    with pytest.raises(KeyError):
        codec.spec(ApiKey.VOTE)
