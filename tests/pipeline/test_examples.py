"""The examples that the manual lists, as they are, on real brokers: what each leaves behind, and the table it prints.

One Spark session and one fleet serve all of them; a mirror has a second fleet. The programs run in this session.
"""

from __future__ import annotations

import json
import runpy
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from ottla.testing import RunningCluster, cluster
from ottla_documents.documents import Documents, load_documents
from ottla_pipeline.running.query_options import broker_options, session_settings
from ottla_pipeline.running.run_folder import RunFolder
from tests.pipeline.fleets import create
from tests.pipeline.sink.test_delivery import read_all
from tests.pipeline.spark_jvm import own_jvm

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.long]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NOON_MS = 1_767_268_800_000
"""2026-01-01 12:00 UTC."""
ALONE = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
LINES = ("all streams lead to kafka", "hello kafka streams", "join kafka summit")
UPDATES = (
    ("all", 1), ("streams", 1), ("lead", 1), ("to", 1), ("kafka", 1),
    ("hello", 1), ("kafka", 2), ("streams", 2),
    ("join", 1), ("kafka", 3), ("summit", 1),
)  # fmt: skip
"""The lines of Kafka Streams' quickstart, and what it shows of WordCountDemo."""
Row = tuple[str, ...]
Script = Callable[..., list[Row]]


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(config=ALONE) as found:
        yield found


@pytest.fixture(scope="module")
def other() -> Iterator[RunningCluster]:
    with cluster(config=ALONE) as found:
        yield found


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session of `ottla pipeline run`."""
    from ottla_pipeline.running.session import open_session

    settings = session_settings("examples", "local[2]", tmp_path_factory.mktemp("spark"))
    with own_jvm(lambda: open_session(settings | {"spark.sql.shuffle.partitions": "2"}, [EXAMPLES])) as session:
        yield session


def documents(name: str) -> Documents:
    return load_documents([(name, (EXAMPLES / name).read_text())])


def declare(fleet: RunningCluster, document: str) -> None:
    """Creates the topics of the document, whose records may be as old as they are here."""
    for topic in documents(document).topics:
        create(fleet, topic.topic_name, 1, **{**topic.config, "retention.ms": "-1"})


@pytest.fixture
def run(spark: Any, fleet: RunningCluster, tmp_path: Path) -> Callable[..., None]:
    """`run("prices.yaml")` runs the pipeline of the document over what is there now. `sink` and named arguments replace
    fields of its sink and its source; `is_new` begins without a checkpoint."""
    from ottla_pipeline.running.runner import PipelineRun

    def run(document: str, *, is_new: bool = False, sink: dict[str, Any] | None = None, **source: Any) -> None:
        pipeline = replace(
            documents(document).pipelines[0],
            checkpoint=str(tmp_path / "checkpoint"),
            restart_policy="Never",
        )
        pipeline = replace(
            pipeline, source=replace(pipeline.source, **source), sink=replace(pipeline.sink, **(sink or {}))
        )
        said: list[str] = []
        folder = RunFolder(pipeline)
        with folder.locked():
            if is_new:
                folder.reset()
            one = PipelineRun(
                pipeline,
                broker_options(fleet.bootstrap, {}),
                folder,
                is_once=True,
                is_asked_to_end=threading.Event(),
                say=said.append,
            )
            assert one.run(spark), said

    return run


@pytest.fixture
def script(spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """`script("table.py", ...)` runs a program of the examples, and gives the rows of the table that it prints."""

    def script(name: str, *arguments: str, status: int = 0) -> list[Row]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        except SystemExit as ended:
            assert int(ended.code or 0) == status
        lines = capsys.readouterr().out.splitlines()
        return [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines if line.startswith("|")][1:]

    return script


def send(fleet: RunningCluster, topic: str, *records: tuple[str | None, str | None, int], **more: Any) -> None:
    """Records as key, value and minutes after noon."""
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all"})
    for key, value, minutes in records:
        producer.produce(topic, key=key, value=value, timestamp=NOON_MS + 60_000 * minutes, **more)
    assert producer.flush(60) == 0


def page(name: str, minutes: int) -> tuple[None, str, int]:
    return None, json.dumps({"page": name}), minutes


def forget_last_commit(checkpoint: Path) -> None:
    """As a kill leaves it, between the write of a batch and Spark's own log of it."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def test_word_count_writes_the_records_of_kafka_streams_and_a_batch_finds_the_same(
    fleet: RunningCluster, run: Callable[..., None], script: Script, tmp_path: Path
) -> None:
    document = "word-count.yaml"
    declare(fleet, document)
    for line in LINES:
        send(fleet, "streams-plaintext-input", (None, line, 0))
    run(document, max_offsets_per_trigger=1)
    forget_last_commit(tmp_path / "checkpoint" / "query")
    run(document, max_offsets_per_trigger=1)
    found = [(key, int.from_bytes(value, "big")) for _, key, value in read_all(fleet, "streams-wordcount-output", 1)]
    assert Counter(found) == Counter((word.encode(), count) for word, count in UPDATES)
    send(fleet, "streams-plaintext-input", (None, "Kafka, hello!", 0), (None, "", 0))
    run(document)
    as_number = "conv(hex(value), 16, 10)"
    streamed = script("table.py", fleet.bootstrap, "streams-wordcount-output", as_number)
    assert streamed == script("word_count.py", fleet.bootstrap)
    assert dict(streamed)["kafka"] == "4" and dict(streamed)["hello"] == "2" and "" not in dict(streamed)


def test_a_table_has_the_latest_value_of_each_key_and_is_the_changelog_of_another(
    fleet: RunningCluster, run: Callable[..., None], script: Script
) -> None:
    def price(item: str | None, price: float) -> tuple[str | None, str, int]:
        return item, json.dumps({"price": price}), 0

    declare(fleet, "prices.yaml")
    send(fleet, "prices", price("apple", 1.5), price("pear", 2), price("apple", 1.75))
    run("prices.yaml")
    send(fleet, "prices", ("pear", None, 0), price("fig", 3), ("apple", "{nonsense", 0))
    run("prices.yaml")
    expected = [("apple", "175"), ("fig", "300")]
    assert script("table.py", fleet.bootstrap, "prices-in-cents") == expected
    written = [(key, value) for _, key, value in read_all(fleet, "prices-in-cents", 1)]
    assert Counter(written) == Counter([(b"apple", b"175"), (b"pear", b"200"), (b"pear", None), (b"fig", b"300")])
    assert [value for _, _, value in read_all(fleet, "prices-dead", 1)] == [b"{nonsense"]

    # Restored from the changelog alone, without any checkpoint, with and without the deleted key.
    create(fleet, "restored", 1)
    for mode, rows in (("update", [*expected, ("pear", None)]), ("complete", expected)):
        known = len(read_all(fleet, "restored", 1))
        target = replace(documents("prices.yaml").pipelines[0].sink.target, topic="restored")
        run("prices.yaml", is_new=True, sink={"target": target, "output_mode": mode})
        found = [(key.decode(), value and value.decode()) for _, key, value in read_all(fleet, "restored", 1)[known:]]
        assert sorted(found, key=str) == sorted(rows, key=str)


def test_views_are_counted_in_windows_until_they_are_too_late(
    fleet: RunningCluster, run: Callable[..., None], script: Script
) -> None:
    declare(fleet, "page-views.yaml")
    for batch in (
        [page("a", 1), page("a", 2), page("b", 6)],
        [page("a", 3), page("b", 20)],  # the first one is late, and counts
        [page("a", 4)],  # its window has ended more than ten minutes before the latest view
    ):
        send(fleet, "page-views", *batch)
        run("page-views.yaml")
    found = script("table.py", fleet.bootstrap, "views-by-page")
    assert found == [("12:00 a", "3"), ("12:05 b", "1"), ("12:20 b", "1")]


def test_streams_are_joined_by_key_and_time(fleet: RunningCluster, run: Callable[..., None], script: Script) -> None:
    declare(fleet, "clicks.yaml")
    send(fleet, "shown", ("1", "shoes", 0), ("2", "hats", 1), ("3", "coats", 2))
    send(fleet, "clicked", ("1", "", 30), ("3", "", 63))  # the last one after more than an hour
    run("clicks.yaml")
    assert script("table.py", fleet.bootstrap, "shown-and-clicked") == [("1", "shoes clicked")]
    send(fleet, "shown", ("4", "bags", 180))
    run("clicks.yaml")
    found = script("table.py", fleet.bootstrap, "shown-and-clicked")
    assert found == [("1", "shoes clicked"), ("2", "hats not clicked"), ("3", "coats not clicked")]


def test_a_session_ends_with_half_an_hour_of_nothing(
    fleet: RunningCluster, run: Callable[..., None], script: Script
) -> None:
    declare(fleet, "sessions.yaml")
    send(fleet, "actions", ("ann", "", 0), ("bob", "", 5), ("ann", "", 10))
    run("sessions.yaml")
    send(fleet, "actions", ("ann", "", 25), ("ann", "", 90), ("eve", "", 180))
    run("sessions.yaml")
    found = script("table.py", fleet.bootstrap, "sessions")
    assert found == [
        ("ann 12:00", "3 until 12:25"), ("ann 13:30", "1 until 13:30"), ("bob 12:05", "1 until 12:05"),
    ]  # fmt: skip


def test_a_repeated_payment_is_written_once(fleet: RunningCluster, run: Callable[..., None], script: Script) -> None:
    declare(fleet, "payments.yaml")
    send(fleet, "payments", ("p1", "10", 0), ("p1", "10", 0), ("p2", "20", 1))
    run("payments.yaml")
    send(fleet, "payments", ("p1", "10", 50), ("p3", "30", 55))
    run("payments.yaml")
    written = [value for _, _, value in read_all(fleet, "payments-once", 1)]
    assert Counter(written) == Counter([b"10", b"20", b"30"])
    assert script("table.py", fleet.bootstrap, "payments-once") == [("p1", "10"), ("p2", "20"), ("p3", "30")]


def records(spark: Any, fleet: RunningCluster, topics: str) -> list[Any]:
    """All that the records of topics have, apart from offsets."""
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", fleet.bootstrap)
    rows = reader.options(subscribe=topics, includeHeaders="true", **{"kafka.isolation.level": "read_committed"}).load()
    return list(rows.orderBy("topic", "partition", "offset").drop("offset").collect())


def test_a_mirror_has_each_record_once_and_a_group_goes_on_there(
    spark: Any, fleet: RunningCluster, other: RunningCluster, script: Script, tmp_path: Path
) -> None:
    def mirror() -> None:
        script("mirror.py", fleet.bootstrap, other.bootstrap, "^orders", str(tmp_path / "mirror"), "--once")

    def send_orders(topic: str, first: int) -> None:
        for number in range(first, first + 6):
            headers = [("source", b"shop"), ("source", None)] if number % 2 else None
            send(fleet, topic, (f"k{number}", f"order {number}", number), partition=number % 3, headers=headers)

    create(fleet, "orders", 3, cleanup_policy="compact", retention_ms="-1")
    send_orders("orders", 0)
    mirror()
    consumer = Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", number, 2) for number in range(3)], asynchronous=False)
    consumer.close()

    send_orders("orders", 6)
    create(fleet, "orders-returned", 2, retention_ms="-1")
    send(fleet, "orders-returned", ("k1", None, 0), partition=1)
    mirror()
    forget_last_commit(tmp_path / "mirror")
    mirror()
    assert records(spark, other, "orders,orders-returned") == records(spark, fleet, "orders,orders-returned") != []
    there = AdminClient({"bootstrap.servers": other.bootstrap})
    assert len(there.list_topics().topics["orders-returned"].partitions) == 2
    (settings,) = there.describe_configs([ConfigResource("topic", "orders")]).values()
    assert settings.result()["cleanup.policy"].value == "compact"

    moved = script("mirror_group.py", fleet.bootstrap, other.bootstrap, "billing")
    assert [row[:3] for row in moved] == [("orders", str(number), "2") for number in range(3)]
    assert {row[3] for row in moved} <= {"2", "3"}  # the marker of the commit may be written a moment later
    reader = Consumer({"bootstrap.servers": other.bootstrap, "group.id": "billing", "auto.offset.reset": "error"})
    reader.subscribe(["orders"])
    found = {message.value() for message in reader.consume(6, 60)}
    reader.close()
    assert found == {b"order %d" % number for number in range(6, 12)}

    send(fleet, "orders", ("k1", "not mirrored yet", 0), partition=0)
    audit = script("audit.py", fleet.bootstrap, "orders", other.bootstrap, "orders", status=1)
    assert [row[1:] for row in audit] == [("11", "10", "1"), ("2", "2", "0")]


def test_dated_folders_have_each_record_once_after_a_kill(
    fleet: RunningCluster, script: Script, tmp_path: Path
) -> None:
    create(fleet, "readings", 2, retention_ms="-1")
    folder = tmp_path / "folder"

    def load() -> list[Row]:
        return script("dated_folders.py", fleet.bootstrap, "readings", str(folder))

    today, tomorrow = ("readings", "2026-01-01"), ("readings", "2026-01-02")
    send(fleet, "readings", *((None, str(number), number) for number in range(5)))
    assert load() == [(*today, "5")]
    send(fleet, "readings", *((None, str(number), 720 + number) for number in range(3)))
    assert load() == [(*today, "5"), (*tomorrow, "3")]
    forget_last_commit(folder / ".checkpoint")
    send(fleet, "readings", (None, "8", 800))
    assert load() == [(*today, "5"), (*tomorrow, "4")]
    offsets = [json.loads(path.read_text()) for path in sorted(folder.glob("loaded=*/batch=*/_offsets.json"))]
    assert len(offsets) == 3
    assert sum(max(one.get(f"readings-{number}", 0) for one in offsets) for number in range(2)) == 9


def test_lines_of_a_file_go_through_a_topic_into_a_file_each_once(
    fleet: RunningCluster, script: Script, tmp_path: Path
) -> None:
    create(fleet, "lines", 1)
    text, copied = tmp_path / "test.txt", tmp_path / "test.sink.txt"

    def copy() -> str:
        script("file_source.py", str(text), fleet.bootstrap, "lines")
        script("file_sink.py", fleet.bootstrap, "lines", str(copied))
        return copied.read_text()

    text.write_text("foo\nbar\n\nhalf a li")
    assert copy() == "foo\nbar\n\n"
    with text.open("a") as more:
        more.write("ne\nlast\n")
    assert copy() == "foo\nbar\n\nhalf a line\nlast\n"
    # The source writes its position before the lines, so that it is killed with lines to write, or to leave out.
    forget_last_commit(Path(f"{copied}.state"))
    assert copy() == "foo\nbar\n\nhalf a line\nlast\n"
