"""One transactional client on librdkafka as a process of its own, to be killed in the middle of a transaction.

`python -m tests.nemesis.transactional_client OPTIONS` (JSON, see `Options`) prints a JSON line for each step before it
is taken, and ends in order with SIGTERM. Whoever reads the lines knows what an open transaction may have become:
without `committing` it cannot have committed.

| line | when |
|---|---|
| `{"ready": true}` | its transactional id is its own: a transaction of the client before it has ended |
| `{"began": 17, "appends": [["2/5", 17001]]}` | before anything of the transaction is sent |
| `{"committing": 17}` | before the commit is asked for |
| `{"ended": 17, "outcome": "ok", "reads": [["2/5", [16001, 17001]]]}` | the outcome is certain |
| `{"failed": "..."}` | the last line of a client that cannot go on: fenced, or worse |
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

_CALL_S = 5.0
_TRANSACTION_TIMEOUT_MS = 30_000
_ROUND_S = 15.0
"""After so long the lists are new ones: a list that grows through a whole campaign is read too often."""
_ABORTED = 0.2
"""The share of transactions that are aborted on purpose."""
_MOST_COPIES = 200
_PER_TRANSACTION = 100
"""Values of a transaction have numbers of their own: number * 100 and up."""
_COMMON: dict[str, Any] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 1000,
    "socket.connection.setup.timeout.ms": 2000,
    "log_level": 0,
}
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Options:
    """`work` is "append" or "copy", `first` the number of the first transaction; the last three are for copies.

    `pause_s`: what comes to be copied meanwhile is copied in one transaction.
    """

    work: str
    bootstrap: str
    transactional_id: str
    topic: str
    partitions: int
    first: int
    seed: int
    source: str = ""
    group: str = ""
    pause_s: float = 0.0


class _MustAbort(Exception):
    """The transaction cannot be committed; the client can go on with another one."""


class _Ended(Exception):
    """The client was told to end, and its transaction is open."""


class _Transactions:
    """The producer, with what librdkafka says of its errors done: repeat, abort, or end."""

    def __init__(self, options: Options, is_ending: Callable[[], bool]) -> None:
        self._is_ending = is_ending
        self.producer = Producer(
            {
                **_COMMON,
                "bootstrap.servers": options.bootstrap,
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "request.timeout.ms": 3000,
                "socket.timeout.ms": 4000,
                "linger.ms": 1,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
            }
        )
        self.attempt(lambda: self.producer.init_transactions(_CALL_S))
        _say(ready=True)

    def attempt(self, call: Callable[[], Result]) -> Result:
        """Repeats what can be repeated. Raises _MustAbort, or KafkaException where the client has to end."""
        while True:
            try:
                return call()
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                # A record is refused with _STATE when the transaction has failed before.
                if error.txn_requires_abort() or error.code() == KafkaError._STATE:
                    raise _MustAbort(str(error)) from raised
                if error.fatal() or not error.retriable():
                    raise
                if self._is_ending() and error.code() == KafkaError._TIMED_OUT:
                    raise _Ended from raised

    def abort(self) -> None:
        # What abort_transaction says must be aborted is the transaction that it aborts.
        self.attempt(lambda: self.producer.abort_transaction(_CALL_S))


def _say(**line: Any) -> None:
    print(json.dumps({**line, "at": time.time()}), flush=True)


class _Lists:
    """A read_committed consumer of all lists; `changed` gives those of which something came since it was asked last."""

    def __init__(self, options: Options) -> None:
        self._lists: dict[str, list[int]] = defaultdict(list)
        self._consumer = Consumer(
            {
                **_COMMON,
                "bootstrap.servers": options.bootstrap,
                "group.id": f"{options.transactional_id}-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "socket.timeout.ms": 10_000,
            }
        )
        self._consumer.assign([TopicPartition(options.topic, number, 0) for number in range(options.partitions)])

    def changed(self, timeout_s: float) -> dict[str, list[int]]:
        keys: dict[str, None] = {}
        for message in self._consumer.consume(1000, timeout_s):
            if message.error() is None:
                key, value = appended(message)
                self._lists[key].append(value)
                keys[key] = None
        return {key: self._lists[key] for key in keys}


def appended(message: Message) -> tuple[str, int]:
    """The key and the value that a record of the lists appends."""
    data = message.value()
    assert data is not None
    key, value = data.decode().split()
    return key, int(value)


def _append(options: Options, is_ending: Callable[[], bool]) -> None:
    draw = random.Random(options.seed)
    transactions = _Transactions(options, is_ending)
    producer = transactions.producer
    lists = _Lists(options)
    for number in itertools.count(options.first):
        if is_ending():
            return
        appends = list(_drawn(number, options.partitions, draw))
        is_committed = draw.random() >= _ABORTED
        reads: dict[str, list[int]] = {}
        _say(began=number, appends=appends)
        try:
            producer.begin_transaction()
            for key, value in appends:
                partition = int(key.split("/")[0])
                transactions.attempt(
                    lambda key=key, value=value, at=partition: producer.produce(  # type: ignore[misc]
                        options.topic, f"{key} {value}", partition=at
                    )
                )
                producer.poll(draw.uniform(0, 0.02))
            reads = lists.changed(draw.uniform(0, 0.05))
            if is_committed:
                _say(committing=number)
                transactions.attempt(lambda: producer.commit_transaction(_CALL_S))
            else:
                # What is aborted has to be in the log; and librdkafka ends a transaction that has not got to the
                # coordinator yet with a fatal INVALID_TXN_STATE.
                producer.flush(_CALL_S)
                transactions.abort()
        except _MustAbort:
            is_committed = False
            transactions.abort()
        _say(ended=number, outcome="ok" if is_committed else "fail", reads=list(reads.items()))


def _drawn(number: int, partitions: int, draw: random.Random) -> Iterator[tuple[str, int]]:
    """One to five appends."""
    now = int(time.time() / _ROUND_S)
    for place in range(draw.randint(1, 5)):
        yield f"{draw.randrange(partitions)}/{now}", number * _PER_TRANSACTION + place


def _copy(options: Options, is_ending: Callable[[], bool]) -> None:
    """Consume, transform, produce: what is read of `source` is written to the same partition of `topic`."""
    transactions = _Transactions(options, is_ending)
    source = _Source(options)
    numbers = itertools.count(options.first)
    while not is_ending():
        time.sleep(options.pause_s)
        messages = source.batch()
        if not messages:
            continue
        number = next(numbers)
        outcome = "ok"
        _say(began=number, appends=[])
        try:
            _copy_in_one(options, transactions, source, messages, number)
        except _MustAbort:
            outcome = "fail"
            transactions.abort()
            source.rewind(transactions.attempt)
        _say(ended=number, outcome=outcome, reads=[])
    source.close()


def _copy_in_one(
    options: Options, transactions: _Transactions, source: _Source, messages: list[Message], number: int
) -> None:
    producer = transactions.producer
    producer.begin_transaction()
    offsets: dict[int, int] = {}
    for message in messages:
        data, partition, offset = message.value(), message.partition(), message.offset()
        assert data is not None and partition is not None and offset is not None
        copy = data.split(b" ", 1)[0]
        transactions.attempt(
            lambda copy=copy, at=partition: producer.produce(options.topic, copy, partition=at)  # type: ignore[misc]
        )
        offsets[partition] = offset + 1
    positions = [TopicPartition(options.source, partition, offset) for partition, offset in offsets.items()]
    group = source.group_metadata()
    transactions.attempt(lambda: producer.send_offsets_to_transaction(positions, group, _CALL_S))
    _say(committing=number)
    transactions.attempt(lambda: producer.commit_transaction(_CALL_S))


class _Source:
    """The group member that reads what is copied."""

    def __init__(self, options: Options) -> None:
        self._has_moved = False
        self._topic = options.source
        self._consumer = Consumer(
            {
                **_COMMON,
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 1000,
                "fetch.wait.max.ms": 50,
                "socket.timeout.ms": 10_000,
            }
        )
        self._consumer.subscribe([self._topic], on_assign=self._on_move, on_revoke=self._on_move)

    def _on_move(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._has_moved = True

    def batch(self) -> list[Message]:
        """The next records, none after a rebalance: what came before it may be another member's now."""
        found: list[Message] = []
        self._has_moved = False
        while len(found) < _MOST_COPIES:
            message = self._consumer.poll(0.0 if found else 0.1)
            if self._has_moved:
                # With the eager protocol each partition begins at the committed offset of its group after a rebalance.
                self._has_moved = False
                found.clear()
            if message is None:
                break
            if message.error() is None:
                found.append(message)
        return found

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def rewind(self, attempt: Callable[[Callable[[], Any]], Any]) -> None:
        """Goes back to the committed offsets after an abort."""
        assigned = self._consumer.assignment()
        if not assigned:
            return
        committed = attempt(lambda: self._consumer.committed(assigned, _CALL_S))
        for one in committed:
            self._consumer.seek(TopicPartition(one.topic, one.partition, max(one.offset, 0)))

    def close(self) -> None:
        self._consumer.close()


def main() -> None:
    """Runs until SIGTERM, or until the client cannot go on."""
    options = Options(**json.loads(sys.argv[1]))
    ending = False

    def end(number: int, frame: object) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, end)
    try:
        {"append": _append, "copy": _copy}[options.work](options, lambda: ending)
    except (KafkaException, _MustAbort, _Ended) as failure:
        with suppress(BrokenPipeError):
            _say(failed=repr(failure))


if __name__ == "__main__":
    main()
