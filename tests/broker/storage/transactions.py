"""Transactions in a log, for tests: their batches, their markers, and the transaction indexes on the disk."""

from __future__ import annotations

from pathlib import Path

from ottla_broker.records.control_records import ControlType, EndTransactionMarker
from ottla_broker.storage.files.transaction_index import AbortedTransaction, decode_entries
from ottla_broker.storage.log.log import Log
from ottla_broker.storage.log.verification import FROM_CLIENT
from tests.broker.storage.logs import transactional

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
SMALL_SEGMENTS = {"segment.bytes": 400, "index.interval.bytes": 0}


def end(log: Log, kind: ControlType, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    """Appends a marker; returns its offset."""
    marker = EndTransactionMarker(kind, coordinator_epoch)
    return log.appender.append_marker(marker, producer_id, epoch, 0).first_offset


def begin(log: Log, producer_id: int = 7, sequence: int = 0, values: int = 1) -> int:
    """Appends a batch of a transaction; returns its first offset."""
    records = transactional((producer_id, 0, sequence), *[b"v"] * values)
    return log.append_as_leader(records, 0, transaction=FROM_CLIENT).first_offset


def index_file(tmp_path: Path, base: int) -> list[AbortedTransaction]:
    """The entries of the transaction index of the segment at `base`."""
    name = f"{base:020d}.txnindex"
    path = tmp_path / "t-0" / name
    return decode_entries(name, path.read_bytes()) if path.exists() else []
