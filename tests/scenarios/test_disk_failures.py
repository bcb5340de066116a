"""One of two disks fails, on real file systems: the other continues, nothing synced is lost, and the disk comes back.

A loop device whose file system is filled, aborted, or loses its mount or its blocks, and a FUSE file system that fails
or hangs. The tests are skipped where the machine cannot mount; with OTTLA_TEST_ALL=1 they fail instead.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import RunningCluster, cluster
from ottla_broker.adapters import disk_calls
from tests.integration.file_systems import FuseMount, LoopMount, fuse_mount, loop_mount, skip_reason
from tests.watermarks import watermarks

pytestmark = pytest.mark.root
TOPIC = "t"
PARTITIONS = 4
_LIMIT_S = 120.0
QUICK = {
    "ottla.log.dir.io.timeout.ms": "30000",  # a busy machine's good disk may well take seconds for one sync
    "ottla.log.dir.reserve.bytes": "1048576",
    "log.flush.interval.messages": "1",
    "log.segment.bytes": "262144",
    "log.segment.delete.delay.ms": "0",
}


@pytest.fixture(autouse=True)
def _can_mount() -> None:
    reason = skip_reason()
    if reason and os.environ.get("OTTLA_TEST_ALL") == "1":
        pytest.fail(f"OTTLA_TEST_ALL=1 and {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


class TwoDisks:
    """A broker with one good disk and one that the test breaks, a topic on both, a producer for each that never stops
    and a consumer that follows the good one's.

    Every record goes to a partition by its number; `acknowledged` says which the broker has confirmed, synced, and
    `delivered` how many of the good disk the consumer was given.
    """

    def __init__(self, fleet: RunningCluster, mount: Path) -> None:
        self.fleet = fleet
        self.mount = mount
        admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(_LIMIT_S)
        self.bad = [number for number in range(PARTITIONS) if (mount / f"{TOPIC}-{number}").exists()]
        self.good = [number for number in range(PARTITIONS) if number not in self.bad]
        assert self.bad and self.good, "the partitions lie on both disks"
        self.acknowledged: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
        self.errors: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.delivered = dict.fromkeys(self.good, 0)
        self._sent: dict[str, float] = {}
        """Of every record to the good disk that is not delivered yet: when `produce` was called, s."""
        self._latencies: dict[str, list[float]] = {"took": [], "gave": []}
        """Of every record to the good disk, in s: from `produce` to its acknowledgement, which is synced, and to its
        arrival at the consumer."""
        self._progress = threading.Condition()
        self._stopping = threading.Event()
        self._may_send = threading.Event()
        self._may_send.set()
        self._rests = threading.Event()
        self._threads = [threading.Thread(target=self._produce, args=(numbers,)) for numbers in (self.good, self.bad)]
        self._threads.append(threading.Thread(target=self._consume))
        for thread in self._threads:
            thread.start()

    def _produce(self, partitions: list[int]) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.fleet.bootstrap,
                "linger.ms": 1,
                "message.timeout.ms": 3000,
                "acks": "all",
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        number = 0
        while not self._stopping.is_set():
            if partitions is self.bad and not self._may_send.is_set():
                producer.flush(30)
                self._rests.set()
                self._may_send.wait()
            partition = partitions[number % len(partitions)]
            name = f"{partition}/{number}"
            number += 1

            def told(error: KafkaError | None, message: Message, name: str = name, partition: int = partition) -> None:
                with self._progress:
                    if error is None:
                        self.acknowledged[partition].append(name)
                        if partitions is self.good:
                            self._latencies["took"].append(message.latency() or 0.0)
                    else:
                        self.errors[partition].append(error.code())
                    self._progress.notify_all()

            if partitions is self.good:
                self._sent[name] = time.monotonic()
            producer.produce(TOPIC, name.encode() + bytes(200), partition=partition, on_delivery=told)
            producer.poll(0.002)
            if len(producer) > 50:
                producer.poll(0.05)
        producer.flush(30)

    def _consume(self) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self.fleet.bootstrap, "group.id": "follower", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in self.good])
        since = 0.0
        """What was sent before the first arrival has waited for the consumer itself."""
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue  # whoever waits for records finds out that none come
            value, number = message.value(), message.partition()
            assert value is not None and number is not None
            with self._progress:
                now = time.monotonic()
                since = since or now
                sent = self._sent.pop(value.rstrip(b"\0").decode(), 0.0)  # gone: one that the producer sent twice
                if sent >= since:
                    self._latencies["gave"].append(now - sent)
                self.delivered[number] += 1
                self._progress.notify_all()
        consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for what, latencies in self._latencies.items():
            if latencies:  # for `pytest -s`: a figure and no limit, since how long a sync takes is the machine's matter
                latencies.sort()
                p99, longest = latencies[len(latencies) * 99 // 100] * 1000, latencies[-1] * 1000
                print(f"the good disk {what} {len(latencies)} records, p99 {p99:.0f} ms, longest {longest:.0f} ms")
                latencies.clear()

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Nothing is on its way to the bad disk: everything sent has been answered."""
        self._may_send.clear()
        try:
            assert self._rests.wait(_LIMIT_S), "the producer of the bad disk never came to rest"
            yield
        finally:
            self._may_send.set()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits for an answer of the broker that makes it so."""
        with self._progress:
            assert self._progress.wait_for(holds, timeout=_LIMIT_S), f"not within {_LIMIT_S} s: {what}; {self.states()}"

    def goes_on(self, partitions: list[int], records: int = 200) -> None:
        """Each of the partitions takes so many records more, and those of the good disk give them to the consumer."""

        def counts() -> list[int]:
            return [
                *(len(self.acknowledged[number]) for number in partitions),
                *(self.delivered[number] for number in partitions if number in self.delivered),
            ]

        before = counts()
        self.until(
            lambda: all(now >= then + records for now, then in zip(counts(), before, strict=True)),
            f"{records} more records in and out of each of {partitions}",
        )

    def refuses(self) -> None:
        """The partitions of the bad disk give errors."""
        before = {number: len(self.errors[number]) for number in self.bad}
        self.until(lambda: all(len(self.errors[number]) > before[number] for number in self.bad), "refusals")

    def states(self) -> dict[str, str]:
        """State and reason of each disk, as /status tells them."""
        with urllib.request.urlopen(f"http://{self.fleet.http(0)}/status", timeout=_LIMIT_S) as answer:
            return {Path(one["path"]).name: f"{one['state']} {one['reason']}" for one in json.load(answer)["log_dirs"]}

    def metric(self, name: str) -> float:
        """A value of /metrics, the one of the bad disk where there are several."""
        with urllib.request.urlopen(f"http://{self.fleet.http(0)}/metrics", timeout=_LIMIT_S) as answer:
            lines = answer.read().decode().splitlines()
        (line,) = [one for one in lines if one.startswith(name) and ("{" not in one or str(self.mount) in one)]
        return float(line.rsplit(" ", 1)[1])

    def until_state(self, state: str) -> str:
        """Waits for a state of the bad disk; gives the reason."""
        deadline = time.monotonic() + _LIMIT_S
        while not (found := self.states()["d1"]).startswith(state):
            assert time.monotonic() < deadline, f"the disk is {found}, not {state}"
            time.sleep(0.05)
        return found.removeprefix(state).strip()

    def read(self, partitions: list[int]) -> dict[int, list[str]]:
        """Every record of the partitions, up to the high watermark of now."""
        consumer = Consumer(
            {"bootstrap.servers": self.fleet.bootstrap, "group.id": "check", "enable.auto.commit": False}
        )
        found: dict[int, list[str]] = {number: [] for number in partitions}
        ends = {number: watermarks(consumer, TOPIC, number)[1] for number in partitions}
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in partitions])
        try:
            positions = dict.fromkeys(partitions, 0)
            while any(positions[number] < ends[number] for number in partitions):
                message = consumer.poll(_LIMIT_S)
                assert message is not None and message.error() is None, message and message.error()
                number, value = message.partition(), message.value()
                assert value is not None and number is not None and message.offset() is not None
                found[number].append(value.rstrip(b"\0").decode())
                positions[number] = (message.offset() or 0) + 1
        finally:
            consumer.close()
        return found

    def assert_nothing_is_lost(self) -> None:
        """Everything acknowledged is there, in order and once: the producer does not retry across the fault."""
        self.stop()
        found = self.read(list(range(PARTITIONS)))
        for number, names in self.acknowledged.items():
            present = dict.fromkeys(found[number])
            missing = [name for name in names if name not in present]
            assert not missing, f"{TOPIC}-{number}: {len(missing)} acknowledged records are gone, first {missing[0]}"


@contextmanager
def broker_on(mount: LoopMount | FuseMount, tmp_path: Path, **config: str) -> Iterator[TwoDisks]:
    """A broker with a folder and the mount as its disks, under load; it has stopped when the block ends.

    `config` with underscores for dots.
    """
    settings = {**QUICK, **{name.replace("_", "."): value for name, value in config.items()}}
    data = tmp_path / "fleet"
    (data / "broker-0").mkdir(parents=True)
    (data / "broker-0" / "d1").symlink_to(mount.path)
    with cluster(brokers=1, disks=2, data=data, config=settings) as fleet:
        disks = TwoDisks(fleet, data / "broker-0" / "d1")
        try:
            disks.goes_on([*disks.good, *disks.bad])
            yield disks
        finally:
            disks.stop()


def _outlives(disks: TwoDisks, *reasons: str) -> None:
    """The bad disk is offline for one of the reasons; the other goes on; a person can see it."""
    disks.goes_on(disks.good)
    reason = disks.until_state("offline")
    assert any(one in reason for one in reasons), reason
    disks.refuses()
    disks.goes_on(disks.good)
    assert disks.metric("kafka_log_logmanager_offlinelogdirectorycount") == 1
    assert disks.metric("kafka_log_logmanager_logdirectoryoffline") == 1
    assert disks.metric("kafka_server_replicamanager_offlinereplicacount") >= len(disks.bad)
    assert {name: len(records) for name, records in disks.read(disks.good).items()}


def test_a_disk_that_answers_eio_goes_offline_alone_and_comes_back(tmp_path: Path) -> None:
    with fuse_mount(tmp_path / "fuse") as mount, broker_on(mount, tmp_path) as disks:
        mount.say("eio")
        _outlives(disks, "Input/output error")
        mount.say("ok")
        _comes_back(disks)


WHERE_IT_HANGS = pytest.mark.parametrize(
    "flush_messages",
    [pytest.param("1", id="in a sync, on its thread"), pytest.param("1000000000", id="in a write, on the loop")],
)


@WHERE_IT_HANGS
def test_a_disk_that_hangs_goes_offline_alone_and_comes_back(tmp_path: Path, flush_messages: str) -> None:
    quickly = {"ottla_log_dir_io_timeout_ms": "5000", "log_flush_interval_messages": flush_messages}
    with fuse_mount(tmp_path / "fuse") as mount, broker_on(mount, tmp_path, **quickly) as disks:
        mount.say("hang")
        _outlives(disks, " s (ottla.log.dir.io.timeout.ms), a probe of ")
        mount.say("ok")
        _comes_back(disks)


@WHERE_IT_HANGS
def test_a_disk_that_only_pauses_stays_online(tmp_path: Path, flush_messages: str) -> None:
    often = {"log_flush_interval_messages": flush_messages}
    with fuse_mount(tmp_path / "fuse") as mount, broker_on(mount, tmp_path, **often) as disks:
        mount.say("hang")
        disks.goes_on(disks.good)
        mount.say("ok")
        disks.goes_on(disks.bad)
        assert disks.states()["d1"].startswith("online")
        disks.assert_nothing_is_lost()


def test_a_full_disk_serves_reads_and_takes_records_again_when_there_is_room(tmp_path: Path) -> None:
    """Full to the last byte, by another program's file."""
    with loop_mount(tmp_path / "loop", 64) as mount, broker_on(mount, tmp_path) as disks:
        filler = mount.fill()
        disks.refuses()
        assert "free" in disks.until_state("full") or "No space left" in disks.until_state("full")
        assert disks.metric("ottla_log_directory_full") == 1
        disks.goes_on(disks.good)
        acknowledged = {number: list(disks.acknowledged[number]) for number in disks.bad}
        found = disks.read(disks.bad)
        for number in disks.bad:
            assert set(acknowledged[number]) <= set(found[number])
        filler.unlink()
        disks.until_state("online")
        disks.goes_on([*disks.good, *disks.bad])
        disks.assert_nothing_is_lost()


def test_a_disk_below_the_reserve_is_full_before_a_write_fails(tmp_path: Path) -> None:
    with loop_mount(tmp_path / "loop", 64) as mount, broker_on(mount, tmp_path) as disks:
        filler = mount.fill(leave_bytes=900_000)
        assert "ottla.log.dir.reserve.bytes keeps 1048576" in disks.until_state("full")
        disks.refuses()
        assert mount.free_bytes() > 0
        filler.unlink()
        disks.until_state("online")
        disks.goes_on(disks.bad)
        disks.assert_nothing_is_lost()


def test_a_deleted_topic_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    with loop_mount(tmp_path / "loop", 64) as mount, broker_on(mount, tmp_path) as disks:
        admin = AdminClient({"bootstrap.servers": disks.fleet.bootstrap})
        admin.create_topics([NewTopic("other", 4, 1)])["other"].result(_LIMIT_S)
        producer = Producer({"bootstrap.servers": disks.fleet.bootstrap, "batch.num.messages": 1})
        for number in range(4 * 20):
            producer.produce("other", bytes(100_000), partition=number % 4)
            producer.poll(0)
        assert producer.flush(_LIMIT_S) == 0
        mount.fill()
        disks.until_state("full")
        admin.delete_topics(["other"])["other"].result(_LIMIT_S)
        disks.until_state("online")
        disks.goes_on(disks.bad)
        disks.assert_nothing_is_lost()


def test_a_file_system_that_the_kernel_makes_read_only_is_offline_until_it_is_mounted_again(tmp_path: Path) -> None:
    with loop_mount(tmp_path / "loop", 64) as mount, broker_on(mount, tmp_path) as disks:
        # At rest: a sync in the very moment in which a journal is aborted succeeds and is not there after the next
        # mount, with a program of ten lines and no broker too (docs/operating/disks.md): only the kernel knows.
        with disks.at_rest():
            mount.abort()
        _outlives(disks, "Read-only file system", "Input/output error", "a sync failed", "shut down")
        mount.vanish()
        mount.mount()
        _comes_back(disks)


def test_a_mount_that_vanishes_is_noticed_though_open_files_go_on(tmp_path: Path) -> None:
    """And the folder below it, which is empty and writable, is not taken for the disk."""
    with loop_mount(tmp_path / "loop", 64) as mount, broker_on(mount, tmp_path) as disks:
        mount.vanish()
        _outlives(disks, "the mount is gone", "No such file or directory")
        assert not list(mount.path.rglob("*.log")) and not (mount.path / "meta.properties").exists()
        mount.mount()
        _comes_back(disks)
        assert not list(mount.path.rglob(f"{TOPIC}-*-stray"))


def test_a_sync_that_fails_takes_the_disk_offline_and_what_was_synced_is_there_afterwards(tmp_path: Path) -> None:
    """The blocks below the file system take no more writes."""
    with loop_mount(tmp_path / "loop", 96, platter_mib=24) as mount, broker_on(mount, tmp_path) as disks:
        mount.fill_platter()
        _outlives(disks, "Input/output error", "a sync failed", "Read-only file system")
        mount.widen_platter()
        mount.vanish()
        mount.mount()
        _comes_back(disks)


def test_a_failure_that_writing_out_has_met_is_told_to_the_sync_that_follows(tmp_path: Path) -> None:
    """The kernel tells it once to each description of the file: nobody may take it from the lane's."""
    with loop_mount(tmp_path / "loop", 96, platter_mib=24, has_journal=False) as mount:
        descriptor = os.open(mount.path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, os.urandom(8 * 1024 * 1024))
            mount.fill_platter()
            disk_calls.write_out(descriptor)
            with pytest.raises(OSError):
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


def test_a_broker_starts_without_a_disk_that_is_not_mounted_and_takes_it_when_it_is(tmp_path: Path) -> None:
    with loop_mount(tmp_path / "loop", 64) as mount, broker_on(mount, tmp_path) as disks:
        disks.fleet.stop(0)
        mount.vanish()
        disks.fleet.start(0)
        assert "has no meta.properties" in disks.until_state("offline")
        disks.goes_on(disks.good)
        assert not (mount.path / "meta.properties").exists() and not list(mount.path.rglob("*.log"))
        mount.mount()
        disks.until_state("online")


def _comes_back(disks: TwoDisks) -> None:
    """Without a restart: the repaired disk's partitions take records, and every acknowledged one is there."""
    disks.until_state("online")
    disks.goes_on([*disks.good, *disks.bad])
    assert disks.metric("kafka_log_logmanager_offlinelogdirectorycount") == 0
    disks.assert_nothing_is_lost()


def test_what_only_a_dead_disk_held_answers_errors_until_a_person_gives_it_up(tmp_path: Path) -> None:
    with fuse_mount(tmp_path / "fuse") as mount, broker_on(mount, tmp_path) as disks:
        first = {number: disks.acknowledged[number][0] for number in disks.bad}
        command = ["disk", "forget", "--broker", "0", "--bootstrap-server", disks.fleet.bootstrap]
        good, bad = str(disks.fleet.data / "broker-0" / "d0"), str(disks.mount)
        refused = _ottla(*command, "--dir", bad, "--yes")
        assert refused.returncode == 1 and "is not offline: nothing is given up" in refused.stderr
        mount.say("eio")
        disks.until_state("offline")
        disks.refuses()
        unasked = _ottla(*command, "--dir", bad)
        assert unasked.returncode == 1 and "nothing is given up" in unasked.stderr
        named = {int(number) for number in re.findall(rf"(?<![\w/]){TOPIC}-(\d+)\b", unasked.stdout)}
        assert named == set(disks.bad)
        disks.refuses()
        other = _ottla(*command, "--dir", good, "--yes")
        assert other.returncode == 1 and "is not offline" in other.stderr
        done = _ottla(*command, "--dir", bad, "--yes")
        assert done.returncode == 0, done.stderr
        disks.goes_on([*disks.good, *disks.bad])
        for number, names in disks.read(disks.bad).items():
            assert first[number] not in names, "it was recreated"
        mount.say("ok")
        disks.until_state("online")
        assert len(list(mount.path.glob(f"{TOPIC}-*-stray"))) == len(disks.bad), "the old copies are strays"
        disks.goes_on([*disks.good, *disks.bad])


def _ottla(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
