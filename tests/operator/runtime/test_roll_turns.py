"""Turns of rolls: how many clusters restart members at the same time, who is next, and who gives a turn back."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_operator.runtime.object_cache import ObjectCache
from ottla_operator.runtime.roll_turns import GIVEN_FOR_S, SILENT_S, RollTurns

NOW = "2026-01-01T10:00:00Z"
RESTARTS = {"step": "WaitReady", "batch": [1]}
BETWEEN = {"step": "PickNext", "batchesDone": 1}
BEGINS = {"step": "PickNext"}
WAITS = {"step": "PickNext", "waiting": {"reason": "AwaitingTurn", "for": "others"}}


class Clusters:
    """KafkaClusters with a status.roll, and the turns of their rolls."""

    def __init__(self, most: int, **rolls: dict[str, Any]) -> None:
        self.cache = ObjectCache()
        self.passed_s = 0.0
        self.version = 1
        for name, roll in rolls.items():
            self.put(name, roll)
        self.most = most
        self.restart_operator()

    def restart_operator(self) -> None:
        self.turns = RollTurns(self.most, self.cache, lambda: NOW, lambda: self.passed_s)

    def put(self, name: str, roll: dict[str, Any] | None, **spec: Any) -> None:
        """The rolls began in the order of the names."""
        self.version += 1
        given = {"role": "broker", "since": NOW, "started": f"2026-01-01T09:00:0{ord(name[0]) - ord('a')}Z"}
        metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(self.version)}
        status = {"roll": {**given, **roll}} if roll is not None else {}
        self.cache.put({"kind": "KafkaCluster", "metadata": metadata, "spec": spec, "status": status})

    def ask(self, name: str) -> tuple[str, ...]:
        return self.turns.ask(("n", name), f"2026-01-01T09:00:0{ord(name[0]) - ord('a')}Z")


def test_as_many_as_may_roll_and_the_others_wait_in_the_order_in_which_their_rolls_began() -> None:
    clusters = Clusters(2, a=WAITS, b=RESTARTS, c=WAITS, d=WAITS)
    assert clusters.ask("d") == ("n/b", "n/a", "n/c") and clusters.ask("c") == ("n/b", "n/a")
    assert clusters.ask("a") == ()
    assert Clusters(0, a=RESTARTS, b=WAITS).ask("b") == (), "no bound"


def test_two_clusters_that_ask_before_status_shows_the_first_turn_do_not_both_get_it() -> None:
    clusters = Clusters(1, a=BEGINS, b=BEGINS)
    assert clusters.ask("a") == () and clusters.ask("b") == ("n/a",)
    clusters.put("a", RESTARTS)
    assert clusters.ask("b") == ("n/a",)
    clusters.put("a", None)
    assert clusters.ask("b") == (), "it is over"


def test_a_roll_that_ends_gives_its_turn_back_at_once() -> None:
    clusters = Clusters(1, a=BETWEEN, b=WAITS)
    assert clusters.ask("a") == (), "it asks before it finds that nobody is left to restart"
    clusters.put("a", None)
    assert clusters.ask("b") == ()


def test_a_turn_lasts_from_batch_to_batch_and_outlives_the_operator() -> None:
    clusters = Clusters(1, b=BETWEEN, a=WAITS)
    for _ in range(2):
        assert clusters.ask("a") == ("n/b",) and clusters.ask("b") == ()
        clusters.restart_operator()


@pytest.mark.parametrize(
    "roll",
    [
        {**RESTARTS, "since": "2026-01-01T09:55:00Z", "blockedBy": ["broker 1 waits (CrashLoopBackOff)"]},
        {"step": "PickNext", "since": "2026-01-01T09:55:00Z", "blockedBy": ["t-0: replica 2 is not in sync"]},
        {**BETWEEN, "awaitingApproval": "hash"},
        {**BETWEEN, "waiting": {"reason": "AwaitingWindow", "for": "Saturday"}},
    ],
)
def test_a_roll_that_waits_for_a_person_or_a_window_or_is_stuck_gives_its_turn_back(roll: dict[str, Any]) -> None:
    assert Clusters(1, a=roll, b=WAITS).ask("b") == ()


def test_a_stuck_roll_that_looks_again_and_again_keeps_nobody_waiting() -> None:
    stuck = {"step": "PickNext", "since": "2026-01-01T09:55:00Z", "blockedBy": ["t-0: replica 2 is not in sync"]}
    clusters = Clusters(1, a=stuck, b=WAITS)
    assert clusters.ask("a") == () and clusters.ask("b") == ()
    clusters.put("b", RESTARTS)
    assert clusters.ask("a") == ("n/b",)


def test_a_paused_cluster_and_one_whose_reconciliations_fail_hold_no_turn() -> None:
    clusters = Clusters(1, b=WAITS)
    clusters.put("a", RESTARTS, paused=True)
    assert clusters.ask("b") == ()
    clusters = Clusters(1, a=RESTARTS, b=WAITS)
    assert clusters.ask("b") == ("n/a",)
    clusters.passed_s = SILENT_S - 1
    clusters.turns.reconciled(("n", "b"))
    assert clusters.ask("b") == ("n/a",)
    clusters.passed_s = SILENT_S
    assert clusters.ask("b") == ()


def test_a_turn_that_is_not_taken_is_given_to_the_next_one() -> None:
    clusters = Clusters(1, a=BEGINS, b=WAITS)
    assert clusters.ask("a") == ()
    clusters.put("a", {**BEGINS, "awaitingApproval": "hash"})
    assert clusters.ask("b") == ("n/a",)
    clusters.passed_s = GIVEN_FOR_S
    assert clusters.ask("b") == ()
