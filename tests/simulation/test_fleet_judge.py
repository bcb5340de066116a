"""The judge of a fleet: what it compares, and what it takes back when power is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from simulation.batches import build_batch
from simulation.checker import Checker
from simulation.durability import Durability
from simulation.filesystem import DirectoryNode, FileNode
from simulation.leaderships import Leadership
from simulation.replica_views import Truth, View, durable_agreement
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


def test_what_was_cut_and_written_anew_is_compared_anew() -> None:
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
    log = SimpleNamespace(log_end_offset=1, high_watermark=0)
    replica = SimpleNamespace(topic="t", index=0, topic_partition=key, is_leader=True, leader_epoch=-1, log=log)
    brokers: list[Any] = [
        SimpleNamespace(broker_id=number, partitions=lambda held=held: held, find_partition=lambda _: ("", None))
        for number, held in enumerate(([replica], []))
    ]
    before = Leadership(leader=0, epoch=0, in_sync=(0, 1), since_s=0.0)
    after = Leadership(leader=1, epoch=1, in_sync=(1,), since_s=0.0)
    leaderships: Any = SimpleNamespace(states={key: before}, observers=[], before_change=None)
    judge = Durability(World(1), brokers, leaderships, Checker(), is_flushed=False)
    judge.power_is_lost(brokers[1], lambda: None)
    assert judge.is_promise(key, 0, 0.0), "the leader has it"
    leaderships.states[key] = after
    leaderships.observers[0](key, before, after)
    assert not judge.is_promise(key, 0, 0.0)
    assert judge.is_promise(key, 1, 0.0)


@pytest.mark.parametrize("is_deleting", [False, True])
def test_what_is_being_deleted_is_promised_no_more(is_deleting: bool) -> None:
    """A controller that is late may have a replica led again that another has had deleted."""
    key = ("t", 0)
    log = SimpleNamespace(log_end_offset=0, high_watermark=0, is_failed=False, disk=SimpleNamespace(path="d"))
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
    judge = Durability(world, [broker], leaderships, Checker(), is_flushed=False)
    View().compare(log_of(batch(0, "a")), judge._ledger(key).truth, 1, may_extend=True)
    judge.look()
    assert bool(world.problems) is not is_deleting
