"""The reconciliation of one KafkaCluster: snapshot, decide, write what differs, at most one deletion, status.

`cluster_decision` decides, `cluster_observer` reads, `object_writer` writes; this module does the steps in order. One
task runs for each cluster, one reconciliation at a time.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import READY
from ottla_operator.api.conditions import Condition, condition_false, condition_unknown, merged
from ottla_operator.api.events import WARNING, events, new_event, obstacle_event
from ottla_operator.api.fleet import Reconfiguration
from ottla_operator.api.objects import KAFKA_CLUSTER, SECRET, Obj, dig, is_terminating, name_of
from ottla_operator.api.ownership import is_ours
from ottla_operator.cluster_decision import ClusterDecision, decide_cluster
from ottla_operator.concerns.ensemble.zookeeper_objects import super_secret
from ottla_operator.concerns.roll.batches import blockers, exposed
from ottla_operator.concerns.roll.turns import wants_turn
from ottla_operator.effects.ports import ApiError, Environment, KafkaUnavailable, KubernetesApi
from ottla_operator.facts.fleet_values import PartitionId
from ottla_operator.facts.leader_move import LeaderMove
from ottla_operator.facts.snapshot import BatchProof, ContainerImages, LeaderMigration, Snapshot
from ottla_operator.rebalancer.planner import plan
from ottla_operator.runtime.adoption import may_adopt
from ottla_operator.runtime.broker_config_writer import BrokerConfigWriter
from ottla_operator.runtime.cluster_observer import REQUEUE_AFTER_S, ClusterObserver, leader_pod
from ottla_operator.runtime.contested_writes import ContestedWrites
from ottla_operator.runtime.event_writer import emit_events
from ottla_operator.runtime.kafka_connection import KafkaConnection
from ottla_operator.runtime.lasting_obstacles import LastingObstacles
from ottla_operator.runtime.leader_migration import migrate
from ottla_operator.runtime.log_dir_writer import LogDirWriter
from ottla_operator.runtime.object_cache import Key, ObjectCache
from ottla_operator.runtime.object_writer import ObjectWriter
from ottla_operator.runtime.prerequisites import AGAIN_S, Prerequisites, Shortfall, status_with
from ottla_operator.runtime.refusals import Refusals
from ottla_operator.runtime.replica_mover import ReplicaMover
from ottla_operator.runtime.roll_turns import RollTurns
from ottla_operator.runtime.super_user_answers import super_user_password


class ClusterTask:
    """Reconciles one KafkaCluster. `reconcile_once` does it once and returns when to do it again."""

    def __init__(
        self,
        key: Key,
        cache: ObjectCache,
        api: KubernetesApi,
        environment: Environment,
        images: ContainerImages,
        *,
        reads_nodes: bool,
        monotonic: Callable[[], float],
        turns: RollTurns | None = None,
        prerequisites: Prerequisites | None = None,
    ) -> None:
        self.key = key
        self._prerequisites = prerequisites or Prerequisites(api, monotonic)
        self._told = ""
        """What is lacking, as the last Event has it."""
        self._turns = turns
        self._cache = cache
        self._api = api
        self._environment = environment
        self._contested = ContestedWrites(monotonic)
        self._kafka = KafkaConnection(environment.kafka)
        self._obstacles = LastingObstacles()
        self._refused_elections: Refusals[PartitionId] = Refusals(monotonic)
        self._refused_moves: Refusals[PartitionId] = Refusals(monotonic)
        self._restored_moves: tuple[LeaderMove, ...] = ()
        self._reconfiguration_failure = (0, "")
        self._log = logging.getLogger(f"ottla.operator.{key[0]}.{key[1]}")
        self._make_plan = lru_cache(maxsize=2)(plan)  # one at rest, one while a rebalance runs
        self._broker_configs = BrokerConfigWriter(self._kafka, monotonic, self._log)
        self._log_dirs = LogDirWriter(self._kafka, monotonic, self._log)
        self._mover = ReplicaMover(self._kafka, monotonic, self._log)
        self._observer = ClusterObserver(
            key,
            cache,
            api,
            environment,
            images,
            self._kafka,
            reads_nodes=reads_nodes,
            monotonic=monotonic,
            log=self._log,
        )
        self._writer = ObjectWriter(key, cache, api, self._contested, self._log)

    async def reconcile_once(self) -> float | None:
        """One reconciliation.

        Returns:
            The seconds until the next one, None when the cluster is absent or terminating.

        Raises:
            ApiError: something could not be read or written. What was done before stays done.
        """
        resource = self._cache.get(KAFKA_CLUSTER, *self.key)
        if resource is None or is_terminating(resource) or self._cache.is_namespace_terminating(self.key[0]):
            return None  # Kubernetes deletes what the cluster owns; claims stay
        try:
            return await self._reconcile(resource)
        except ApiError as error:
            self._prerequisites.was_refused(KAFKA_CLUSTER, self.key[0], error)
            raise

    async def _reconcile(self, resource: Obj) -> float:
        shortfall = await self._prerequisites.shortfall(KAFKA_CLUSTER, self.key[0], [resource])
        if shortfall is not None:
            await self._write_shortfall(resource, shortfall)
            return AGAIN_S
        try:
            snapshot = await self.snapshot(resource)
            if not await may_adopt(self._api, resource, _of(snapshot)):
                return REQUEUE_AFTER_S  # its deletion is about to be seen, and nothing is written for it any more
            snapshot = await self._with_dynamic_config(snapshot)
            wanted = decide_cluster(snapshot, self._make_plan)
        except Exception as failure:
            await self._write_ready_unknown(resource, failure)
            raise
        for error in wanted.errors:
            self._log.error("a concern failed: %s", error)
        wanted, failed = await self._write(snapshot, wanted)
        if wanted.reconfiguration is not None and failed is None:
            await self._reconfigure(snapshot, wanted.reconfiguration)
        if wanted.delete is not None and failed is None:
            try:
                is_empty, why_not = partial(self._is_empty, snapshot), partial(self._why_not_stop, snapshot)
                await self._writer.delete(wanted.delete, is_empty, why_not)
            except ApiError as error:  # status has to show what a roll waits for
                failed = error
                wanted = _with_failure(snapshot, wanted, f"{wanted.delete.kind.kind} {wanted.delete.name}: {error}")
        if wanted.migration is not None and failed is None:
            await self._migrate(wanted.migration)
        if wanted.elect and failed is None:
            await self._elect(wanted.elect)
        if failed is None:
            await self._log_dirs.write(wanted.drains)
        if wanted.move is not None and failed is None and await self._mover.carry_out(wanted.move):
            wanted = replace(wanted, status=wanted.status_after_move)
        await self._write_status(resource, wanted.status)
        if dig(wanted.status, "roll", "moving") != dig(resource, "status", "roll", "moving"):
            self._restored_moves = ()  # others are recorded now
        if failed is not None:
            raise failed
        if self._turns is not None:
            self._turns.reconciled(self.key)
        return REQUEUE_AFTER_S if wanted.requeue_after_s is None else min(wanted.requeue_after_s, REQUEUE_AFTER_S)

    @property
    def asked_brokers(self) -> tuple[int, ...]:
        """The brokers that were asked for metadata last; empty: any."""
        return self._observer.asked_brokers

    async def snapshot(self, resource: Obj) -> Snapshot:
        """All that is known about the cluster now."""
        found = await self._observer.snapshot(resource, self._contested.known())
        ahead: tuple[str, ...] = ()
        if self._turns is not None and wants_turn(found):
            ahead = self._turns.ask(self.key, str(found.status("roll", "started") or found.now))
        return replace(
            found,
            rolls_ahead=ahead,
            refused_elections=frozenset(self._refused_elections.now()),
            refused_moves=frozenset(self._refused_moves.now()),
            restored_moves=self._restored_moves,
            refused_reassignments=self._mover.refused(),
            refused_dir_moves=self._log_dirs.refused(),
            config_writes=self._broker_configs.known(),
            reconfiguration_failure=self._reconfiguration_failure,
        )

    async def _with_dynamic_config(self, snapshot: Snapshot) -> Snapshot:
        """Sets and removes dynamic values of brokers, before anything is decided that follows from those in effect.

        A bug here stops nothing else: `decide_cluster` meets it again and reports it.
        """
        try:
            undone = await self._broker_configs.write(snapshot)
        except Exception as error:
            self._log.error("the dynamic configuration is not decided: %s: %s", type(error).__name__, error)
            return snapshot
        if undone is None:
            return snapshot
        values = await self._observer.broker_values_now(snapshot)
        return replace(snapshot, broker_values=values, config_writes=self._broker_configs.known(undone))

    async def close(self) -> None:
        """Closes the connections; a later reconciliation opens new ones."""
        await self._kafka.close()

    async def _write(self, snapshot: Snapshot, wanted: ClusterDecision) -> tuple[ClusterDecision, ApiError | None]:
        """Writes the objects. Returns the decision with a status that shows what could not be written."""
        failed: ApiError | None = None
        secrets: list[Obj] = []
        try:
            if wanted.needs_secret:
                secrets = await self._create_secret(snapshot)
        except ApiError as error:
            failed = error
        result = await self._writer.apply(snapshot, wanted.desired, wanted.repairs)
        failed = failed or result.error
        if foreign := [*result.foreign, *wanted.foreign, *secrets]:
            text = ", ".join(dict.fromkeys(f"{obj['kind']} {name_of(obj)}" for obj in foreign))
            condition = condition_false(READY, "NotOwned", f"exist and do not belong to this cluster: {text}")
            return replace(wanted, status=_with_condition(snapshot, wanted.status, condition)), failed
        if failed is not None:
            return _with_failure(snapshot, wanted, str(failed)), failed
        return wanted, None

    async def _create_secret(self, snapshot: Snapshot) -> list[Obj]:
        """Creates the Secret of the super user. Returns it when it exists and belongs to somebody else."""
        password = self._environment.password()
        hashed = base64.b64encode(hashlib.sha1(f"super:{password}".encode()).digest()).decode()
        wanted = super_secret(snapshot, password, f"super:{hashed}")
        try:
            created = await self._api.create(wanted)
        except ApiError as error:
            if error.status != 409:
                raise
            there = await self._api.get(SECRET, self.key[0], name_of(wanted))
            if there is None or not is_ours(there, snapshot.resource):
                return [wanted]  # somebody else's, or that of a former cluster of this name, which Kubernetes deletes
            created = there
        self._observer.note_super_secret(created)
        return []

    async def _reconfigure(self, snapshot: Snapshot, change: Reconfiguration) -> None:
        """Reconfigures the ensemble. What came of it is read in the next reconciliation."""
        leader = leader_pod(snapshot, snapshot.servers)
        secret = await self._api.get(SECRET, self.key[0], names.zookeeper_secret(self.key[1]))
        password = super_user_password(secret)
        if leader is None or password is None:
            why = "the Secret of the super user has no password" if password is None else ""
            self._reconfiguration_failure = (change.version, why)
            return
        what = f"leaving {change.leaving}" if change.leaving is not None else f"joining {change.joining}"
        self._log.info("reconfiguring the ensemble: %s", what)
        failure = await self._environment.reconfigure(leader, password, change)
        self._reconfiguration_failure = (change.version, failure)
        if failure:
            self._log.warning("the ensemble is not reconfigured (%s): %s", what, failure)

    async def _elect(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Asks for preferred leaders. A refused election is not asked for again for a minute."""
        client = self._kafka.client
        if client is None:
            return
        try:
            refused = await client.elect_leaders(partitions)
        except KafkaUnavailable as error:
            self._log.info("no preferred leader election: %s", error)
            return
        self._log.info("preferred leader election of %d partitions, %d refused", len(partitions), len(refused))
        self._refused_elections.add(refused)

    async def _migrate(self, migration: LeaderMigration) -> None:
        """Moves leaderships away from the batch. What Kafka refuses is not asked for again for a minute."""
        client = self._kafka.client
        if client is None:
            return
        try:
            done = await migrate(client, migration.moves, migration.batch, only_restore=migration.only_restore)
        except KafkaUnavailable as error:
            self._log.info("no leadership is moved: %s", error)
            return
        self._log.info("leaderships of %d partitions are moved, %d refused", len(migration.moves), len(done.refused))
        self._refused_moves.add(done.refused)
        self._restored_moves = (*self._restored_moves, *done.restored)

    async def _is_empty(self, snapshot: Snapshot, broker_id: int) -> bool:
        """Whether Kafka's metadata, read now, neither lists the broker nor names it in any partition.

        False also when that metadata may be old.
        """
        try:
            metadata, source = await self._observer.view_now(snapshot)
        except KafkaUnavailable as error:
            self._log.info("no broker answers: %s", error)
            return False
        if not source.is_current:
            self._log.info("whether broker %d is empty is not known: %s", broker_id, source.reason)
            return False
        replicas = {replica for partition in metadata.partitions for replica in partition.replicas}
        return broker_id not in metadata.brokers and broker_id not in replicas

    async def _why_not_stop(self, snapshot: Snapshot, proof: BatchProof) -> str:
        """Why Kafka's metadata and topic configurations, read now, do not allow to stop a batch; "" when they do."""
        try:
            metadata = await self._observer.metadata_now(snapshot)
        except KafkaUnavailable as error:
            return f"no broker answers: {error}"
        found = [*blockers(metadata.partitions, proof.batch, proof.stopping)]
        return "; ".join([*found, *exposed(metadata.partitions, proof.exposes).values()])

    async def _write_ready_unknown(self, resource: Obj, error: Exception) -> None:
        """Sets Ready to Unknown: what status shows was decided from what can no longer be read."""
        reason = "ReadFailed" if isinstance(error, ApiError) else "InternalError"
        unknown = condition_unknown(READY, reason, f"{type(error).__name__}: {error}")
        await self._write_ready(resource, unknown)

    async def _write_ready(self, resource: Obj, ready: Condition) -> None:
        try:
            await self._write_status(resource, status_with(resource, ready, self._environment.now()))
        except ApiError as failure:
            self._log.warning("status could not be written: %s", failure)

    async def _write_shortfall(self, resource: Obj, shortfall: Shortfall) -> None:
        """Reports what is lacking, in status, or by an Event alone where a write would take fields from the object."""
        if await self._prerequisites.may_write_status(KAFKA_CLUSTER, resource, shortfall):
            await self._write_ready(resource, condition_false(READY, shortfall.reason, shortfall.message))
        elif shortfall.message != self._told:
            event = new_event(resource, WARNING, shortfall.reason, shortfall.message, self._environment.now())
            await emit_events(self._api, self._log, [event])
            self._told = shortfall.message

    async def _write_status(self, resource: Obj, status: Obj) -> None:
        """Writes it when it differs, and the Events of what has changed and of obstacles that last."""
        before, now = resource.get("status") or {}, self._environment.now()
        found: list[Obj] = []
        if before != status:
            answer = await self._api.replace_status({**resource, "status": status})
            self._prerequisites.wrote_status(KAFKA_CLUSTER, status, answer)
            self._cache.put(answer)
            found += events(resource, before, status, now, waits=True)
            self._obstacles.changed(before, status, now)
        found += [obstacle_event(resource, item, now) for item in self._obstacles.due(status, now)]
        await emit_events(self._api, self._log, found)


def _of(snapshot: Snapshot) -> Iterator[Obj]:
    """What may have to be adopted."""
    for objects in snapshot.objects.values():
        yield from objects.values()


def _with_failure(snapshot: Snapshot, wanted: ClusterDecision, message: str) -> ClusterDecision:
    condition = condition_false(READY, "WriteFailed", message)
    return replace(wanted, status=_with_condition(snapshot, wanted.status, condition))


def _with_condition(snapshot: Snapshot, status: Obj, condition: Condition) -> Obj:
    """The status with this condition in place of the one of its type."""
    previous = dig(snapshot.resource, "status", "conditions")
    kept = [item for item in status["conditions"] if item["type"] != condition.type]
    changed = merged(previous, [condition], int(status["observedGeneration"]), snapshot.now)
    return {**status, "conditions": sorted([*kept, *changed], key=lambda item: str(item["type"]))}
