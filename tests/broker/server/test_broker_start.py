"""A broker that cannot start: it says why, gives everything back, and leaves nobody waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.adapters.process import make_ports
from ottla_broker.config import BrokerConfig
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.server.broker import Broker, StartRefused


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    made = EmbeddedStore(str(tmp_path / "coordination.db"))
    await made.open()
    yield made
    await made.close()


def _broker(directory: Path, store: EmbeddedStore) -> Broker:
    config = BrokerConfig.from_mapping(
        {
            "broker.id": "1",
            "log.dirs": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "zookeeper.connect": "127.0.0.1:1",
        }
    )
    return Broker(config, make_ports(config, EmbeddedCoordination(store, session_timeout_ms=2000)))


async def test_a_checkpoint_that_cannot_be_read_is_named_and_everything_is_given_back(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    directory = tmp_path / "d0"
    first = _broker(directory, store)
    await first.start()
    await first.ready()
    await first.stop()
    checkpoint = directory / "replication-offset-checkpoint"
    whole = checkpoint.read_text()
    checkpoint.write_text("nonsense")
    second = _broker(directory, store)
    with pytest.raises(StartRefused, match="replication-offset-checkpoint"):
        await second.start()
    assert second.state == "refused"
    with pytest.raises(StartRefused):
        await second.ready()
    checkpoint.write_text(whole)
    third = _broker(directory, store)
    await third.start()
    await third.ready()
    await third.stop()
    assert third.state == "stopped"
