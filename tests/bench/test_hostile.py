"""What `python -m bench.hostile` keeps and writes, without a broker."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from bench.hostile import good_client
from bench.hostile.__main__ import is_left, is_wanted, left_out
from bench.hostile.harm_page import lag_buckets, meets, most_lag_ms, page_of
from bench.hostile.many_elements import Content, request, rows
from bench.hostile.measured_rows import Harm, MeasuredRows
from bench.systems import APACHE_KAFKA, OURS
from ottla_broker.protocol import codec
from ottla_broker.server.edge.dispatch import served
from ottla_broker.server.edge.element_limits import MOST

GOOD = {OURS: Harm(12.0, 3.0, 40.0, 5.0, "10 bytes"), APACHE_KAFKA: Harm(80.0, 20.0, 90.0, None, "10 bytes")}


def test_a_run_that_ended_early_goes_on_with_the_rows_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "build" / "page.jsonl"
    first = MeasuredRows(path, goes_on=False)
    first.add("a", GOOD)
    first.add("b", {OURS: GOOD[OURS]})
    path.write_text(path.read_text() + '{"name": "c", "sys')  # it was killed while it wrote
    second = MeasuredRows(path, goes_on=True)
    assert set(second.table) == {"a", "b"}
    second.add("c", GOOD)
    assert MeasuredRows(path, goes_on=True).table == {"a": GOOD, "b": {OURS: GOOD[OURS]}, "c": GOOD}
    assert MeasuredRows(path, goes_on=False).table == {}


@pytest.mark.parametrize("content", list(Content))
def test_a_request_has_as_many_elements_as_its_api_may_have_as_the_broker_counts_them(content: Content) -> None:
    wanted = 2_000
    for row in rows({int(one.api_key): (one.highest, one.highest) for one in served({}) if one.api_key in MOST}):
        module = codec.module(row.definition.api_key or 0)
        built = request(row, content, 1_000_000, wanted)
        body = memoryview(b"".join(map(bytes, module.write_request(row.version, built))))
        counted = max(one for one in module.read_request_in_slices(row.version, body) if isinstance(one, int))
        assert 0.9 * wanted < counted < 1.05 * wanted, row.name


def test_the_page_has_the_waits_the_lag_of_the_loop_and_the_memory() -> None:
    text = page_of([OURS, APACHE_KAFKA], {"Fetch": GOOD}, "python -m bench.hostile --page", "A machine.", ["this"])
    heading, _, row = [line for line in text.splitlines() if line.startswith("|")]
    assert heading.count("|") == row.count("|")
    assert "loop lag (ms)" in heading
    assert row == "| Fetch | 12, 3 | 5 | 40 | 10 bytes | 80, 20 | 90 | 10 bytes | yes |"
    assert "Not measured here:\n\n- this\n" in text


def test_apache_kafka_is_asked_where_it_decides_about_the_goal_and_for_the_attacks() -> None:
    ours = {OURS: GOOD[OURS]}
    slow = {OURS: GOOD[OURS]._replace(longest_ms=101.0)}
    assert not is_wanted(APACHE_KAFKA, ours, is_attack=False)
    assert is_wanted(APACHE_KAFKA, ours, is_attack=True)
    assert is_wanted(APACHE_KAFKA, slow, is_attack=False)
    assert is_wanted(APACHE_KAFKA, {}, is_attack=False)
    text = page_of([OURS, APACHE_KAFKA], {"Fetch": ours}, "python -m bench.hostile --page", "A machine.", ["this"])
    assert text.splitlines()[-1] == "| Fetch | 12, 3 | 5 | 40 | 10 bytes | - | - | - | yes |"


def test_a_kept_row_is_measured_again_where_a_system_is_missing_that_decides() -> None:
    both, ours = [OURS, APACHE_KAFKA], {OURS: GOOD[OURS]}
    slow = {OURS: GOOD[OURS]._replace(longest_ms=101.0)}
    assert is_left(both, {}, is_attack=False)
    assert not is_left(both, ours, is_attack=False)
    assert is_left(both, ours, is_attack=True) and is_left(both, slow, is_attack=False)
    assert is_left([APACHE_KAFKA], {}, is_attack=False)
    assert not is_left(both, GOOD, is_attack=True)


def test_a_request_without_an_answer_counts_with_the_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(good_client, "LIMIT_S", 0.1)
    reading, writing = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as silent, os.fdopen(reading) as asked:
        monkeypatch.setattr("sys.stdin", asked)
        os.write(writing, b"\n")
        os.close(writing)
        good_client.main(silent.getsockname()[1])
    answer = json.loads(capsys.readouterr().out)
    assert answer["count"] == 1 and answer["longest"] >= 100


def test_what_a_run_leaves_out_is_said() -> None:
    assert any("24 MB" in sentence for sentence in left_out(quick=False, all_versions=False))
    assert any("older versions" in sentence for sentence in left_out(quick=False, all_versions=False))
    assert not any("older versions" in sentence for sentence in left_out(quick=False, all_versions=True))


def test_the_goal_is_apache_kafkas_wait_or_a_tenth_of_a_second() -> None:
    slow = GOOD[OURS]._replace(longest_ms=150.0)
    assert meets(GOOD)
    assert not meets({OURS: slow, APACHE_KAFKA: GOOD[APACHE_KAFKA]})
    assert meets({OURS: slow, APACHE_KAFKA: GOOD[APACHE_KAFKA]._replace(longest_ms=200.0)})


def test_the_lag_is_that_of_the_seconds_in_between() -> None:
    before = lag_buckets(
        'ottla_loop_lag_seconds_bucket{le="0.01"} 3\n'
        'ottla_loop_lag_seconds_bucket{le="0.5"} 4\n'
        'ottla_loop_lag_seconds_bucket{le="+Inf"} 5\n'
    )
    after = {0.01: 5, 0.5: 6, float("inf"): 7}
    assert most_lag_ms(before, after) == 10.0
    assert most_lag_ms(before, before) == 0.0
