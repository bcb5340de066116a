"""The status of a query, from the progress that Spark reports."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_pipeline.running.batch_progress import query_status


def lag(**source: Any) -> Any:
    return query_status({"sources": [source]})["lag"]


def test_a_partition_without_an_end_offset_lags_by_all_that_it_has() -> None:
    assert lag(endOffset=None, latestOffset={"t": {"0": 5}}) == {"t": {"0": 5}}


def test_offsets_may_be_text_that_holds_json() -> None:
    assert lag(endOffset='{"t": {"0": 3}}', latestOffset='{"t": {"0": 5}}') == {"t": {"0": 2}}


def test_a_topic_that_was_created_again_has_no_negative_lag() -> None:
    assert lag(endOffset={"t": {"0": 9}}, latestOffset={"t": {"0": 5}}) == {"t": {"0": 0}}


@pytest.mark.parametrize("offset", [None, {"logOffset": 3}, "FileStreamSource[x]", 7, '"text"', [1]])
def test_a_source_that_is_no_topic_has_no_lag(offset: Any) -> None:
    assert lag(endOffset=offset, latestOffset=offset) == {}


@pytest.mark.parametrize("rate", [None, "NaN", "Infinity", float("nan"), float("inf")])
def test_a_rate_that_is_no_number_is_zero(rate: Any) -> None:
    found = query_status({"inputRowsPerSecond": rate, "processedRowsPerSecond": rate})
    assert found["inputRowsPerSecond"] == found["processedRowsPerSecond"] == 0.0


def test_two_sources_of_one_topic_are_added_to_one_table() -> None:
    sources = [
        {"endOffset": {"a": {"0": 1}}, "latestOffset": {"a": {"0": 2}}},
        {"endOffset": {"b": {"0": 1}}, "latestOffset": {"b": {"0": 4}}},
    ]
    found = query_status({"sources": sources})
    assert found["lag"] == {"a": {"0": 1}, "b": {"0": 3}} and found["totalLag"] == 4
