"""A follower whose replica was recreated, on its way to being one that may lead."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.follower import Follower
from ottla_broker.storage.log.log import Log
from tests.broker.storage.logs import PARTITION, LogSetup, batch


class Full:
    """Stands where the recreation stands: that the replica has caught up finds no room three times."""

    def __init__(self) -> None:
        self.is_done = False
        self.refusals = 3

    def is_catching_up(self, partition: TopicPartition) -> bool:
        return not self.is_done

    def chunk_bytes(self, largest: int) -> int:
        return largest

    def spend(self, size: int) -> None:
        return

    def pause_s(self) -> float:
        return 0.0

    async def caught_up(self, partition: TopicPartition) -> None:
        if self.refusals:
            self.refusals -= 1
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory takes the record of the directories")
        self.is_done = True


class Unanswered(Full):
    """The coordination store, in which that is kept too, does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()
        self.is_given_up = False

    async def caught_up(self, partition: TopicPartition) -> None:
        self.is_asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_given_up = True


def follower_of(setup: LogSetup, log: Log, catch_up: Full) -> Follower:
    partition: Any = SimpleNamespace(
        topic="t",
        index=0,
        topic_partition=PARTITION,
        topic_id=bytes(16),
        leader_id=2,
        leader_epoch=0,
        log=log,
        on_follower_write=None,
        wake_delayed_fetches=lambda: None,
    )
    log.state.on_append = lambda: partition.on_follower_write()
    return Follower(
        partition,
        setup.clock,
        logging.LoggerAdapter(logging.getLogger("test"), {}),
        broker_id=1,
        longest_backoff_s=1.0,
        list_offsets_version=7,
        catch_up=catch_up,
    )


async def test_a_recreated_replica_fetches_at_the_end_only_when_that_it_caught_up_is_durable(
    tmp_path: Path,
) -> None:
    """The next fetch brings it into the ISR; elected, it would refuse to lead for as long as nobody else can."""
    setup = LogSetup(str(tmp_path))
    log = await setup.open()
    catch_up = Full()
    follower = follower_of(setup, log, catch_up)
    could_fetch = asyncio.Event()
    follower.start(lambda: could_fetch.set() if follower.is_ready else None)
    records = batch(b"all there is")
    follower.request_part(1)
    answer = SimpleNamespace(error_code=0, diverging_epoch=None, high_watermark=1, log_start_offset=0, records=records)
    assert follower.process_partition_data(answer, SimpleNamespace())
    await asyncio.wait_for(could_fetch.wait(), 60)
    assert catch_up.is_done
    await follower.stop()
    await log.closer.close()
    setup.close()


@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "about to be asked"])
async def test_stopping_a_follower_does_not_wait_for_a_coordination_store_that_does_not_answer(
    tmp_path: Path, is_asked: bool
) -> None:
    """The stop of the broker, and the controller's next command, waited for as long as ZooKeeper was gone."""
    catch_up = Unanswered()
    setup = LogSetup(str(tmp_path))
    log = await setup.open()
    follower = follower_of(setup, log, catch_up)
    follower.start(lambda: None)
    follower.request_part(1)
    answer = SimpleNamespace(error_code=0, diverging_epoch=None, high_watermark=0, log_start_offset=0, records=None)
    stopping = None if is_asked else asyncio.ensure_future(follower.stop())  # begun before the task that will ask
    follower.process_partition_data(answer, SimpleNamespace())
    if stopping is None:
        await asyncio.wait_for(catch_up.is_asked.wait(), 60)
        stopping = asyncio.ensure_future(follower.stop())
    await asyncio.wait_for(stopping, 10)
    assert catch_up.is_given_up is is_asked
    await log.closer.close()
    setup.close()
