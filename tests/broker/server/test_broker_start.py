"""A broker that cannot start: it says why, gives everything back, and leaves nobody waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.adapters.process import make_ports
from ottla_broker.config import BrokerConfig
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.coordination.znodes import FEATURE, Features
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


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (Features(True, {"group.version": 1}).encode(), "finalized group.version at level 1"),
        (b'{"version":1,"status":1,"features":{"x":{"min_version_level":1,"max_version_level":2}}}', "x at level 2"),
        (b"{", "/feature"),
        (Features(True, {}).encode(), ""),
        (Features(False, {"x": 1}).encode(), ""),
    ],
)
async def test_a_fleet_that_has_finalized_what_we_do_not_support_is_not_joined(
    tmp_path: Path, store: EmbeddedStore, content: bytes, complaint: str
) -> None:
    tool = EmbeddedCoordination(store, session_timeout_ms=2000)
    await tool.start()
    await tool.create(FEATURE, content)
    broker = _broker(tmp_path / "d0", store)
    if complaint:
        with pytest.raises(StartRefused, match=complaint):
            await broker.start()
    else:
        await broker.start()
        await broker.ready()
        await broker.stop()
    assert (await tool.get(FEATURE))[0] == content, "it is left as it is: a broker of Apache Kafka may read it too"
    await tool.close()
