"""One cluster: wait (dirty or deadline) -> snapshot -> decide -> write the differences -> one deletion -> status.

Everything decided is in `planning`; this module reads what a decision needs and does what it says, in order.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ottla_operator.api import names
from ottla_operator.api.comparison import differences
from ottla_operator.api.condition_reasons import READY, ZOOKEEPER_READY
from ottla_operator.api.conditions import Condition, condition_false, condition_unknown, merged
from ottla_operator.api.events import events
from ottla_operator.api.fleet import BrokerReport, ClusterMetadata, DynamicValue, ServerReport
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    EVENT,
    KAFKA_CLUSTER,
    KINDS,
    NODE,
    POD,
    SECRET,
    STATEFUL_SET,
    STORAGE_CLASS,
    Obj,
    dig,
    has_condition,
    is_owned_by,
    is_terminating,
    name_of,
    uid_of,
)
from ottla_operator.effects.ports import ApiError, Environment, KafkaAdmin, KafkaUnavailable, KubernetesApi
from ottla_operator.model.kafka_cluster import parse_cluster
from ottla_operator.planning.concerns import ClusterDecision, decide_cluster
from ottla_operator.planning.config import internal_address
from ottla_operator.planning.difference import difference, stamped
from ottla_operator.planning.identity import adds_brokers, decide_identities
from ottla_operator.planning.snapshot import ContainerImages, Deletion, Snapshot
from ottla_operator.planning.zookeeper import needs_reports
from ottla_operator.planning.zookeeper_objects import super_secret
from ottla_operator.runtime.contested_writes import ContestedWrites
from ottla_operator.runtime.object_cache import Key, ObjectCache

REQUEUE_AFTER_S = 30.0
"""How often brokers are asked for their directories and partitions when nothing else happens. No API call."""
RESYNC_S = 600.0
MOST_ASKED = 5
MESSAGE_LENGTH = 300
REFUSED_S = 60.0


@dataclass(slots=True)
class _Facts:
    """What is read seldom: storage classes by name, and whether the super user's Secret of this cluster exists.

    `cluster` is the uid of the KafkaCluster that it was read for: the Secret goes with the cluster.
    """

    cluster: str
    storage_classes: dict[str, Obj]
    has_super_secret: bool
    read_at: float


class ClusterTask:
    """The passes over one KafkaCluster. `reconcile_once` does one and tells when the next is due."""

    def __init__(
        self,
        key: Key,
        store: ObjectCache,
        api: KubernetesApi,
        environment: Environment,
        images: ContainerImages,
        *,
        reads_nodes: bool,
        monotonic: Callable[[], float],
    ) -> None:
        self.key = key
        self._store = store
        self._api = api
        self._environment = environment
        self._images = images
        self._reads_nodes = reads_nodes
        self._monotonic = monotonic
        self._facts: _Facts | None = None
        self._overrides = ContestedWrites(monotonic)
        self._dynamic_values: Mapping[int, Sequence[DynamicValue]] | None = None
        self._kafka: KafkaAdmin | None = None
        self._bootstrap: tuple[str, ...] = ()
        self._refused: dict[tuple[str, int], float] = {}
        self._log = logging.getLogger(f"ottla.operator.{key[0]}.{key[1]}")

    async def reconcile_once(self) -> float | None:
        """One pass. Gives the seconds until the next one, None when the cluster is gone or going.

        Raises ApiError when something could not be read or written; what was done before stays done.
        """
        resource = self._store.get(KAFKA_CLUSTER, *self.key)
        if resource is None or is_terminating(resource):
            return None  # Kubernetes deletes what the cluster owns; claims are kept
        try:
            snapshot = await self._snapshot(resource)
            wanted = decide_cluster(snapshot)
        except Exception as failure:
            await self._write_ready_unknown(resource, failure)
            raise
        for error in wanted.errors:
            self._log.error("a concern failed: %s", error)
        wanted, failed = await self._write(snapshot, wanted)
        if wanted.delete is not None and failed is None:
            try:
                await self._delete(wanted.delete, resource)
            except ApiError as error:  # status has to say what a roll waits for
                failed = error
                wanted = _with_failure(snapshot, wanted, f"{wanted.delete.kind.kind} {wanted.delete.name}: {error}")
        if wanted.elect and failed is None:
            await self._elect(wanted.elect)
        await self._write_status(resource, wanted.status)
        if failed is not None:
            raise failed
        return REQUEUE_AFTER_S if wanted.requeue_after_s is None else min(wanted.requeue_after_s, REQUEUE_AFTER_S)

    async def close(self) -> None:
        """Gives its connections up; a later pass makes new ones."""
        kafka, self._kafka = self._kafka, None
        if kafka is not None:
            await kafka.close()

    async def _snapshot(self, resource: Obj) -> Snapshot:
        cluster, problems = parse_cluster(resource)
        objects = self._store.of_cluster(self.key)
        facts = await self._seldom_read(resource)
        snapshot = Snapshot(
            cluster=cluster,
            problems=tuple(problems),
            resource=resource,
            objects=objects,
            images=self._images,
            now=self._environment.now(),
            nodes=self._store.nodes() if self._reads_nodes else None,
            storage_classes=facts.storage_classes,
            has_super_secret=facts.has_super_secret,
            contested=self._overrides.known(),
        )
        if self._reads_nodes and adds_brokers(snapshot):
            # A broker keeps its rack for good. The watch of nodes may be behind that of clusters: whoever labels nodes
            # and applies a cluster at once would get all brokers into the racks that were seen first.
            snapshot = replace(snapshot, nodes=tuple(await self._api.list(NODE, None, "")))
        servers, (reports, kafka) = await asyncio.gather(self._ask_servers(snapshot), self._ask_brokers(snapshot))
        snapshot = replace(snapshot, creation_failures=await self._creation_failures(snapshot))
        if kafka is not None:
            await self._ask_for_dynamic_values(kafka, snapshot)
        return replace(
            snapshot,
            servers=servers,
            reports=reports,
            kafka=kafka,
            dynamic_values=self._dynamic_values,
            surplus_replicas=await self._held(snapshot, kafka),
            refused_elections=self._refused_now(),
        )

    async def _creation_failures(self, snapshot: Snapshot) -> dict[str, str]:
        """What Kubernetes says of pods that it does not make. Events are read only for pods that are missing."""
        found: dict[str, str] = {}
        missing = [
            obj
            for obj in snapshot.all(STATEFUL_SET)
            if is_owned_by(obj, snapshot.resource) and snapshot.pod(names.pod_of(name_of(obj))) is None
        ]
        for obj in missing[:MOST_ASKED]:
            try:
                selector = f"involvedObject.uid={uid_of(obj)},reason=FailedCreate"
                told = await self._api.list(EVENT, self.key[0], "", selector)
            except ApiError as error:
                if error.status != 403:
                    raise
                return {}  # without the right to list events nothing more is known
            if told:
                newest = max(told, key=_last_seen)
                found[name_of(obj)] = str(newest.get("message", "")).rpartition(" error: ")[2][:MESSAGE_LENGTH]
        return found

    async def _ask_for_dynamic_values(self, view: ClusterMetadata, snapshot: Snapshot) -> None:
        """Of the brokers that are registered; of others it counts what they said last."""
        assert self._kafka is not None, "it has just answered"
        ids = snapshot.broker_ids()
        try:
            answered = await self._kafka.dynamic_values([number for number in ids if number in view.brokers])
        except KafkaUnavailable as error:
            self._log.info("no broker tells its dynamic configuration: %s", error)
            return
        known = self._dynamic_values or {}
        self._dynamic_values = {number: values for number, values in {**known, **answered}.items() if number in ids}

    async def _held(self, snapshot: Snapshot, kafka: ClusterMetadata | None) -> dict[int, tuple[str, ...]]:
        """What is in the log directories of the brokers that are to leave."""
        held: dict[int, tuple[str, ...]] = {}
        known = snapshot.broker_ids()
        if kafka is None or self._kafka is None or len(known) <= snapshot.cluster.brokers.replicas:
            return held
        for broker_id in decide_identities(snapshot).surplus:
            if broker_id in kafka.brokers:
                try:
                    held[broker_id] = tuple(await self._kafka.replicas_on(broker_id))
                except KafkaUnavailable as error:
                    self._log.info("broker %d does not tell what it holds: %s", broker_id, error)
        return held

    async def _seldom_read(self, resource: Obj) -> _Facts:
        """Storage classes and the Secret: read at first, when the spec names another class, and every ten minutes.

        While the ensemble is not ready more often: its pods do not start without the Secret.
        """
        wanted = {
            str(disk["storageClassName"])
            for disk in dig(resource, "spec", "brokers", "disks") or []
            if isinstance(disk, dict) and disk.get("storageClassName")
        }
        for claim in self._store.of_cluster(self.key).get(CLAIM.kind, {}).values():
            if name := dig(claim, "spec", "storageClassName"):
                wanted.add(str(name))  # the default class is named on the claims only
        now = self._monotonic()
        facts = self._facts
        known = facts is not None and facts.cluster == uid_of(resource) and wanted <= set(facts.storage_classes)
        if (
            facts is not None
            and known
            and now - facts.read_at < (RESYNC_S if _is_ensemble_ready(resource) else REQUEUE_AFTER_S)
        ):
            return facts
        classes: dict[str, Obj] = {}
        for name in sorted(wanted):
            try:
                classes[name] = await self._api.get(STORAGE_CLASS, "", name) or {}
            except ApiError as error:
                if error.status != 403:
                    raise
                classes[name] = {}  # without that right volumes do not grow and nothing is tolerated for ever
        own_ensemble = not dig(resource, "spec", "zookeeper", "connect")
        secret = names.zookeeper_secret(self.key[1])
        has_secret = own_ensemble and is_owned_by(await self._api.get(SECRET, self.key[0], secret) or {}, resource)
        self._facts = _Facts(uid_of(resource), classes, has_secret, now)
        return self._facts

    async def _ask_servers(self, snapshot: Snapshot) -> dict[int, ServerReport]:
        """The ZooKeeper servers, only while it is not settled which of them hold data."""
        if not needs_reports(snapshot):
            return {}
        pods = {
            server: pod
            for server in snapshot.zookeeper_ids()
            if (pod := snapshot.pod(names.pod_of(names.zookeeper_name(self.key[1], server)))) is not None
            and dig(pod, "status", "podIP")
            and not is_terminating(pod)
        }
        answers = await asyncio.gather(*(self._environment.server_report(pod) for pod in pods.values()))
        return {server: report for server, report in zip(pods, answers, strict=True) if report is not None}

    async def _ask_brokers(self, snapshot: Snapshot) -> tuple[dict[int, BrokerReport], ClusterMetadata | None]:
        pods: dict[int, Obj] = {}
        for broker_id in snapshot.broker_ids():
            pod = snapshot.get(POD, names.pod_of(names.broker_name(self.key[1], broker_id)))
            if pod is not None and dig(pod, "status", "podIP") and not is_terminating(pod):
                pods[broker_id] = pod
        answers = await asyncio.gather(*(self._environment.broker_report(pod) for pod in pods.values()))
        reports = {broker_id: report for broker_id, report in zip(pods, answers, strict=True) if report is not None}
        ready = [broker_id for broker_id, pod in pods.items() if has_condition(pod, "Ready")]
        if not ready:
            return reports, None
        bootstrap = tuple(internal_address(snapshot.cluster, broker_id) for broker_id in snapshot.broker_ids())
        if self._kafka is None or bootstrap != self._bootstrap:
            if self._kafka is not None:
                await self._kafka.close()
            self._kafka, self._bootstrap = self._environment.kafka(bootstrap), bootstrap
        try:
            return reports, await self._kafka.view()
        except KafkaUnavailable as error:
            self._log.info("no broker answers: %s", error)
            return reports, None

    async def _create_secret(self, snapshot: Snapshot) -> None:
        password = self._environment.password()
        hashed = base64.b64encode(hashlib.sha1(f"super:{password}".encode()).digest()).decode()
        try:
            await self._api.create(super_secret(snapshot, password, f"super:{hashed}"))
        except ApiError as error:
            if error.status != 409:
                raise
            return  # that of a cluster of this name which is going, or somebody else's; the next pass looks again
        if self._facts is not None:
            self._facts.has_super_secret = True

    async def _write(self, snapshot: Snapshot, wanted: ClusterDecision) -> tuple[ClusterDecision, ApiError | None]:
        """Applies what differs. One object that cannot be written does not stop the others."""
        found = difference(snapshot, wanted.desired)
        foreign = list(found.foreign)
        failed: ApiError | None = None
        if wanted.needs_secret:
            try:
                await self._create_secret(snapshot)
            except ApiError as error:
                failed = error
        for obj in found.create:
            kind = KINDS[obj["kind"]]
            try:
                there = await self._api.get(kind, self.key[0], name_of(obj))
                if there is None:
                    self._store.put(await self._api.apply(stamped(obj)))
                elif dig(there, "metadata", "labels", names.CLUSTER) == self.key[1]:
                    self._store.put(there)  # ours: the watch has not shown it yet
                elif is_owned_by(there, snapshot.resource):
                    await self._change(obj, there)  # ours: somebody took away the label by which it is watched
                else:
                    foreign.append(obj)
            except ApiError as error:
                failed = failed or error
        for obj in found.change:
            live = snapshot.get(KINDS[obj["kind"]], name_of(obj))
            assert live is not None, "only what exists is changed"
            try:
                await self._change(obj, live)
            except ApiError as error:
                failed = failed or error
        if not foreign and failed is None:
            return wanted, None
        if not foreign:
            return _with_failure(snapshot, wanted, str(failed)), failed
        text = ", ".join(f"{obj['kind']} {name_of(obj)}" for obj in foreign)
        condition = condition_false(READY, "NotOwned", f"exist and do not belong to this cluster: {text}")
        return replace(wanted, status=_with_conditions(snapshot, wanted.status, [condition])), failed

    async def _change(self, obj: Obj, live: Obj) -> None:
        """Writes what is ours of an object that exists, and notes whether that had an effect."""
        wanted = stamped(obj)
        before = differences(live, wanted)
        try:
            answer = await self._api.apply({**wanted, "metadata": {**wanted["metadata"], "uid": uid_of(live)}})
        except ApiError as error:
            if error.status != 422 or not dig(obj, "metadata", "ownerReferences"):
                raise
            replaced = await self._replace(wanted, live)
            if replaced is None:
                return
            answer = replaced
        self._overrides.note(obj, before, answer)
        self._store.put(answer)

    async def _replace(self, wanted: Obj, live: Obj) -> Obj | None:
        """What others made of an object does not go with what is ours, say a port of one name twice: ours is written as
        a whole. Of an immutable ConfigMap nothing can be changed; it is deleted, and the next pass makes it again."""
        self._log.info("%s %s is written as a whole: it was changed to what cannot be", wanted["kind"], name_of(wanted))
        if wanted["kind"] == CONFIG_MAP.kind:
            if await self._api.delete(CONFIG_MAP, self.key[0], name_of(live), uid_of(live)):
                self._store.remove(live, is_final=True)
            return None
        current = await self._api.get(KINDS[wanted["kind"]], self.key[0], name_of(wanted))
        if current is None or uid_of(current) != uid_of(live):
            return None
        metadata = dict(current["metadata"])
        for part in ("labels", "annotations"):
            metadata[part] = {**metadata.get(part, {}), **wanted["metadata"].get(part, {})}
        return await self._api.replace({**current, **wanted, "metadata": metadata})

    async def _delete(self, wanted: Deletion, resource: Obj) -> None:
        """After an uncached read, and only that very object."""
        there = await self._api.get(wanted.kind, self.key[0], wanted.name)
        if there is None or uid_of(there) != wanted.uid or is_terminating(there):
            if there is not None:
                self._store.put(there)
            return
        for name in wanted.while_ready:
            other = await self._api.get(POD, self.key[0], name)
            if other is None or is_terminating(other) or not has_condition(other, "Ready"):
                self._log.info("%s %s is not deleted: pod %s is not ready", wanted.kind.kind, wanted.name, name)
                if other is not None:
                    self._store.put(other)
                return
        if wanted.while_absent is not None:
            kind, name = wanted.while_absent
            if (found := await self._api.get(kind, self.key[0], name)) is not None:
                self._store.put(found)
                return
        if wanted.empty_broker is not None and not await self._is_empty(wanted.empty_broker):
            return
        self._log.info("deleting %s %s: %s", wanted.kind.kind, wanted.name, wanted.reason)
        await self._api.delete(wanted.kind, self.key[0], wanted.name, wanted.uid)
        after = await self._api.get(wanted.kind, self.key[0], wanted.name)
        if after is None or uid_of(after) != wanted.uid:
            self._store.remove(there, is_final=True)
        else:
            self._store.put(after)

    async def _elect(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Asks for preferred leaders. What is refused is not asked for again until `REFUSED_S` have passed."""
        if self._kafka is None:
            return
        try:
            refused = await self._kafka.elect_leaders(partitions)
        except KafkaUnavailable as error:
            self._log.info("no election: %s", error)
            return
        self._log.info("preferred leaders of %d partitions asked for, %d refused", len(partitions), len(refused))
        until = self._monotonic() + REFUSED_S
        self._refused |= dict.fromkeys(refused, until)

    def _refused_now(self) -> frozenset[tuple[str, int]]:
        now = self._monotonic()
        self._refused = {partition: until for partition, until in self._refused.items() if until > now}
        return frozenset(self._refused)

    async def _is_empty(self, broker_id: int) -> bool:
        """Whether the fleet, asked now, neither lists that broker nor names it in any partition."""
        if self._kafka is None:
            return False
        try:
            view = await self._kafka.view()
        except KafkaUnavailable as error:
            self._log.info("no broker answers: %s", error)
            return False
        return broker_id not in view.brokers and not any(broker_id in part.replicas for part in view.partitions)

    async def _write_ready_unknown(self, resource: Obj, error: Exception) -> None:
        """Ready is Unknown: what status said before was decided from what is no longer seen."""
        reason = "ReadFailed" if isinstance(error, ApiError) else "InternalError"
        unknown = condition_unknown(READY, reason, f"{type(error).__name__}: {error}")
        before = resource.get("status") or {}
        previous = before.get("conditions") or []
        generation = int(resource["metadata"].get("generation") or 0)
        others = [item for item in previous if item.get("type") != READY]
        changed = merged(previous, [unknown], generation, self._environment.now())
        conditions = sorted([*others, *changed], key=lambda item: str(item["type"]))
        try:
            await self._write_status(resource, {**before, "conditions": conditions})
        except ApiError as failure:
            self._log.warning("status was not written: %s", failure)

    async def _write_status(self, resource: Obj, status: Obj) -> None:
        before = resource.get("status") or {}
        if before == status:
            return
        self._store.put(await self._api.replace_status({**resource, "status": status}))
        await tell(self._api, self._log, events(resource, before, status, self._environment.now()))


def _last_seen(event: Obj) -> str:
    return str(dig(event, "series", "lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")


def _is_ensemble_ready(resource: Obj) -> bool:
    conditions = dig(resource, "status", "conditions") or []
    return any(item.get("type") == ZOOKEEPER_READY and item.get("status") == "True" for item in conditions)


async def tell(api: KubernetesApi, log: logging.Logger, transitions: Sequence[Obj]) -> None:
    """Writes Events, and each as a line of the log. One that cannot be written is left out."""
    for event in transitions:
        about = event["involvedObject"]
        log.info("%s %s: %s: %s", about["kind"], about["name"], event["reason"], event["message"])
        try:
            await api.create(event)
        except ApiError as error:
            log.warning("an event was not written: %s", error)


def _with_failure(snapshot: Snapshot, wanted: ClusterDecision, message: str) -> ClusterDecision:
    condition = condition_false(READY, "WriteFailed", message)
    return replace(wanted, status=_with_conditions(snapshot, wanted.status, [condition]))


def _with_conditions(snapshot: Snapshot, status: Obj, conditions: list[Condition]) -> Obj:
    """The status with these conditions in place of those of their types."""
    generation = int(status["observedGeneration"])
    types = {condition.type for condition in conditions}
    previous = dig(snapshot.resource, "status", "conditions")
    kept = [item for item in status["conditions"] if item["type"] not in types]
    changed = merged(previous, conditions, generation, snapshot.now)
    return {**status, "conditions": sorted([*kept, *changed], key=lambda item: str(item["type"]))}
