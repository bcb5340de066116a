"""Who may write, which tasks run, and what a missed deletion does."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Mapping, Sequence

import pytest

from ottla_operator.api import names
from ottla_operator.api.objects import (
    CLAIM,
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    NODE,
    POD,
    SERVICE,
    STATEFUL_SET,
    Obj,
    dig,
    new,
)
from ottla_operator.api.rights import Right
from ottla_operator.api.topics import DeleteTopic, TopicDescription
from ottla_operator.concerns.roll import machine
from ottla_operator.facts.snapshot import ContainerImages
from ottla_operator.ports import ApiError
from ottla_operator.runtime import reconciling, topic_task
from ottla_operator.runtime.object_cache import ObjectCache
from ottla_operator.runtime.supervisor import TaskSupervisor
from tests.operator.fleet import CLUSTER, InMemoryKafka, InMemorySurroundings
from tests.operator.kubernetes import InMemoryKubernetes, node
from tests.operator.task_contexts import task_context
from tests.operator.topic_fleet import FLIGHTS, document


class World:
    """A supervisor fed by a Kubernetes in memory."""

    def __init__(self, most_rolling: int = 0) -> None:
        self.kubernetes = InMemoryKubernetes()
        self.kafka = InMemoryKafka(self.kubernetes)
        self.allowed = asyncio.Event()
        self.environment = InMemorySurroundings(self.kubernetes, self.kafka)
        self.context = task_context(ObjectCache(), self.kubernetes, self.environment, time.monotonic)
        self.supervisor = TaskSupervisor(
            self.context,
            ContainerImages("ottla:1", "zookeeper:3.9"),
            reads_nodes=True,
            may_write=self.wait,
            most_rolling=most_rolling,
        )
        self.kubernetes.on_change = self.supervisor.on_event
        for index, zone in enumerate(("zone-a", "zone-b", "zone-c")):
            self.kubernetes.put(node(f"n{index}", zone))

    async def wait(self) -> None:
        await self.allowed.wait()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(180):
            while not holds():
                self.kubernetes.settle()
                await asyncio.sleep(0.01)

    async def until_at_rest(self) -> None:
        """Waits until every task waits: nothing has happened for many iterations of the loop."""
        passes, quiet = -1, 0
        while quiet < 50:
            self.kubernetes.settle()
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self.environment.reported) == passes else 0
            passes = len(self.environment.reported)

    def is_ready(self, name: str) -> bool:
        conditions = dig(self.kubernetes.there(KAFKA_CLUSTER, name), "status", "conditions") or []
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

    def topic_reason(self, name: str) -> str:
        """The reason of its Ready condition; "" before there is one."""
        resource = self.kubernetes.objects.get(("KafkaTopic", "default", name))
        return str(dig(resource, "status", "conditions", 0, "reason") or "")


async def test_topics_are_looked_at_on_brokers_that_have_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    world.allowed.set()
    await world.until(lambda: world.is_ready("orders"))
    world.environment.sessions = {"orders-broker-2-0": "expired"}
    world.kubernetes.edit(KAFKA_CLUSTER, "orders", spec={**CLUSTER["spec"], "paused": False})
    await world.until_at_rest()
    asked, look = [], world.kafka.topics

    async def topics(wanted: Sequence[str]) -> Mapping[str, TopicDescription]:
        asked.append(set(world.kafka.asked_only))
        return await look(wanted)

    monkeypatch.setattr(world.kafka, "topics", topics)
    world.kubernetes.put(copy.deepcopy(FLIGHTS))
    await world.until(lambda: world.topic_reason("flights") == "AsDeclared")
    assert asked and all(brokers == {0, 1} for brokers in asked)
    await world.supervisor.close()


async def test_nothing_is_written_before_the_lease_is_held() -> None:
    world = World()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.kubernetes.writes == []
    world.allowed.set()
    await world.until(lambda: world.is_ready("orders"))
    await world.supervisor.close()


async def test_clusters_are_rolled_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(most_rolling=1)
    monkeypatch.setattr(machine, "TURN_REQUEUE_S", 0.01)
    monkeypatch.setattr(machine, "REQUEUE_S", 0.01)
    world.allowed.set()
    clusters = ("orders", "payments")
    for name in clusters:
        cluster = copy.deepcopy(CLUSTER)
        cluster["metadata"]["name"] = name
        world.kubernetes.put(cluster)
    await world.until(lambda: all(world.is_ready(name) for name in clusters))
    together: list[tuple[str, ...]] = []
    see = world.kubernetes.on_change

    def watch(event: str, obj: Obj) -> None:
        see(event, obj)
        rolls = {name: dig(world.kubernetes.there(KAFKA_CLUSTER, name), "status", "roll") or {} for name in clusters}
        if rolling := tuple(name for name in clusters if rolls[name].get("batch")):
            together.append(rolling)

    def rolled(name: str) -> str:
        conditions = dig(world.kubernetes.there(KAFKA_CLUSTER, name), "status", "conditions") or []
        return next(str(one["reason"]) for one in conditions if one["type"] == "Rolled")

    world.kubernetes.on_change = watch
    for name in clusters:
        cluster = world.kubernetes.there(KAFKA_CLUSTER, name)
        cluster["spec"]["brokers"]["config"] = {"log.retention.hours": 7}
        world.kubernetes.put(cluster)
    await world.until(lambda: "AwaitingTurn" in [rolled(name) for name in clusters])
    await world.until(lambda: [rolled(name) for name in clusters] == ["AsDeclared"] * 2)
    assert set(together) == {("orders",), ("payments",)}, "never both"
    await world.supervisor.close()


async def test_two_clusters_run_side_by_side_and_a_deleted_one_ends() -> None:
    world = World()
    world.allowed.set()
    other = copy.deepcopy(CLUSTER)
    other["metadata"]["name"] = "payments"
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    world.kubernetes.put(other)
    await world.until(lambda: world.is_ready("orders") and world.is_ready("payments"))
    world.kubernetes.remove(KAFKA_CLUSTER, "orders")
    await world.until(lambda: not [name for name in world.kubernetes.names(STATEFUL_SET) if name.startswith("orders-")])
    for _ in range(10):
        world.kubernetes.settle()
        await asyncio.sleep(0.01)
    assert not [name for name in world.kubernetes.names(POD) if name.startswith("orders-")]
    assert [name for name in world.kubernetes.names(CLAIM) if name.startswith("orders-")]
    assert world.is_ready("payments")
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    await world.supervisor.close()


async def test_a_topic_applied_before_its_cluster_is_created_once_the_brokers_are_ready() -> None:
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(FLIGHTS))
    await world.until(lambda: bool(dig(world.kubernetes.objects["KafkaTopic", "default", "flights"], "status")))
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: "flights" in world.kafka.topics_there)
    await world.supervisor.close()


async def test_a_topic_that_waits_for_brokers_is_requeued_without_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker registers with Kafka after its pod was seen; nothing in Kubernetes changes then."""
    monkeypatch.setattr(topic_task, "REQUEUE_S", 0.05)
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    world.kafka.unregistered = {2}
    world.kubernetes.put(copy.deepcopy(FLIGHTS))

    def reason() -> object:
        return dig(world.kubernetes.there(KAFKA_TOPIC, "flights"), "status", "conditions", 0, "reason")

    await world.until(lambda: reason() == "NotEnoughBrokers")
    world.kafka.unregistered = set()
    await world.until(lambda: "flights" in world.kafka.topics_there)
    await world.supervisor.close()


async def test_a_conflicting_topic_is_taken_over_as_soon_as_the_older_kafka_topic_is_gone() -> None:
    """No look at everything comes in between: those are ten minutes apart."""
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    for day, name, younger in ((1, "flights", "second"), (2, "second", "third"), (3, "third", "fourth")):
        if name == "flights":
            world.kubernetes.put(document("flights"))
        await world.until(lambda name=name: world.topic_reason(name) == "AsDeclared")  # type: ignore[misc]
        waiting = document(younger, topicName="flights")
        waiting["metadata"]["creationTimestamp"] = f"2026-02-0{day}T00:00:00Z"
        world.kubernetes.put(waiting)
        await world.until(lambda younger=younger: world.topic_reason(younger) == "ConflictingTopic")  # type: ignore[misc]
        if name == "third":  # it names another topic: an older definition allows that
            world.kubernetes.put({**world.kubernetes.there(KAFKA_TOPIC, name), "spec": document("x")["spec"]})
        else:
            world.kubernetes.remove(KAFKA_TOPIC, name)
        await world.until(lambda younger=younger: world.topic_reason(younger) == "AsDeclared")  # type: ignore[misc]
    assert not [change for change in world.kafka.requests if isinstance(change, DeleteTopic)]
    await world.supervisor.close()


async def test_a_kafka_topic_without_cluster_reference_leaves_its_topic_to_the_next() -> None:
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    world.kubernetes.put(document("flights"))
    await world.until(lambda: world.topic_reason("flights") == "AsDeclared")
    world.kubernetes.put(document("second", topicName="flights"))
    await world.until(lambda: world.topic_reason("second") == "ConflictingTopic")
    moved = document("flights", clusterRef={"name": "elsewhere"})
    world.kubernetes.put({**world.kubernetes.there(KAFKA_TOPIC, "flights"), "spec": moved["spec"]})
    await world.until(lambda: world.topic_reason("second") == "AsDeclared")
    await world.until(lambda: world.topic_reason("flights") == "ClusterNotFound")
    await world.supervisor.close()


async def test_a_label_of_a_namespace_allows_its_topics_and_takes_them_back_as_soon_as_it_changes() -> None:
    world = World()
    world.allowed.set()
    cluster = copy.deepcopy(CLUSTER)
    cluster["spec"]["topics"] = {"namespaces": {"selector": {"matchLabels": {"kafka": "orders"}}}}
    world.kubernetes.put(cluster)
    world.kubernetes.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    await world.until(lambda: world.is_ready("orders"))
    afar = document("flights", clusterRef={"name": "orders", "namespace": "default"})
    afar["metadata"]["namespace"] = "team-a"
    world.kubernetes.put(afar)

    def reason() -> object:
        return dig(world.kubernetes.objects["KafkaTopic", "team-a", "flights"], "status", "conditions", 0, "reason")

    await world.until(lambda: reason() == "NamespaceNotAllowed")
    labelled = {"name": "team-a", "labels": {"kafka": "orders"}}
    world.kubernetes.put({"apiVersion": "v1", "kind": "Namespace", "metadata": labelled})
    await world.until(lambda: reason() == "AsDeclared")
    world.kubernetes.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    await world.until(lambda: reason() == "NamespaceNotAllowed")
    assert "flights" in world.kafka.topics_there
    await world.supervisor.close()


async def test_a_finalizer_is_removed_while_no_broker_answers_and_hundreds_of_topics_wait() -> None:
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    world.kubernetes.put(document("flights"))
    await world.until(lambda: world.topic_reason("flights") == "AsDeclared")
    world.kafka.answers = False
    for number in range(250):
        world.kubernetes.put(document(f"t{number:03}"))
    world.kubernetes.remove(KAFKA_TOPIC, "flights")
    await world.until(lambda: world.topic_reason("flights") == "Terminating")
    terminating = world.kubernetes.there(KAFKA_TOPIC, "flights")
    world.kubernetes.put({**terminating, "spec": terminating["spec"] | {"deletionPolicy": "Retain"}})
    await world.until(lambda: "flights" not in world.kubernetes.names(KAFKA_TOPIC))
    assert "flights" in world.kafka.topics_there
    world.kafka.answers = True
    await world.until(lambda: len(world.kafka.topics_there) == 251)
    await world.supervisor.close()


async def test_kafka_clients_are_closed_with_their_cluster_and_with_the_operator() -> None:
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    world.kubernetes.put(document("flights"))
    await world.until(lambda: world.topic_reason("flights") == "AsDeclared")
    assert world.kafka.opened > world.kafka.closed
    more = world.kubernetes.there(KAFKA_CLUSTER, "orders")
    more["spec"]["brokers"]["replicas"] = 4
    world.kubernetes.put(more)
    await world.until(lambda: len(world.kafka.ready_brokers()) == 4)
    world.kubernetes.put(document("after"))
    await world.until(lambda: world.topic_reason("after") == "AsDeclared")
    assert world.kafka.opened - world.kafka.closed <= 2, "one of the cluster's task, one of its topics'"
    world.kubernetes.remove(KAFKA_CLUSTER, "orders")
    await world.until(lambda: world.kafka.opened == world.kafka.closed)
    world.kubernetes.put({**copy.deepcopy(CLUSTER), "spec": more["spec"]})
    await world.until(lambda: world.kafka.opened > world.kafka.closed)
    await world.supervisor.close()
    assert world.kafka.opened == world.kafka.closed


async def test_a_deletion_that_the_watch_missed_is_found_by_the_resync() -> None:
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    world.kubernetes.on_change = None
    world.kubernetes.remove(SERVICE, "orders-broker-1")
    world.kubernetes.on_change = world.supervisor.on_event
    await world.supervisor.resync([KAFKA_CLUSTER, SERVICE, NODE], ())
    await world.until(lambda: "orders-broker-1" in world.kubernetes.names(SERVICE))
    await world.supervisor.close()


async def test_a_resync_of_several_namespaces_forgets_none_of_them() -> None:
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    await world.until_at_rest()
    passes = len(world.environment.reported)
    await world.supervisor.resync([KAFKA_CLUSTER, SERVICE, NODE], ("default", "other"))
    await world.until_at_rest()
    assert len(world.environment.reported) == passes
    await world.supervisor.close()


async def test_a_namespace_that_may_not_be_listed_stops_no_other_and_nothing_is_done_there() -> None:
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    await world.until_at_rest()
    world.kubernetes.on_change = None
    world.kubernetes.remove(SERVICE, "orders-broker-1")
    world.kubernetes.lacks["gone"] = {Right("", "services", "list")}
    await world.supervisor.resync([KAFKA_CLUSTER, SERVICE, NODE], ("gone", "default"))
    world.kubernetes.on_change = world.supervisor.on_event
    await world.until(lambda: "orders-broker-1" in world.kubernetes.names(SERVICE))
    shortfall = await world.context.prerequisites.shortfall(KAFKA_CLUSTER, "gone", [])
    assert shortfall is not None and shortfall.reason == "RightsMissing"
    world.kubernetes.lacks.clear()
    await world.supervisor.resync([KAFKA_CLUSTER, SERVICE, NODE], ("gone", "default"))
    assert await world.context.prerequisites.shortfall(KAFKA_CLUSTER, "gone", []) is None
    await world.supervisor.close()


async def test_a_heartbeat_of_a_node_wakes_no_task() -> None:
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    await world.until_at_rest()
    passes = len(world.environment.reported)
    beat = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:05:00Z"}]}
    world.kubernetes.put({**world.kubernetes.there(NODE, "n1"), "status": beat})
    await world.until_at_rest()
    assert len(world.environment.reported) == passes
    world.kubernetes.put(node("n1", "zone-z"))
    await world.until(lambda: len(world.environment.reported) > passes)
    await world.supervisor.close()


async def test_a_written_status_of_a_cluster_queues_none_of_its_topics_and_a_changed_spec_queues_all() -> None:
    """A roll writes status every few seconds, and a cluster may have thousands of topics."""
    world = World()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    for name in ("a", "b"):
        world.kubernetes.put(document(name))
    queue = world.supervisor._topics["default", "orders"][1].queue
    assert len(queue) == 2 and len(queue.take(10, with_stalled=True)) == 2
    world.kubernetes.edit(KAFKA_CLUSTER, "orders", status={"kafkaVersion": "3.9.1"})
    assert len(queue) == 0
    world.kubernetes.edit(KAFKA_CLUSTER, "orders", spec={**CLUSTER["spec"], "paused": True})
    assert len(queue) == 2
    queue.take(10, with_stalled=True)
    world.kubernetes.remove(KAFKA_CLUSTER, "orders")
    assert len(queue) == 2


async def test_topics_that_wait_for_brokers_are_tried_again_when_one_is_back() -> None:
    """A topic with three replicas on three brokers can be created only between two restarts of a roll."""
    world = World()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    world.kubernetes.put(document("a"))
    queue = world.supervisor._topics["default", "orders"][1].queue
    labels = names.labels("orders", names.BROKER, broker_id="1")

    def show(is_ready: str, **metadata: str) -> None:
        pod = new(POD, "default", "orders-broker-1-0", {**labels, **metadata})
        world.kubernetes.put({**pod, "status": {"conditions": [{"type": "Ready", "status": is_ready}]}})

    def waits() -> bool:
        queue.take(10, with_stalled=True)
        queue.requeue_after("a", 10.0)
        return len(queue) == 0

    show("False")
    assert waits()
    show("False", seen="again")
    assert len(queue) == 0
    show("True")
    assert queue.take(10, with_stalled=True) == ["a"] and waits()
    show("True", seen="again")
    assert len(queue) == 0
    await world.supervisor.close()


async def test_a_refused_write_is_tried_again_at_once_when_the_document_is_corrected_and_at_no_other_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After many refusals the next try is minutes away."""
    monkeypatch.setattr(reconciling, "back_off_s", lambda failures: 3600.0)
    world = World()
    world.allowed.set()
    world.kubernetes.put(copy.deepcopy(CLUSTER))
    await world.until(lambda: world.is_ready("orders"))
    await world.until_at_rest()
    refused: list[Obj] = []

    def admit(obj: Obj) -> Obj:
        if dig(obj, "metadata", "annotations", "team") == "wrong":
            refused.append(obj)
            raise ApiError(403, "Forbidden", "no team of this name")
        return obj

    world.kubernetes.webhook = admit
    spec = copy.deepcopy(CLUSTER["spec"])
    spec["brokers"]["template"] = {"service": {"metadata": {"annotations": {"team": "wrong"}}}}
    world.kubernetes.edit(KAFKA_CLUSTER, "orders", spec=spec)
    await world.until(lambda: bool(refused))
    running = world.supervisor._clusters["default", "orders"]
    await asyncio.sleep(0)
    tries = len(refused)
    running.dirty.set()
    world.kubernetes.put(node("n9", "zone-a"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(refused) == tries
    world.kubernetes.edit(KAFKA_CLUSTER, "orders", spec=CLUSTER["spec"])
    await world.until(lambda: world.is_ready("orders"))
    await world.supervisor.close()
