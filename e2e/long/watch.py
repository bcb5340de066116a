"""Watches a fleet while something happens to it: which step its roll is in, and whose pod is not ready.

What it has seen is judged by pure functions: `batches` and `unsafe`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

POLL_S = 0.5
_AFTER_DELETION = ("WaitReady", "WaitInSync", "RestoreLeaders")


@dataclass(frozen=True, slots=True)
class Observation:
    """`at`: seconds since the epoch. `step` is "" and `batch` empty without a roll of brokers. `down`: brokers whose
    pod is not ready."""

    at: float
    step: str
    batch: tuple[int, ...]
    down: frozenset[int]


@dataclass(frozen=True, slots=True)
class RestartedBatch:
    """Brokers that a roll restarted together, from the first observation of that to the last."""

    brokers: tuple[int, ...]
    began: float
    ended: float


def batches(observations: Iterable[Observation]) -> list[RestartedBatch]:
    """The batches of rolls, in order; one that was chosen and given up again is none.

    >>> steps = enumerate([("MoveLeaders", (0, 3)), ("WaitReady", (0, 3)), ("DeletePod", (1,)), ("", ())], 1)
    >>> batches(Observation(float(at), step, batch, frozenset()) for at, (step, batch) in steps)
    [RestartedBatch(brokers=(0, 3), began=1.0, ended=2.0)]
    """
    found = []
    for brokers, group in itertools.groupby(observations, key=lambda seen: seen.batch):
        together = list(group)
        if brokers and any(seen.step in _AFTER_DELETION for seen in together):
            found.append(RestartedBatch(brokers, together[0].at, together[-1].at))
    return found


def unsafe(observations: Iterable[Observation], racks: Mapping[int, str]) -> list[str]:
    """Where a roll had brokers of two racks down at once.

    >>> racks = {0: "a", 1: "b", 3: "a"}
    >>> unsafe([Observation(1.0, "WaitReady", (0, 3), frozenset({0, 3}))], racks)
    []
    >>> unsafe([Observation(1.0, "WaitReady", (0, 3), frozenset({0, 1}))], racks)
    ["in WaitReady of (0, 3): brokers [0, 1] of racks ['a', 'b'] were down"]
    """
    found: dict[str, None] = {}
    for seen in observations:
        involved = sorted({racks.get(broker, "") for broker in seen.down})
        if seen.batch and len(involved) > 1:
            found[f"in {seen.step} of {seen.batch}: brokers {sorted(seen.down)} of racks {involved} were down"] = None
    return list(found)


class Watch:
    """Looks twice a second on a thread of its own, between `start` and `stop`. `look` gives the step, the batch and the
    brokers whose pod is not ready; what it raises as one of `errors` is an observation that was missed."""

    def __init__(
        self,
        look: Callable[[], tuple[str, tuple[int, ...], frozenset[int]]],
        errors: tuple[type[Exception], ...],
    ) -> None:
        self._look = look
        self._errors = errors
        self._stopping = threading.Event()
        self._seen: list[Observation] = []
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[Observation]:
        self._stopping.set()
        self._thread.join()
        return list(self._seen)

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            try:
                step, batch, down = self._look()
            except self._errors:
                continue
            self._seen.append(Observation(time.time(), step, batch, down))
