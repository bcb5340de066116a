"""A log with committed, aborted and open transactions, written over the wire without a transaction coordinator."""

from __future__ import annotations

from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.integration.clients.topics import metadata
from tests.integration.wire import Wire, batch, produce_request

_TRANSACTIONAL = 0x10


class Transactions:
    """Stands where producers and their coordinator stand, for partition 0 of one topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        addresses = bootstrap.split(",")
        with Wire(addresses[0]) as wire:
            leader = metadata(wire, topic)[0]
        self.address = addresses[leader]
        self.topic = topic
        self._stop_verification()
        self._sequences: dict[int, int] = {}

    def produce(self, producer_id: int, *values: bytes, is_transactional: bool = True) -> int:
        """One batch; its first offset."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        records = batch(
            *values,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            attributes=_TRANSACTIONAL if is_transactional else 0,
        )
        request = produce_request(self.topic, records)
        request.transactional_id = "t" if is_transactional else None
        answer = self._ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0]
        assert answer.error_code == 0, answer.error_message
        offset: int = answer.base_offset
        return offset

    def end(self, producer_id: int, *, commit: bool) -> None:
        """The marker, on every in-sync replica when this returns."""
        api = codec.module(ApiKey.WRITE_TXN_MARKERS)
        topic = api.WritableTxnMarkerTopic(name=self.topic, partition_indexes=[0])
        marker = api.WritableTxnMarker(
            producer_id=producer_id, producer_epoch=0, transaction_result=commit, coordinator_epoch=0, topics=[topic]
        )
        response = self._ask(ApiKey.WRITE_TXN_MARKERS, 1, api.WriteTxnMarkersRequest(markers=[marker]))
        assert response.markers[0].topics[0].partitions[0].error_code == 0

    def _stop_verification(self) -> None:
        """There is no coordinator that knows of these transactions."""
        api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        change = api.AlterableConfig(
            name="transaction.partition.verification.enable", config_operation=0, value="false"
        )
        every_broker = api.AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        request = api.IncrementalAlterConfigsRequest(resources=[every_broker])
        response = self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert response.responses[0].error_code == 0, response.responses[0].error_message

    def _ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        with Wire(self.address) as wire:
            return wire.ask(api_key, version, request)


def write_every_kind(transactions: Transactions) -> tuple[list[bytes], list[bytes]]:
    """Interleaved, over several segments where the topic's are small; what read_committed must see before the end of
    the transaction that stays open, and after it has been committed."""
    committed: list[bytes] = []
    for number in range(12):
        name = b"%03d " % number
        transactions.produce(1, name + b"committed 1", name + b"committed 2")
        transactions.produce(2, name + b"aborted 1", name + b"aborted 2")
        transactions.produce(3, name + b"plain", is_transactional=False)
        transactions.produce(2, name + b"aborted 3")
        transactions.produce(1, name + b"committed 3")
        transactions.end(2, commit=False)
        transactions.end(1, commit=True)
        committed += [name + b"committed 1", name + b"committed 2", name + b"plain", name + b"committed 3"]
    transactions.produce(4, b"open 1")
    transactions.produce(3, b"behind the open one", is_transactional=False)
    transactions.produce(2, b"aborted behind the open one")
    transactions.end(2, commit=False)
    return committed, [*committed, b"open 1", b"behind the open one"]
