"""Reconciling and Stalled: what tools that read conditions as kstatus does take a KafkaCluster for."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api.conditions import Condition, condition_false, condition_true
from ottla_operator.api.objects import KAFKA_CLUSTER, POD
from ottla_operator.objects.kstatus import decide_kstatus
from tests.operator.fleet import CLUSTER, Fleet

READY, ROLLED = condition_true("Ready"), condition_true("Rolled")


def kstatus(document: dict[str, Any]) -> str:
    """Source: checkGenericProperties and checkReadyCondition of pkg/kstatus/status in kubernetes-sigs/cli-utils."""
    status = document.get("status") or {}
    if status.get("observedGeneration") != document["metadata"]["generation"]:
        return "InProgress"
    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions.get("Ready") == "True" else "InProgress"


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([READY, ROLLED], None),
        ([READY, condition_false("Rolled", "Rolling", "")], ("Reconciling", "Progressing")),
        ([READY, condition_false("Rolled", "Blocked", "")], ("Reconciling", "Progressing")),
        ([READY, condition_false("Rolled", "AwaitingWindow", "")], None),
        ([READY, condition_false("Rolled", "AwaitingTurn", "")], None),
        ([READY, condition_false("Rolled", "AwaitingApproval", "")], None),
        ([READY, condition_false("Rolled", "Held", "")], None),
        ([READY, condition_false("Rolled", "ProgressDeadlineExceeded", "")], ("Stalled", "ProgressDeadlineExceeded")),
        ([condition_false("Ready", "InvalidSpec", ""), ROLLED], ("Stalled", "InvalidSpec")),
        ([condition_false("DisksReady", "SizeDecreased", ""), READY], ("Stalled", "SizeDecreased")),
        ([condition_false("Ready", "DisksClaimLost", ""), ROLLED], ("Reconciling", "Progressing")),
        ([condition_false("SpreadOverNodes", "SharedNode", ""), READY], None),
    ],
)
def test_there_is_one_of_them_or_none(conditions: list[Condition], expected: tuple[str, str] | None) -> None:
    found = decide_kstatus(conditions, is_paused=False)
    assert [(one.type, one.status, one.reason) for one in found] == (
        [] if expected is None else [(expected[0], "True", expected[1])]
    )
    assert decide_kstatus(conditions, is_paused=True) == ()


async def test_a_tool_sees_progress_rest_a_failure_and_rest_again_each_for_this_generation() -> None:
    fleet = Fleet(copy.deepcopy(CLUSTER))

    def seen() -> str:
        return kstatus(fleet.kubernetes.there(KAFKA_CLUSTER, "orders"))

    await fleet.step()
    assert seen() == "InProgress"
    await fleet.converge()
    assert seen() == "Current"
    fleet.edit("spec.brokers.config", {"no.such": 1})
    assert seen() == "InProgress", "the operator has not seen this generation"
    await fleet.converge()
    assert seen() == "Failed"
    stalled = next(one for one in fleet.status("conditions") if one["type"] == "Stalled")
    assert stalled["observedGeneration"] == fleet.status("observedGeneration") and "no.such" in stalled["message"]
    fleet.edit("spec.brokers.config", {"log.retention.hours": 7})
    await fleet.step()
    await fleet.step()
    assert seen() == "InProgress", "a roll"
    await fleet.converge()
    assert seen() == "Current"
    fleet.kubernetes.remove(POD, "orders-broker-2-0")
    await fleet.task.reconcile_once()
    assert seen() == "InProgress"
