"""A broker that cannot start: it says why, releases everything, and `ready` raises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.adapters.process import make_ports
from ottla_broker.config import BrokerConfig
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.coordination.znodes import CLUSTER_ID, FEATURE, BrokerRegistration, Features
from ottla_broker.ports.coordination import SessionEvent
from ottla_broker.server.broker import Broker, StartRefused
from ottla_broker.server.store.coordination_session import CoordinationSessionState


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    made = EmbeddedStore(str(tmp_path / "coordination.db"))
    await made.open()
    yield made
    await made.close()


def _broker(
    directory: Path,
    store: EmbeddedStore,
    coordination: EmbeddedCoordination | None = None,
    listening: Mapping[str, str] = MappingProxyType({"listeners": "PLAINTEXT://127.0.0.1:0"}),
) -> Broker:
    config = BrokerConfig.from_mapping(
        {"broker.id": "1", "log.dirs": str(directory), "zookeeper.connect": "127.0.0.1:1", **listening}
    )
    return Broker(config, make_ports(config, coordination or EmbeddedCoordination(store, session_timeout_ms=2000)))


async def test_a_broker_with_a_damaged_meta_properties_refuses_to_start_and_releases_everything(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    directory = tmp_path / "d0"
    first = _broker(directory, store)
    await first.start()
    await first.ready()
    await first.stop()
    properties = directory / "meta.properties"
    whole = properties.read_text()
    properties.write_text("nonsense")
    second = _broker(directory, store)
    with pytest.raises(StartRefused, match=r"meta\.properties is damaged"):
        await second.start()
    assert second.state == "refused"
    with pytest.raises(StartRefused):
        await second.ready()
    properties.write_text(whole)
    third = _broker(directory, store)
    await third.start()
    await third.ready()
    await third.stop()
    assert third.state == "stopped"


@pytest.mark.parametrize(
    "listening",
    [
        {"listeners": "PLAINTEXT://:0"},
        {"port": "0"},
        {"port": "0", "host.name": ""},
        {"listeners": "PLAINTEXT://127.0.0.1:0", "advertised.listeners": "PLAINTEXT://:0"},
        {"listeners": "PLAINTEXT://:0", "advertised.listeners": ""},
    ],
)
async def test_a_broker_without_an_advertised_host_advertises_the_name_of_its_machine(
    tmp_path: Path, store: EmbeddedStore, listening: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SocketNetwork, "own_name", _localhost)
    coordination = EmbeddedCoordination(store, session_timeout_ms=2000)
    broker = _broker(tmp_path / "d0", store, coordination, listening)
    await broker.start()
    await broker.ready()
    data, _ = await coordination.get(BrokerRegistration.path(1))
    (endpoint,) = BrokerRegistration.decode(1, data).endpoints
    assert (endpoint.host, endpoint.port) == ("localhost", broker.address("PLAINTEXT")[1])
    await broker.stop()


async def test_a_broker_refuses_to_start_when_the_name_of_its_machine_has_no_address(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SocketNetwork, "own_name", _no_name)
    broker = _broker(tmp_path / "d0", store, listening={"listeners": "PLAINTEXT://:0"})
    with pytest.raises(StartRefused, match=r"advertised\.listeners: .*the machine's own name.*set a host"):
        await broker.start()


async def _localhost(network: SocketNetwork) -> str:
    return "localhost"


async def _no_name(network: SocketNetwork) -> str:
    raise OSError(-2, "m1: Name or service not known")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (Features(True, {"group.version": 2}).encode(), "finalized group.version at level 2"),
        (b'{"version":1,"status":1,"features":{"x":{"min_version_level":1,"max_version_level":2}}}', "x at level 2"),
        (b"{", "/feature"),
        (Features(True, {}).encode(), ""),
        (Features(False, {"x": 1}).encode(), ""),
    ],
)
async def test_a_broker_does_not_join_a_cluster_with_a_finalized_feature_that_it_does_not_support(
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


@pytest.mark.parametrize("content", [None, b'{"version":"1","id":"another"}'])
async def test_a_broker_halts_when_its_ensemble_comes_back_without_data(
    tmp_path: Path, store: EmbeddedStore, content: bytes | None
) -> None:
    """A controller of the empty ensemble knows no topics, and brokers would delete their replicas."""
    coordination = EmbeddedCoordination(store, session_timeout_ms=2000)
    broker = _broker(tmp_path / "d0", store, coordination)
    await broker.start()
    await broker.ready()
    tool = EmbeddedCoordination(store, session_timeout_ms=2000)
    await tool.start()
    await tool.delete(CLUSTER_ID)
    if content is not None:
        await tool.create(CLUSTER_ID, content)
    store.expire_session(coordination.session_id)
    reason = await broker.halted()
    assert broker.cluster_id in reason and "restore the ensemble's data" in reason
    assert await tool.exists("/brokers/ids/1") is None
    await tool.close()


async def test_a_broker_refuses_directories_of_another_cluster_and_names_both_cluster_ids(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    """Old volumes and a new ensemble."""
    first = _broker(tmp_path / "d0", store)
    await first.start()
    await first.ready()
    await first.stop()
    tool = EmbeddedCoordination(store, session_timeout_ms=2000)
    await tool.start()
    await tool.set(CLUSTER_ID, b'{"version":"1","id":"another"}')
    meta = (tmp_path / "d0" / "meta.properties").read_text()
    second = _broker(tmp_path / "d0", store)
    with pytest.raises(StartRefused, match=f"belongs to cluster {first.cluster_id}.*another.*has lost its data"):
        await second.start()
    assert (tmp_path / "d0" / "meta.properties").read_text() == meta
    await tool.close()


async def test_status_shows_the_state_of_the_session(tmp_path: Path, store: EmbeddedStore) -> None:
    broker = _broker(tmp_path / "d0", store)
    assert broker.status()["session"]["state"] == "connecting"
    await broker.start()
    await broker.ready()
    assert broker.status()["session"]["state"] == "connected"
    await broker.stop()


async def test_the_loss_of_a_session_counts_from_its_suspension() -> None:
    clock = LoopClock()
    now = 0.0
    clock.monotonic = lambda: now  # type: ignore[method-assign]
    session = CoordinationSessionState(clock)
    for event, after_s in ((SessionEvent.CONNECTED, 5.0), (SessionEvent.SUSPENDED, 2.0), (SessionEvent.EXPIRED, 3.0)):
        session.on_event(event)
        now += after_s
    status = session.status()
    assert (status["state"], status["for_ms"]) == ("expired", 5000)
    session.on_event(SessionEvent.CONNECTED)
    assert (session.status()["state"], session.status()["for_ms"]) == ("connected", 0)
