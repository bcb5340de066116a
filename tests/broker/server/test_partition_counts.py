"""How many partitions the internal topics have, while brokers miss some of them: by the assignment, in virtual time."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from ottla_broker.config.topics import CONSUMER_OFFSETS, COORDINATOR_TOPICS, TRANSACTION_STATE
from ottla_broker.coordination import znodes
from ottla_broker.metadata.cache import LEADER_DURING_DELETE, MetadataCache
from ottla_broker.ports.coordination import SessionEvent
from ottla_broker.protocol.generated import update_metadata as um
from ottla_broker.server.partition_counts import PartitionCounts
from tests.broker.server.virtual_store import Sessions, in_virtual_time

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
PATH = znodes.topic_path(CONSUMER_OFFSETS)


class Server:
    """Broker 7."""

    def __init__(self, sessions: Sessions) -> None:
        self.here = sessions.broker
        self.controller = sessions.controller
        self.store = sessions.store
        self.settle = sessions.settle
        self.metadata = MetadataCache(7)
        self.counts = PartitionCounts(self.here, sessions.clock, self.metadata, logging.getLogger("test"))

    @property
    def count(self) -> int | None:
        return self.counts.of(CONSUMER_OFFSETS)

    def update(self, *indexes: int, topic_id: uuid.UUID = ONE, leader: int = 7) -> None:
        states = [um.UpdateMetadataPartitionState(partition_index=index, leader=leader) for index in indexes]
        topic = um.UpdateMetadataTopicState(
            topic_name=CONSUMER_OFFSETS, topic_id=topic_id.bytes, partition_states=states
        )
        self.metadata.update(um.UpdateMetadataRequest(topic_states=[topic]))


def assignment(count: int, topic_id: uuid.UUID | None = ONE) -> bytes:
    return znodes.TopicAssignment(dict.fromkeys(range(count), (7,)), topic_id).encode()


def served(scenario: Callable[[Server], Coroutine[Any, Any, None]]) -> None:
    in_virtual_time(lambda sessions: scenario(Server(sessions)))


def test_partitions_without_a_leader_count_from_the_start_of_a_broker_on() -> None:
    async def scenario(server: Server) -> None:
        await server.controller.create(PATH, assignment(50))
        assert server.count is None
        await server.counts.start()
        assert (server.count, server.counts.of(TRANSACTION_STATE)) == (50, 0)
        server.update(0, 2, 3)
        assert server.count == 50
        server.update(1, 49)
        assert server.count == 50

    served(scenario)


def test_a_topic_that_is_created_counts_before_it_has_a_leader() -> None:
    async def scenario(server: Server) -> None:
        await server.counts.start()
        assert [server.counts.of(topic) for topic in COORDINATOR_TOPICS] == [0, 0]
        await server.controller.create(PATH, assignment(50))
        await server.settle()
        assert server.count == 50

    served(scenario)


def test_a_topic_that_is_created_again_counts_when_its_own_assignment_is_read() -> None:
    async def scenario(server: Server) -> None:
        await server.controller.create(PATH, assignment(50))
        await server.counts.start()
        server.update(*range(50))
        server.here.hold()  # it hears of nothing
        await server.controller.delete(PATH)
        await server.controller.create(PATH, assignment(10, OTHER))
        server.update(0, topic_id=OTHER)
        assert server.count is None
        server.here.let_go()
        await server.settle()
        assert server.count == 10
        server.update(0, topic_id=OTHER, leader=LEADER_DURING_DELETE)
        await server.controller.delete(PATH)
        await server.settle()
        assert server.count == 0

    served(scenario)


def test_added_partitions_count_when_their_assignment_is_read() -> None:
    async def scenario(server: Server) -> None:
        await server.controller.create(PATH, assignment(4))
        await server.counts.start()
        server.update(*range(4))
        server.here.hold()
        await server.controller.set(PATH, assignment(6))
        server.update(5)
        assert server.count is None
        server.here.let_go()
        await server.settle()
        assert server.count == 6

    served(scenario)


def test_an_assignment_counts_that_changed_while_the_broker_had_no_session() -> None:
    async def scenario(server: Server) -> None:
        await server.controller.create(PATH, assignment(4, None))  # of a cluster before topic ids
        await server.counts.start()
        events: list[SessionEvent] = []
        server.here.add_session_listener(events.append)
        server.store.expire(server.here.session_id)
        await server.controller.set(PATH, assignment(6))
        await server.settle()
        assert SessionEvent.EXPIRED in events and server.count == 6

    served(scenario)


def test_an_assignment_that_cannot_be_read_leaves_the_count_as_it_is() -> None:
    async def scenario(server: Server) -> None:
        await server.controller.create(PATH, assignment(4))
        await server.counts.start()
        await server.controller.set(PATH, b"not JSON")
        await server.settle()
        assert server.count == 4
        await server.controller.set(PATH, assignment(5))
        await server.settle()
        assert server.count == 5

    served(scenario)
