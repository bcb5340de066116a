"""Loading the logs of a directory: clean and unclean shutdowns, damaged checkpoints, failing and full directories."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.ports.disk import Disk
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.loading import open_log
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs import loading as directory_loading
from ottla_broker.storage.log_dirs.log_directory import LogDirectoryError
from ottla_broker.storage.log_dirs.log_table import LogTable
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, MakeStorage, no_room
from tests.broker.storage.logs import batch, read_values, written


async def test_a_clean_shutdown_writes_the_files_of_kafka_and_needs_no_recovery(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage()
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    for _ in range(10):
        log.append_as_leader(batch(b"a"), 0)
    await written(log)
    log.state.maybe_advance_high_watermark(8)
    await log.retention.advance_log_start_offset(3)
    await manager.close(42)
    root = tmp_path / "d0"
    assert (root / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":42}'
    assert (root / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 10\n"
    assert (root / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 8\n"
    assert (root / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    assert (root / "t-0" / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert (root / "t-0" / "00000000000000000010.snapshot").exists()
    manager = await broker.restart()
    assert manager.directories[0].previous_broker_epoch == 42
    assert manager.progress.recovered == 0 and manager.progress.loaded == manager.progress.total == 1
    assert not (root / ".kafka_cleanshutdown").exists()
    again = manager.get(T0)
    assert again is not None
    assert (again.state.log_start_offset, again.state.high_watermark, again.state.log_end_offset) == (3, 8, 10)
    assert again.state.topic_id == TOPIC_ID


async def test_a_directory_that_was_only_slow_while_it_was_shut_down_cleanly_has_not_failed(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call and the probe beside it did not return in time, and then they did."""
    broker = make_storage(2)
    manager = await broker.start()
    slow, failed = manager.access.live_disks
    write = manager.checkpoints.write_recovery_points

    async def write_late(disk: Disk) -> None:
        manager.directory_failed(disk, OSError(errno.ETIMEDOUT, "no answer", disk.path))
        if disk is failed:
            raise OSError(errno.EIO, "Input/output error", disk.path)
        await write(disk)

    monkeypatch.setattr(manager.checkpoints, "write_recovery_points", write_late)
    await manager.close()
    assert list(manager.access.failed_at_close) == [failed.path]
    assert (Path(slow.path) / ".kafka_cleanshutdown").exists()
    assert not (Path(failed.path) / ".kafka_cleanshutdown").exists()


async def test_a_start_after_a_kill_recovers_every_record(make_storage: MakeStorage) -> None:
    broker = make_storage(2)
    manager = await broker.start()
    for number in range(6):
        log = await manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True)
        log.append_as_leader(batch(b"%d" % number), 0)
        await written(log)
    manager = await broker.restart()
    assert manager.progress.recovered == 6
    for number in range(6):
        again = manager.get(TopicPartition("t", number))
        assert again is not None
        assert await read_values(again, 0) == [(0, b"%d" % number)]


async def test_no_log_of_a_directory_is_found_when_it_fails_while_it_is_loaded(
    make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of such a log would read a closed file."""
    broker = make_storage(2)
    manager = await broker.start()
    partitions = [TopicPartition("t", number) for number in range(6)]
    for partition in partitions:
        await manager.get_or_create(partition, TOPIC_ID, True)
    failing = {one for one in partitions if manager.get(one).state.disk.path == broker.paths[1]}  # type: ignore[union-attr]
    bad = max(failing)
    await manager.close()

    is_one_loaded = asyncio.Event()
    add = LogTable.add

    async def open_or_fail(**keywords: Any) -> Log:
        if keywords["topic_partition"] == bad:
            await is_one_loaded.wait()
            raise OSError(errno.EIO, "Input/output error")
        return await open_log(**keywords)

    def add_and_report(table: LogTable, log: Log) -> None:
        add(table, log)
        if log.state.topic_partition in failing:
            is_one_loaded.set()

    monkeypatch.setattr(LogTable, "add", add_and_report)

    monkeypatch.setattr(directory_loading, "open_log", open_or_fail)
    manager = await broker.restart()
    assert manager.live_paths == [broker.paths[0]]
    assert {one for one in partitions if manager.get(one) is not None} == set(partitions) - failing
    for partition in failing:
        with pytest.raises(KafkaError) as refused:
            await manager.get_or_create(partition, TOPIC_ID, False)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_every_start_logs_the_names_of_strays(make_storage: MakeStorage, tmp_path: Path) -> None:
    broker = make_storage()
    manager = await broker.start()
    await manager.get_or_create(T0, TOPIC_ID, True)
    await manager.make_stray(T0)
    (stray,) = (path.name for path in (tmp_path / "d0").iterdir() if path.name.endswith("-stray"))
    manager = await broker.restart()
    assert [line for line in broker.notices if stray in line and str(tmp_path / "d0") in line]
    assert manager.get(T0) is None and (tmp_path / "d0" / stray).is_dir()
    assert manager.states[broker.paths[0]].strays == {stray}


async def test_a_start_is_refused_when_a_partition_is_in_two_directories(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage(2)
    await broker.start()
    broker.stop()
    (tmp_path / "d0" / "t-0").mkdir()
    (tmp_path / "d1" / "t-0").mkdir()
    broker.create_manager()
    with pytest.raises(LogDirectoryError, match="partition t-0 is in two log directories"):
        await broker.start()


async def test_every_log_is_recovered_from_its_start_when_the_recovery_points_are_damaged(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage()
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"a"), 0)
    await manager.close()
    (tmp_path / "d0" / "recovery-point-offset-checkpoint").write_text("nonsense")
    manager = await broker.restart()
    assert manager.progress.recovered == 1
    assert [line for line in broker.notices if "recovery-point-offset-checkpoint" in line]
    again = manager.get(T0)
    assert again is not None and await read_values(again, 0) == [(0, b"a")]


async def test_a_directory_is_offline_when_it_has_no_room_to_recover_its_logs(
    make_storage: MakeStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new log created in another directory would lead without records, and the next start would find two logs."""
    broker = make_storage(2, index_interval_bytes=0)
    log = await (await broker.start()).get_or_create(T0, TOPIC_ID, True)
    path = log.state.disk.path
    for value in (b"a", b"b"):
        log.append_as_leader(batch(value), 0)
    await written(log)
    broker.stop()
    (tmp_path / path / "t-0" / f"{0:020}.index").unlink()  # as after a power loss
    broker.create_manager()
    monkeypatch.setattr(broker.disks[path], "open", no_room)
    manager = await broker.start()
    assert manager.offline_paths == [path] and "No space left" in manager.states[path].reason
    with pytest.raises(KafkaError) as caught:
        await manager.get_or_create(T0, TOPIC_ID, False)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    again = (await broker.restart()).get(T0)
    assert again is not None and again.state.disk.path == path and await read_values(again, 0) == [(0, b"a"), (1, b"b")]


async def test_a_start_is_refused_when_the_only_directory_has_no_room_to_recover_its_logs(
    make_storage: MakeStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_storage(index_interval_bytes=0)
    log = await (await broker.start()).get_or_create(T0, TOPIC_ID, True)
    for value in (b"a", b"b"):
        log.append_as_leader(batch(value), 0)
    await written(log)
    broker.stop()
    (tmp_path / "d0" / "t-0" / f"{0:020}.index").unlink()  # as after a power loss
    broker.create_manager()
    monkeypatch.setattr(broker.disks[log.state.disk.path], "open", no_room)
    with pytest.raises(OSError, match="No space left on device"):
        await broker.start()


@pytest.mark.parametrize(("clean_segments", "kept"), [(0, False), (2, True)])
async def test_a_gap_after_a_power_loss_is_compactions_only_below_the_clean_offset(
    make_storage: MakeStorage, tmp_path: Path, clean_segments: int, *, kept: bool
) -> None:
    """Without a recovery point every segment is scanned. A gap that Apache Kafka's cleaner left stays. Elsewhere a gap
    is a hole: what is behind it is fetched again, or this replica would differ from the others."""
    broker = make_storage(segment_bytes=300, cleanup_policy="compact")
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    for number in range(12):
        log.append_as_leader(batch(b"%02d" % number), 0, is_prepared=True)
    await written(log)
    bases = [segment.base_offset for segment in log.state.segments]
    broker.stop()
    root = tmp_path / "d0"
    shortened = root / "t-0" / f"{bases[1]:020}.log"
    shortened.write_bytes(shortened.read_bytes()[: -len(batch(b"00"))])
    (root / "ottla.boot-id").write_text("another boot")
    (root / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {bases[clean_segments]}\n")
    (root / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    manager = await broker.restart()
    again = manager.get(T0)
    assert again is not None
    assert again.state.log_end_offset == (12 if kept else bases[2] - 1)
    found = [offset for offset, _ in await read_values(again, 0)]
    assert found == [offset for offset in range(again.state.log_end_offset) if offset != bases[2] - 1]
