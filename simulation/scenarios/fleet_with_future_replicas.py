"""The `replicated` scenario on brokers with two log directories each.

An administrator moves replicas between them all the time (KIP-113): leaders and followers, in the middle of producing,
elections, crashes and deletions of topics.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.checker import Checker, Violation
from simulation.client import Client, Unavailable
from simulation.cluster import CLIENT_PORT, SimulatedBroker, SimulatedFleet
from simulation.scenarios.replicated import run_fleet
from simulation.workload import Workload
from simulation.world import World

_EXPECTED = (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE)
"""The directory of a replica that is not on this broker is remembered, and answered with the second."""


async def run(world: World) -> Checker:
    return await run_fleet(world, disks=2, extra=_keep_moving)


async def _keep_moving(fleet: SimulatedFleet, workload: Workload, client: Client) -> None:
    draw = fleet.world.stream("moves")
    asked = 0
    while not workload.is_stopping:
        await asyncio.sleep(draw.choice((0.01, 0.1, 0.5)) * draw.random())
        broker = draw.choice(fleet.brokers)
        partitions = sorted(client.state.partitions)
        try:
            if not partitions or not broker.is_up:
                await client.refresh()
                continue
            await _move(draw, client, broker, draw.choice(partitions))
            asked += 1
            if draw.random() < 0.2:
                await _describe(client, broker)
                await client.refresh()
        except Unavailable:
            continue
    fleet.world.note(f"{asked} moves asked for")


async def _move(draw: random.Random, client: Client, broker: SimulatedBroker, partition: tuple[str, int]) -> None:
    api = codec.module(ApiKey.ALTER_REPLICA_LOG_DIRS)
    topic = api.AlterReplicaLogDirTopic(name=partition[0], partitions=[partition[1]])
    directory = api.AlterReplicaLogDir(path=draw.choice(broker.paths), topics=[topic])
    process, was_known = broker.process, partition in broker.known_leaderships()
    answer = await client.request(
        _address(broker),
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        draw.randrange(3),
        api.AlterReplicaLogDirsRequest(dirs=[directory]),
    )
    code = ErrorCode.of(answer.results[0].partitions[0].error_code)
    is_known = was_known and partition in broker.known_leaderships() and broker.process is process
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not is_known:
        return  # no UpdateMetadata has told this process of it, or the topic was deleted
    if code not in _EXPECTED:
        raise Violation(f"moving {partition} of broker {broker.broker_id} gave {code.name}")


async def _describe(client: Client, broker: SimulatedBroker) -> None:
    """No replica may stand in two directories but for the one on its way."""
    api = codec.module(ApiKey.DESCRIBE_LOG_DIRS)
    request = api.DescribeLogDirsRequest(topics=None)
    answer: Any = await client.request(_address(broker), ApiKey.DESCRIBE_LOG_DIRS, 4, request)
    current = [
        (topic.name, part.partition_index)
        for result in answer.results
        for topic in result.topics
        for part in topic.partitions
        if not part.is_future_key
    ]
    if len(current) != len(set(current)):
        raise Violation(f"broker {broker.broker_id} tells of a replica in two directories: {sorted(current)}")


def _address(broker: SimulatedBroker) -> tuple[str, int]:
    return broker.host, CLIENT_PORT
