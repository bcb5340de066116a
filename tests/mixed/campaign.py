"""What is done to a mixed fleet under load, step by step, and what must hold after each step and at the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mixed.fleet import BROKERS, PARTITIONS, Kind, MixedFleet, State
from tests.nemesis.checker import Finding, findings
from tests.nemesis.history import Acknowledged, History, now
from tests.nemesis.load import TOPIC, Client, Reader, SteadyProducer, read_to_the_end
from tests.nemesis.nodes import is_same_log

_FINAL_S = 120.0


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done: broker `broker` ends by `ends` and comes back as `comes_back`, while `controller` is the
    controller (None: whoever it is)."""

    broker: int
    comes_back: Kind
    ends: signal.Signals = signal.SIGTERM
    controller: int | None = None


FIRST = (Kind.APACHE, Kind.APACHE, Kind.OURS)


def every_role() -> list[Step]:
    """Each broker in turn is controller while each of the three, itself too, is killed or stopped; they all lead and
    follow meanwhile."""
    return [
        Step(broker, FIRST[broker], signal.SIGKILL if (broker + controller) % 2 else signal.SIGTERM, controller)
        for controller in BROKERS
        for broker in BROKERS
    ]


def replacement() -> list[Step]:
    """All three become ours, one by one, and then Apache Kafka's, on the same directories."""
    return [Step(broker, kind) for kind in (Kind.OURS, Kind.APACHE) for broker in BROKERS]


def short(protocol: str) -> list[Step]:
    """One step of each sort: under either controller, either kind replaced by the other."""
    if protocol == "2.8":
        return [Step(1, Kind.OURS, controller=2), Step(2, Kind.APACHE, controller=0)]
    return [Step(0, Kind.APACHE, signal.SIGKILL, controller=2), Step(2, Kind.APACHE, controller=1)]


@dataclass(slots=True)
class Outcome:
    steps: int = 0
    seconds: float = 0.0
    acknowledged: int = 0
    findings: list[Finding] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.findings and not self.errors


class Campaign:
    """Runs the steps in `directory`, which has to be empty. `tell` takes a line per step."""

    def __init__(
        self, directory: Path, connect: str, protocol: str, steps: Sequence[Step], tell: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._steps = steps
        self._tell = tell
        self._fleet = MixedFleet(directory, connect, FIRST, protocol)
        self._history = History(directory / "history.jsonl")
        self._steady: SteadyProducer | None = None
        self._clients: list[Client] = []

    def run(self) -> Outcome:
        """What does not hold is in the outcome; nothing is raised for it."""
        outcome = Outcome()
        began = time.monotonic()
        try:
            self._fleet.start()
            self._start_load()
            self._until_whole()
            self._tell(f"ready after {time.monotonic() - began:.1f} s")
            for step in self._steps:
                self._take(step)
                outcome.steps += 1
            self._end_load(outcome)
            self._compare_replicas(outcome)
        except AssertionError as failure:
            outcome.errors.append(str(failure))
            outcome.errors += [f"broker {slot.broker_id}:\n{slot.last_lines()}" for slot in self._fleet.slots]
        finally:
            self._fleet.close()
            self._history.close()
        outcome.seconds = time.monotonic() - began
        events = self._history.events()
        outcome.acknowledged = sum(isinstance(event, Acknowledged) for event in events)
        outcome.findings = findings(events)
        return outcome

    def _start_load(self) -> None:
        bootstrap = self._fleet.bootstrap
        # With more in flight librdkafka takes OUT_OF_ORDER_SEQUENCE_NUMBER of a broker of Apache Kafka that has just
        # become the leader for a reason to begin a new epoch, and stores records of other partitions twice.
        self._steady = SteadyProducer("c0", self._history, bootstrap, PARTITIONS, in_flight=1)
        self._clients = [
            self._steady,
            Reader("assigned", self._history, bootstrap, PARTITIONS),
            Reader("member-1", self._history, bootstrap, PARTITIONS, "group"),
        ]
        for client in self._clients:
            client.start()

    def _take(self, step: Step) -> None:
        fleet = self._fleet
        if step.controller is not None:
            fleet.make_controller(step.controller)
        state, slot = fleet.state(), fleet.slots[step.broker]
        before, controller = slot.kind, fleet.slots[state.controller].kind
        began = time.monotonic()
        fleet.end(step.broker, step.ends)
        if before is Kind.OURS and step.ends is signal.SIGTERM and state.controller != step.broker:
            self._check_handed_over(step.broker, state)
        fleet.start_again(step.broker, step.comes_back)
        self._until_whole()
        fleet.balance()
        self._until_whole()
        self._tell(
            f"broker {step.broker}, {before.value}, {step.ends.name}, back as {step.comes_back.value}, controller "
            f"{state.controller} ({controller.value}): whole after {time.monotonic() - began:.1f} s"
        )

    def _check_handed_over(self, broker: int, before: State) -> None:
        """Our broker, whichever kind the controller is, led nothing any more when it left."""
        self._fleet.until(lambda: broker not in self._fleet.state().brokers, f"broker {broker} is no longer registered")
        led = [index for index, leader in enumerate(before.leaders) if leader == broker]
        assert led, f"broker {broker} led nothing that it could hand over: {before}"
        kept = self._fleet.led_to_the_end(led)
        assert not kept, f"broker {broker} left while it led {kept} of {led}: {self._fleet.state()}"

    def _until_whole(self) -> None:
        """Every replica is in sync, and every partition has taken a record since this was asked."""
        since, steady = now(), self._steady
        assert steady is not None

        def is_whole() -> bool:
            for slot in self._fleet.slots:
                assert slot.is_running, f"broker {slot.broker_id} ({slot.kind.value}) ended:\n{slot.last_lines()}"
            is_served = len(steady.last) == PARTITIONS and all(at > since for at in list(steady.last.values()))
            return is_served and self._fleet.state().is_whole

        self._fleet.until(is_whole, "all is whole again")

    def _end_load(self, outcome: Outcome) -> None:
        assert self._steady is not None
        self._steady.stop()
        read_to_the_end(self._history, self._fleet.bootstrap, PARTITIONS, _FINAL_S)
        for client in self._clients:
            if client is not self._steady:
                client.stop()
            outcome.errors += client.errors

    def _compare_replicas(self, outcome: Outcome) -> None:
        self._fleet.until(lambda: self._fleet.state().is_whole, "every replica is in sync at the end")
        for broker in BROKERS:
            self._fleet.end(broker, signal.SIGTERM)
        for index in range(PARTITIONS):
            replicas = [slot.log_dir / f"{TOPIC}-{index}" for slot in self._fleet.slots]
            if not is_same_log(replicas):
                outcome.errors.append(f"the replicas of {TOPIC}-{index} differ")
