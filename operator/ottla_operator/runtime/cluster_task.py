"""The reconciliation of one KafkaCluster: snapshot, decide, write what differs, at most one deletion, status.

`cluster_decision` decides, `cluster_observer` and the observers of the concerns read, `object_writer` writes; this
module does the steps in order. One task runs for each cluster, one reconciliation at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeVar, cast

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import READY
from ottla_operator.api.conditions import Condition, condition_false, condition_unknown, merged
from ottla_operator.api.events import WARNING, events, new_event, warning_event
from ottla_operator.api.objects import KAFKA_CLUSTER, Obj, dig, is_terminating, name_of
from ottla_operator.cluster_decision import ClusterDecision, Observations, decide_cluster
from ottla_operator.concerns.config.actions import DynamicConfigWriter
from ottla_operator.concerns.config.observation import NO_CONFIG_WRITES, ConfigWrites
from ottla_operator.concerns.disks.actions import DiskExecutor, EmptyLogDirs
from ottla_operator.concerns.disks.observer import DiskObserver
from ottla_operator.concerns.ensemble.actions import EnsembleExecutor, Reconfigure
from ottla_operator.concerns.ensemble.observer import EnsembleObserver
from ottla_operator.concerns.rebalance.actions import MoveReplicas, RebalanceExecutor
from ottla_operator.concerns.rebalance.observer import RebalanceObserver
from ottla_operator.concerns.roll.actions import ElectLeaders, MoveLeaders, RollExecutor
from ottla_operator.concerns.roll.batches import exposed, partition_blockers
from ottla_operator.concerns.roll.turns import wants_turn
from ottla_operator.concerns.upgrades.observer import observe_features
from ottla_operator.facts.contested_writes import ContestedWrites
from ottla_operator.facts.intervals import REQUEUE_AFTER_S
from ottla_operator.facts.snapshot import BatchProof, ClusterAction, ContainerImages, Snapshot
from ottla_operator.facts.unobserved import Unobserved
from ottla_operator.ports import ApiError, KafkaUnavailable
from ottla_operator.rebalancer.planner import plan
from ottla_operator.runtime.adoption import may_adopt
from ottla_operator.runtime.cluster_observer import ClusterObserver
from ottla_operator.runtime.delayed_warnings import DelayedWarnings
from ottla_operator.runtime.event_writer import emit_events
from ottla_operator.runtime.kafka_connection import KafkaConnection
from ottla_operator.runtime.object_cache import Key
from ottla_operator.runtime.object_writer import ObjectWriter
from ottla_operator.runtime.prerequisites import AGAIN_S, Shortfall, status_with
from ottla_operator.runtime.roll_turns import RollTurns
from ottla_operator.runtime.task_context import TaskContext

Observed = TypeVar("Observed")


class ClusterTask:
    """Reconciles one KafkaCluster. `reconcile_once` does it once and returns when to do it again."""

    def __init__(
        self,
        key: Key,
        context: TaskContext,
        images: ContainerImages,
        *,
        reads_nodes: bool,
        turns: RollTurns | None = None,
    ) -> None:
        api, environment, monotonic = context.api, context.environment, context.monotonic
        self.key = key
        self._prerequisites = context.prerequisites
        self._told = ""
        """What is lacking, as the last Event has it."""
        self._turns = turns
        self._cache = context.cache
        self._api = api
        self._environment = environment
        self._contested = ContestedWrites(monotonic)
        self._kafka = KafkaConnection(environment.kafka)
        self._delayed_warnings = DelayedWarnings()
        self._log = logging.getLogger(f"ottla.operator.{key[0]}.{key[1]}")
        self._make_plan = lru_cache(maxsize=2)(plan)  # one at rest, one while a rebalance runs
        self._dynamic_config = DynamicConfigWriter(monotonic, self._log)
        self._disks = DiskExecutor(monotonic, self._log)
        self._rebalance = RebalanceExecutor(monotonic, self._log)
        self._roll = RollExecutor(monotonic, self._log)
        self._ensemble = EnsembleExecutor(key, api, environment, self._log)
        self._ensemble_observer = EnsembleObserver(api, environment, monotonic)
        self._disk_observer = DiskObserver(self._log)
        self._rebalance_observer = RebalanceObserver(monotonic, self._log)
        self._observer = ClusterObserver(key, context, images, self._kafka, reads_nodes=reads_nodes, log=self._log)
        self._writer = ObjectWriter(key, context.cache, api, self._contested, self._log)

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
            snapshot, writes = await self._with_dynamic_config(snapshot)
            decision = decide_cluster(snapshot, await self.observations(snapshot, writes), self._make_plan)
        except Exception as failure:
            await self._write_ready_unknown(resource, failure)
            raise
        for error in decision.errors:
            self._log.error("a concern failed: %s", error)
        decision, failed = await self._write(snapshot, decision)
        if decision.delete is not None and failed is None:
            try:
                is_empty, stop_blocker = partial(self._is_empty, snapshot), partial(self._stop_blocker, snapshot)
                await self._writer.delete(decision.delete, is_empty, stop_blocker)
            except ApiError as error:  # status has to show what a roll waits for
                failed = error
                decision = _with_failure(
                    snapshot, decision, f"{decision.delete.kind.kind} {decision.delete.name}: {error}"
                )
        status = decision.status
        for action in decision.actions if failed is None else ():
            status = {**status, **await self._carry_out(action)}
        status = {key: value for key, value in status.items() if value is not None}
        await self._write_status(resource, status)
        self._roll.wrote_status(resource.get("status"), status)
        if failed is not None:
            raise failed
        if self._turns is not None:
            self._turns.reconciled(self.key)
        return REQUEUE_AFTER_S if decision.requeue_after_s is None else min(decision.requeue_after_s, REQUEUE_AFTER_S)

    @property
    def asked_brokers(self) -> tuple[int, ...]:
        """The brokers that were asked for metadata last; empty: any."""
        return self._observer.asked_brokers

    async def snapshot(self, resource: Obj) -> Snapshot:
        """All that is known about the cluster now."""
        return await self._observer.snapshot(resource, self._contested.known())

    async def observations(self, snapshot: Snapshot, writes: ConfigWrites = NO_CONFIG_WRITES) -> Observations:
        """What the concerns know beyond the snapshot."""
        ahead: tuple[str, ...] = ()
        if self._turns is not None and wants_turn(snapshot):
            ahead = self._turns.ask(self.key, str(snapshot.status("roll", "started") or snapshot.now))
        admin = self._kafka.client
        return Observations(
            ensemble=await self._observed(self._ensemble_observer.observe(snapshot, self._ensemble.failure)),
            disks=await self._observed(self._disk_observer.observe(snapshot, admin, self._disks.refused())),
            config=writes,
            features=await self._observed(observe_features(snapshot, admin, self._log)),
            roll=self._roll.observed(ahead),
            rebalance=await self._observed(
                self._rebalance_observer.observe(snapshot, admin, self._rebalance.refused())
            ),
        )

    async def _observed(self, reading: Awaitable[Observed]) -> Observed:
        """What an observer reads; what raises when it is asked, where the reading ended with a bug. ApiError."""
        try:
            return await reading
        except ApiError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._log.exception("an observer failed")
            return cast(Observed, Unobserved(reason))

    async def _with_dynamic_config(self, snapshot: Snapshot) -> tuple[Snapshot, ConfigWrites]:
        """Sets and removes dynamic values of brokers, before anything is decided that follows from those in effect.

        A bug here stops nothing else: `decide_cluster` meets it again and reports it.
        """
        writer, admin = self._dynamic_config, self._kafka.client
        writes = writer.known()
        try:
            decision = writer.changes(snapshot)
            if admin is None or not decision.changes:
                return snapshot, writes
            undone = await writer.write(admin, decision)
        except KafkaUnavailable as error:
            writer.was_silent(str(error))
            return snapshot, writes
        except Exception as error:
            self._log.error("the dynamic configuration is not decided: %s: %s", type(error).__name__, error)
            return snapshot, writes
        values = await self._observer.broker_values_now(snapshot)
        return replace(snapshot, broker_values=values), writer.known(undone)

    async def close(self) -> None:
        """Closes the connections; a later reconciliation opens new ones."""
        await self._kafka.close()

    async def _write(self, snapshot: Snapshot, decision: ClusterDecision) -> tuple[ClusterDecision, ApiError | None]:
        """Writes the objects. Returns the decision with a status that shows what could not be written."""
        failed: ApiError | None = None
        foreign: list[str] = []
        try:
            if decision.needs_secret:
                created = await self._ensemble.create_secret(snapshot)
                if created is None:
                    foreign = [f"Secret {names.zookeeper_secret(self.key[1])}"]
                else:
                    self._ensemble_observer.note_secret(snapshot, created)
        except ApiError as error:
            failed = error
        result = await self._writer.apply(snapshot, decision.desired, decision.repairs)
        failed = failed or result.error
        foreign += [f"{obj['kind']} {name_of(obj)}" for obj in (*result.foreign, *decision.foreign)]
        if foreign:
            text = ", ".join(dict.fromkeys(foreign))
            condition = condition_false(READY, "NotOwned", f"exist and do not belong to this cluster: {text}")
            return replace(decision, status=_with_condition(snapshot, decision.status, condition)), failed
        if failed is not None:
            return _with_failure(snapshot, decision, str(failed)), failed
        return decision, None

    async def _carry_out(self, action: ClusterAction) -> Mapping[str, object]:
        """Returns the fields of status that change with it; None: the field goes."""
        if isinstance(action, Reconfigure):
            await self._ensemble.reconfigure(action)
            return {}
        admin = self._kafka.client
        if admin is None:
            return {}
        try:
            match action:
                case MoveLeaders():
                    await self._roll.move_leaders(admin, action)
                case ElectLeaders():
                    await self._roll.elect_leaders(admin, action)
                case EmptyLogDirs():
                    await self._disks.empty_log_dirs(admin, action)
                case MoveReplicas():
                    return await self._rebalance.move_replicas(admin, action)
        except KafkaUnavailable as error:
            self._log.info("%s: no broker answers: %s", type(action).__name__, error)
        return {}

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

    async def _stop_blocker(self, snapshot: Snapshot, proof: BatchProof) -> str:
        """Why Kafka's metadata and topic configurations, read now, do not allow to stop a batch; "" when they do."""
        try:
            metadata = await self._observer.metadata_now(snapshot)
        except KafkaUnavailable as error:
            return f"no broker answers: {error}"
        found = [*partition_blockers(metadata.partitions, proof.batch, proof.stopping)]
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
        """Writes it when it differs, and emits the Events of what has changed and the Warnings that are due."""
        before, now = resource.get("status") or {}, self._environment.now()
        new_events: list[Obj] = []
        if before != status:
            answer = await self._api.replace_status({**resource, "status": status})
            self._prerequisites.wrote_status(KAFKA_CLUSTER, status, answer)
            self._cache.put(answer)
            new_events += events(resource, before, status, now, waits=True)
            self._delayed_warnings.changed(before, status, now)
        new_events += [warning_event(resource, item, now) for item in self._delayed_warnings.due(status, now)]
        await emit_events(self._api, self._log, new_events)


def _of(snapshot: Snapshot) -> Iterator[Obj]:
    """What may have to be adopted."""
    for objects in snapshot.objects.values():
        yield from objects.values()


def _with_failure(snapshot: Snapshot, decision: ClusterDecision, message: str) -> ClusterDecision:
    condition = condition_false(READY, "WriteFailed", message)
    return replace(decision, status=_with_condition(snapshot, decision.status, condition))


def _with_condition(snapshot: Snapshot, status: Obj, condition: Condition) -> Obj:
    """The status with this condition in place of the one of its type."""
    previous = dig(snapshot.resource, "status", "conditions")
    kept = [item for item in status["conditions"] if item["type"] != condition.type]
    changed = merged(previous, [condition], int(status["observedGeneration"]), snapshot.now)
    return {**status, "conditions": sorted([*kept, *changed], key=lambda item: str(item["type"]))}
