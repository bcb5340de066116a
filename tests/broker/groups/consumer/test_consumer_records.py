"""The records of groups of the consumer protocol: golden bytes, their order, and Apache Kafka's own reader."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.local.jars import find_java, kafka_class_path
from ottla_broker.groups.consumer.consumer_records import (
    RecordKey,
    RecordKind,
    changed_keys,
    every_key,
    image_of,
    read_key,
    records_of,
    tombstones_of,
)
from ottla_broker.groups.consumer.group_image import (
    ClassicMetadata,
    ConsumerGroupImage,
    ConsumerMember,
    ResolvedExpression,
    SubscribedTopic,
)
from ottla_broker.groups.consumer.states import MemberState
from ottla_broker.internal_topics.topic_log import StateRecord
from ottla_broker.protocol.generated import group_records as schema
from ottla_broker.records.record import build_batch, build_records

T = bytes(range(16))
MEMBER = ConsumerMember(
    "m",
    None,
    "rack",
    "app",
    "/127.0.0.1",
    60_000,
    ("t",),
    "",
    "range",
    None,
    5,
    4,
    MemberState.UNREVOKED_PARTITIONS,
    {T: frozenset({0, 2})},
    {T: frozenset({1})},
)
CLASSIC = ConsumerMember(
    "c", "i", subscribed_topic_names=("t",), classic=ClassicMetadata(45_000, (("range", b"meta"),))
)
IMAGE = ConsumerGroupImage(
    "g",
    6,
    5,
    {"m": MEMBER, "c": CLASSIC},
    {"m": {T: frozenset({0, 2})}, "c": {}},
    {"t": SubscribedTopic(T, 3)},
    {"t.*": ResolvedExpression(("t",), 9, 1_700_000_000_000)},
)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def compact(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def by_kind(records: list[StateRecord]) -> dict[int, list[StateRecord]]:
    found: dict[int, list[StateRecord]] = {}
    for record in records:
        found.setdefault(struct.unpack_from(">h", record.key)[0], []).append(record)
    return found


def test_each_record_has_the_bytes_of_apache_kafka() -> None:
    found = by_kind(records_of(IMAGE, every_key(IMAGE)))
    group = b"\x00\x03" + text("g")
    assert found[3] == [StateRecord(group, b"\x00\x00" + struct.pack(">i", 6) + b"\x00")]
    topics = b"\x00\x00\x02" + T + compact("t") + struct.pack(">i", 3) + b"\x01\x00\x00"
    assert found[4] == [StateRecord(b"\x00\x04" + text("g"), topics)]
    member = b"\x00\x00\x00" + compact("rack") + compact("app") + compact("/127.0.0.1") + b"\x02" + compact("t")
    member += b"\x01" + struct.pack(">i", 60_000) + compact("range") + b"\x00"
    assert found[5][0] == StateRecord(b"\x00\x05" + text("g") + text("m"), member)
    classic = (
        b"\x00\x00" + compact("i") + b"\x00\x01\x01\x02" + compact("t") + b"\x00" + struct.pack(">i", -1) + b"\x00"
    )
    metadata = b"\x01" + struct.pack(">i", 45_000) + b"\x02" + compact("range") + b"\x05meta\x00\x00"
    assert found[5][1].value == classic + b"\x01\x00" + bytes([len(metadata)]) + metadata
    assert found[6] == [StateRecord(b"\x00\x06" + text("g"), b"\x00\x00" + struct.pack(">i", 5) + b"\x00")]
    target = b"\x00\x00\x02" + T + b"\x03" + struct.pack(">ii", 0, 2) + b"\x00\x00"
    assert found[7][0] == StateRecord(b"\x00\x07" + text("g") + text("m"), target)
    current = b"\x00\x00" + struct.pack(">iib", 5, 4, 1) + b"\x02" + T + b"\x03" + struct.pack(">ii", 0, 2) + b"\x00"
    current += b"\x02" + T + b"\x02" + struct.pack(">i", 1) + b"\x00\x00"
    assert found[8][0] == StateRecord(b"\x00\x08" + text("g") + text("m"), current)
    expression = b"\x00\x00\x02" + compact("t") + struct.pack(">qq", 9, 1_700_000_000_000) + b"\x00"
    assert found[16] == [StateRecord(b"\x00\x10" + text("g") + text("t.*"), expression)]


def test_the_records_give_the_group_back() -> None:
    values = {}
    for record in records_of(IMAGE, every_key(IMAGE)):
        (version,) = struct.unpack_from(">h", record.key)
        group_id, key = read_key(RecordKind(version), memoryview(record.key))
        assert (group_id, record.value is None) == ("g", False)
        values[key] = record.value or b""
    assert image_of("g", values) == IMAGE


def test_a_member_that_leaves_is_removed_before_anything_is_written() -> None:
    after = replace(IMAGE.without_members(["m"]), epoch=7)
    records = records_of(after, changed_keys(IMAGE, after))
    kinds = [(struct.unpack_from(">h", record.key)[0], record.value is None) for record in records]
    assert kinds == [(8, True), (7, True), (5, True), (16, True), (3, False)]


def test_only_what_differs_is_written() -> None:
    after = IMAGE.with_member(replace(MEMBER, member_epoch=6, previous_member_epoch=5))
    assert changed_keys(IMAGE, after) == [RecordKey(RecordKind.CURRENT, "m")]
    after = IMAGE.with_member(replace(MEMBER, rack_id=None))
    assert changed_keys(IMAGE, after) == [RecordKey(RecordKind.MEMBER, "m")]
    assert changed_keys(IMAGE, IMAGE) == []


def test_a_deleted_group_has_a_tombstone_for_every_record() -> None:
    tombstones = tombstones_of("g", every_key(IMAGE))
    assert {record.key for record in tombstones} == {record.key for record in records_of(IMAGE, every_key(IMAGE))}
    assert [struct.unpack_from(">h", record.key)[0] for record in tombstones] == [8, 8, 7, 7, 6, 5, 5, 16, 4, 3]


def test_the_hash_of_topics_that_4_1_writes_is_skipped() -> None:
    """A tagged field of the group's value, in place of record 4 (KIP-1101)."""
    value = b"\x00\x00" + struct.pack(">i", 6) + b"\x01\x00\x08" + struct.pack(">q", 42)
    assert image_of("g", {RecordKey(RecordKind.GROUP): value}).epoch == 6


def test_a_value_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match="GROUP value of version 1"):
        image_of("g", {RecordKey(RecordKind.GROUP): b"\x00\x01"})


def test_a_state_of_a_newer_release_is_unknown() -> None:
    value = schema.ConsumerGroupCurrentMemberAssignmentValue(member_epoch=3, previous_member_epoch=2, state=9)
    blob = b"\x00\x00" + b"".join(schema.write_consumer_group_current_member_assignment_value(0, value))  # type: ignore[arg-type]
    member = image_of("g", {RecordKey(RecordKind.CURRENT, "m"): blob}).members["m"]
    assert (member.state, member.member_epoch) == (MemberState.UNKNOWN, 3)


@pytest.mark.java
def test_kafkas_own_tool_reads_the_records(tmp_path: Path) -> None:
    """DumpLogSegments of 3.9.1 with its decoder for `__consumer_offsets`; it does not know expressions (16)."""
    keys = [key for key in every_key(IMAGE) if key.kind is not RecordKind.EXPRESSION]
    records = [*records_of(IMAGE, keys), *tombstones_of("g", keys)]
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(build_batch(build_records(records, 1_700_000_000_000)))
    command = [find_java(), "-cp", kafka_class_path(), "kafka.tools.DumpLogSegments"]
    dumped = subprocess.run(
        [*command, "--files", str(segment), "--offsets-decoder"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    lines = [line for line in dumped.splitlines() if "payload:" in line or "key:" in line]
    assert len(lines) == len(records), dumped
    assert "malformed" not in dumped.lower()
    for part in ('"epoch":6', '"topicName":"t"', '"serverAssignor":"range"', '"assignmentEpoch":5', '"memberEpoch":5'):
        assert part in dumped, part
    assert '"sessionTimeoutMs":45000' in dumped
