"""Overrides that hold brokers out of a roll, with values that the API server of today refuses."""

from __future__ import annotations

import copy

from tests.operator.fleet import CLUSTER, Fleet


async def test_an_override_that_cannot_be_read_holds_every_broker() -> None:
    """It may be a Hold that is written wrong, in a document that is older than the schema."""
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["overrides"] = [{"id": 1, "state": "hold"}]
    fleet = Fleet(document)
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    fleet.edit("spec.brokers.config", {"min.insync.replicas": 1})
    await fleet.converge()
    assert fleet.condition("Rolled")[:2] == ("False", "InvalidSpec")
    assert "spec.brokers.overrides[0].state" in fleet.condition("Ready")[2]
    assert not [write for write in fleet.kubernetes.writes if write[0] == "delete"]
