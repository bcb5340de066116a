"""Producers, consumers and an administrator over the simulated network, and their conclusions from the responses.

Every record has a name, "<producer>/<number>". The workload reports to the checker what was sent, acknowledged and
delivered. It retries as the official clients do; a response that they would treat as a bug of the broker is a
`Violation`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.batches import Batch, build_batch, read_batches
from simulation.checker import Checker, Partition, Violation
from simulation.client import Client, Unavailable
from simulation.fetch_session import ClientFetchSession
from simulation.world import EPOCH_MS, World

_FETCH_RETRY = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
_SEQUENCE_ERRORS = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


@dataclass
class Guarantees:
    """What a scenario promises."""

    durable_acks: tuple[int, ...]
    """Values of acks whose acknowledgement is a promise under the faults of this scenario."""
    life_of: Callable[[int], int]
    """Life of the process of a broker id, 0 when it is down."""
    losses_of: Callable[[Partition], int] | None = None
    """How often a fault has taken promises of a partition back (number -1: of any of the topic); without it
    `Workload.excused_losses` is meant for all."""
    is_promise: Callable[[Partition, int, float, int | None], bool] | None = None
    """(partition, offset, when it was asked for, leader epoch of what was read): does an answer that comes now hold in
    spite of the losses since? Without it none does that a loss has crossed."""
    is_current: Callable[[tuple[str, int], Partition | None], bool] | None = None
    """Does no partition (or not this one) that the broker at this address believes to lead have another leader by now?
    Such a one may answer from the past."""
    producer_pauses_s: tuple[float, ...] = (0.0, 0.001, 0.01, 0.05, 0.3)
    """What a producer waits between its requests, more or less."""
    stretch: Callable[[], float] = lambda: 1.0
    """By how much producers stretch their pauses now."""
    batch_gap_s: float = 0.0
    """What an idempotent producer waits at most between two batches that it has under way."""


class Workload:
    """The clients of one run. `excused_losses` counts the faults that may lose acknowledged records."""

    def __init__(self, world: World, checker: Checker, guarantees: Guarantees) -> None:
        self.world = world
        self.checker = checker
        self.guarantees = guarantees
        self.excused_losses = 0
        self.is_stopping = False
        self.random = world.stream("workload")
        self._producers: list[asyncio.Task[None]] = []
        self._consumers: list[asyncio.Task[None]] = []
        self._next_producer = 0

    # -- starting and stopping --------------------------------------------------------------------------------------

    def add_producer(self, client: Client, partition: Partition, *, acks: int, is_idempotent: bool) -> None:
        self._next_producer += 1
        producer = Producer(self, client, f"p{self._next_producer}", partition, acks)
        work = producer.run_idempotent() if is_idempotent else producer.run_plain()
        self._producers.append(self.world.spawn(work, name=f"producer-{producer.name}"))

    def add_consumer(self, client: Client, partition: Partition) -> None:
        consumer = Consumer(self, client, partition)
        self._consumers.append(self.world.spawn(consumer.run(), name=f"consumer-{partition[0]}-{partition[1]}"))

    def add_work(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Other work of clients: it must end once the workload stops, and what it raises fails the run."""
        self._consumers.append(self.world.spawn(work, name=name))

    def check(self) -> None:
        """Raises what a producer or consumer found."""
        for task in [*self._producers, *self._consumers]:
            if task.done() and not task.cancelled():
                task.result()

    async def finish(self, timeout_s: float) -> None:
        """No new records; what is under way must be answered within `timeout_s`, all faults being healed."""
        self.is_stopping = True
        tasks = [*self._producers, *self._consumers]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            self.check()
            if late:
                names = ", ".join(sorted(task.get_name() for task in late))
                raise Violation(f"{timeout_s} s after the last fault these are still without an answer: {names}")

    def still_exists(self, topic: str) -> bool:
        return topic in self.checker.topics

    def is_current(self, address: tuple[str, int], partition: Partition | None = None) -> bool:
        """May the broker at this address be believed? See `Guarantees.is_current`."""
        return self.guarantees.is_current is None or self.guarantees.is_current(address, partition)

    def losses(self, partition: Partition) -> int:
        """How often promises of the partition were excused."""
        return self.excused_losses if self.guarantees.losses_of is None else self.guarantees.losses_of(partition)

    def holds(
        self, partition: Partition, offset: int, asked_at_s: float, losses_then: int, leader_epoch: int | None = None
    ) -> bool:
        """Is an answer that comes now, to what was asked at `asked_at_s`, a promise?"""
        if self.guarantees.is_promise is None:
            return self.losses(partition) == losses_then
        if offset < 0:
            return not self.losses(partition)
        return self.guarantees.is_promise(partition, offset, asked_at_s, leader_epoch)


@dataclass
class _Sent:
    names: list[str]
    sequence: int
    padding: int


class Producer:
    """One producer of one partition."""

    def __init__(self, workload: Workload, client: Client, name: str, partition: Partition, acks: int) -> None:
        self.workload = workload
        self.client = client
        self.name = name
        self.partition = partition
        self.acks = acks
        self.random = workload.world.stream(f"producer/{name}")
        self._version = self.random.choice((3, 5, 7, 8, 9, 10, 11))
        self._counter = 0
        self._producer_id = -1
        self._is_known = False
        self._began_late = False
        self._epoch = -1
        self._sequence = 0
        self._forgiven_at = 0
        self._message = ""

    def _names(self) -> list[str]:
        count = self.random.choice((1, 1, 1, 2, 3, 8, 20))
        names = [f"{self.name}/{self._counter + index}" for index in range(count)]
        self._counter += count
        return names

    def _padding(self) -> int:
        return self.random.choice((0, 0, 10, 50, 200, 900))

    async def _pause(self) -> None:
        guarantees = self.workload.guarantees
        seconds = self.random.choice(guarantees.producer_pauses_s) * (0.5 + self.random.random())
        await asyncio.sleep(seconds * guarantees.stretch())

    def _request(self, batch: bytes) -> Any:
        produce = codec.module(ApiKey.PRODUCE)
        data = produce.PartitionProduceData(index=self.partition[1], records=batch)
        topic = produce.TopicProduceData(name=self.partition[0], partition_data=[data])
        return produce.ProduceRequest(acks=self.acks, timeout_ms=3000, topic_data=[topic])

    def _batch(self, names: list[str], padding: int, sequence: int) -> bytes:
        return build_batch(
            names,
            timestamp_ms=EPOCH_MS + int(self.workload.world.loop.time() * 1000),
            padding=padding,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )

    async def _leader(self) -> tuple[str, int]:
        """Raises Unavailable when nobody is known to lead."""
        address = self.client.leader_of(self.partition)
        if address is None:
            await self.client.refresh()
            address = self.client.leader_of(self.partition)
            if address is None:
                raise Unavailable("no leader is known")
        return address

    async def _back_off(self) -> None:
        await asyncio.sleep(0.05 + 0.1 * self.random.random())
        try:
            await self.client.refresh()
        except Unavailable:
            pass

    # -- acks=0, 1 or all without retries ---------------------------------------------------------------------------

    async def run_plain(self) -> None:
        workload = self.workload
        while not workload.is_stopping and workload.still_exists(self.partition[0]):
            names = self._names()
            body = self._request(self._batch(names, self._padding(), -1))
            asked = (workload.world.loop.time(), workload.losses(self.partition))
            try:
                address = await self._leader()
                was_current = workload.is_current(address, self.partition)
                future = await self.client.post(address, ApiKey.PRODUCE, self._version, body, answered=self.acks != 0)
                if future is not None:
                    answer = await self.client.answer(future, address, 8.0)
                    code, offset = self._result(answer)
                    if code == ErrorCode.NONE:
                        self._acknowledge(offset, names, asked, was_current=was_current)
                    elif ErrorCode.of(code).retriable or not workload.still_exists(self.partition[0]):
                        await self._back_off()
                    else:
                        raise Violation(
                            f"producing to {self.partition} gave {ErrorCode.of(code).name}: {self._message}"
                        )
            except Unavailable:
                await self._back_off()
            await self._pause()

    def _acknowledge(self, offset: int, names: list[str], asked: tuple[float, int], *, was_current: bool) -> None:
        """`asked`: when it was sent, and the losses then; `was_current`: whether to a leader not yet replaced."""
        workload = self.workload
        if self.acks not in workload.guarantees.durable_acks or not workload.still_exists(self.partition[0]):
            return
        if workload.losses(self.partition) and not was_current:
            return  # what was lost elsewhere may still stand there, and others have taken its offsets
        if workload.holds(self.partition, offset, *asked):
            workload.checker.acknowledged(self.partition, offset, names)

    def _result(self, answer: Any) -> tuple[int, int]:
        (topic,) = answer.responses
        (part,) = topic.partition_responses
        if (topic.name, part.index) != self.partition:
            raise Violation(f"asked to produce to {self.partition}, answered for {(topic.name, part.index)}")
        self._message = part.error_message or ""
        return part.error_code, part.base_offset

    # -- idempotent -------------------------------------------------------------------------------------------------

    async def run_idempotent(self) -> None:
        workload = self.workload
        pending: list[_Sent] = []
        while workload.still_exists(self.partition[0]):
            if self._producer_id < 0 and not await self._new_id(pending):
                await self._back_off()
                continue
            while len(pending) < self.random.randrange(1, 6) and not workload.is_stopping:
                names = self._names()
                workload.checker.sent_once(names)
                pending.append(_Sent(names, self._sequence, self._padding()))
                self._sequence += len(names)
            if not pending:
                return
            if not await self._send_all(pending):
                await self._back_off()
            await self._pause()

    async def _new_id(self, pending: list[_Sent]) -> bool:
        init = codec.module(ApiKey.INIT_PRODUCER_ID)
        body = init.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            response = await self.client.request(
                self.random.choice(self.client.bootstrap), ApiKey.INIT_PRODUCER_ID, self.random.randrange(0, 5), body
            )
        except Unavailable:
            return False
        if response.error_code:
            if not ErrorCode.of(response.error_code).retriable:
                raise Violation(f"InitProducerId gave {ErrorCode.of(response.error_code).name}")
            return False
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._is_known = self._began_late = False
        self._forgiven_at = self.workload.losses(self.partition)
        self._sequence = 0
        for sent in pending:
            sent.sequence = self._sequence
            self._sequence += len(sent.names)
        return True

    async def _send_all(self, pending: list[_Sent]) -> bool:
        """Sends what is pending one behind the other; takes out what was acknowledged. False after a failure."""
        posted: list[asyncio.Future[Any]] = []
        asked = (self.workload.world.loop.time(), self.workload.losses(self.partition))
        try:
            address = await self._leader()
            was_current = self.workload.is_current(address, self.partition)
            for sent in pending:
                if posted and self.workload.guarantees.batch_gap_s:
                    await asyncio.sleep(self.random.uniform(0, self.workload.guarantees.batch_gap_s))
                body = self._request(self._batch(sent.names, sent.padding, sent.sequence))
                future = await self.client.post(address, ApiKey.PRODUCE, self._version, body)
                assert future is not None
                posted.append(future)
        except Unavailable:
            pass
        is_clean = len(posted) == len(pending)
        is_unanswered = False
        left: list[_Sent] = []
        for sent, future in zip(list(pending), posted, strict=False):
            # A broker that knows nothing of a producer takes it from any sequence on, but not behind one that it has
            # refused: a batch that got no answer is out of order once the next one is taken.
            self._began_late = self._began_late or (is_unanswered and not self._is_known)
            try:
                code, offset = self._result(await self.client.answer(future, address, 8.0))
            except Unavailable:
                is_clean = False
                is_unanswered = True
                left.append(sent)
                continue
            if code == ErrorCode.NONE:
                self._is_known = True
                self._acknowledge(offset, sent.names, asked, was_current=was_current)
            elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._acknowledge(-1, sent.names, asked, was_current=was_current)
            else:
                is_clean = False
                is_leader = was_current and self.workload.is_current(address, self.partition)
                # A leader that has been replaced, and does not know it yet, misses what its successor has taken.
                if is_leader or ErrorCode.of(code) not in _SEQUENCE_ERRORS:
                    self._refused(ErrorCode.of(code), sent, is_first=not left)
                left.append(sent)
        pending[:] = left + pending[len(posted) :]
        if self._producer_id < 0:
            for sent in pending:
                self.workload.checker.may_repeat(sent.names)
        return is_clean

    def _refused(self, code: ErrorCode, sent: _Sent, *, is_first: bool) -> None:
        if code in _SEQUENCE_ERRORS:
            if not is_first:
                return  # a batch before it was not taken: both are sent again
            is_excused = self._began_late or not self.workload.still_exists(self.partition[0])
            if self.workload.losses(self.partition) == self._forgiven_at and not is_excused:
                raise Violation(
                    f"{self.name} sent sequence {sent.sequence} next to {self.partition}"
                    f" with acks={self.acks} and got {code.name}: {self._message}"
                )
            self._producer_id = -1
        elif not code.retriable and self.workload.still_exists(self.partition[0]):
            raise Violation(f"producing to {self.partition} gave {code.name}: {self._message}")


class Consumer:
    """Reads one partition again and again, from the end it has reached or from some offset before it."""

    def __init__(self, workload: Workload, client: Client, partition: Partition) -> None:
        self.workload = workload
        self.client = client
        self.partition = partition
        self.random = workload.world.stream(f"consumer/{partition[0]}-{partition[1]}/{client.name}")
        self.position = 0
        self._leader_epoch = -1
        """The latest of what has been read."""
        self._is_fenced = True
        """The last answer came from a leader of the epoch that the client knew, and clients never go back to an earlier
        one (KIP-320). A request before version 9 names none: it may have met a leader that is newer than known."""
        self._forgiven_at = 0
        stream = workload.world.stream(f"fetch session/{partition[0]}-{partition[1]}/{client.name}")
        self._session = ClientFetchSession(partition, stream) if stream.random() < 0.5 else None

    async def run(self) -> None:
        workload = self.workload
        while not workload.is_stopping and workload.still_exists(self.partition[0]):
            try:
                await self.fetch()
            except Unavailable:
                await asyncio.sleep(0.1)
                try:
                    await self.client.refresh()
                except Unavailable:
                    pass
            if self.random.random() < 0.02:
                self.position = self.random.randrange(self.position + 1)
            if self.random.random() < 0.2:
                await asyncio.sleep(self.random.random() * 0.5)

    async def fetch(self) -> int:
        """One request; gives the high watermark that was told. Raises Unavailable for whatever is to be tried again."""
        workload = self.workload
        version = self.random.randrange(4, 18)
        session = self._session
        if session is not None:
            version = session.version
        known = self.client.state.partitions.get(self.partition)
        topic_id = self.client.state.topic_ids.get(self.partition[0])
        if version >= 13 and topic_id is None:
            version = 12
        address = self.client.leader_of(self.partition)
        if known is None or address is None:
            raise Unavailable("no leader is known")
        fetch = codec.module(ApiKey.FETCH)
        part = fetch.FetchPartition(
            partition=self.partition[1],
            current_leader_epoch=known.leader_epoch if version >= 9 else -1,
            fetch_offset=self.position,
            partition_max_bytes=self.random.choice((1, 1000, 20_000, 1 << 20)),
        )
        if session is not None:
            part.partition_max_bytes = session.partition_max_bytes
        topic = fetch.FetchTopic(
            topic=self.partition[0] if version < 13 else "",
            topic_id=topic_id if version >= 13 and topic_id is not None else codec.ZERO_UUID,
            partitions=[part],
        )
        body = fetch.FetchRequest(
            max_wait_ms=self.random.choice((0, 50, 500)),
            min_bytes=self.random.choice((0, 1, 5000)),
            max_bytes=50 << 20,
            topics=[topic],
        )
        if session is not None:
            body.session_id, body.session_epoch, is_named = session.ask(address, version, part)
            if not is_named:
                body.topics = []
        life = workload.guarantees.life_of(known.leader)
        losses = workload.losses(self.partition)
        was_current = workload.is_current(address, self.partition)
        asked_at_s = workload.world.loop.time()
        try:
            response = await self.client.request(address, ApiKey.FETCH, version, body)
        except Unavailable:
            if session is not None:
                session.lose()
            raise
        answer = _only(response) if session is None else session.take(response)
        if response.error_code:
            raise Unavailable(ErrorCode.of(response.error_code).name)
        if answer is None:
            return 0 if session is None else session.high_watermark
        if not workload.still_exists(self.partition[0]):
            raise Unavailable("the topic is being deleted")
        code = ErrorCode.of(answer.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if known.leader_epoch < self._leader_epoch or not (self._is_fenced or was_current):
                raise Unavailable("a leader that has been replaced, and does not know it yet")
            asked = (workload.world.loop.time(), losses)
            is_forgiven = workload.losses(self.partition) != self._forgiven_at
            if not is_forgiven and workload.holds(self.partition, max(self.position - 1, 0), *asked):
                raise Violation(
                    f"{self.partition}: read up to {self.position} before, now that offset is out of range"
                    f" (log start {answer.log_start_offset}, high watermark {answer.high_watermark})"
                )
            self.position = 0
            self._forgiven_at = workload.losses(self.partition)
            raise Unavailable(code.name)
        if code in _FETCH_RETRY:
            raise Unavailable(code.name)
        if code != ErrorCode.NONE:
            raise Violation(f"fetching {self.partition} gave {code.name}")
        if losses != workload.losses(self.partition):
            raise Unavailable("asked before a power loss and answered after it")
        if version >= 9 and life:
            workload.checker.high_watermark(self.partition, known.leader_epoch, life, answer.high_watermark)
        self._is_fenced = version >= 9
        self._take(answer, asked_at_s, losses)
        high_watermark: int = answer.high_watermark
        return high_watermark

    def _batches(self, answer: Any) -> Iterator[Batch]:
        """Nothing is compacted, and no record deleted: one batch follows the other, and the first has the position."""
        expected = self.position
        for batch in read_batches(answer.records or b""):
            if batch.base_offset > expected:
                raise Violation(
                    f"{self.partition}: asked for offset {expected}, given {batch.base_offset}: the rest is skipped"
                )
            expected = batch.last_offset + 1
            self._leader_epoch = max(self._leader_epoch, batch.leader_epoch)
            yield batch

    def _take(self, answer: Any, asked_at_s: float, losses: int) -> None:
        for batch in self._batches(answer):
            if batch.is_control:
                continue
            if batch.last_offset >= answer.high_watermark:
                raise Violation(
                    f"{self.partition}: a batch up to {batch.last_offset} was delivered"
                    f" beyond the high watermark {answer.high_watermark}"
                )
            if self.workload.holds(self.partition, batch.last_offset, asked_at_s, losses, batch.leader_epoch):
                self.workload.checker.delivered(
                    self.partition, ((offset, name) for offset, name in batch.records() if offset >= self.position)
                )
            self.position = max(self.position, batch.last_offset + 1)


async def read_whole(workload: Workload, client: Client, partition: Partition, timeout_s: float) -> int:
    """Reads a partition from its start to its high watermark and hands it to the checker; gives the number of records.

    The client's metadata must be fresh; an answer is expected within `timeout_s`.
    """
    deadline = workload.world.loop.time() + timeout_s
    while True:
        try:
            records: list[tuple[int, str]] = []
            start, end = await _bounds(client, partition)
            reader = _Reader(workload, client, partition, records)
            reader.position = start
            while reader.position < end:
                await reader.fetch()
            workload.checker.contents(partition, start, records)
            return len(records)
        except Unavailable as error:
            if workload.world.loop.time() > deadline:
                raise Violation(f"{partition} cannot be read {timeout_s} s after the last fault: {error}") from error
            await asyncio.sleep(0.2)
            try:
                await client.refresh()
            except Unavailable:
                pass


def _only(response: Any) -> Any | None:
    """The one partition of an answer; None of a refusal."""
    if response.error_code:
        return None
    (topic,) = response.responses
    (answer,) = topic.partitions
    return answer


class _Reader(Consumer):
    """A consumer that keeps what it is given."""

    def __init__(
        self, workload: Workload, client: Client, partition: Partition, records: list[tuple[int, str]]
    ) -> None:
        super().__init__(workload, client, partition)
        self.records = records
        self._forgiven_at = -1

    def _take(self, answer: Any, asked_at_s: float, losses: int) -> None:
        for batch in self._batches(answer):
            self.records += [(offset, name) for offset, name in batch.records() if offset >= self.position]
            self.position = max(self.position, batch.last_offset + 1)


async def _bounds(client: Client, partition: Partition) -> tuple[int, int]:
    """(log start, high watermark) by ListOffsets. Raises Unavailable."""
    offsets = []
    for timestamp in (-2, -1):
        address = client.leader_of(partition)
        if address is None:
            raise Unavailable("no leader is known")
        lists = codec.module(ApiKey.LIST_OFFSETS)
        part = lists.ListOffsetsPartition(partition_index=partition[1], timestamp=timestamp)
        topic = lists.ListOffsetsTopic(name=partition[0], partitions=[part])
        body = lists.ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = await client.request(address, ApiKey.LIST_OFFSETS, client.random.randrange(2, 10), body)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            if not ErrorCode.of(answer.error_code).retriable:
                raise Violation(f"ListOffsets of {partition} gave {ErrorCode.of(answer.error_code).name}")
            raise Unavailable(ErrorCode.of(answer.error_code).name)
        offsets.append(answer.offset)
    return offsets[0], offsets[1]


async def create_topic(
    workload: Workload,
    client: Client,
    name: str,
    partitions: int,
    replicas: int,
    configs: dict[str, str],
    *,
    assignment: Sequence[Sequence[int]] = (),
) -> bool:
    """Creates a topic and waits until it has leaders; True when the creation was acknowledged.

    `assignment` are the replicas of each partition, where the brokers are not to choose them.

    An unknown outcome is asked for by metadata, as an administrator would.
    """
    create = codec.module(ApiKey.CREATE_TOPICS)
    topic = create.CreatableTopic(
        name=name,
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else replicas,
        assignments=[
            create.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(assignment)
        ],
        configs=[create.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    body = create.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    while not workload.is_stopping:
        try:
            state = await client.refresh()
            address = state.brokers.get(state.controller)
            if address is None:
                raise Unavailable("no controller is known")
            response = await client.request(
                address, ApiKey.CREATE_TOPICS, client.random.randrange(2, 8), body, timeout_s=15.0
            )
            code = ErrorCode.of(response.topics[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                workload.checker.topic_created(name, partitions)
                return True
            if not code.retriable and code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REPLICATION_FACTOR):
                raise Violation(f"creating topic {name} gave {code.name}: {response.topics[0].error_message}")
        except Unavailable:
            pass
        await asyncio.sleep(0.3)
    return False


async def delete_topic(workload: Workload, client: Client, name: str) -> bool:
    """Asks for a deletion; True when it was acknowledged. The checker forgets the topic either way."""
    workload.checker.topic_deletion_asked(name)
    delete = codec.module(ApiKey.DELETE_TOPICS)
    try:
        state = await client.refresh()
        address = state.brokers.get(state.controller)
        if address is None:
            return False
        version = client.random.randrange(1, 6)
        body = delete.DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        response = await client.request(address, ApiKey.DELETE_TOPICS, version, body, timeout_s=15.0)
    except Unavailable:
        return False
    return int(response.responses[0].error_code) == ErrorCode.NONE


async def present_topics(client: Client) -> dict[str, int]:
    """Topics with their number of partitions. Raises Unavailable."""
    state = await client.refresh()
    present: dict[str, int] = {}
    for topic, _ in state.partitions:
        present[topic] = present.get(topic, 0) + 1
    return present
