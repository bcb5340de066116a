"""One seed, one run: creates the world, runs a scenario in it and returns the outcome."""

from __future__ import annotations

import gc
import signal
import time
import traceback
from dataclasses import dataclass, field
from types import FrameType
from typing import IO, Any

from simulation import logs
from simulation.checker import Checker
from simulation.scenarios import NAMES, scenario
from simulation.world import World

CPU_LIMIT_S = 180.0
"""A run that computes longer than this hangs: nothing in it waits. Real time would tell how busy the machine is."""


class HangError(Exception):
    """The run did not end within CPU_LIMIT_S of processor time."""


@dataclass
class Outcome:
    """How one run ended, for the report. Plain values: it crosses between processes."""

    scenario: str
    seed: int
    trace_hash: str
    error: str = ""
    wall_s: float = 0.0
    virtual_s: float = 0.0
    messages: int = 0
    process_crashes: int = 0
    power_losses: int = 0
    session_expiries: int = 0
    broken_connections: int = 0
    disk_operations: int = 0
    acknowledged: int = 0
    delivered: int = 0
    faults: int = 0
    events: int = 0
    callbacks: int = 0
    coverage: dict[tuple[str, str], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    tallies: dict[str, int] = field(default_factory=dict)
    """What else the scenario counts."""

    @property
    def replay(self) -> str:
        """The one command that runs this seed again."""
        return f".venv/bin/python -m simulation run --scenario {self.scenario} --seed {self.seed}"


def run_seed(name: str, seed: int, *, trace_out: IO[str] | None = None) -> Outcome:
    """Runs one seed of a scenario. Whatever goes wrong in it is in `Outcome.error`."""
    world = World(seed, trace_out=trace_out)
    world.draw_posting()
    started = time.perf_counter()
    error = ""
    checker: Checker | None = None
    previous = signal.signal(signal.SIGPROF, _on_alarm)
    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
    try:
        checker = world.run(scenario(name)(world))  # type: ignore[arg-type]
    except KeyboardInterrupt:
        raise
    except BaseException as raised:
        error = "".join(traceback.format_exception(raised))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    if world.problems:
        error = "\n".join(world.problems) + ("\n" + error if error else "")
    counters = world.counters
    outcome = Outcome(
        name,
        seed,
        world.trace.hexdigest(),
        error,
        time.perf_counter() - started,
        world.loop.time(),
        counters.messages,
        counters.process_crashes,
        counters.power_losses,
        counters.session_expiries,
        counters.broken_connections,
        counters.disk_operations,
        checker.acknowledged_count if checker else 0,
        checker.delivered_count if checker else 0,
        world.faults,
        world.trace.events,
        world.loop.callbacks_run,
        world.coverage,
        world.notes,
        world.tallies,
    )
    world.discard()
    gc.collect()
    return outcome


def run_task(task: tuple[str, int]) -> Outcome:
    """`run_seed` for a pool of processes; here, since a spawned process cannot look into `__main__`."""
    return run_seed(*task)


def _on_alarm(signum: int, frame: FrameType | None) -> Any:
    raise HangError(f"the run hangs: not over after {CPU_LIMIT_S:g} s of processor time")


def prepare() -> None:
    """For a process that runs many seeds: loads all scenarios, and no collection looks at what is loaded again."""
    logs.quiet()
    for name in NAMES:
        scenario(name)
    gc.collect()
    gc.freeze()
