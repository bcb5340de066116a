"""What an operator asks the brokers of a cluster. In memory: here a test says when a pod ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from ottla_operator.api.fleet import BrokerValues, ClusterMetadata
from ottla_operator.api.objects import POD, uid_of
from tests.operator.fleet import Fleet


async def test_a_broker_whose_pod_ends_is_asked_for_nothing_though_kafka_still_lists_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet()
    await fleet.converge()
    view, values = fleet.kafka.view, fleet.kafka.broker_values
    asked: list[list[int]] = []

    async def with_all() -> ClusterMetadata:
        return replace(await view(), brokers=(0, 1, 2))

    async def note(broker_ids: Sequence[int]) -> Mapping[int, BrokerValues]:
        asked.append(list(broker_ids))
        return await values(broker_ids)

    monkeypatch.setattr(fleet.kafka, "view", with_all)
    monkeypatch.setattr(fleet.kafka, "broker_values", note)
    pod = fleet.kubernetes.there(POD, "orders-broker-1-0")
    await fleet.kubernetes.delete(POD, "default", "orders-broker-1-0", uid_of(pod))
    await fleet.task.reconcile_once()
    assert asked and all(broker_ids == [0, 2] for broker_ids in asked)
