"""Apache Kafka's own Connect on our brokers: the quickstart with its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clients.committed import read_committed
from tests.integration.clients.connect import JARS, STANDALONE, Worker
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
