"""Producers and consumers on librdkafka, each a thread that tells the history what it does and is told."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.nemesis.checker import FINAL, stopped
from tests.nemesis.history import Acknowledged, History, Indeterminate, Placed, Polled, Refused, Sent, Subscribed, now

TOPIC = "nemesis"
MAX_MESSAGE_BYTES = 100_000
"""max.message.bytes of the topic: longer batches are refused for certain. Those of the other producers are shorter."""
_BATCH_BYTES = 16_384
REQUEST_TIMEOUT_MS = 3000
"""What every client gives a request, of either kind and system: a broker behind a cut link answers nothing at all."""
_REFRESH_MS = 250
"""How often librdkafka asks who leads: what it takes to hear of an election is part of every outage."""
_ROUND_S = 0.025
_WAITING = 20_000
_LIMIT_S = 180.0
_READ_S = 120.0
"""How long consumers have for what they have not read yet when nobody sends any more and nothing is broken."""
_COMMON = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": _REFRESH_MS,
    "socket.connection.setup.timeout.ms": 2000,
    "log_level": 0,
}


def value_of(data: bytes) -> str:
    """The name of a record, without what fills it up."""
    return data.split(b" ", 1)[0].decode()


class Client(ABC):
    """A thread; `stop` ends it in order. `errors` are things that should not happen whatever is broken."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.errors: list[str] = []
        self._history = history
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(2 * _LIMIT_S)
        if self._thread.is_alive():
            self.errors.append(f"{self.name} does not end")

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.errors.append(f"{self.name} ended: {error!r}")

    @abstractmethod
    def _run(self) -> None:
        """Sends or reads until `_stopping` is set."""


class SteadyProducer(Client):
    """acks=all, idempotent; one record to each partition every `every_s`.

    A record that is not acknowledged within `delivery_timeout_ms` has failed; 0: it is sent again for ever.
    """

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        partitions: int,
        *,
        every_s: float = _ROUND_S,
        delivery_timeout_ms: int = 0,
        in_flight: int = 5,
    ) -> None:
        super().__init__(name, history)
        self._partitions = partitions
        self._every_s = every_s
        self.last: dict[int, float] = {}
        """When the last acknowledgement of each partition came."""
        self._producer = Producer(
            {
                **_COMMON,
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": in_flight,
                "linger.ms": 1,
                "batch.size": _BATCH_BYTES,
                "message.timeout.ms": delivery_timeout_ms,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS + 1000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
            }
        )

    def _run(self) -> None:
        count = 0
        while not self._stopping.is_set():
            if len(self._producer) < _WAITING:
                for partition in range(self._partitions):
                    value = f"{self.name}.{count}"
                    count += 1
                    self._history.add(Sent(now(), self.name, partition, value))
                    self._producer.produce(TOPIC, f"{value} {'x' * 100}", partition=partition, on_delivery=self._told)
            self._producer.poll(0)
            self._wait()
        left = self._producer.flush(_LIMIT_S)
        if left:
            self.errors.append(f"{self.name}: {left} records are never acknowledged")

    def _wait(self) -> None:
        """Until the next round. Acknowledgements are taken meanwhile: their time is when they came."""
        deadline = time.monotonic() + self._every_s
        while not self._stopping.is_set() and (left := deadline - time.monotonic()) > 0:
            self._producer.poll(min(left, _ROUND_S))

    def _told(self, error: KafkaError | None, message: Message) -> None:
        data, partition, offset = message.value(), message.partition(), message.offset()
        assert data is not None and partition is not None
        if error is not None:
            self._history.add(Indeterminate(now(), self.name, value_of(data), str(error)))
            self.errors.append(f"{self.name}: {error}")
            return
        known = offset if offset is not None and offset >= 0 else None
        at = now()
        self.last[partition] = at
        self._history.add(Acknowledged(at, self.name, partition, value_of(data), known))


class RefusedProducer(Client):
    """Sends what is too long for the topic, so that it is refused for certain and must never be read."""

    def __init__(self, name: str, history: History, bootstrap: str, partitions: int) -> None:
        super().__init__(name, history)
        self._partitions = partitions
        self._producer = Producer(
            {
                **_COMMON,
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "batch.num.messages": 1,
                "message.timeout.ms": 30_000,
            }
        )

    def _run(self) -> None:
        count = 0
        while not self._stopping.wait(1.0):
            value = f"{self.name}.{count}"
            partition = count % self._partitions
            count += 1
            self._history.add(Sent(now(), self.name, partition, value))
            filled = f"{value} {'x' * 2 * MAX_MESSAGE_BYTES}"
            self._producer.produce(TOPIC, filled, partition=partition, on_delivery=self._told)
            self._producer.poll(0)
        self._producer.flush(_LIMIT_S)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        data, partition = message.value(), message.partition()
        assert data is not None and partition is not None
        value = value_of(data)
        if error is None:
            self.errors.append(f"{self.name}: {value} was taken though it is longer than max.message.bytes")
        elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._history.add(Refused(now(), self.name, partition, value, "MESSAGE_TOO_LARGE"))
        else:
            self._history.add(Indeterminate(now(), self.name, value, str(error)))


class Reader(Client):
    """A consumer that is assigned every partition from its beginning, or, with a group, subscribes.

    `protocol`: of the group, "classic" or "consumer" (KIP-848).
    """

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        partitions: int,
        group: str | None = None,
        protocol: str = "classic",
    ) -> None:
        super().__init__(name, history)
        self._partitions = partitions
        self._group = group
        self._consumer = Consumer(
            {
                **_COMMON,
                "bootstrap.servers": bootstrap,
                "group.id": group or name,
                "enable.auto.commit": group is not None,
                "auto.commit.interval.ms": 1000,
                # A consumer with offsets of its own must never be told that they are none.
                "auto.offset.reset": "earliest" if group else "error",
                # With the other protocol the broker decides how long a session is.
                **({"session.timeout.ms": 10_000} if protocol == "classic" else {"group.protocol": protocol}),
                "fetch.wait.max.ms": 100,
                "socket.timeout.ms": 10_000,
            }
        )

    def _run(self) -> None:
        if self._group is not None:
            self._history.add(Subscribed(now(), self.name, self._group))
            self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        else:
            self._place_all()
        while not self._stopping.is_set():
            self._poll(0.1)
        self._consumer.close()

    def _place_all(self) -> None:
        for partition in range(self._partitions):
            self._history.add(Placed(now(), self.name, partition, 0))
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(self._partitions)])

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._history.add(Placed(now(), self.name, one.partition, None))

    def _poll(self, timeout_s: float) -> dict[int, int]:
        """Gives the next offset of each partition of which something came."""
        found: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for message in self._consumer.consume(1000, timeout_s):
            error, data, partition, offset = message.error(), message.value(), message.partition(), message.offset()
            if error is not None:
                if error.fatal() or error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    self.errors.append(f"{self.name}: {error}")
                continue
            assert data is not None and partition is not None and offset is not None
            found[partition].append((offset, value_of(data)))
        at = now()
        for partition, records in found.items():
            self._history.add(Polled(at, self.name, partition, tuple(records)))
        return {partition: records[-1][0] + 1 for partition, records in found.items()}


class FinalReader(Reader):
    """Reads everything there is, once, on the caller's thread."""

    def __init__(self, history: History, bootstrap: str, partitions: int) -> None:
        super().__init__(FINAL, history, bootstrap, partitions)

    def read(self, is_late: Callable[[], bool]) -> dict[int, int]:
        """Gives the high watermark of each partition. AssertionError when it takes too long."""
        ends: dict[int, int] = {}
        while len(ends) < self._partitions:
            assert not is_late(), f"nobody tells the ends of the partitions: {ends}"
            for partition in range(self._partitions):
                with suppress(KafkaException):
                    ends[partition] = self._consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=5)[
                        1
                    ]
        self._place_all()
        positions = dict.fromkeys(ends, 0)
        while any(positions[partition] < end for partition, end in ends.items()):
            assert not is_late(), f"the log cannot be read to its end: {positions} of {ends}"
            positions |= self._poll(0.2)
        self._consumer.close()
        return ends


def read_to_the_end(history: History, bootstrap: str, partitions: int, limit_s: float) -> dict[int, int]:
    """When nobody sends any more: reads everything, in `limit_s`, and waits until all who read have been given the end.

    Gives the end of each partition. Who is not given it in time is told by the checker. AssertionError when it cannot
    be read.
    """
    deadline = time.monotonic() + limit_s
    ends = FinalReader(history, bootstrap, partitions).read(lambda: time.monotonic() > deadline)
    history.wait_until(lambda events: not stopped(events), _READ_S)
    return ends
