"""Three to five brokers, producers with transactions, read_committed consumers, and faults aimed at coordinators.

Half of the seeds set flush.messages=1 and have losses of power; in the others brokers only crash. So nothing that is
acknowledged may be lost in any of them, and what transactions promise is checked exactly (`transaction_oracle`): no
committed record is missing, no aborted one visible, none is both, offsets are committed with their records, and when
the faults are healed no open transaction holds back the last stable offset.

In half of the seeds one more transactional id has transactions in two phases (KIP-939): what its checkpoint has decided
is committed, whoever ends it and however often its application dies before.
"""

from __future__ import annotations

import asyncio
import random

from ottla_broker.config.topics import TRANSACTION_STATE
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.broker_restarts import BrokerRestarts
from simulation.checker import Checker, Partition, Violation
from simulation.client import Client, Unavailable
from simulation.cluster import SimulatedFleet
from simulation.coordinator_faults import POWER_LOSS, coordinator_faults, leader_of, strike
from simulation.coverage import Coverage
from simulation.faults import Fault, Scene
from simulation.leaderships import Leaderships
from simulation.scenarios.fleet import brokers_agree, checked, heal, watch
from simulation.scenarios.replicated import all_in_sync, all_is_committed, replicas_are_equal
from simulation.scenarios.single import SETTLE_S, broker_settings, verify
from simulation.transaction_oracle import TransactionOracle
from simulation.transactional_clients import Checkpoint, CommittedReader, TransactionalId
from simulation.workload import Workload, create_topic
from simulation.world import World

TOPIC = "t"
_LATE_REQUESTS = (
    *(ApiKey.PRODUCE,) * 5,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)


async def run(world: World) -> Checker:
    draw = world.stream("scenario")
    flushed = draw.random() < 0.5
    count = draw.choice((3, 3, 3, 4, 5))
    fleet = SimulatedFleet(world, count, _settings(draw, flushed=flushed), disks=draw.choice((1, 1, 2)))
    world.note(f"{count} brokers, {'flush.messages=1' if flushed else 'flush.messages not 1'}")
    checker, leaderships, oracle, workload = checked(world, fleet, is_flushed=flushed)
    clients = [Client(world, fleet.fabric, f"client-{n}", f"10.1.0.{n}", fleet.bootstrap) for n in (1, 2, 3)]
    await fleet.start()
    watching = world.spawn(watch(oracle), name="oracle")
    restarts = BrokerRestarts(world, fleet.brokers)
    partitions = [(TOPIC, number) for number in range(draw.choice((1, 2, 3)))]
    await create_topic(workload, clients[0], TOPIC, len(partitions), 3, {})
    await all_in_sync(fleet, clients[0], checker)

    transactions = TransactionOracle()
    ids = [
        TransactionalId(workload, transactions, draw.choice(clients), f"id{number}", partitions)
        for number in range(draw.choice((1, 2, 3)))
    ]
    if world.stream("two phases").random() < 0.5:
        ids.append(TransactionalId(workload, transactions, clients[0], f"id{len(ids)}", partitions, Checkpoint()))
    for number, one in enumerate(ids):
        workload.add_work(one.run(), f"transactional id {number}")
    for partition in partitions:
        reader = CommittedReader(workload, clients[-1], partition, transactions.delivered)
        workload.add_work(reader.run(), f"reader of {partition}")

    scene = Scene(world, fleet, restarts, oracle, clients, draw)
    faults = _faults(leaderships, flushed=flushed)
    await strike(scene, Coverage(world, leaderships, oracle, restarts), workload, faults)
    heal(fleet)
    try:
        async with asyncio.timeout(SETTLE_S):
            await restarts.settle()
    except TimeoutError as late:
        raise Violation(f"the brokers are not all ready {SETTLE_S} s after the last fault") from late
    await all_in_sync(fleet, clients[0], checker)
    await verify(fleet, workload, clients[0])
    offsets = {f"id{number}": await one.producer().group_offset() for number, one in enumerate(ids)}
    found = {partition: await _read_committed(workload, clients[0], partition) for partition in partitions}
    transactions.contents(found, offsets)
    await all_in_sync(fleet, clients[0], checker)
    await replicas_are_equal(fleet, clients[0], checker)
    await all_is_committed(fleet, checker)
    await brokers_agree(fleet, leaderships)
    oracle.look()
    watching.cancel()
    checker.acknowledged_count += transactions.acknowledged_count
    checker.delivered_count += transactions.delivered_count
    world.tallies = {
        "transactions committed": transactions.committed_count,
        "transactions aborted": transactions.aborted_count,
        "transactions kept": transactions.kept_count,
    }
    world.note(", ".join(f"{count} {what}" for what, count in world.tallies.items()))
    return checker


def _settings(draw: random.Random, *, flushed: bool) -> dict[str, str]:
    return broker_settings(draw, flush_every_message=flushed) | {
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": str(draw.choice((1, 2, 3))),
        "transaction.two.phase.commit.enable": "true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(draw.choice((300, 2000))),
        "replica.lag.time.max.ms": str(draw.choice((1000, 3000))),
        "replica.fetch.wait.max.ms": str(draw.choice((50, 500))),
        "zookeeper.session.timeout.ms": str(draw.choice((1500, 3000))),
        "replica.socket.timeout.ms": "3000",
        "controller.socket.timeout.ms": "3000",
    }


# -- faults -----------------------------------------------------------------------------------------------------------


def _faults(leaderships: Leaderships, *, flushed: bool) -> dict[str, tuple[int, Fault]]:
    async def late_request(scene: Scene) -> None:
        """One request of a producer arrives when its producer has given it up, or its transaction has ended."""
        source = scene.draw.choice(scene.clients)
        api_key = scene.draw.choice(_LATE_REQUESTS)
        target = leader_of(scene, leaderships, TOPIC if api_key is ApiKey.PRODUCE else TRANSACTION_STATE)
        let_go = scene.fleet.fabric.hold(source.host, target.host, api_key)
        await scene.last(0.5, 2.0, 6.0)
        let_go()

    async def late_markers(scene: Scene) -> None:
        """A coordinator's markers arrive when another one has written them, and the producer has gone on."""
        source = leader_of(scene, leaderships, TRANSACTION_STATE)
        targets = [broker for broker in scene.fleet.brokers if broker is not source]
        let_go = [scene.fleet.fabric.hold(source.host, one.host, ApiKey.WRITE_TXN_MARKERS) for one in targets]
        await scene.last(0.1, 0.5)
        if scene.draw.random() < 0.5:
            await scene.restarts.until_gone(source, scene.draw, source.crash)
        elif source.coordination is not None and source.is_up:
            scene.fleet.store.expire(source.coordination.session_id)
        await scene.last(0.5, 2.0, 6.0)
        for one in let_go:
            one()

    faults = coordinator_faults(leaderships, TRANSACTION_STATE, flushed=flushed)
    power_loss = faults.pop(POWER_LOSS, None)
    faults["late request"] = (10, late_request)
    faults["late markers"] = (5, late_markers)
    return faults if power_loss is None else faults | {POWER_LOSS: power_loss}


# -- the end ----------------------------------------------------------------------------------------------------------


async def _read_committed(workload: Workload, client: Client, partition: Partition) -> list[tuple[int, str]]:
    """All that a read_committed consumer reads, once the last stable offset is at the end."""
    loop = workload.world.loop
    deadline = loop.time() + SETTLE_S
    records: list[tuple[int, str]] = []
    reader = CommittedReader(workload, client, partition, lambda _, offset, name: records.append((offset, name)))
    stable = end = -1
    while loop.time() < deadline:
        try:
            stable, end = [await _end(client, partition, isolation) for isolation in (1, 0)]
            if stable == end:
                while reader.position < end:
                    await reader.fetch()
                return records
        except Unavailable:
            pass
        await asyncio.sleep(0.3)
        try:
            await client.refresh()
        except Unavailable:
            pass
    raise Violation(
        f"{SETTLE_S} s after the last fault the last stable offset of {partition} is {stable}, its end {end},"
        f" read up to {reader.position}"
    )


async def _end(client: Client, partition: Partition, isolation: int) -> int:
    """The end by ListOffsets: the last stable offset with isolation 1. Raises Unavailable."""
    address = client.leader_of(partition)
    if address is None:
        raise Unavailable("no leader is known")
    lists = codec.module(ApiKey.LIST_OFFSETS)
    part = lists.ListOffsetsPartition(partition_index=partition[1], timestamp=-1)
    topic = lists.ListOffsetsTopic(name=partition[0], partitions=[part])
    body = lists.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
    response = await client.request(address, ApiKey.LIST_OFFSETS, client.random.randrange(2, 10), body)
    answer = response.topics[0].partitions[0]
    if answer.error_code:
        raise Unavailable(ErrorCode.of(answer.error_code).name)
    offset: int = answer.offset
    return offset
