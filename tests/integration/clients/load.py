"""Producers and groups of several libraries that go on for as long as a test likes, and what must hold of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from types import TracebackType

from tests.integration.clients.aiokafka_client import Aiokafka
from tests.integration.clients.driver import Driver, Gathering, GroupMember, Member, await_that
from tests.integration.clients.java import Java, JavaMachine
from tests.integration.clients.kcat import Kcat
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.security import PLAIN, Security
from tests.integration.clients.streams import AiokafkaStream, JavaStream, LibrdkafkaStream, Stream, Told

PATIENT_MEMBER = {"heartbeat.interval.ms": "200", "session.timeout.ms": "120000"}
"""Its session outlives a fleet that is down for a while."""


class Load:
    """Runs in a `with` block. With a JVM the official client takes part.

    Every group has one member, which polls and commits without end: it must be given each record once, in order.
    librdkafka's is kcat's, older than 2.10: since then, a consumer that sends OffsetForLeaderEpoch while brokers
    vanish from the metadata may stop for good (librdkafka issue 5476), which this load saw in one of 75 runs.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        machine: JavaMachine | None = None,
        security: Security = PLAIN,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._security = security
        given = (bootstrap, topic, partitions)
        self._live = LibrdkafkaStream("live", *given, is_idempotent=True, security=security)
        self._streams: list[Stream] = [self._live]
        self._streams.append(AiokafkaStream("aiokafka", *given, is_idempotent=True, security=security))
        self._drivers: list[Driver] = [Kcat(security), Aiokafka(security)]
        if machine is not None:
            JavaStream.machine = machine
            for is_idempotent in (True, False):
                name = f"java-{is_idempotent}"
                self._streams.append(JavaStream(name, *given, is_idempotent=is_idempotent, security=security))
            self._drivers.append(Java(machine, security))
        self._gatherings = {driver.name: Gathering() for driver in self._drivers}
        self._members: list[Member] = []
        self._told: dict[str, Told] = {}

    def __enter__(self) -> Load:
        for driver in self._drivers:
            name = f"{self._topic}-{driver.name}"
            group = GroupMember(name, name, self._topic, PATIENT_MEMBER)
            self._members.append(driver.join(self._bootstrap, group, self._gatherings[driver.name]))
        for stream in self._streams:
            stream.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end_streams()
        for member in self._members:
            member.close()

    def goes_on(self, when: str) -> None:
        """Returns when every group has been given a record of each partition that was produced after this call."""
        first = self._live.sent
        acknowledged = self._live.told.acknowledged

        def stored() -> set[tuple[int, int]]:
            return {acknowledged[number] for number in range(first, self._live.sent) if number in acknowledged}

        def has_all() -> bool:
            assert not self._live.told.failures, self._live.told.failures[:3]
            return len({partition for partition, _ in stored()}) == self._partitions

        await_that(has_all, f"records are stored in every partition {when}")
        places = stored()
        for who, gathering in self._gatherings.items():
            gathering.wait_until(lambda found: places <= _places(found), f"given them, {who} {when}")

    def end(self) -> None:
        """No send has failed; what was acknowledged is stored once; every group was given all of it, once, in order."""
        self._end_streams()
        stored = Librdkafka(self._security).read(self._bootstrap, self._topic, self._partitions)
        for who, gathering in self._gatherings.items():
            gathering.wait_until(lambda found: len(found.values()) >= len(stored), f"everything is read by {who}")
        by_place = {(record.partition, record.offset): record.value for record in stored}
        copies = Counter(record.value for record in stored)
        for stream in self._streams:
            told = self._told[stream.name]
            assert not told.failures, (stream.name, told.failures[:3])
            assert told.acknowledged, stream.name
            for number, place in told.acknowledged.items():
                assert by_place.get(place) == stream.value(number), (stream.name, number, place)
                assert copies[stream.value(number)] == 1 or not stream.is_idempotent, (stream.name, number)
            for number in told.without_offset:
                assert copies[stream.value(number)] == 1, (stream.name, number)
        for who, gathering in self._gatherings.items():
            read: dict[int, list[int]] = defaultdict(list)
            for records in gathering.records.values():
                for record in records:
                    assert by_place.get((record.partition, record.offset)) == record.value, (who, record)
                    read[record.partition].append(record.offset)
            for partition, offsets in read.items():
                expected = list(range(len(offsets)))
                assert offsets == expected, f"{who} skipped or repeated records of partition {partition}"

    def _end_streams(self) -> None:
        for stream in self._streams:
            if stream.name not in self._told:
                self._told[stream.name] = stream.end()


def _places(gathering: Gathering) -> set[tuple[int, int]]:
    return {(record.partition, record.offset) for records in gathering.records.values() for record in records}
