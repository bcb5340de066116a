"""The campaign: a fleet, its load, fault after fault, and the check at the end."""

from __future__ import annotations

import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.nemesis.availability import Outage, failovers, goal_s, outages
from tests.nemesis.checker import Finding, findings
from tests.nemesis.faults import FAULTS, LEADER_LOSSES, Fault
from tests.nemesis.fleet import PARTITIONS, Fleet, State
from tests.nemesis.history import Acknowledged, FaultBegan, FaultEnded, History, Polled, Transacted, now
from tests.nemesis.java_clients import JavaGroupMember, JavaProducer
from tests.nemesis.load import TOPIC, Client, Reader, RefusedProducer, SteadyProducer, read_to_the_end
from tests.nemesis.nodes import System, end_all, is_same_log, until
from tests.nemesis.transactional import (
    COPY,
    LIST_PARTITIONS,
    LISTS,
    TransactionalClient,
    await_copies,
    read_transactions,
    transactional_clients,
)
from tests.nemesis.transactions import findings as transaction_findings

_QUIET_S = 2.0
_HEAL_S = 180.0
_FINAL_S = 180.0
_JAVA_PER_SECOND = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """`minutes` of faults, or exactly `count` of them where it is given; the seed draws their order and targets."""

    system: System
    session_timeout_ms: int
    minutes: float
    seed: int
    faults: Sequence[str]
    count: int | None = None
    has_java: bool = True
    has_transactions: bool = True


@dataclass(slots=True)
class Outcome:
    """`findings` as the checker has them, `errors` whatever else is wrong."""

    plan: Plan
    seconds: float = 0.0
    faults: int = 0
    acknowledged: int = 0
    polled: int = 0
    transactions: dict[str, int] = field(default_factory=dict)
    """How many ended in which way: ok, fail, info."""
    findings: list[Finding] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.findings and not self.errors

    @property
    def missed(self) -> list[Outage]:
        """Of every loss of a leader that took longer than `goal_s` the partition that was out for longest."""
        goal = goal_s(self.plan.session_timeout_ms)
        return [outage for outage in failovers(self.outages, LEADER_LOSSES) if outage.seconds > goal]


class Campaign:
    """Runs a plan in `directory`, which has to be empty. `tell` takes a line per fault."""

    def __init__(self, plan: Plan, directory: Path, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._directory = directory
        self._tell = tell
        self._draw = random.Random(plan.seed)
        self._fleet = Fleet(plan.system, plan.session_timeout_ms, directory)
        self._history = History(directory / "history.jsonl")
        self._steady: SteadyProducer | None = None
        self._clients: list[Client] = []
        self._transactional: list[TransactionalClient] = []

    def run(self) -> Outcome:
        """What does not hold is in the outcome; nothing is raised for it."""
        outcome = Outcome(self._plan)
        began = time.monotonic()
        try:
            self._fleet.start()
            self._fleet.create_topic(TOPIC, PARTITIONS)
            if self._plan.has_transactions:
                self._fleet.create_topic(LISTS, LIST_PARTITIONS)
                self._fleet.create_topic(COPY, PARTITIONS)
            self._start_load()
            self._until_available()
            self._tell(f"ready after {time.monotonic() - began:.1f} s")
            self._inject(outcome)
            self._end_load(outcome)
            self._compare_replicas(outcome)
        except AssertionError as failure:
            outcome.errors.append(str(failure))
        except Exception:  # the history and the outages tell what led to it
            outcome.errors.append(traceback.format_exc())
        finally:
            outcome.errors += self._fleet.ended
            end_all(self._fleet.nodes)
            self._fleet.disk.close()
            self._history.close()
        outcome.seconds = time.monotonic() - began
        events = self._history.events()
        outcome.acknowledged = sum(isinstance(event, Acknowledged) for event in events)
        outcome.polled = sum(len(event.records) for event in events if isinstance(event, Polled))
        ended = Counter(event.outcome for event in events if isinstance(event, Transacted))
        outcome.transactions = {kind: ended[kind] for kind in sorted(ended)}
        outcome.findings = findings(events) + transaction_findings(events)
        outcome.outages = outages(events)
        return outcome

    def _start_load(self) -> None:
        bootstrap, history = self._fleet.bootstrap, self._history
        self._steady = SteadyProducer("c0", history, bootstrap, PARTITIONS)
        self._clients = [
            self._steady,
            RefusedProducer("r0", history, bootstrap, PARTITIONS),
            Reader("assigned", history, bootstrap, PARTITIONS),
            Reader("member-1", history, bootstrap, PARTITIONS, "group"),
            Reader("member-2", history, bootstrap, PARTITIONS, "group"),
        ]
        if self._plan.has_java:
            self._clients += [
                JavaProducer("j1", history, self._directory, bootstrap, _JAVA_PER_SECOND),
                JavaGroupMember("java-member", history, self._directory, bootstrap, "java-group"),
            ]
        if self._plan.has_transactions:
            self._transactional = transactional_clients(history, bootstrap, PARTITIONS, self._plan.seed)
        everybody: list[Client] = [*self._clients, *self._transactional]
        for client in everybody:
            client.start()

    def _inject(self, outcome: Outcome) -> None:
        ends = time.monotonic() + self._plan.minutes * 60
        names: list[str] = []
        while time.monotonic() < ends if self._plan.count is None else outcome.faults < self._plan.count:
            if not names:
                names = list(self._plan.faults)
                self._draw.shuffle(names)
            self._one(FAULTS[names.pop()])
            outcome.faults += 1

    def _one(self, fault: Fault) -> None:
        time.sleep(self._draw.uniform(0.5, 1.5) * _QUIET_S)  # the load runs without a fault
        state = self._fleet.state()
        node = fault.choose(self._fleet, state, self._draw)
        led = _led_by(node.name, state)
        began = now()
        self._history.add(FaultBegan(began, fault.name, node.name, led))
        fault.begin(self._fleet, node)
        time.sleep(fault.lasts_s(self._fleet.session_timeout_s))  # and with it
        self._history.add(FaultEnded(now(), fault.name))
        self._fleet.network.mend()
        fault.end(self._fleet, node)
        healed = time.monotonic()
        self._until_available()
        seconds = time.monotonic() - healed
        some = [one for one in outages(self._history.events()) if one.fault == fault.name][-PARTITIONS:]
        longest = max((one.seconds for one in some), default=0.0)
        self._tell(f"{fault.name} of {node.name}: out for {longest:.1f} s, whole {seconds:.1f} s after it")

    def _until_available(self) -> None:
        """Every replica is in sync, and every partition has taken a record since this was asked."""
        since = now()
        steady = self._steady
        assert steady is not None

        def is_served() -> bool:
            return len(steady.last) == PARTITIONS and all(at > since for at in list(steady.last.values()))

        self._fleet.until_whole(is_served, _HEAL_S)

    def _end_load(self, outcome: Outcome) -> None:
        producers = [one for one in self._clients if isinstance(one, SteadyProducer | RefusedProducer | JavaProducer)]
        for producer in producers:
            producer.stop()
        for transactional in self._transactional:
            transactional.spare()
        ends = read_to_the_end(self._history, self._fleet.bootstrap, PARTITIONS, _FINAL_S)
        for client in self._clients:
            if client not in producers:
                client.stop()
        if self._transactional:
            self._end_transactions(ends)
        everybody: list[Client] = [*self._clients, *self._transactional]
        outcome.errors += [error for client in everybody for error in client.errors]

    def _end_transactions(self, ends: Mapping[int, int]) -> None:
        await_copies(self._fleet.bootstrap, ends, _FINAL_S)
        for client in self._transactional:
            client.stop()
        read_transactions(self._history, self._fleet.bootstrap, ends, _FINAL_S)

    def _compare_replicas(self, outcome: Outcome) -> None:
        until(lambda: self._fleet.state().is_whole, "every replica is in sync at the end")
        self._fleet.stop(self._fleet.brokers)
        for partition in range(PARTITIONS):
            name = f"{TOPIC}-{partition}"
            replicas = [path / name for one in self._fleet.brokers for path in one.log_dirs if (path / name).exists()]
            if not is_same_log(replicas):
                outcome.errors.append(f"the replicas of {name} differ: {', '.join(map(str, replicas))}")


def _led_by(name: str, state: State) -> tuple[int, ...]:
    return tuple(partition for partition, leader in enumerate(state.leaders) if f"b{leader}" == name)


def clean(directory: Path) -> None:
    """Takes away what a good run leaves, but not the history and the report."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
