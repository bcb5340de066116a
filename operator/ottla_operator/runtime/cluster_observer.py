"""Reads what decisions about one KafkaCluster need, into one `Snapshot`.

Objects come from the cache; storage classes, the Secret, missing pods and new nodes from the API server; reports and
metadata from brokers and ZooKeeper servers. Everything is read before the first decision. Brokers report first: the
metadata is from one that has a session with ZooKeeper (`facts.metadata_source`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ottla_documents.kafka_cluster import KafkaCluster, parse_cluster
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import ZOOKEEPER_READY
from ottla_operator.api.fleet import (
    BrokerReport,
    BrokerValues,
    ClusterMetadata,
    LogDirContents,
    MembershipReport,
    ServerReport,
)
from ottla_operator.api.objects import (
    CLAIM,
    EVENT,
    NODE,
    POD,
    SECRET,
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
from ottla_operator.concerns.disks.disk_drains import brokers_to_describe
from ottla_operator.concerns.disks.disk_fill import FreeSpaceHistory
from ottla_operator.concerns.disks.disk_replacement import needs_all_volumes
from ottla_operator.concerns.disks.volume_growth import reported_space
from ottla_operator.concerns.ensemble.zookeeper import leader_pod, needs_membership, needs_reports
from ottla_operator.concerns.fleet.identity import adds_brokers, brokers_to_remove, find_count_problems
from ottla_operator.concerns.upgrades.versions import is_too_low
from ottla_operator.effects.ports import ApiError, Environment, KafkaAdmin, KafkaUnavailable, KubernetesApi
from ottla_operator.facts.lost_nodes import volumes_to_read, why_out_of_reach
from ottla_operator.facts.metadata_source import MetadataSource, decide_metadata_source
from ottla_operator.facts.snapshot import ContainerImages, ContestedFields, Snapshot
from ottla_operator.runtime.kafka_connection import KafkaConnection
from ottla_operator.runtime.object_cache import Key, ObjectCache
from ottla_operator.runtime.super_user_answers import SuperUserAnswers
from ottla_operator.runtime.topic_minimums import TopicMinimums

REQUEUE_AFTER_S = 30.0
"""How often brokers are asked for log directories and partitions when nothing else happens. This is no API call."""
RESYNC_S = 600.0
MAX_EVENT_READS = 5
MESSAGE_LENGTH = 300


@dataclass(slots=True)
class _SlowFacts:
    """What is read seldom: storage classes by name, and the Secret of ZooKeeper's super user, without what it holds.

    `cluster`: the uid of the KafkaCluster that it was read for; the Secret is deleted with the cluster.
    """

    cluster: str
    storage_classes: dict[str, Obj]
    super_secret: Obj | None
    read_at: float


class ClusterObserver:
    """Takes the snapshots of one KafkaCluster."""

    def __init__(
        self,
        key: Key,
        cache: ObjectCache,
        api: KubernetesApi,
        environment: Environment,
        images: ContainerImages,
        kafka: KafkaConnection,
        *,
        reads_nodes: bool,
        monotonic: Callable[[], float],
        log: logging.Logger,
    ) -> None:
        self._key = key
        self._cache = cache
        self._api = api
        self._environment = environment
        self._images = images
        self._kafka = kafka
        self._reads_nodes = reads_nodes
        self._monotonic = monotonic
        self._slow_facts: _SlowFacts | None = None
        self._free_space = FreeSpaceHistory()
        self._broker_values: Mapping[int, BrokerValues] | None = None
        self._log_dir_usage: Mapping[int, Sequence[LogDirContents]] = {}
        self._usage_at = -RESYNC_S
        self._log = log
        self._gone_since: dict[str, float] = {}
        self._minimums = TopicMinimums(monotonic)
        self._source: MetadataSource | None = None
        self._super_user = SuperUserAnswers(api, environment)

    @property
    def log_dir_usage(self) -> Mapping[int, Sequence[LogDirContents]]:
        """Of all brokers, as they answered some time ago."""
        return self._log_dir_usage

    async def snapshot(self, resource: Obj, contested: Mapping[tuple[str, str], ContestedFields]) -> Snapshot:
        """All that is known about the cluster now. Raises ApiError when the API server does not answer."""
        cluster, problems = parse_cluster(resource)
        objects = self._cache.of_cluster(self._key)
        facts = await self._read_slow_facts(resource, cluster)
        snapshot = Snapshot(
            cluster=cluster,
            problems=tuple(problems),
            resource=resource,
            objects=objects,
            images=self._images,
            now=self._environment.now(),
            nodes=self._cache.nodes() if self._reads_nodes else None,
            storage_classes=facts.storage_classes,
            super_secret=facts.super_secret,
            contested=contested,
        )
        if missing := find_count_problems(snapshot):
            snapshot = replace(snapshot, problems=(*snapshot.problems, *missing))
        if self._reads_nodes and adds_brokers(snapshot):
            # A broker never changes its rack, and the watch of nodes may be behind that of clusters: when nodes are
            # labelled just before a cluster is applied, all brokers would get the racks that were seen first.
            snapshot = replace(snapshot, nodes=tuple(await self._api.list(NODE, None, "")))
        servers, (reports, kafka) = await asyncio.gather(self._ask_servers(snapshot), self._ask_brokers(snapshot))
        snapshot = replace(snapshot, creation_failures=await self._creation_failures(snapshot), reports=reports)
        snapshot = replace(snapshot, accepts_super_user=await self._super_user.read(snapshot))
        snapshot = await self._read_volumes(snapshot)
        if kafka is not None:
            await self.broker_values_now(replace(snapshot, kafka=kafka))
            kafka = await self._with_minimums(kafka, snapshot)
        return replace(
            snapshot,
            servers=servers,
            membership=await self._ask_leader(replace(snapshot, servers=servers)),
            kafka=kafka,
            broker_values=self._broker_values,
            gone_for_s=self._gone_for_s(snapshot),
            log_dirs=await self._read_log_dirs(snapshot, kafka),
            reassignments=await self._read_reassignments(snapshot, kafka),
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
        """With min.insync.replicas of every topic while brokers are rolled: nothing else needs them."""
        client = self._kafka.client
        if client is None or snapshot.status("roll", "role") != names.BROKER:
            return kafka
        try:
            return await self._minimums.added_to(kafka, client)
        except KafkaUnavailable as error:
            self._log.info("no broker reports min.insync.replicas: %s", error)
            return kafka

    def note_super_secret(self, created: Obj) -> None:
        """Records that the Secret of ZooKeeper's super user has been created."""
        if self._slow_facts is not None:
            self._slow_facts.super_secret = _without_data(created)

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

    def filling(self, snapshot: Snapshot) -> dict[tuple[int, str], int]:
        """The log directories that will be full within a day: in how many hours, by broker and disk."""
        found: dict[tuple[int, str], int] = {}
        now_s = datetime.fromisoformat(snapshot.now).timestamp()
        keys: set[Hashable] = set()
        for number, disk, free_bytes, capacity in reported_space(snapshot):
            key = (number, disk, capacity)
            keys.add(key)
            self._free_space.add(key, now_s, free_bytes)
            if (hours := self._free_space.warning(key)) is not None:
                found[number, disk] = hours
        self._free_space.forget_all_but({*keys, *self._silent_keys(snapshot)})
        return found

    def _silent_keys(self, snapshot: Snapshot) -> list[Hashable]:
        """The histories of brokers that do not answer now; they go on when the brokers do."""
        silent = snapshot.broker_racks.keys() - snapshot.reports.keys()
        return [key for key in self._free_space.samples if isinstance(key, tuple) and key[0] in silent]

    async def _read_volumes(self, snapshot: Snapshot) -> Snapshot:
        """The PersistentVolumes that decisions about failed volumes need; none is read at rest.

        When a node seems to be gone the nodes are read again: the watch may be behind.
        """
        try:
            if needs_all_volumes(snapshot):
                found = {name_of(volume): volume for volume in await self._api.list(VOLUME, None, "")}
                snapshot = replace(snapshot, volumes=found)
            if wanted := [*volumes_to_read(snapshot), *volumes_on_cordoned_nodes(snapshot)]:
                read = [await self._api.get(VOLUME, "", name) for name in wanted if name not in snapshot.volumes]
                known = {name_of(volume): volume for volume in read if volume is not None}
                snapshot = replace(snapshot, volumes={**snapshot.volumes, **known})
                if any(why_out_of_reach(snapshot, claim) for claim in snapshot.all(CLAIM)):
                    snapshot = replace(snapshot, nodes=tuple(await self._api.list(NODE, None, "")))
        except ApiError as error:
            if error.status != 403:
                raise  # without the right to read volumes no node counts as gone
        return snapshot

    def _gone_for_s(self, snapshot: Snapshot) -> dict[str, float]:
        """For how long volumes have been out of reach without a break, as far as this process has seen it.

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
        known = self._broker_values or {}
        self._broker_values = {number: values for number, values in {**known, **answered}.items() if number in ids}
        return self._broker_values

    def _stays(self, snapshot: Snapshot, broker_id: int) -> bool:
        pod = snapshot.pod(names.pod_of(names.broker_name(self._key[1], broker_id)))
        return pod is not None and not is_terminating(pod)

    async def features(self, snapshot: Snapshot) -> Mapping[str, int] | None:
        """The finalized features, while spec.version is too low. Asks for none at rest."""
        client = self._kafka.client
        if snapshot.kafka is None or client is None or not is_too_low(snapshot):
            return None
        try:
            return await client.finalized_features()
        except KafkaUnavailable as error:
            self._log.info("no broker reports the finalized features: %s", error)
            return None

    async def _read_log_dirs(
        self, snapshot: Snapshot, kafka: ClusterMetadata | None
    ) -> dict[int, tuple[LogDirContents, ...]]:
        """What is in the log directories of the brokers to remove and of those with a disk that is being emptied.

        Asks none at rest.
        """
        client = self._kafka.client
        if kafka is None or client is None:
            return {}
        wanted = {*brokers_to_describe(snapshot), *brokers_to_remove(snapshot)}
        asked = sorted(wanted & set(kafka.brokers))
        try:
            found = await client.log_dirs(asked) if asked else {}
        except KafkaUnavailable as error:
            self._log.info("no broker reports its log directories: %s", error)
            return {}
        if silent := [str(number) for number in asked if number not in found]:
            self._log.info("no report of the log directories of broker %s", ", ".join(silent))
        return {number: tuple(log_dirs) for number, log_dirs in found.items()}

    async def _read_reassignments(
        self, snapshot: Snapshot, kafka: ClusterMetadata | None
    ) -> dict[tuple[str, int], tuple[tuple[int, ...], ...]] | None:
        """The reassignments under way. The log directories are read too, when they are old or something moves.

        Nothing is asked for while no rebalance may begin and none is recorded.
        """
        client = self._kafka.client
        if kafka is None or client is None:
            return None
        is_recorded = snapshot.status("rebalance") is not None
        if snapshot.cluster.rebalance.mode == "Off" and not is_recorded:
            return None
        every_s = REQUEUE_AFTER_S if is_recorded else RESYNC_S
        now = self._monotonic()
        waits_for_log_dirs = any("logDir" in member for member in snapshot.status("rebalance", "batch") or ())
        try:
            if (
                waits_for_log_dirs
                or not set(kafka.brokers) <= set(self._log_dir_usage)
                or now - self._usage_at >= every_s
            ):
                self._log_dir_usage = await client.log_dirs(kafka.brokers)
                self._usage_at = now
            return dict(await client.reassignments())
        except KafkaUnavailable as error:
            self._log.info("no answer about reassignments: %s", error)
            return None

    async def _read_slow_facts(self, resource: Obj, cluster: KafkaCluster) -> _SlowFacts:
        """Storage classes and the Secret: read at the start, when a new class is named, and every ten minutes.

        More often while the ensemble is not ready: its pods do not start without the Secret.
        """
        disks = [disk for pool in cluster.brokers.pools for disk in pool.disks]
        wanted = {disk.storage_class_name for disk in disks if disk.storage_class_name}
        for claim in self._cache.of_cluster(self._key).get(CLAIM.kind, {}).values():
            if name := dig(claim, "spec", "storageClassName"):
                wanted.add(str(name))  # only claims name the default class
        now = self._monotonic()
        facts = self._slow_facts
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
                classes[name] = {}  # without the right to read it volumes do not grow
        secret: Obj | None = None
        if not dig(resource, "spec", "zookeeper", "connect"):
            found = await self._api.get(SECRET, self._key[0], names.zookeeper_secret(self._key[1]))
            if found is not None and is_ours(found, resource):
                secret = _without_data(found)
        self._slow_facts = _SlowFacts(uid_of(resource), classes, secret, now)
        return self._slow_facts

    async def _ask_servers(self, snapshot: Snapshot) -> dict[int, ServerReport]:
        """The reports of ZooKeeper servers, asked for only until it is known which of them hold data."""
        if not needs_reports(snapshot):
            return {}
        pods = {
            server: pod
            for server in snapshot.zookeeper_ids()
            if (pod := snapshot.pod(names.pod_of(names.zookeeper_name(self._key[1], server)))) is not None
            and dig(pod, "status", "podIP")
            and not is_terminating(pod)
        }
        answers = await asyncio.gather(*(self._environment.server_report(pod) for pod in pods.values()))
        return {server: report for server, report in zip(pods, answers, strict=True) if report is not None}

    async def _ask_leader(self, snapshot: Snapshot) -> MembershipReport | None:
        """The members of the ensemble, asked for only while it is resized."""
        pod = leader_pod(snapshot) if needs_membership(snapshot) else None
        return None if pod is None else await self._environment.membership(pod)

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


def _without_data(secret: Obj) -> Obj:
    return {key: value for key, value in secret.items() if key not in ("data", "stringData")}


def _last_seen(event: Obj) -> str:
    return str(dig(event, "series", "lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")


def _is_ensemble_ready(resource: Obj) -> bool:
    conditions = dig(resource, "status", "conditions") or []
    return any(item.get("type") == ZOOKEEPER_READY and item.get("status") == "True" for item in conditions)
