"""Creating logs: which directory, topic ids, and directories of an earlier log that kept their name."""

from __future__ import annotations

import errno
import os

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log_dirs.states import ONLINE
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, MakeStorage
from tests.broker.storage.logs import batch, written


async def test_new_logs_are_created_in_the_directory_with_the_fewest_partitions(make_storage: MakeStorage) -> None:
    broker = make_storage(3)
    manager = await broker.start()
    for number in range(9):
        await manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True)
    counts = [sum(log.state.disk.path == path for log in manager.logs) for path in broker.paths]
    assert counts == [3, 3, 3]


async def test_new_logs_are_created_in_the_preferred_directory_and_never_in_a_cordoned_one(
    make_storage: MakeStorage,
) -> None:
    broker = make_storage(2)
    manager = await broker.start()
    first, second = broker.paths
    manager.cordoned = (second,)
    paths = [(await manager.get_or_create(TopicPartition("a", n), TOPIC_ID, True)).state.disk.path for n in range(3)]
    assert paths == [first] * 3
    manager.cordoned = ()
    manager.prefer(T0, first)
    assert (await manager.get_or_create(T0, TOPIC_ID, True)).state.disk.path == first  # though it has three already
    manager.cordoned = (first, second)
    with pytest.raises(KafkaError, match="every log directory that is online and has room is cordoned") as caught:
        await manager.get_or_create(TopicPartition("a", 9), TOPIC_ID, True)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await manager.get_or_create(T0, TOPIC_ID, False) is manager.get(T0)


async def test_a_log_is_refused_when_it_belongs_to_another_topic_id(make_storage: MakeStorage) -> None:
    broker = make_storage()
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    assert await manager.get_or_create(T0, TOPIC_ID, False) is log
    with pytest.raises(KafkaError) as caught:
        await manager.get_or_create(T0, bytes(15) + b"\x01", False)
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize("is_repeated", [True, False])
async def test_a_new_topic_starts_empty_when_the_deleted_topic_of_its_name_could_not_be_renamed(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch, is_repeated: bool
) -> None:
    """The longer name of the renamed directory needs room too."""
    broker = make_storage()
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"of the topic that was deleted"), 0)
    await written(log)
    rename = os.rename

    def refuse(old: str, new: str) -> None:
        if new.endswith("-delete"):
            raise OSError(errno.ENOSPC, "No space left on device", new)
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(KafkaError):
        await manager.delete(T0)
    monkeypatch.setattr(os, "rename", rename)
    manager.access.apply(log.state.disk.path, ONLINE)
    if is_repeated:
        await manager.delete(T0)
        assert [name for name, is_directory, _ in await log.state.disk.list() if is_directory and name == "t-0"] == []
    again = await manager.get_or_create(T0, bytes(range(16, 32)), True)
    assert (again.state.log_start_offset, again.state.log_end_offset, again.state.topic_id) == (
        0,
        0,
        bytes(range(16, 32)),
    )
    found = (await broker.restart()).get(T0)
    assert found is not None and found.state.topic_id == bytes(range(16, 32))
