"""Everything around the operator, in virtual time: API server, controllers, Kafka, and the processes of the operator.

A machine changes things and lets time pass; `converge` ends all faults and waits for rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ottla_operator.api import names
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    KINDS,
    NODE,
    POD,
    STATEFUL_SET,
    STORAGE_CLASS,
    VOLUME,
    Obj,
    ResourceKind,
    annotation,
    dig,
    has_condition,
    is_owned_by,
    is_terminating,
    label,
    name_of,
    new,
    uid_of,
)
from ottla_operator.api.topics import TopicDescription
from ottla_operator.concerns.config.config import FILE
from ottla_operator.facts.intervals import RESYNC_S
from ottla_operator.facts.snapshot import ContainerImages
from ottla_operator.runtime.back_off import LONGEST_BACK_OFF_S
from ottla_operator.runtime.supervisor import TaskSupervisor
from simulation.loop import VirtualTimeLoop
from tests.operator.fleet import InMemorySurroundings
from tests.operator.kubernetes import InMemoryKubernetes, node
from tests.operator.kubernetes import _claims as claims_of
from tests.operator.model_based.kafka import ModelKafka
from tests.operator.model_based.operator_process import OperatorProcess, TopicsOnly
from tests.operator.model_based.upgrades import RestartWatch
from tests.operator.unreliable_api import SLOW_S, Faults

START = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = ("zone-a", "zone-b", "zone-c")
CONVERGES_S = 2 * (LONGEST_BACK_OFF_S + RESYNC_S) + 600
"""How long it may be until a fleet is at rest once the last fault has ended."""
STEP_S = 10.0
READ_AGAIN_S = 0.1
"""How long before a deletion a read still sees what is deleted: two calls."""
UNSEEN_S = 90.0
"""How long before an act the operator may have looked: the API server is slow at most so long."""
REST_S = RESYNC_S + LONGEST_BACK_OFF_S


class WorldSurroundings(InMemorySurroundings):
    """With the loop's time."""

    def now(self) -> str:
        return self.kubernetes.clock()


class NotStarting(set[str]):
    """The ConfigMaps that say log.retention.hours=13: with them no broker starts."""

    def __init__(self, kubernetes: InMemoryKubernetes) -> None:
        super().__init__()
        self._kubernetes = kubernetes

    def __contains__(self, name: object) -> bool:
        found = self._kubernetes.objects.get((CONFIG_MAP.kind, "default", str(name)))
        return found is not None and "log.retention.hours=13\n" in str(dig(found, "data", FILE))


class World:
    """`violations`: what must never happen and did. Checked after every rule.

    With `standing_by` brokers the cluster is there already, and the operator only has topics to look after.
    """

    def __init__(self, cluster: Mapping[str, Any], standing_by: int = 0) -> None:
        self.loop = VirtualTimeLoop()
        self.loop.has_no_limit = True
        self.violations: list[str] = []
        self.loop.set_exception_handler(self._callback_failed)
        self.kubernetes = InMemoryKubernetes()
        self.kubernetes.clock = self.now
        self.kafka = ModelKafka(self.kubernetes, self.topic_is_created, self.topic_is_deleted)
        self.kafka.partitions = [("data", 0, (0, 1)), ("data", 1, (1, 0))]
        self.environment = WorldSurroundings(self.kubernetes, self.kafka)
        self.images = ContainerImages("ottla:1", "zookeeper:3.9")
        self.faults = Faults()
        self.controllers_run = True
        self.is_ours = False
        """Whether the test itself writes now."""
        self._writes_seen = 0
        self.held_data: dict[str, str] = {}
        self.held_under: dict[str, str] = {}
        """The uid of the claim that held data last, by its name."""
        self.lost: set[str] = set()
        """Claims that somebody has deleted."""
        self._nodes_made = 0
        self.marked: set[str] = set()
        """Claims that were seen to be marked for their replacement."""
        self.fleet_changed_at = 0.0
        """When replicas or brokers were last said to be in another state."""
        self.was_resized = False
        """Whether disks were once asked for in another way than at the start."""
        self.behind_since = 0.0
        """When a rule last changed which replicas are in sync."""
        self.restarts = RestartWatch(
            self.now, self.loop.time, lambda: self.all(POD), UNSEEN_S, self._is_volume_replaced
        )
        self._dirty = asyncio.Event()
        self._controllers: asyncio.Task[None] | None = None
        self._process: OperatorProcess | None = None
        self.kubernetes.on_change = self._changed
        self.kubernetes.before_delete = self.is_deleted_by_the_operator
        self.changed_at: dict[str, float] = {}
        """By uid when a document's spec was changed or its deletion was asked for."""
        self.creators: dict[str, set[str]] = {}
        """By topic id the uids of the documents that it was created for."""
        self.kubernetes.not_starting = NotStarting(self.kubernetes)
        self.kubernetes.put({**new(STORAGE_CLASS, "", "grows", {}), "allowVolumeExpansion": True})
        self.kubernetes.local_volumes = True
        anywhere = self.kubernetes._node_for
        self.kubernetes._node_for = lambda pod: self._node_of_server(pod) or anywhere(pod)  # type: ignore[method-assign]
        for index, zone in enumerate(ZONES):
            self.kubernetes.put(node(f"n{index + 1}", zone))
        self.kubernetes.put(copy.deepcopy(dict(cluster)))
        self._supervisor = TopicsOnly if standing_by else TaskSupervisor
        for broker_id in range(standing_by):
            for obj in _broker(broker_id):
                self.kubernetes.put(obj)
        self._run(self._begin())

    def now(self) -> str:
        return (START + timedelta(seconds=int(self.loop.time()))).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _begin(self) -> None:
        if self._supervisor is TaskSupervisor:
            self._controllers = asyncio.create_task(self._control())
        self._process = self._new_process()

    def _new_process(self) -> OperatorProcess:
        return OperatorProcess(self.kubernetes, self.faults, self.environment, self.images, self._supervisor)

    async def _control(self) -> None:
        """The controllers of Kubernetes take a second to see what has changed."""
        while True:
            await self._dirty.wait()
            await asyncio.sleep(1.0)
            if self.controllers_run:
                self._dirty.clear()
                self.kubernetes.settle()
                self._note_data()
                self._collect_garbage()

    def _collect_garbage(self) -> None:
        """What was made for an owner that had gone meanwhile goes too."""
        uids = {uid_of(obj) for obj in self.kubernetes.objects.values()}
        for (kind, _, name), obj in list(self.kubernetes.objects.items()):
            owners = dig(obj, "metadata", "ownerReferences") or []
            if owners and not any(owner["uid"] in uids for owner in owners):
                self.remove(KINDS[kind], name)

    def _note_data(self) -> None:
        """Which claims hold data: those that a ready pod has."""
        for pod in self.all(POD):
            if has_condition(pod, "Ready"):
                for claim in claims_of(pod):
                    if (there := self.find(CLAIM, claim)) is not None:
                        self.held_data[claim] = uid_of(there)
                        self.held_under[claim] = self._cluster_uid()

    def _cluster_uid(self) -> str:
        cluster = self.find(KAFKA_CLUSTER, "orders")
        return "" if cluster is None else uid_of(cluster)

    def _changed(self, event: str, obj: Obj) -> None:
        self._dirty.set()
        self.violations += self.restarts.see(event, obj)
        if obj["kind"] == STATEFUL_SET.kind and len(self.kubernetes.writes) > self._writes_seen:
            self._server_is_stopped(event, obj)
            self._broker_is_removed(event, obj)
        self._writes_seen = len(self.kubernetes.writes)
        if event == "ADDED" and obj["kind"] == CLAIM.kind and not self.is_ours:
            self.claim_is_made(obj)
        if event == "MODIFIED" and obj["kind"] == CLAIM.kind and not self.is_ours:
            self.claim_is_marked(obj)
        if self._process is not None:
            self._process.deliver(event, obj)

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A watch event that the operator cannot take is lost, which nothing else tells. Killed tasks end so too."""
        if isinstance(error := context.get("exception"), Exception):
            self.violations.append(f"{context['message']}: {error!r}")

    def _run(self, act: Any) -> Any:
        return self.loop.run_until_complete(act)

    @property
    def process(self) -> OperatorProcess:
        assert self._process is not None, "it begins with the world"
        return self._process

    def restart_operator(self) -> None:
        self.process.alive = False

        async def begin() -> None:
            self._process = self._new_process()

        self._run(begin())

    def advance(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    def end_faults(self) -> None:
        """Also of Kafka and the controllers; a dead operator is started again."""
        self.faults.clear()
        self.process.mend()
        self.controllers_run = True
        self._dirty.set()
        self.kafka.answers, self.kafka.is_slow = True, False
        self.kafka.refusals.clear()
        self.kafka.behind.clear()
        self.kafka.unregistered.clear()
        self.kafka.frozen.clear()
        self.kafka.unseen = set()
        if not self.process.alive:
            self.restart_operator()

    def _acts(self) -> tuple[int, int]:
        return len(self.kubernetes.writes), len(self.kafka.requests) + len(self.kafka.config_changes)

    def converge(self, rest_s: float = REST_S) -> None:
        """Ends the faults, and fails unless there is rest for `rest_s` in time, also after one more restart."""
        self.end_faults()
        quiet, waited = 0.0, 0.0
        acts = self._acts()
        while quiet < rest_s:
            self.advance(STEP_S)
            waited += STEP_S
            quiet = quiet + STEP_S if self._acts() == acts else 0.0
            acts = self._acts()
            if waited > CONVERGES_S + rest_s:
                last = [*self.kubernetes.writes[-6:], *map(str, self.kafka.requests[-3:])]
                raise AssertionError(f"no rest {waited:.0f} s after the last fault; the last writes: {last}")
        self.restart_operator()
        self.advance(60.0)
        assert self._acts() == acts, (
            f"a new process of the operator writes where the one before was at rest: "
            f"{self.kubernetes.writes[acts[0] :]} {self.kafka.requests[acts[1] :]}"
        )

    def close(self) -> None:
        """Nothing of it runs on."""
        self.process.alive = False
        if self._controllers is not None:
            self._controllers.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._run(self._controllers)
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.close()

    # What is there

    def all(self, kind: ResourceKind) -> list[Obj]:
        return [self.kubernetes.there(kind, name) for name in self.kubernetes.names(kind)]

    def find(self, kind: ResourceKind, name: str) -> Obj | None:
        found = self.kubernetes.objects.get((kind.kind, "default" if kind.namespaced else "", name))
        return copy.deepcopy(found)

    @property
    def cluster(self) -> Obj | None:
        return self.find(KAFKA_CLUSTER, "orders")

    def documents(self) -> list[Obj]:
        return self.all(KAFKA_TOPIC)

    def put(self, obj: Obj) -> None:
        """As a user, whose claims are his own matter."""
        self.is_ours = True
        try:
            self.kubernetes.put(obj)
        finally:
            self.is_ours = False

    def remove(self, kind: ResourceKind, name: str) -> None:
        if self.find(kind, name) is not None:
            self.kubernetes.remove(kind, name)

    def edit(self, path: str, value: Any) -> None:
        """Changes a field of the KafkaCluster; None takes it away."""
        document = self.cluster
        if document is None or is_terminating(document):
            return
        has_disks = path == "spec.brokers.disks" or (path == "spec.brokers.pools" and "disks" in str(value))
        self.was_resized = self.was_resized or has_disks
        *parents, last = path.split(".")
        place = document
        for name in parents:
            place = place.setdefault(name, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
        self.kubernetes.put(document)

    def mounted_claims(self) -> list[str]:
        """The claims that pods of brokers have."""
        brokers = [pod for pod in self.all(POD) if label(pod, names.BROKER_ID) is not None]
        return sorted(claim for pod in brokers for claim in claims_of(pod))

    def fail_directory(self, claim: str) -> None:
        self.environment.offline.add(claim)
        self.fleet_changed_at = self.loop.time()

    def directories_serve_again(self) -> None:
        self.environment.offline.clear()

    def has_failed_volumes(self) -> bool:
        """Whether a claim that a pod has is offline, or on a node that is gone."""
        nodes = {name_of(node) for node in self.all(NODE)}
        for name in self.mounted_claims():
            volume = self.find(VOLUME, str(dig(self.find(CLAIM, name), "spec", "volumeName")))
            term = dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms", 0, "matchExpressions", 0)
            if name in self.environment.offline or (term is not None and not set(term["values"]) & nodes):
                return True
        return False

    def lose_node(self, index: int) -> None:
        """A node, its volumes and its pods are gone; a new node is there. Only one at a time: nobody survives more."""
        there = self.all(NODE)
        gone = there[index % len(there)]
        pods = [pod for pod in self.all(POD) if label(pod, names.CLUSTER) is not None]
        if self.has_failed_volumes() or not pods or not all(has_condition(pod, "Ready") for pod in pods):
            return
        if len(pods) < sum(1 for one in self.all(STATEFUL_SET) if dig(one, "spec", "replicas") != 0):
            return  # the pods of a node that has just gone are not there again
        document = self.cluster
        if document is None or is_terminating(document) or self.lost or not self.controllers_run:
            return
        self.fleet_changed_at = self.loop.time()
        zone = str(label(gone, "topology.kubernetes.io/zone"))
        self._nodes_made += 1
        self.kubernetes.remove(NODE, name_of(gone))
        self.kubernetes.put(node(f"m{self._nodes_made}", zone))
        for pod in pods:
            if dig(pod, "spec", "nodeName") == name_of(gone):
                self.kubernetes.remove(POD, name_of(pod))

    def _node_of_server(self, pod: Obj) -> str:
        """A server of ZooKeeper in each zone, so that a lost node takes one of them."""
        server = label(pod, names.SERVER_ID)
        if server is None:
            return ""
        zone = ZONES[(int(server) - 1) % len(ZONES)]
        fitting = [name_of(one) for one in self.all(NODE) if label(one, "topology.kubernetes.io/zone") == zone]
        return fitting[0] if fitting else ""

    # What must never happen

    def claim_is_marked(self, claim: Obj) -> None:
        """A claim is to be replaced: one broker at a time, and never the last copy of anything."""
        if not annotation(claim, names.REPLACED_BY) or label(claim, names.RETIRED) is not None:
            return
        begun = {
            label(one, names.BROKER_ID)
            for one in self.all(CLAIM)
            if annotation(one, names.REPLACED_BY) and label(one, names.RETIRED) is None
        }
        if len(begun) > 1:
            self.violations.append(
                f"disks of brokers {', '.join(map(str, sorted(begun, key=str)))} are replaced at once"
            )
        if self.loop.time() - self.fleet_changed_at < UNSEEN_S or name_of(claim) in self.marked:
            return
        self.marked.add(name_of(claim))
        number = int(str(label(claim, names.BROKER_ID)))
        for topic, index, replicas in self.kafka.partitions:
            if number in replicas and not (set(replicas) - {number}) & self.kafka.in_sync():
                self.violations.append(f"claim {name_of(claim)} is replaced and has the last copy of {topic}-{index}")

    def claim_is_made(self, claim: Obj) -> None:
        """An empty volume in place of one that held data: never for a broker; for a server of the ensemble only while a
        majority of them still has its data."""
        name = name_of(claim)
        if name not in self.held_data:
            return
        there = {name_of(one): uid_of(one) for one in self.all(CLAIM)}
        server = label(claim, names.SERVER_ID)
        role = {held: uid for held, uid in self.held_data.items() if ("-zookeeper-" in held) == (server is not None)}
        living = self._cluster_uid()
        is_gone = not any(there.get(held) == uid for held, uid in role.items())
        if is_gone and all(self.held_under[held] != living for held in role):
            for held in role:  # whoever deletes the KafkaCluster and every claim deletes all data
                del self.held_data[held]
            return
        if server is not None:
            data = {held: uid for held, uid in self.held_data.items() if "-zookeeper-" in held}
            servers = {held.rsplit("-", 2)[0] for held in data}
            lacking = {held.rsplit("-", 2)[0] for held, uid in data.items() if there.get(held) != uid}
            if len(servers) - len(lacking) > len(servers) // 2:
                return
        self.violations.append(f"claim {name} held data, was lost, and is made again")

    def _is_volume_replaced(self, broker: int) -> bool:
        return any(
            label(claim, names.BROKER_ID) == str(broker)
            and annotation(claim, names.REPLACED_BY) is not None
            and label(claim, names.RETIRED) is None
            for claim in self.all(CLAIM)
        )

    def _server_is_stopped(self, event: str, stateful_set: Obj) -> None:
        """By the operator: never a server that has a vote. Who deletes the KafkaCluster deletes its servers."""
        server = label(stateful_set, names.SERVER_ID)
        cluster = self.cluster
        if server is None or cluster is None or not is_owned_by(stateful_set, cluster):
            return
        is_stopped = event == "DELETED" or dig(stateful_set, "spec", "replicas") == 0
        if is_stopped and int(server) in self.environment.ensemble_members.servers:
            self.violations.append(f"server {server} is stopped while it has a vote")

    def _broker_is_removed(self, event: str, stateful_set: Obj) -> None:
        """By the operator: never a broker that has a replica. Who deletes the KafkaCluster deletes its brokers."""
        broker, cluster = label(stateful_set, names.BROKER_ID), self.cluster
        if broker is None or event != "DELETED" or cluster is None or not is_owned_by(stateful_set, cluster):
            return
        if self.loop.time() - self.fleet_changed_at < UNSEEN_S:
            return
        held = [f"{topic}-{index}" for topic, index, replicas in self.kafka.partitions if int(broker) in replicas]
        if held:
            self.violations.append(f"broker {broker} is removed and has replicas of {', '.join(held)}")

    def is_below_minimum(self, number: int, stopped: set[int]) -> str:
        """The partition of broker `number` that would have too few replicas in sync without `stopped`; "" for none."""
        in_sync = self.kafka.in_sync()
        for topic, index, replicas in self.kafka.partitions:
            left = [replica for replica in replicas if replica in in_sync and replica not in stopped]
            needed = min(len(replicas) - 1, max(1, self.kafka.minimums.get(topic, 2)))
            if number in replicas and len(left) < needed:
                return f"{topic}-{index} keeps {left} in sync while {sorted(stopped)} are restarted"
        return ""

    def is_deleted_by_the_operator(self, obj: Obj) -> None:
        """A pod of a roll is deleted only if every partition keeps min.insync.replicas without the whole batch."""
        number, cluster = label(obj, names.BROKER_ID), self.cluster
        if obj["kind"] == CLAIM.kind and number is not None and label(obj, names.REMOVED) == "true":
            self._claim_of_removed_is_deleted(obj, int(number))
        if obj["kind"] != POD.kind or number is None or cluster is None:
            return
        batch = set(dig(cluster, "status", "roll", "batch") or [])
        if int(number) not in batch or self.loop.time() - self.behind_since < SLOW_S + READ_AGAIN_S:
            return  # a change of a moment ago cannot have been seen
        in_sync = self.kafka.in_sync()
        if int(number) not in in_sync:
            return  # it takes nothing away
        if why := self.is_below_minimum(int(number), batch):
            self.violations.append(why)

    def _claim_of_removed_is_deleted(self, claim: Obj, broker: int) -> None:
        """Only while nothing names the broker: then a new broker may have its id and an empty volume."""
        self.held_data.pop(name_of(claim), None)
        if self.loop.time() - self.fleet_changed_at < UNSEEN_S:
            return
        held = [f"{topic}-{index}" for topic, index, replicas in self.kafka.partitions if broker in replicas]
        if held or self.find(STATEFUL_SET, names.broker_name("orders", broker)) is not None:
            self.violations.append(f"claim {name_of(claim)} of a removed broker is deleted, and it has {held}")

    def topic_is_created(self, topic: TopicDescription) -> None:
        self.creators[topic.topic_id] = {
            uid_of(document) for document in self.documents() if topic_of(document) == topic.name
        }

    def topic_is_deleted(self, topic: TopicDescription) -> None:
        """Looked at when Kafka is asked to."""
        if why := self.deletion_blocker(topic):
            self.violations.append(why)

    def deletion_blocker(self, topic: TopicDescription) -> str:
        """Why a topic must not be deleted now, "" when it may. A change of a moment ago cannot have been seen."""
        documents = [document for document in self.documents() if topic_of(document) == topic.name]
        naming = [name_of(one) for one in documents if is_live(one) and self.age_of(one) > READ_AGAIN_S]
        if naming:
            return f"topic {topic.name} is deleted while KafkaTopic {', '.join(naming)} names it"
        terminating = [one for one in documents if is_terminating(one)]
        if not terminating:
            return f"topic {topic.name} is deleted, and no document of it is being deleted"
        for document in terminating:
            policy = dig(document, "spec", "deletionPolicy")
            if policy == "Delete" or self.age_of(document) < READ_AGAIN_S:
                return ""
            if policy is None and uid_of(document) in self.creators.get(topic.topic_id, ()):
                return ""
        return f"topic {topic.name} is deleted; it existed before KafkaTopic {', '.join(map(name_of, terminating))}"

    def age_of(self, document: Obj) -> float:
        """Seconds since its spec was changed, or its deletion was asked for."""
        return self.loop.time() - self.changed_at.get(document["metadata"]["uid"], 0.0)


def topic_of(document: Obj) -> str:
    return str(dig(document, "spec", "topicName") or document["metadata"]["name"])


def is_live(document: Obj) -> bool:
    return not is_terminating(document)


def _broker(broker_id: int) -> tuple[Obj, Obj]:
    labels = names.labels("orders", names.BROKER, broker_id=str(broker_id))
    name = names.broker_name("orders", broker_id)
    pod = new(POD, "default", names.pod_of(name), labels, spec={"nodeName": ""})
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return new(STATEFUL_SET, "default", name, labels, spec={"replicas": 1}), {**pod, "status": ready}
