"""The offset index and the time index."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.storage.files.indexes import (
    GrowingIndex,
    MappedIndex,
    entry_count,
    floor_of_timestamp,
    last_time_entry,
)


@st.composite
def index_entries(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    """(base offset, [(first offset, last offset, position)])"""
    base = draw(st.integers(0, 2**40))
    offset, position = base, 0
    entries = []
    for _ in range(draw(st.integers(0, 30))):
        first = offset + draw(st.integers(0, 5))
        last = first + draw(st.integers(0, 9))
        position += draw(st.integers(1, 5000))
        entries.append((first, last, position))
        offset = last + 1
    return base, entries


@given(index_entries(), st.integers(0, 500), st.integers(0, 3))
def test_an_index_finds_the_last_entry_at_or_below_an_offset(
    drawn: tuple[int, list[tuple[int, int, int]]], distance: int, zeros: int
) -> None:
    base, entries = drawn
    growing = GrowingIndex(base)
    for first, last, position in entries:
        growing.add(first, last, position)
    written = bytes(growing.unwritten_offset_entries)
    assert len(written) == 8 * len(entries)
    offset = base + distance
    preallocated = written + bytes(8 * zeros * 7)
    mapped = MappedIndex(memoryview(preallocated), base)
    expected = max([(base, 0)] + [(last, position) for _, last, position in entries if last <= offset])
    assert mapped.floor(offset) == expected
    assert GrowingIndex(base, preallocated).floor(offset) == expected
    expected = max([(base, 0)] + [(first, position) for first, _, position in entries if first <= offset])
    assert growing.floor(offset)[1] == expected[1]


def test_an_index_ignores_a_torn_last_entry_and_a_tail_of_zeros() -> None:
    index = GrowingIndex(0)
    index.add(5, 9, 4200)
    data = bytes(index.unwritten_offset_entries)
    assert entry_count(data + data[:3], 8) == 1
    assert entry_count(data + bytes(80), 8) == 1
    assert entry_count(bytes(80), 8) == 0
    assert entry_count(b"", 8) == 0


def test_a_time_index_is_sorted_and_bounds_the_records_before_an_entry() -> None:
    index = GrowingIndex(100)
    index.add_time(-1, 100)
    index.add_time(1000, 110)
    index.add_time(900, 120)
    index.add_time(2000, 130)
    data = bytes(index.unwritten_time_entries)
    assert len(data) == 24
    assert last_time_entry(data, 100) == (2000, 130) == index.last_time
    for timestamp, offset in ((500, 100), (1000, 100), (1001, 110), (2000, 110), (2001, 130)):
        assert floor_of_timestamp(data, 100, timestamp) == offset
        assert index.floor_of_timestamp(timestamp) == offset
