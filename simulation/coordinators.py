"""Who coordinates a group or a transactional id: FindCoordinator of a client, and whether that is true."""

from __future__ import annotations

import random

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.checker import Partition, Violation
from simulation.client import Client, Unavailable
from simulation.cluster import SimulatedFleet
from simulation.leaderships import Leaderships

GROUP, TRANSACTION = 0, 1


async def find_coordinator(
    client: Client, draw: random.Random, key: str, key_type: int, *, timeout_s: float = 4.0
) -> tuple[str, int]:
    """The coordinator's address as any broker tells it. Raises Unavailable."""
    find = codec.module(ApiKey.FIND_COORDINATOR)
    version = draw.randrange(1, 6)
    body = find.FindCoordinatorRequest(key=key, key_type=key_type)
    if version >= 4:
        body = find.FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
    address = draw.choice(client.bootstrap)
    answer = await client.request(address, ApiKey.FIND_COORDINATOR, version, body, timeout_s=timeout_s)
    found = answer.coordinators[0] if version >= 4 else answer
    code = ErrorCode.of(found.error_code)
    if code is not ErrorCode.NONE:
        if not code.retriable:
            raise Violation(f"FindCoordinator for {key} gave {code.name}")
        raise Unavailable(code.name)
    return found.host, found.port


def coordinates(
    fleet: SimulatedFleet, leaderships: Leaderships, address: tuple[str, int], partition: Partition
) -> bool:
    """Whether the broker at the address leads the partition of the internal topic, in the epoch that its state znode
    has now. One that was replaced, and one that has not heard of its election, does not."""
    state = leaderships.states.get(partition)
    for broker in fleet.brokers:
        if broker.host == address[0] and state is not None:
            return any(
                replica.is_leader and replica.leader_epoch == state.epoch
                for replica in broker.partitions()
                if (replica.topic, replica.index) == partition
            )
    return False
