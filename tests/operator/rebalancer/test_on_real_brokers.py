"""A rebalance and a scale-down from four brokers to three, by the operator's own decisions, on real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from ottla.testing import RunningCluster, cluster
from ottla_documents.kafka_cluster import parse_cluster
from ottla_operator.api.names import broker_name, pod_of
from ottla_operator.api.topics import CreateTopic
from ottla_operator.concerns.fleet.identity import Identities
from ottla_operator.concerns.rebalance.observation import RebalanceObservation
from ottla_operator.concerns.rebalance.rebalance import decide_rebalance
from ottla_operator.effects.kafka_admin import KafkaPythonAdmin
from ottla_operator.effects.reassignment_requests import FOLLOWERS, LEADERS, RATES
from ottla_operator.facts.snapshot import ContainerImages, Snapshot

RECORDS = 2_000


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=4, racks=4, disks=2) as running:
        yield running


class _Operator:
    """Takes snapshots of the real fleet and carries the decisions out; status stays in memory."""

    def __init__(self, admin: KafkaPythonAdmin, surplus: Sequence[int], **rebalance: Any) -> None:
        self._admin = admin
        self._identities = Identities({number: f"r{number}" for number in range(4)}, (), surplus=tuple(surplus))
        document = {"metadata": {"name": "c"}, "spec": {"brokers": {"replicas": 4 - len(surplus)}}}
        document["spec"]["rebalance"] = rebalance
        self._cluster, problems = parse_cluster(document)
        assert not problems
        self.status: dict[str, Any] | None = None
        self.lowest_in_sync = 99
        self.steps: list[str] = []

    async def step(self) -> bool:
        """Whether there is nothing left to do."""
        view = await self._admin.view()
        under_way = await self._admin.reassignments()
        log_dirs = await self._admin.log_dirs(view.brokers)
        self.lowest_in_sync = min(self.lowest_in_sync, *(len(one.in_sync) for one in view.partitions))
        decision = decide_rebalance(
            self._snapshot(view), self._identities, (), RebalanceObservation(log_dirs, under_way), is_rolling=False
        )
        found = decision.rebalance
        if decision.requests is not None:
            assert await self._admin.move(decision.requests) == {}
            found = decision.after
        self.status = None if found is None else found.to_status()
        self.steps += [] if found is None else [found.step]
        return found is None

    def _snapshot(self, view: Any) -> Snapshot:
        pods = {
            pod_of(broker_name("c", number)): {
                "metadata": {},
                "spec": {"nodeName": f"n{number}"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            for number in range(4)
        }
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        resource = {"status": {} if self.status is None else {"rebalance": self.status}}
        return Snapshot(
            self._cluster, (), resource, {"Pod": pods}, ContainerImages("o", "z"), now,
            kafka=view,
        )  # fmt: skip

    async def until_done(self) -> None:
        async with asyncio.timeout(300):
            while not await self.step():  # noqa: ASYNC110 - nothing announces the end of a reassignment
                await asyncio.sleep(0.2)


def _produce(fleet: RunningCluster, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=fleet.bootstrap, acks="all")
    for number in range(RECORDS):
        producer.send(topic, str(number).encode() + b"x" * 200)
    producer.flush()
    producer.close()


def _consumed(fleet: RunningCluster, topic: str) -> int:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=fleet.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    seen = 0
    for _ in consumer:
        seen += 1
        if seen == RECORDS:
            break
    consumer.close()
    return seen


def _throttles(fleet: RunningCluster, topic: str) -> dict[str, str]:
    client = KafkaAdminClient(bootstrap_servers=fleet.bootstrap)
    resources = [ConfigResource(ConfigResourceType.BROKER, str(number)) for number in range(4)]
    described = client.describe_configs([*resources, ConfigResource(ConfigResourceType.TOPIC, topic)])
    client.close()
    return {
        f"{kind} {name} {key}": item["value"]
        for kind, keys in (("broker", RATES), ("topic", (LEADERS, FOLLOWERS)))
        for name, found in described[kind].items()
        for key, item in found.items()
        if key in keys and item["config_source"].startswith("DYNAMIC")
    }


async def _in_sync(admin: KafkaPythonAdmin) -> int:
    return sum(len(one.in_sync) == 3 for one in (await admin.view()).partitions if one.topic == "t")


async def test_a_fleet_is_evened_out_and_shrinks_to_three_without_losing_a_record(fleet: RunningCluster) -> None:
    admin = KafkaPythonAdmin(fleet.bootstrap.split(","), bootstrap_timeout_ms=60_000)
    assert await admin.change([CreateTopic("t", 12, 3, {"min.insync.replicas": "2"})]) == {}
    async with asyncio.timeout(120):
        while await _in_sync(admin) < 12:  # noqa: ASYNC110 - the broker that answers may be behind
            await asyncio.sleep(0.05)
    await asyncio.to_thread(_produce, fleet, "t")
    # All replicas onto three brokers, as if the fourth were new.
    grown = _Operator(admin, (3,), throttle="100M", maxPartitionsPerBatch=5)
    await grown.until_done()
    replicas = [one.replicas for one in (await admin.view()).partitions]
    assert all(3 not in there for there in replicas) and "Move" in grown.steps and "Unthrottle" in grown.steps
    assert grown.lowest_in_sync >= 2
    (emptied,) = (await admin.log_dirs([3])).values()
    assert [one.replicas for one in emptied] == [(), ()]
    assert await asyncio.to_thread(_throttles, fleet, "t") == {}
    assert await asyncio.to_thread(_consumed, fleet, "t") == RECORDS

    back = _Operator(admin, (), throttle="0")
    await back.until_done()
    on_new = sum(3 in one.replicas for one in (await admin.view()).partitions if one.topic == "t")
    assert on_new >= 8, "12 partitions with three replicas are nine for each of four brokers"
    assert await asyncio.to_thread(_consumed, fleet, "t") == RECORDS
    await admin.close()
