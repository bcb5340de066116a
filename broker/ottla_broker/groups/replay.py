"""Rebuilds the groups of one partition from its log.

Pure: batches in log order go in, groups with their offsets come out. For every key the last record counts, a
tombstone removes, transactional offset commits wait for their producer's marker.
"""

from __future__ import annotations

import logging
import struct
from typing import NamedTuple

from ottla_broker.groups.consumer.consumer_records import RecordKey, image_of
from ottla_broker.groups.consumer.group_image import ConsumerGroupImage
from ottla_broker.groups.decisions import GroupSnapshot
from ottla_broker.groups.offsets import GroupOffsets
from ottla_broker.groups.records import (
    ConsumerGroupKey,
    GroupKey,
    OffsetKey,
    UnknownRecordVersion,
    read_group_value,
    read_key,
    read_offset_value,
)
from ottla_broker.internal_topics.topic_log import LoadedBatch
from ottla_broker.protocol.codec import DecodeError
from ottla_broker.records.control_records import ControlType
from ottla_broker.records.record import Record

logger = logging.getLogger("ottla.groups")

_CONTROL_KEY = struct.Struct(">hh")


class ReplayedGroup(NamedTuple):
    group_id: str
    snapshot: GroupSnapshot | None
    """None for a group that only committed offsets, or is one of the consumer protocol."""
    offsets: GroupOffsets
    image: ConsumerGroupImage | None = None
    """Of a group of the consumer protocol."""


class Replay:
    """Feed `add` with every batch, then take `groups`."""

    def __init__(self) -> None:
        self._snapshots: dict[str, GroupSnapshot] = {}
        self._consumer_values: dict[str, dict[RecordKey, bytes]] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        self.open_transactions: dict[int, dict[str, None]] = {}
        """By producer id, the groups in whose offsets it has not ended its transaction."""
        self.record_count = 0

    def add(self, batch: LoadedBatch) -> None:
        """A record that is not one of ours is logged and skipped: one bad record does not hide all groups."""
        if batch.is_control:
            self._add_marker(batch)
            return
        for record in batch.records:
            self.record_count += 1
            try:
                self._add_record(batch, record)
            except (DecodeError, UnknownRecordVersion, struct.error) as error:
                logger.error("skipping the record at offset %d of __consumer_offsets: %s", record.offset, error)

    def _add_record(self, batch: LoadedBatch, record: Record) -> None:
        key = None if record.key is None else read_key(record.key)
        if isinstance(key, OffsetKey):
            offsets = self._offsets.setdefault(key.group_id, GroupOffsets())
            commit = None if record.value is None else read_offset_value(record.value)
            if batch.is_transactional:
                self.open_transactions.setdefault(batch.producer_id, {})[key.group_id] = None
                if commit is None:
                    offsets.discard_transactional(batch.producer_id, key.partition)
                else:
                    offsets.put_transactional(batch.producer_id, key.partition, commit, batch.base_offset)
            elif commit is None:
                offsets.discard(key.partition)
            else:
                offsets.put(key.partition, commit, batch.base_offset)
        elif isinstance(key, GroupKey):
            if record.value is None:
                self._snapshots.pop(key.group_id, None)
            else:
                self._snapshots[key.group_id] = read_group_value(key.group_id, record.value)
                # What a group of the consumer protocol has left behind, should its tombstones be missing.
                self._consumer_values.pop(key.group_id, None)
        elif isinstance(key, ConsumerGroupKey):
            self._add_consumer_record(key, record.value)
        else:
            logger.warning("skipping a record of an unknown kind at offset %d of __consumer_offsets", record.offset)

    def _add_consumer_record(self, key: ConsumerGroupKey, value: bytes | memoryview | None) -> None:
        values = self._consumer_values.setdefault(key.group_id, {})
        if value is None:
            values.pop(key.key, None)
            if not values:
                del self._consumer_values[key.group_id]
        else:
            values[key.key] = bytes(value)
            self._snapshots.pop(key.group_id, None)

    def _images(self) -> dict[str, ConsumerGroupImage]:
        images = {}
        for group_id, values in self._consumer_values.items():
            try:
                images[group_id] = image_of(group_id, values)
            except (DecodeError, ValueError, struct.error) as error:
                logger.error("skipping the group %s, whose records cannot be read: %s", group_id, error)
        return images

    def _add_marker(self, batch: LoadedBatch) -> None:
        for record in batch.records[:1]:
            if record.key is None or len(record.key) < _CONTROL_KEY.size:
                continue
            _, kind = _CONTROL_KEY.unpack_from(record.key)
            is_commit = kind == ControlType.COMMIT
            for group_id in self.open_transactions.pop(batch.producer_id, {}):
                self._offsets[group_id].end_transaction(batch.producer_id, batch.base_offset, is_commit=is_commit)

    def groups(self) -> list[ReplayedGroup]:
        """Groups with a record first, then those that only have offsets."""
        images = self._images()
        found = [
            ReplayedGroup(group_id, None, self._offsets.get(group_id, GroupOffsets()), image)
            for group_id, image in images.items()
        ]
        found += [
            ReplayedGroup(group_id, snapshot, self._offsets.get(group_id, GroupOffsets()))
            for group_id, snapshot in self._snapshots.items()
        ]
        found += [
            ReplayedGroup(group_id, None, offsets)
            for group_id, offsets in self._offsets.items()
            if group_id not in self._snapshots and group_id not in images and not offsets.is_empty
        ]
        return found
