"""A transaction as its coordinator serves it: begin, enlist, offsets within it, end (KIP-98).

Every request is sent again until its answer is final or max.block.ms is over: to a new coordinator after a failover,
after a pause while the last transaction of the id is still being completed. A transaction that was committed twice is
committed: the coordinator answers the second request as the first one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla_broker.protocol.generated.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla_broker.protocol.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla_broker.protocol.generated.end_txn import EndTxnRequest
from ottla_broker.protocol.generated.find_coordinator import FindCoordinatorRequest
from ottla_broker.protocol.generated.init_producer_id import InitProducerIdRequest
from ottla_broker.protocol.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla_broker.protocol.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla_pipeline.errors import OptionError, ProducerFenced, RequestRefused, TransactionFailed
from ottla_pipeline.sink.plain_batch import WritingProducer
from ottla_pipeline.topic_partition import TopicPartition
from ottla_pipeline.wire.cluster import Address, Cluster, NotYet
from ottla_pipeline.wire.connection import error_of

GROUP, TRANSACTION = 0, 1
_BROKER = 4
"""The type of a broker's configuration in DescribeConfigs."""
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_WAITING_S = 0.02
"""While the coordinator completes another transaction of the id, as Java's producer."""


class Coordinators:
    """Requests to coordinators, sent again until they are answered for good."""

    def __init__(self, cluster: Cluster, *, max_block_ms: int, backoff_ms: int) -> None:
        """Both arguments as the options of their names."""
        self._cluster = cluster
        self._max_block_ms = max_block_ms
        self._backoff_s = max(backoff_ms, 10) / 1000
        self._known: dict[tuple[int, str], Address] = {}
        self._nodes: dict[Address, int] = {}

    def ask(
        self, kind: int, key: str, api_key: ApiKey, request: Any, errors_of: Callable[[Any], Sequence[int]]
    ) -> tuple[Any, ErrorCode]:
        """The answer of the coordinator of `key`, and its first error that another try does not change, or NONE.

        TransactionFailed when there is no final answer within max.block.ms.
        """
        deadline = time.monotonic() + self._max_block_ms / 1000
        while True:
            pause = self._backoff_s
            try:
                address = self._coordinator(kind, key)
                answer = self._cluster.connection(*address).ask(api_key, request)
                errors = [error_of(code) for code in errors_of(answer)]
                wrong = [error for error in errors if error is not ErrorCode.NONE]
                if not wrong:
                    return answer, ErrorCode.NONE
                if wrong[0] is ErrorCode.CONCURRENT_TRANSACTIONS:
                    pause = _WAITING_S
                elif wrong[0] in _MOVED:
                    self._known.pop((kind, key), None)
                elif not wrong[0].retriable:
                    return answer, wrong[0]
                reason = f"{wrong[0].name}, {wrong[0].message}"
            except (NotYet, OSError) as error:
                reason = str(error)
                found = self._known.pop((kind, key), None)
                if found is not None:
                    self._cluster.drop(found)
            if time.monotonic() > deadline:
                raise TransactionFailed(
                    f"{api_key.name} for {key!r} has no answer within {self._max_block_ms} ms (kafka.max.block.ms):"
                    f" {reason}"
                )
            time.sleep(pause)

    def committed_offset(self, group: str, partition: TopicPartition) -> tuple[int, str]:
        """The group's committed offset and its metadata, -1 where there is none. Waits for open transactions."""
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.partition])],
            require_stable=True,
        )

        def errors_of(answer: Any) -> list[int]:
            return [answer.error_code, *(one.error_code for topic in answer.topics for one in topic.partitions)]

        answer, error = self.ask(GROUP, group, ApiKey.OFFSET_FETCH, request, errors_of)
        if error is not ErrorCode.NONE:
            raise TransactionFailed(f"the offsets of group {group!r} cannot be read: {error.name}, {error.message}")
        found = answer.topics[0].partitions[0]
        return found.committed_offset, found.metadata or ""

    def config(self, kind: int, key: str, name: str) -> str | None:
        """The value of a configuration key of the coordinator's broker; None where it does not say."""
        try:
            node = self._nodes[self._coordinator(kind, key)]
        except (NotYet, OSError):
            return None
        asked = DescribeConfigsResource(resource_type=_BROKER, resource_name=str(node), configuration_keys=[name])
        try:
            answer, error = self.ask(
                kind,
                key,
                ApiKey.DESCRIBE_CONFIGS,
                DescribeConfigsRequest(resources=[asked]),
                lambda answer: [one.error_code for one in answer.results],
            )
        except RequestRefused:  # it serves no DescribeConfigs
            return None
        if error is not ErrorCode.NONE:
            return None
        return next((found.value for one in answer.results for found in one.configs if found.name == name), None)

    def _coordinator(self, kind: int, key: str) -> Address:
        found = self._known.get((kind, key))
        if found is None:
            answer = self._cluster.ask_any(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key=key, key_type=kind))
            error = error_of(answer.error_code)
            if error is not ErrorCode.NONE:
                what = f"the coordinator of {key!r}: {error.name}, {answer.error_message or error.message}"
                raise NotYet(what) if error.retriable else TransactionFailed(what)
            found = self._known[kind, key] = (answer.host, answer.port)
            self._nodes[found] = answer.node_id
        return found


class SinkTransaction:
    """One transaction after the other of one transactional id. It begins with the first partition or offset in it."""

    def __init__(self, coordinators: Coordinators, transactional_id: str, timeout_ms: int) -> None:
        """`timeout_ms`: after so long the coordinator aborts a transaction that was not ended."""
        self._coordinators = coordinators
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer = WritingProducer(-1, -1)
        self._is_open = False

    def begin(self) -> WritingProducer:
        """Takes the id: an open transaction of it is aborted, and whoever had it before is fenced."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)
        answer, error = self._ask(ApiKey.INIT_PRODUCER_ID, request, lambda answer: [answer.error_code])
        if error is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise OptionError(
                "kafka.transaction.timeout.ms", f"{self._timeout_ms} is above the brokers' transaction.max.timeout.ms"
            )
        self._raise(error, "begin")
        self._producer = WritingProducer(answer.producer_id, answer.producer_epoch, is_transactional=True)
        return self._producer

    def enlist(self, partitions: Sequence[TopicPartition]) -> None:
        """Adds partitions, before anything is written to them."""
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        if not topics:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer.producer_id,
            v3_and_below_producer_epoch=self._producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in topics.items()
            ],
        )
        self._is_open = True
        _, error = self._ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            request,
            lambda answer: [
                one.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
                if one.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED
            ],
        )
        self._raise(error, "add partitions to")

    def commit_offset(self, group: str, partition: TopicPartition, offset: int, metadata: str) -> None:
        """Commits an offset of a group with the transaction."""
        self._is_open = True
        producer_id, epoch = self._producer.producer_id, self._producer.epoch
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group
        )
        _, error = self._ask(ApiKey.ADD_OFFSETS_TO_TXN, request, lambda answer: [answer.error_code])
        self._raise(error, "add offsets to")
        committed = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=metadata
        )
        commit = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[committed])],
        )
        _, error = self._coordinators.ask(
            GROUP,
            group,
            ApiKey.TXN_OFFSET_COMMIT,
            commit,
            lambda answer: [one.error_code for topic in answer.topics for one in topic.partitions],
        )
        self._raise(error, f"commit an offset of group {group!r} in")

    def end(self, *, commit: bool) -> None:
        """Commits or aborts; does nothing where nothing has begun."""
        if not self._is_open:
            return
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            committed=commit,
        )
        _, error = self._ask(ApiKey.END_TXN, request, lambda answer: [answer.error_code])
        self._raise(error, "commit" if commit else "abort")
        self._is_open = False

    def _ask(self, api_key: ApiKey, request: Any, errors_of: Callable[[Any], Sequence[int]]) -> tuple[Any, ErrorCode]:
        return self._coordinators.ask(TRANSACTION, self.transactional_id, api_key, request, errors_of)

    def _raise(self, error: ErrorCode, act: str) -> None:
        if error is ErrorCode.NONE:
            return
        what = f"cannot {act} the transaction of {self.transactional_id!r}: {error.name}"
        if error in _FENCED:
            raise ProducerFenced(
                f"{what}: another copy of this query or job writes with this transactional id, or the transaction took"
                f" longer than {self._timeout_ms} ms (kafka.transaction.timeout.ms)"
            )
        raise TransactionFailed(f"{what}, {error.message}")
