"""The stop of a broker: who leads after it, what it still serves, and how long it waits."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.broker import Broker
from tests.integration.clients.driver import await_that
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.topics import create, metadata
from tests.integration.wire import Wire, batch, produce_request

NEVER_MS = "3600000"


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    # No replica leaves an ISR here because of its lag: a wait for a stopped broker would never end.
    with cluster(brokers=3, racks=3, config={"replica.lag.time.max.ms": NEVER_MS}) as found:
        yield found


def broker_of(fleet: RunningCluster, number: int) -> Broker:
    assert fleet.fleet is not None
    return fleet.fleet.brokers[number]


def leads(fleet: RunningCluster, number: int, topic: str) -> bool:
    """As the broker itself sees it."""
    manager = broker_of(fleet, number).replica_manager
    partition = None if manager is None else manager.partition(topic, 0)
    return partition is not None and partition.is_leader


def leaders(fleet: RunningCluster, topic: str) -> dict[int, int]:
    with Wire(fleet.address(fleet.running[0])) as wire:
        return metadata(wire, topic)


def test_a_stop_becomes_a_halt_when_a_log_directory_has_vanished() -> None:
    with cluster(brokers=1, disks=1) as fleet:
        broker = broker_of(fleet, 0)
        directory = fleet.data / "broker-0" / "d0"
        shutil.rmtree(directory)
        fleet.stop(0)
        assert broker.state == "halted"
        assert str(directory) in fleet.run(broker.halted())


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_stopping_broker_leads_nothing_when_it_closes_its_listeners(fleet: RunningCluster, victim: int) -> None:
    """One of the three is the controller."""
    create(fleet.bootstrap, f"t-{victim}", 6)
    assert victim in leaders(fleet, f"t-{victim}").values()
    manager = broker_of(fleet, victim).replica_manager
    assert manager is not None
    led_at_the_end: list[int] = []
    give_up = manager.stop

    async def stop() -> None:
        led_at_the_end.append(sum(partition.is_leader for partition in manager.partitions()))
        await give_up()

    manager.stop = stop  # type: ignore[method-assign]
    fleet.stop(victim)
    assert led_at_the_end == [0]
    await_that(lambda: victim not in leaders(fleet, f"t-{victim}").values(), "all brokers know the leaders")
    fleet.start(victim)
    create(fleet.bootstrap, f"after-{victim}", 3)  # there is a controller


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_broker_after_controlled_shutdown_names_the_new_leader_to_clients(
    fleet: RunningCluster, version: int
) -> None:
    topic = f"drained-{version}"
    create(fleet.bootstrap, topic, 1)
    leader = leaders(fleet, topic)[0]
    epoch = broker_of(fleet, leader).broker_epoch
    shutdown = codec.module(ApiKey.CONTROLLED_SHUTDOWN)
    request = shutdown.ControlledShutdownRequest(broker_id=leader, broker_epoch=epoch)
    controller = next(
        number
        for number in fleet.running
        if broker_of(fleet, number).controller.is_active  # type: ignore[union-attr]
    )
    try:
        with Wire(fleet.internal_address(controller)) as wire:
            assert wire.ask(ApiKey.CONTROLLED_SHUTDOWN, version, request).error_code == 0
        # The controller waits only for a second until all brokers know.
        await_that(lambda: not leads(fleet, leader, topic), "it knows")
        await_that(lambda: any(leads(fleet, other, topic) for other in fleet.running), "the new leader knows")
        with Wire(fleet.address(leader)) as wire:
            await_that(lambda: metadata(wire, topic)[0] != leader, "its metadata has the new leader as well")
            refused = (
                wire.ask(ApiKey.PRODUCE, 10, produce_request(topic, batch(b"value")))
                .responses[0]
                .partition_responses[0]
            )
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert refused.current_leader.leader_id == metadata(wire, topic)[0] != leader
            fetch = codec.module(ApiKey.FETCH)
            asked = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            answer = wire.ask(
                ApiKey.FETCH,
                12,
                fetch.FetchRequest(max_wait_ms=0, topics=[fetch.FetchTopic(topic=topic, partitions=[asked])]),
            )
            # It is no follower: a consumer would never read a new record there.
            assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            successor = metadata(wire, topic)[0]
        # It still runs, and no produce request waits for it, however long its flush takes.
        with Wire(fleet.address(successor)) as wire:
            for _ in range(3):
                produce = produce_request(topic, batch(b"value"))
                produce.timeout_ms = 30_000  # less than replica.lag.time.max.ms
                taken = wire.ask(ApiKey.PRODUCE, 10, produce).responses[0]
                assert taken.partition_responses[0].error_code == 0
    finally:
        fleet.stop(leader)
        fleet.start(leader)


def test_a_broker_that_is_not_the_controller_refuses_controlled_shutdown(fleet: RunningCluster) -> None:
    shutdown = codec.module(ApiKey.CONTROLLED_SHUTDOWN)
    request = shutdown.ControlledShutdownRequest(broker_id=0, broker_epoch=-1)
    other = next(
        number
        for number in fleet.running
        if not broker_of(fleet, number).controller.is_active  # type: ignore[union-attr]
    )
    with Wire(fleet.internal_address(other)) as wire:
        answer = wire.ask(ApiKey.CONTROLLED_SHUTDOWN, 3, request)
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def stop_without_a_successor(config: dict[str, str], meanwhile: Callable[[RunningCluster, Broker], None]) -> None:
    """Stops broker 1, which leads a partition whose other replica is down, while broker 2 stays."""
    with cluster(brokers=3, config={"offsets.topic.replication.factor": "1", **config}) as fleet:
        create(fleet.bootstrap, "t", 3, 2)
        replicas = Librdkafka().describe_topic(fleet.bootstrap, "t").replicas
        assert {0, 1} in map(set, replicas.values())
        fleet.kill(0)
        await_that(lambda: 0 not in leaders(fleet, "t").values(), "broker 1 leads alone")
        broker = broker_of(fleet, 1)

        async def begin() -> asyncio.Task[None]:
            return asyncio.ensure_future(broker.stop())

        stopping = fleet.run(begin())
        meanwhile(fleet, broker)

        async def end() -> None:
            await stopping

        fleet.run(end())
        assert broker.state == "stopped"


def test_a_second_signal_skips_to_the_flush() -> None:
    def hurry(fleet: RunningCluster, broker: Broker) -> None:
        async def hurry() -> None:
            broker.skip_to_flush()

        fleet.run(hurry())

    stop_without_a_successor({"controlled.shutdown.retry.backoff.ms": NEVER_MS}, hurry)


def test_a_stopping_broker_that_leads_nothing_still_serves_for_shutdown_serve_ms() -> None:
    with cluster(brokers=3, config={"ottla.shutdown.serve.ms": "22500"}) as fleet:
        create(fleet.bootstrap, "t", 3, 2)
        broker, address = broker_of(fleet, 1), fleet.address(1)

        async def begin() -> asyncio.Task[None]:
            return asyncio.ensure_future(broker.stop())

        async def hurry(stopping: asyncio.Task[None]) -> None:
            broker.skip_to_flush()
            await stopping

        stopping = fleet.run(begin())
        await_that(lambda: 1 not in leaders(fleet, "t").values(), "others lead")
        assert not broker.is_ready
        with Wire(address) as wire:
            await_that(lambda: 1 not in metadata(wire, "t").values(), "it has been told as well")
        fleet.run(hurry(stopping))
        assert broker.state == "stopped"
        with pytest.raises(ConnectionRefusedError):
            Wire(address)


def test_a_broker_stops_after_the_last_retry_of_controlled_shutdown() -> None:
    stop_without_a_successor({"controlled.shutdown.retry.backoff.ms": "50"}, lambda fleet, broker: None)


def test_a_controlled_shutdown_takes_at_most_half_of_the_shutdown_timeout() -> None:
    config = {"controlled.shutdown.retry.backoff.ms": NEVER_MS, "ottla.shutdown.timeout.ms": "8000"}
    stop_without_a_successor(config, lambda fleet, broker: None)


def test_a_stopping_broker_moves_leadership_to_a_replica_that_comes_back() -> None:
    def return_and_look(fleet: RunningCluster, broker: Broker) -> None:
        fleet.start(0)
        await_that(lambda: 1 not in leaders(fleet, "t").values(), "broker 0 leads")

    config = {"controlled.shutdown.retry.backoff.ms": "100", "controlled.shutdown.max.retries": "1000"}
    stop_without_a_successor(config, return_and_look)


def test_a_broker_sends_no_controlled_shutdown_when_it_is_disabled() -> None:
    config = {"controlled.shutdown.enable": "false", "controlled.shutdown.retry.backoff.ms": NEVER_MS}
    stop_without_a_successor(config, lambda fleet, broker: None)


def test_a_broker_halts_when_its_stop_exceeds_the_shutdown_timeout() -> None:
    with cluster(config={"ottla.shutdown.timeout.ms": "1000"}) as fleet:
        broker = broker_of(fleet, 0)

        async def never(_broker_epoch: int = -1) -> None:
            await asyncio.Event().wait()

        broker.log_manager.close = never  # type: ignore[method-assign]
        fleet.stop(0)
        assert broker.state == "halted"
        assert "ottla.shutdown.timeout.ms=1000" in fleet.run(broker.halted())
