"""What can happen to the brokers of a fleet, whatever the documents say."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.operator.model_based.machine import Machine


class FleetRules(Machine):
    """Rules only; the world is the machine's."""

    @rule(behind=st.sets(st.integers(0, 2), max_size=1))
    def replicas_are_behind(self, behind: set[int]) -> None:
        self.world.kafka.behind = set(behind)
        self.world.behind_since = self.world.loop.time()
        self.world.fleet_changed_at = self.world.loop.time()

    @rule(broker=st.integers(0, 2))
    def a_broker_is_not_registered(self, broker: int) -> None:
        self.world.kafka.unregistered = {broker}
        self.world.behind_since = self.world.loop.time()
        self.world.fleet_changed_at = self.world.loop.time()

    @rule(broker=st.integers(0, 2))
    def a_session_expires(self, broker: int) -> None:
        """Until it is back, the broker answers with the metadata of now, whatever happens to the fleet."""
        if broker in self.world.kafka.ready_brokers():
            self.world.kafka.freeze(broker)
            self.world.behind_since = self.world.loop.time()
            self.world.fleet_changed_at = self.world.loop.time()

    @rule(answers=st.booleans())
    def kafka_is_away(self, answers: bool) -> None:
        self.world.kafka.answers = answers
