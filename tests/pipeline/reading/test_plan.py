"""Which offsets are read, in how many tasks: the rules, against a cluster that is three dictionaries."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_pipeline.errors import DataLoss, OptionError, PipelineError, UnknownTopic
from ottla_pipeline.reading.offset_range import OffsetRange
from ottla_pipeline.reading.options import parse
from ottla_pipeline.reading.plan import plan
from ottla_pipeline.reading.splitting import split
from ottla_pipeline.topic_partition import EARLIEST, LATEST, TopicLayout, TopicPartition


class Topics:
    """Two topics: t with offsets 10 to 110 and 0 to 50, u without records. Record n of a partition has time 1000 n."""

    LOGS = {TopicPartition("t", 0): (10, 110), TopicPartition("t", 1): (0, 50), TopicPartition("u", 0): (5, 5)}

    def layout_of(self, topics: Sequence[str] | None) -> Mapping[str, TopicLayout]:
        found: dict[str, list[int]] = {}
        for topic, partition in self.LOGS:
            if topics is None or topic in topics:
                found.setdefault(topic, []).append(partition)
        return {topic: TopicLayout(topic.encode() * 16, tuple(numbers)) for topic, numbers in found.items()}

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for partition, timestamp in timestamps.items():
            start, end = self.LOGS[partition]
            if timestamp in (EARLIEST, LATEST):
                found[partition] = start if timestamp == EARLIEST else end
            else:
                offset = max(start, -(-timestamp // 1000))
                found[partition] = offset if offset < end else -1
        return found


def ranges(**options: str) -> list[tuple[str, int, int]]:
    given_options = {"kafka.bootstrap.servers": "b:1", **options}
    return [(str(r.partition), r.start, r.end) for r in plan(parse(given_options), Topics(), "b:1")]


def test_a_partition_whose_end_is_open_is_a_task_though_it_is_empty_now() -> None:
    assert ranges(subscribe="t,u") == [("t-0", 10, 110), ("t-1", 0, 50), ("u-0", 5, 5)]
    assert ranges(subscribe="t,u", minPartitions="4")[-1] == ("t-1", 0, 50)
    found = plan(parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}), Topics(), "b:1")
    assert {(r.start_at, r.end_at, r.topic_id) for r in found} == {(EARLIEST, LATEST, b"t" * 16)}
    split_up = plan(parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "minPartitions": "3"}), Topics(), "b:1")
    assert [r.end_at for r in split_up] == [None, LATEST, LATEST]


def test_ranges_that_were_planned_before_are_left_out() -> None:
    found = plan(
        parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t,u"}), Topics(), "b:1", but={TopicPartition("t", 0)}
    )
    assert [str(r.partition) for r in found] == ["t-1", "u-0"]


def test_an_ending_offset_behind_the_end_is_named_or_cut() -> None:
    ends = '{"t": {"0": 111, "1": 50}}'
    with pytest.raises(OptionError, match="option endingOffsets: 111 for t-0 lies behind the end of its log, 110"):
        ranges(subscribe="t", endingOffsets=ends)
    assert ranges(subscribe="t", endingOffsets=ends, failOnDataLoss="false") == [("t-0", 10, 110), ("t-1", 0, 50)]


def test_an_ending_time_of_minus_1_is_the_latest_offset() -> None:
    ends = '{"t": {"0": -1, "1": 20000}}'
    assert ranges(subscribe="t", endingOffsetsByTimestamp=ends) == [("t-0", 10, 110), ("t-1", 0, 20)]


def test_each_partition_is_one_task() -> None:
    assert ranges(subscribe="t") == [("t-0", 10, 110), ("t-1", 0, 50)]
    assert ranges(subscribePattern="^[a-t]$") == [("t-0", 10, 110), ("t-1", 0, 50)]
    assert ranges(subscribePattern="nothing") == []
    assert ranges(assign='{"t": [1]}') == [("t-1", 0, 50)]


def test_offsets_and_times_bound_the_ranges() -> None:
    assert ranges(subscribe="t", startingOffsets='{"t": {"0": 100, "1": -2}}') == [("t-0", 100, 110), ("t-1", 0, 50)]
    assert ranges(subscribe="t", endingOffsets='{"t": {"0": 20, "1": -1}}') == [("t-0", 10, 20), ("t-1", 0, 50)]
    assert ranges(subscribe="t", startingTimestamp="40000", endingTimestamp="45001") == [
        ("t-0", 40, 46), ("t-1", 40, 46),
    ]  # fmt: skip
    # Nothing is as young as the ending time: to the end.
    assert ranges(subscribe="t", endingTimestamp="60000") == [("t-0", 10, 60), ("t-1", 0, 50)]
    by_time = '{"t": {"0": 100000, "1": 1}}'
    assert ranges(subscribe="t", startingOffsetsByTimestamp=by_time) == [("t-0", 100, 110), ("t-1", 1, 50)]


def test_a_starting_time_that_no_record_reaches_is_an_error_or_the_end() -> None:
    with pytest.raises(OptionError, match="option startingTimestamp: t-1 has no record at or after 60000"):
        ranges(subscribe="t", startingTimestamp="60000")
    assert ranges(subscribe="t", startingTimestamp="60000", startingOffsetsByTimestampStrategy="latest") == [
        ("t-0", 60, 110), ("t-1", 50, 50),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"subscribe": "t,nope"}, UnknownTopic, "option subscribe: topic 'nope' does not exist at b:1"),
        ({"assign": '{"nope": [0]}'}, UnknownTopic, "option assign: topic 'nope' does not exist at b:1"),
        ({"assign": '{"t": [0, 7]}'}, UnknownTopic, "option assign: topic 't' has no partition 7 at b:1, it has 2"),
        (
            {"subscribe": "t", "startingOffsets": '{"t": {"0": 1}}'},
            OptionError, "option startingOffsets: must name every partition that is read; t-1 is missing",
        ),
        (
            {"subscribe": "t", "endingOffsets": '{"t": {"0": 1, "1": 1}, "u": {"0": 1}}'},
            OptionError, "option endingOffsets: names u-0, which is not read",
        ),
        (
            {"subscribe": "t", "endingOffsets": '{"t": {"0": 5, "1": 5}}'},
            DataLoss, "t-0: the starting offset 10 is greater than the ending offset 5",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_said(options: dict[str, str], error: type[PipelineError], message: str) -> None:
    with pytest.raises(error) as raised:
        ranges(**options)
    assert message in str(raised.value)


def test_with_data_loss_allowed_a_range_before_the_log_is_left_out() -> None:
    assert ranges(subscribe="t", endingOffsets='{"t": {"0": 5, "1": 5}}', failOnDataLoss="false") == [("t-1", 0, 5)]


def test_long_ranges_are_split_first() -> None:
    assert ranges(subscribe="t", minPartitions="3") == [("t-0", 10, 60), ("t-0", 60, 110), ("t-1", 0, 50)]
    ends = '{"t": {"0": 110, "1": -1}}'
    assert ranges(subscribe="t", maxRecordsPerPartition="50", endingOffsets=ends) == [
        ("t-0", 10, 60), ("t-0", 60, 110), ("t-1", 0, 50),
    ]  # fmt: skip
    # As in the stock connector, a range without an explicit end does not count as long.
    assert ranges(subscribe="t", maxRecordsPerPartition="50") == [("t-0", 10, 110), ("t-1", 0, 50)]
    assert ranges(subscribe="t", minPartitions="2") == [("t-0", 10, 110), ("t-1", 0, 50)]


@given(
    st.lists(st.integers(min_value=1, max_value=1000), min_size=1, max_size=8),
    st.none() | st.integers(min_value=1, max_value=50),
    st.none() | st.integers(min_value=1, max_value=300),
)
def test_pieces_lie_side_by_side_and_lose_nothing(sizes: list[int], least: int | None, most: int | None) -> None:
    whole = [OffsetRange(TopicPartition("t", number), 7, 7 + size) for number, size in enumerate(sizes)]
    pieces = split(whole, least, most)
    assert all(piece.size > 0 for piece in pieces)
    if most is not None:
        assert max(piece.size for piece in pieces) <= most
    for found in whole:
        parts = [piece for piece in pieces if piece.partition == found.partition]
        assert (parts[0].start, parts[-1].end) == (found.start, found.end)
        assert all(before.end == after.start for before, after in itertools.pairwise(parts))
