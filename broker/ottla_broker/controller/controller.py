"""The controller of one broker: in office or waiting, one event at a time.

On the calling side of the Coordination and Clock ports, and of `channels_port`. Lives here: standing for election,
resigning, the queue of events, and the calls of the handlers. Not here: what the one in office does (`active`,
`administration`).

The discipline. Everything happens in one task that takes events from a queue: watches, answers of brokers, requests
of handlers. An event awaits its writes, and the next one starts when it is done. So the context is never seen half
changed, and no lock exists. Watches and answers only queue; callers get futures.

The end of a term. Three things end it: the fence (a write finds a later controller epoch), the end of the session,
and an error that nobody foresaw. The first two take effect at once. After the third the context may be half
changed: the office is given up, and whoever gets it reads everything anew. Events of an earlier term are dropped,
requests are answered with NOT_CONTROLLER.
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
from ottla_broker.controller import controller_election as election
from ottla_broker.controller import controller_metrics as gauges
from ottla_broker.controller.active import ActiveController, Answer, Watches
from ottla_broker.controller.acts import broker_shutdown as controlled_shutdown
from ottla_broker.controller.acts import requested_elections as leader_elections
from ottla_broker.controller.acts import topic_administration as administration
from ottla_broker.controller.acts.isr_writes import IsrAnswer
from ottla_broker.controller.acts.leader_rebalance import PreferredBalance
from ottla_broker.controller.acts.producer_id_allocation import allocate_producer_ids
from ottla_broker.controller.acts.requested_elections import ElectionResult, ElectionType
from ottla_broker.controller.acts.topic_administration import TopicIsrChanges, TopicResult
from ottla_broker.controller.channels_port import ControllerChannels
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.controller_election import NO_CONTROLLER, Office
from ottla_broker.controller.decisions.assignment import RackMode
from ottla_broker.controller.decisions.topic_plans import NewTopic, TopicGrowth
from ottla_broker.controller.store import ControllerFenced, ControllerStore
from ottla_broker.controller.values import TOPICS_AT_ONCE, ReplicaAssignment
from ottla_broker.coordination.znodes import ProducerIdBlock
from ottla_broker.metrics import Metrics
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.coordination import Coordination, SessionEvent, SessionExpired, Watcher, WatchEvent, WatchKind
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")

T = TypeVar("T")
R = TypeVar("R", TopicResult, ElectionResult)

PAUSE_AFTER_FAILURE_S: Final = 1.0
"""After an unforeseen error this broker lets the others stand first."""

LEAVE_WITHIN_S: Final = 2.0
"""A broker that stops does not wait longer for a store that does not answer."""


@dataclass(slots=True)
class _Event:
    name: str
    run: Callable[[], Awaitable[None]]
    refuse: Callable[[KafkaError], None] | None = None
    """For a request: tells the caller that it was not carried out."""


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
        """`listener` is the name of the inter-broker listener; without `metrics` nothing is counted."""
        self._broker_id = broker_id
        self._config = config
        self._clock = clock
        self._coordination = coordination
        self._channels = channels
        self._listener = listener
        self._events: deque[_Event] = deque()
        self._queued_changes: set[tuple[int, str]] = set()
        """Changes that are queued and not yet looked at: one look is enough for all of them."""
        self._wake_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._active: ActiveController | None = None
        self._office: Office | None = None
        self._holder = NO_CONTROLLER
        self._stand_from = 0.0
        self._is_retiring = False
        self._has_stopped = False
        metrics = metrics or Metrics()
        self._unclean_elections = gauges.unclean_elections(metrics)
        gauges.register(metrics, lambda: None if self._active is None else self._active.context)

    # Life

    async def start(self) -> None:
        """Stands for election for the first time and goes on in the background. The broker must be registered.

        Returns when it is known who is controller (and this broker, if it is, has taken office).
        """
        self._coordination.add_session_listener(self._on_session_event)
        first: asyncio.Future[None] = self._clock.create_future()

        async def stand_first() -> None:
            try:
                await self._stand()
            finally:
                if not first.done():
                    first.set_result(None)

        self._put(_Event("first election", stand_first))
        self._task = self._clock.spawn(self._run(), name=f"controller of broker {self._broker_id}")
        await first

    def retire(self) -> None:
        """The broker is about to stop: it stands no more. One that is in office goes on until `stop`."""
        self._is_retiring = True

    async def stop(self) -> None:
        """Leaves office, so that another broker can take it while this one still flushes, and ends the task."""
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
                await asyncio.wait_for(self._leave_node(), LEAVE_WITHIN_S)
            except TimeoutError:
                # The store is out of reach: /controller goes with the session.
                return

    def broker_registered(self) -> None:
        """The broker has registered again under a new session: it may stand for election."""
        self._put(_Event("registered", self._stand))

    def _on_session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            # At once: /controller is gone with the session, and another broker may be in office already.
            self._resign("the session has expired")
            self._holder = NO_CONTROLLER

    # What others may ask

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @property
    def controller_id(self) -> int:
        """The broker that holds /controller as far as this one has seen, -1 for nobody."""
        return self._broker_id if self._active is not None else self._holder

    @property
    def epoch(self) -> int:
        """The controller epoch of this broker's term, -1 while it is not in office."""
        return -1 if self._office is None or self._active is None else self._office.epoch

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic of this id (16 bytes), None when there is none or this broker is not the controller."""
        return None if self._active is None else self._active.context.topic_name(topic_id)

    def offline_partitions(self) -> int:
        """Partitions without a usable leader, 0 while not in office (OfflinePartitionsCount)."""
        return 0 if self._active is None else gauges.offline_partitions(self._active.context)

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        timeout_ms: int,
        validate_only: bool = False,
        mode: RackMode = RackMode.ENFORCED,
    ) -> list[TopicResult]:
        """Creates topics and waits until this broker knows their leaders.

        One result per topic in their order; REQUEST_TIMED_OUT for one that is created but not yet known in time.
        Raises KafkaError(NOT_CONTROLLER).
        """

        def act(some: Sequence[NewTopic], active: ActiveController) -> Awaitable[list[TopicResult]]:
            return administration.create_topics(
                active, some, config=self._config, clock=self._clock, mode=mode, validate_only=validate_only
            )

        results = await self._in_parts("create topics", topics, act, lambda topic: topic.name)
        return await self._wait_for(results, timeout_ms)

    async def create_partitions(
        self, growths: Sequence[TopicGrowth], *, timeout_ms: int, validate_only: bool = False
    ) -> list[TopicResult]:
        """Adds partitions to topics; results, waiting and errors as `create_topics`."""

        def act(active: ActiveController) -> Awaitable[list[TopicResult]]:
            return administration.create_partitions(active, growths, clock=self._clock, validate_only=validate_only)

        return await self._wait_for(await self._request("create partitions", act), timeout_ms)

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int, topic_ids: Mapping[str, bytes] | None = None
    ) -> list[TopicResult]:
        """Starts the deletion of topics and waits until this broker has forgotten them.

        Results and errors as `create_topics`. Files and znodes go later, those on a dead broker when it returns.
        `delete.topic.enable` is the caller's to check. `topic_ids`: by name, of those that go only as long as they have
        this id (UNKNOWN_TOPIC_ID).
        """

        def act(some: Sequence[str], active: ActiveController) -> Awaitable[list[TopicResult]]:
            return administration.delete_topics(active, some, clock=self._clock, topic_ids=topic_ids or {})

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
        done; then what is left has the error."""
        results: list[TopicResult] = []
        for start in range(0, len(wanted), TOPICS_AT_ONCE):
            some = wanted[start : start + TOPICS_AT_ONCE]
            try:
                results += await self._request(event, partial(act, some))
            except KafkaError as error:
                if all(result.done is None for result in results):
                    raise
                # For a single NOT_CONTROLLER a client sends the whole request again, and finds its own work in the way.
                has_moved = error.code is ErrorCode.NOT_CONTROLLER
                code = ErrorCode.REQUEST_TIMED_OUT if has_moved else error.code
                message = "The controller moved before it came to this topic." if has_moved else error.message
                return results + [TopicResult(name_of(one), code, message) for one in wanted[start:]]
        return results

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begins, replaces or (None) cancels reassignments (KIP-455); an error for each that is refused.

        Raises KafkaError(NOT_CONTROLLER).
        """
        return await self._request("alter reassignments", lambda active: active.reassignments.alter(wanted))

    async def list_reassignments(
        self, asked: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """What is being reassigned, of all partitions or of those asked for. Raises KafkaError(NOT_CONTROLLER)."""

        async def look(active: ActiveController) -> dict[TopicPartition, ReplicaAssignment]:
            return active.reassignments.ongoing(asked)

        return await self._request("list reassignments", look)

    async def alter_isrs(
        self, broker: int, broker_epoch: int, topics: Sequence[TopicIsrChanges], version: int
    ) -> list[dict[int, IsrAnswer]]:
        """AlterPartition (KIP-497) of the leader `broker`: answers per topic and partition.

        Raises KafkaError NOT_CONTROLLER or STALE_BROKER_EPOCH.
        """

        def act(active: ActiveController) -> Awaitable[list[dict[int, IsrAnswer]]]:
            return administration.alter_isrs(active, broker, broker_epoch, topics, version)

        return await self._request("alter ISRs", act)

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdBlock:
        """A block of producer ids for this broker; NOT_CONTROLLER or what `producer_id_allocation` says."""
        return await self._request(
            "allocate producer ids", lambda active: allocate_producer_ids(active, broker, broker_epoch)
        )

    async def controlled_shutdown(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """Moves leadership away from a broker that shuts down; the partitions that it had better ask about again.

        When it returns, the other brokers and then this one have been told, or did not answer in time. `broker_epoch`
        -1 is not checked. Raises KafkaError NOT_CONTROLLER, BROKER_NOT_AVAILABLE or STALE_BROKER_EPOCH (also when the
        broker has gone meanwhile).
        """
        handover = await self._request(
            "controlled shutdown",
            lambda active: controlled_shutdown.move_away(active, self._clock, broker, broker_epoch),
        )
        await asyncio.wait([handover.told], timeout=controlled_shutdown.TELL_WITHIN_S)
        left = await self._request(
            "end of a controlled shutdown",
            lambda active: controlled_shutdown.tell_leaving(active, self._clock, handover),
        )
        await asyncio.wait([left.told], timeout=controlled_shutdown.TELL_WITHIN_S)
        return left.remaining

    async def elect_leaders(
        self, partitions: Collection[TopicPartition] | None, election_type: ElectionType, *, timeout_ms: int
    ) -> list[ElectionResult]:
        """ElectLeaders (KIP-460) of these partitions or of all, and waits until this broker knows the new leaders.

        One result per partition, sorted; of all, those that need no election are left out. REQUEST_TIMED_OUT for one
        that is elected but not yet known in time. Raises KafkaError(NOT_CONTROLLER).
        """

        def act(active: ActiveController) -> Awaitable[list[ElectionResult]]:
            return leader_elections.elect_leaders(active, partitions, election_type, clock=self._clock)

        return await self._wait_for(await self._request("elect leaders", act), timeout_ms)

    def unclean_election_allowed(self, topic: str | None) -> None:
        """unclean.leader.election.enable has become true, for one topic or for all; nothing to do out of office."""
        if self._active is not None:

            async def act(active: ActiveController) -> None:
                await leader_elections.unclean_allowed(active, topic)

            self._queue(self._office, "unclean elections allowed", act)

    async def _wait_for(self, results: list[R], timeout_ms: int) -> list[R]:
        waiting = [result.done for result in results if result.done is not None]
        if waiting and timeout_ms > 0:
            await asyncio.wait(waiting, timeout=timeout_ms / 1000)
        for result in results:
            if result.done is None:
                continue
            if not result.done.done():
                result.done.cancel()
            if result.done.cancelled() or result.done.exception() is not None or timeout_ms <= 0:
                # It is done all the same, and goes on should this broker have lost its office meanwhile.
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
        """Queues a request and waits for its result. KafkaError(NOT_CONTROLLER) out of office."""
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
                    self._put(_Event("stand again", self._stand))
            except Exception as error:
                logger.exception("controller event '%s' failed", event.name)
                _refuse(event, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller failed: {error!r}"))
                await self._give_up_office()
            except asyncio.CancelledError:
                _refuse(event, _not_controller())
                raise

    def _refuse_all(self) -> None:
        while self._events:
            _refuse(self._events.popleft(), _not_controller())

    # Elections

    async def _stand(self) -> None:
        """Sees who is controller; stands when nobody is. At start, when /controller changes, after a new session."""
        while True:
            holder = await election.find_holder(self._coordination, self._clock, self._watch(None, self._stand))
            if holder is not None:
                self._holder = holder.broker_id
                if not holder.is_this_session:
                    self._resign(f"broker {holder.broker_id} is controller")
                    return
                if self._active is not None:
                    return
                # A term of ours that has ended and left its node: nobody else can be controller until it is gone.
                self._stand_from = max(self._stand_from, self._clock.monotonic() + PAUSE_AFTER_FAILURE_S)
                await election.give_up_office(self._coordination, self._clock)
                continue
            self._holder = NO_CONTROLLER
            self._resign("/controller is gone")
            if self._is_retiring:
                return
            registration = await election.own_registration(self._coordination, self._clock, self._broker_id)
            if registration is None:
                # A controller that is no live broker would elect nobody on itself, and name itself to clients that find
                # it nowhere. As the store says: by the time a registration is reported its session may have ended.
                return
            wait_s = self._stand_from - self._clock.monotonic()
            if wait_s > 0:
                self._clock.call_later(wait_s, self._put, _Event("stand after a pause", self._stand))
                return
            office = await election.stand(self._coordination, self._clock, self._broker_id, registration)
            if office is not None:
                await self._take_office(office)

    async def _take_office(self, office: Office) -> None:
        logger.info("broker %d is controller, epoch %d", self._broker_id, office.epoch)
        context = ControllerContext(office.epoch, office.epoch_version)
        active = ActiveController(
            broker_id=self._broker_id,
            context=context,
            store=ControllerStore(self._coordination, self._clock, office.epoch_version),
            channels=self._channels,
            clock=self._clock,
            config=self._config,
            listener=self._listener,
            watches=Watches(
                brokers=self._watch(office, lambda: self._acting().brokers_changed()),
                registrations=self._watch_registrations(office),
                topics=self._watch(office, lambda: self._acting().topics_changed()),
                topic=self._watch_topics(office),
                deletions=self._watch(office, lambda: self._acting().deletions.markers_changed()),
                isr_notifications=self._watch(office, lambda: self._acting().isr_notified()),
                reassignments=self._watch(office, lambda: self._acting().reassignments.requests_changed()),
                preferred_elections=self._watch(office, lambda: self._acting().preferred_elections_requested()),
                directories=self._watch(office, lambda: self._acting().directories_changed()),
            ),
            on_answer=lambda answer: self._answered(office, answer),
            queue=lambda name, act: self._queue(office, name, act),
            unclean_elections=self._unclean_elections,
        )
        self._office, self._active = office, active
        await active.take_office()
        PreferredBalance(self._clock, self._config, lambda name, act: self._queue(office, name, act)).start()

    def _resign(self, why: str) -> None:
        active, self._active = self._active, None
        if active is not None:
            logger.info("broker %d is no longer controller: %s", self._broker_id, why)
            active.leave_office(_not_controller())

    async def _give_up_office(self) -> None:
        """After an unforeseen error: another broker, or this one after a pause, starts from what the store says."""
        self._stand_from = self._clock.monotonic() + PAUSE_AFTER_FAILURE_S
        was_active = self._active is not None
        self._resign("it failed")
        if was_active:
            await self._leave_node()
        self._clock.call_later(PAUSE_AFTER_FAILURE_S, self._put, _Event("stand after a failure", self._stand))

    async def _leave_node(self) -> None:
        try:
            await election.give_up_office(self._coordination, self._clock)
        except Exception:
            logger.exception("/controller cannot be removed yet")

    # Watches and answers: they queue, and only for the term they belong to

    def _acting(self) -> ActiveController:
        if self._active is None:
            raise ControllerFenced("out of office")
        return self._active

    def _is_in(self, office: Office | None) -> bool:
        return office is None or (self._active is not None and self._office is office)

    def _queue_change(self, office: Office | None, event: WatchEvent, run: Callable[[], Awaitable[None]]) -> None:
        # An earlier term's look would find itself out of office: the terms do not share their looks.
        key = (0 if office is None else office.epoch, event.path)
        if key in self._queued_changes or not self._is_in(office):
            return

        async def look() -> None:
            self._queued_changes.discard(key)
            if self._is_in(office):
                await run()

        self._queued_changes.add(key)
        self._put(_Event(f"{event.path} has changed", look))

    def _watch(self, office: Office | None, run: Callable[[], Awaitable[None]]) -> Watcher:
        return lambda event: self._queue_change(office, event, run)

    def _watch_registrations(self, office: Office) -> Watcher:
        def on_change(event: WatchEvent) -> None:
            if event.kind is WatchKind.CHANGED:  # of one that is gone the watch of all has told
                self._queue_change(office, event, lambda: self._acting().brokers_changed())

        return on_change

    def _watch_topics(self, office: Office) -> Watcher:
        def on_change(event: WatchEvent) -> None:
            name = event.path.rpartition("/")[2]
            self._queue_change(office, event, lambda: self._acting().topic_changed(name))

        return on_change

    def _answered(self, office: Office, answer: Answer) -> None:
        self._queue(office, f"answer of broker {answer.broker}", lambda active: active.answered(answer))

    def _queue(self, office: Office | None, name: str, act: Callable[[ActiveController], Awaitable[None]]) -> None:
        """Has the act run as an event, if the term still lasts then."""

        async def run() -> None:
            if self._is_in(office):
                await act(self._acting())

        self._put(_Event(name, run))


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER)


def _refuse(event: _Event, error: KafkaError) -> None:
    if event.refuse is not None:
        event.refuse(error)
