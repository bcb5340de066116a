"""A broker's log directories: whose they are, what survives, where logs are created and how they go."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.adapters.workers import ProcessWorkers
from ottla_broker.jobs import JOBS
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log.loading import open_log
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log_dirs import loading as directory_loading
from ottla_broker.storage.log_dirs import recovery_threads as log_recovery
from ottla_broker.storage.log_dirs.log_directory import LogDirectoryError, broker_id_of, cluster_id_of
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.log_table import LogTable
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from ottla_broker.storage.log_dirs.states import ONLINE, DirectoryState
from tests.broker.storage.logs import ManualClock, batch, read_values, until, written

TOPIC_ID = bytes(range(16))
T0 = TopicPartition("t", 0)


class Broker:
    """The storage of one broker over `count` directories; started again with `restart`."""

    def __init__(self, root: Path, count: int, config: Mapping[str, Any], settings: LogManagerSettings) -> None:
        self.paths = [str(root / f"d{number}") for number in range(count)]
        self.config = LogConfig(config)
        self.settings = settings
        self.failures: list[tuple[str, int | None]] = []
        self.notices: list[str] = []
        self.make()

    def make(self) -> None:
        self.clock = ManualClock()
        self.disks = {path: DirectoryDisk(path) for path in self.paths}
        self.workers = ProcessWorkers(JOBS)
        self.manager = LogManager(
            self.disks,
            self.clock,
            self.workers,
            self.settings,
            lambda topic: self.config,
            on_directory_failure=lambda path, error: self.failures.append((path, error.errno)),
            on_notice=self.notices.append,
        )

    async def start(self, broker_id: int = 1, cluster_id: str = "cluster-A") -> LogManager:
        await self.manager.inspect()
        await self.manager.claim(broker_id, cluster_id)
        await self.manager.load()
        return self.manager

    def stop(self) -> None:
        """As kill -9 would."""
        self.clock.cancel_all()
        for disk in self.manager.access.disks:
            disk.close()
        self.workers.close()

    async def restart(self, **who: Any) -> LogManager:
        disks = self.manager.access.disks
        self.stop()
        await until(lambda: all(disk.has_ended for disk in disks))  # a failed one lets its lock go on its own thread
        self.make()
        return await self.start(**who)


Make = Callable[..., Broker]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    brokers: list[Broker] = []

    def make_broker(
        count: int = 1,
        settings: LogManagerSettings | None = None,
        **config: Any,
    ) -> Broker:
        values = {key.replace("_", "."): value for key, value in config.items()}
        broker = Broker(tmp_path, count, values, settings or LogManagerSettings())
        brokers.append(broker)
        return broker

    yield make_broker
    for broker in brokers:
        broker.stop()
        await broker.workers.wait_closed()


async def test_meta_properties_are_kafkas_and_name_an_id_per_directory(make: Make, tmp_path: Path) -> None:
    broker = make(2)
    await broker.start(7, "abc")
    texts = [(tmp_path / name / "meta.properties").read_text() for name in ("d0", "d1")]
    for text in texts:
        assert "broker.id=7\n" in text and "cluster.id=abc\n" in text and "version=0\n" in text
    ids = {line for text in texts for line in text.splitlines() if line.startswith("directory.id=")}
    assert len(ids) == 2
    manager = await broker.restart(broker_id=7, cluster_id="abc")
    assert broker_id_of(manager.directories) == 7 and cluster_id_of(manager.directories) == "abc"
    assert (tmp_path / "d0" / "meta.properties").read_text() == texts[0]


async def test_a_directory_of_another_broker_or_cluster_is_refused_with_both_ids(make: Make) -> None:
    broker = make()
    await broker.start(1, "cluster-A")
    with pytest.raises(LogDirectoryError, match="belongs to broker 1, this is broker 2"):
        await broker.restart(broker_id=2)
    with pytest.raises(LogDirectoryError, match="cluster cluster-A, this broker is in cluster cluster-B"):
        await broker.restart(cluster_id="cluster-B")
    await broker.restart()


async def test_directories_that_disagree_are_refused(make: Make, tmp_path: Path) -> None:
    broker = make(2)
    await broker.start()
    broker.stop()
    path = tmp_path / "d1" / "meta.properties"
    path.write_text(path.read_text().replace("broker.id=1", "broker.id=3"))
    broker.make()
    directories = await broker.manager.inspect()
    with pytest.raises(LogDirectoryError, match=r"broker 1.*broker 3"):
        broker_id_of(directories)


async def test_a_directory_that_comes_back_empty_is_not_formatted_without_leave(make: Make, tmp_path: Path) -> None:
    broker = make(2)
    await broker.start()
    broker.stop()
    for path in (tmp_path / "d1").iterdir():
        path.unlink()
    broker.settings = LogManagerSettings(may_format=())
    broker.make()
    await broker.manager.inspect()
    await broker.manager.claim(1, "cluster-A")
    assert broker.manager.offline_paths == [broker.paths[1]]
    assert "has no meta.properties, and ottla.log.dirs.format does not" in broker.manager.states[broker.paths[1]].reason
    await broker.manager.load()
    with pytest.raises(KafkaError) as caught:  # it may be on the directory that is not there
        await broker.manager.get_or_create(T0, TOPIC_ID, False)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not (tmp_path / "d1" / "meta.properties").exists()
    broker.settings = LogManagerSettings(may_format=(broker.paths[1],))
    await broker.restart()
    assert (tmp_path / "d1" / "meta.properties").exists()


async def test_a_broker_with_nothing_but_empty_directories_it_may_not_format_is_refused(make: Make) -> None:
    broker = make(settings=LogManagerSettings(may_format=()))
    await broker.manager.inspect()
    with pytest.raises(LogDirectoryError, match=r"d0 has no meta\.properties.*ottla\.log\.dirs\.format"):
        await broker.manager.claim(1, "cluster-A")


async def test_a_second_broker_on_the_same_directory_is_refused(make: Make) -> None:
    await make().start()
    with pytest.raises(LogDirectoryError, match=r"another process holds its \.lock"):
        await make().start()


async def test_a_directory_that_fails_when_the_doubts_are_over_keeps_no_broker_from_starting(
    make: Make, tmp_path: Path
) -> None:
    broker = make(2)
    await broker.start()
    for name in ("d0", "d1"):
        (tmp_path / name / "ottla.boot-id").write_text("another boot")
    manager = await broker.restart()
    assert manager.markers.is_power_loss_suspected
    manager.disk(broker.paths[0]).take_offline(OSError(errno.EIO, "gone"))
    await manager.markers.broker_registered()
    assert manager.offline_paths == [broker.paths[0]] and not manager.markers.is_power_loss_suspected
    assert not (tmp_path / "d1" / "ottla.power-lost").exists()


async def test_a_directory_that_fails_while_it_is_loaded_leaves_no_log_behind(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever read one would read a file that is closed."""
    broker = make(2)
    manager = await broker.start()
    partitions = [TopicPartition("t", number) for number in range(6)]
    for partition in partitions:
        await manager.get_or_create(partition, TOPIC_ID, True)
    failing = {one for one in partitions if manager.get(one).disk.path == broker.paths[1]}  # type: ignore[union-attr]
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
        if log.topic_partition in failing:
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


async def test_another_boot_without_a_clean_end_is_a_power_loss(make: Make, tmp_path: Path) -> None:
    broker = make()
    manager = await broker.start()
    assert not manager.directories[0].lost_power
    assert not (await broker.restart()).directories[0].lost_power
    (tmp_path / "d0" / "ottla.boot-id").write_text("another boot")
    manager = await broker.restart()
    assert manager.directories[0].lost_power and "not flushed may be gone" in broker.notices[-1]
    await manager.close()
    (tmp_path / "d0" / "ottla.boot-id").write_text("another boot")
    assert not (await broker.restart()).directories[0].lost_power


async def test_an_end_in_order_leaves_kafkas_files_and_needs_no_recovery(make: Make, tmp_path: Path) -> None:
    broker = make()
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    for _ in range(10):
        log.append_as_leader(batch(b"a"), 0)
    await written(log)
    log.maybe_advance_high_watermark(8)
    await log.advance_log_start_offset(3)
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
    assert (again.log_start_offset, again.high_watermark, again.log_end_offset) == (3, 8, 10)
    assert again.topic_id == TOPIC_ID


async def test_kill_is_followed_by_a_recovery_that_loses_nothing(make: Make) -> None:
    broker = make(2)
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


async def test_long_tails_are_recovered_in_workers_and_the_log_and_the_progress_tell_how_far(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make(2, segment_bytes=700)
    manager = await broker.start()
    for partition in range(4):
        log = await manager.get_or_create(TopicPartition("t", partition), TOPIC_ID, True)
        for number in range(50):
            log.append_as_leader(batch(b"%d" % number), 0)
        await written(log)
    monkeypatch.setattr(log_recovery, "_WORKER_RECOVERY_BYTES", 100)
    monkeypatch.setattr(log_recovery, "_JOB_BYTES", 100)
    monkeypatch.setattr(log_recovery, "_REPORT_INTERVAL_S", 0.0)
    manager = await broker.restart()
    for partition in range(4):
        again = manager.get(TopicPartition("t", partition))
        assert again is not None and again.log_end_offset == 50
    progress = manager.progress
    assert progress.scanned_bytes == progress.tail_bytes > 4 * 50 * 60
    assert sorted(progress.directories) == broker.paths
    for path, one in progress.directories.items():
        assert one.uses_workers and one.scanned_bytes == one.tail_bytes > 2 * 50 * 60
        told = [line for line in broker.notices if line.startswith(f"recovery of log directory {path}")]
        assert len(told) > 4, "one line for each part of a log"
        assert any(
            line.startswith(f"log directory {path} was not shut down cleanly: 2 logs") for line in broker.notices
        )


async def test_one_recovery_per_thread_and_directory_runs_at_a_time(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """num.recovery.threads.per.data.dir, over jobs that the test ends itself."""
    broker = make(2, settings=LogManagerSettings(num_recovery_threads_per_data_dir=2))
    manager = await broker.start()
    for partition in range(12):
        await manager.get_or_create(TopicPartition("t", partition), TOPIC_ID, True)
    monkeypatch.setattr(log_recovery, "_WORKER_RECOVERY_BYTES", 0)
    broker.stop()
    broker.make()
    running: list[tuple[str, asyncio.Future[Any]]] = []
    most = dict.fromkeys(broker.paths, 0)
    real = broker.workers.run

    def run(job: str, directory: str, *arguments: Any) -> asyncio.Future[Any]:
        future = real(job, directory, *arguments)
        running.append((directory, future))
        for path in most:
            most[path] = max(most[path], sum(where == path and not one.done() for where, one in running))
        return future

    monkeypatch.setattr(broker.workers, "run", run)
    await broker.start()
    assert len(running) == 12 and most == dict.fromkeys(broker.paths, 2)


async def test_a_start_that_is_killed_after_a_power_loss_still_counts_as_the_one_after_it(
    make: Make, tmp_path: Path
) -> None:
    broker = make()
    await broker.start()
    (tmp_path / "d0" / "ottla.boot-id").write_text("another boot")
    broker.stop()
    broker.make()
    await broker.manager.inspect()
    await broker.manager.claim(1, "cluster-A")
    assert (await broker.restart()).directories[0].lost_power
    assert not (await broker.restart()).directories[0].lost_power


async def test_directories_that_were_set_aside_are_named_at_every_start(make: Make, tmp_path: Path) -> None:
    broker = make()
    manager = await broker.start()
    await manager.get_or_create(T0, TOPIC_ID, True)
    await manager.make_stray(T0)
    (aside,) = (path.name for path in (tmp_path / "d0").iterdir() if path.name.endswith("-stray"))
    manager = await broker.restart()
    assert [line for line in broker.notices if aside in line and str(tmp_path / "d0") in line]
    assert manager.get(T0) is None and (tmp_path / "d0" / aside).is_dir()


async def test_new_logs_go_to_the_directory_with_the_fewest(make: Make) -> None:
    broker = make(3)
    manager = await broker.start()
    for number in range(9):
        await manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True)
    counts = [sum(log.disk.path == path for log in manager.logs) for path in broker.paths]
    assert counts == [3, 3, 3]


async def test_a_log_of_another_topic_of_that_name_is_not_given(make: Make) -> None:
    broker = make()
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    assert await manager.get_or_create(T0, TOPIC_ID, False) is log
    with pytest.raises(KafkaError) as caught:
        await manager.get_or_create(T0, bytes(15) + b"\x01", False)
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


async def test_deletion_frees_the_name_at_once_and_the_files_later(make: Make, tmp_path: Path) -> None:
    broker = make(file_delete_delay_ms=3_600_000)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"old"), 0)
    await written(log)
    log.maybe_advance_high_watermark(1)
    await manager.checkpoint_high_watermarks()
    await manager.delete(T0)
    assert manager.get(T0) is None
    assert [path.name[-7:] for path in (tmp_path / "d0").iterdir() if path.is_dir()] == ["-delete"]
    assert (tmp_path / "d0" / "replication-offset-checkpoint").read_text() == "0\n0\n"
    log = await manager.get_or_create(T0, bytes(15) + b"\x02", True)
    assert log.log_end_offset == 0
    await broker.restart()
    assert [path.name for path in (tmp_path / "d0").iterdir() if path.is_dir()] == ["t-0"]


async def test_a_partition_in_two_directories_is_refused(make: Make, tmp_path: Path) -> None:
    broker = make(2)
    await broker.start()
    broker.stop()
    (tmp_path / "d0" / "t-0").mkdir()
    (tmp_path / "d1" / "t-0").mkdir()
    broker.make()
    with pytest.raises(LogDirectoryError, match="partition t-0 is in two log directories"):
        await broker.start()


async def test_without_a_readable_recovery_point_every_log_is_recovered_from_its_start(
    make: Make, tmp_path: Path
) -> None:
    broker = make()
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


async def test_a_failed_directory_is_told_once_and_its_partitions_answer_so(make: Make, tmp_path: Path) -> None:
    broker = make(2)
    manager = await broker.start()
    logs = [await manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True) for number in range(4)]
    bad = broker.paths[1]
    (tmp_path / "d1" / "unsyncable").symlink_to("/dev/full")
    unsyncable = await broker.disks[bad].open("unsyncable")
    with pytest.raises(OSError):
        await unsyncable.fsync()
    for log in logs:
        log.append_as_leader(batch(b"v"), 0)
    for log in logs:
        if log.disk.path == bad:
            with pytest.raises(KafkaError):
                await written(log)
        else:
            await written(log)
    assert [path for path, _ in broker.failures] == [bad]
    assert manager.live_paths == [broker.paths[0]]
    for log in logs:
        assert log.is_failed == (log.disk.path == bad) == manager.is_on_offline_directory(log.topic_partition)
    with pytest.raises(KafkaError) as caught:
        await manager.get_or_create(TopicPartition("new", 0), TOPIC_ID, False)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    created = await manager.get_or_create(TopicPartition("new", 0), TOPIC_ID, True)
    assert created.disk.path == broker.paths[0]


async def test_whoever_is_told_that_a_directory_failed_finds_none_of_its_logs_open(make: Make, tmp_path: Path) -> None:
    """The answer to a request that waited had the next one of its connection read a closed file (recreate 12)."""
    broker = make(2)
    manager = await broker.start()
    logs = [await manager.get_or_create(TopicPartition("t", number), TOPIC_ID, True) for number in range(6)]
    for log in logs:
        log.append_as_leader(batch(b"v"), 0)
        await written(log)
    bad = [log for log in logs if log.disk.path == broker.paths[1]]
    told: list[ErrorCode] = []

    def read_all() -> None:
        for log in bad:
            with pytest.raises(KafkaError) as caught:
                log.read(0, 1 << 20, 1, True)
            told.append(caught.value.code)

    for log in bad:
        log.on_failure = read_all
    manager.directory_failed(bad[0].disk, OSError(errno.EIO, "Input/output error"))
    assert len(bad) == 3
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR] * 9


async def test_what_a_failed_directory_has_lost_is_no_gap_of_compaction(make: Make, tmp_path: Path) -> None:
    """The log went on behind it, in the empty segment: nobody could read on (simulated disks, seed 701468)."""
    broker = make(2, segment_bytes=150)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    home = log.disk.path
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(batch(value * 60), 0)
    await written(log)
    log.maybe_advance_high_watermark(3)
    await manager.background_tasks.flush_due()
    first, second, third = [Path(home, "t-0", f"{offset:020}.log") for offset in (0, 1, 2)]
    manager.directory_failed(log.disk, OSError(errno.EIO, "Input/output error", home))
    await until(lambda: broker.disks[home].has_ended)  # what is under way holds the directory
    for lost in (second, third):  # what its page cache held; the names stand
        os.truncate(lost, 0)
    await manager.reopening.reopen(home, DirectoryDisk(home))
    back = manager.get(T0)
    assert back is not None and back.log_end_offset == 1 and first.stat().st_size
    assert await read_values(back, 0) == [(0, b"a" * 60)]


async def no_room(name: str, *, create: bool = False) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device", name)


async def test_a_directory_without_room_for_its_own_recovery_is_offline_and_not_empty(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its logs could not be opened: one that was made anew beside them would lead with nothing, and be found twice."""
    broker = make(2, index_interval_bytes=0)
    log = await (await broker.start()).get_or_create(T0, TOPIC_ID, True)
    home = log.disk.path
    for value in (b"a", b"b"):
        log.append_as_leader(batch(value), 0)
    await written(log)
    broker.stop()
    (tmp_path / home / "t-0" / f"{0:020}.index").unlink()  # a loss of power had taken it
    broker.make()
    monkeypatch.setattr(broker.disks[home], "open", no_room)
    manager = await broker.start()
    assert manager.offline_paths == [home] and "No space left" in manager.states[home].reason
    with pytest.raises(KafkaError) as caught:
        await manager.get_or_create(T0, TOPIC_ID, False)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    again = (await broker.restart()).get(T0)
    assert again is not None and again.disk.path == home and await read_values(again, 0) == [(0, b"a"), (1, b"b")]


async def test_a_broker_whose_only_directory_has_no_room_for_its_recovery_is_refused(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make(index_interval_bytes=0)
    log = await (await broker.start()).get_or_create(T0, TOPIC_ID, True)
    for value in (b"a", b"b"):
        log.append_as_leader(batch(value), 0)
    await written(log)
    broker.stop()
    (tmp_path / "d0" / "t-0" / f"{0:020}.index").unlink()  # a loss of power had taken it
    broker.make()
    monkeypatch.setattr(broker.disks[log.disk.path], "open", no_room)
    with pytest.raises(OSError, match="No space left on device"):
        await broker.start()


async def test_the_recovery_point_is_checkpointed_after_a_flush(make: Make, tmp_path: Path) -> None:
    broker = make(flush_ms=0)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    log.append_as_leader(batch(b"a", b"b"), 0)
    await written(log)
    await manager.checkpoints.write_recovery_points(log.disk)
    assert (tmp_path / "d0" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"
    await manager.background_tasks.flush_due()
    await manager.checkpoints.write_recovery_points(log.disk)
    assert (tmp_path / "d0" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"


@pytest.mark.parametrize("is_repeated", [True, False])
async def test_a_topic_made_anew_does_not_begin_with_what_a_deletion_could_not_put_away(
    make: Make, monkeypatch: pytest.MonkeyPatch, is_repeated: bool
) -> None:
    """The longer name of the renamed directory needs room too."""
    broker = make()
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
    manager.access.apply(log.disk.path, ONLINE)
    if is_repeated:
        await manager.delete(T0)
        assert [name for name, is_directory, _ in await log.disk.list() if is_directory and name == "t-0"] == []
    again = await manager.get_or_create(T0, bytes(range(16, 32)), True)
    assert (again.log_start_offset, again.log_end_offset, again.topic_id) == (0, 0, bytes(range(16, 32)))
    found = (await broker.restart()).get(T0)
    assert found is not None and found.topic_id == bytes(range(16, 32))


def refuse_other_names(monkeypatch: pytest.MonkeyPatch, *suffixes: str) -> Callable[[], None]:
    """There is no room for directory names with these suffixes until the answer is called."""
    rename = os.rename

    def refuse(old: str, new: str) -> None:
        if new.endswith(suffixes):
            raise OSError(errno.ENOSPC, "No space left on device", new)
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse)
    return lambda: monkeypatch.setattr(os, "rename", rename)


@pytest.mark.parametrize("is_kept", [False, True])
async def test_what_could_not_be_put_away_does_not_keep_the_broker_from_starting(
    make: Make, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    """The partition moves away from this broker and is assigned to it again while the directory that it was in is full:
    made in the other one it would be in both."""
    broker = make(2)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    home = log.disk.path
    log.append_as_leader(batch(b"old"), 0)
    await written(log)
    relieve = refuse_other_names(monkeypatch, "-delete", "-stray")
    with pytest.raises(KafkaError):
        await (manager.make_stray if is_kept else manager.delete)(T0)
    assert manager.states[home].state is DirectoryState.FULL
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            await manager.get_or_create(T0, TOPIC_ID, True)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    relieve()
    again = await manager.get_or_create(T0, TOPIC_ID, True)
    assert again.disk.path != home and again.log_end_offset == 0
    names = [name for name, is_directory, _ in await log.disk.list() if is_directory]
    assert [name.rsplit("-", 1)[1] for name in names] == ["stray" if is_kept else "delete"]
    await manager.delete(T0)
    names = [name for name, is_directory, _ in await log.disk.list() if is_directory]
    assert [name.rsplit("-", 1)[1] for name in names] == ["stray" if is_kept else "delete"], "not of this log"
    again = await manager.get_or_create(T0, TOPIC_ID, True)
    found = (await broker.restart()).get(T0)
    assert found is not None and found.disk.path == again.disk.path


async def test_a_stray_that_could_not_be_put_away_goes_with_the_partition(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make(2)
    manager = await broker.start()
    log = await manager.get_or_create(T0, TOPIC_ID, True)
    relieve = refuse_other_names(monkeypatch, "-stray")
    with pytest.raises(KafkaError):
        await manager.make_stray(T0)
    relieve()
    await manager.delete(T0)
    names = [name for name, is_directory, _ in await log.disk.list() if is_directory]
    assert [name.rsplit("-", 1)[1] for name in names] == ["delete"]
