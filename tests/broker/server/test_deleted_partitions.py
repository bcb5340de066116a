"""Which partitions that the metadata lack are deleted, as the coordination store says, in virtual time."""

from __future__ import annotations

import logging

from ottla_broker.coordination import znodes
from ottla_broker.records.ids import TopicPartition
from ottla_broker.server.deleted_partitions import DeletedPartitions
from tests.broker.server.virtual_store import Sessions, in_virtual_time

T0, T7 = TopicPartition("t", 0), TopicPartition("t", 7)
PATH = znodes.topic_path("t")


def assignment(count: int) -> bytes:
    return znodes.TopicAssignment(dict.fromkeys(range(count), (7,))).encode()


async def deleted(sessions: Sessions, partitions: DeletedPartitions) -> list[TopicPartition]:
    """As whoever asks again learns after a while."""
    for _ in range(2):
        found = [one for one in (T0, T7) if partitions.is_deleted(one)]
        await sessions.clock.sleep(0.5)
    return found


def make(sessions: Sessions) -> DeletedPartitions:
    return DeletedPartitions(sessions.broker, sessions.clock, logging.getLogger("test"))


def test_a_partition_is_deleted_when_no_assignment_has_it() -> None:
    async def scenario(sessions: Sessions) -> None:
        partitions = make(sessions)
        assert not partitions.is_deleted(T0), "the store has not answered"
        await sessions.settle()
        assert await deleted(sessions, partitions) == [T0, T7]
        await sessions.controller.create(PATH, assignment(8))
        await sessions.settle()
        assert await deleted(sessions, partitions) == []
        await sessions.controller.set(PATH, assignment(4))  # it was created again with fewer
        await sessions.settle()
        assert await deleted(sessions, partitions) == [T7]

    in_virtual_time(scenario)


def test_a_partition_is_deleted_while_its_topic_is_being_deleted() -> None:
    """A broker with a replica is down: that may take days."""

    async def scenario(sessions: Sessions) -> None:
        await sessions.controller.create(PATH, assignment(8))
        await sessions.controller.create(znodes.delete_topic_path("t"))
        assert await deleted(sessions, make(sessions)) == [T0, T7]

    in_virtual_time(scenario)


def test_a_partition_is_not_deleted_while_the_store_does_not_say_so() -> None:
    async def scenario(sessions: Sessions) -> None:
        partitions = make(sessions)
        await sessions.controller.create(PATH, b"not JSON")
        assert await deleted(sessions, partitions) == []
        await sessions.controller.delete(PATH)
        sessions.store.disconnect(sessions.broker, 3.0)
        assert await deleted(sessions, partitions) == []
        await sessions.settle()
        assert await deleted(sessions, partitions) == [T0, T7]

    in_virtual_time(scenario)


def test_the_store_is_asked_once_a_second() -> None:
    async def scenario(sessions: Sessions) -> None:
        await sessions.controller.create(PATH, assignment(8))
        asked: list[str] = []
        get = sessions.broker.get
        sessions.broker.get = lambda path, watch=None: (asked.append(path), get(path, watch))[1]  # type: ignore[method-assign]
        partitions = make(sessions)
        for _ in range(200):  # a marker looks for its leader every 50 ms
            assert not partitions.is_deleted(T7)
            await sessions.clock.sleep(0.05)
        assert 5 <= len(asked) <= 11 and set(asked) == {PATH}

    in_virtual_time(scenario)
