"""What a log holds of message formats 0 and 1, alone and before batches of format 2."""

from __future__ import annotations

import pytest

from ottla_broker.records.conversion import down_convert
from ottla_broker.records.errors import CorruptBatch, UnsupportedMessageFormat
from ottla_broker.records.record import Record, build_batch
from ottla_pipeline.reading import old_formats
from ottla_pipeline.reading.columns import Wanted, choose, columns

RECORDS = [Record(offset, 1000 + offset, b"k%d" % offset, b"v%d" % offset) for offset in range(5)]
ALL = Wanted("t", 3, 0, 100)


def batch(records: list[Record], magic: int = 2) -> bytes:
    found = bytes(build_batch(records))
    return found if magic == 2 else bytes(down_convert(found, magic, 0, 1 << 20).data)


@pytest.mark.parametrize(("magic", "kind"), [(0, -1), (1, 0)])
def test_old_messages_are_rows(magic: int, kind: int) -> None:
    answer = batch(RECORDS, magic)
    with pytest.raises(UnsupportedMessageFormat):
        choose(answer, ALL, [])
    found = old_formats.rows(answer, Wanted("t", 3, 1, 4, with_headers=True))
    assert found.next_offset == 4
    rows = [row for part in found.batches for row in part.to_pylist()]
    assert [(row["offset"], row["key"], row["value"], row["timestampType"]) for row in rows] == [
        (offset, b"k%d" % offset, b"v%d" % offset, kind) for offset in (1, 2, 3)
    ]
    times = [row["timestamp"].timestamp() for row in rows]
    assert times == ([-0.001] * 3 if magic == 0 else [1.001, 1.002, 1.003])
    assert {(row["topic"], row["partition"], row["headers"]) for row in rows} == {("t", 3, None)}


def test_old_messages_end_where_format_2_begins_and_the_other_way_round() -> None:
    old, new = batch(RECORDS[:2], 1), batch(RECORDS[2:])
    assert old_formats.rows(old + new, ALL).next_offset == 2
    chosen = choose(new + batch([Record(5, 1, None, b"x" * 100)], 1), ALL, [])
    assert chosen.next_offset == 5
    assert sum(part.num_rows for part in columns(new, chosen, ALL)) == 3


def test_a_part_of_a_message_is_fetched_again_and_a_broken_one_is_an_error() -> None:
    answer = batch(RECORDS[:1], 1)
    assert old_formats.rows(answer[:-1], ALL) == old_formats.OldRows([], 0)
    with pytest.raises(CorruptBatch, match="the checksum of the message at offset 0"):
        old_formats.rows(answer[:-1] + b"!", ALL)
