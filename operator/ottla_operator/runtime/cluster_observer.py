"""Reads what decisions about one KafkaCluster need, into one `Snapshot`.

Objects come from the cache; storage classes, the Secret, missing pods and new nodes from the API server; reports and
metadata from brokers and ZooKeeper servers. Everything is read before the first decision. Brokers report first: the
metadata is from one that has a session with ZooKeeper (`facts.metadata_source`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ottla_documents.kafka_cluster import KafkaCluster, parse_cluster
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import ZOOKEEPER_READY
from ottla_operator.api.fleet import (
    BrokerReport,
    BrokerValues,
    ClusterMetadata,
)
from ottla_operator.api.objects import (
    CLAIM,
    EVENT,
    NODE,
    POD,
    STATEFUL_SET,
    STORAGE_CLASS,
    VOLUME,
    Obj,
    dig,
    has_condition,
    is_terminating,
    name_of,
    uid_of,
)
from ottla_operator.api.ownership import is_ours
from ottla_operator.concerns.brokers.node_drains import volumes_on_cordoned_nodes
from ottla_operator.concerns.config.config import internal_address
from ottla_operator.concerns.disks.disk_replacement import needs_all_volumes
from ottla_operator.concerns.fleet.identity import adds_brokers, find_count_problems
from ottla_operator.facts.images import decide_images
from ottla_operator.facts.intervals import REQUEUE_AFTER_S, RESYNC_S
from ottla_operator.facts.lost_nodes import volumes_to_read, why_out_of_reach
from ottla_operator.facts.metadata_source import MetadataSource, decide_metadata_source
from ottla_operator.facts.snapshot import ContainerImages, ContestedFields, Snapshot
from ottla_operator.ports import ApiError, KafkaAdmin, KafkaUnavailable
from ottla_operator.runtime.kafka_connection import KafkaConnection
from ottla_operator.runtime.object_cache import Key
from ottla_operator.runtime.task_context import TaskContext
from ottla_operator.runtime.topic_minimums import TopicMinimums

MAX_EVENT_READS = 5
MESSAGE_LENGTH = 300


@dataclass(frozen=True, slots=True)
class _StorageClasses:
    """Storage classes by name, which are read seldom; {} for one that does not exist or may not be read."""

    by_name: Mapping[str, Obj]
    read_at: float


class ClusterObserver:
    """Takes the snapshots of one KafkaCluster."""

    def __init__(
        self,
        key: Key,
        context: TaskContext,
        images: ContainerImages,
        kafka: KafkaConnection,
        *,
        reads_nodes: bool,
        log: logging.Logger,
    ) -> None:
        self._key = key
        self._cache = context.cache
        self._api = context.api
        self._environment = context.environment
        self._images = images
        self._kafka = kafka
        self._reads_nodes = reads_nodes
        self._monotonic = context.monotonic
        self._classes: _StorageClasses | None = None
        self._broker_values: Mapping[int, BrokerValues] | None = None
        self._log = log
        self._gone_since: dict[str, float] = {}
        self._minimums = TopicMinimums(context.monotonic)
        self._source: MetadataSource | None = None

    async def snapshot(self, resource: Obj, contested: Mapping[tuple[str, str], ContestedFields]) -> Snapshot:
        """All that is known about the cluster now. Raises ApiError when the API server does not answer."""
        cluster, problems = parse_cluster(resource)
        objects = self._cache.of_cluster(self._key)
        snapshot = Snapshot(
            cluster=cluster,
            problems=tuple(problems),
            resource=resource,
            objects=objects,
            images=self._images,
            offered_images=self._images,
            now=self._environment.now(),
            nodes=self._cache.nodes() if self._reads_nodes else None,
            storage_classes=await self._storage_classes(resource, cluster),
            contested=contested,
        )
        snapshot = replace(snapshot, images=decide_images(snapshot, self._images))
        snapshot = snapshot.with_problems(find_count_problems(snapshot))
        if self._reads_nodes and adds_brokers(snapshot):
            # A broker never changes its rack, and the watch of nodes may be behind that of clusters: when nodes are
            # labelled just before a cluster is applied, all brokers would get the racks that were seen first.
            snapshot = replace(snapshot, nodes=tuple(await self._api.list(NODE, None, "")))
        reports, kafka = await self._ask_brokers(snapshot)
        snapshot = replace(snapshot, creation_failures=await self._creation_failures(snapshot), reports=reports)
        snapshot = await self._read_volumes(snapshot)
        if kafka is not None:
            await self.broker_values_now(replace(snapshot, kafka=kafka))
            kafka = await self._with_minimums(kafka, snapshot)
        return replace(
            snapshot,
            kafka=kafka,
            broker_values=self._broker_values,
            gone_for_s=self._gone_for_s(snapshot),
        )

    @property
    def asked_brokers(self) -> tuple[int, ...]:
        """The brokers that were to be asked for metadata last; empty: any."""
        return () if self._source is None else self._source.brokers

    async def view_now(self, snapshot: Snapshot) -> tuple[ClusterMetadata, MetadataSource]:
        """Kafka's metadata, read now, and whom it is from: the brokers are asked for their sessions again.

        Raises:
            KafkaUnavailable: no broker answers.
        """
        source = decide_metadata_source(await self._reports(self._broker_pods(snapshot)))
        return await (await self._client(snapshot, source)).view(), source

    async def metadata_now(self, snapshot: Snapshot) -> ClusterMetadata:
        """`view_now` with min.insync.replicas of every topic, read now too. Raises KafkaUnavailable."""
        view, source = await self.view_now(snapshot)
        return await self._minimums.added_to(view, await self._client(snapshot, source), is_fresh=True)

    async def _with_minimums(self, kafka: ClusterMetadata, snapshot: Snapshot) -> ClusterMetadata:
        """The metadata with min.insync.replicas of every topic while brokers are rolled: nothing else needs them."""
        client = self._kafka.client
        if client is None or snapshot.status("roll", "role") != names.BROKER:
            return kafka
        try:
            return await self._minimums.added_to(kafka, client)
        except KafkaUnavailable as error:
            self._log.info("no broker reports min.insync.replicas: %s", error)
            return kafka

    async def _creation_failures(self, snapshot: Snapshot) -> dict[str, str]:
        """Why Kubernetes creates no pod, by StatefulSet. Events are read only for missing pods."""
        found: dict[str, str] = {}
        missing = [
            obj
            for obj in snapshot.all(STATEFUL_SET)
            if is_ours(obj, snapshot.resource) and snapshot.pod(names.pod_of(name_of(obj))) is None
        ]
        for obj in missing[:MAX_EVENT_READS]:
            try:
                selector = f"involvedObject.uid={uid_of(obj)},reason=FailedCreate"
                found_events = await self._api.list(EVENT, self._key[0], "", selector)
            except ApiError as error:
                if error.status != 403:
                    raise
                return {}  # without the right to list Events the reason is not known
            if found_events:
                newest = max(found_events, key=_last_seen)
                found[name_of(obj)] = str(newest.get("message", "")).rpartition(" error: ")[2][:MESSAGE_LENGTH]
        return found

    async def _read_volumes(self, snapshot: Snapshot) -> Snapshot:
        """The PersistentVolumes that decisions about failed volumes need; none is read at rest.

        When a node seems to be gone the nodes are read again: the watch may be behind.
        """
        try:
            if needs_all_volumes(snapshot):
                found = {name_of(volume): volume for volume in await self._api.list(VOLUME, None, "")}
                snapshot = replace(snapshot, volumes=found)
            if volume_names := [*volumes_to_read(snapshot), *volumes_on_cordoned_nodes(snapshot)]:
                read = [await self._api.get(VOLUME, "", name) for name in volume_names if name not in snapshot.volumes]
                volumes = {name_of(volume): volume for volume in read if volume is not None}
                snapshot = replace(snapshot, volumes={**snapshot.volumes, **volumes})
                if any(why_out_of_reach(snapshot, claim) for claim in snapshot.all(CLAIM)):
                    snapshot = replace(snapshot, nodes=tuple(await self._api.list(NODE, None, "")))
        except ApiError as error:
            if error.status != 403:
                raise  # without the right to read volumes no node counts as gone
        return snapshot

    def _gone_for_s(self, snapshot: Snapshot) -> dict[str, float]:
        """How long volumes have been out of reach without a break, as far as this process has seen it.

        A new process does not know whether a node was there meanwhile, so it waits once more.
        """
        now = self._monotonic()
        gone = [uid_of(claim) for claim in snapshot.all(CLAIM) if why_out_of_reach(snapshot, claim)]
        self._gone_since = {uid: self._gone_since.get(uid, now) for uid in gone}
        return {uid: now - since for uid, since in self._gone_since.items()}

    async def broker_values_now(self, snapshot: Snapshot) -> Mapping[int, BrokerValues] | None:
        """Asks the registered brokers where they have their values from; of the others the last answer counts, and of
        those whose pod ends or is gone: a request to them waits for an answer that does not come."""
        ids = snapshot.broker_racks
        client = self._kafka.client
        if client is None or snapshot.kafka is None:
            return self._broker_values
        asked = [number for number in ids if number in snapshot.kafka.brokers and self._stays(snapshot, number)]
        try:
            answered = await client.broker_values(asked)
        except KafkaUnavailable as error:
            self._log.info("no broker reports its configuration: %s", error)
            return self._broker_values
        previous = self._broker_values or {}
        self._broker_values = {number: values for number, values in {**previous, **answered}.items() if number in ids}
        return self._broker_values

    def _stays(self, snapshot: Snapshot, broker_id: int) -> bool:
        pod = snapshot.pod(names.pod_of(names.broker_name(self._key[1], broker_id)))
        return pod is not None and not is_terminating(pod)

    async def _storage_classes(self, resource: Obj, cluster: KafkaCluster) -> Mapping[str, Obj]:
        """Read at the start, when a new class is named, and every ten minutes; more often while the ensemble is not
        ready: one that is missing may be why."""
        disks = [disk for pool in cluster.brokers.pools for disk in pool.disks]
        class_names = {disk.storage_class_name for disk in disks if disk.storage_class_name}
        for claim in self._cache.of_cluster(self._key).get(CLAIM.kind, {}).values():
            if name := dig(claim, "spec", "storageClassName"):
                class_names.add(str(name))  # only claims name the default class
        now, cached = self._monotonic(), self._classes
        most_s = RESYNC_S if has_condition(resource, ZOOKEEPER_READY) else REQUEUE_AFTER_S
        if cached is not None and class_names <= cached.by_name.keys() and now - cached.read_at < most_s:
            return cached.by_name
        classes: dict[str, Obj] = {}
        for name in sorted(class_names):
            try:
                classes[name] = await self._api.get(STORAGE_CLASS, "", name) or {}
            except ApiError as error:
                if error.status != 403:
                    raise
                classes[name] = {}  # without the right to read it volumes do not grow
        self._classes = _StorageClasses(classes, now)
        return classes

    async def _ask_brokers(self, snapshot: Snapshot) -> tuple[dict[int, BrokerReport], ClusterMetadata | None]:
        """The reports of the brokers, and then Kafka's metadata, when a broker is ready and answers."""
        pods = self._broker_pods(snapshot)
        reports = await self._reports(pods)
        source = decide_metadata_source(reports)
        if source != self._source:
            self._source = source
            self._log.info("whom to ask for metadata: %s", source.reason)
        return reports, await self._metadata(snapshot, pods, source)

    def _broker_pods(self, snapshot: Snapshot) -> dict[int, Obj]:
        pods: dict[int, Obj] = {}
        for broker_id in snapshot.broker_racks:
            pod = snapshot.get(POD, names.pod_of(names.broker_name(self._key[1], broker_id)))
            if pod is not None and dig(pod, "status", "podIP") and not is_terminating(pod):
                pods[broker_id] = pod
        return pods

    async def _reports(self, pods: Mapping[int, Obj]) -> dict[int, BrokerReport]:
        answers = await asyncio.gather(*(self._environment.broker_report(pod) for pod in pods.values()))
        return {number: report for number, report in zip(pods, answers, strict=True) if report is not None}

    async def _metadata(
        self, snapshot: Snapshot, pods: Mapping[int, Obj], source: MetadataSource
    ) -> ClusterMetadata | None:
        if not any(has_condition(pod, "Ready") for pod in pods.values()):
            return None
        try:
            return await (await self._client(snapshot, source)).view()
        except KafkaUnavailable as error:
            self._log.info("no broker answers: %s", error)
            return None

    async def _client(self, snapshot: Snapshot, source: MetadataSource) -> KafkaAdmin:
        """The client, which asks these brokers from now on. Raises KafkaUnavailable."""
        bootstrap = tuple(internal_address(snapshot.cluster, broker_id) for broker_id in snapshot.broker_racks)
        client = await self._kafka.to(bootstrap)
        client.ask_only(source.brokers)
        return client


def _last_seen(event: Obj) -> str:
    return str(dig(event, "series", "lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
