"""The checker finds each class of error in a made-up history that has it, and nothing in one that has none."""

from __future__ import annotations

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
    UNSEEN,
    counts,
    findings,
)
from tests.nemesis.history import (
    Acknowledged,
    Doubtful,
    Event,
    FaultBegan,
    FaultEnded,
    History,
    Placed,
    Polled,
    Refused,
    Sent,
    read,
)


def acknowledged(value: str, offset: int | None, partition: int = 0) -> Acknowledged:
    return Acknowledged(1.0, value.split(".", 1)[0], partition, value, offset)


def polled(by: str, *records: tuple[int, str], partition: int = 0) -> Polled:
    return Polled(2.0, by, partition, records)


def placed(by: str, offset: int | None = None, partition: int = 0) -> Placed:
    return Placed(1.5, by, partition, offset)


GOOD: tuple[Event, ...] = (
    Sent(0.5, "p", 0, "p.0"),
    placed("a", 0),
    placed("g"),
    acknowledged("p.0", 0),
    acknowledged("q.0", 1),
    Refused(1.0, "r", 0, "r.0", "MSG_SIZE_TOO_LARGE"),
    Doubtful(1.0, "p", "p.1", "_TIMED_OUT"),
    FaultBegan(1.0, "kill leader", "b1", (0,)),
    FaultEnded(1.5, "kill leader"),
    polled("a", (0, "p.0"), (1, "q.0")),
    polled("a", (2, "p.1")),
    polled("g", (1, "q.0")),
    placed("g"),
    polled("g", (0, "p.0"), (1, "q.0")),
    acknowledged("p.2", None),
    placed(FINAL, 0),
    polled(FINAL, (0, "p.0"), (1, "q.0"), (2, "p.1"), (3, "p.2")),
)


def test_a_history_in_which_all_is_well_has_no_findings() -> None:
    """Doubtful records may be there, groups may begin again where they had been, a log may end with anything."""
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
    (NONMONOTONIC_POLL, [polled("a", (0, "p.0"), (1, "p.1")), polled("a", (1, "p.1"))], "offset 1, 2 was next"),
    (NONMONOTONIC_POLL, [polled("a", (0, "p.0"), (1, "p.1"), (0, "p.0"))], "offset 0, 2 was next"),
    (NONMONOTONIC_SEND, [polled("a", (0, "p.1"), (1, "q.0"), (2, "p.0"))], "p.0 at offset 2, behind p.1 at 0"),
]


@pytest.mark.parametrize(("kind", "history", "what"), BAD, ids=[f"{kind}-{n}" for n, (kind, _, _) in enumerate(BAD)])
def test_each_class_is_found_and_said_where(kind: str, history: Sequence[Event], what: str) -> None:
    found = [finding for finding in findings(history) if finding.kind == kind]
    assert len(found) == 1
    assert what in str(found[0])


def test_every_class_has_a_bad_history() -> None:
    assert {kind for kind, _, _ in BAD} == set(CLASSES)


def test_a_consumer_that_is_placed_anew_neither_skips_nor_goes_back() -> None:
    history: list[Event] = [
        polled("a", (0, "p.0"), (1, "p.1"), (2, "p.2")),
        placed("a"),
        polled("a", (0, "p.0")),
        placed("a", 2),
        polled("a", (2, "p.2")),
    ]
    assert findings(history) == []


def test_an_offset_that_nobody_has_seen_is_no_skip() -> None:
    """Markers of transactions take offsets and are given to nobody."""
    assert findings([polled("a", (0, "p.0")), polled("a", (2, "p.1"))]) == []


def test_a_history_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    for event in GOOD:
        history.add(event)
    history.close()
    assert tuple(read(tmp_path / "history.jsonl")) == GOOD
