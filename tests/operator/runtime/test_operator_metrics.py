"""What Prometheus sees of an operator: every metric is explained, and says what is so."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.local.ports import HOST, free_ports
from ottla_broker.exposition import Exposition
from ottla_operator import reference
from ottla_operator.api.metric_names import METRICS
from ottla_operator.api.objects import KAFKA_CLUSTER, LEASE
from ottla_operator.effects.counted_api import CountedApi
from ottla_operator.ports import ApiError
from ottla_operator.runtime.http_endpoint import HttpEndpoint
from ottla_operator.runtime.operator_metrics import OperatorMetrics
from tests.operator.fleet import CLUSTER
from tests.operator.kubernetes import InMemoryKubernetes
from tests.operator.runtime.test_supervisor import World
from tests.operator.topic_fleet import document

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def _samples(metrics: OperatorMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = Exposition(metrics.registry).text().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _of(metrics: OperatorMetrics, name: str, **labels: str) -> float | None:
    return _samples(metrics).get((name, frozenset(labels.items())))


class Observed(World):
    """A supervisor with its metrics, which holds the lease."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = self.supervisor._metrics
        self.metrics.show(self.supervisor._cache, self.supervisor.topic_queues, lambda: True, lambda: 0)
        self.allowed.set()


async def test_the_metrics_show_clusters_topics_and_what_was_done() -> None:
    world = Observed()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    world.kubernetes.put(document("good"))
    world.kubernetes.put(document("wide", replicas=9))
    await world.until(lambda: world.topic_reason("good") == "AsDeclared")
    await world.until(lambda: world.topic_reason("wide") == "NotEnoughBrokers")
    cluster = {"namespace": "default", "cluster": "orders"}
    found = world.metrics
    assert _of(found, "ottla_operator_lease_held") == 1
    assert _of(found, "ottla_operator_topics", **cluster, reason="AsDeclared") == 1
    assert _of(found, "ottla_operator_topics", **cluster, reason="NotEnoughBrokers") == 1
    await world.until(lambda: _of(found, "ottla_operator_topic_queue", **cluster, state="queued") == 0)
    await world.until(lambda: _of(found, "ottla_operator_topic_queue", **cluster, state="requeued") == 1)
    assert _of(found, "ottla_operator_topic_changes_total", change="CreateTopic") == 1
    assert _of(found, "ottla_operator_cluster_condition", **cluster, type="Ready") == 1
    assert _of(found, "ottla_operator_brokers", **cluster, state="declared") == 3
    assert _of(found, "ottla_operator_brokers", **cluster, state="ready") == 3
    passes = _of(found, "ottla_operator_reconciliation_seconds_count", kind="KafkaCluster")
    assert passes is not None and passes > 0
    await world.supervisor.close()


async def test_a_roll_is_shown_while_it_is_under_way() -> None:
    world = Observed()
    cluster = copy.deepcopy(CLUSTER)
    roll = {"id": "2", "role": "broker", "step": "WaitReady", "batch": [2], "done": [0, 1]}
    world.supervisor._cache.put(
        {**cluster, "metadata": {**cluster["metadata"], "uid": "u", "resourceVersion": "1"}, "status": {"roll": roll}}
    )
    labels = {"namespace": "default", "cluster": "orders", "role": "broker"}
    assert _of(world.metrics, "ottla_operator_roll_members", **labels, state="restarting") == 1
    assert _of(world.metrics, "ottla_operator_roll_members", **labels, state="done") == 2


async def test_a_rebalance_is_shown_while_there_is_one() -> None:
    world = Observed()
    cluster = copy.deepcopy(CLUSTER)
    rebalance = {"step": "Wait", "batch": [{"topic": "t"}], "partitionsToGo": 7, "bytesToGo": 500, "bytesMoved": 20}
    metadata = {**cluster["metadata"], "uid": "u", "resourceVersion": "1"}
    world.supervisor._cache.put({**cluster, "metadata": metadata, "status": {"rebalance": rebalance}})
    labels = {"namespace": "default", "cluster": "orders"}
    found = world.metrics
    assert _of(found, "ottla_operator_rebalance_partitions", **labels, state="moving") == 1
    assert _of(found, "ottla_operator_rebalance_partitions", **labels, state="to_go") == 7
    assert _of(found, "ottla_operator_rebalance_bytes", **labels, state="to_go") == 500
    assert _of(found, "ottla_operator_rebalance_bytes", **labels, state="moved") == 20
    world.supervisor._cache.put({**cluster, "metadata": {**metadata, "resourceVersion": "2"}, "status": {}})
    assert _of(found, "ottla_operator_rebalance_bytes", **labels, state="to_go") is None


async def test_every_write_is_counted_and_so_is_a_refused_one() -> None:
    metrics, kubernetes = OperatorMetrics(), InMemoryKubernetes()
    api = CountedApi(kubernetes, metrics.wrote)
    lease = {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": {"name": "l", "namespace": "default"}}
    await api.create(lease)
    with pytest.raises(ApiError):
        await api.create(lease)
    assert await api.get(LEASE, "default", "l") is not None
    assert _of(metrics, "ottla_operator_writes_total", verb="create", kind="Lease") == 2
    assert _of(metrics, "ottla_operator_write_failures_total", verb="create", kind="Lease") == 1


async def test_a_failed_reconciliation_is_counted() -> None:
    world = Observed()

    async def refuses(*_: object) -> None:
        raise ApiError(500, "InternalError", "not now")

    world.kubernetes.apply = refuses  # type: ignore[method-assign,assignment]
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(
        lambda: bool(_of(world.metrics, "ottla_operator_reconciliation_failures_total", kind=KAFKA_CLUSTER.kind))
    )
    await world.supervisor.close()


async def test_metrics_and_probe_are_answered_on_one_port() -> None:
    (port,) = free_ports(1)
    stuck: list[str] = []
    endpoint = HttpEndpoint(f"http://{HOST}:{port}/healthz", OperatorMetrics(), lambda: stuck)
    await endpoint.start()
    try:
        async with aiohttp.ClientSession() as session:

            async def get(path: str) -> tuple[int, str]:
                async with session.get(f"http://{HOST}:{port}{path}") as response:
                    return response.status, await response.text()

            assert (await get("/healthz"))[0] == 200
            status, text = await get("/metrics")
            assert status == 200 and "ottla_operator_topics_changed_by_others_total 0.0" in text
            assert "process_resident_memory_bytes" in text
            stuck.append("topics default/orders")
            status, text = await get("/healthz")
            assert status == 503 and "topics default/orders" in text
    finally:
        await endpoint.close()


async def test_an_address_that_is_in_use_is_an_error() -> None:
    server = await asyncio.start_server(lambda *_: None, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    endpoint = HttpEndpoint(f"http://{HOST}:{port}/healthz", OperatorMetrics(), list)
    with pytest.raises(OSError, match=str(port)):
        await endpoint.start()
    await endpoint.close()
    server.close()


def test_every_metric_that_is_served_is_in_the_table_with_its_labels() -> None:
    metrics = OperatorMetrics()
    metrics.reconciled("KafkaCluster", 0.1)
    metrics.failed("KafkaCluster")
    metrics.wrote("create", "Event", True)
    metrics.changed_topic("CreateTopic")
    world = Observed()
    metrics.show(world.supervisor._cache, dict, lambda: True, lambda: 0)
    served = {name: family.label_names for name, family in metrics.registry.families.items()}
    assert {name: METRICS[name].labels for name in served} == served
    assert {family.name for source in metrics.registry.sources for family in source()} | served.keys() == METRICS.keys()


def test_the_table_of_the_manual_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert reference.with_metrics(page) == page, "run make reference"
