"""Whom a broker tells that it has lost power, and for whom it waits."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.coordination import znodes
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.log_dir_recovery.power_loss import PossibleLoss, until_out_of_sync
from ottla_broker.server.store.registration import make_path

T0 = TopicPartition("t", 0)


def state(*isr: int) -> bytes:
    return znodes.PartitionStateZnode(leader=isr[0], leader_epoch=0, controller_epoch=1, isr=isr).encode()


@pytest.mark.parametrize("has_others", [False, True])
async def test_a_broker_with_one_whole_log_does_not_count_as_empty(tmp_path: Path, has_others: bool) -> None:
    """Whoever shares that with it, and has lost it, would lead with what is left (once fleet seed 29086)."""
    store = EmbeddedStore(str(tmp_path / "coordination"))
    await store.open()
    coordination = EmbeddedCoordination(store)
    await coordination.start()
    path = znodes.PartitionStateZnode.path(*T0)
    for one in (znodes.DELETE_TOPICS, path.rpartition("/")[0]):
        await make_path(coordination, one)
    await coordination.create(path, state(2, 1))
    waiting = asyncio.ensure_future(
        until_out_of_sync(
            coordination,
            LoopClock(),
            1,
            PossibleLoss([T0], has_others=has_others),
            limit_s=3600,
            logger=logging.LoggerAdapter(logging.getLogger("test")),
        )
    )
    await asyncio.wait([waiting], timeout=0.5)
    assert not waiting.done(), "2 may have more of it"
    said = await coordination.children(znodes.POWER_LOST)
    await coordination.set(path, state(2))
    await waiting
    assert list(said) == ([] if has_others else ["1"])
    await coordination.close()
    await store.close()
