"""The oracle of a fleet: what it compares, and what it takes back when power is lost."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.coordination import znodes
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.batches import build_batch
from simulation.checker import Checker, Violation
from simulation.client import ClusterState, KnownPartition, Unavailable
from simulation.filesystem import DirectoryNode, FileNode
from simulation.groups import Committer
from simulation.leaderships import Leadership, Leaderships
from simulation.oracle import ExcusedLoss, Oracle
from simulation.replica_views import Truth, View, durable_agreement
from simulation.workload import Consumer
from simulation.world import World


def log_of(*batches: bytes) -> DirectoryNode:
    directory = DirectoryNode()
    directory.entries["00000000000000000000.log"] = FileNode()
    file = directory.entries["00000000000000000000.log"]
    assert isinstance(file, FileNode)
    for batch in batches:
        file.append(batch)
    directory.sync()
    return directory


def batch(offset: int, *names: str, epoch: int = 0) -> bytes:
    return build_batch(names, timestamp_ms=0, base_offset=offset, leader_epoch=epoch)


def first_file(directory: DirectoryNode) -> FileNode:
    file = directory.entries["00000000000000000000.log"]
    assert isinstance(file, FileNode)
    return file


def test_a_replica_with_another_batch_below_the_committed_end_differs() -> None:
    truth, leader, follower = Truth(), View(), View()
    assert leader.compare(log_of(batch(0, "a"), batch(1, "b")), truth, 2, may_extend=True) == ""
    assert truth.end_offset == 2
    assert "offsets 1..1 of epoch 0" in follower.compare(log_of(batch(0, "a"), batch(1, "x")), truth, 2)


def test_a_replica_that_has_less_agrees_as_far_as_it_goes() -> None:
    truth, leader, follower = Truth(), View(), View()
    leader.compare(log_of(batch(0, "a", "b"), batch(2, "c")), truth, 3, may_extend=True)
    assert follower.compare(log_of(batch(0, "a", "b")), truth, 3) == ""
    assert follower.end_offset(truth) == 2


def test_what_was_cut_and_written_again_is_compared_again() -> None:
    truth, view = Truth(), View()
    directory = log_of(batch(0, "a"), batch(1, "b"))
    view.compare(directory, truth, 2, may_extend=True)
    file = first_file(directory)
    file.truncate(len(batch(0, "a")))
    file.append(batch(1, "z"))
    assert "was committed" in view.compare(directory, truth, 2)


def test_the_platter_vouches_for_no_more_than_it_holds() -> None:
    truth, view = Truth(), View()
    directory = log_of(batch(0, "a"))
    first_file(directory).sync()
    first_file(directory).append(batch(1, "b"))
    view.compare(directory, truth, 2, may_extend=True)
    assert (truth.end_offset, durable_agreement(directory, truth)) == (2, 1)


def test_a_truth_is_cut_at_whole_batches() -> None:
    truth = Truth()
    View().compare(log_of(batch(0, "a", "b"), batch(2, "c")), truth, 3, may_extend=True)
    truth.cut(1)
    assert truth.end_offset == 0


def test_what_a_replaced_leader_acknowledges_after_its_only_other_copy_was_lost_is_no_promise() -> None:
    """The follower had fetched it, and said so with its next fetch, which came late (once seed 182)."""
    key = ("t", 0)
    log = SimpleNamespace(state=SimpleNamespace(log_end_offset=1, high_watermark=0))
    replica = SimpleNamespace(topic="t", index=0, topic_partition=key, is_leader=True, leader_epoch=-1, log=log)
    brokers: list[Any] = [
        SimpleNamespace(
            broker_id=number,
            partitions=lambda held=held: held,
            find_partition=lambda *_: ("", None),
            is_filling=lambda _: False,
        )
        for number, held in enumerate(([replica], []))
    ]
    before = Leadership(leader=0, epoch=0, in_sync=(0, 1), since_s=0.0)
    after = Leadership(leader=1, epoch=1, in_sync=(1,), since_s=0.0)
    leaderships: Any = SimpleNamespace(states={key: before}, observers=[], before_change=None, changed_at={})
    oracle = Oracle(World(1), brokers, leaderships, Checker(), is_flushed=False)
    oracle.power_is_lost(brokers[1], lambda: None)
    assert oracle.is_promise(key, 0, 0.0), "the leader has it"
    leaderships.states[key] = after
    leaderships.observers[0](key, before, after)
    assert not oracle.is_promise(key, 0, 0.0)
    assert oracle.is_promise(key, 1, 0.0)


def test_an_unclean_election_takes_promises_back_also_where_nothing_was_lost() -> None:
    """Who led with nobody else in sync had not heard of it, and took more from its producers (once seed 48776)."""
    key = ("t", 0)
    brokers: list[Any] = [
        SimpleNamespace(
            broker_id=number, partitions=list, find_partition=lambda *_: ("", None), is_filling=lambda _: False
        )
        for number in range(2)
    ]
    before = Leadership(leader=-1, epoch=1, in_sync=(0,), since_s=0.0)
    after = Leadership(leader=1, epoch=2, in_sync=(1,), since_s=0.0)
    leaderships: Any = SimpleNamespace(
        states={key: after},
        observers=[],
        before_change=None,
        unclean_allowed={"t": None},
        is_deleting=lambda _: False,
    )
    oracle = Oracle(World(1), brokers, leaderships, Checker(), is_flushed=True)
    leaderships.observers[0](key, before, after)
    assert oracle.losses(key) == 1


def test_what_a_replaced_leader_serves_at_offsets_that_others_have_taken_is_no_promise() -> None:
    """It was committed, its only other copy was lost, and its place is another record's (once seed 12921)."""
    key = ("t", 0)
    leaderships: Any = SimpleNamespace(states={}, observers=[], before_change=None, changed_at={})
    oracle = Oracle(World(1), [], leaderships, Checker(), is_flushed=False)
    history = oracle._history(key)
    View().compare(log_of(batch(0, "a"), batch(1, "c", epoch=3)), history.truth, 2, may_extend=True)
    history.losses.append(ExcusedLoss(0.0, 1, 2))
    assert [oracle.is_promise(key, 1, 1.0, epoch) for epoch in (0, 3)] == [False, True]
    assert oracle.is_promise(key, 0, 1.0, 0)


def test_what_a_replaced_leader_commits_behind_what_was_lost_is_no_promise() -> None:
    """An unclean election has taken it back, and the former leader goes on by itself (once seed 25096)."""
    key = ("t", 0)
    state = Leadership(leader=1, epoch=3, in_sync=(1,), since_s=1.0)
    leaderships: Any = SimpleNamespace(states={key: state}, observers=[], before_change=None, changed_at={key: 1.0})
    oracle = Oracle(World(1), [], leaderships, Checker(), is_flushed=False)
    history = oracle._history(key)
    View().compare(log_of(batch(0, "a")), history.truth, 1, may_extend=True)
    history.losses.append(ExcusedLoss(1.0, 1, 2))
    assert [oracle.is_promise(key, 2, sent_at_s) for sent_at_s in (0.9, 1.1)] == [False, True], "acknowledged"
    assert [oracle.is_promise(key, 2, 1.1, epoch) for epoch in (2, 3)] == [False, True], "delivered"


@pytest.mark.parametrize("is_powered", [False, True])
def test_who_joins_the_isr_without_power_vouches_for_what_its_platter_holds(is_powered: bool) -> None:
    """The leader had seen its fetch, and the controller hears of that later than of nothing (once seed 2293)."""
    key = ("t", 0)
    brokers: list[Any] = [
        SimpleNamespace(
            broker_id=number,
            partitions=list,
            find_partition=lambda *_: ("", None),
            is_filling=lambda _: False,
            machine=SimpleNamespace(is_powered=is_powered or number == 0),
        )
        for number in range(2)
    ]
    alone = Leadership(leader=0, epoch=0, in_sync=(0,), since_s=0.0)
    both = Leadership(leader=0, epoch=0, in_sync=(0, 1), since_s=0.0)
    leaderships: Any = SimpleNamespace(
        states={key: alone}, observers=[], before_change=None, changed_at={}, is_deleting=lambda topic: False
    )
    oracle = Oracle(World(1), brokers, leaderships, Checker(), is_flushed=False)
    View().compare(log_of(batch(0, "a")), oracle._history(key).truth, 1, may_extend=True)
    oracle.power_is_lost(brokers[1], lambda: None)
    leaderships.states[key] = both
    leaderships.observers[0](key, alone, both)
    assert oracle.is_promise(key, 0, 0.0), "the leader has it"
    oracle.power_is_lost(brokers[0], lambda: None)
    assert oracle.is_promise(key, 0, 0.0) == is_powered


def a_replica(*batches: bytes, high_watermark: int, leader_epoch: int, is_leader: bool = False) -> Any:
    """(replica, files) of t-0 on the directory "d"."""
    directory = log_of(*batches)
    end = max(int.from_bytes(one[:8], "big") + int.from_bytes(one[23:27], "big") + 1 for one in batches)
    state = SimpleNamespace(
        high_watermark=high_watermark, log_end_offset=end, is_failed=False, disk=SimpleNamespace(path="d")
    )
    log = SimpleNamespace(state=state)
    replica = SimpleNamespace(
        topic="t", index=0, topic_partition=("t", 0), is_leader=is_leader, leader_epoch=leader_epoch, log=log
    )
    return replica, directory


def a_broker(number: int, replica: Any, directory: DirectoryNode) -> Any:
    return SimpleNamespace(
        broker_id=number,
        properties={},
        life=1,
        partitions=lambda: [replica],
        partition_directory=lambda *_: directory,
        find_partition=lambda *_: ("d", directory),
        is_filling=lambda _: False,
        is_on_platter=lambda *_: True,
        machine=SimpleNamespace(is_powered=True),
    )


def the_leaderships(min_in_sync: int = 1, **state: Any) -> Any:
    return SimpleNamespace(
        states={("t", 0): Leadership(since_s=0.0, **state)},
        observers=[],
        before_change=None,
        leads=lambda *_: None,
        is_deleting=lambda topic: False,
        min_in_sync=lambda *_: min_in_sync,
    )


def watched_pair(*follower_has: bytes, members: tuple[int, ...], min_in_sync: int = 1) -> tuple[World, Oracle]:
    """Broker 0 leads t-0, commits "a" and "b", and 1 follows it; nobody has looked yet."""
    leader, files = a_replica(batch(0, "a"), batch(1, "b"), high_watermark=1, leader_epoch=1, is_leader=True)
    follower, copy = a_replica(*follower_has, high_watermark=0, leader_epoch=1)
    leaderships = the_leaderships(leader=0, epoch=1, in_sync=members, min_in_sync=min_in_sync)
    world = World(1)
    oracle = Oracle(
        world, [a_broker(0, leader, files), a_broker(1, follower, copy)], leaderships, Checker(), is_flushed=False
    )
    oracle.look()
    leader.log.state.high_watermark = 2
    return world, oracle


@pytest.mark.parametrize(("has", "found"), [([batch(0, "a"), batch(1, "b")], 0), ([batch(0, "a")], 1)])
def test_a_member_of_the_isr_has_all_that_is_committed(has: list[bytes], found: int) -> None:
    """Whether or not it is ever elected."""
    world, oracle = watched_pair(*has, members=(0, 1))
    oracle.look()
    assert len(world.problems) == found
    assert all("broker 1 is in the ISR, 2 was committed, and it ends at 1" in text for text in world.problems)


def test_a_member_that_is_being_filled_may_lack_what_is_committed() -> None:
    """A fetch of its former copy has put it there, and it refuses to lead."""
    world, oracle = watched_pair(batch(0, "a"), members=(0, 1))
    oracle.brokers[1].is_filling = lambda _: True
    oracle.look()
    assert world.problems == []


def test_who_joins_the_isr_has_all_that_is_committed() -> None:
    key = ("t", 0)
    world, oracle = watched_pair(batch(0, "a"), members=(0,))
    oracle.look()
    assert world.problems == []
    before = oracle.leaderships.states[key]
    oracle.leaderships.states[key] = after = Leadership(leader=0, epoch=1, in_sync=(0, 1), since_s=0.0)
    oracle._on_leadership(key, before, after)
    assert len(world.problems) == 1


@pytest.mark.parametrize(("min_in_sync", "found"), [(1, 0), (2, 1)])
def test_nothing_is_committed_on_fewer_replicas_than_asked_for(min_in_sync: int, found: int) -> None:
    world, oracle = watched_pair(batch(0, "a"), members=(0,), min_in_sync=min_in_sync)
    oracle.look()
    assert len(world.problems) == found
    assert all("only brokers [0] of at least 2 have it" in text for text in world.problems)


def test_what_was_committed_before_an_election_may_have_lost_copies_since() -> None:
    """The leader committed it with a follower whose disk has failed, in an epoch that was over (once seed 17296)."""
    world, oracle = watched_pair(batch(0, "a"), members=(0,), min_in_sync=2)
    (leader,) = oracle.brokers[0].partitions()
    leader.leader_epoch = 2
    oracle.leaderships.states["t", 0] = Leadership(leader=0, epoch=2, in_sync=(0,), since_s=1.0)
    oracle.look()
    assert world.problems == []


def test_what_a_leader_commits_with_one_that_the_controller_has_just_taken_out_is_on_both() -> None:
    """It has not heard yet that its ISR is smaller."""
    world, oracle = watched_pair(batch(0, "a"), batch(1, "b"), members=(0,), min_in_sync=2)
    oracle.look()
    assert world.problems == []


class Coordination:
    """The store of a run, as far as `Leaderships` reads it."""

    def __init__(self) -> None:
        self.observers: list[Any] = []
        self._nodes: dict[str, bytes] = {}

    def data(self, path: str) -> bytes | None:
        return self._nodes.get(path)

    def set(self, path: str, data: bytes) -> None:
        self._nodes[path] = data
        for observer in self.observers:
            observer(path)


def assignment(replicas: tuple[int, ...], adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()) -> bytes:
    return znodes.TopicAssignment({0: replicas}, None, {0: adding}, {0: removing}).encode()


@pytest.mark.parametrize(
    ("in_sync", "ends_as", "found"),
    [
        ((2, 3), (3, 2), []),
        ((2,), (3, 2), ["[3] are not in the ISR"]),
        ((2,), (1, 2), []),  # it was cancelled
        ((1, 2), (3, 2), ["[1] are in the ISR and hold no replica", "[3] are not in the ISR"]),
    ],
)
def test_a_reassignment_ends_with_all_of_its_target_in_sync(
    in_sync: tuple[int, ...], ends_as: tuple[int, ...], found: list[str]
) -> None:
    world, store = World(1), Coordination()
    leaderships = Leaderships(world, store)  # type: ignore[arg-type]
    path = znodes.topic_path("t")
    store.set(path, assignment((1, 2)))
    store.set(znodes.PartitionStateZnode.path("t", 0), znodes.PartitionStateZnode(2, 4, 1, (1, 2)).encode())
    store.set(path, assignment((3, 2, 1), adding=(3,), removing=(1,)))
    assert leaderships.min_in_sync(("t", 0), {"min.insync.replicas": "3"}) == 2
    store.set(znodes.PartitionStateZnode.path("t", 0), znodes.PartitionStateZnode(2, 5, 1, in_sync).encode())
    store.set(path, assignment(ends_as))
    assert len(world.problems) == len(found)
    assert all(text in problem for text, problem in zip(found, world.problems, strict=True))


def test_a_member_that_lost_power_and_leads_with_everything_keeps_every_promise() -> None:
    """No record had come since, so that nothing told that it had gone on (once seed 4580)."""
    key = ("t", 0)
    leader, files = a_replica(batch(0, "a"), high_watermark=0, leader_epoch=1, is_leader=True)
    follower, unflushed = a_replica(batch(0, "a"), high_watermark=0, leader_epoch=1)
    unflushed.entries["00000000000000000000.log"] = FileNode()
    first_file(unflushed).append(batch(0, "a"))
    brokers = [a_broker(0, follower, unflushed), a_broker(1, leader, files)]
    oracle = Oracle(World(1), brokers, the_leaderships(leader=1, epoch=1, in_sync=(1, 0)), Checker(), is_flushed=False)
    View().compare(files, oracle._history(key).truth, 1, may_extend=True)
    oracle.power_is_lost(brokers[1], lambda: None)
    oracle.power_is_lost(brokers[0], lambda: None)
    assert oracle.is_promise(key, 0, 0.0)


def test_what_a_leader_has_beyond_a_loss_is_not_promised_by_that() -> None:
    """It came back with more than the others had, led for a moment, and follows somebody else (once seed 5392)."""
    key = ("t", 0)
    world = World(1)
    returned, files = a_replica(batch(0, "a"), batch(1, "b"), high_watermark=2, leader_epoch=1, is_leader=True)
    broker = a_broker(0, returned, files)
    leaderships = the_leaderships(leader=0, epoch=1, in_sync=(0, 1))
    oracle = Oracle(world, [broker], leaderships, Checker(), is_flushed=False)
    history = oracle._history(key)
    history.view(0).limit = 1
    View().compare(log_of(batch(0, "a")), history.truth, 1, may_extend=True)
    oracle.look()
    returned.is_leader = False
    leaderships.states[key] = Leadership(leader=1, epoch=2, in_sync=(1,), since_s=0.0)
    View().compare(log_of(batch(0, "a"), batch(1, "c", epoch=2)), history.truth, 2, may_extend=True)
    oracle.look()
    assert world.problems == []


@pytest.mark.parametrize("is_late", [True, False])
def test_who_joins_the_isr_by_the_word_of_a_leader_that_lost_power_since_is_not_held_to_what_was_lost(
    is_late: bool,
) -> None:
    """It has what the leader had then, and hears last that others are at those offsets (once seed 600018)."""
    key = ("t", 0)
    world = World(1)
    kept, files = a_replica(batch(0, "a"), batch(1, "b"), high_watermark=2, leader_epoch=1)
    leader, platter = a_replica(batch(0, "a"), high_watermark=1, leader_epoch=2, is_leader=True)
    leaderships = the_leaderships(leader=1, epoch=1, in_sync=(1,))
    oracle = Oracle(
        world, [a_broker(0, kept, files), a_broker(1, leader, platter)], leaderships, Checker(), is_flushed=False
    )
    View().compare(files, oracle._history(key).truth, 2, may_extend=True)

    def becomes(**state: Any) -> None:
        before, leaderships.states[key] = leaderships.states[key], Leadership(since_s=0.0, **state)
        leaderships.observers[0](key, before, leaderships.states[key])

    oracle.power_is_lost(oracle.brokers[1], lambda: None)
    if not is_late:
        View().compare(log_of(batch(0, "a"), batch(1, "c", epoch=2)), oracle._history(key).truth, 2, may_extend=True)
    becomes(leader=1, epoch=1, in_sync=(1, 0))
    becomes(leader=1, epoch=2, in_sync=(1,))
    if is_late:
        View().compare(log_of(batch(0, "a"), batch(1, "c", epoch=2)), oracle._history(key).truth, 2, may_extend=True)
    kept.log.state.high_watermark = 2
    leader.is_leader = False
    oracle.look()
    assert bool(world.problems) is not is_late


@pytest.mark.parametrize("is_deleting", [False, True])
def test_what_is_being_deleted_is_promised_no_more(is_deleting: bool) -> None:
    """A controller that is late may have a replica led again that another has had deleted."""
    key = ("t", 0)
    state = SimpleNamespace(log_end_offset=0, high_watermark=0, is_failed=False, disk=SimpleNamespace(path="d"))
    log = SimpleNamespace(state=state)
    replica = SimpleNamespace(topic="t", index=0, topic_partition=key, is_leader=True, leader_epoch=0, log=log)
    broker: Any = SimpleNamespace(
        broker_id=0, life=1, partitions=lambda: [replica], partition_directory=lambda *_: log_of()
    )
    leaderships: Any = SimpleNamespace(
        states={key: Leadership(leader=0, epoch=0, in_sync=(0, 1), since_s=0.0)},
        observers=[],
        before_change=None,
        leads=lambda *_: None,
        is_deleting=lambda topic: is_deleting,
    )
    world = World(1)
    oracle = Oracle(world, [broker], leaderships, Checker(), is_flushed=False)
    View().compare(log_of(batch(0, "a")), oracle._history(key).truth, 1, may_extend=True)
    oracle.look()
    assert bool(world.problems) is not is_deleting


@pytest.mark.parametrize(
    ("read_epoch", "is_fenced", "is_current", "raised"),
    [
        (11, True, False, Unavailable),
        (8, True, False, Violation),
        (8, False, False, Unavailable),
        (8, False, True, Violation),
    ],
)
def test_an_offset_is_out_of_range_only_to_a_leader_as_late_as_what_was_read(
    read_epoch: int, is_fenced: bool, is_current: bool, raised: type[Exception]
) -> None:
    """A consumer asks without epochs too, and is then told of an earlier leader by old metadata (once seed 4433). What
    it reads of a later leader may have been written in an earlier epoch (once seed 46286)."""
    key = ("t", 0)
    part = SimpleNamespace(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), log_start_offset=-1, high_watermark=-1)
    response = SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[part])])

    async def request(*_: Any) -> Any:
        return response

    world = World(1)
    client: Any = SimpleNamespace(
        name="c",
        state=ClusterState(partitions={key: KnownPartition(0, 8, [0], [0])}, topic_ids={"t": bytes(16)}),
        leader_of=lambda _: ("10.0.0.1", 9092),
        request=request,
    )
    workload: Any = SimpleNamespace(
        world=world,
        guarantees=SimpleNamespace(life_of=lambda _: 1),
        losses=lambda _: 0,
        still_exists=lambda _: True,
        holds=lambda *_: True,
        is_current=lambda *_: is_current,
    )
    consumer = Consumer(workload, client, key)
    consumer.position, consumer._leader_epoch, consumer._is_fenced = 196, read_epoch, is_fenced

    async def main() -> None:
        with pytest.raises(raised):
            await consumer.fetch()

    world.run(main())
    assert consumer.position == 196


@pytest.mark.parametrize(("answered", "is_lost"), [(True, True), (False, False)])
def test_an_older_commit_may_come_late_only_when_its_connection_was_given_up(answered: bool, is_lost: bool) -> None:
    """A request that its client has given up may be read when the connection's earlier ones are answered (10374)."""
    world = World(1)
    commit, fetch = codec.module(ApiKey.OFFSET_COMMIT), codec.module(ApiKey.OFFSET_FETCH)
    sent: list[int] = []

    async def request(address: Any, key: ApiKey, version: int, body: Any) -> Any:
        if key is ApiKey.OFFSET_COMMIT:
            sent.append(body.topics[0].partitions[0].committed_offset)
            if len(sent) == 1 and not answered:
                raise Unavailable("no answer in time")
            part = commit.OffsetCommitResponsePartition(partition_index=0)
            topic = commit.OffsetCommitResponseTopic(name="t0", partitions=[part])
            return commit.OffsetCommitResponse(topics=[topic])
        part = fetch.OffsetFetchResponsePartition(partition_index=0, committed_offset=sent[0], metadata="")
        return fetch.OffsetFetchResponse(topics=[fetch.OffsetFetchResponseTopic(name="t0", partitions=[part])])

    workload: Any = SimpleNamespace(
        world=world, losses=lambda _: 0, is_current=lambda _: True, still_exists=lambda _: True
    )
    committer = Committer(workload, SimpleNamespace(request=request), "group", ("t0", 0))  # type: ignore[arg-type]
    committer._coordinator = ("10.0.0.1", 9092)

    async def main() -> None:
        for _ in range(2):
            with contextlib.suppress(Unavailable):
                await committer._commit()
        await committer._read_back()

    if is_lost:
        with pytest.raises(Violation, match=r"committed \d+ for"):
            world.run(main())
    else:
        world.run(main())
        assert committer.acknowledged == sent[0]
