"""The checker finds each class of error in a made-up history that has it, and nothing in one that has none."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.nemesis.checker import (
    ABORTED_READ,
    CLASSES,
    DUPLICATE,
    FINAL,
    INCONSISTENT_OFFSETS,
    LOST_WRITE,
    NONMONOTONIC_POLL,
    NONMONOTONIC_SEND,
    POLL_SKIP,
    STOPPED,
    UNSEEN,
    counts,
    findings,
    stopped,
)
from tests.nemesis.history import (
    Acknowledged,
    Event,
    FaultBegan,
    FaultEnded,
    History,
    Indeterminate,
    Placed,
    Polled,
    Refused,
    Sent,
    Subscribed,
    read,
)


def acknowledged(value: str, offset: int | None, partition: int = 0) -> Acknowledged:
    return Acknowledged(1.0, value.split(".", 1)[0], partition, value, offset)


def polled(by: str, *records: tuple[int, str], partition: int = 0) -> Polled:
    return Polled(2.0, by, partition, records)


def subscribed(by: str, group: str = "g") -> Subscribed:
    return Subscribed(0.1, by, group)


def placed(by: str, offset: int | None = None, partition: int = 0) -> Placed:
    return Placed(1.5, by, partition, offset)


GOOD: tuple[Event, ...] = (
    Sent(0.5, "p", 0, "p.0"),
    placed("a", 0),
    subscribed("m1"),
    subscribed("m2"),
    placed("m1"),
    acknowledged("p.0", 0),
    acknowledged("q.0", 1),
    Refused(1.0, "r", 0, "r.0", "MSG_SIZE_TOO_LARGE"),
    Indeterminate(1.0, "p", "p.1", "_TIMED_OUT"),
    FaultBegan(1.0, "kill leader", "b1", (0,)),
    FaultEnded(1.5, "kill leader"),
    polled("a", (0, "p.0"), (1, "q.0")),
    polled("a", (2, "p.1")),
    polled("m1", (0, "p.0"), (1, "q.0")),
    placed("m2"),
    polled("m2", (1, "q.0"), (2, "p.1")),
    placed("m1"),
    polled("m1", (2, "p.1"), (3, "p.2")),
    polled("a", (3, "p.2")),
    acknowledged("p.2", None),
    placed(FINAL, 0),
    polled(FINAL, (0, "p.0"), (1, "q.0"), (2, "p.1"), (3, "p.2")),
)


def test_a_history_in_which_all_is_well_has_no_findings() -> None:
    """Indeterminate records may be there, groups may be given again what they had, a log may end with anything."""
    assert findings(GOOD) == []
    assert counts([]) == dict.fromkeys(CLASSES, 0)


BAD: list[tuple[str, Sequence[Event], str]] = [
    (LOST_WRITE, [acknowledged("p.0", 0), polled("a", (1, "p.1"))], "0: p.0, acknowledged at offset 0"),
    (LOST_WRITE, [acknowledged("p.0", None), polled("a", (0, "p.1"))], "p.0, acknowledged at an offset nobody told"),
    (
        LOST_WRITE,
        [polled("a", (0, "p.0"), (1, "p.1")), placed(FINAL, 0), polled(FINAL, (0, "p.0"))],
        "0: p.1 at offset 1, read by a; the log ends at 1",
    ),
    (
        UNSEEN,
        [acknowledged("p.0", 0), acknowledged("p.1", 1), polled("a", (0, "p.0"))],
        "p.1, acknowledged at offset 1",
    ),
    (UNSEEN, [acknowledged("p.0", 0), placed(FINAL, 0)], "0: p.0, acknowledged at offset 0; the log ends at 0"),
    (DUPLICATE, [polled("a", (0, "p.0"), (1, "p.0"))], "p.0 in 0 at offset 0 and 0 at offset 1"),
    (
        DUPLICATE,
        [polled("a", (0, "p.0")), polled("a", (4, "p.0"), partition=1)],
        "p.0 in 0 at offset 0 and 1 at offset 4",
    ),
    (
        INCONSISTENT_OFFSETS,
        [polled("a", (0, "p.0")), polled("b", (0, "q.0"))],
        "0: offset 0 was p.0 (read by a), q.0 (read by b)",
    ),
    (
        INCONSISTENT_OFFSETS,
        [acknowledged("p.0", 0), polled("b", (0, "q.0"), (1, "p.0"))],
        "0: offset 0 was p.0 (acknowledged to p), q.0 (read by b)",
    ),
    (ABORTED_READ, [Refused(1.0, "r", 0, "r.0", "TOO_LARGE"), polled("a", (0, "r.0"))], "refused with TOO_LARGE"),
    (
        POLL_SKIP,
        [polled("b", (0, "p.0"), (1, "p.1"), (2, "p.2")), polled("a", (0, "p.0")), polled("a", (2, "p.2"))],
        "a at 2.000 in 0: p.2 at offset 2, 1 was next; left out: 1",
    ),
    (
        POLL_SKIP,
        [acknowledged("p.0", 0), polled("b", (0, "p.0")), placed("a", 0), polled("a", (1, "p.1"))],
        "left out: 0",
    ),
    (
        POLL_SKIP,
        [subscribed("m"), placed("m"), acknowledged("p.0", 0), polled("m", (1, "p.1"))],
        "m at 2.000 in 0: p.1 at offset 1 first, g was given 0 by nobody before",
    ),
    (NONMONOTONIC_POLL, [polled("a", (0, "p.0"), (1, "p.1")), polled("a", (1, "p.1"))], "offset 1, 2 was next"),
    (NONMONOTONIC_POLL, [polled("a", (0, "p.0"), (1, "p.1"), (0, "p.0"))], "offset 0, 2 was next"),
    (NONMONOTONIC_SEND, [polled("a", (0, "p.1"), (1, "q.0"), (2, "p.0"))], "p.0 at offset 2, behind p.1 at 0"),
    (
        STOPPED,
        [placed("a", 0), polled("a", (0, "p.0")), placed(FINAL, 0), polled(FINAL, (0, "p.0"), (1, "p.1"))],
        "reader a stopped at offset 1 of partition 0, the end is 2",
    ),
]


@pytest.mark.parametrize(("kind", "history", "what"), BAD, ids=[f"{kind}-{n}" for n, (kind, _, _) in enumerate(BAD)])
def test_each_class_is_found_and_said_where(kind: str, history: Sequence[Event], what: str) -> None:
    found = [finding for finding in findings(history) if finding.kind == kind]
    assert len(found) == 1
    assert what in str(found[0])


def test_every_class_has_a_bad_history() -> None:
    assert {kind for kind, _, _ in BAD} == set(CLASSES)


def test_a_consumer_that_is_placed_again_neither_skips_nor_goes_back() -> None:
    history: list[Event] = [
        polled("a", (0, "p.0"), (1, "p.1"), (2, "p.2")),
        placed("a"),
        polled("a", (0, "p.0")),
        placed("a", 2),
        polled("a", (2, "p.2")),
    ]
    assert findings(history) == []


COUNT = 1000


def log(first: int, end: int) -> list[tuple[int, str]]:
    return [(offset, f"p.{offset}") for offset in range(first, end)]


def whole(*events: Event) -> list[Event]:
    """A thousand acknowledged records in partition 0, what was read of them, and what is there in the end."""
    sent = [acknowledged(value, offset) for offset, value in log(0, COUNT)]
    return [subscribed("m1"), subscribed("m2"), *sent, *events, placed(FINAL, 0), polled(FINAL, *log(0, COUNT))]


def said(history: list[Event]) -> list[str]:
    return list(map(str, findings(history)))


def test_readers_that_are_given_everything_are_well() -> None:
    """The group's second member is given some again, and so is the first when the partition comes back."""
    history = whole(
        placed("a", 0),
        polled("a", *log(0, COUNT)),
        placed("m1"),
        polled("m1", *log(0, 400)),
        placed("m2"),
        polled("m2", *log(300, 700)),
        placed("m1"),
        polled("m1", *log(400, COUNT)),
    )
    assert said(history) == []


def test_an_assigned_reader_that_stops_is_found() -> None:
    rest = [placed("m1"), polled("m1", *log(0, COUNT))]
    assert said(whole(placed("a", 0), polled("a", *log(0, 1)), *rest)) == [
        "stopped: reader a stopped at offset 1 of partition 0, the end is 1000"
    ]
    assert said(whole(placed("a", 0), *rest)) == [
        "stopped: reader a stopped at offset 0 of partition 0, the end is 1000"
    ]


def test_a_group_that_stops_is_found() -> None:
    assert said(whole(placed("m1"), polled("m1", *log(0, 700)), placed("m2"), polled("m2", *log(500, 600)))) == [
        "stopped: group g stopped at offset 700 of partition 0, the end is 1000"
    ]


def test_a_group_that_is_never_given_a_partition_is_found() -> None:
    """Nobody was placed in it, nobody was given anything of it."""
    history = [*whole(), *(acknowledged(f"q.{one}", one, 1) for one in range(3))]
    history += [placed(FINAL, 0, 1), polled(FINAL, *((one, f"q.{one}") for one in range(3)), partition=1)]
    history += [placed("m1"), polled("m1", *log(0, COUNT))]
    assert said(history) == ["stopped: group g stopped at offset 0 of partition 1, the end is 3"]


def test_a_group_that_resumes_ahead_of_what_it_was_given_is_found() -> None:
    """An offset was committed that nobody had come to, or one was answered that nobody had committed."""
    begins = placed("m1"), polled("m1", *log(0, 100))
    skip = (
        "poll-skip: m2 at 2.000 in 0: p.900 at offset 900 first, g was given 100, 101, 102, 103, 104 … 899 by nobody "
        "before"
    )
    assert said(whole(*begins, placed("m2"), polled("m2", *log(900, COUNT)))) == [skip]
    # That somebody is given them later does not make it right: whoever read at that time had left them out.
    assert said(
        whole(*begins, placed("m2"), polled("m2", *log(900, COUNT)), placed("m1"), polled("m1", *log(100, COUNT)))
    ) == [skip]


def test_a_reader_that_stops_and_a_group_that_resumes_ahead_are_both_found() -> None:
    history = whole(
        placed("a", 0),
        polled("a", *log(0, 1)),
        placed("m1"),
        polled("m1", *log(0, 100)),
        placed("m1"),
        polled("m1", *log(900, COUNT)),
    )
    assert [finding.kind for finding in findings(history)] == [POLL_SKIP, STOPPED]


def test_a_hole_in_what_a_group_was_given_is_found_once() -> None:
    """By its member's next record; where that had no place of its own, in the end."""
    assert said(whole(placed("m1"), polled("m1", *log(0, 400), *log(410, COUNT)))) == [
        "poll-skip: m1 at 2.000 in 0: p.410 at offset 410, 400 was next; left out: 400, 401, 402, 403, 404 … 409"
    ]
    moved = placed("m1", 0), polled("m1", *log(0, 400)), placed("m1", 410), polled("m1", *log(410, COUNT))
    assert said(whole(*moved)) == [
        "poll-skip: g in 0: 10 below offset 999 given to nobody: 400, 401, 402, 403, 404 … 409"
    ]


def test_groups_are_judged_one_by_one() -> None:
    """What one was given the other one lacks all the same."""
    history: list[Event] = [subscribed("j", "h"), *whole(placed("m1"), polled("m1", *log(0, COUNT)))]
    history += [placed("j"), polled("j", *log(0, 10))]
    assert said(history) == ["stopped: group h stopped at offset 10 of partition 0, the end is 1000"]


def test_without_a_final_reader_nobody_has_to_have_come_to_an_end() -> None:
    assert said([subscribed("m"), polled("a", *log(0, 10)), placed("b", 0), polled("b", *log(0, 1))]) == []


def test_waiting_for_readers_ends_with_the_last_of_them_and_gives_up_in_time(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    for event in whole(placed("m1"), polled("m1", *log(0, 999))):
        history.add(event)
    assert not history.wait_until(lambda events: not stopped(events), 0.05)
    late = threading.Timer(0.05, history.add, [polled("m1", *log(999, COUNT))])
    late.start()
    assert history.wait_until(lambda events: not stopped(events), 60.0)
    late.join()
    history.close()


def test_an_offset_that_nobody_has_seen_is_no_skip() -> None:
    """Markers of transactions take offsets and are given to nobody."""
    assert findings([polled("a", (0, "p.0")), polled("a", (2, "p.1"))]) == []


def test_a_history_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    for event in GOOD:
        history.add(event)
    history.close()
    assert tuple(read(tmp_path / "history.jsonl")) == GOOD
