"""When a pipeline that has failed runs again."""

from __future__ import annotations

from ottla_pipeline.running.restarts import decide_restart


def test_the_wait_doubles_up_to_five_minutes() -> None:
    waits = [decide_restart("OnFailure", 99, failures, 1, has_run=True).wait_s for failures in range(7)]
    assert waits == [10, 20, 40, 80, 160, 300, 300]


def test_failures_count_from_the_beginning_after_ten_minutes_without_one() -> None:
    found = decide_restart("OnFailure", 6, 6, 600, has_run=True)
    assert (found.wait_s, found.failures) == (10, 1)


def test_no_attempt_follows_where_the_document_does_not_want_it_or_it_cannot_begin() -> None:
    assert decide_restart("Never", 6, 0, 1, has_run=True).wait_s is None
    assert decide_restart("OnFailure", 0, 0, 1, has_run=True).wait_s is None
    assert decide_restart("OnFailure", 6, 6, 1, has_run=True).wait_s is None
    assert decide_restart("OnFailure", 6, 0, 1, has_run=False).wait_s is None


def test_an_attempt_that_ran_nothing_of_the_pipeline_does_not_count() -> None:
    found = [decide_restart("OnFailure", 6, 5, 1, has_run=True, not_begun=number) for number in (1, 2, 9)]
    assert [(one.wait_s, one.failures) for one in found] == [(10, 5), (20, 5), (300, 5)]
    assert decide_restart("OnFailure", 0, 0, 1, has_run=True, not_begun=99).wait_s == 300
    assert decide_restart("Never", 6, 0, 1, has_run=True, not_begun=1).wait_s is None
