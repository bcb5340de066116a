"""Producers that go on for as long as a test likes, each with the library's own retries, and what they were told."""

from __future__ import annotations

import asyncio
import itertools
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Message, Producer

from tests.integration.clients.driver import LIMIT_S
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.kafka_python import python_security
from tests.integration.clients.librdkafka import librdkafka_security
from tests.integration.clients.security import PLAIN, Security

PAUSE_S = 0.01
"""Between two records of one stream."""


@dataclass
class Told:
    """What a producer was told: (partition, offset) by the number of the record; the errors it could not cope with."""

    acknowledged: dict[int, tuple[int, int]] = field(default_factory=dict)
    without_offset: list[int] = field(default_factory=list)
    """Numbers of records of which librdkafka says only that they are stored: it lost the response, and knows it by the
    success of a later batch."""
    failures: list[str] = field(default_factory=list)


class Stream(ABC):
    """Sends "NAME NUMBER", number 0 and up, to the partitions in turn, with acks=all."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        is_idempotent: bool,
        security: Security = PLAIN,
    ) -> None:
        self.name = name
        self.is_idempotent = is_idempotent
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._security = security

    def value(self, number: int) -> bytes:
        return f"{self.name} {number}".encode()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def end(self) -> Told:
        """Sends no more and waits until all that was sent is acknowledged or given up."""


class JavaStream(Stream):
    machine: JavaMachine

    def start(self) -> None:
        self.machine.ask(
            "stream",
            name=self.name,
            bootstrap=self._bootstrap,
            topic=self._topic,
            partitions=self._partitions,
            config={"acks": "all", "enable.idempotence": str(self.is_idempotent).lower(), **self._security},
        )

    def end(self) -> Told:
        answer = self.machine.ask("end", name=self.name)
        return Told({number: (part, offset) for number, part, offset in answer["acknowledged"]}, answer["failures"])


class _ThreadStream(Stream):
    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        is_idempotent: bool,
        security: Security = PLAIN,
    ) -> None:
        super().__init__(name, bootstrap, topic, partitions, is_idempotent=is_idempotent, security=security)
        self.told = Told()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> Told:
        self._ending.set()
        self._thread.join(LIMIT_S)
        if self._thread.is_alive():
            self.told.failures.append("it does not end")
        return self.told

    @abstractmethod
    def _run(self) -> None: ...


class LibrdkafkaStream(_ThreadStream):
    """`told` is of the present, also while it goes on."""

    sent = 0
    """Records from this number on are sent from now on."""

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": self.is_idempotent,
                "linger.ms": 5,
                "log_level": 0,
                **librdkafka_security(self._security),
            }
        )
        for number in itertools.count():
            if self._ending.wait(PAUSE_S):
                break
            self.sent = number + 1
            self._send(producer, number)
            producer.poll(0)
        if producer.flush(LIMIT_S):
            self.told.failures.append(f"{len(producer)} records are never acknowledged")

    def _send(self, producer: Producer, number: int) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                self.told.acknowledged[number] = partition, offset
            elif error is None and self.is_idempotent:
                self.told.without_offset.append(number)
            else:
                self.told.failures.append(str(error))

        producer.produce(self._topic, self.value(number), partition=number % self._partitions, on_delivery=delivered)


class AiokafkaStream(_ThreadStream):
    """It gives a record as long to arrive as the official client does (`delivery.timeout.ms`), not aiokafka's 40 s:
    on a busy machine, three processes that stop, flush and start may take those."""

    def _run(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=self.is_idempotent,
            linger_ms=5,
            request_timeout_ms=120_000,
            **python_security(self._security),
        )
        await producer.start()
        sent: list[asyncio.Future[object]] = []
        for number in itertools.count():
            if self._ending.is_set():
                break
            sent.append(await producer.send(self._topic, self.value(number), partition=number % self._partitions))
            await asyncio.sleep(PAUSE_S)  # the pace of the load
        for number, answer in enumerate(await asyncio.gather(*sent, return_exceptions=True)):
            if isinstance(answer, BaseException):
                self.told.failures.append(repr(answer))
            else:
                self.told.acknowledged[number] = answer.partition, answer.offset  # type: ignore[attr-defined]
        await producer.stop()
