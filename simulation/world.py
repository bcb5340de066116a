"""The shared state of the simulated ports of one run: seed, virtual time, trace, machines and their processes.

A `Machine` survives crashes: it has the disk images, the boot id and the skew of the wall clock. A `SimulatedProcess`
is one incarnation of a broker on a machine; `kill` ends it as kill -9 does, `Machine.lose_power` as a power loss does.
The rules of each port are in the module of that port.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import hashlib
import inspect
import io
import logging
import pickle
import random
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import IO, TYPE_CHECKING, Any

from simulation import logs
from simulation.handle import Handle
from simulation.loop import PROCESS, VirtualTimeLoop

if TYPE_CHECKING:
    from simulation.filesystem import DiskImage

EPOCH_MS = 1_700_000_000_000
"""Wall-clock time of virtual time 0, in milliseconds since the Unix epoch."""


_HASHED_TOGETHER = 256


class Trace:
    """A hash over every port event of the run, in order. Two runs of one seed must end with one hash.

    With `out` the events are also written there, one a line, so that two runs that differ can be compared.
    """

    def __init__(self, loop: VirtualTimeLoop, out: IO[str] | None = None) -> None:
        self._loop = loop
        self._hash = hashlib.blake2b(digest_size=16)
        self._out = out
        self._waiting: list[tuple[float, str, tuple[object, ...]]] = []
        """Events that the hash does not have yet: it takes many at a time, at a third of the cost of one by one."""
        self._hashed = 0

    @property
    def events(self) -> int:
        """How many there were."""
        return self._hashed + len(self._waiting)

    def event(self, kind: str, *fields: object) -> None:
        """Adds one event. Fields are numbers, strings and bytes, and never one that changes later."""
        self._waiting.append((self._loop.time(), kind, fields))
        if len(self._waiting) >= _HASHED_TOGETHER:
            self._hash_waiting()
        if self._out is not None:
            self._out.write(f"{self._loop.time():.9f} {kind} {fields!r}\n")

    def _hash_waiting(self) -> None:
        encoded = io.BytesIO()
        pickler = pickle.Pickler(encoded, 4)
        pickler.fast = True  # without a memo, so that equal events give equal bytes, whichever objects they are
        pickler.dump(self._waiting)
        self._hash.update(encoded.getbuffer())
        self._hashed += len(self._waiting)
        self._waiting.clear()

    def hexdigest(self) -> str:
        """At the end of the run: asked for in between, it would be another hash."""
        if self._waiting:
            self._hash_waiting()
        return self._hash.hexdigest()


class Counters:
    """What a run did, for the report."""

    def __init__(self) -> None:
        self.messages = 0
        self.process_crashes = 0
        self.power_losses = 0
        self.session_expiries = 0
        self.broken_connections = 0
        self.disk_operations = 0


class World:
    """One seeded run. `stream` gives independent random streams: one port's draws do not shift another's."""

    def __init__(self, seed: int, *, trace_out: IO[str] | None = None, loop: VirtualTimeLoop | None = None) -> None:
        self.seed = seed
        self.loop = loop or VirtualTimeLoop()
        self.trace = Trace(self.loop, trace_out)
        self.counters = Counters()
        self.machines: dict[str, Machine] = {}
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.has_failed_disk = False
        self.is_posting_together = False
        """Calls to a disk may complete several in one turn."""
        self.is_writing_on_loop = False
        """Appends of one turn are joined, and an idle disk has them written at its end."""
        self.coverage: dict[tuple[str, str], int] = {}
        """(fault, what the fleet was doing) → how often."""
        self.faults = 0
        self.tallies: dict[str, int] = {}
        """What a scenario counts, for the report."""
        self.last_looks: list[Callable[[], None]] = []
        """Called just before a process ends or a call on a disk fails: a oracle sees what was true until then."""
        self.at_end = contextlib.ExitStack()
        """Closed when the run is over."""
        self.graveyard: list[set[asyncio.Task[Any]]] = []
        self.context = contextvars.copy_context()
        self.loop.set_exception_handler(self._on_loop_exception)

    def stream(self, name: str) -> random.Random:
        """A random stream of its own, a function of the seed and `name` only (strings seed by SHA-512, not by hash)."""
        return random.Random(f"{self.seed}/{name}")

    def draw_posting(self) -> None:
        """In 3 of 10 runs calls to a disk may complete several in one turn; in half of them it writes on the loop."""
        self.is_posting_together = self.stream("posts").random() < 0.3
        self.is_writing_on_loop = self.stream("writes on the loop").random() < 0.5

    def machine(self, name: str, host: str) -> Machine:
        machine = Machine(self, name, host)
        self.machines[name] = machine
        return machine

    # Work of the world itself (deliveries, lanes, faults) must not belong to the process that happened to cause it:
    # it runs in the world's context, where no process is set.

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Handle:
        return self.loop.call_at(when, callback, *args, context=self.context)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Handle:
        return self.loop.call_at(self.loop.time() + delay_s, callback, *args, context=self.context)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """A task that belongs to no process (workload, faults)."""
        return asyncio.Task(coroutine, loop=self.loop, name=name, context=self.context.copy())

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Runs `main` to its end; the collector is off meanwhile, so that no finalizer runs in the middle of a run."""
        was_enabled = gc.isenabled()
        gc.disable()
        asyncio.set_event_loop(None)
        self.at_end.enter_context(logs.watched(self.problem))
        try:
            return self.loop.run_until_complete(self.spawn(main, name="scenario"))
        finally:
            self.at_end.close()
            self.last_looks.clear()
            for machine in self.machines.values():
                if machine.process is not None:
                    machine.process.kill()
            self._bury()
            self.loop.close()
            if was_enabled:
                gc.enable()

    def discard(self) -> None:
        """Lets go of the run's objects. What their finalizers have to say is no part of the run any more."""
        self.loop.set_exception_handler(lambda loop, context: None)
        # Ended here and not by the collector, which would print what a `finally` or an `except` then raises: a
        # coordinator that dies while it loads takes the end of its generator for an error, and waits to try again.
        with _running(self.loop):
            for tasks in self.graveyard:
                for task in tasks:
                    _end(task.get_coro())
        self.graveyard.clear()
        self.machines.clear()

    def _bury(self) -> None:
        """Quiets the tasks that died with their process, or with the run: pending for ever, and that is no mistake."""
        tasks = asyncio.all_tasks(self.loop)
        self.graveyard.append(tasks)
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def note(self, text: str) -> None:
        """Says in the report of the run what was drawn."""
        self.notes.append(f"{self.loop.time():.3f} {text}")

    def problem(self, text: str) -> None:
        """Notes what fails the run although nobody awaited it."""
        self.problems.append(f"{self.loop.time():.6f} {text}")

    def _on_loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.has_failed_disk and isinstance(error, OSError) and "Future exception" in str(context.get("message")):
            return  # calls under way when the directory failed: the broker halts, nobody is left to ask for them
        self.problem(f"unhandled: {context.get('message')}: {error!r}")
        logging.getLogger("simulation").warning("unhandled: %s", context.get("message"), exc_info=error)


@contextlib.contextmanager
def _running(loop: VirtualTimeLoop) -> Iterator[None]:
    """What asks for the running loop gets this one, which runs nothing any more."""
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(before)


_MOST_ENDS = 100


def _end(coroutine: Any) -> None:
    """Ends a coroutine, however often it goes on to another `await`; what it raises is nobody's."""
    _close_unstarted(coroutine)  # else it would be taken for one that somebody forgot to await
    for _ in range(_MOST_ENDS):
        try:
            coroutine.close()
            return
        except RuntimeError:
            continue  # it awaits again, or what it raised ended it: the next one tells
        except BaseException:
            return


def _close_unstarted(coroutine: object) -> None:
    """Closes a coroutine of which nothing has run, and those that it was given to await: nothing of them runs."""
    if not inspect.iscoroutine(coroutine) or inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
        return
    given = list(inspect.getcoroutinelocals(coroutine).values())
    coroutine.close()
    for value in given:
        _close_unstarted(value)


class SimulatedProcess:
    """One life of a broker: it owns whatever is started in its context. Dead once `kill` was called."""

    def __init__(self, machine: Machine, life: int) -> None:
        self.machine = machine
        self.world = machine.world
        self.life = life
        self.name = f"{machine.name}.{life}"
        self.alive = True
        self.random = self.world.stream(f"process/{self.name}")
        self._on_kill: list[Callable[[bool], None]] = []
        self._steps_to_crash: tuple[int, Callable[[], None]] | None = None
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def on_kill(self, callback: Callable[[bool], None]) -> None:
        """`callback(power_loss)` runs when the process dies; adapters drop what they hold there."""
        self._on_kill.append(callback)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=self.world.loop, name=f"{self.name}/{name}", context=self.context.copy())
        if not self.alive:
            # After the run, a `finally` of what had died with the process: nothing of it runs any more, or is missed.
            _close_unstarted(coroutine)
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Calls into the process at `when`; dropped when it is dead by then."""
        return self.world.loop.call_at(when, callback, *args, context=self.context)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.world.loop.call_soon(callback, *args, context=self.context)

    def crash_after(self, steps: int, crash: Callable[[], None]) -> None:
        """Calls `crash` just before the `steps`-th step of a disk lane from now: between any two writes."""
        self._steps_to_crash = (steps, crash)

    def step(self) -> bool:
        """Called by the lanes before each step; False when the process died right here."""
        if self._steps_to_crash is not None:
            left, crash = self._steps_to_crash
            if left <= 1:
                self._steps_to_crash = None
                crash()
            else:
                self._steps_to_crash = (left - 1, crash)
        return self.alive

    def kill(self, *, power_loss: bool = False) -> None:
        """Ends the process without running anything more of it. Idempotent."""
        if not self.alive:
            return
        for look in self.world.last_looks:
            look()
        self.alive = False
        # Kept to the end of the run: the finalizer of a coroutine would run its `finally` after all.
        self.world.graveyard.append(asyncio.all_tasks(self.world.loop))
        if self.machine.process is self:
            self.machine.process = None
        for callback in self._on_kill:
            callback(power_loss)


class Machine:
    """A host that processes live on, one at a time."""

    def __init__(self, world: World, name: str, host: str) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.disks: dict[str, DiskImage] = {}
        self.process: SimulatedProcess | None = None
        self.is_powered = True
        self._random = world.stream(f"machine/{name}")
        self.boot_id = self._new_boot_id()
        self.clock_skew_ms = self._random.randrange(-50, 51)
        self._lives = 0

    def start_process(self) -> SimulatedProcess:
        if self.process is not None:
            raise RuntimeError(f"a process already runs on {self.name}")
        self.is_powered = True
        self._lives += 1
        self.process = SimulatedProcess(self, self._lives)
        self.world.trace.event("process", self.process.name)
        return self.process

    def crash_process(self) -> None:
        """kill -9: what was written stays in the page cache."""
        if self.process is not None:
            self.world.trace.event("crash", self.process.name)
            self.world.counters.process_crashes += 1
            self.process.kill()

    def lose_power(self) -> None:
        """Ends the process and all that was not flushed; the boot id changes."""
        self.world.trace.event("power-loss", self.name)
        self.world.counters.power_losses += 1
        if self.process is not None:
            self.process.kill(power_loss=True)
        self.is_powered = False
        for image in self.disks.values():
            image.lose_power()
        self.boot_id = self._new_boot_id()

    def _new_boot_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
