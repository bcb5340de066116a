"""Replicas made anew while a log directory is offline, and what a broker remembers of its directories."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters import disk_calls
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.recovery import Recovered
from ottla_broker.storage.log_dirs.log_directory import LogDirectoryError
from ottla_broker.storage.log_dirs.monitor import DirectoryMonitor
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.states import ONLINE
from tests.broker.storage.logs import batch, read_values, written
from tests.broker.storage.test_log_manager import Broker

T0 = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
OTHER_TOPIC_ID = bytes(range(16, 32))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """Three directories; t-0 is on d0 with two records."""
    made = Broker(tmp_path, 3, {}, LogManagerSettings())
    manager = await made.start()
    manager.prefer(T0, made.paths[0])
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    await write(log, b"old", b"older")
    yield made
    made.stop()
    await made.workers.wait_closed()


async def write(log: Log, *values: bytes) -> None:
    for value in values:
        log.append_as_leader(batch(value), 0)
    await written(log)


async def values(log: Log) -> list[bytes | None]:
    return [value for _, value in await read_values(log, 0)]


def fail(broker: Broker, number: int) -> None:
    path = broker.paths[number]
    broker.manager.directory_failed(broker.manager.disk(path), OSError(errno.EIO, "gone", path))


async def give_back(broker: Broker, number: int) -> None:
    """The directory works again, and the broker takes it at once."""
    path = broker.paths[number]
    watch: DirectoryMonitor = broker.manager.monitor
    while reason := await watch._try_to_reopen(path):
        assert reason == "a call on it has still not returned", reason
        await broker.clock.sleep(0.01)


def names(broker: Broker, number: int) -> list[str]:
    """Partition directories, what comes after the unique part of a set aside one."""
    found = sorted(path.name for path in Path(broker.paths[number]).iterdir() if path.is_dir())
    return [name.split(".")[0] + "." + name.rsplit("-", 1)[1] if "." in name else name for name in found]


def move(source: str | Path, target: str | Path) -> None:
    Path(source).rename(target)


def write_text(path: str | Path, text: str) -> None:
    Path(path).write_text(text)


def take_away(broker: Broker, number: int) -> None:
    """No directory is at its path until `put_back`."""
    path = broker.paths[number]
    move(path, path + "-away")
    write_text(path, "no directory")


def put_back(broker: Broker, number: int) -> None:
    path = broker.paths[number]
    remove(path)
    move(path + "-away", path)


def listed(path: str | Path) -> list[str]:
    return [one.name for one in Path(path).iterdir()]


def remove(path: str | Path) -> None:
    Path(path).unlink()


def make_directory(path: Path) -> None:
    path.mkdir()


def remove_directory(path: Path) -> None:
    path.rmdir()


def exchange_id(path: str | Path) -> str:
    """Gives the directory another directory.id; the one it had."""
    meta = Path(path, "meta.properties")
    text = meta.read_text()
    before = next(line for line in text.splitlines() if line.startswith("directory.id=")).partition("=")[2]
    meta.write_text(text.replace(before, "A" * 20 + Path(path).name))
    return before


async def test_a_replica_made_anew_is_the_one_that_counts_after_a_restart_with_both_copies(broker: Broker) -> None:
    fail(broker, 0)
    log = await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    assert log.log_end_offset == 0
    await write(log, b"new")
    manager = await broker.restart()
    found = manager.get(T0)
    assert found is not None and found.disk.path == broker.paths[1] and await values(found) == [b"new"]
    assert names(broker, 0) == ["t-0.stray"]
    assert manager.registry.is_catching_up(T0)


async def test_it_may_lead_only_once_it_has_been_filled_whatever_restarts_lie_between(broker: Broker) -> None:
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    assert (await broker.restart()).registry.is_catching_up(T0)
    await broker.manager.registry.caught_up(T0)
    assert not broker.manager.registry.is_catching_up(T0)
    assert not (await broker.restart()).registry.is_catching_up(T0)


async def test_a_broker_that_ended_before_the_new_copy_was_made_keeps_the_old_one(broker: Broker) -> None:
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    broker.stop()
    shutil.rmtree(Path(broker.paths[1], "t-0"))
    broker.make()
    manager = await broker.start()
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"old", b"older"]
    assert not manager.registry.is_catching_up(T0)


async def test_the_old_copy_is_set_aside_when_its_directory_returns(broker: Broker) -> None:
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    await give_back(broker, 0)
    assert names(broker, 0) == ["t-0.stray"] and names(broker, 1) == ["t-0"]
    assert (await broker.restart()).registry.is_catching_up(T0)


async def test_a_copy_whose_successor_is_on_a_directory_that_failed_too_is_not_taken_for_the_replica(
    broker: Broker,
) -> None:
    """The newest copy is on d1, which is away; the one on d0 is older, and the third directory remembers it."""
    fail(broker, 0)
    await write(await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1]), b"new")
    fail(broker, 1)
    await give_back(broker, 0)
    assert names(broker, 0) == ["t-0.stray"]
    assert broker.manager.is_on_offline_directory(T0)
    broker.stop()
    take_away(broker, 1)
    broker.make()
    manager = await broker.start()
    assert manager.offline_paths == [broker.paths[1]] and manager.get(T0) is None
    put_back(broker, 1)
    await give_back(broker, 1)
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"new"]


@pytest.mark.parametrize("made_since", [3, 0])
async def test_directories_that_were_away_in_turn_stand_together_again(broker: Broker, made_since: int) -> None:
    """The copy on d1 was made and not filled when d1 went; without it the others went on with the one on d0. The start
    was refused over the two copies (fleet 14575); where more had been written on d1 than since, the one that was not
    filled counted, and nobody led what the other one alone had in sync (fleet 58377)."""
    fail(broker, 0)
    fail(broker, 2)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    broker.stop()
    take_away(broker, 1)
    broker.make()
    manager = await broker.start()
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"old", b"older"]
    for number in range(made_since):
        await manager.recreate(TopicPartition("u", number), TOPIC_ID, broker.paths[0], is_catching_up=True)
    await write(found, b"newer")
    broker.stop()
    put_back(broker, 1)
    broker.make()
    manager = await broker.start()
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"old", b"older", b"newer"]
    assert not manager.registry.is_catching_up(T0)


async def test_one_that_is_here_is_not_made_anew(broker: Broker) -> None:
    with pytest.raises(KafkaError) as caught:
        await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_what_an_offline_directory_held_does_not_stand_against_a_namesake_made_meanwhile(broker: Broker) -> None:
    """A person gave the directory up, or the topic was deleted and made again: the start finds both copies."""
    fail(broker, 0)
    log = await broker.manager.recreate(T0, OTHER_TOPIC_ID)
    assert not broker.manager.registry.is_catching_up(T0)
    home = log.disk.path
    found = (await broker.restart()).get(T0)
    assert found is not None and found.disk.path == home and found.topic_id == OTHER_TOPIC_ID
    assert names(broker, 0) == ["t-0.stray"]


async def test_what_was_deleted_does_not_return_with_the_directory_of_an_older_copy(broker: Broker) -> None:
    """It would be served: the older copy of a partition that the controller believes gone here."""
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1])
    await broker.manager.delete(T0)
    await give_back(broker, 0)
    assert broker.manager.get(T0) is None
    assert names(broker, 0) == ["t-0.stray"]
    again = await broker.manager.get_or_create(T0, OTHER_TOPIC_ID, True)
    assert again.log_end_offset == 0


async def test_a_deleted_replica_leaves_nothing_that_its_namesake_would_be_taken_for(broker: Broker) -> None:
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    await broker.manager.delete(T0)
    await broker.manager.get_or_create(T0, OTHER_TOPIC_ID, True)
    assert not broker.manager.registry.is_catching_up(T0)
    assert not (await broker.restart()).registry.is_catching_up(T0)


async def test_a_deletion_that_fails_half_way_leaves_the_newest_copy_the_one_that_counts(broker: Broker) -> None:
    """Else the next start finds the partition twice and nobody to tell which is the older one."""
    fail(broker, 0)
    await write(await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1]), b"new")
    in_the_way = Path(broker.paths[1], "recovery-point-offset-checkpoint.tmp")
    make_directory(in_the_way)
    with pytest.raises(KafkaError):
        await broker.manager.delete(T0)
    assert "t-0" in listed(broker.paths[1])
    remove_directory(in_the_way)
    found = (await broker.restart()).get(T0)
    assert found is not None and found.disk.path == broker.paths[1] and await values(found) == [b"new"]
    assert names(broker, 0) == ["t-0.stray"]


async def test_what_a_directory_that_lost_power_brings_back_is_not_taken_for_whole(broker: Broker) -> None:
    """It was away at the start, so nobody knows how long its logs were; their ends may be gone."""
    broker.stop()
    path, away = broker.paths[0], broker.paths[0] + "-away"
    write_text(Path(path, "ottla.boot-id"), "another boot")
    move(path, away)
    write_text(path, "no directory")
    broker.make()
    returned: list[dict[TopicPartition, bool]] = []
    broker.manager.reopening._on_reopened = lambda _, logs: returned.append(dict(logs))
    manager = await broker.start()
    assert manager.offline_paths == [path]
    remove(path)
    move(away, path)
    await give_back(broker, 0)
    assert returned == [{T0: False}]


async def test_a_replica_that_is_being_filled_is_not_moved(broker: Broker) -> None:
    """The next start would not find it where the record says that it is being filled, and let it lead."""
    fail(broker, 0)
    log = await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    await give_back(broker, 0)
    other = broker.manager.disk(broker.paths[2])
    with pytest.raises(KafkaError, match="does not have every record yet") as caught:
        await broker.manager.future_replicas.create(log, other)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    await broker.manager.registry.caught_up(T0)
    assert await broker.manager.future_replicas.create(log, other) is not None


async def test_another_directory_at_a_path_is_a_failed_directory_and_may_be_accepted(broker: Broker) -> None:
    """Both are of this broker, so nothing but directory.id tells them apart."""
    broker.stop()
    before = exchange_id(broker.paths[0])
    broker.settings = LogManagerSettings(may_format=())
    broker.make()
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


async def test_the_right_directory_is_taken_when_it_takes_the_place_of_the_wrong_one(broker: Broker) -> None:
    broker.stop()
    path = broker.paths[0]
    shutil.copytree(path, path + "-right")
    exchange_id(path)
    broker.settings = LogManagerSettings(may_format=())
    broker.make()
    manager = await broker.start()
    assert manager.offline_paths == [path]
    move(path, path + "-wrong")
    move(path + "-right", path)
    await give_back(broker, 0)
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"old", b"older"]


async def test_a_broker_with_none_but_wrong_directories_does_not_start(broker: Broker) -> None:
    broker.stop()
    for path in broker.paths:
        exchange_id(path)
    broker.settings = LogManagerSettings(may_format=())
    broker.make()
    with pytest.raises(LogDirectoryError, match="is another one"):
        await broker.start()


async def test_a_directory_whose_record_cannot_be_understood_is_offline_and_the_file_is_named(broker: Broker) -> None:
    broker.stop()
    write_text(Path(broker.paths[1], "ottla.directories"), '{"version": 1}')
    broker.make()
    manager = await broker.start()
    assert manager.offline_paths == [broker.paths[1]]
    assert "d1/ottla.directories" in manager.states[broker.paths[1]].reason


async def test_a_single_directory_keeps_no_record(tmp_path: Path) -> None:
    broker = Broker(tmp_path, 1, {}, LogManagerSettings())
    await broker.start()
    broker.stop()
    await broker.workers.wait_closed()
    assert "ottla.directories" not in listed(broker.paths[0])


async def test_a_copy_of_before_is_no_move_of_a_replica_that_was_made_anew(
    tmp_path: Path,
) -> None:
    """The record of the directories names its home: were it elsewhere, the oldest copy would count as well."""
    broker = Broker(tmp_path, 3, {}, LogManagerSettings())
    manager = await broker.start()
    manager.prefer(T0, broker.paths[0])
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    await write(log, b"old", b"older")
    assert await manager.future_replicas.create(log, manager.disk(broker.paths[1])) is not None
    fail(broker, 0)
    await write(await manager.recreate(T0, TOPIC_ID, broker.paths[2], is_catching_up=True), b"new")

    broker.stop()
    away = str(broker.paths[0]) + "-away"
    move(broker.paths[0], away)
    write_text(broker.paths[0], "no directory")
    broker.make()
    manager = await broker.start()
    for known in manager.future_replicas.in_progress:  # what a command of the controller does
        manager.future_replicas.run(known, lambda one: manager.future_replicas.swap(one, lambda log: None))
    async with asyncio.timeout(60):
        while manager.future_replicas.in_progress:
            await broker.clock.sleep(0.01)
    await manager.future_replicas.cancel(T0)
    broker.stop()
    remove(broker.paths[0])
    move(away, broker.paths[0])
    broker.make()
    manager = await broker.start()
    found = manager.get(T0)
    assert found is not None and await values(found) == [b"new"]
    assert manager.registry.is_catching_up(T0)
    broker.stop()
    await broker.workers.wait_closed()


async def test_a_replica_of_another_topic_is_not_taken_for_one_that_is_being_filled(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its predecessor was deleted while no directory had room for the record that said so."""
    fail(broker, 0)
    await broker.manager.recreate(T0, TOPIC_ID, broker.paths[1], is_catching_up=True)
    await give_back(broker, 0)
    write_file = disk_calls.write_file

    def write(path: str, data: bytes, is_private: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(disk_calls, "write_file", write)
    with pytest.raises(KafkaError):
        await broker.manager.delete(T0)
    monkeypatch.setattr(disk_calls, "write_file", write_file)
    for path in broker.paths:
        broker.manager.access.apply(path, ONLINE)
    await broker.manager.delete(T0)  # asked for again
    broker.manager.prefer(T0, broker.paths[1])
    await broker.manager.get_or_create(T0, OTHER_TOPIC_ID, True)
    assert not (await broker.restart()).registry.is_catching_up(T0), "nobody may ever lead it"


async def test_a_directory_whose_return_ends_with_a_worker_is_tried_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the kernel takes the process that recovers its longest log, for lack of memory."""
    recover = broker.manager.recovery_threads.run

    async def dies(*arguments: Any) -> Recovered:
        raise RuntimeError("a worker process died")

    monkeypatch.setattr(broker.manager.recovery_threads, "run", dies)
    fail(broker, 0)
    path, watch = broker.paths[0], broker.manager.monitor
    while (reason := await watch._try_to_reopen(path)) == "a call on it has still not returned":
        await broker.clock.sleep(0.01)
    assert reason == "a worker process died" and broker.manager.offline_paths == [path]
    assert broker.manager.progress.current == []
    monkeypatch.setattr(broker.manager.recovery_threads, "run", recover)
    await give_back(broker, 0)
    log = broker.manager.get(T0)
    assert log is not None and await values(log) == [b"old", b"older"]
