"""The batches of a stream: what Spark asks for in turn, against a cluster that is a few dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ottla_pipeline.errors import DataLoss, OptionError, PipelineError, UnknownTopic
from ottla_pipeline.reading.options import parse_stream
from ottla_pipeline.reading.stream_offsets import from_json, to_json
from ottla_pipeline.reading.stream_planner import StreamPlanner
from ottla_pipeline.topic_partition import EARLIEST, LATEST, TopicLayout, TopicPartition
from ottla_pipeline.wire.group_progress import Committed

A, B = (TopicPartition("t", number) for number in range(2))


class Store:
    """The committed offsets of a group."""

    def __init__(self, kept: dict[TopicPartition, Committed]) -> None:
        self._kept = kept

    def fetch(self) -> Mapping[TopicPartition, Committed]:
        return dict(self._kept)

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        self._kept.update(offsets)


class World:
    """A cluster with logs that a test changes, a group, a clock, and Spark's calls as functions."""

    def __init__(self) -> None:
        self.logs = {A: (0, 100), B: (0, 50)}
        self.ids = {"t": b"1" * 16}
        self.group: dict[TopicPartition, Committed] = {}
        self.stored: dict[TopicPartition, Committed] = {}
        self.now_ms = 0.0
        self.pauses = 0

    def layout_of(self, topics: Sequence[str] | None) -> Mapping[str, TopicLayout]:
        found: dict[str, list[int]] = {}
        for topic, number in self.logs:
            if topics is None or topic in topics:
                found.setdefault(topic, []).append(number)
        return {topic: TopicLayout(self.ids[topic], tuple(sorted(numbers))) for topic, numbers in found.items()}

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        assert set(timestamps.values()) <= {EARLIEST, LATEST}
        return {one: self.logs[one][0 if time == EARLIEST else 1] for one, time in timestamps.items()}

    def planner(self, **options: str) -> StreamPlanner:
        checked = parse_stream({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **options})

        def pause() -> None:
            self.pauses += 1

        group, store = (Store(kept) if checked.group_id else None for kept in (self.group, self.stored))
        sizes = dict.fromkeys(self.logs, 10.0)
        return StreamPlanner(
            checked, self, group, store, sizes=lambda _: sizes, clock_ms=lambda: self.now_ms, pause=pause
        )  # fmt: skip


def ranges(planner: StreamPlanner, start: Any, end: Any) -> list[tuple[str, int, int]]:
    return [(str(found.partition), found.start, found.end) for found in planner.ranges(start, end)]


def test_a_stream_from_the_earliest_reads_all_and_then_what_comes() -> None:
    world = World()
    planner = world.planner(startingOffsets="earliest")
    first = planner.initial()
    end = planner.latest(first)
    assert (first, end) == ({A: 0, B: 0}, {A: 100, B: 50})
    assert ranges(planner, planner.initial(), end) == [("t-0", 0, 100), ("t-1", 0, 50)]
    assert planner.latest(end) == end
    world.logs[A] = (0, 110)
    assert ranges(planner, end, planner.latest(end)) == [("t-0", 100, 110)]


def test_the_beginning_at_the_latest_is_in_the_checkpoint_before_anything_is_read() -> None:
    world = World()
    planner = world.planner()
    first = planner.initial()
    world.logs[A] = (0, 120)  # comes between the two questions
    assert planner.latest(first) == first == {A: 100, B: 50}
    # The process ends in the first batch. Spark has its end, and asks for the beginning again.
    world.logs[B] = (0, 60)
    again = world.planner()
    assert ranges(again, again.initial(), first) == []
    assert ranges(again, first, again.latest(first)) == [("t-0", 100, 120), ("t-1", 50, 60)]


def test_a_beginning_that_is_asked_for_again_does_not_hold_up_what_comes() -> None:
    world = World()
    planner = world.planner()
    first = planner.initial()
    assert planner.latest(first) == first
    assert ranges(planner, planner.initial(), first) == []
    world.logs[A] = (0, 101)
    assert planner.latest(first) == {A: 101, B: 50}


def test_available_now_ends_where_the_logs_ended() -> None:
    world = World()
    planner = world.planner(startingOffsets="earliest", maxOffsetsPerTrigger="90", minOffsetsPerTrigger="80")
    planner.freeze()
    world.logs = {A: (0, 1000), B: (0, 50), TopicPartition("t", 2): (0, 5)}
    found = [planner.initial()]
    while (end := planner.latest(found[-1])) != found[-1]:
        found.append(dict(end))
    assert found[-1] == {A: 100, B: 50, TopicPartition("t", 2): 0} or found[-1] == {A: 100, B: 50}
    assert len(found) == 3
    late = world.planner()
    late.freeze()
    world.logs[A] = (0, 2000)
    first = late.initial()
    assert late.latest(first) == first == late.latest(first)


def test_all_limits_count_at_once() -> None:
    world = World()
    planner = world.planner(
        startingOffsets="earliest", maxOffsetsPerTrigger="75", maxBytesPerTrigger="300", minOffsetsPerTrigger="20",
        maxTriggerDelay="5s",
    )  # fmt: skip
    end = planner.latest(planner.initial())
    assert end == {A: 20, B: 10}
    world.logs = {A: (0, 29), B: (0, 20)}
    assert planner.latest(end) == end  # 19 records are not enough yet
    world.now_ms = 5000
    assert planner.latest(end) == {A: 29, B: 20}
    world.logs = {A: (0, 1000), B: (0, 1000)}
    assert planner.latest(end, unlimited=True) == {A: 1000, B: 1000}


def test_partitions_that_come_are_read_from_their_first_record() -> None:
    world = World()
    planner = world.planner(startingOffsets="earliest")
    end = planner.latest(planner.initial())
    new = TopicPartition("t", 2)
    world.logs[new] = (0, 7)
    found = planner.latest(end)
    assert found == {A: 100, B: 50, new: 7}
    assert ranges(planner, end, found) == [("t-2", 0, 7)]
    world.logs[TopicPartition("t", 3)] = (4, 7)
    with pytest.raises(DataLoss, match="t-3 is new, and its log begins at offset 4 instead of 0"):
        planner.latest(found)


def test_topics_come_and_go_under_a_pattern() -> None:
    world = World()
    options = {"subscribePattern": "^[tu]$", "startingOffsets": "earliest"}

    def planner(**more: str) -> StreamPlanner:
        found = parse_stream({"kafka.bootstrap.servers": "b:1", **options, **more})
        return StreamPlanner(found, world, None, None, sizes=lambda _: {}, clock_ms=lambda: 0, pause=lambda: None)

    strict, lenient = planner(), planner(failOnDataLoss="false")
    end = strict.latest(strict.initial())
    assert lenient.latest(lenient.initial()) == end
    other = TopicPartition("u", 0)
    world.logs[other] = (0, 3)
    world.ids["u"] = b"2" * 16
    end = strict.latest(end)
    assert lenient.latest(end) == end == {A: 100, B: 50, other: 3}
    del world.logs[other]
    with pytest.raises(DataLoss, match="u-0 does not exist any more; with failOnDataLoss=false the query goes on"):
        strict.latest(end)
    assert lenient.latest(end) == {A: 100, B: 50}
    assert ranges(lenient, end, {A: 100, B: 50}) == []


def test_a_topic_created_again_is_data_loss_though_its_log_is_longer() -> None:
    world = World()
    strict = world.planner(startingOffsets="earliest")
    lenient = world.planner(startingOffsets="earliest", failOnDataLoss="false")
    end = strict.latest(strict.initial())
    lenient.latest(lenient.initial())
    world.logs, world.ids = {A: (0, 500), B: (0, 10)}, {"t": b"2" * 16}
    with pytest.raises(DataLoss, match="topic 't' was deleted and created again"):
        strict.latest(end)
    found = lenient.latest(end)
    assert ranges(lenient, end, found) == [("t-0", 0, 500), ("t-1", 0, 10)]
    assert lenient.latest(found) == found


def test_a_group_remembers_the_topic_between_two_runs() -> None:
    world = World()
    planner = world.planner(startingOffsets="earliest", groupId="g")
    first = planner.initial()
    end = planner.latest(first)
    assert len(planner.ranges(first, end)) == 2
    assert world.group == {}
    assert planner.latest(end) == end
    assert world.group == {A: Committed(100, ""), B: Committed(50, "")}
    assert world.planner(groupId="g").latest(end) == end
    world.logs, world.ids = {A: (0, 500), B: (0, 60)}, {"t": b"2" * 16}
    with pytest.raises(DataLoss, match="topic 't' was deleted and created again"):
        world.planner(groupId="g").latest(end)
    with pytest.raises(DataLoss, match="topic 't' was deleted and created again"):
        world.planner(groupId="g").ranges(end, {A: 500, B: 60})
    lenient = world.planner(groupId="g", failOnDataLoss="false")
    found = lenient.latest(end)
    assert ranges(lenient, end, found) == [("t-0", 0, 500), ("t-1", 0, 60)]
    assert world.planner(groupId="g").latest(found) == found


def test_a_batch_that_is_planned_again_begins_again_where_a_topic_created_again_begins() -> None:
    world = World()
    planner = world.planner(startingOffsets="earliest", failOnDataLoss="false")
    end = planner.latest(planner.initial())
    world.logs, world.ids = {A: (0, 500), B: (0, 10)}, {"t": b"2" * 16}
    found = planner.latest(end)
    whole = [("t-0", 0, 500), ("t-1", 0, 10)]
    assert ranges(planner, end, found) == whole == ranges(planner, end, found)
    world.logs[A] = (0, 510)
    assert ranges(planner, found, planner.latest(found)) == [("t-0", 500, 510)]


def test_a_batch_that_is_planned_again_by_another_process_begins_where_a_topic_created_again_begins() -> None:
    world = World()
    lenient = {"groupId": "g", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    planner = world.planner(**lenient)
    first = planner.initial()
    end = planner.latest(first)
    assert len(planner.ranges(first, end)) == 2
    world.logs, world.ids = {A: (0, 500), B: (0, 10)}, {"t": b"2" * 16}
    found = planner.latest(end)
    whole = [("t-0", 0, 500), ("t-1", 0, 10)]
    assert ranges(planner, end, found) == whole
    # The process is killed before Spark has the batch in its commit log.
    assert ranges(world.planner(**lenient), end, found) == whole == ranges(world.planner(**lenient), end, found)
    with pytest.raises(DataLoss, match="topic 't' was deleted and created again"):
        world.planner(groupId="g").ranges(end, found)
    # It is in the commit log: the new topic is the one that is read from here on, also by a process that begins now.
    world.logs[A] = (0, 510)
    strict = world.planner(groupId="g")
    assert ranges(strict, found, strict.latest(found)) == [("t-0", 500, 510)]


def test_brokers_that_give_no_ids_until_an_upgrade_have_created_no_topic_again() -> None:
    world = World()
    world.ids = {"t": bytes(16)}
    planner = world.planner(startingOffsets="earliest", groupId="g")
    first = planner.initial()
    end = planner.latest(first)
    assert len(planner.ranges(first, end)) == 2
    assert planner.latest(end) == end
    world.ids, world.logs[A] = {"t": b"1" * 16}, (0, 110)
    assert planner.latest(end) == {A: 110, B: 50} == world.planner(groupId="g").latest(end)


def test_a_log_that_ends_before_what_was_read_is_data_loss() -> None:
    world = World()
    end = {A: 100, B: 50}
    world.logs[A] = (0, 30)
    with pytest.raises(DataLoss, match="t-0 was read up to offset 100, and its log ends at 30"):
        world.planner().latest(end)
    assert world.pauses == 3
    lenient = world.planner(failOnDataLoss="false")
    assert lenient.latest(end) == {A: 30, B: 50}
    assert ranges(lenient, end, {A: 30, B: 50}) == []


def test_a_stream_begins_where_its_group_has_committed() -> None:
    world = World()
    world.group.update({A: Committed(40, ""), TopicPartition("x", 0): Committed(1, "")})
    planner = world.planner(startingOffsets="committed", groupId="g")
    first = planner.initial()
    assert first == {A: 40, B: 0}
    assert planner.latest(first) == first  # into the checkpoint
    assert ranges(planner, planner.initial(), first) == []
    assert ranges(planner, first, planner.latest(first)) == [("t-0", 40, 100), ("t-1", 0, 50)]
    world.group[A] = Committed(400, "")
    with pytest.raises(DataLoss, match="t-0 was committed at offset 400, and its log has 0 to 100"):
        world.planner(startingOffsets="committed", groupId="g").initial()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"endingOffsets": "latest"}, OptionError, "option endingOffsets: is for batch reads: a stream has no end"),
        ({"startingOffsets": "committed"}, OptionError, "option startingOffsets: committed needs the option groupId"),
        ({"maxTriggerDelay": "soon"}, OptionError, "option maxTriggerDelay: must be a time such as 15m or 500ms"),
        ({"maxTriggerDelay": f"{'1' * 5000}us"}, OptionError, "option maxTriggerDelay: must be a time such as 15m or"),
        ({"maxBytesPerTrigger": "0"}, OptionError, "option maxBytesPerTrigger: must be at least 1"),
        (
            {"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"},
            OptionError,
            "2 is more than maxOffsets",
        ),
        ({"groupId": ""}, OptionError, "option groupId: is empty"),
        ({"subscribe": "nope"}, UnknownTopic, "option subscribe: topic 'nope' does not exist at b:1"),
        (
            {"startingOffsets": '{"t": {"0": 101, "1": -1}}'},
            OptionError,
            "option startingOffsets: 101 for t-0 lies behind the end of its log, 100",
        ),
        ({"startingOffsets": '{"t": {"0": 1}}'}, OptionError, "must name every partition that is read; t-1 is missing"),
    ],
)
def test_what_cannot_be_read_is_said_before_the_first_batch(
    options: dict[str, str], error: type[PipelineError], message: str
) -> None:
    with pytest.raises(error) as raised:
        World().planner(**options).initial()
    assert message in str(raised.value)


def test_an_explicit_beginning_is_kept_or_cut_to_the_end() -> None:
    world = World()
    options = {"startingOffsets": '{"t": {"0": 101, "1": 20}}', "failOnDataLoss": "false"}
    assert world.planner(**options).initial() == {A: 100, B: 20}
    planner = world.planner(startingOffsets='{"t": {"0": 90, "1": 20}}')
    planner.freeze()
    first = planner.initial()
    assert ranges(planner, first, planner.latest(first)) == [("t-0", 90, 100), ("t-1", 20, 50)]


def test_offsets_are_those_of_the_stock_connector() -> None:
    offsets = {TopicPartition("u", 10): 1, TopicPartition("u", 9): 2, TopicPartition("t", 0): 3}
    assert str(to_json(offsets)) == "{'t': {'0': 3}, 'u': {'9': 2, '10': 1}}"
    assert from_json(to_json(offsets)) == offsets
    for foreign in (7, {"logOffset": 3}, {"t": {"x": 1}}, {"t": {"1" * 5000: 1}}, {"t": {"\u0661": 1}}):
        with pytest.raises(PipelineError, match="which are no offsets of topics"):
            from_json(foreign)
