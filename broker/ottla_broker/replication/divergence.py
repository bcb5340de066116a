"""Where two logs part, told by leader epochs (KIP-101, KIP-279, KIP-595).

Lives here: what a leader answers to a fetch whose last record it does not have, and where a follower cuts its log.
Not here: the epoch cache (`ottla_broker.storage`), requests. Pure.

Notation of the examples: an epoch cache is a list of (epoch, first offset), a log end offset closes the last one.
"""

from __future__ import annotations

from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEnd(NamedTuple):
    """An epoch and the offset behind its last record; (-1, -1) when unknown."""

    epoch: int
    end_offset: int


UNDEFINED = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class Truncation(NamedTuple):
    """Where to cut, whether that is the last word (else fetch again from there and compare again), and why."""

    offset: int
    is_final: bool
    reason: str


def leader_answer(leader_end: EpochEnd, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
    """What a leader says to a fetch from `fetch_offset` behind a record of `last_fetched_epoch`.

    `leader_end` is the end of the largest epoch <= `last_fetched_epoch` in the leader's log. None: the logs agree so
    far. UNDEFINED: the leader cannot tell (OFFSET_OUT_OF_RANGE). Else the logs part at or before the answer.

    >>> leader_answer(EpochEnd(5, 100), fetch_offset=80, last_fetched_epoch=5) is None
    True
    >>> leader_answer(EpochEnd(5, 100), fetch_offset=120, last_fetched_epoch=5)    # the leader has less of epoch 5
    EpochEnd(epoch=5, end_offset=100)
    >>> leader_answer(EpochEnd(4, 70), fetch_offset=80, last_fetched_epoch=5)      # the leader never saw epoch 5
    EpochEnd(epoch=4, end_offset=70)
    """
    if leader_end.end_offset == UNDEFINED_OFFSET or leader_end.epoch == UNDEFINED_EPOCH:
        return UNDEFINED
    if leader_end.epoch < last_fetched_epoch or leader_end.end_offset < fetch_offset:
        return leader_end
    return None


def truncation(leader_end: EpochEnd, local_end: EpochEnd, log_end_offset: int, high_watermark: int) -> Truncation:
    """Where a follower cuts after the leader's `leader_end`.

    `local_end` is the end of the largest local epoch <= `leader_end.epoch`.

    1. The leader knows nothing of the epoch: cut to the high watermark.

    >>> truncation(UNDEFINED, UNDEFINED, log_end_offset=30, high_watermark=20).offset
    20

    2. The follower does not know the leader's epoch. Leader [(0, 0), (2, 10), (4, 20)], follower
       [(0, 0), (1, 8), (3, 15)] ending at 25 asked about epoch 3 and heard (2, 20): its largest epoch <= 2 is 1, which
       ends at 15. Cut to 15 and ask about epoch 1, to hear (0, 10).

    >>> truncation(EpochEnd(2, 20), EpochEnd(1, 15), log_end_offset=25, high_watermark=5)
    Truncation(offset=15, is_final=False, reason='the local log lacks epoch 2, its epoch 1 is compared next')

    3. Both know the epoch: cut to the shorter end. Leader has epoch 1 up to 12, follower up to 15.

    >>> truncation(EpochEnd(1, 12), EpochEnd(1, 15), log_end_offset=15, high_watermark=5).offset
    12
    """
    if leader_end.end_offset == UNDEFINED_OFFSET:
        return Truncation(min(high_watermark, log_end_offset), True, "the leader does not know the epoch")
    if leader_end.epoch == UNDEFINED_EPOCH or local_end.epoch == UNDEFINED_EPOCH:
        return Truncation(min(leader_end.end_offset, log_end_offset), True, "there is no local epoch to compare")
    if local_end.epoch != leader_end.epoch:
        return Truncation(
            min(local_end.end_offset, log_end_offset),
            False,
            f"the local log lacks epoch {leader_end.epoch}, its epoch {local_end.epoch} is compared next",
        )
    return Truncation(
        min(leader_end.end_offset, local_end.end_offset, log_end_offset), True, "the end of the common epoch"
    )


class FetchRestart(NamedTuple):
    """What a follower does after OFFSET_OUT_OF_RANGE. `is_full` drops the whole log and starts it at `offset`."""

    offset: int
    is_full: bool
    reason: str


def restart_after_out_of_range(log_end_offset: int, leader_start_offset: int, leader_end_offset: int) -> FetchRestart:
    """Where a follower goes on whose offset the leader does not have.

    >>> restart_after_out_of_range(50, leader_start_offset=0, leader_end_offset=40)    # an unclean election cut it
    FetchRestart(offset=40, is_full=False, reason="the leader's log ends earlier")
    >>> restart_after_out_of_range(50, leader_start_offset=70, leader_end_offset=90)   # down longer than retention
    FetchRestart(offset=70, is_full=True, reason="the leader's log starts later")
    >>> restart_after_out_of_range(50, leader_start_offset=10, leader_end_offset=90)   # the leader has moved on
    FetchRestart(offset=50, is_full=False, reason='the offset is in range by now')
    """
    if leader_end_offset < log_end_offset:
        return FetchRestart(leader_end_offset, False, "the leader's log ends earlier")
    if leader_start_offset > log_end_offset:
        return FetchRestart(leader_start_offset, True, "the leader's log starts later")
    return FetchRestart(log_end_offset, False, "the offset is in range by now")
