"""Deleting logs and making them strays, also in a directory without room for their new name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log_dirs.states import DirectoryState
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, MakeStorage, refuse_other_names
from tests.broker.storage.logs import batch, written


async def test_a_deletion_frees_the_name_at_once_and_deletes_the_files_later(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage(file_delete_delay_ms=3_600_000)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"old"), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(1)
    await manager.checkpoint_high_watermarks()
    await manager.delete(T0)
    assert manager.get(T0) is None
    assert [path.name[-7:] for path in (tmp_path / "d0").iterdir() if path.is_dir()] == ["-delete"]
    assert (tmp_path / "d0" / "replication-offset-checkpoint").read_text() == "0\n0\n"
    log = await manager.get_or_create(T0, bytes(15) + b"\x02", True)
    assert log.state.log_end_offset == 0
    await broker.restart()
    assert [path.name for path in (tmp_path / "d0").iterdir() if path.is_dir()] == ["t-0"]


@pytest.mark.parametrize("becomes_stray", [False, True])
async def test_a_start_succeeds_when_a_removed_log_could_not_be_renamed(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch, becomes_stray: bool
) -> None:
    """The partition leaves this broker and is assigned to it again while its directory is full: a log in the other
    directory would be a second one."""
    broker = make_storage(2)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    path = log.state.disk.path
    log.append_as_leader(batch(b"old"), 0)
    await written(log)
    make_room = refuse_other_names(monkeypatch, "-delete", "-stray")
    with pytest.raises(KafkaError):
        await (manager.make_stray if becomes_stray else manager.delete)(T0)
    assert manager.states[path].state is DirectoryState.FULL
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            await manager.get_or_create(T0, TOPIC_ID, True)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    make_room()
    again = await manager.get_or_create(T0, TOPIC_ID, True)
    assert again.state.disk.path != path and again.state.log_end_offset == 0
    names = [name for name, is_directory, _ in await log.state.disk.list() if is_directory]
    assert [name.rsplit("-", 1)[1] for name in names] == ["stray" if becomes_stray else "delete"]
    await manager.delete(T0)
    names = [name for name, is_directory, _ in await log.state.disk.list() if is_directory]
    assert [name.rsplit("-", 1)[1] for name in names] == ["stray" if becomes_stray else "delete"], "not of this log"
    again = await manager.get_or_create(T0, TOPIC_ID, True)
    found = (await broker.restart()).get(T0)
    assert found is not None and found.state.disk.path == again.state.disk.path


async def test_the_strays_of_a_directory_are_known_until_their_partition_is_deleted(make_storage: MakeStorage) -> None:
    broker = make_storage()
    manager = await broker.start()
    (path,) = broker.paths
    assert manager.states[path].strays == set()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    await manager.make_stray(T0)
    assert manager.states[path].strays == {
        name for name, is_directory, _ in await log.state.disk.list() if is_directory and name.endswith("-stray")
    }
    assert len(manager.states[path].strays) == 1
    await manager.delete(T0)
    assert manager.states[path].strays == set()


async def test_a_deletion_removes_a_stray_that_could_not_be_renamed(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_storage(2)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    make_room = refuse_other_names(monkeypatch, "-stray")
    with pytest.raises(KafkaError):
        await manager.make_stray(T0)
    make_room()
    await manager.delete(T0)
    names = [name for name, is_directory, _ in await log.state.disk.list() if is_directory]
    assert [name.rsplit("-", 1)[1] for name in names] == ["delete"]


async def test_a_directory_stays_online_when_a_log_is_deleted_during_a_flush(make_storage: MakeStorage) -> None:
    """The flush must not go on in a directory that is renamed: a failed write would fail them all."""
    broker = make_storage(segment_bytes=200)
    manager = await broker.start()
    other = await manager.get_or_create(TopicPartition("other", 0), TOPIC_ID, True)
    for _ in range(20):
        log = await manager.get_or_create(T0, TOPIC_ID, True)
        for number in range(5):
            log.append_as_leader(batch(b"%d" % number), number)
        flushing = asyncio.ensure_future(log.flusher.flush())
        await asyncio.sleep(0)
        await manager.delete(T0)
        await asyncio.wait([flushing])
        flushing.exception()
        other.append_as_leader(batch(b"v"), 0)
        await written(other)
    assert broker.failures == []
