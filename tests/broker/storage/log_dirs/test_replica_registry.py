"""What a broker remembers of recreated replicas and of its directories, over restarts."""

from __future__ import annotations

import errno
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log_dirs.log_directory import LogDirectoryError
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.states import ONLINE
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, BrokerStorage
from tests.broker.storage.log_dirs.replicas import (
    OTHER_TOPIC_ID,
    exchange_id,
    fail,
    listed,
    make_directory,
    move_path,
    names,
    put_back,
    remove,
    remove_directory,
    reopen,
    take_away,
    values,
    write,
    write_text,
)
from tests.broker.storage.logs import until


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerStorage]:
    """Three directories; t-0 is on d0 with two records."""
    made = BrokerStorage(tmp_path, 3, {}, LogManagerSettings())
    manager = await made.start()
    manager.prefer(T0, made.paths[0])
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    await write(log, b"old", b"older")
    yield made
    made.stop()
    await made.workers.wait_closed()


async def test_the_recreated_replica_is_used_when_a_start_finds_its_older_log_too(broker: BrokerStorage) -> None:
    fail(broker, 0)
    log = await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    assert log.state.log_end_offset == 0
    await write(log, b"new")
    manager = await broker.restart()
    found = manager.get(T0)
    assert found is not None and found.state.disk.path == broker.paths[1] and await values(found) == [b"new"]
    assert names(broker, 0) == ["t-0.stray"]
    assert manager.registry.is_catching_up(T0)


async def test_a_recreated_replica_is_catching_up_until_it_has_caught_up_also_after_restarts(
    broker: BrokerStorage,
) -> None:
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    assert (await broker.restart()).registry.is_catching_up(T0)
    await broker.manager.registry.caught_up(T0)
    assert not broker.manager.registry.is_catching_up(T0)
    assert not (await broker.restart()).registry.is_catching_up(T0)


async def test_the_older_log_is_used_when_the_broker_stopped_before_the_replica_was_recreated(
    broker: BrokerStorage,
) -> None:
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    broker.stop()
    shutil.rmtree(Path(broker.paths[1], "t-0"))
    broker.create_manager()
    manager = await broker.start()
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"old", b"older"]
    assert not manager.registry.is_catching_up(T0)


@pytest.mark.parametrize("made_since", [3, 0])
async def test_the_newer_log_is_used_when_directories_were_offline_one_after_the_other(
    broker: BrokerStorage, made_since: int
) -> None:
    """The replica on d1 was catching up when d1 failed; without d1 the broker went on with the log on d0. A start with
    both was refused (fleet 14575); with a higher revision on d1 its replica was used and nobody led (fleet 58377)."""
    fail(broker, 0)
    fail(broker, 2)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    broker.stop()
    take_away(broker, 1)
    broker.create_manager()
    manager = await broker.start()
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"old", b"older"]
    for number in range(made_since):
        await manager.recreate(TopicPartition("u", number), TOPIC_ID, broker.paths[0], is_catching_up=True)
    await write(found, b"newer")
    broker.stop()
    put_back(broker, 1)
    broker.create_manager()
    manager = await broker.start()
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"old", b"older", b"newer"]
    assert not manager.registry.is_catching_up(T0)


async def test_a_replica_that_is_online_is_not_recreated(broker: BrokerStorage) -> None:
    with pytest.raises(KafkaError) as caught:
        await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_an_older_log_becomes_a_stray_when_its_topic_was_created_again_meanwhile(broker: BrokerStorage) -> None:
    """The topic was deleted and created again: the start finds both logs."""
    fail(broker, 0)
    log = await broker.manager.recreate(T0, OTHER_TOPIC_ID)
    assert not broker.manager.registry.is_catching_up(T0)
    path = log.state.disk.path
    found = (await broker.restart()).get(T0)
    assert found is not None and found.state.disk.path == path and found.state.topic_id == OTHER_TOPIC_ID
    assert names(broker, 0) == ["t-0.stray"]


async def test_a_new_topic_is_not_catching_up_when_the_deleted_topic_of_its_name_was(broker: BrokerStorage) -> None:
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    await broker.manager.delete(T0)
    await broker.manager.get_or_create(T0, OTHER_TOPIC_ID, True)
    assert not broker.manager.registry.is_catching_up(T0)
    assert not (await broker.restart()).registry.is_catching_up(T0)


async def test_the_newest_log_is_used_after_a_deletion_that_failed(broker: BrokerStorage) -> None:
    """Otherwise the next start would find the partition twice and not know which log is older."""
    fail(broker, 0)
    await write(await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1]), b"new")
    in_the_way = Path(broker.paths[1], "recovery-point-offset-checkpoint.tmp")
    make_directory(in_the_way)
    with pytest.raises(KafkaError):
        await broker.manager.delete(T0)
    assert "t-0" in listed(broker.paths[1])
    remove_directory(in_the_way)
    found = (await broker.restart()).get(T0)
    assert found is not None and found.state.disk.path == broker.paths[1] and await values(found) == [b"new"]
    assert names(broker, 0) == ["t-0.stray"]


async def test_a_replica_that_is_catching_up_is_not_moved_to_another_directory(broker: BrokerStorage) -> None:
    """The next start would not find it in the recorded directory, and would let it lead."""
    fail(broker, 0)
    log = await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    await reopen(broker, 0)
    other = broker.manager.disk(broker.paths[2])
    with pytest.raises(KafkaError, match="does not have every record yet") as caught:
        await broker.manager.future_replicas.create(log, other)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    await broker.manager.registry.caught_up(T0)
    assert await broker.manager.future_replicas.create(log, other) is not None


async def test_a_directory_with_another_directory_id_is_offline_without_format_permission(
    broker: BrokerStorage,
) -> None:
    """Both belong to this broker: only directory.id distinguishes them."""
    broker.stop()
    before = exchange_id(broker.paths[0])
    broker.settings = LogManagerSettings(may_format=())
    broker.create_manager()
    manager = await broker.start()
    assert manager.offline_paths == [broker.paths[0]]
    reason = manager.states[broker.paths[0]].reason
    assert "has directory.id AAAAA" in reason and before in reason
    with pytest.raises(KafkaError):
        await manager.get_or_create(T0, TOPIC_ID, False)
    assert "the one that failed has" in await manager.monitor._try_to_reopen(broker.paths[0])

    broker.settings = LogManagerSettings(may_format=(broker.paths[0],))
    manager = await broker.restart()
    assert manager.offline_paths == [] and manager.get(T0) is not None
    broker.settings = LogManagerSettings(may_format=())
    assert (await broker.restart()).offline_paths == []


async def test_a_start_is_refused_when_every_directory_has_another_directory_id(broker: BrokerStorage) -> None:
    broker.stop()
    for path in broker.paths:
        exchange_id(path)
    broker.settings = LogManagerSettings(may_format=())
    broker.create_manager()
    with pytest.raises(LogDirectoryError, match="is another one"):
        await broker.start()


async def test_a_directory_with_a_damaged_registry_is_offline_with_the_name_of_the_file(broker: BrokerStorage) -> None:
    broker.stop()
    write_text(Path(broker.paths[1], "ottla.directories"), '{"version": 1}')
    broker.create_manager()
    manager = await broker.start()
    assert manager.offline_paths == [broker.paths[1]]
    assert "d1/ottla.directories" in manager.states[broker.paths[1]].reason


async def test_a_broker_with_one_directory_writes_no_registry(tmp_path: Path) -> None:
    broker = BrokerStorage(tmp_path, 1, {}, LogManagerSettings())
    await broker.start()
    broker.stop()
    await broker.workers.wait_closed()
    assert "ottla.directories" not in listed(broker.paths[0])


async def test_a_future_log_is_deleted_when_its_replica_was_recreated_since(
    tmp_path: Path,
) -> None:
    """The registry has the directory of the replica: if it moved, the oldest log would be used."""
    broker = BrokerStorage(tmp_path, 3, {}, LogManagerSettings())
    manager = await broker.start()
    manager.prefer(T0, broker.paths[0])
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    await write(log, b"old", b"older")
    assert await manager.future_replicas.create(log, manager.disk(broker.paths[1])) is not None
    fail(broker, 0)
    await write(await manager.recreate(T0, TOPIC_ID, broker.paths[2], is_catching_up=True), b"new")

    broker.stop()
    away = str(broker.paths[0]) + "-away"
    move_path(broker.paths[0], away)
    write_text(broker.paths[0], "no directory")
    broker.create_manager()
    manager = await broker.start()
    for known in manager.future_replicas.in_progress:  # as after a command of the controller
        manager.future_replicas.run(known, lambda one: manager.future_replicas.swap(one, lambda log: None))
    await until(lambda: not manager.future_replicas.in_progress)
    await manager.future_replicas.cancel(T0)
    broker.stop()
    remove(broker.paths[0])
    move_path(away, broker.paths[0])
    broker.create_manager()
    manager = await broker.start()
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"new"]
    assert manager.registry.is_catching_up(T0)
    broker.stop()
    await broker.workers.wait_closed()


async def test_a_new_topic_is_not_catching_up_when_the_deletion_of_its_predecessor_had_no_room(
    broker: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No directory had room for the registry when the earlier topic was deleted."""
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    await reopen(broker, 0)
    write_file = disk_calls.write_file

    def write(path: str, data: bytes, is_private: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(disk_calls, "write_file", write)
    with pytest.raises(KafkaError):
        await broker.manager.delete(T0)
    monkeypatch.setattr(disk_calls, "write_file", write_file)
    for path in broker.paths:
        broker.manager.access.apply(path, ONLINE)
    await broker.manager.delete(T0)  # repeated
    broker.manager.prefer(T0, broker.paths[1])
    await broker.manager.get_or_create(T0, OTHER_TOPIC_ID, True)
    assert not (await broker.restart()).registry.is_catching_up(T0), "nobody may ever lead it"
