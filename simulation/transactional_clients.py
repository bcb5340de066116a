"""Producers with a transactional id and read_committed consumers, by the rules of the official client.

A `TransactionalId` has one producer after the other, as an application that is restarted has: some end in good order,
some die in the middle of a transaction, and some are paused, so that they come back as zombies when their successor is
at work. What they did and were told is in the `TransactionOracle`. An answer that the official client would take for a
mistake of the broker is a `Violation`.

With a `Checkpoint` its transactions have two phases (KIP-939) and are of transaction.version 2: what the checkpoint has
is decided, and the next producer ends what the one before it has left as the checkpoint says.

Source: org.apache.kafka.clients.producer.internals.TransactionManager (KIP-98, KIP-360, KIP-447, KIP-588, KIP-890).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.batches import build_batch, read_batches
from simulation.checker import Partition, Violation
from simulation.client import Client, Unavailable
from simulation.coordinators import GROUP, TRANSACTION, find_coordinator
from simulation.transaction_oracle import ProducerTransaction, TransactionOracle
from simulation.workload import Workload
from simulation.world import EPOCH_MS

_OTHER_COORDINATOR = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_COORDINATOR_BUSY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)
_OF_THE_OPEN_TRANSACTION = (ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT)
"""What these do is done to whatever transaction of their producer epoch is open when they arrive."""
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_ABORTABLE = (
    *_FENCED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
)
"""Of a Produce: the transaction is aborted, and the producer continues with another epoch (KIP-360). Its coordinator
tells a fenced one so."""
_ATTEMPTS = (1, 1, 3)
"""After so many sends of a batch its delivery has timed out: the transaction is aborted. The batch may yet arrive."""
_PRODUCE_TIMEOUTS_S = (0.5, 1.5, 4.0)


class FencedError(Exception):
    """Another producer has the transactional id."""


class AbortableError(Exception):
    """The transaction cannot be committed."""


class _DeadError(Exception):
    """The application of the producer has died."""


class Checkpoint:
    """Where an application decides over its transactions: outside of the brokers, durable, with one owner at a time."""

    def __init__(self) -> None:
        self._owner: object = None
        self._prepared: tuple[int, int] | None = None
        """Producer id and epoch of the last transaction that is decided to commit."""

    def own(self, owner: object) -> None:
        """A new application takes over: nothing that the former one prepares is decided any more."""
        self._owner = owner

    def check(self, owner: object) -> None:
        """Raises FencedError when another application has taken over."""
        if self._owner is not owner:
            raise FencedError

    def store(self, owner: object, prepared: tuple[int, int]) -> None:
        """Decides that the transaction commits. Raises FencedError."""
        self.check(owner)
        self._prepared = prepared

    def has(self, prepared: tuple[int, int]) -> bool:
        return self._prepared == prepared


class TransactionalClient:
    """One producer, from InitProducerId until it is fenced, dies or has done its work."""

    def __init__(
        self,
        workload: Workload,
        oracle: TransactionOracle,
        client: Client,
        transactional_id: str,
        partitions: Sequence[Partition],
        draw: random.Random,
        next_offset: Callable[[], int],
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """`next_offset` gives the offset to commit for the group in a transaction."""
        self._workload = workload
        self._oracle = oracle
        self._client = client
        self._id = transactional_id
        self._group = f"group-{transactional_id}"
        self._partitions = partitions
        self._random = draw
        self._next_offset = next_offset
        self._checkpoint = checkpoint
        self._has_leaders_add = checkpoint is not None and draw.random() < 0.5
        """The leaders of partitions and of the group have them added to the transaction (KIP-890)."""
        self._current_one_answered = True
        """The last answer came from a coordinator that had not been replaced."""
        self._asked = 0
        self._began_s = 0.0
        """When its transaction began."""
        self._has_given_up = False
        """A request of this epoch may arrive yet, and be taken for one of the next transaction."""
        self._may_fence_itself = False
        """An InitProducerId that names no epoch may arrive yet, and fence whoever has one. One that names an epoch is
        refused then, or known for a repeated one (KIP-360)."""
        self._attempts = draw.choice(_ATTEMPTS)
        self._produce_timeout_s = draw.choice(_PRODUCE_TIMEOUTS_S)
        self._timeout_ms = draw.choice((1500, 4000, 15_000))
        self._coordinators: dict[int, tuple[str, int]] = {}
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[Partition, int] = {}
        self.is_dead = False
        self.paused_until = 0.0

    async def run(self, *, only_initialize: bool = False) -> None:
        try:
            await self._initialize()
            await self._read_group_offset()
            while not (only_initialize or self._workload.is_stopping):
                await self._run_transaction()
                if self._has_given_up and self._checkpoint is None:
                    # The official client goes on in its epoch, and a late EndTxn ends its next transaction: what
                    # transaction.version 2 is for (KIP-890). An epoch for itself refuses it with version 0 as well.
                    await self._initialize()
                await self._step()
                await asyncio.sleep(self._random.choice((0.0, 0.02, 0.3)) * self._random.random())
        except (FencedError, _DeadError):
            pass

    async def _step(self) -> None:
        """Between any two requests: the application may have died, or be paused."""
        now = self._workload.world.loop.time()
        if self.paused_until > now and not self._workload.is_stopping:
            await asyncio.sleep(self.paused_until - now)
        if self.is_dead:
            raise _DeadError

    # -- one transaction --------------------------------------------------------------------------------------------

    async def _run_transaction(self) -> None:
        draw = self._random
        transaction = self._oracle.begin(self._id, self._epoch)
        self._began_s = self._workload.world.loop.time()
        added: set[Partition] = set()
        index = 0
        try:
            for _ in range(draw.choice((1, 1, 2, 4))):
                partitions = draw.sample(self._partitions, draw.randint(1, min(3, len(self._partitions))))
                fresh = [one for one in partitions if one not in added]
                if fresh and not self._has_leaders_add:
                    await self._add_partitions(fresh)
                    added.update(fresh)
                for partition in partitions:
                    names = [self._oracle.name_of(transaction, index + number) for number in range(draw.choice((1, 3)))]
                    index += len(names)
                    await self._produce(transaction, partition, names)
                if draw.random() < 0.3:
                    await asyncio.sleep(draw.choice((0.05, 0.5, 2.0)) * draw.random())
            if draw.random() < 0.7:
                await self._commit_offset(transaction, self._next_offset())
            if draw.random() < 0.8:
                await self._prepare(transaction)
                await self._end(transaction, is_commit=True)
                return
        except AbortableError:
            await self._end(transaction, is_commit=False)
            if self._checkpoint is not None:
                return  # in the next epoch already
            if draw.random() < 0.5:  # what it sent may arrive now, and nobody writes behind it
                await asyncio.sleep(draw.choice((1.0, 4.0)) * draw.random())
            await self._initialize()
            return
        await self._end(transaction, is_commit=False)

    async def _prepare(self, transaction: ProducerTransaction) -> None:
        """In two phases: the checkpoint has it, so it is committed whoever ends it, and whenever."""
        if self._checkpoint is not None:
            await self._step()
            self._checkpoint.store(self, (self._producer_id, self._epoch))
            self._oracle.committed(transaction, "its checkpoint has it")
            if self._random.random() < 0.3:
                await asyncio.sleep(self._random.choice((0.5, 4.0, 20.0)) * self._random.random())

    async def _initialize(self) -> None:
        """A new epoch; a producer that has one names it, and is refused when another one has fenced it (KIP-360)."""
        if self._checkpoint is not None:
            await self._recover(self._checkpoint)
            return
        init = codec.module(ApiKey.INIT_PRODUCER_ID)
        is_known = self._producer_id >= 0
        self._asked = self._oracle.asks_for_an_epoch(self._id)

        def body(version: int) -> Any:
            return init.InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=self._producer_id if version >= 3 else -1,
                producer_epoch=self._epoch if version >= 3 else -1,
            )

        answer = await self._coordinated(
            TRANSACTION, ApiKey.INIT_PRODUCER_ID, range(3 if is_known else 0, 6), body, lambda one: [one.error_code]
        )
        self._take_epoch(answer)

    async def _recover(self, checkpoint: Checkpoint) -> None:
        """Keeps what the producer before this one has left open, and ends it as the checkpoint says."""
        init = codec.module(ApiKey.INIT_PRODUCER_ID)
        checkpoint.own(self)
        self._asked = self._oracle.asks_for_an_epoch(self._id)
        named = init.InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            enable2_pc=True,
            keep_prepared_txn=True,
        )
        answer = await self._coordinated(
            TRANSACTION, ApiKey.INIT_PRODUCER_ID, range(6, 7), lambda version: named, lambda one: [one.error_code]
        )
        # A request that was late may have fenced the producer of the next owner, whose transaction is not this one's
        # to end: the owner may still decide that it commits.
        checkpoint.check(self)
        self._take_epoch(answer)
        ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
        if ongoing != (-1, -1):
            self._oracle.kept(self._id, ongoing[1], is_commit=checkpoint.has(ongoing))
            await self._step()
            self._take_epoch(await self._ask_to_end(is_commit=checkpoint.has(ongoing)))

    def _take_epoch(self, answer: Any) -> None:
        """From here on the producer has what the coordinator has given it."""
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._has_given_up = False
        self._oracle.initialized(self._id, self._epoch)

    async def _add_partitions(self, partitions: Sequence[Partition]) -> None:
        add = codec.module(ApiKey.ADD_PARTITIONS_TO_TXN)
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)

        def body(version: int) -> Any:
            return add.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self._producer_id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=[
                    add.AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
                ],
            )

        await self._coordinated(
            TRANSACTION,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            range(4),
            body,
            lambda answer: [
                part.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            ],
        )

    async def _produce(self, transaction: ProducerTransaction, partition: Partition, names: Sequence[str]) -> None:
        produce = codec.module(ApiKey.PRODUCE)
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            names,
            timestamp_ms=EPOCH_MS + int(self._workload.world.loop.time() * 1000),
            padding=self._random.choice((0, 10, 500)),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = produce.PartitionProduceData(index=partition[1], records=batch)
        topic = produce.TopicProduceData(name=partition[0], partition_data=[data])
        body = produce.ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=3000, topic_data=[topic])
        version = 12 if self._has_leaders_add else self._random.choice((3, 5, 7, 8, 9, 10, 11))
        for _ in range(self._attempts):
            await self._step()
            try:
                address = self._client.leader_of(partition)
                if address is None:
                    raise Unavailable("no leader is known")
                response = await self._client.request(
                    address, ApiKey.PRODUCE, version, body, timeout_s=self._produce_timeout_s
                )
            except Unavailable:
                await self._back_off()
                continue
            part = response.responses[0].partition_responses[0]
            code = ErrorCode.of(part.error_code)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[partition] = sequence + len(names)
                offset = part.base_offset if code is ErrorCode.NONE else -1
                self._oracle.acknowledged(transaction, partition, names, offset)
                return
            if code in _ABORTABLE:
                raise AbortableError(code.name)
            if not code.retriable:
                raise Violation(f"{transaction} produces to {partition} and gets {code.name}: {part.error_message}")
            await self._back_off()
        raise AbortableError("the delivery has timed out")

    async def _commit_offset(self, transaction: ProducerTransaction, offset: int) -> None:
        add = codec.module(ApiKey.ADD_OFFSETS_TO_TXN)
        commit = codec.module(ApiKey.TXN_OFFSET_COMMIT)
        named = add.AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=self._group,
        )
        if not self._has_leaders_add:
            await self._coordinated(
                TRANSACTION, ApiKey.ADD_OFFSETS_TO_TXN, range(5), lambda version: named, lambda one: [one.error_code]
            )
        topic, number = self._partitions[0]
        transaction.group_offset = offset

        def body(version: int) -> Any:
            part = commit.TxnOffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            return commit.TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=self._group,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                topics=[commit.TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
            )

        await self._coordinated(
            GROUP,
            ApiKey.TXN_OFFSET_COMMIT,
            range(5, 6) if self._has_leaders_add else range(5),
            body,
            lambda answer: [part.error_code for one in answer.topics for part in one.partitions],
        )

    async def _end(self, transaction: ProducerTransaction, *, is_commit: bool) -> None:
        await self._step()
        if is_commit:
            self._oracle.commit_asked(transaction)
        else:
            self._oracle.aborted(transaction, "its producer aborts it")
        answer = await self._ask_to_end(is_commit=is_commit)
        if is_commit:
            self._oracle.committed(transaction, "EndTxn was answered")
        if self._checkpoint is not None:
            self._take_epoch(answer)

    async def _ask_to_end(self, *, is_commit: bool) -> Any:
        end = codec.module(ApiKey.END_TXN)
        body = end.EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )
        versions = range(5) if self._checkpoint is None else range(5, 6)
        return await self._coordinated(
            TRANSACTION, ApiKey.END_TXN, versions, lambda version: body, lambda one: [one.error_code]
        )

    # -- the group --------------------------------------------------------------------------------------------------

    async def _read_group_offset(self) -> None:
        offset = await self.group_offset()
        self._oracle.group_offset(self._id, self._epoch, offset, may_be_old=not self._current_one_answered)

    async def group_offset(self) -> int:
        """The committed offset of the group, -1 for none; waits for open transactions (KIP-447)."""
        fetch = codec.module(ApiKey.OFFSET_FETCH)
        topic, number = self._partitions[0]

        def body(version: int) -> Any:
            asked = fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[number])
            return fetch.OffsetFetchRequest(group_id=self._group, topics=[asked], require_stable=True)

        answer = await self._coordinated(
            GROUP,
            ApiKey.OFFSET_FETCH,
            range(7, 8),
            body,
            lambda one: [one.error_code, *(part.error_code for topic in one.topics for part in topic.partitions)],
        )
        committed: int = answer.topics[0].partitions[0].committed_offset
        return committed

    # -- coordinators -----------------------------------------------------------------------------------------------

    async def _coordinated(
        self,
        key_type: int,
        api_key: ApiKey,
        versions: range,
        body: Callable[[int], Any],
        errors: Callable[[Any], list[int]],
    ) -> Any:
        """Asks the coordinator until it answers for good.

        Raises:
            FencedError, AbortableError: see there.
        """
        version = self._random.choice(versions)
        while True:
            await self._step()
            were_current = self._all_are_current()
            try:
                address = await self._coordinator(key_type)
                was_current = self._workload.is_current(address)
                answer = await self._client.request(address, api_key, version, body(version), timeout_s=4.0)
            except Unavailable:
                self._has_given_up |= api_key in _OF_THE_OPEN_TRANSACTION
                names_no_epoch = self._producer_id < 0 or self._checkpoint is not None
                self._may_fence_itself |= api_key is ApiKey.INIT_PRODUCER_ID and names_no_epoch
                self._coordinators.pop(key_type, None)
                await self._back_off()
                continue
            codes = {ErrorCode.of(code) for code in errors(answer)} - {ErrorCode.NONE}
            if not codes:
                self._current_one_answered = was_current and self._workload.is_current(address)
                return answer
            if codes & set(_FENCED):
                raise FencedError
            if codes & {ErrorCode.TRANSACTION_ABORTABLE}:
                raise AbortableError
            if codes & set(_OTHER_COORDINATOR):
                self._coordinators.pop(key_type, None)
            elif codes == {ErrorCode.INVALID_TXN_STATE} and (
                not (were_current and self._all_are_current())
                or (api_key is ApiKey.TXN_OFFSET_COMMIT and self._is_being_fenced())
            ):
                # From the memory of a coordinator that has been replaced and does not know it yet: it is asked whether
                # the group's partition is in the transaction. Or the marker that ends the transaction of a producer
                # that is being fenced comes between the verification of a TxnOffsetCommit and its append, and Apache
                # Kafka checks that before the epoch (UnifiedLog.analyzeAndValidateProducerState). To the official
                # client the error is fatal.
                raise _DeadError
            elif not codes <= set(_COORDINATOR_BUSY):
                names = ", ".join(sorted(code.name for code in codes))
                raise Violation(f"{api_key.name} of {self._id} (epoch {self._epoch}) gave {names}")
            await asyncio.sleep(0.02 + 0.1 * self._random.random())

    def _is_being_fenced(self) -> bool:
        """Whether another producer has asked for an epoch, or this one has asked twice, or the transaction has timed
        out."""
        lasted_s = self._workload.world.loop.time() - self._began_s
        has_timed_out = self._checkpoint is None and lasted_s >= self._timeout_ms / 1000
        return not self._oracle.is_latest(self._id, self._asked) or self._may_fence_itself or has_timed_out

    def _all_are_current(self) -> bool:
        """Whether no broker believes to lead what another one leads by now."""
        return all(self._workload.is_current(address) for address in self._client.bootstrap)

    async def _coordinator(self, key_type: int) -> tuple[str, int]:
        """Raises Unavailable."""
        known = self._coordinators.get(key_type)
        if known is not None:
            return known
        key = self._group if key_type == GROUP else self._id
        found = await find_coordinator(self._client, self._random, key, key_type)
        self._coordinators[key_type] = found
        return found

    async def _back_off(self) -> None:
        await asyncio.sleep(0.05 + 0.1 * self._random.random())
        try:
            await self._client.refresh()
        except Unavailable:
            pass


class TransactionalId:
    """The producers of one transactional id, one after the other and sometimes two at a time."""

    def __init__(
        self,
        workload: Workload,
        oracle: TransactionOracle,
        client: Client,
        transactional_id: str,
        partitions: Sequence[Partition],
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._workload = workload
        self._oracle = oracle
        self._client = client
        self._id = transactional_id
        self._partitions = partitions
        self._checkpoint = checkpoint
        self._random = workload.world.stream(f"transactional id/{transactional_id}")
        self._producers = 0
        self._offset = 0

    async def run(self) -> None:
        """Until the workload stops; what is open then is ended by one more producer."""
        running: set[asyncio.Task[None]] = set()
        draw = self._random
        while not self._workload.is_stopping:
            producer = self.producer()
            name = f"producer {self._producers} of {self._id}"
            task = self._workload.world.spawn(producer.run(), name=name)
            running.add(task)
            await asyncio.wait({task}, timeout=draw.choice((0.5, 3.0, 10.0)) * (0.2 + draw.random()))
            if not task.done() and not self._workload.is_stopping:
                fate = draw.random()
                if fate < 0.4:
                    producer.is_dead = True
                elif fate < 0.8:
                    seconds = draw.choice((0.5, 2.0, 6.0)) * (0.2 + draw.random())
                    producer.paused_until = self._workload.world.loop.time() + seconds
            for ended in [one for one in running if one.done()]:
                running.discard(ended)
                ended.result()
            await asyncio.sleep(draw.choice((0.0, 0.1, 1.0)) * draw.random())
        for task in running:
            await task
        await self.producer().run(only_initialize=True)

    def producer(self) -> TransactionalClient:
        """The next one."""
        self._producers += 1
        return TransactionalClient(
            self._workload,
            self._oracle,
            self._client,
            self._id,
            self._partitions,
            self._workload.world.stream(f"producer {self._producers} of {self._id}"),
            self._next_offset,
            self._checkpoint,
        )

    def _next_offset(self) -> int:
        self._offset += 1
        return self._offset


class CommittedReader:
    """A read_committed consumer of one partition, from its beginning on."""

    def __init__(
        self, workload: Workload, client: Client, partition: Partition, deliver: Callable[[Partition, int, str], None]
    ) -> None:
        self._workload = workload
        self._client = client
        self._partition = partition
        self._deliver = deliver
        self._random = workload.world.stream(f"committed reader/{partition}/{client.name}")
        self.position = 0

    async def run(self) -> None:
        """Until the workload stops."""
        while not self._workload.is_stopping:
            try:
                await self.fetch()
            except Unavailable:
                await asyncio.sleep(0.1)
                try:
                    await self._client.refresh()
                except Unavailable:
                    pass
            await asyncio.sleep(self._random.random() * 0.2)

    async def fetch(self) -> None:
        """One request. Raises Unavailable for whatever is to be tried again."""
        fetch = codec.module(ApiKey.FETCH)
        version = self._random.randrange(4, 13)
        known = self._client.state.partitions.get(self._partition)
        address = self._client.leader_of(self._partition)
        if known is None or address is None:
            raise Unavailable("no leader is known")
        part = fetch.FetchPartition(
            partition=self._partition[1],
            current_leader_epoch=known.leader_epoch if version >= 9 else -1,
            fetch_offset=self.position,
            partition_max_bytes=self._random.choice((1, 1000, 1 << 20)),
        )
        body = fetch.FetchRequest(
            max_wait_ms=self._random.choice((0, 100)),
            min_bytes=1,
            max_bytes=50 << 20,
            isolation_level=1,
            session_epoch=-1,
            topics=[fetch.FetchTopic(topic=self._partition[0], partitions=[part])],
        )
        response = await self._client.request(address, ApiKey.FETCH, version, body, timeout_s=5.0)
        if response.error_code:
            raise Unavailable(ErrorCode.of(response.error_code).name)
        answer = response.responses[0].partitions[0]
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Unavailable("a leader that has been replaced, or the end of the run will tell")
        if code is not ErrorCode.NONE:
            if not code.retriable:
                raise Violation(f"fetching {self._partition} gave {code.name}")
            raise Unavailable(code.name)
        self._take(answer)

    def _take(self, answer: Any) -> None:
        """As the official client drops what was aborted: by the list of aborted transactions, up to their markers."""
        waiting = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
        aborted: set[int] = set()
        for batch in read_batches(answer.records or b""):
            if batch.last_offset >= answer.last_stable_offset:
                raise Violation(
                    f"{self._partition}: a batch up to {batch.last_offset} was given to a read_committed consumer"
                    f" beyond the last stable offset {answer.last_stable_offset}"
                )
            while waiting and waiting[0][0] <= batch.last_offset:
                aborted.add(waiting.pop(0)[1])
            if batch.is_control:
                if batch.names == ("ABORT",):
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                for offset, name in batch.records():
                    if offset >= self.position:
                        self._deliver(self._partition, offset, name)
            self.position = max(self.position, batch.last_offset + 1)
