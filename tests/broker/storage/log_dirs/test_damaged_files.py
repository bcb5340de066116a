"""Small files that are empty, cut or full of garbage: what they concern is repaired or left out, the rest starts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from ottla_broker.records.control_records import EndTransactionMarker
from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files.checkpoints import decode_partition_metadata
from ottla_broker.storage.log.verification import FROM_CLIENT
from ottla_broker.storage.log_dirs.log_directory import LogDirectoryError
from ottla_broker.storage.log_dirs.log_manager import LogManager
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, BrokerStorage, MakeStorage
from tests.broker.storage.logs import batch, read_values, transactional, written

T1 = TopicPartition("t", 1)

DAMAGE = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "garbage": lambda data: random.Random(1).randbytes(max(len(data), 40)),
    "zeros": lambda data: bytes(max(len(data), 64)),
    "text": lambda data: b"what is this?\nnot a checkpoint\n",
}
PER_PARTITION = [
    "partition.metadata",
    "leader-epoch-checkpoint",
    "*.snapshot",
    "*.index",
    "*.timeindex",
    "*.txnindex",
]
PER_DIRECTORY = [
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
    "ottla.boot-id",
]


async def _filled(broker: BrokerStorage) -> LogManager:
    manager = await broker.start()
    for partition in (T0, T1):
        log = await manager.get_or_create(partition, TOPIC_ID, True)
        for number in range(6):
            log.append_as_leader(batch(b"%d" % number * 60, producer=(7, 0, number)), number // 2)
        log.append_as_leader(transactional((8, 0, 0), b"aborted"), 3, transaction=FROM_CLIENT)
        log.appender.append_marker(EndTransactionMarker(False, 0), 8, 0, 3)
        await written(log)
        log.state.maybe_advance_high_watermark(log.state.log_end_offset)
        log.state.clean_offset = 2
        await log.flusher.flush()
        await log.retention.advance_log_start_offset(1)
        await manager.checkpoints.write_clean_offsets(log.state.disk)
    await manager.close(5)
    return manager


def _damage(paths: list[Path], damage: str) -> None:
    for path in paths:
        path.write_bytes(DAMAGE[damage](path.read_bytes()))


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("pattern", PER_PARTITION)
async def test_a_damaged_file_of_a_partition_keeps_no_broker_from_starting(
    make_storage: MakeStorage, tmp_path: Path, pattern: str, damage: str
) -> None:
    if (pattern, damage) == ("*.txnindex", "empty"):
        pytest.skip("a truncation leaves such a file, in Apache Kafka too")
    broker = make_storage(segment_bytes=400)
    await _filled(broker)
    _damage(found := sorted((tmp_path / "d0" / "t-0").glob(pattern)), damage)
    assert found
    manager = await broker.restart()
    assert not broker.failures and manager.live_paths == broker.paths
    for partition in (T0, T1):
        log = manager.get(partition)
        assert log is not None and (log.state.log_start_offset, log.state.log_end_offset) == (1, 8)
        assert [value for _, value in await read_values(log, 1)][:5] == [b"%d" % number * 60 for number in range(1, 6)]
        restored = await manager.get_or_create(partition, TOPIC_ID, False)
        assert restored.state.topic_id == TOPIC_ID
        aborted = log.aborted.aborted_transactions(0, 8)
        assert [one.producer_id for one in (await aborted if isinstance(aborted, asyncio.Future) else aborted)] == [8]
        log.append_as_leader(batch(b"goes on", producer=(7, 0, 6)), 3)
        await written(log)


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_partition_metadata_is_named_and_written_with_the_id_that_the_controller_tells(
    make_storage: MakeStorage, tmp_path: Path, damage: str
) -> None:
    broker = make_storage()
    await _filled(broker)
    path = tmp_path / "d0" / "t-0" / "partition.metadata"
    _damage([path], damage)
    manager = await broker.restart()
    assert [line for line in broker.notices if "t-0/partition.metadata" in line]
    await manager.get_or_create(T0, TOPIC_ID, False)
    assert decode_partition_metadata("", path.read_bytes()) == TOPIC_ID


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", PER_DIRECTORY)
async def test_a_damaged_file_of_a_directory_keeps_no_broker_from_starting(
    make_storage: MakeStorage, tmp_path: Path, name: str, damage: str
) -> None:
    broker = make_storage(segment_bytes=400)
    await _filled(broker)
    path = tmp_path / "d0" / name
    if not path.exists():
        pytest.skip(f"there is no {name}")
    _damage([path], damage)
    manager = await broker.restart()
    assert not broker.failures and manager.live_paths == broker.paths
    if name.endswith("checkpoint"):
        assert [line for line in broker.notices if name in line]
    for log in manager.logs:
        assert log.state.log_end_offset == 8 and log.state.topic_id == TOPIC_ID
    await manager.close(6)
    broker.notices.clear()
    assert len((await broker.restart()).logs) == 2
    assert not [line for line in broker.notices if name in line]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["meta.properties", "ottla.directories"])
async def test_a_directory_that_cannot_say_whose_it_is_is_offline_alone(
    make_storage: MakeStorage, tmp_path: Path, name: str, damage: str
) -> None:
    if (name, damage) == ("meta.properties", "cut"):
        pytest.skip("what is left names the broker")
    broker = make_storage(2)
    await _filled(broker)
    path = tmp_path / "d1" / name
    good = path.read_bytes()
    _damage([path], damage)
    manager = await broker.restart()
    assert manager.offline_paths == [broker.paths[1]]
    assert name in manager.states[broker.paths[1]].reason and "damaged" in manager.states[broker.paths[1]].reason
    assert path.read_bytes() != good
    path.write_bytes(good)
    assert not (await broker.restart()).offline_paths
    assert len(broker.manager.logs) == 2


async def test_with_no_other_directory_a_damaged_meta_properties_ends_the_start_and_is_named(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage()
    await _filled(broker)
    (tmp_path / "d0" / "meta.properties").write_bytes(b"")
    with pytest.raises((OSError, LogDirectoryError), match=r"meta\.properties is damaged"):
        await broker.restart()
