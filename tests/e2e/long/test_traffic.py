"""What a history of a long run adds up to."""

from __future__ import annotations

import pytest

from e2e.long.traffic import Window, spread, traffic
from e2e.long.watch import RestartedBatch
from tests.nemesis.history import Acknowledged, Event, Indeterminate, Placed, Polled, Sent, Subscribed, Transacted


def _acks(partition: int, *times: float) -> list[Event]:
    return [Acknowledged(at, "p0", partition, f"p0.{partition}{at}", None) for at in times]


def test_a_partition_is_unavailable_once_for_each_batch() -> None:
    events = [*_acks(0, 1.0, 2.0, 5.0, 6.0, 12.0, 13.0), *_acks(1, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 11.0, 12.0, 13.0)]
    batches = (RestartedBatch((0,), 1.5, 4.5), RestartedBatch((1,), 6.5, 11.5))
    found = traffic(events, Window("roll", 0.0, 14.0, batches))
    assert (found.unavailable.count, found.unavailable.p50, found.unavailable.longest) == (4, 4.0, 6.0)


def test_a_partition_that_is_unavailable_between_batches_is_seen_in_the_whole_window() -> None:
    events = _acks(0, 1.0, 8.0, 8.5, 9.0, 9.5)
    found = traffic(events, Window("lost", 2.0, 9.2, (RestartedBatch((0,), 8.2, 9.0),)))
    assert (found.unavailable.longest, found.unavailable_at_all.longest) == (0.5, 7.0)


def test_a_time_without_any_send_is_a_pause_of_the_clients() -> None:
    sent: list[Event] = [Sent(at, f"p{number}", 0, "p0.0") for number, at in enumerate((1.0, 3.0, 3.5, 8.0, 20.0))]
    assert traffic(sent, Window("roll", 2.0, 9.0)).clients_paused_s == 4.5


def test_a_partition_that_takes_no_more_records_is_unavailable_for_ever() -> None:
    found = traffic([*_acks(0, 1.0, 2.0), *_acks(1, 1.0, 9.5)], Window("roll", 1.5, 9.0))
    assert found.unavailable.longest == float("inf")


def test_a_group_that_was_given_nothing_has_a_gap_whatever_other_groups_read() -> None:
    events: list[Event] = [Subscribed(0.0, "a-0", "a"), Subscribed(0.0, "b-0", "b")]
    events += [Polled(at, "a-0", 0, ((0, "p0.0"),)) for at in (1.0, 2.0, 3.0, 4.0)]
    events += [Polled(at, "b-0", 0, ((0, "p0.0"),)) for at in (1.0, 4.0)]
    events += [Polled(at, "alone", 0, ((0, "p0.0"),)) for at in (1.0, 9.0)]
    gaps = traffic(events, Window("roll", 1.5, 3.5)).group_gaps
    assert {group: gap.longest for group, gap in gaps.items()} == {"a": 1.0, "b": 3.0}


def test_only_what_happened_in_the_window_is_counted() -> None:
    events = [
        *_acks(0, 1.0, 5.0),
        Indeterminate(1.0, "p0", "p0.1", "timed out"),
        Indeterminate(5.0, "p0", "p0.2", "timed out"),
        Placed(5.0, "a-0", 0, None),
        Placed(5.0, "a-0", 1, None),
        Transacted(5.0, 4.0, "copier", 1, "ok", (), ()),
    ]
    found = traffic(events, Window("roll", 4.0, 6.0))
    assert (found.acknowledged, found.failed_sends, found.assignments, found.copies) == (1, 1, 1, {"ok": 1})


@pytest.mark.parametrize(("count", "p99"), [(1, 1.0), (100, 99.0), (200, 198.0)])
def test_the_99th_percentile_is_the_nearest_rank(count: int, p99: float) -> None:
    assert spread([float(value) for value in range(1, count + 1)]).p99 == p99
