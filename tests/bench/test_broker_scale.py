"""The long turns of a loop: what is written down of them, and what is read back."""

from __future__ import annotations

import select
import time
from pathlib import Path

from bench.broker_scale import long_turns
from bench.broker_scale.long_turns import LongTurn, LongTurns, WatchedPoll
from bench.broker_scale.scale_steps import Step


def test_a_turn_between_two_polls_is_written_down_when_it_is_long(tmp_path: Path) -> None:
    out = tmp_path / "turns.jsonl"
    turns = LongTurns(out)
    poll = WatchedPoll(select.epoll(), turns)
    began = time.monotonic()
    poll.poll(0.05, 1)  # waiting is no turn
    poll.poll(0.0, 1)
    ends = time.thread_time() + 3 * long_turns.LEAST_S
    while time.thread_time() < ends:
        pass
    poll.poll(0.0, 1)
    poll.close()
    turns.close()
    found = [turn for turn in long_turns.read(out, began, time.monotonic() + 1) if turn.cpu_ms >= 25]
    assert len(found) == 1
    assert found[0].wall_ms >= found[0].cpu_ms - 1 and found[0].gc_ms <= found[0].wall_ms
    assert long_turns.read(out, time.monotonic() + 1, time.monotonic() + 2) == []


def test_a_line_that_was_not_finished_is_left_out(tmp_path: Path) -> None:
    out = tmp_path / "turns.jsonl"
    out.write_text('{"ended_s": 1.0, "wall_ms": 30.0, "cpu_ms": 20.0, "gc_ms": 0.0, "code": "a:b"}\n{"ended_s": 2.')
    assert long_turns.read(out, 0.0, 9.0) == [LongTurn(1.0, 30.0, 20.0, 0.0, "a:b")]
    assert long_turns.read(tmp_path / "absent", 0.0, 9.0) == []


def test_the_longest_turn_is_the_one_with_the_most_cpu_time() -> None:
    turns = [LongTurn(1.0, 90.0, 20.0, 0.0, "waits"), LongTurn(2.0, 50.0, 45.0, 0.0, "works")]
    longest = Step("metadata", 0, 1.0, turns).longest
    assert longest is not None and longest.code == "works"
    assert Step("metadata", 0, 1.0, []).longest is None
