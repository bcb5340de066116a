"""Long messages are read and written in slices, with the same result as at once."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.primitives import BYTES_PER_SLICE, ELEMENTS_PER_SLICE, NUMBERS_PER_SLICE, TAG_LIMIT

GROUPS = codec.module(ApiKey.DESCRIBE_GROUPS)
OFFSETS = codec.module(ApiKey.OFFSET_FETCH)


def joined(chunks: list[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)


@pytest.mark.parametrize("version", [0, 6])
def test_a_request_of_many_names_is_read_in_slices(version: int) -> None:
    request = GROUPS.DescribeGroupsRequest(groups=["", "group"] * 20_000)
    wire = memoryview(joined(GROUPS.write_request(version, request)))
    *counts, (found, end) = GROUPS.read_request_in_slices(version, wire)
    assert (found, end) == (request, len(wire))
    assert set(counts) == {40_000}, "what is announced is known with the first slice"
    assert len(counts) >= len(wire) // (BYTES_PER_SLICE + 7) - 1


@pytest.mark.parametrize("version", [2, 7])
def test_the_numbers_of_a_list_are_read_in_slices(version: int) -> None:
    numbers = list(range(5 * NUMBERS_PER_SLICE + 3))
    topic = OFFSETS.OffsetFetchRequestTopic(name="t", partition_indexes=numbers)
    request = OFFSETS.OffsetFetchRequest(group_id="g", topics=[topic])
    wire = memoryview(joined(OFFSETS.write_request(version, request)))
    *counts, (found, _) = OFFSETS.read_request_in_slices(version, wire)
    assert found == request
    assert len(counts) >= 5
    assert counts[-1] == 1 + len(numbers) // 8


def test_structs_of_numbers_are_read_in_slices_also_when_one_of_the_last_has_a_tag() -> None:
    offsets = codec.module(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    partitions = [offsets.OffsetForLeaderPartition(partition=number, leader_epoch=number) for number in range(3000)]
    topic = offsets.OffsetForLeaderTopic(topic="t", partitions=partitions)
    request = offsets.OffsetForLeaderEpochRequest(topics=[topic])
    wire = joined(offsets.write_request(4, request))
    *counts, (found, _) = offsets.read_request_in_slices(4, memoryview(wire))
    assert found == request
    assert len(counts) >= len(wire) // (2 * BYTES_PER_SLICE) - 1
    # The tag section of the last partition: three tag sections from the end.
    tagged = wire[:-3] + bytes((1, 9, 1, 0)) + wire[-2:]
    *_, (found, end) = offsets.read_request_in_slices(4, memoryview(tagged))
    assert (found, end) == (request, len(tagged))


@pytest.mark.parametrize("version", [0, 6])
def test_an_answer_of_many_elements_is_written_in_slices(version: int) -> None:
    response = GROUPS.DescribeGroupsResponse(groups=[GROUPS.DescribedGroup(group_id=f"g{n}") for n in range(5000)])
    chunks: list[Any] = []
    sizes = [len(chunks) for _ in GROUPS.write_response_in_slices(version, response, chunks)]
    assert joined(chunks) == joined(GROUPS.write_response(version, response))
    assert len(sizes) >= 5000 // ELEMENTS_PER_SLICE


@pytest.mark.parametrize("count", [TAG_LIMIT, TAG_LIMIT + 1])
def test_a_section_of_more_tags_than_any_message_has_is_refused(count: int) -> None:
    wire = bytes((1, 0)) + codec.module(ApiKey.DESCRIBE_GROUPS).write_uvarint(count) + bytes((99, 0)) * count
    if count <= TAG_LIMIT:
        assert GROUPS.read_request_at(5, memoryview(wire))[1] == len(wire)
        return
    with pytest.raises(codec.DecodeError, match=f"a tag section has {count} tags"):
        GROUPS.read_request(5, memoryview(wire))
