"""The controller of one broker: it becomes the active controller or waits, and runs one event after the other.

Here: taking part in the controller election, resigning, the queue of events, and what the handlers call. Not here: what
the active controller does (`active` and `acts`). On the calling side of the ports Coordination and Clock, and of
`channels_port`.

Concurrency. One task takes events from a queue: watches, responses of brokers, requests of handlers. An event awaits
its writes, and the next one starts when it is done. So no event sees a half-changed context, and there is no lock.
Watches and responses only queue events; callers get futures.

The end of a controller epoch. Three things end it: the fence (a write finds a later controller epoch), the end of the
session, and an unforeseen error. The first two take effect at once. After the third the context may be half changed:
this broker resigns, and the next active controller reads everything again. Events of an earlier controller epoch are
dropped, and requests get NOT_CONTROLLER.

Source: KafkaController and ControllerEventManager of Apache Kafka.

What others may rely on:

- Persistent paths exist before `start`, and the broker is registered. `stop` resigns before the session is closed, so
  that another broker can become the active controller at once. After `broker_registered` (a new session) it takes
  part in the election again.
- Whatever is awaited raises NOT_CONTROLLER on a broker that is not the active controller.
- An election chooses among `electable_brokers(partition)` (online, and of those in controlled shutdown only the ones
  that the partition cannot do without). An ISR takes `isr_candidates(partition)`. Requests go to
  `online_brokers(partition)`.
- Channels (`controller.channels_port`): one ordered queue for each broker, retried for ever; no response is delivered
  after `close`.
- LeaderAndIsr has `type` 1, or 2 (full) after the broker registered or the controller changed. UpdateMetadata has
  `type` 0, or 2 (full) in a broker's first one after either: topics that it does not name are deleted.
- Every request from one broker to another takes its version from `config.inter_broker.inter_broker_versions`.
- Of a LeaderAndIsr response the controller uses, for each partition, NONE (the replica is online) and
  KAFKA_STORAGE_ERROR (offline). Of a StopReplica with deletion, NONE means deleted; anything else waits until the
  broker registers again.
- The configuration of a new topic is in /config/topics before its LeaderAndIsr is sent, without a change
  notification.
- Reassignments: `progress(partitions)` runs in the same event in which an ISR changed. A replica that is being added
  and not in the ISR has `is_new` in its LeaderAndIsr.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from ottla_broker.config.broker import BrokerConfig
from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.controller import controller_election, controller_metrics
from ottla_broker.controller.active import Act, ActiveController
from ottla_broker.controller.acts.broker_shutdown import ANSWER_WITHIN_S
from ottla_broker.controller.acts.feature_finalization import FeatureUpdateResults, update_features
from ottla_broker.controller.acts.isr_writes import IsrResult, TopicIsrChanges
from ottla_broker.controller.acts.producer_id_allocation import allocate_producer_ids
from ottla_broker.controller.acts.requested_elections import ElectionResult, ElectionType
from ottla_broker.controller.acts.topic_administration import Charge, TopicResult, free_of_charge
from ottla_broker.controller.channels_port import ControllerChannels
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.controller_election import NO_CONTROLLER, ControllerEpoch
from ottla_broker.controller.controller_epoch_parts import ControllerEpochParts
from ottla_broker.controller.decisions.assignment import RackMode
from ottla_broker.controller.decisions.feature_updates import FeatureUpdate
from ottla_broker.controller.decisions.topic_plans import NewTopic, TopicGrowth
from ottla_broker.controller.store import ControllerFenced, ControllerStore
from ottla_broker.controller.values import TOPICS_PER_EVENT, ReplicaAssignment
from ottla_broker.coordination.znodes import ProducerIdBlock
from ottla_broker.metrics import Metrics
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.coordination import Coordination, SessionEvent, SessionExpired, Watcher, WatchEvent
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")

_RESULTS_PER_TURN = 500
"""Of a request; after so many the loop does other work."""

T = TypeVar("T")
R = TypeVar("R", TopicResult, ElectionResult)

PAUSE_AFTER_FAILURE_S: Final = 1.0
"""After an unforeseen error the other brokers may become the active controller first."""

RESIGN_WITHIN_S: Final = 2.0
"""A broker that stops waits no longer for a coordination store that does not answer."""


@dataclass(slots=True)
class _Event:
    name: str
    run: Callable[[], Awaitable[None]]
    refuse: Callable[[KafkaError], None] | None = None
    """For a request: passes the caller the error when it was not carried out."""


class Controller:
    """One per broker. `start` once the broker is registered; `stop` before its session is closed."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: BrokerConfig,
        clock: Clock,
        coordination: Coordination,
        channels: ControllerChannels,
        listener: str,
        metrics: Metrics | None = None,
    ) -> None:
        """`listener` is the name of the inter-broker listener."""
        self._broker_id = broker_id
        self._config = config
        self._clock = clock
        self._coordination = coordination
        self._channels = channels
        self._listener = listener
        self._events: deque[_Event] = deque()
        self._queued_changes: set[tuple[int, str]] = set()
        """(controller epoch, path) of changes whose event is queued: one event reads all of them."""
        self._wake_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._active: ActiveController | None = None
        self._epoch: ControllerEpoch | None = None
        self._other_controller = NO_CONTROLLER
        self._contend_from = 0.0
        self._is_withdrawn = False
        self._has_stopped = False
        metrics = metrics or Metrics()
        self._unclean_elections = controller_metrics.unclean_elections(metrics)
        controller_metrics.register(metrics, lambda: None if self._active is None else self._active.context)

    # Start and stop

    async def start(self) -> None:
        """Takes part in the controller election and goes on in the background. The broker must be registered.

        Returns when the active controller is known; if it is this broker, after its failover.
        """
        self._coordination.add_session_listener(self._on_session_event)
        first: asyncio.Future[None] = self._clock.create_future()

        async def contend_first() -> None:
            try:
                await self._contend()
            finally:
                if not first.done():
                    first.set_result(None)

        self._put(_Event("first controller election", contend_first))
        self._task = self._clock.spawn(self._run(), name=f"controller of broker {self._broker_id}")
        await first

    def withdraw(self) -> None:
        """Takes part in no further controller election: the broker is about to stop. The active controller goes on
        until `stop`."""
        self._is_withdrawn = True

    async def stop(self) -> None:
        """Resigns, so that another broker becomes the controller while this one still flushes, and ends the task."""
        self._has_stopped = True
        was_active = self._active is not None
        self._resign("the broker stops")
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._refuse_all()
        if was_active:
            try:
                await asyncio.wait_for(self._delete_controller_node(), RESIGN_WITHIN_S)
            except TimeoutError:
                # The coordination store is out of reach: /controller goes with the session.
                return

    def broker_registered(self) -> None:
        """The broker has registered again in a new session: it takes part in the controller election."""
        self._put(_Event("registered", self._contend))

    def _on_session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            # At once: /controller is gone with the session, and another broker may be the active controller already.
            self._resign("the session has expired")
            self._other_controller = NO_CONTROLLER

    # Requests

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @property
    def controller_id(self) -> int:
        """The broker that holds /controller as far as this one has seen, -1 for none."""
        return self._broker_id if self._active is not None else self._other_controller

    @property
    def epoch(self) -> int:
        """The controller epoch of this broker, -1 while it is not the active controller."""
        return -1 if self._epoch is None or self._active is None else self._epoch.number

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic of this id (16 bytes), None when there is none or this broker is not the active controller."""
        return None if self._active is None else self._active.context.topic_name(topic_id)

    def offline_partitions(self) -> int:
        """Partitions whose leader is offline or none (OfflinePartitionsCount), 0 unless this broker is active."""
        return 0 if self._active is None else controller_metrics.offline_partitions(self._active.context)

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        timeout_ms: int,
        validate_only: bool = False,
        mode: RackMode = RackMode.ENFORCED,
        charge: Charge = free_of_charge,
    ) -> list[TopicResult]:
        """Creates topics and waits until this broker knows their leaders.

        One result per topic in their order; REQUEST_TIMED_OUT for one that is created but not yet known in time.
        `charge` is called for each that is about to be created. Raises KafkaError(NOT_CONTROLLER).
        """

        def act(some: Sequence[NewTopic], active: ActiveController) -> Awaitable[list[TopicResult]]:
            return active.administration.create_topics(some, mode=mode, validate_only=validate_only, charge=charge)

        results = await self._in_parts("create topics", topics, act, lambda topic: topic.name)
        return await self._wait_for(results, timeout_ms)

    async def create_partitions(
        self,
        growths: Sequence[TopicGrowth],
        *,
        timeout_ms: int,
        validate_only: bool = False,
        charge: Charge = free_of_charge,
    ) -> list[TopicResult]:
        """Adds partitions to topics; results, waiting and errors as `create_topics`."""

        def act(active: ActiveController) -> Awaitable[list[TopicResult]]:
            return active.administration.create_partitions(growths, validate_only=validate_only, charge=charge)

        return await self._wait_for(await self._request("create partitions", act), timeout_ms)

    async def delete_topics(
        self,
        names: Sequence[str],
        *,
        timeout_ms: int,
        topic_ids: Mapping[str, bytes] | None = None,
        charge: Charge = free_of_charge,
    ) -> list[TopicResult]:
        """Starts the deletion of topics and waits until this broker no longer has them in its metadata.

        Files and znodes go later, those on a dead broker when it returns. The caller checks `delete.topic.enable`.

        Args:
            topic_ids: by name, for topics that are deleted only if they have this id (else UNKNOWN_TOPIC_ID).

        Returns:
            Results and errors as `create_topics`.
        """

        def act(some: Sequence[str], active: ActiveController) -> Awaitable[list[TopicResult]]:
            return active.administration.delete_topics(some, topic_ids=topic_ids or {}, charge=charge)

        results = await self._in_parts("delete topics", names, act, lambda name: name)
        return await self._wait_for(results, timeout_ms)

    async def _in_parts(
        self,
        event: str,
        wanted: Sequence[T],
        act: Callable[[Sequence[T], ActiveController], Awaitable[list[TopicResult]]],
        name_of: Callable[[T], str],
    ) -> list[TopicResult]:
        """A few topics at a time, so that no other event waits for all of them. Raises KafkaError while nothing is
        done; after that the topics that are left get the error as their result."""
        results: list[TopicResult] = []
        for start in range(0, len(wanted), TOPICS_PER_EVENT):
            some = wanted[start : start + TOPICS_PER_EVENT]
            try:
                results += await self._request(event, partial(act, some))
            except KafkaError as error:
                if all(result.done is None for result in results):
                    raise
                # On a single NOT_CONTROLLER a client sends the whole request again, and its own topics exist already.
                has_moved = error.code is ErrorCode.NOT_CONTROLLER
                code = ErrorCode.REQUEST_TIMED_OUT if has_moved else error.code
                message = "The controller moved before it processed this topic." if has_moved else error.message
                return results + [TopicResult(name_of(one), code, message) for one in wanted[start:]]
        return results

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], *, allows_factor_change: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Starts, replaces or (None) cancels reassignments (KIP-455); an error for each that is refused.

        Without `allows_factor_change` a partition keeps its number of replicas (KIP-860). Raises
        KafkaError(NOT_CONTROLLER).
        """
        return await self._request(
            "alter reassignments",
            lambda active: active.reassignments.alter(wanted, allows_factor_change=allows_factor_change),
        )

    async def list_reassignments(
        self, asked: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """The ongoing reassignments, of all partitions or of those asked for. Raises KafkaError(NOT_CONTROLLER)."""

        async def list_ongoing(active: ActiveController) -> dict[TopicPartition, ReplicaAssignment]:
            return active.reassignments.ongoing(asked)

        return await self._request("list reassignments", list_ongoing)

    async def alter_partitions(
        self, broker: int, broker_epoch: int, topics: Sequence[TopicIsrChanges], version: int
    ) -> list[dict[int, IsrResult]]:
        """AlterPartition (KIP-497) of the leader `broker`: results per topic and partition.

        Raises KafkaError NOT_CONTROLLER or STALE_BROKER_EPOCH.
        """

        def act(active: ActiveController) -> Awaitable[list[dict[int, IsrResult]]]:
            return active.isr_writes.alter_partitions(broker, broker_epoch, topics, version)

        return await self._request("alter partitions", act)

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdBlock:
        """A block of producer ids for this broker; errors as `allocate_producer_ids`, and NOT_CONTROLLER."""
        return await self._request(
            "allocate producer ids",
            lambda active: allocate_producer_ids(active.context, active.store, broker, broker_epoch),
        )

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool, is_atomic: bool
    ) -> FeatureUpdateResults:
        """Finalizes levels of features (`acts.feature_finalization`). Raises KafkaError(NOT_CONTROLLER)."""
        versions = inter_broker_versions(self._config.inter_broker_protocol_version)

        def act(active: ActiveController) -> Awaitable[FeatureUpdateResults]:
            return update_features(
                active.context,
                active.store,
                updates,
                validate_only=validate_only,
                is_atomic=is_atomic,
                znode_version=versions.feature_znode,
            )

        return await self._request("update features", act)

    async def controlled_shutdown(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """Moves leaderships away from a broker that shuts down.

        When it returns, the other brokers and then this one have answered, or did not in time.

        Args:
            broker_epoch: -1 is not checked.

        Returns:
            The partitions that the broker still leads and should ask about again.

        Raises:
            KafkaError: NOT_CONTROLLER, BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH (also when the broker has gone
                meanwhile).
        """
        moved = await self._request(
            "controlled shutdown", lambda active: active.shutdowns.move_leaderships(broker, broker_epoch)
        )
        await asyncio.wait([moved.others_answered], timeout=ANSWER_WITHIN_S)
        stopped = await self._request(
            "end of a controlled shutdown", lambda active: active.shutdowns.stop_replicas(moved)
        )
        await asyncio.wait([stopped.answered], timeout=ANSWER_WITHIN_S)
        return stopped.remaining

    async def elect_leaders(
        self, partitions: Collection[TopicPartition] | None, election_type: ElectionType, *, timeout_ms: int
    ) -> list[ElectionResult]:
        """ElectLeaders (KIP-460) for these partitions or for all; waits until this broker has the new leaders.

        One result per partition, sorted; without `partitions` those that need no election are left out.
        REQUEST_TIMED_OUT for a new leader that is not yet in the metadata in time. Raises KafkaError(NOT_CONTROLLER).
        """

        def act(active: ActiveController) -> Awaitable[list[ElectionResult]]:
            return active.requested_elections.elect_leaders(partitions, election_type)

        return await self._wait_for(await self._request("elect leaders", act), timeout_ms)

    def unclean_election_enabled(self, topic: str | None) -> None:
        """unclean.leader.election.enable is now true, for one topic or for all (None)."""
        active = self._active
        if active is not None:
            self._queue(
                self._epoch,
                "unclean elections enabled",
                lambda: active.requested_elections.unclean_election_enabled(topic),
            )

    async def _wait_for(self, results: list[R], timeout_ms: int) -> list[R]:
        waiting = [result.done for result in results if result.done is not None]
        if waiting and timeout_ms > 0:
            await asyncio.wait(waiting, timeout=timeout_ms / 1000)
        for number, result in enumerate(results, 1):
            if number % _RESULTS_PER_TURN == 0:
                await self._clock.sleep(0)
            if result.done is None:
                continue
            if not result.done.done():
                result.done.cancel()
            if result.done.cancelled() or result.done.exception() is not None or timeout_ms <= 0:
                # It is done all the same, and the next active controller continues it.
                result.error, result.message = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT.message
        return results

    # The queue

    def _put(self, event: _Event) -> None:
        if self._has_stopped:
            if event.refuse is not None:
                event.refuse(_not_controller())
            return
        self._events.append(event)
        self._wake_up.set()

    async def _request(self, name: str, act: Callable[[ActiveController], Awaitable[T]]) -> T:
        """Queues a request and waits for its result. KafkaError(NOT_CONTROLLER) unless this broker is active."""
        future: asyncio.Future[T] = self._clock.create_future()

        def refuse(error: KafkaError) -> None:
            if not future.done():
                future.set_exception(error)

        async def run() -> None:
            if self._active is None:
                refuse(_not_controller())
                return
            try:
                result = await act(self._active)
            except KafkaError as error:
                refuse(error)
            else:
                if not future.done():
                    future.set_result(result)

        self._put(_Event(name, run, refuse))
        return await future

    async def _run(self) -> None:
        while True:
            while not self._events:
                self._wake_up.clear()
                await self._wake_up.wait()
            event = self._events.popleft()
            try:
                await event.run()
            except (ControllerFenced, SessionExpired) as error:
                self._resign(str(error) or type(error).__name__)
                _refuse(event, _not_controller())
                if isinstance(error, ControllerFenced):
                    self._put(_Event("contend again", self._contend))
            except Exception as error:
                logger.exception("controller event '%s' failed", event.name)
                _refuse(event, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller failed: {error!r}"))
                await self._resign_after_failure()
            except asyncio.CancelledError:
                _refuse(event, _not_controller())
                raise

    def _refuse_all(self) -> None:
        while self._events:
            _refuse(self._events.popleft(), _not_controller())

    # Becoming the active controller and resigning

    async def _contend(self) -> None:
        """Reads who is the active controller, and tries to become it when there is none.

        At start, when /controller changes, in a new session.
        """
        while True:
            node = await controller_election.read_controller(
                self._coordination, self._clock, self._watch(None, lambda _: self._contend())
            )
            if node is not None:
                self._other_controller = node.broker_id
                if not node.is_this_session:
                    self._resign(f"broker {node.broker_id} is the active controller")
                    return
                if self._active is not None:
                    return
                # Left over from an earlier controller epoch of this session: it keeps every broker from becoming the
                # active controller.
                self._contend_from = max(self._contend_from, self._clock.monotonic() + PAUSE_AFTER_FAILURE_S)
                await controller_election.delete_controller(self._coordination, self._clock)
                continue
            self._other_controller = NO_CONTROLLER
            self._resign("/controller is gone")
            if self._is_withdrawn:
                return
            registration = await controller_election.own_registration(self._coordination, self._clock, self._broker_id)
            if registration is None:
                # A controller that is no live broker would elect no replica of its own, and clients could not reach it.
                # Read here: by the time a registration is reported its session may have ended.
                return
            wait_s = self._contend_from - self._clock.monotonic()
            if wait_s > 0:
                self._clock.call_later(wait_s, self._put, _Event("contend after a pause", self._contend))
                return
            epoch = await controller_election.create_controller(
                self._coordination, self._clock, self._broker_id, registration
            )
            if epoch is not None:
                await self._become_active(epoch)

    async def _become_active(self, epoch: ControllerEpoch) -> None:
        logger.info("broker %d becomes the active controller, controller epoch %d", self._broker_id, epoch.number)
        active = ActiveController(
            broker_id=self._broker_id,
            parts=ControllerEpochParts(
                context=ControllerContext(epoch.number, epoch.znode_version),
                store=ControllerStore(self._coordination, self._clock, epoch.znode_version),
                clock=self._clock,
                config=self._config,
            ),
            channels=self._channels,
            listener=self._listener,
            queue=partial(self._queue, epoch),
            watch=partial(self._watch, epoch),
            unclean_elections=self._unclean_elections,
        )
        self._epoch, self._active = epoch, active
        await active.fail_over()

    def _resign(self, why: str) -> None:
        active, self._active = self._active, None
        if active is not None:
            logger.info("broker %d resigns as active controller: %s", self._broker_id, why)
            active.resign(_not_controller())

    async def _resign_after_failure(self) -> None:
        """After an unforeseen error: another broker, or this one after a pause, starts from the coordination store."""
        self._contend_from = self._clock.monotonic() + PAUSE_AFTER_FAILURE_S
        was_active = self._active is not None
        self._resign("it failed")
        if was_active:
            await self._delete_controller_node()
        self._clock.call_later(PAUSE_AFTER_FAILURE_S, self._put, _Event("contend after a failure", self._contend))

    async def _delete_controller_node(self) -> None:
        try:
            await controller_election.delete_controller(self._coordination, self._clock)
        except Exception:
            logger.exception("/controller cannot be removed yet")

    # Watches and acts: they queue, and only for their controller epoch

    def _is_current(self, epoch: ControllerEpoch | None) -> bool:
        return epoch is None or (self._active is not None and self._epoch is epoch)

    def _watch(self, epoch: ControllerEpoch | None, run: Callable[[WatchEvent], Awaitable[None]]) -> Watcher:
        """A watcher that queues one event for any number of changes of a node, for this controller epoch only."""

        def on_change(event: WatchEvent) -> None:
            # The controller epochs do not share their events: one of an earlier epoch does not run.
            key = (0 if epoch is None else epoch.number, event.path)
            if key in self._queued_changes or not self._is_current(epoch):
                return

            async def run_change() -> None:
                self._queued_changes.discard(key)
                if self._is_current(epoch):
                    await run(event)

            self._queued_changes.add(key)
            self._put(_Event(f"{event.path} has changed", run_change))

        return on_change

    def _queue(self, epoch: ControllerEpoch | None, name: str, act: Act) -> None:
        """Runs the act as an event, if the controller epoch still lasts then."""

        async def run() -> None:
            if self._is_current(epoch):
                await act()

        self._put(_Event(name, run))


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER)


def _refuse(event: _Event, error: KafkaError) -> None:
    if event.refuse is not None:
        event.refuse(error)
