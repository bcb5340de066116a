"""The machine that all rules share: a world, two writers, time that passes, faults, and what must hold.

Rules of a subject are in a class of its own (`topic_rules`, `cluster_rules`); a machine is put together of those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla_operator.runtime.handlers import watched_kinds
from tests.operator.model_based.world import REST_S, World
from tests.operator.model_based.writers import Writer
from tests.operator.unreliable_api import Action, Fault

KINDS = watched_kinds(reads_nodes=True)
DEATHS: tuple[Action, ...] = ("die before", "die after")
FAULTS: tuple[Action, ...] = ("refuse", "lose answer", "slow")


class Machine(RuleBasedStateMachine):
    """`document`: the KafkaCluster that is there at the start."""

    document: ClassVar[dict[str, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.document, self.standing_by)
        self.writers = (Writer(self.world), Writer(self.world))
        self.world.advance(self.begin_s)

    standing_by: ClassVar[int] = 0
    begin_s: ClassVar[float] = 90.0
    """How long the cluster has had when the rules begin."""
    rest_s: ClassVar[float] = REST_S

    def violations(self) -> Iterator[str]:
        """What is said and not so, at rest."""
        raise NotImplementedError

    @rule(seconds=st.sampled_from((0.005, 0.05, 0.5, 2.0, 10.0, 60.0, 700.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(skip=st.integers(0, 12), action=st.sampled_from(DEATHS), seconds=st.sampled_from((1.0, 5.0, 30.0)))
    def the_operator_dies_at_a_call(self, skip: int, action: Action, seconds: float) -> None:
        self.world.faults.add(Fault(action, skip, writes_only=True))
        self.world.advance(seconds)

    @rule()
    def an_operator_starts(self) -> None:
        self.world.restart_operator()

    @rule(
        action=st.sampled_from(FAULTS),
        skip=st.integers(0, 6),
        times=st.sampled_from((1, 3, 30)),
        status=st.sampled_from((500, 409, 403, 422, 429)),
        kind=st.sampled_from(("", *(kind.kind for kind in KINDS))),
    )
    def the_api_server_fails(self, action: Action, skip: int, times: int, status: int, kind: str) -> None:
        self.world.faults.add(Fault(action, skip, times, kind, status))

    @rule(kind=st.sampled_from(KINDS), lag=st.sampled_from((1.0, 5.0, 20.0)), twice=st.booleans())
    def a_watch_is_late(self, kind: Any, lag: float, twice: bool) -> None:
        self.world.process.lag_s[kind.kind] = lag
        if twice:
            self.world.process.twice.add(kind.kind)

    @rule(kind=st.sampled_from(KINDS))
    def a_watch_breaks_off(self, kind: Any) -> None:
        self.world.process.break_watch(kind)

    @rule()
    def watches_and_api_server_recover(self) -> None:
        self.world.faults.clear()
        self.world.process.mend()

    @rule()
    def all_faults_end(self) -> None:
        self.at_rest()

    @invariant()
    def nothing_forbidden_was_done(self) -> None:
        assert not self.world.violations, "; ".join(self.world.violations)

    def at_rest(self) -> None:
        self.world.converge(self.rest_s)
        self.nothing_forbidden_was_done()
        found = list(self.violations())
        assert not found, "; ".join(found)

    def teardown(self) -> None:
        try:
            self.at_rest()
        finally:
            self.world.close()
