"""The administrator of a simulated fleet: creates, grows and deletes topics and moves replicas while faults occur.

Each request uses the real protocol; it may succeed, fail temporarily or get no response. The checker learns of a change
once it has certainly happened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.checker import Partition, Violation
from simulation.client import Client, Unavailable
from simulation.cluster import SimulatedFleet
from simulation.leaderships import Leaderships
from simulation.reassignments import Reassigner
from simulation.workload import Workload, create_topic, delete_topic

_MOST_PARTITIONS = 8


class Administrator:
    """See the module. `replicas` is the usual replication factor of topics."""

    def __init__(
        self,
        workload: Workload,
        fleet: SimulatedFleet,
        leaderships: Leaderships,
        clients: Sequence[Client],
        replicas: int,
    ) -> None:
        self.workload = workload
        self.fleet = fleet
        self.leaderships = leaderships
        self.clients = clients
        self.replicas = replicas
        self.random = workload.world.stream("administrator")
        self.reassigner = Reassigner(
            workload.world, clients[1], [broker.broker_id for broker in fleet.brokers], may_move=self._may_move
        )
        self._created = 0
        self._elected_uncleanly: dict[Partition, None] = {}

    async def run(self) -> None:
        """One act after the other until the workload stops."""
        while not self.workload.is_stopping:
            await asyncio.sleep(self.random.choice((0.3, 1.0, 4.0)) * self.random.random())
            if self.workload.is_stopping:
                return
            topics = sorted(self.workload.checker.topics)
            act = self.random.random()
            partitions = sum(self.workload.checker.topics.values())
            if act < 0.4:
                await self._reassign()
            elif act < 0.5:
                await self._elect()
            elif not topics or (act < 0.7 and partitions < _MOST_PARTITIONS):
                self._created += 1
                await self.create(f"u{self._created}")
            elif act < 0.8 and len(topics) > 1:
                # The topic of the committed offsets stays: they are compared to the end.
                await delete_topic(self.workload, self.clients[0], self.random.choice(topics[1:]))
            elif act < 0.9 and partitions < _MOST_PARTITIONS:
                await self.grow(self.random.choice(topics))

    async def _reassign(self) -> None:
        try:
            self.workload.world.note(f"reassignment: {await self.reassigner.act()}")
        except Unavailable:
            return  # whether it was begun is unknown: `finish` waits for whatever is under way

    async def _elect(self) -> None:
        """Asks for the preferred leader of a partition; rarely, where none leads, for anybody (it may lose records)."""
        state = self.clients[1].state
        partitions = [part for part in sorted(state.partitions) if self.workload.still_exists(part[0])]
        if not partitions or state.controller not in state.brokers:
            return
        partition = self.random.choice(partitions)
        is_unclean = self.random.random() < 0.2
        if is_unclean:
            self.leaderships.unclean_allowed[partition[0]] = None
            self._elected_uncleanly[partition] = None
        await self._elect_leader(partition, is_unclean=is_unclean)

    async def _elect_leader(self, partition: Partition, *, is_unclean: bool) -> None:
        api, client = codec.module(ApiKey.ELECT_LEADERS), self.clients[1]
        address = client.state.brokers[client.state.controller]
        topic = api.TopicPartitions(topic=partition[0], partitions=[partition[1]])
        body = api.ElectLeadersRequest(election_type=int(is_unclean), topic_partitions=[topic], timeout_ms=5000)
        self.workload.world.note(
            f"{'unclean' if is_unclean else 'preferred'} election of {partition[0]}-{partition[1]}"
        )
        try:
            answer = await client.request(address, ApiKey.ELECT_LEADERS, self.random.randrange(1, 3), body)
        except Unavailable:
            return
        codes = [part.error_code for topic in answer.replica_election_results for part in topic.partition_result]
        for code in [ErrorCode.of(code) for code in (answer.error_code, *codes)]:
            if code not in _ELECTION_ANSWERS and not code.retriable:
                raise Violation(f"electing a leader of {partition} gave {code.name}")

    def _may_move(self, partition: Partition) -> bool:
        return not partition[0].startswith("__") or self.random.random() < 0.2

    async def finish(self) -> None:
        """All faults are healed: nothing is under way any more when this returns."""
        await self.reassigner.finish()
        for partition in self._elected_uncleanly:
            await self._elect_somebody_else(partition)

    async def _elect_somebody_else(self, partition: Partition) -> None:
        """An unclean election may have taken a replica that is being filled and refuses to lead, alone in the ISR from
        then on: whoever has asked for it has to ask again (docs/internals/decisions/0023)."""
        while (state := self.leaderships.states.get(partition)) is not None and state.leader < 0:
            if not all(self.fleet.brokers[member].is_filling(partition) for member in state.in_sync):
                return
            with contextlib.suppress(Unavailable):
                if (await self.clients[1].refresh()).controller in self.clients[1].state.brokers:
                    await self._elect_leader(partition, is_unclean=True)
            await asyncio.sleep(0.5)

    async def create(self, name: str) -> None:
        """A topic with its producers and consumers; returns without it when the workload stops before."""
        draw = self.random
        configs = {}
        if draw.random() < 0.3:
            configs["min.insync.replicas"] = draw.choice(("1", "2"))
        if draw.random() < 0.3:
            configs["segment.bytes"] = "20000"
        replicas = draw.choice((self.replicas, self.replicas, self.replicas, min(2, len(self.fleet.brokers))))
        partitions = draw.choice((1, 1, 2, 3))
        if await create_topic(self.workload, self.clients[0], name, partitions, replicas, configs):
            for number in range(partitions):
                self._add_clients((name, number))

    async def grow(self, name: str) -> None:
        """One partition more."""
        workload, client = self.workload, self.clients[0]
        wanted = workload.checker.topics[name] + 1
        api = codec.module(ApiKey.CREATE_PARTITIONS)
        body = api.CreatePartitionsRequest(
            topics=[api.CreatePartitionsTopic(name=name, count=wanted, assignments=None)],
            timeout_ms=10_000,
            validate_only=False,
        )
        while not workload.is_stopping and workload.still_exists(name):
            try:
                state = await client.refresh()
                if sum(topic == name for topic, _ in state.partitions) >= wanted:
                    break
                address = state.brokers.get(state.controller)
                if address is None:
                    raise Unavailable("no controller is known")
                answer = await client.request(
                    address, ApiKey.CREATE_PARTITIONS, self.random.randrange(0, 4), body, timeout_s=15.0
                )
                code = ErrorCode.of(answer.results[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
                    break
                if not code.retriable and code not in _FOR_THE_MOMENT and workload.still_exists(name):
                    raise Violation(f"adding a partition to {name} gave {code.name}")
            except Unavailable:
                pass
            await asyncio.sleep(0.3)
        else:
            # It may have been made or not: what is there at the end is right either way.
            if workload.still_exists(name):
                workload.checker.may_have(name, wanted)
            return
        if workload.still_exists(name):
            workload.checker.topic_created(name, wanted)
            self._add_clients((name, wanted - 1))

    def _add_clients(self, partition: tuple[str, int]) -> None:
        draw, workload = self.random, self.workload
        for _ in range(draw.choice((1, 1, 2))):
            kind = draw.random()
            acks = draw.choice((0, 1, -1))
            workload.add_producer(
                draw.choice(self.clients), partition, acks=-1 if kind < 0.65 else acks, is_idempotent=kind < 0.65
            )
        workload.add_consumer(draw.choice(self.clients), partition)


_ELECTION_ANSWERS = (
    ErrorCode.NONE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
_FOR_THE_MOMENT = (ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.REASSIGNMENT_IN_PROGRESS)
