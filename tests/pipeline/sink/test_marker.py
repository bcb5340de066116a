"""Which batches are written, skipped and refused, by the marker and by what else is known."""

from __future__ import annotations

import pytest

from ottla_pipeline.sink.marker import LEAST_KEPT_MS, NO_MARKER, Action, Evidence, decide

WEEK = 7 * 24 * 3_600_000
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("batch_id", "known", "action"),
    [
        (0, Evidence(is_id_new=True, marker_kept_ms=WEEK, id_kept_ms=WEEK), Action.WRITE),
        (0, Evidence(is_id_new=True), Action.WRITE),
        (0, Evidence(is_id_new=True, age_ms=HOUR, marker_kept_ms=LEAST_KEPT_MS, id_kept_ms=WEEK), Action.WRITE),
        (0, Evidence(is_id_new=True, age_ms=WEEK, marker_kept_ms=WEEK, id_kept_ms=WEEK), Action.REFUSE),
        (0, Evidence(is_id_new=True, age_ms=HOUR), Action.REFUSE),
        (0, Evidence(marker_kept_ms=WEEK, id_kept_ms=WEEK), Action.WRITE),
        (0, Evidence(marker_kept_ms=WEEK - 1, id_kept_ms=WEEK), Action.REFUSE),
        (0, Evidence(), Action.REFUSE),
        (0, Evidence(age_ms=HOUR, marker_kept_ms=WEEK, id_kept_ms=WEEK), Action.WRITE),
        (0, Evidence(age_ms=WEEK, marker_kept_ms=WEEK, id_kept_ms=WEEK), Action.REFUSE),
        (0, Evidence(age_ms=-WEEK, marker_kept_ms=WEEK), Action.REFUSE),
        (0, Evidence(age_ms=20_000), Action.WRITE),
        (0, Evidence(age_ms=40_000), Action.REFUSE),
        (7, Evidence(age_ms=HOUR, marker_kept_ms=WEEK), Action.WRITE),
        (7, Evidence(age_ms=HOUR, marker_kept_ms=HOUR), Action.REFUSE),
        (7, Evidence(is_id_new=True, marker_kept_ms=WEEK, id_kept_ms=WEEK), Action.REFUSE),
        (7, Evidence(marker_kept_ms=WEEK, id_kept_ms=WEEK), Action.REFUSE),
        (7, Evidence(first_new=7, age_ms=WEEK), Action.WRITE),
        (0, Evidence(first_new=0, age_ms=WEEK), Action.WRITE),
        (6, Evidence(first_new=7), Action.REFUSE),
    ],
)
def test_a_batch_without_marker_is_written_when_it_was_certainly_not_written_before(
    batch_id: int, known: Evidence, action: Action
) -> None:
    for marker in {NO_MARKER, max(batch_id - 1, NO_MARKER)} if batch_id else {NO_MARKER}:
        decision = decide(marker, batch_id, known)
        assert decision.action is action
        assert ("missingMarker=write writes it" in decision.reason) is (action is Action.REFUSE)


@pytest.mark.parametrize(("marker", "action"), [(7, Action.WRITE), (8, Action.SKIP), (9, Action.REFUSE)])
def test_a_marker_that_is_there_decides_whatever_else_is_known(marker: int, action: Action) -> None:
    for known in (Evidence(), Evidence(first_new=0, age_ms=1, is_id_new=True, marker_kept_ms=WEEK, id_kept_ms=WEEK)):
        assert decide(marker, 7, known).action is action
