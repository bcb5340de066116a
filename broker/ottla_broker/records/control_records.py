"""Control records: the markers that end a transaction in a partition (KIP-98).

A control batch has one record whose key is int16 version 0 and int16 type, and whose value, for markers, is int16
version 0 and int32 coordinator epoch. Control batches have offsets, and consumers get and skip them.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from ottla_broker.ports.disk import Buffer
from ottla_broker.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from ottla_broker.records.errors import CorruptBatch
from ottla_broker.records.record import Record, build_batch, decode_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class ControlType(IntEnum):
    """The type in a control record's key. Other types (leader change, snapshots) belong to KRaft."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    type: ControlType
    coordinator_epoch: int


def build_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    leader_epoch: int = -1,
    attributes: int = 0,
) -> bytearray:
    """The control batch that a transaction coordinator has appended to every partition of a transaction.

    `attributes`: in addition to transactional and control.
    """
    record = Record(0, timestamp, _KEY.pack(0, marker.type), _VALUE.pack(0, marker.coordinator_epoch))
    return build_batch(
        [record],
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK | attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
    )


def read_marker(batch: Buffer) -> EndTransactionMarker | None:
    """The marker of a control batch; None for an unknown control type, which readers skip.

    Raises CorruptBatch when key or value are too short.
    """
    records = decode_records(batch)
    if not records:
        return None
    try:
        _, number = _KEY.unpack_from(records[0].key or b"")
        if number not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        _, epoch = _VALUE.unpack_from(records[0].value or b"")
    except error as failure:
        raise CorruptBatch(f"a control record is too short: {failure}") from failure
    return EndTransactionMarker(ControlType(number), epoch)
