"""The leader epochs of a log."""

from __future__ import annotations

from ottla_broker.storage.log.leader_epochs import LeaderEpochs


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    epochs = LeaderEpochs([(3, 10), (5, 120)])
    assert epochs.end_offset(-1, 200) == (-1, -1)
    assert epochs.end_offset(5, 200) == (5, 200)
    assert epochs.end_offset(4, 200) == (3, 120)
    assert epochs.end_offset(3, 200) == (3, 120)
    assert epochs.end_offset(2, 200) == (2, 10)
    assert epochs.end_offset(6, 200) == (-1, -1)
    assert LeaderEpochs().end_offset(0, 5) == (-1, -1)


def test_a_new_epoch_drops_entries_that_contradict_it() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 50), (3, 90)])
    epochs.assign(4, 60)
    assert epochs.entries == [(1, 0), (2, 50), (4, 60)]
    epochs.assign(4, 70)
    assert epochs.entries == [(1, 0), (2, 50), (4, 60)]
    assert epochs.latest == 4


def test_a_truncation_keeps_the_epoch_of_the_new_start() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 50), (3, 90)])
    epochs.truncate_from_start(60)
    assert epochs.entries == [(2, 60), (3, 90)]
    epochs.truncate_from_end(90)
    assert epochs.entries == [(2, 60)]
    epochs.truncate_from_end(60)
    assert epochs.entries == [] and epochs.latest == -1
