"""LocalMarkers: markers for partitions that the coordinator's own broker leads, without a connection to itself.

Implements `transactions.marker_sender.MarkersHere`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.marker_appends import MarkerAppends, MarkerResults, MarkerToAppend
from ottla_broker.transactions.markers import Marker


class LocalMarkers:
    """See `ottla_broker.transactions.marker_sender.MarkersHere`."""

    def __init__(self, broker_id: int, appends: MarkerAppends) -> None:
        self.broker_id = broker_id
        self._appends = appends

    def write(self, marker: Marker, on_written: Callable[[Mapping[TopicPartition, ErrorCode]], None]) -> None:
        entry = MarkerToAppend(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.is_commit,
            marker.transaction_version,
            marker.partitions,
        )
        self._appends.append((entry,), partial(_report, marker.producer_id, on_written))


def _report(
    producer_id: int, on_written: Callable[[Mapping[TopicPartition, ErrorCode]], None], results: MarkerResults
) -> None:
    on_written({one: ErrorCode.of(written.error_code) for one, written in results[producer_id].items()})
