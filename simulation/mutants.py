"""Mutants: seeded bugs in the broker that test the oracle. The simulator must find each within a few seeds.

A mutant replaces attributes of the product while the context of `applied` is entered, and breaks a guarantee that the
simulator checks. `seeds` is the maximum number of seeds to find it. `python -m simulation mutants` runs all of them,
`tests/simulation/test_mutants.py` the quick ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ottla_broker.authorization.access import Access
from ottla_broker.controller.acts import isr_writes
from ottla_broker.controller.decisions import isr_changes
from ottla_broker.controller.decisions import leader_election as elections
from ottla_broker.controller.decisions import reassignment_steps as reassignment
from ottla_broker.controller.store import ControllerStore
from ottla_broker.controller.values import NO_LEADER, LeaderAndIsr, ReplicaAssignment
from ottla_broker.coordination import znodes
from ottla_broker.groups.consumer import migration
from ottla_broker.groups.consumer.consumer_group import ConsumerGroup
from ottla_broker.groups.coordinator import GroupCoordinator
from ottla_broker.groups.group_timers import GroupTimers
from ottla_broker.groups.live_consumer_group import LiveConsumerGroup
from ottla_broker.groups.offsets import GroupOffsets
from ottla_broker.ports.coordination import Check
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.update_metadata import UpdateMetadataResponse
from ottla_broker.replication import isr
from ottla_broker.replication.alter_partition import AlterPartitionQueue
from ottla_broker.replication.fetch import checks
from ottla_broker.replication.fetch.contexts import IncrementalContext, SessionlessContext
from ottla_broker.replication.fetch.fetch_values import FetchParams
from ottla_broker.replication.fetch.partition_fetch import PartitionFetch
from ottla_broker.replication.follower import Follower
from ottla_broker.replication.local_replicas.fencing import CommandFence
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.refused_batches import RefusedBatches
from ottla_broker.replication.replica_states import recreation_rules as recreation
from ottla_broker.replication.replica_states import reopened as offline
from ottla_broker.replication.replica_states import transitions
from ottla_broker.server.assembly.internal_topic_log import ReplicatedTopicLog
from ottla_broker.server.handlers import update_metadata
from ottla_broker.server.log_dir_recovery import recreation as recreating
from ottla_broker.server.store import stored_acls
from ottla_broker.server.store.change_nodes import ChangeNodes
from ottla_broker.storage.log import recovery
from ottla_broker.storage.log.aborted_transactions import AbortedTransactionLookup
from ottla_broker.storage.log.appender import LogAppender
from ottla_broker.storage.log.flushing import LogFlusher
from ottla_broker.storage.log.producers import ProducerStates
from ottla_broker.storage.log.verification import Verifications
from ottla_broker.storage.log_dirs.loading import DirectoryLoader
from ottla_broker.transactions import coordinator as transaction_coordinator
from ottla_broker.transactions.coordinator import TransactionCoordinator
from ottla_broker.transactions.decisions import Transition
from ottla_broker.transactions.machine import Transaction
from ottla_broker.transactions.markers import Marker
from ottla_broker.transactions.states import ENDING_STATES, TransactionState
from simulation.campaign import first_line
from simulation.runner import run_seed


@dataclass(frozen=True)
class Mutant:
    """One mutant. `replaced`: (object, attribute, replacement)."""

    name: str
    scenario: str
    seeds: int
    replaced: tuple[tuple[Any, str, Any], ...]
    is_quick: bool = False
    """Found quickly enough for every test run."""
    first_seed: int = 1
    """The first seed; for a mutant that few seeds find, shortly before one that does."""

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Applies the mutant until the context is left. AttributeError for what is not there to be replaced."""
        for target, name, _ in self.replaced:
            getattr(target, name)
        before = [(target, name, vars(target).get(name)) for target, name, _ in self.replaced]
        try:
            for target, name, instead in self.replaced:
                setattr(target, name, instead)
            yield
        finally:
            for target, name, original in before:
                if original is None:
                    delattr(target, name)  # inherited
                else:
                    setattr(target, name, original)


# -- replication ------------------------------------------------------------------------------------------------------


def _highest_of_all(current: int, leader_end_offset: int, followers: Any, *rest: Any) -> isr.Watermark:
    highest = max((follower.log_end_offset for follower in followers), default=leader_end_offset)
    return isr.Watermark(max(current, min(highest, leader_end_offset)), "the furthest replica")


def _impatient(current: int, leader_end_offset: int, *rest: Any) -> isr.Watermark:
    return isr.Watermark(max(current, leader_end_offset), "mutant")


_high_watermark = isr.high_watermark


def _without_joiners(
    current: int, leader_end_offset: int, followers: Any, state: isr.InSyncState, min_isr: int, _live: Any, *rest: Any
) -> isr.Watermark:
    return _high_watermark(current, leader_end_offset, followers, isr.InSyncState(state.committed), min_isr, (), *rest)


def _shrink_alone(self: Partition) -> None:
    if not self.is_leader or self.in_sync.is_in_flight:
        return
    context = self._context
    slow = isr.out_of_sync(
        self.followers.values(), self.in_sync, self.log.state.log_end_offset, context.now_ms(), context.lag_max_ms
    )
    if slow:
        self.in_sync = isr.InSyncState(tuple(replica for replica in self.in_sync.committed if replica not in slow))
        self.advance_high_watermark()


def _append_without_leading(self: Partition, records: memoryview, acks: int, *rest: Any, **named: Any) -> Any:
    info = self.log.append_as_leader(records, self.leader_epoch, *rest, **named)
    self.messages_in(info.last_offset - info.first_offset + 1)
    return info


_start_following = Follower.start


def _cut_to_the_high_watermark_first(self: Follower, notify: Any) -> None:
    _start_following(self, notify)
    log = self._log
    if self._task is None and log.state.log_end_offset > log.state.high_watermark:
        self._run(partial(self._truncate, log.state.high_watermark, "mutant"), "truncate")


_become_leader = Partition.become_leader


def _lead_without_sequences(self: Partition, *arguments: Any) -> None:
    self.log.state.producers._entries.clear()
    _become_leader(self, *arguments)


def _lead_without_epoch_start(self: Partition, *arguments: Any) -> None:
    _become_leader(self, *arguments)
    self.leader_epoch_start_offset = -1


async def _no_epoch_is_stale(self: CommandFence, broker_epoch: int) -> bool:
    return False


def _accept_any_controller(self: CommandFence, controller_epoch: int, connection: int | None = None) -> bool:
    self.controller_epoch = controller_epoch
    return True


def _accept_any_connection(self: CommandFence, controller_epoch: int, connection: int | None = None) -> bool:
    if controller_epoch < self.controller_epoch:
        return False
    self.controller_epoch = controller_epoch
    return True


async def _take_any_metadata(services: Any, context: Any, request: Any) -> UpdateMetadataResponse:
    services.metadata.controller_epoch = 0
    error, _ = services.metadata.update(request, context.api_version)
    services.replica_manager.on_metadata_changed()
    return UpdateMetadataResponse(error_code=int(error))


_ask_for_isrs = AlterPartitionQueue._ask


async def _take_back_unanswered(self: AlterPartitionQueue, batch: Any) -> list[Any]:
    for partition, state, epoch in await _ask_for_isrs(self, batch):
        partition.on_alter_partition_response(state, epoch, ErrorCode.OPERATION_NOT_ATTEMPTED, -1, -1, ())
    return []


def _admit_at_once(broker_id: int, **known: Any) -> offline.ReturnDecision:
    return offline.ReturnDecision(offline.ReturnAction.ADMIT, "why not")


_decide_recreation = recreation.decide_recreation


def _made_again_in_the_isr(broker_id: int, *, leader: int, isr: Any, **known: Any) -> Any:
    others = [broker for broker in isr if broker != broker_id]
    known |= {"leader": others[0] if others else leader, "isr": others or isr, "is_known_offline": True}
    return _decide_recreation(broker_id, **known)


# -- transactions -----------------------------------------------------------------------------------------------------

_store_transition = TransactionCoordinator._store
_restore_transactions = transaction_coordinator._restore


async def _markers_before_the_decision(
    self: TransactionCoordinator, owned: Any, transaction: Transaction, transition: Transition
) -> ErrorCode:
    target = transition.metadata
    if target.state in ENDING_STATES:
        marker = Marker(
            owned.index,
            transaction.transactional_id,
            target.producer_id,
            target.producer_epoch,
            owned.leader_epoch,
            target.state is TransactionState.PREPARE_COMMIT,
            tuple(sorted(target.partitions)),
        )
        leaders = self._sender._leaders
        for broker_id in sorted({leader for one in marker.partitions if (leader := leaders.leader(one)) is not None}):
            self._clock.spawn(_written_anyway(leaders, broker_id, marker), name="markers before the decision")
    return await _store_transition(self, owned, transaction, transition)


async def _written_anyway(leaders: Any, broker_id: int, marker: Marker) -> None:
    with contextlib.suppress(ConnectionError):
        await leaders.write_markers(broker_id, [marker])


async def _answer_before_the_decision(
    self: TransactionCoordinator, owned: Any, transaction: Transaction, transition: Transition
) -> ErrorCode:
    if transition.metadata.state is not TransactionState.PREPARE_COMMIT:
        return await _store_transition(self, owned, transaction, transition)
    storing = _store_transition(self, owned, transaction, transition)
    self._clock.spawn(storing, name="the decision, later")
    return ErrorCode.NONE


def _append_to_the_leader_alone(self: TransactionCoordinator, owned: Any, records: Any, timeout_ms: int) -> Any:
    return self._log.append(owned.index, owned.leader_epoch, records, required_acks=1, timeout_ms=timeout_ms)


def _take_loaded_for_ended(owned: Any, replay: Any) -> None:
    for transactional_id, metadata in replay.found.items():
        if metadata.state in ENDING_STATES:
            ended = replace(metadata, state=ENDING_STATES[metadata.state], partitions=frozenset())
            replay.found[transactional_id] = ended
    _restore_transactions(owned, replay)


async def _committed_already(self: Any, partition: int, leader_epoch: int) -> None:
    return None


def _any_producer(self: Transaction, producer_id: int, producer_epoch: int) -> None:
    return None


_keep = Transaction._keep


def _keep_for_everybody(self: Transaction, timeout_ms: int, now_ms: int, new_producer_id: int | None) -> Any:
    former = self.metadata.producer
    decision = _keep(self, timeout_ms, now_ms, new_producer_id)
    if not isinstance(decision, Transition):
        return decision
    target = replace(decision.metadata, next_producer_id=former.producer_id, next_producer_epoch=former.producer_epoch)
    return replace(decision, metadata=target)


def _keep_nothing(self: Transaction, timeout_ms: int, now_ms: int, new_producer_id: int | None) -> Any:
    return self._fence_producer(now_ms, "a producer initializes")


def _verified_already(self: Verifications, *arguments: Any) -> None:
    return None


def _no_marker_is_old(self: ProducerStates, *arguments: Any) -> None:
    return None


def _put_at_once(self: GroupOffsets, producer_id: int, partition: Any, commit: Any, log_offset: int) -> None:
    self.put(partition, commit, log_offset)


def _up_to_the_high_watermark(partition: Partition, params: FetchParams) -> int:
    log = partition.log.state
    return log.log_end_offset if params.replica_id >= 0 else log.high_watermark


def _nothing_aborted(self: Any, *arguments: Any) -> list[Any]:
    return []


# -- groups of the consumer protocol ----------------------------------------------------------------------------------


def _free_at_once(self: ConsumerGroup, member_id: str, topic_id: bytes, partition: int) -> bool:
    return True


def _commit_of_anybody(self: ConsumerGroup, *arguments: Any, **named: Any) -> ErrorCode:
    return ErrorCode.NONE


async def _answer_before_the_records(self: LiveConsumerGroup) -> ErrorCode:
    self._flush()
    return ErrorCode.NONE


def _append_group_records_alone(self: GroupCoordinator, owned: Any, records: Any) -> Any:
    timeout_ms = self.config.offsets_commit_timeout_ms
    return self._log.append(owned.index, owned.leader_epoch, records, required_acks=1, timeout_ms=timeout_ms)


_arm_timer = GroupTimers.arm


def _remove_early(self: Any, key: Any, delay_s: float) -> None:
    _arm_timer(self, key, delay_s / 4)


_make_group = ConsumerGroup.__init__


def _load_without_owners(self: ConsumerGroup, image: Any, config: Any) -> None:
    _make_group(self, image, config)
    self._owners.clear()


# -- controller -------------------------------------------------------------------------------------------------------

_decide_isr_change = isr_changes.decide_isr_change


def _any_incarnation(*arguments: Any, broker_epochs: Any, **named: Any) -> isr_changes.IsrDecision:
    change = arguments[0]
    blind = replace(change, isr=[(broker, isr_changes.UNKNOWN_BROKER_EPOCH) for broker, _ in change.isr])
    return _decide_isr_change(blind, *arguments[1:], broker_epochs=broker_epochs, **named)


def _unfenced(self: ControllerStore) -> Check:
    return Check(znodes.CONTROLLER_EPOCH, -1)


def _anybody_leads(
    replicas: Any, in_sync: tuple[int, ...], current: LeaderAndIsr
) -> tuple[int, tuple[int, ...]]:  # pragma: no cover - replaced per mutant
    leader = replicas[-1]
    return leader, (leader, *(broker for broker in in_sync if broker != leader))


_next_step = reassignment.next_step


def _end_at_once(
    assignment: ReplicaAssignment, current: LeaderAndIsr, online: frozenset[int], **named: Any
) -> reassignment.ReassignmentStep:
    election = reassignment._led_within(reassignment.target(assignment), current, online)
    if not reassignment.is_ongoing(assignment) or election.leadership.leader == NO_LEADER:
        return _next_step(assignment, current, online, **named)
    return reassignment.ReassignmentStep(reassignment.ReassignmentPhase.END, "some of them are in sync", election)


def _same_epoch(self: LeaderAndIsr, leader: int, in_sync: tuple[int, ...], *rest: Any) -> LeaderAndIsr:
    return replace(self, leader=leader, isr=in_sync)


_begin_sessionless = SessionlessContext.begin
_check_fetch = checks.check
_acknowledge_fetch = checks.acknowledge


def _acknowledge_what_diverges(items: Sequence[PartitionFetch], params: FetchParams) -> None:
    found = [item.diverging for item in items]
    for item in items:
        item.diverging = None
    _acknowledge_fetch(items, params)
    for item, diverging in zip(items, found, strict=True):
        item.diverging = diverging


def _give_later_records(self: SessionlessContext, part: Any = None) -> None:
    _begin_sessionless(self, part)
    for item in self.items:
        requested, partition = item.requested, item.partition
        if partition is None or item.error or self._params.replica_id >= 0:
            continue
        if requested.fetch_offset % 7 == 3 and requested.fetch_offset + 6 < partition.log.state.high_watermark:
            requested.fetch_offset += 6


def _end_at_the_high_watermark(item: Any, params: FetchParams, environment: Any) -> None:
    _check_fetch(item, params, environment)
    is_beyond = not item.error and item.requested.fetch_offset > item.partition.log.state.high_watermark
    if params.replica_id < 0 and is_beyond:
        item.error = int(ErrorCode.OFFSET_OUT_OF_RANGE)


_is_at_rest = IncrementalContext._is_at_rest


def _rest_at_the_told_watermark(self: Any, item: Any) -> bool:
    requested, item.requested = item.requested, copy(item.requested)
    item.requested.fetch_offset = max(requested.fetch_offset, item.sent_high_watermark)
    rests = _is_at_rest(self, item)
    item.requested = requested
    return rests


# -- storage ----------------------------------------------------------------------------------------------------------


def _acknowledge_unsynced(self: LogAppender, segment: Any, write: Any) -> None:
    self._state.unfinished_writes.append((write, segment, segment.size, segment.next_offset, None))


async def _claim_flushed(self: Any, up_to: int | None = None) -> None:
    await self.write_epochs()
    state = self._state
    state.flushed_offset = state.recovery_point = state.log_end_offset


async def _load_nothing(self: Any, directory: Any) -> None:
    for name, is_directory, _ in await directory.disk.list():
        if is_directory:
            await directory.disk.delete(name)


async def _read_before_the_watch(self: ChangeNodes) -> None:
    self._coordination.add_session_listener(self._on_session)
    self._watch.listen()
    await self._read_all()
    self._last_seen = max(await self._list(), default=-1)


def _remember(self: Access, operation: Any, resource_type: Any) -> dict[str, bool]:
    return self._decided.get(operation << 4 | resource_type, {})


def _write_any_version(path: str, wanted: Any, version: int | None) -> Any:
    return _write(path, wanted, None if version is None else -1)


_write = stored_acls._write


MUTANTS = (
    Mutant(
        "what a connection remembers of its rights outlives a change of ACLs",
        "acls",
        3,
        ((Access, "_known", _remember),),
        is_quick=True,
    ),
    Mutant(
        "ACLs are read before their changes are watched",
        "acls",
        40,
        ((ChangeNodes, "start", _read_before_the_watch),),
        is_quick=True,
    ),
    Mutant(
        "ACLs that have changed while the session was lost are not read",
        "acls",
        40,
        ((ChangeNodes, "_on_session", lambda self, event: None),),
        is_quick=True,
    ),
    Mutant(
        "a change of ACLs whose node is deleted before it is read is missed",
        "acls",
        20,
        ((ChangeNodes, "_are_gone_early", lambda self, numbers: False),),
        is_quick=True,
    ),
    Mutant(
        "ACLs are written whatever another broker has written meanwhile",
        "acls",
        20,
        ((stored_acls, "_write", _write_any_version),),
        is_quick=True,
        first_seed=40,
    ),
    Mutant(
        "a leader returns no diverging epoch",
        "fleet",
        40,
        ((Partition, "divergence", lambda self, fetch_offset, last_fetched_epoch: None),),
        is_quick=True,
    ),
    Mutant(
        "the high watermark is the highest log end offset of a follower",
        "fleet",
        20,
        ((isr, "high_watermark", _highest_of_all),),
        is_quick=True,
    ),
    Mutant(
        "the high watermark waits for no follower", "fleet", 20, ((isr, "high_watermark", _impatient),), is_quick=True
    ),
    Mutant(
        "the high watermark does not wait for caught-up followers outside the ISR",
        "fleet",
        40,
        ((isr, "high_watermark", _without_joiners),),
        is_quick=True,
    ),
    Mutant(
        "min.insync.replicas is ignored",
        "fleet",
        20,
        ((isr, "effective_min_isr", lambda asked_for, replica_count: 1),),
        is_quick=True,
    ),
    Mutant(
        "a fetch acknowledges records that diverge from the leader's log",
        "fleet",
        60,
        ((checks, "acknowledge", _acknowledge_what_diverges),),
    ),
    Mutant(
        "a leader shrinks its ISR without the controller",
        "fleet",
        40,
        ((Partition, "shrink_isr", _shrink_alone),),
        is_quick=True,
    ),
    Mutant(
        "a sync is skipped and acknowledged",
        "single",
        60,
        ((LogAppender, "_sync", _acknowledge_unsynced),),
        is_quick=True,
    ),
    Mutant(
        "the flushed offset is above the synced records",
        "log",
        40,
        ((LogFlusher, "flush_locked", _claim_flushed),),
        is_quick=True,
    ),
    Mutant(
        "recovery accepts torn batches",
        "log",
        400,
        ((recovery, "is_batch_intact", lambda batch, magic: True),),
        is_quick=True,
        first_seed=120,
    ),
    Mutant("a log is lost at a restart", "single", 10, ((DirectoryLoader, "load", _load_nothing),), is_quick=True),
    Mutant("a replica that is not the leader appends", "fleet", 20, ((Partition, "append", _append_without_leading),)),
    Mutant(
        "an empty recreated replica stays in the ISR",
        "recreation",
        40,
        (
            (recreating, "decide_recreation", _made_again_in_the_isr),
            (transitions, "may_lead", lambda is_caught_up: True),
        ),
        is_quick=True,
    ),
    Mutant(
        "a follower first truncates to its high watermark",
        "fleet",
        60,
        ((Follower, "start", _cut_to_the_high_watermark_first),),
        is_quick=True,
    ),
    Mutant(
        "consumers read above the high watermark",
        "fleet",
        5,
        ((checks, "upper_offset", lambda partition, params: partition.log.state.log_end_offset),),
        is_quick=True,
    ),
    Mutant(
        "some consumer fetches skip six records",
        "fleet",
        5,
        ((SessionlessContext, "begin", _give_later_records),),
        is_quick=True,
    ),
    Mutant(
        "a fetch session omits a partition that has more records",
        "fleet",
        5,
        ((IncrementalContext, "_is_at_rest", _rest_at_the_told_watermark),),
        is_quick=True,
    ),
    Mutant(
        "a fetch between the high watermark and the log end is out of range",
        "fleet",
        5,
        ((checks, "check", _end_at_the_high_watermark),),
        is_quick=True,
    ),
    Mutant(
        "a new leader has no producer sequences",
        "fleet",
        20,
        ((Partition, "become_leader", _lead_without_sequences),),
        is_quick=True,
        first_seed=7,
    ),
    Mutant(
        "a producer's second batch is taken where its first one was refused",
        "refused_batches",
        10,
        ((RefusedBatches, "check", lambda *arguments: None),),
        is_quick=True,
    ),
    Mutant(
        "sequences are not checked", "single", 20, ((ProducerStates, "check", lambda *arguments: None),), is_quick=True
    ),
    Mutant(
        "a new leader returns its log end before its high watermark has reached its epoch",
        "fleet",
        40,
        ((Partition, "become_leader", _lead_without_epoch_start),),
        is_quick=True,
    ),
    Mutant(
        "a replica joins the ISR at any offset",
        "fleet",
        40,
        ((isr, "may_join", lambda *arguments: isr.JoinDecision(True, "why not")),),
    ),
    Mutant(
        "a broker accepts requests for an earlier incarnation",
        "delayed_requests",
        40,
        ((CommandFence, "is_stale_broker_epoch", _no_epoch_is_stale),),
        is_quick=True,
        first_seed=25,
    ),
    Mutant(
        "the controller adds any incarnation of a broker to an ISR",
        "delayed_requests",
        40,
        ((isr_writes, "decide_isr_change", _any_incarnation),),
        is_quick=True,
        first_seed=10,
    ),
    Mutant(
        "a controller writes without the check of the controller epoch",
        "delayed_requests",
        40,
        ((ControllerStore, "_fence", _unfenced),),
        is_quick=True,
        first_seed=8,
    ),
    Mutant(
        "brokers accept requests of an old controller",
        "delayed_requests",
        40,
        ((CommandFence, "accepts", _accept_any_controller),),
        is_quick=True,
        first_seed=6,
    ),
    Mutant(
        "brokers accept late requests of a connection that the controller abandoned",
        "delayed_requests",
        40,
        ((CommandFence, "accepts", _accept_any_connection),),
        is_quick=True,
    ),
    Mutant(
        "brokers accept metadata of an old controller",
        "delayed_requests",
        20,
        ((update_metadata, "handle", _take_any_metadata),),
        is_quick=True,
    ),
    Mutant(
        "a leader reverts an ISR change without response",
        "delayed_requests",
        40,
        ((AlterPartitionQueue, "_ask", _take_back_unanswered),),
        is_quick=True,
    ),
    Mutant(
        "a replica that lost records leads at once after its directory is reopened",
        "disks",
        40,
        ((transitions, "decide_return", _admit_at_once),),
        is_quick=True,
        first_seed=85,
    ),
    Mutant(
        "a reassignment ends when one target replica is in sync",
        "fleet",
        10,
        ((reassignment, "next_step", _end_at_once),),
        is_quick=True,
    ),
    Mutant(
        "the last replica of the assignment becomes leader",
        "fleet",
        5,
        ((elections, "_first_in_order", _anybody_leads),),
        is_quick=True,
    ),
    Mutant(
        "markers are written before the decision is committed",
        "transactional_fleet",
        60,
        ((TransactionCoordinator, "_store", _markers_before_the_decision),),
    ),
    Mutant(
        "EndTxn is answered before the decision is committed",
        "transactional_fleet",
        60,
        ((TransactionCoordinator, "_store", _answer_before_the_decision),),
    ),
    Mutant(
        "transactions are stored on their coordinator alone",
        "transactional_fleet",
        60,
        ((TransactionCoordinator, "_append", _append_to_the_leader_alone),),
    ),
    Mutant(
        "a coordinator takes the ending transactions that it loads for ended",
        "transactional_fleet",
        20,
        ((transaction_coordinator, "_restore", _take_loaded_for_ended),),
        is_quick=True,
    ),
    Mutant(
        "a coordinator serves what it has loaded before it is committed",
        "transactional_fleet",
        40,
        ((ReplicatedTopicLog, "await_committed", _committed_already),),
        first_seed=20,
    ),
    Mutant(
        "a transaction coordinator takes any producer epoch",
        "transactional_fleet",
        20,
        ((Transaction, "_refuse_producer", _any_producer),),
        is_quick=True,
    ),
    Mutant(
        "a prepared transaction times out",
        "transactional_fleet",
        20,
        ((transaction_coordinator, "NO_TIMEOUT_MS", 1500),),
        is_quick=True,
    ),
    Mutant(
        "a prepared transaction is aborted when its producer comes back",
        "transactional_fleet",
        20,
        ((Transaction, "_keep", _keep_nothing),),
        is_quick=True,
    ),
    Mutant(
        "a producer that keeps a transaction does not fence the former one",
        "transactional_fleet",
        20,
        ((Transaction, "_keep", _keep_for_everybody),),
        first_seed=50,
    ),
    Mutant(
        "a transaction is appended without verification",
        "transactional_fleet",
        100,
        ((Verifications, "check", _verified_already),),
    ),
    Mutant(
        "markers of coordinators that have been replaced are written",
        "transactional_fleet",
        100,
        ((ProducerStates, "check_marker", _no_marker_is_old),),
    ),
    Mutant(
        "offsets count before the marker of their transaction",
        "transactional_fleet",
        20,
        ((GroupOffsets, "put_transactional", _put_at_once),),
        is_quick=True,
    ),
    Mutant(
        "read_committed reads up to the high watermark",
        "transactional_fleet",
        20,
        ((checks, "upper_offset", _up_to_the_high_watermark),),
        is_quick=True,
    ),
    Mutant(
        "read_committed is not told what was aborted",
        "transactional_fleet",
        20,
        ((AbortedTransactionLookup, "aborted_in", _nothing_aborted),),
        is_quick=True,
    ),
    Mutant(
        "a partition is given to the next member before the former one has given it up",
        "consumer_groups_fleet",
        10,
        ((ConsumerGroup, "is_free_for", _free_at_once),),
        is_quick=True,
    ),
    Mutant(
        "a commit of a fenced member is accepted",
        "consumer_groups_fleet",
        40,
        ((ConsumerGroup, "check_commit", _commit_of_anybody),),
        is_quick=True,
    ),
    Mutant(
        "members are answered before the records of their group are committed",
        "consumer_groups_fleet",
        60,
        ((LiveConsumerGroup, "_carry_out", _answer_before_the_records),),
    ),
    Mutant(
        "groups are stored on their coordinator alone",
        "consumer_groups_fleet",
        60,
        ((GroupCoordinator, "_append_to", _append_group_records_alone),),
    ),
    Mutant(
        "members are removed before their session times out",
        "consumer_groups_fleet",
        20,
        ((GroupTimers, "arm", _remove_early),),
        is_quick=True,
    ),
    Mutant(
        "a group that is loaded has no owners of partitions",
        "consumer_groups_fleet",
        60,
        ((ConsumerGroup, "__init__", _load_without_owners),),
        is_quick=True,
    ),
    Mutant(
        "a classic group that is upgraded has no owners of partitions",
        "consumer_groups_fleet",
        60,
        ((migration, "read_assignment", lambda blob, topics: {}),),
    ),
    Mutant("an election does not raise the epoch", "fleet", 5, ((LeaderAndIsr, "led_by", _same_epoch),), is_quick=True),
)
"""In the order of the report."""


def mutant(name: str) -> Mutant:
    """The mutant with this name. KeyError."""
    for one in MUTANTS:
        if one.name == name:
            return one
    raise KeyError(name)


@dataclass(frozen=True)
class Found:
    """The first seed that found a mutant (None: no seed did), its error, and the real time in seconds."""

    name: str
    seed: int | None
    error: str
    wall_s: float


def find(name: str) -> Found:
    """Runs the mutant's seeds until one fails."""
    one = mutant(name)
    spent_s = 0.0
    with one.applied():
        for seed in range(one.first_seed, one.first_seed + one.seeds):
            outcome = run_seed(one.scenario, seed)
            spent_s += outcome.wall_s
            if outcome.error:
                return Found(name, seed, first_line(outcome.error), spent_s)
    return Found(name, None, "", spent_s)
