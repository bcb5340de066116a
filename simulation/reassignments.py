"""An administrator of the simulated fleet that reassigns partitions by request (KIP-455).

`Reassigner` starts, replaces and cancels reassignments at random, as a client of the fleet, and does not wait for their
end. Not here: when it acts (the scenario), the guarantees (`checker`).

    reassigner = Reassigner(world, client, broker_ids)
    note = await reassigner.act()                  # one request of any kind; Unavailable without a response
    await reassigner.finish()                      # until no reassignment is ongoing (the brokers must run)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.checker import Partition, Violation
from simulation.client import Client, Unavailable
from simulation.world import World

_MAY_ANSWER = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    }
)
"""Deleted meanwhile; a broker that has died, or nobody in sync would stay; ended meanwhile."""

_POLL_S = 0.1


class Reassigner:
    """Asks the controller, as the client's metadata names it, for other replicas."""

    def __init__(
        self,
        world: World,
        client: Client,
        brokers: Sequence[int],
        *,
        may_move: Callable[[Partition], bool] = lambda _: True,
    ) -> None:
        """`may_move` leaves partitions alone; by default all may be moved."""
        self._world = world
        self._client = client
        self._brokers = list(brokers)
        self._may_move = may_move
        self._draw = world.stream("reassignments")
        self.begun = 0
        self.cancelled = 0

    async def act(self) -> str:
        """One request: mostly a new target for a random partition, sometimes a cancellation. What it was, for notes.

        Raises Unavailable when there is no answer: whether it was carried out is unknown then.
        """
        partitions = [p for p in sorted(self._client.state.partitions) if self._may_move(p)]
        if not partitions or self._draw.random() < 0.1:
            await self._client.refresh()
            return "refreshed"
        if self._draw.random() < 0.3:
            ongoing = sorted(await self.ongoing())
            if ongoing:
                partitions = [p for p in ongoing if self._may_move(p)] or partitions
        partition = self._draw.choice(partitions)
        if self._draw.random() < 0.25:
            return await self.cancel(partition)
        count = min(len(self._brokers), self._draw.choice((1, 2, 2, 3, 3, 3)))
        return await self.begin(partition, self._draw.sample(self._brokers, count))

    async def begin(self, partition: Partition, replicas: Sequence[int]) -> str:
        """Asks for these replicas. Raises Unavailable, and Violation for an answer that cannot be."""
        code = await self._alter(partition, list(replicas))
        self.begun += code is ErrorCode.NONE
        return f"{partition[0]}-{partition[1]} to {list(replicas)}: {code.name}"

    async def cancel(self, partition: Partition) -> str:
        """Takes back what is under way. Raises Unavailable, and Violation for an answer that cannot be."""
        code = await self._alter(partition, None)
        self.cancelled += code is ErrorCode.NONE
        return f"{partition[0]}-{partition[1]} cancelled: {code.name}"

    async def ongoing(self) -> dict[Partition, tuple[list[int], list[int], list[int]]]:
        """(replicas, adding, removing) of what is being reassigned. Raises Unavailable."""
        api = codec.module(ApiKey.LIST_PARTITION_REASSIGNMENTS)
        answer = await self._ask(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, api.ListPartitionReassignmentsRequest(topics=None)
        )
        return {
            (topic.name, part.partition_index): (
                list(part.replicas),
                list(part.adding_replicas),
                list(part.removing_replicas),
            )
            for topic in answer.topics
            for part in topic.partitions
        }

    async def finish(self, within_s: float = 120.0) -> None:
        """Waits until nothing is under way. Violation when that takes longer; all brokers must live."""
        deadline = self._world.loop.time() + within_s
        left: object = "unknown"
        while self._world.loop.time() < deadline:
            try:
                await self._client.refresh()
                left = await self.ongoing()
                if not left:
                    return
            except Unavailable:
                pass
            await asyncio.sleep(_POLL_S)
        raise Violation(f"reassignments are under way {within_s} s after the faults: {left}")

    async def _alter(self, partition: Partition, replicas: list[int] | None) -> ErrorCode:
        api = codec.module(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
        topic = api.ReassignableTopic(
            name=partition[0],
            partitions=[api.ReassignablePartition(partition_index=partition[1], replicas=replicas)],
        )
        answer = await self._ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, api.AlterPartitionReassignmentsRequest(topics=[topic])
        )
        code = ErrorCode.of(answer.responses[0].partitions[0].error_code)
        if code not in _MAY_ANSWER:
            raise Violation(f"reassigning {partition} to {replicas} gave {code.name}")
        return code

    async def _ask(self, api_key: ApiKey, body: Any) -> Any:
        state = self._client.state
        address = state.brokers.get(state.controller)
        if address is None:
            await self._client.refresh()
            raise Unavailable("no controller is known")
        answer = await self._client.request(address, api_key, 0, body, timeout_s=5.0)
        if answer.error_code:
            # without being the active controller, or on its way out: the next metadata names another.
            await self._client.refresh()
            raise Unavailable(ErrorCode.of(answer.error_code).name)
        return answer
