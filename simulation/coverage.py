"""The columns of the coverage table: the state of a fleet when a fault occurred, from outside the brokers.

`doing` lists all states that apply, "steady" when none does. `Coverage` counts (fault, state) for one run; the runner
adds up the runs.
"""

from __future__ import annotations

from ottla_broker.coordination import znodes
from simulation.broker_restarts import BrokerRestarts
from simulation.leaderships import Leaderships
from simulation.oracle import Oracle
from simulation.world import World

STATES = (
    "steady",
    "electing",
    "under-replicated",
    "controller changing",
    "recovering",
    "shutting down",
    "truncating",
    "reassigning",
    "deleting",
    "disk offline",
)
_LATELY_S = 1.0


class Coverage:
    """See the module."""

    def __init__(self, world: World, leaderships: Leaderships, oracle: Oracle, restarts: BrokerRestarts) -> None:
        self.world = world
        self.leaderships = leaderships
        self.oracle = oracle
        self.restarts = restarts

    def struck(self, fault: str) -> None:
        """A fault begins now."""
        states = self.doing()
        self.world.note(f"{fault} ({', '.join(states)})")
        for state in states:
            self.world.coverage[(fault, state)] = self.world.coverage.get((fault, state), 0) + 1

    def doing(self) -> list[str]:
        """Every state that the fleet is in, in the order of STATES."""
        lately = self.world.loop.time() - _LATELY_S
        states = self.leaderships.states
        store = self.leaderships.store
        holds = {
            "electing": any(state.leader < 0 for state in states.values())
            or any(at >= lately for at in self.leaderships.changed_at.values()),
            "under-replicated": self._is_under_replicated(),
            "controller changing": self.leaderships.controller_changed_at >= lately or not store.owner("/controller"),
            "recovering": bool(self.restarts.recovering),
            "shutting down": bool(self.restarts.stopping),
            "truncating": any(at >= lately for at in self.oracle.truncations_at.values()),
            "reassigning": self._is_reassigning(),
            "deleting": bool(store.names(znodes.DELETE_TOPICS)),
            "disk offline": any(
                state.state.value != "online"
                for broker in self.restarts.brokers
                if broker.is_ready and broker.is_up and broker.broker is not None
                for state in broker.broker.log_manager.states
            ),
        }
        return [state for state in STATES if holds.get(state)] or ["steady"]

    def _is_under_replicated(self) -> bool:
        assignments = self._assignments()
        return any(
            len(state.in_sync) < len(assignments[topic].partitions.get(number, ()))
            for (topic, number), state in self.leaderships.states.items()
            if topic in assignments
        )

    def _is_reassigning(self) -> bool:
        return any(found.adding_replicas or found.removing_replicas for found in self._assignments().values())

    def _assignments(self) -> dict[str, znodes.TopicAssignment]:
        store = self.leaderships.store
        found = {}
        for topic in dict.fromkeys(topic for topic, _ in self.leaderships.states):
            data = store.data(znodes.topic_path(topic))
            if data is not None:
                found[topic] = znodes.TopicAssignment.decode(topic, data)
        return found
