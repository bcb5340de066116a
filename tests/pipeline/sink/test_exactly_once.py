"""Exactly once, without Spark: whatever is killed wherever, readers of committed records see each row once.

A batch goes through the same steps as in Spark. The writer is killed by an exception that nothing handles, which is
what SIGKILL is for the brokers: connections close, and nobody ends the transaction. A batch that Spark would run again
is run again, with its rows in other tasks.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import RunningCluster, cluster
from ottla_pipeline.errors import ProducerFenced, SpoolError, UnknownReplay

pytest.importorskip("pyarrow")


from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.find_coordinator import FindCoordinatorRequest
from ottla_pipeline.sink import marker
from ottla_pipeline.sink.commit import commit_batch, commit_job, nothing
from ottla_pipeline.sink.leaders import leaders_of
from ottla_pipeline.sink.spool import TaskOutput, machine, write_name
from ottla_pipeline.sink.task import spool_rows
from ottla_pipeline.sink.write_options import WriteOptions, parse_write_options
from ottla_pipeline.topic_partition import TopicPartition
from ottla_pipeline.wire.cluster import Cluster
from tests.pipeline.sink.test_delivery import read_all, rows, topic

STEPS = ("begin", "look", "enlist", "send", "mark", "end")
ROWS = 900


class Killed(BaseException):
    """The writer is gone."""


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, config={"auto.create.topics.enable": "false"}) as found:
        yield found


def options(fleet: RunningCluster, name: str, **more: str) -> WriteOptions:
    return parse_write_options({"kafka.bootstrap.servers": fleet.bootstrap, "topic": name, **more})


def tasks(batch_id: int, split: int, options: WriteOptions, size: int = 0) -> list[TaskOutput]:
    """The rows of a batch, spooled by so many tasks."""
    first = ROWS * batch_id
    bounds = [first + ROWS * number // split for number in range(split + 1)]
    write = write_name("query", batch_id)
    return [spool_rows([rows(end - begin, begin, size)], options, machine(), write) for begin, end in pairwise(bounds)]


def at(step: str, act: Callable[[], None]) -> Callable[[str], None]:
    def after(done: str) -> None:
        if done == step:
            act()

    return after


def kill() -> None:
    raise Killed


def seen(fleet: RunningCluster, name: str) -> Counter[int]:
    return Counter(int(value.rstrip(b".")) for _, _, value in read_all(fleet, name))


@pytest.mark.parametrize("step", STEPS)
def test_each_row_is_there_once_when_the_writer_is_killed_after(fleet: RunningCluster, step: str) -> None:
    name = topic(fleet, f"writer-{step}")
    checked = options(fleet, name)
    assert commit_batch(tasks(0, 2, checked), f"query-{step}", 0, checked) is marker.Action.WRITE
    with pytest.raises(Killed):
        commit_batch(tasks(1, 3, checked), f"query-{step}", 1, checked, at(step, kill))
    with pytest.raises(Killed):
        commit_batch(tasks(1, 2, checked), f"query-{step}", 1, checked, at("begin", kill))
    replayed = commit_batch(tasks(1, 5, checked), f"query-{step}", 1, checked)
    assert replayed is (marker.Action.SKIP if step == "end" else marker.Action.WRITE)
    commit_batch(tasks(2, 1, checked), f"query-{step}", 2, checked)
    assert seen(fleet, name) == Counter(range(3 * ROWS))


def leader(fleet: RunningCluster, checked: WriteOptions, name: str) -> int:
    with Cluster(checked.connecting) as brokers:
        leaders = leaders_of(brokers, checked)
        leaders.count(name)
        return broker_at(fleet, leaders.leader(TopicPartition(name, 0)))


def coordinator(fleet: RunningCluster, checked: WriteOptions, key: str, kind: int) -> int:
    with Cluster(checked.connecting) as brokers:
        answer = brokers.ask_any(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key=key, key_type=kind))
        assert answer.error_code == 0
        return broker_at(fleet, (answer.host, answer.port))


def broker_at(fleet: RunningCluster, address: tuple[str, int] | None) -> int:
    assert address is not None
    return next(broker for broker in (0, 1, 2) if fleet.address(broker) == f"{address[0]}:{address[1]}")


@pytest.mark.parametrize(
    ("victim", "step"),
    [
        *(("leader", step) for step in ("begin", "enlist", "send")),
        *(("transaction coordinator", step) for step in STEPS[:-1]),
        *(("group coordinator", step) for step in ("begin", "send", "mark")),
    ],
)
def test_each_row_is_there_once_when_a_broker_is_killed(fleet: RunningCluster, victim: str, step: str) -> None:
    name = topic(fleet, f"broker-{victim.replace(' ', '-')}-{step}")
    query = f"query-{name}"
    checked = options(fleet, name)
    commit_batch(tasks(0, 2, checked), query, 0, checked)
    if victim == "leader":
        broker = leader(fleet, checked, name)
    else:
        broker = coordinator(fleet, checked, marker.group_of(query), 1 if victim.startswith("transaction") else 0)
    try:
        commit_batch(tasks(1, 3, checked), query, 1, checked, at(step, lambda: fleet.kill(broker)))
        commit_batch(tasks(1, 2, checked), query, 1, checked)
    finally:
        fleet.start(broker)
    commit_batch(tasks(2, 2, checked), query, 2, checked)
    assert seen(fleet, name) == Counter(range(3 * ROWS))


def test_many_bytes_go_through_files_which_are_there_no_more_afterwards(fleet: RunningCluster, tmp_path: Any) -> None:
    name = topic(fleet, "files")
    checked = options(fleet, name, spoolDirectory=str(tmp_path))
    outputs = tasks(0, 2, checked, size=2000)
    assert len(list(tmp_path.iterdir())) == 2
    commit_batch(outputs, "query-files", 0, checked)
    for output in outputs:
        output.delete()
    assert list(tmp_path.iterdir()) == []
    assert seen(fleet, name) == Counter(range(ROWS))


def zeros_in(file: Path) -> None:
    with file.open("r+b") as content:
        content.seek(1000)
        content.write(bytes(100))


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, lambda file: os.truncate(file, 0), lambda file: os.truncate(file, 300_000), zeros_in],
    ids=["missing", "empty", "cut-short", "zeros"],
)
def test_a_batch_with_a_file_that_is_not_whole_is_not_seen_and_its_replay_is_there_once(
    fleet: RunningCluster, tmp_path: Path, damage: Callable[[Path], None], request: pytest.FixtureRequest
) -> None:
    name = topic(fleet, f"damaged-{request.node.callspec.id}")
    checked = options(fleet, name, spoolDirectory=str(tmp_path))
    outputs = tasks(0, 2, checked, size=2000)
    damaged = Path(str(outputs[1].path))  # the rows of the first task are sent before
    damage(damaged)
    with pytest.raises(SpoolError, match=str(damaged)):
        commit_batch(outputs, f"query-{name}", 0, checked)
    assert read_all(fleet, name) == []
    replay = tasks(0, 3, checked, size=2000)
    assert commit_batch(replay, f"query-{name}", 0, checked) is marker.Action.WRITE
    assert seen(fleet, name) == Counter(range(ROWS))


def test_a_task_on_another_machine_puts_its_bytes_into_its_message(fleet: RunningCluster) -> None:
    name = topic(fleet, "elsewhere")
    checked = options(fleet, name)
    output = spool_rows([rows(ROWS, 0, 2000)], checked, "another machine", write_name("query", 0))
    assert output.path is None and len(output.data) > ROWS * 2000
    commit_batch([output], "query-elsewhere", 0, checked)
    assert seen(fleet, name) == Counter(range(ROWS))


def test_an_older_copy_of_the_query_is_fenced(fleet: RunningCluster) -> None:
    name = topic(fleet, "copies")
    checked = options(fleet, name)
    newer: list[marker.Action] = []

    def other_copy() -> None:
        newer.append(commit_batch(tasks(0, 3, checked), "query-copies", 0, checked))

    with pytest.raises(ProducerFenced, match="another copy of this query"):
        commit_batch(tasks(0, 2, checked), "query-copies", 0, checked, at("send", other_copy))
    assert newer == [marker.Action.WRITE]
    assert seen(fleet, name) == Counter(range(ROWS))


def test_another_query_begins_at_its_own_first_batch(fleet: RunningCluster) -> None:
    name = topic(fleet, "two-queries")
    checked = options(fleet, name, **{"kafka.transactional.id": "one-id"})
    for query in ("query-first", "query-second"):  # the same program with a new checkpoint
        assert commit_batch(tasks(0, 2, checked), query, 0, checked) is marker.Action.WRITE
    assert seen(fleet, name) == Counter(dict.fromkeys(range(ROWS), 2))


def test_a_batch_that_nobody_can_place_is_refused(fleet: RunningCluster) -> None:
    name = topic(fleet, "unknown")
    checked = options(fleet, name)
    with pytest.raises(UnknownReplay, match="batch 6 left no marker"):
        commit_batch(tasks(7, 2, checked), "query-unknown", 7, checked)
    commit_batch(tasks(0, 2, checked), "query-unknown", 7, options(fleet, name, missingMarker="write"))
    commit_batch(tasks(1, 2, checked), "query-unknown", 8, checked)
    with pytest.raises(UnknownReplay, match="batch 8 is committed, which comes after batch 7"):
        commit_batch(tasks(0, 2, checked), "query-unknown", 7, checked)
    assert seen(fleet, name) == Counter(range(2 * ROWS))


def test_a_batch_that_is_new_is_written_without_the_marker_of_the_one_before(fleet: RunningCluster) -> None:
    name = topic(fleet, "new")
    new = options(fleet, name, missingMarker="7")
    with pytest.raises(UnknownReplay, match="batch 5 left no marker"):
        commit_batch(tasks(0, 2, new), "query-new", 6, new)
    for action in (marker.Action.WRITE, marker.Action.SKIP):
        assert commit_batch(tasks(0, 2, new), "query-new", 7, new) is action
    assert seen(fleet, name) == Counter(range(ROWS))


@pytest.fixture(scope="module")
def forgetful() -> Iterator[RunningCluster]:
    """Brokers that keep a marker for a minute."""
    config = {
        "auto.create.topics.enable": "false", "offsets.retention.minutes": "1",
        "offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }  # fmt: skip
    with cluster(brokers=1, racks=1, config=config) as found:
        yield found


def checkpoint(folder: Path, batch_id: int, age_s: float) -> str:
    """A checkpoint that has had a batch for so long."""
    (folder / "offsets").mkdir(exist_ok=True)
    planned_ms = int((time.time() - age_s) * 1000)
    (folder / "offsets" / str(batch_id)).write_text(f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{planned_ms}}}\n-')
    return str(folder)


@pytest.mark.parametrize("batch_id", [0, 7])
def test_how_long_a_batch_without_marker_counts_as_not_written_is_what_the_brokers_say(
    fleet: RunningCluster, forgetful: RunningCluster, tmp_path: Path, batch_id: int
) -> None:
    """Forty seconds after its first attempt, where the marker is kept for a minute, and where it is kept for a week."""
    for brokers, age_s, is_refused in ((forgetful, 40, True), (forgetful, 0, False), (fleet, 40, False)):
        name, query = topic(brokers, f"aged-{batch_id}-{age_s}", replicas=1), f"query-aged-{batch_id}-{age_s}"
        checked = options(brokers, name, checkpointLocation=checkpoint(tmp_path, batch_id, age_s))
        with pytest.raises(Killed):  # an attempt that ends before anybody can know of it
            commit_batch(tasks(0, 2, checked), query, batch_id, checked, at("begin", kill))
        if is_refused:
            with pytest.raises(UnknownReplay, match=r"planned 0\.7 minutes ago, and the brokers keep it for 1 minutes"):
                commit_batch(tasks(0, 2, checked), query, batch_id, checked)
            assert read_all(brokers, name) == []
        else:
            assert commit_batch(tasks(0, 2, checked), query, batch_id, checked) is marker.Action.WRITE


def test_the_first_batch_of_a_checkpoint_that_cannot_be_read_is_written_unless_an_attempt_may_have_been_forgotten(
    fleet: RunningCluster, forgetful: RunningCluster
) -> None:
    for brokers in (fleet, forgetful):
        name = topic(brokers, "unread", replicas=1)
        checked = options(brokers, name, checkpointLocation="s3a://bucket/checkpoint")
        with pytest.raises(Killed):
            commit_batch(tasks(0, 2, checked), "query-unread", 0, checked, at("end", kill))
        assert commit_batch(tasks(0, 2, checked), "query-unread", 0, checked) is marker.Action.SKIP
        forget_marker(brokers, "query-unread")
    commit_batch(tasks(0, 2, checked), "query-unread-too", 0, checked)
    with pytest.raises(UnknownReplay, match="its transactional id was used before, and the brokers keep it for 1 min"):
        commit_batch(tasks(0, 2, checked), "query-unread", 0, checked)
    written = options(forgetful, name, missingMarker="write")
    assert commit_batch(tasks(1, 2, written), "query-unread", 0, written) is marker.Action.WRITE


def forget_marker(fleet: RunningCluster, query: str) -> None:
    """As brokers do after offsets.retention.minutes."""
    group, admin = marker.group_of(query), AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.delete_consumer_groups([group])[group].result(60)


@pytest.mark.parametrize("step", ["begin", "enlist", "send"])
def test_a_job_that_is_killed_leaves_nothing_and_its_repetition_writes_all(fleet: RunningCluster, step: str) -> None:
    name = topic(fleet, f"job-{step}")
    checked = options(fleet, name)
    with pytest.raises(Killed):
        commit_job(tasks(0, 3, checked), f"job-{step}", checked, at(step, kill))
    commit_job(tasks(0, 2, checked), f"job-{step}", checked, nothing)
    assert seen(fleet, name) == Counter(range(ROWS))


def test_a_batch_without_rows_leaves_its_marker(fleet: RunningCluster) -> None:
    name = topic(fleet, "no-rows")
    checked = options(fleet, name)
    commit_batch([], "query-no-rows", 0, checked)
    commit_batch(tasks(0, 1, checked), "query-no-rows", 1, checked)
    assert commit_batch(tasks(0, 1, checked), "query-no-rows", 1, checked) is marker.Action.SKIP
    assert seen(fleet, name) == Counter(range(ROWS))


def test_a_timeout_that_brokers_refuse_is_named(fleet: RunningCluster) -> None:
    name = topic(fleet, "timeout")
    checked = options(fleet, name, **{"kafka.transaction.timeout.ms": "1000000000"})
    with pytest.raises(Exception, match=r"option kafka.transaction.timeout.ms: 1000000000 is above the brokers'"):
        commit_batch([], "query-timeout", 0, checked)
