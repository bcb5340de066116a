"""Apache Kafka's own Connect on our brokers: the quickstart's files, and a worker of two that is killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from tests.integration.clients.committed import read_committed
from tests.integration.clients.connect import DISTRIBUTED, JARS, STANDALONE, Worker
from tests.integration.clients.driver import await_that
from tests.requirements import missing

pytestmark = pytest.mark.java

Start = Callable[..., Worker]


@pytest.fixture
def worker(tmp_path: Path, bootstrap: str) -> Iterator[Start]:
    """`worker(name, config, connectors)`: one that is not started; it ends with the test."""
    if not any(JARS.glob("connect-file-*.jar")):
        missing("the jars of Connect's connectors for files are missing: run scripts/fetch-jars.sh")
    with ExitStack() as stack:

        def make(name: str, config: dict[str, str], connectors: tuple[dict[str, str], ...] = ()) -> Worker:
            found = Worker(tmp_path, name, bootstrap, config, connectors)
            stack.callback(found.close)
            return found

        yield make


def source(name: str, file: Path, topic: str, **more: str) -> dict[str, str]:
    """config/connect-file-source.properties."""
    return {
        "name": name,
        "connector.class": "FileStreamSource",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def sink(name: str, file: Path, topics: str, **more: str) -> dict[str, str]:
    """config/connect-file-sink.properties."""
    wanted = source(name, file, topics, **more) | {"connector.class": "FileStreamSink", "topics": topics}
    return {key: value for key, value in wanted.items() if key != "topic"}


def append(file: Path, *lines: str) -> None:
    with file.open("a") as output:
        output.writelines(f"{line}\n" for line in lines)


def values(bootstrap: str, topic: str) -> list[Any]:
    return [json.loads(value) for value in read_committed(bootstrap, topic, 1)]


def test_the_quickstart_copies_a_file_into_a_topic_and_the_topic_into_a_file(
    worker: Start, bootstrap: str, tmp_path: Path
) -> None:
    text, copied, plain, copied_plain = (tmp_path / f"{name}.txt" for name in ("test", "sink", "plain", "plain-sink"))
    append(text, "foo", "bar")
    append(plain, "foo")
    bare = {
        "value_converter": "org.apache.kafka.connect.json.JsonConverter",
        "value_converter_schemas_enable": "false",
    }
    offsets = tmp_path / "connect.offsets"
    standalone = worker(
        "standalone",
        {**STANDALONE, "offset.storage.file.filename": str(offsets)},
        (
            source("local-file-source", text, "connect-test"),
            sink("local-file-sink", copied, "connect-test"),
            source("plain-source", plain, "connect-plain", **bare),
            sink("plain-sink", copied_plain, "connect-plain", **bare),
        ),
    )
    standalone.start()
    await_that(lambda: copied.exists() and copied.read_text() == "foo\nbar\n", "the file is copied")
    await_that(lambda: copied_plain.exists() and copied_plain.read_text() == "foo\n", "the other file is copied")
    schema = {"type": "string", "optional": False}
    assert values(bootstrap, "connect-test") == [{"schema": schema, "payload": line} for line in ("bar", "foo")]
    assert values(bootstrap, "connect-plain") == ["foo"]

    # Mistakes, told by Connect itself or by the brokers.
    no_topic = {key: value for key, value in source("none", text, "").items() if key != "topic"}
    status, answer = standalone.ask("POST", "/connectors", {"name": "none", "config": no_topic})
    assert status == 400 and 'Missing required configuration "topic" which has no default' in answer["message"]
    for config, message in (
        (sink("wrong-name", copied, "no/topic"), "Invalid topics: [no/topic]"),
        (
            source(
                "wrong-config", text, "connect-new",
                topic_creation_default_replication_factor="9", topic_creation_default_partitions="1",
            ),
            "InvalidReplicationFactorException: Replication factor: 9 larger than available brokers: 3.",
        ),
    ):  # fmt: skip
        status, _ = standalone.ask("POST", "/connectors", {"name": config["name"], "config": config})
        assert status == 201
        assert message in standalone.await_state(config["name"], "FAILED")["trace"]

    # The next worker goes on after the line that the offset file has, and after what the sink's group has committed.
    standalone.stop()
    assert offsets.exists()
    append(text, "Another line")
    standalone.start()
    await_that(lambda: copied.read_text() == "foo\nbar\nAnother line\n", "the new line is copied, and no other")


def test_a_connector_goes_on_at_another_worker_and_writes_each_line_once_when_its_worker_is_killed(
    worker: Start, bootstrap: str, tmp_path: Path
) -> None:
    config = {
        **DISTRIBUTED,
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": "3000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
    }
    workers = {found.address: found for found in (worker("first", config), worker("second", config))}
    for found in workers.values():
        found.launch()
    for found in workers.values():
        found.await_ready()
    lines = [f"line {number}" for number in range(3000)]
    text = tmp_path / "test.txt"
    append(text, *lines[:1000])
    wanted = source("lines", text, "connect-lines", exactly_once_support="required")
    some = next(iter(workers.values()))
    await_that(lambda: some.ask("PUT", "/connectors/lines/config", wanted)[0] in (200, 201), "the connector is created")
    first = some.await_state("lines", "RUNNING")["worker_id"]
    await_that(lambda: len(values(bootstrap, "connect-lines")) == 1000, "the first lines are written")
    append(text, *lines[1000:2000])
    workers.pop(first).kill()
    (other,) = workers.values()
    await_that(lambda: other.task("lines").get("worker_id") == other.address, "the other worker has the task")
    append(text, *lines[2000:])
    await_that(lambda: len(values(bootstrap, "connect-lines")) >= 3000, "all lines are written")
    assert sorted(value["payload"] for value in values(bootstrap, "connect-lines")) == sorted(lines)
    resources = [ConfigResource("topic", f"connect-{name}") for name in ("offsets", "configs", "status")]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    policies = [found.result()["cleanup.policy"].value for found in admin.describe_configs(resources).values()]
    assert policies == ["compact"] * 3
