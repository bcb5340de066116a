"""Rebuilds the transactional ids of one partition from its log.

Pure: batches in log order go in, the metadata of each transactional id come out. For every key the last record
counts, a tombstone removes.
"""

from __future__ import annotations

import logging
import struct

from ottla_broker.internal_topics.topic_log import LoadedBatch
from ottla_broker.protocol.codec import DecodeError
from ottla_broker.records.record import Record
from ottla_broker.transactions.decisions import TransactionMetadata
from ottla_broker.transactions.records import UnreadableValue, read_key, read_value

logger = logging.getLogger("ottla.transactions")


class TransactionReplay:
    """Feed `add` with every batch, then take `found`."""

    def __init__(self) -> None:
        self.found: dict[str, TransactionMetadata] = {}

    def add(self, batch: LoadedBatch) -> None:
        """A record that is not one of ours is logged and skipped: one bad record does not hide all others."""
        if batch.is_control:
            return
        for record in batch.records:
            try:
                self._add_record(record)
            except (DecodeError, UnreadableValue, struct.error) as error:
                logger.error("skipping the record at offset %d of __transaction_state: %s", record.offset, error)

    def _add_record(self, record: Record) -> None:
        transactional_id = None if record.key is None else read_key(record.key)
        if transactional_id is None:
            logger.warning("skipping a record of an unknown kind at offset %d of __transaction_state", record.offset)
        elif record.value is None:
            self.found.pop(transactional_id, None)
        else:
            self.found[transactional_id] = read_value(record.value)
