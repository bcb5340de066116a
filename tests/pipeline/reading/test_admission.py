"""How many offsets a micro-batch takes under each limit and under several."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla_pipeline.reading.admission import NO_LIMITS, TriggerLimits, admitted, waits
from ottla_pipeline.topic_partition import TopicPartition

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))
START = {FIRST: 10, SECOND: 0, THIRD: 5}
END = {FIRST: 910, SECOND: 100, THIRD: 5}


def test_without_limits_everything_is_taken() -> None:
    assert admitted(NO_LIMITS, START, END, {}) == END
    assert admitted(TriggerLimits(max_offsets=1000), START, END, {}) == END


def test_each_partition_gets_its_share_and_at_least_one_offset() -> None:
    assert admitted(TriggerLimits(max_offsets=100), START, END, {}) == {FIRST: 100, SECOND: 10, THIRD: 5}
    assert admitted(TriggerLimits(max_offsets=1), START, END, {}) == {FIRST: 11, SECOND: 1, THIRD: 5}


def test_bytes_count_as_large_as_the_records_are() -> None:
    sizes = {FIRST: 10.0, SECOND: 90.0}
    assert admitted(TriggerLimits(max_bytes=1800), START, END, sizes) == {FIRST: 100, SECOND: 10, THIRD: 5}
    both = TriggerLimits(max_bytes=1800, max_offsets=50)
    assert admitted(both, START, END, sizes) == {FIRST: 55, SECOND: 5, THIRD: 5}


def test_a_batch_waits_for_enough_records_but_not_for_ever() -> None:
    limits = TriggerLimits(min_offsets=1001, max_delay_ms=500)
    assert waits(limits, START, END, 499)
    assert not waits(limits, START, END, 500)
    assert not waits(TriggerLimits(min_offsets=1000, max_delay_ms=500), START, END, 0)
    assert not waits(NO_LIMITS, START, END, 0)


@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(1, 10**6),
)
def test_whatever_lags_goes_on_and_none_goes_beyond_its_end(
    logs: dict[int, tuple[int, int]], max_offsets: int | None, max_bytes: int | None
) -> None:
    start = {TopicPartition("t", number): begin for number, (begin, _) in logs.items()}
    end = {TopicPartition("t", number): begin + lag for number, (begin, lag) in logs.items()}
    found = admitted(TriggerLimits(max_offsets=max_offsets, max_bytes=max_bytes), start, end, dict.fromkeys(end, 3.5))
    assert found.keys() == end.keys()
    assert all(min(start[one] + 1, end[one]) <= found[one] <= end[one] for one in end)
