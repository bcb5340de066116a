"""The records of `__consumer_offsets`: golden bytes, every readable version, and Apache Kafka's own readers."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.local.jars import find_java, kafka_class_path
from ottla_broker.groups.decisions import GroupSnapshot, MemberSnapshot
from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.groups.records import (
    GroupKey,
    OffsetKey,
    UnknownRecordVersion,
    group_key,
    group_record,
    group_tombstone,
    offset_key,
    offset_record,
    offset_tombstone,
    read_group_value,
    read_key,
    read_offset_value,
)
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import build_batch, build_records

ORDERS = TopicPartition("orders", 3)
SUBSCRIPTION = bytes.fromhex("0001000000010006") + b"orders" + bytes.fromhex("ffffffff00000000")
ASSIGNMENT = bytes.fromhex("0001000000010006") + b"orders" + bytes.fromhex("0000000100000003ffffffff")
MEMBER = MemberSnapshot("c-1", None, "c", "/127.0.0.1", 45_000, 300_000, SUBSCRIPTION, ASSIGNMENT)
STATIC = MemberSnapshot("i-2", "i", "c", "/10.0.0.7", 10_000, 60_000, SUBSCRIPTION, b"")
GROUP = GroupSnapshot("g", "consumer", 7, "range", "c-1", 1_700_000_000_123, (MEMBER, STATIC))
EMPTY = GroupSnapshot("g", "consumer", 8, None, None, 1_700_000_000_456, ())


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def data(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def test_an_offset_is_written_as_key_1_and_value_3() -> None:
    record = offset_record("g", ORDERS, CommittedOffset(42, 5, "note", 1_700_000_000_000))
    assert record.key == b"\x00\x01" + text("g") + text("orders") + struct.pack(">i", 3)
    assert record.value == b"\x00\x03" + struct.pack(">qi", 42, 5) + text("note") + struct.pack(">q", 1_700_000_000_000)


def test_an_offset_with_an_expiry_of_its_own_is_written_as_value_1() -> None:
    record = offset_record("g", ORDERS, CommittedOffset(42, 5, "", 1_700_000_000_000, 1_700_000_009_000))
    times = struct.pack(">qq", 1_700_000_000_000, 1_700_000_009_000)
    assert record.value == b"\x00\x01" + struct.pack(">q", 42) + text("") + times
    assert read_offset_value(record.value) == CommittedOffset(42, -1, "", 1_700_000_000_000, 1_700_000_009_000)


def test_a_group_is_written_as_key_2_and_value_3() -> None:
    record = group_record(GROUP)
    assert record.key == b"\x00\x02" + text("g")
    expected = b"\x00\x03" + text("consumer") + struct.pack(">i", 7) + text("range") + text("c-1")
    expected += struct.pack(">qi", 1_700_000_000_123, 2)
    expected += text("c-1") + b"\xff\xff" + text("c") + text("/127.0.0.1") + struct.pack(">ii", 300_000, 45_000)
    expected += data(SUBSCRIPTION) + data(ASSIGNMENT)
    expected += text("i-2") + text("i") + text("c") + text("/10.0.0.7") + struct.pack(">ii", 60_000, 10_000)
    expected += data(SUBSCRIPTION) + data(b"")
    assert record.value == expected


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    expected = b"\x00\x03" + text("consumer") + struct.pack(">i", 8) + b"\xff\xff\xff\xff"
    assert group_record(EMPTY).value == expected + struct.pack(">qi", 1_700_000_000_456, 0)


def test_tombstones_have_a_key_alone() -> None:
    assert offset_tombstone("g", ORDERS) == (offset_key("g", ORDERS), None)
    assert group_tombstone("g") == (group_key("g"), None)


def test_what_is_written_is_read() -> None:
    for snapshot in (GROUP, EMPTY):
        record = group_record(snapshot)
        assert record.value is not None
        assert read_key(record.key) == GroupKey("g")
        assert read_group_value("g", record.value) == snapshot


def test_values_of_older_and_newer_versions_are_read() -> None:
    assert read_key(b"\x00\x00" + text("g") + text("orders") + struct.pack(">i", 3)) == OffsetKey("g", ORDERS)
    oldest = b"\x00\x00" + struct.pack(">q", 42) + text("m") + struct.pack(">q", 99)
    assert read_offset_value(oldest) == CommittedOffset(42, -1, "m", 99)
    without_expiry = b"\x00\x02" + struct.pack(">q", 42) + text("m") + struct.pack(">q", 99)
    assert read_offset_value(without_expiry) == CommittedOffset(42, -1, "m", 99)
    flexible = b"\x00\x04" + struct.pack(">qi", 42, 5) + b"\x02m" + struct.pack(">q", 99) + b"\x00"
    assert read_offset_value(flexible) == CommittedOffset(42, 5, "m", 99)
    member = text("c-1") + text("c") + text("/h") + struct.pack(">i", 45_000) + data(b"s") + data(b"a")
    oldest = b"\x00\x00" + text("consumer") + struct.pack(">i", 7) + text("range") + text("c-1")
    oldest += struct.pack(">i", 1) + member
    expected = MemberSnapshot("c-1", None, "c", "/h", 45_000, 45_000, b"s", b"a")
    assert read_group_value("g", oldest) == GroupSnapshot("g", "consumer", 7, "range", "c-1", -1, (expected,))


def test_what_is_not_ours_is_told_apart() -> None:
    assert read_key(b"\x00\x0b" + text("a share group of KIP-932")) is None
    with pytest.raises(UnknownRecordVersion):
        read_offset_value(b"\x00\x05")
    with pytest.raises(UnknownRecordVersion):
        read_group_value("g", b"\x00\x05")


@given(
    st.text(max_size=20),
    st.text(max_size=20),
    st.integers(0, 2**31 - 1),
    st.builds(
        CommittedOffset,
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        st.text(max_size=50),
        st.integers(0, 2**62),
        st.just(-1),
    ),
)
def test_any_offset_survives_the_round_trip(group: str, topic: str, partition: int, commit: CommittedOffset) -> None:
    name = TopicPartition(topic, partition)
    record = offset_record(group, name, commit)
    assert record.value is not None
    assert read_key(record.key) == OffsetKey(group, name)
    assert read_offset_value(record.value) == commit


@pytest.mark.java
def test_apache_kafka_reads_our_segment(tmp_path: Path) -> None:
    """DumpLogSegments with its decoder for `__consumer_offsets`, over a segment file with our batches."""
    records = [
        offset_record("g", ORDERS, CommittedOffset(42, 5, "note", 1_700_000_000_000)),
        offset_record("g", ORDERS, CommittedOffset(43, 5, "", 1_700_000_000_000, 1_700_000_009_000)),
        group_record(GROUP),
        offset_tombstone("g", ORDERS),
        group_record(EMPTY),
        group_tombstone("g"),
    ]
    segment = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    with segment.open("wb") as file:
        for number, record in enumerate(records):
            file.write(build_batch(build_records([record], 1_700_000_000_000 + number, number), leader_epoch=0))
    command = [find_java(), "-cp", kafka_class_path(), "kafka.tools.DumpLogSegments"]
    command += ["--deep-iteration", "--offsets-decoder", "--files", str(segment)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("|")]
    assert len(lines) == len(records)
    assert result.stdout.count("isvalid: true") == len(records)

    def part(line: str, name: str) -> object:
        _, found, rest = line.partition(f"{name}: ")
        assert found, line
        return json.JSONDecoder().raw_decode(rest)[0] if rest.startswith("{") else rest.strip()

    def payload(line: str) -> object:
        return part(line, "payload")

    assert part(lines[0], "key") == {"type": "1", "data": {"group": "g", "topic": "orders", "partition": 3}}
    assert payload(lines[0]) == {
        "version": "3",
        "data": {"offset": 42, "leaderEpoch": 5, "metadata": "note", "commitTimestamp": 1_700_000_000_000},
    }
    assert payload(lines[1]) == {
        "version": "1",
        "data": {
            "offset": 43,
            "metadata": "",
            "commitTimestamp": 1_700_000_000_000,
            "expireTimestamp": 1_700_000_009_000,
        },
    }
    assert part(lines[2], "key") == {"type": "2", "data": {"group": "g"}}
    stored = payload(lines[2])
    assert isinstance(stored, dict)
    assert stored["version"] == "3"
    assert (stored["data"]["protocol"], stored["data"]["generation"], stored["data"]["leader"]) == ("range", 7, "c-1")
    assert [member["groupInstanceId"] for member in stored["data"]["members"]] == [None, "i"]
    assert [payload(lines[3]), payload(lines[5])] == ["<DELETE>", "<DELETE>"]
