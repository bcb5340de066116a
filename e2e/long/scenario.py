"""What a scenario gets and what it gives."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from e2e.long.fleet import OperatedFleet, Size
from e2e.long.load import FleetLoad
from e2e.long.traffic import Window
from e2e.long.watch import RestartedBatch, batches, unsafe

Value: TypeAlias = float | int | str
SIX = Size(brokers=6, servers=3)


@dataclass(slots=True)
class Findings:
    """`figures` by name. `windows` are the spans whose traffic is looked at when all is over. `faults`: goals that hold
    at any speed, and were missed. `timelines`: where the seconds of a roll went, by window and phase (`timeline`)."""

    figures: dict[str, Value] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    timelines: dict[str, dict[str, float]] = field(default_factory=dict)

    def expect(self, holds: bool, what: str) -> None:
        """`what` is what is wrong otherwise."""
        if not holds:
            self.faults.append(what)


@dataclass(frozen=True, slots=True)
class ScenarioStage:
    """A fleet that is Ready, with load. `say` takes what happens next; `draw` is of the scenario's own."""

    fleet: OperatedFleet
    load: FleetLoad
    say: Callable[[str], None]
    draw: random.Random
    found: Findings

    @contextmanager
    def window(self, name: str) -> Iterator[list[RestartedBatch]]:
        """A span whose time and traffic are figures, and in which no roll may stop brokers of two racks together. The
        list has the batches of its rolls at the end. The load has gone on at its end."""
        racks = self.fleet.racks()
        done: list[RestartedBatch] = []
        began, started = time.time(), time.monotonic()
        with self.fleet.watched() as seen:
            yield done
        took = time.monotonic() - started
        self.load.until_more()
        done += batches(seen)
        self.found.figures[f"{name}: seconds"] = round(took, 1)
        self.found.faults += [f"{name}: {what}" for what in unsafe(seen, {**racks, **self.fleet.racks()})]
        self.found.windows.append(Window(name, began, time.time(), tuple(done)))


@dataclass(frozen=True, slots=True)
class FleetScenario:
    """`size`: of the fleet when it begins. It leaves a fleet of any size, Ready."""

    name: str
    summary: str
    run: Callable[[ScenarioStage], None]
    size: Size = SIX
    no_send_fails: bool = False
    """Whether a send that fails is a fault."""
