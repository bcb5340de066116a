"""Turns of an event loop that last long: how long, how much of it was CPU time of the loop's thread, and in which code.

A turn is what the loop does between two polls. Its CPU time counts on a machine that other programs use too.
"""

from __future__ import annotations

import gc
import json
import select
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

LEAST_S = 0.01
"""Shorter turns are not written down."""
_SAMPLE_S = 0.004
_SHOWN_FRAMES = 4


@dataclass(frozen=True, slots=True)
class LongTurn:
    """`ended_s` is time.monotonic, which all processes of a machine share. `gc_ms`: of it in the garbage collector.
    `code`: the innermost functions of ours that were seen in it most often, the calling one first; "" when it was too
    short to be seen."""

    ended_s: float
    wall_ms: float
    cpu_ms: float
    gc_ms: float
    code: str


class LongTurns:
    """Writes the long turns of one loop into a file, a JSON object a line, and samples their code from a thread."""

    def __init__(self, out: Path) -> None:
        self._out: IO[str] = out.open("a", buffering=1, encoding="utf-8")
        self._thread = 0
        self._began = 0.0
        self._cpu_began = 0.0
        self._gc_began = self._gc_s = 0.0
        self._seen: Counter[str] = Counter()
        self._is_closed = threading.Event()
        gc.callbacks.append(self._on_collection)
        self._sampler = threading.Thread(target=self._sample, name="long turns", daemon=True)
        self._sampler.start()

    def close(self) -> None:
        """Ends the thread."""
        self._is_closed.set()
        self._sampler.join()
        gc.callbacks.remove(self._on_collection)
        self._out.close()

    def begin(self) -> None:
        """The poll has returned."""
        self._thread = threading.get_ident()
        self._cpu_began = time.thread_time()
        self._gc_s = 0.0
        self._began = time.monotonic()

    def end(self) -> None:
        """The loop polls again."""
        began, self._began = self._began, 0.0
        now = time.monotonic()
        # Another thread has taken the loop over: a slow write, not a long turn.
        if not began or now - began < LEAST_S or self._thread != threading.get_ident():
            return
        seen, self._seen = self._seen, Counter()
        code = seen.most_common(1)[0][0] if seen else ""
        cpu_s = time.thread_time() - self._cpu_began
        wall_ms, cpu_ms, gc_ms = (round(seconds * 1e3, 1) for seconds in (now - began, cpu_s, self._gc_s))
        turn = LongTurn(round(now, 4), wall_ms, cpu_ms, gc_ms, code)
        self._out.write(json.dumps(asdict(turn)) + "\n")

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = time.monotonic()
        else:
            self._gc_s += time.monotonic() - self._gc_began

    def _sample(self) -> None:
        turn = 0.0
        while not self._is_closed.wait(_SAMPLE_S):
            began = self._began
            if began != turn:
                turn = began
                self._seen = Counter()
            if began and time.monotonic() - began > _SAMPLE_S:
                frame = _frame_of(self._thread)
                if frame is not None:
                    self._seen[_code(frame)] += 1


def _frame_of(thread: int) -> FrameType | None:
    """What a thread runs. A collection within `_current_frames` stops all threads for good before Python 3.11.5."""
    gc.disable()
    try:
        return sys._current_frames().get(thread)
    finally:
        gc.enable()


class WatchedPoll:
    """An epoll object that reports when it is polled."""

    def __init__(self, epoll: select.epoll, turns: LongTurns) -> None:
        self._epoll = epoll
        self._turns = turns
        self.register = epoll.register
        self.modify = epoll.modify
        self.unregister = epoll.unregister
        self.close = epoll.close

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        self._turns.end()
        found = self._epoll.poll(timeout, maxevents)
        self._turns.begin()
        return found


def read(path: Path, since_s: float, until_s: float) -> list[LongTurn]:
    """The turns that ended in a stretch of time.monotonic; none where there is no file yet."""
    if not path.exists():
        return []
    turns = [LongTurn(**values) for values in _objects(path.read_text(encoding="utf-8").splitlines())]
    return [turn for turn in turns if since_s <= turn.ended_s < until_s]


def _objects(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    """The last line may be half written: its process was killed."""
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _code(frame: FrameType | None) -> str:
    names: list[str] = []
    while frame is not None and len(names) < _SHOWN_FRAMES:
        path = frame.f_code.co_filename
        if "ottla_broker" in path and not path.endswith("event_loop.py"):
            module = path.partition("ottla_broker/")[2].removesuffix(".py")
            names.append(f"{module}:{frame.f_code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(names))
