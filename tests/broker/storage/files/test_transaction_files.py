"""Transaction indexes and producer snapshots, read and written by Apache Kafka's own code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ottla.local.jars import find_java, kafka_class_path
from ottla_broker.records.control_records import ControlType, EndTransactionMarker
from ottla_broker.storage.files.transaction_index import decode_entries
from ottla_broker.storage.log.verification import FROM_CLIENT
from tests.broker.storage.logs import LogSetup, batch, transactional, written

pytestmark = pytest.mark.java


ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


async def write(path: Path) -> list[Path]:
    """Segments with transactions of three producers, one of which stays open: their indexes and snapshots."""
    setup = LogSetup(str(path), {"segment.bytes": 1000, "index.interval.bytes": 100})
    log = await setup.open()
    log.append_as_leader(transactional((3, 1, 0), b"open"), 0, transaction=FROM_CLIENT)
    for number in range(12):
        log.append_as_leader(transactional((1, 0, 2 * number), b"a", b"b"), 0, transaction=FROM_CLIENT)
        log.append_as_leader(transactional((2, 0, number), b"c"), 0, transaction=FROM_CLIENT)
        log.append_as_leader(batch(b"plain", producer=(4, 0, number)), 0)
        log.appender.append_marker(EndTransactionMarker(ABORT, 7), 1, 0, 0)
        log.appender.append_marker(EndTransactionMarker(ABORT if number % 3 == 0 else COMMIT, 8), 2, 0, 0)
    await written(log)
    await log.closer.close()
    setup.close()
    return sorted(one for one in (path / "t-0").iterdir() if one.suffix in (".txnindex", ".snapshot"))


def java(*arguments: str) -> str:
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", kafka_class_path(), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


async def test_apache_kafka_reads_our_transaction_indexes_and_snapshots_and_writes_the_same(tmp_path: Path) -> None:
    files = await write(tmp_path)
    assert {file.suffix for file in files} == {".txnindex", ".snapshot"} and len(files) > 5
    java(str(Path(__file__).with_name("TransactionFiles.java")), *map(str, files))
    for file in files:
        again = file.with_name(f"{file.name}.again").read_bytes()
        if file.suffix == ".txnindex":
            assert file.read_bytes() == again
        else:
            # Apache Kafka keeps the newest batch of each producer; ours come before it, and it reads over them.
            assert newest_rows(file.read_bytes()) == newest_rows(again)


async def test_dump_log_segments_prints_our_transaction_indexes_and_snapshots(tmp_path: Path) -> None:
    files = await write(tmp_path)
    logs = sorted((tmp_path / "t-0").glob("*.log"))
    printed = java("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, [*logs, *files])))
    assert printed.count("Dumping") == len(logs) + len(files)
    entries = [entry for file in files if file.suffix == ".txnindex" for entry in decode_entries("", file.read_bytes())]
    dumped = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", printed)
    assert [tuple(map(int, values)) for values in dumped] == [(*entry,) for entry in entries]
    assert len(entries) == 16
    assert printed.count("endTxnMarker: ABORT") == 16 and printed.count("endTxnMarker: COMMIT") == 8
    assert "isvalid: false" not in printed
    states = re.findall(
        r"producerId: (\d) producerEpoch: (\d) coordinatorEpoch: (-?\d) currentTxnFirstOffset: (\S+)", printed
    )
    assert ("3", "1", "-1", "Some(0)") in states or ("3", "1", "-1", "OptionalLong[0]") in states


def newest_rows(data: bytes) -> dict[bytes, bytes]:
    """The last row of each producer id of a snapshot."""
    rows = [data[start : start + 46] for start in range(10, len(data), 46)]
    return {row[:8]: row for row in rows}
