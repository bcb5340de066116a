"""The oracle model of a fleet, checked from above: what may be lost, and whether anything else was.

`architecture.md`: everything survives crashes of processes; without flush.messages=1 an acknowledged record is safe as
long as one replica that was in the ISR at its acknowledgement, and in every ISR since, has not lost power since it was
written there. Here that is kept per partition, exactly:

* A member of the ISR is *weak* from the moment its machine loses power: of what it had then it may hold no more than
  its platter did. It is strong again once it has replicated beyond all of it, or has joined the ISR again; but not by
  joining while it is without power, on the strength of what it had fetched before.
* When no member of the ISR is strong, at a loss of power or by a change of the ISR, what not every member has on its
  platter is promised no more (`ExcusedLoss`). An unclean election that somebody allowed takes what the new leader
  lacks.
* Everything else below a high watermark stays: every replica holds it as it was committed, whoever leads has all of
  it, and so has every member of the ISR that is not weak and may be elected.
* No leader commits anything that fewer replicas hold than min.insync.replicas, or all of them, if there are fewer.
  What it had committed before it was elected once more, in an epoch that it did not know of yet, may have lost copies
  since.

What a leader commits is compared in that very moment, with its followers of the ISR. `look` compares all replicas
every few milliseconds of virtual time, right before anything that may take a promise back, and right before a process
ends or a disk fails. So the order of events is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ottla_broker.replication.partition import Partition as Replica
from simulation.checker import Checker, Partition
from simulation.cluster import SimulatedBroker
from simulation.leaderships import Leadership, Leaderships
from simulation.loop import PROCESS
from simulation.replica_views import Truth, View, durable_agreement
from simulation.world import SimulatedProcess, World

INTERNAL_PREFIX = "__"
_UNHEARD_S = 15.0
"""For so long a leader, or a controller, may take a broker that has lost power for what it was before."""


@dataclass(slots=True)
class _Weak:
    """A member of the ISR that has lost power: of what was committed up to `end` it is sure to hold `cut` only."""

    cut: int
    end: int


@dataclass(frozen=True, slots=True)
class ExcusedLoss:
    """Guarantees that do not hold any more: offsets from `start` to the `end` of what was committed, at a time."""

    at_s: float
    start: int
    end: int


@dataclass
class _History:
    truth: Truth = field(default_factory=Truth)
    views: dict[int, View] = field(default_factory=dict)
    weak: dict[int, _Weak] = field(default_factory=dict)
    losses: list[ExcusedLoss] = field(default_factory=list)
    first_seen: tuple[int, int, int, int] = (-1, -1, -1, -1)
    """(leader, life, epoch, high watermark) when that leadership was first looked at."""
    highest: int = 0
    """The highest high watermark of whoever believed to lead: as far as acknowledgements may go."""
    is_broken: bool = False
    """A difference was told; the next ones only follow from it."""

    def view(self, broker: int) -> View:
        view = self.views.get(broker)
        if view is None:
            view = self.views[broker] = View()
        return view


class Oracle:
    """See the module. `is_flushed`: every broker has flush.messages=1, so a loss of power takes nothing."""

    def __init__(
        self,
        world: World,
        brokers: Sequence[SimulatedBroker],
        leaderships: Leaderships,
        checker: Checker,
        *,
        is_flushed: bool,
    ) -> None:
        self.world = world
        self.brokers = brokers
        self.leaderships = leaderships
        self.checker = checker
        self.is_flushed = is_flushed
        self.truncations_at: dict[int, float] = {}
        """Broker → when one of its replicas was last seen to have been cut."""
        self._power_lost_at: dict[int, float] = {}
        """Broker → when it, or a disk of it, last lost power."""
        self.on_loss: Callable[[Partition], None] = lambda partition: None
        self._histories: dict[Partition, _History] = {}
        self._seen: dict[int, dict[Partition, tuple[int, int, int, int, bool]]] = {
            broker.broker_id: {} for broker in brokers
        }
        """Broker → what its replicas were when they were last compared."""
        leaderships.observers.append(self._on_leadership)
        leaderships.before_change = self.look
        world.last_looks.append(self.look)

    @contextmanager
    def watching_commits(self) -> Iterator[None]:
        """Within it every commit is looked at in the moment it is made."""
        with _telling_commits(self._on_commit):
            yield

    # -- what the workload asks -------------------------------------------------------------------------------------

    def losses(self, partition: Partition) -> int:
        """How often promises of the partition (number -1: of any of the topic) were excused."""
        if partition[1] < 0:
            return sum(len(one.losses) for key, one in self._histories.items() if key[0] == partition[0])
        history = self._histories.get(partition)
        return len(history.losses) if history is not None else 0

    def is_promise(self, partition: Partition, offset: int, sent_at_s: float, leader_epoch: int | None = None) -> bool:
        """Was what was asked for at `sent_at_s`, and answered now, committed after any loss that could concern it?

        `leader_epoch`: of the batch that was read. A leader that has been replaced and does not know it yet goes on to
        serve what was lost elsewhere, when other records have been committed at its offsets.
        """
        history = self._histories.get(partition)
        if history is None or not history.losses:
            return True
        if any(loss.at_s >= sent_at_s and loss.start <= offset < loss.end for loss in history.losses):
            return False
        # What has come through a loss may be served again before it is on every member of the ISR again.
        self.look()
        if leader_epoch is None and self.leaderships.changed_at.get(partition, -1.0) >= sent_at_s:
            return False  # whoever was replaced meanwhile goes on behind what was lost elsewhere
        if offset < history.truth.end_offset:
            return leader_epoch is None or history.truth.leader_epoch_at(offset) <= leader_epoch
        state = self.leaderships.states.get(partition)
        if leader_epoch is not None and state is not None and leader_epoch < state.epoch:
            return False  # whoever leads has not committed it
        return offset >= max(loss.end for loss in history.losses)

    # -- looking ----------------------------------------------------------------------------------------------------

    def _on_commit(self, partition: Replica, before: int) -> None:
        """The high watermark of a replica that believes to lead has just moved on from `before`."""
        process = PROCESS.get()
        assert isinstance(process, SimulatedProcess)
        broker = next(one for one in self.brokers if one.machine is process.machine)
        key: Partition = partition.topic_partition
        state = self.leaderships.states.get(key)
        if state is None or partition.log.state.is_failed:
            return
        history = self._history(key)
        history.highest = max(history.highest, partition.log.state.high_watermark)
        if partition.leader_epoch == state.epoch and self._is_judged(key):
            self._notice_leadership(broker, partition, history, before)
            self._look_at_leader(broker, key, partition)

    def _is_judged(self, key: Partition) -> bool:
        return not key[0].startswith(INTERNAL_PREFIX) and not self.leaderships.is_deleting(key[0])

    def look(self) -> None:
        """Compares every replica of a live broker with what was committed, those that lead first."""
        followers = []
        states = self.leaderships.states
        for broker in self.brokers:
            number = broker.broker_id
            all_seen = self._seen[number]
            for partition in broker.partitions():
                key: Partition = partition.topic_partition
                state = states.get(key)
                log = partition.log
                if state is None or partition.leader_epoch < 0:
                    continue
                is_leader = partition.is_leader
                if log.state.is_failed:
                    if is_leader:
                        history = self._history(key)
                        history.highest = max(history.highest, log.state.high_watermark)
                    continue
                now = (
                    partition.leader_epoch,
                    state.epoch,
                    log.state.high_watermark,
                    log.state.log_end_offset,
                    is_leader,
                )
                before = all_seen.get(key)
                if before == now:
                    continue
                all_seen[key] = now
                if before is not None and now[3] < before[3]:
                    self.truncations_at[number] = self.world.loop.time()
                if is_leader:
                    self.leaderships.leads(key, partition.leader_epoch, number)
                    history = self._history(key)
                    history.highest = max(history.highest, log.state.high_watermark)
                if not self._is_judged(key):
                    continue
                if is_leader and partition.leader_epoch == state.epoch:
                    self._look_at_leader(broker, key, partition)
                else:
                    followers.append((broker, key, partition))
        for broker, key, partition in followers:
            self._look_at_follower(broker, key, partition)

    def _look_at_leader(self, broker: SimulatedBroker, key: Partition, partition: Replica) -> None:
        log = partition.log
        history = self._history(key)
        directory = broker.partition_directory(key, log.state.disk.path)
        if directory is None or history.is_broken:
            return
        view = history.view(broker.broker_id)
        view.home = log.state.disk.path
        committed = history.truth.end_offset
        may_extend = self._has_committed(broker, key, partition, history)
        # What it has beyond that, of before a loss, nobody has promised again.
        view.limit = 1 << 62 if may_extend or log.state.log_end_offset <= committed else max(view.limit, committed)
        difference = view.compare(
            directory, history.truth, max(log.state.high_watermark, committed), may_extend=may_extend
        )
        if not difference and view.end_offset(history.truth) < committed:
            difference = f"ends at {view.end_offset(history.truth)}, and {committed} was committed"
        if difference:
            self._problem(key, history, f"leader {broker.broker_id} of epoch {partition.leader_epoch} {difference}")
        elif history.truth.end_offset > committed:
            self._look_at_members(key, history, self.leaderships.states[key].in_sync)
            if history.truth.end_offset > history.first_seen[3]:
                self._count_copies(key, history)

    def _has_committed(self, broker: SimulatedBroker, key: Partition, partition: Replica, history: _History) -> bool:
        """Does the leader's high watermark prove that every member of the ISR has what is below?

        One that it has only read from its checkpoint does not: power may have been lost since.
        """
        high_watermark = partition.log.state.high_watermark
        self._notice_leadership(broker, partition, history, high_watermark)
        return high_watermark > history.first_seen[3] or len(self.leaderships.states[key].in_sync) == 1

    def _notice_leadership(
        self, broker: SimulatedBroker, partition: Replica, history: _History, high_watermark: int
    ) -> None:
        """`high_watermark`: the leader's, if this is the first that is seen of it."""
        leadership = (broker.broker_id, broker.life, partition.leader_epoch)
        if history.first_seen[:3] != leadership:
            history.first_seen = (*leadership, high_watermark)

    def _look_at_follower(self, broker: SimulatedBroker, key: Partition, partition: Replica) -> None:
        log = partition.log
        history = self._history(key)
        directory = broker.partition_directory(key, log.state.disk.path)
        if directory is None or history.is_broken:
            return
        view = history.view(broker.broker_id)
        view.home = log.state.disk.path
        up_to = min(log.state.high_watermark, history.truth.end_offset, view.limit)
        difference = view.compare(directory, history.truth, up_to)
        if not difference and view.end_offset(history.truth) < up_to:
            difference = f"ends at {view.end_offset(history.truth)}"
        if difference:
            self._problem(key, history, f"replica {broker.broker_id} has the high watermark {up_to} and {difference}")

    def _look_at_members(self, key: Partition, history: _History, members: Sequence[int]) -> None:
        """Members of the ISR that are not weak have all that is committed."""
        for number in members:
            if number in history.weak or history.is_broken or self._has_lost_power_lately(number):
                continue
            if self.brokers[number].is_filling(key):
                continue  # a fetch of its former copy has come late; it does not lead before it is full (decision 0023)
            view = history.view(number)
            up_to = min(history.truth.end_offset, view.limit)
            difference = self._compare(key, history, number, up_to)
            if difference:
                self._problem(
                    key, history, f"broker {number} is in the ISR, {up_to} was committed, and it {difference}"
                )

    def _count_copies(self, key: Partition, history: _History) -> None:
        """What has just been committed is on as many replicas as min.insync.replicas asks for."""
        wanted = self.leaderships.min_in_sync(key, self.brokers[0].properties)
        if len(self.leaderships.states[key].in_sync) >= wanted or history.is_broken:
            return
        if any(map(self._has_lost_power_lately, range(len(self.brokers)))):
            return
        end = history.truth.end_offset
        held_by = [number for number in range(len(self.brokers)) if not self._compare(key, history, number, end)]
        if len(held_by) < wanted:
            self._problem(key, history, f"{end} was committed, and only brokers {held_by} of at least {wanted} have it")

    def _compare(self, key: Partition, history: _History, number: int, up_to: int) -> str:
        """How the files of a broker's replica, running or not, differ from what was committed up to an offset."""
        view = history.view(number)
        _, directory = self.brokers[number].find_partition(key, view.home)
        if directory is None:
            return "has nothing" if up_to else ""
        difference = view.compare(directory, history.truth, up_to)
        end = view.end_offset(history.truth)
        return difference or (f"ends at {end}" if end < up_to else "")

    def _has_lost_power_lately(self, number: int) -> bool:
        return self.world.loop.time() < self._power_lost_at.get(number, -_UNHEARD_S) + _UNHEARD_S

    # -- what takes promises back -----------------------------------------------------------------------------------

    def power_is_lost(self, broker: SimulatedBroker, lose: Callable[[], None], only: str | None = None) -> None:
        """`lose` takes the power from the broker, or from its disk `only`."""
        self.look()
        number = broker.broker_id
        concerned = []
        for key in list(self.leaderships.states):
            history = self._history(key)
            path, directory = broker.find_partition(key, history.view(number).home)
            if only is not None and path != only:
                continue
            cut = 0
            if path and not key[0].startswith(INTERNAL_PREFIX) and broker.is_on_platter(key, path):
                cut = durable_agreement(directory, history.truth)
            concerned.append((key, history, cut))
        lose()
        self._power_lost_at[number] = self.world.loop.time()
        if self.is_flushed:
            return
        for key, history, cut in concerned:
            state = self.leaderships.states.get(key)
            history.view(number).limit = min(history.view(number).limit, cut)
            if state is None or number not in state.in_sync:
                continue
            before = None if self._is_strong(key, history, number) else history.weak.get(number)
            if before is not None:
                cut = min(cut, before.cut)
            history.weak[number] = _Weak(cut, history.truth.end_offset)
            self._reckon(key, history, state)

    def _on_leadership(self, key: Partition, before: Leadership | None, after: Leadership | None) -> None:
        if after is None:
            self._histories.pop(key, None)
            self._forget_seen(key)
            return
        history = self._history(key)
        known = before.in_sync if before is not None else ()
        if after.in_sync == known and (before is None or before.leader == after.leader):
            return
        if before is not None and after.leader >= 0 and after.leader not in known:
            self._unclean(key, history, after)
        joining = [broker for broker in after.in_sync if broker not in known]
        for broker in joining:
            self._joins(key, history, broker)
        for broker in [broker for broker in history.weak if broker not in after.in_sync]:
            del history.weak[broker]
        if joining and self._is_judged(key):
            self._look_at_members(key, history, joining)
        self._reckon(key, history, after)

    def _joins(self, key: Partition, history: _History, broker: int) -> None:
        """It is in the ISR from now on."""
        view = history.view(broker)
        if self.is_flushed or self.brokers[broker].machine.is_powered:
            history.weak.pop(broker, None)
            view.limit = history.truth.end_offset if self._may_have_what_was_lost(key, history, broker) else 1 << 62
        else:
            history.weak[broker] = _Weak(view.limit, history.truth.end_offset)

    def _may_have_what_was_lost(self, key: Partition, history: _History, broker: int) -> bool:
        """Whether the replica still takes for committed what is promised no more, and nothing else has been committed
        there since: the leader that asked for it may have lost power behind that."""
        committed = history.truth.end_offset
        if not any(loss.end > committed for loss in history.losses):
            return False
        held = [replica.log for replica in self.brokers[broker].partitions() if replica.topic_partition == key]
        return not held or any(log.state.high_watermark > committed for log in held)

    def _unclean(self, key: Partition, history: _History, after: Leadership) -> None:
        if key[0] not in self.leaderships.unclean_allowed:
            return  # told by `leaderships`
        # Where nothing is missing, too: who led with nobody else in sync goes on to acknowledge until it hears of it.
        self._lose(key, history, self._agreement(key, history, after.leader), has_rival=True)

    def _reckon(self, key: Partition, history: _History, state: Leadership) -> None:
        """Takes back what no strong member of the ISR vouches for any more."""
        if not history.weak or any(self._is_strong(key, history, broker) for broker in state.in_sync):
            return
        self._lose(key, history, min(history.weak[broker].cut for broker in state.in_sync))

    def _is_strong(self, key: Partition, history: _History, broker: int) -> bool:
        weak = history.weak.get(broker)
        if weak is None:
            return True
        if key[0].startswith(INTERNAL_PREFIX) or not self._has_gone_on(key, broker, weak.end):
            return False
        if self._agreement(key, history, broker) < max(weak.end, history.truth.end_offset):
            return False
        del history.weak[broker]
        return True

    def _has_gone_on(self, key: Partition, broker: int, end: int) -> bool:
        """Does the replica lead since it came back, or has it seen a high watermark beyond `end`, and so replicated all
        before? Otherwise its leader may hear yet of a fetch from before the loss, and take it for what it has."""
        state = self.leaderships.states.get(key)
        for replica in self.brokers[broker].partitions():
            if (replica.topic, replica.index) == key:
                leads = replica.is_leader and state is not None and replica.leader_epoch == state.epoch
                return leads or replica.log.state.high_watermark > end
        return False

    def _agreement(self, key: Partition, history: _History, broker: int) -> int:
        """The offset up to which the files of a replica hold what was committed."""
        _, directory = self.brokers[broker].find_partition(key, history.view(broker).home)
        if directory is None:
            return 0
        view = View()
        view.compare(directory, history.truth, 1 << 62)
        return view.end_offset(history.truth)

    def _lose(self, key: Partition, history: _History, start: int, *, has_rival: bool = False) -> None:
        committed = max(history.truth.end_offset, history.highest)
        # Whoever was leader until now may hear yet that a follower had what it has lost, and acknowledge it.
        end = max(committed, self._led_end(key))
        history.highest = start
        if start < end or has_rival:
            self.world.trace.event("loss", *key, start, end)
            history.losses.append(ExcusedLoss(self.world.loop.time(), start, end))
        if start >= committed and not key[0].startswith(INTERNAL_PREFIX):
            return
        history.truth.cut(start)
        history.weak.clear()  # what is left every member holds
        for broker in self.brokers:
            view = history.view(broker.broker_id)
            view.limit = min(view.limit, start)
            view.restart()
        self._forget_seen(key)
        self.checker.power_lost(key, start)
        self.on_loss(key)

    def _led_end(self, key: Partition) -> int:
        """The highest log end offset among the replicas that believe to lead."""
        return max(
            (
                replica.log.state.log_end_offset
                for broker in self.brokers
                for replica in broker.partitions()
                if replica.is_leader and replica.topic_partition == key
            ),
            default=0,
        )

    # -- small things -----------------------------------------------------------------------------------------------

    def _forget_seen(self, key: Partition) -> None:
        for seen in self._seen.values():
            seen.pop(key, None)

    def _history(self, key: Partition) -> _History:
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = _History()
        return history

    def _problem(self, key: Partition, history: _History, text: str) -> None:
        history.is_broken = True
        self.world.problem(f"{key[0]}-{key[1]}: {text}")


@contextmanager
def _telling_commits(tell: Callable[[Replica, int], None]) -> Iterator[None]:
    """`tell(replica, before)` is called whenever a leader's high watermark has moved on from `before`, at once."""
    advance = Replica.advance_high_watermark

    def advance_and_tell(self: Replica) -> None:
        before = self.log.state.high_watermark
        advance(self)
        if self.log.state.high_watermark > before:
            tell(self, before)

    Replica.advance_high_watermark = advance_and_tell  # type: ignore[method-assign]
    try:
        yield
    finally:
        Replica.advance_high_watermark = advance  # type: ignore[method-assign]
