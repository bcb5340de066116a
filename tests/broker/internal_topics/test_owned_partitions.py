"""The partitions of an internal topic between election and resignation, for any coordinator."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla_broker.internal_topics.owned_partitions import (
    LOAD_RETRY_S,
    OwnedPartition,
    OwnedPartitions,
    PartitionContent,
)
from ottla_broker.internal_topics.topic_log import LoadedBatch, StateRecord
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.surroundings import MemoryLog, in_virtual_time


class Offsets:
    """Replays the base offsets of the batches."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def add(self, batch: LoadedBatch) -> None:
        self.found.append(batch.base_offset)


class Made:
    """Owned partitions whose state is the list of offsets, and what happened to them."""

    def __init__(self, clock: Clock, count: int | None = 4) -> None:
        self.log = MemoryLog(clock)
        self.told: list[tuple[str, int, int]] = []
        self.count = count
        self.refusals: list[Exception] = []

        async def before(owned: OwnedPartition[list[int]]) -> None:
            if self.refusals:
                raise self.refusals.pop(0)

        content: PartitionContent[list[int], Offsets] = PartitionContent(
            empty=list,
            replay=Offsets,
            before_serving=before,
            restore=lambda owned, replay: owned.state.extend(replay.found),
            serve=lambda owned: self.told.append(("serve", owned.index, owned.leader_epoch)),
            release=lambda owned: self.told.append(("release", owned.index, owned.leader_epoch)),
            count=len,
            observe_load=lambda seconds: None,
        )
        logger = logging.getLogger("ottla.test")
        self.partitions = OwnedPartitions(clock, self.log, logger, "__t", "entry", lambda: self.count, 50, content)

    async def elected(self, index: int, epoch: int) -> None:
        self.log.lead(index, epoch)
        self.log.append(index, epoch, [StateRecord(b"k", b"v")], required_acks=-1, timeout_ms=5_000)
        self.partitions.on_election(index, epoch)


def test_a_partition_is_loading_until_its_log_is_replayed_and_served_until_the_resignation() -> None:
    async def scenario(clock: Clock) -> None:
        made = Made(clock)
        name = "a"
        index = made.partitions.index_of(name)
        assert made.partitions.find(name) == (ErrorCode.NOT_COORDINATOR, None)
        await made.elected(index, 3)
        owned = made.partitions.of(name)
        assert owned is not None and made.partitions.owns(index) and made.partitions.is_any_loading
        assert made.partitions.find(name) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, owned)
        await clock.sleep(1)
        assert made.partitions.find(name) == (ErrorCode.NONE, owned) and owned.state == [0]
        made.partitions.on_election(index, 4)
        assert made.partitions.is_current(owned) and (owned.first_epoch, owned.leader_epoch) == (3, 4)
        made.partitions.on_resignation(index, 3)  # of an earlier epoch
        assert made.partitions.is_current(owned)
        made.partitions.on_resignation(index, 5)
        assert not made.partitions.is_current(owned) and list(made.partitions) == []
        made.partitions.on_election(index, 4)  # comes too late
        assert not made.partitions.owns(index)
        made.partitions.on_resignation(index, None)  # deleted, and created again with the first epoch
        await made.elected(index, 0)
        await clock.sleep(1)
        again = made.partitions.of(name)
        assert again is not None and again.load_number > owned.load_number
        assert made.told == [("serve", index, 3), ("release", index, 4), ("serve", index, 0)]

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR),
        OSError(5, "I/O"),
    ],
)
def test_a_load_that_fails_is_tried_again_and_nothing_is_served_before(error: Exception) -> None:
    async def scenario(clock: Clock) -> None:
        made = Made(clock)
        made.refusals = [error]
        await made.elected(0, 1)
        await clock.sleep(LOAD_RETRY_S / 2)
        assert made.told == [] and made.partitions.is_any_loading
        await clock.sleep(LOAD_RETRY_S)
        assert made.told == [("serve", 0, 1)]

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("count", "expected"), [(None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), (0, ErrorCode.NOT_COORDINATOR)]
)
def test_no_name_is_refused_for_good_while_the_count_of_partitions_is_not_known(
    count: Any, expected: ErrorCode
) -> None:
    async def scenario(clock: Clock) -> None:
        made = Made(clock, count)
        assert made.partitions.find("a") == (expected, None)

    in_virtual_time(scenario)
