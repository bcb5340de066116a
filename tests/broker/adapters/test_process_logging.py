"""The lines of the log: one per event, with the broker that it is about."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator

import pytest

from ottla_broker.adapters import process_logging


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The output of the loggers below "ottla.test" and of ZooKeeper's, in a process of several brokers."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(process_logging.LineFormatter())
    handler.addFilter(process_logging.SubjectFilter())
    handler.addFilter(process_logging.RepeatFilter(process_logging.ZOOKEEPER))
    loggers = [logging.getLogger("ottla.test"), logging.getLogger(process_logging.ZOOKEEPER)]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    yield stream
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def test_a_line_has_time_level_broker_logger_and_message(written: io.StringIO) -> None:
    logging.LoggerAdapter(logging.getLogger("ottla.test"), {"broker": 7}).warning("ready in %d s", 3)
    assert written.getvalue()[10] == "T"
    assert written.getvalue().endswith("Z WARNING [broker 7] ottla.test: ready in 3 s\n")
    assert process_logging.message_of(written.getvalue().strip()) == "ready in 3 s"


def test_tasks_and_timers_of_a_broker_report_about_it(written: io.StringIO) -> None:
    logger = logging.getLogger("ottla.test")

    async def broker(number: int) -> None:
        with process_logging.about(lambda: number):
            later = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(lambda: (logger.info("timer"), later.set_result(None)))
            await later
            await asyncio.create_task(task())

    async def task() -> None:
        logger.info("task")

    async def fleet() -> None:
        await asyncio.gather(broker(1), broker(2))
        logger.info("both")

    asyncio.run(fleet())
    lines = [line.partition("[")[2] for line in written.getvalue().splitlines()]
    assert sorted(lines[:4]) == [
        *("broker 1] ottla.test: task", "broker 1] ottla.test: timer"),
        *("broker 2] ottla.test: task", "broker 2] ottla.test: timer"),
    ]
    assert lines[4:] == ["fleet] ottla.test: both"]


def test_every_record_is_one_line(written: io.StringIO) -> None:
    logger = logging.getLogger("ottla.test")
    logger.info("client %s", "x\n2026-01-01T00:00:00.000Z INFO [broker 1] ottla: forged\x1b[31m")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("it failed")
    first, second = written.getvalue().splitlines()
    assert "client x\\n2026-01-01" in first
    assert "\\x1b[31m" in first
    assert "it failed | Traceback" in second
    assert second.endswith("ValueError: two | lines")


def test_the_zookeeper_client_names_its_broker_and_does_not_repeat_itself(written: io.StringIO) -> None:
    for _ in range(5):
        process_logging.zookeeper_logger(3).warning("Connection dropped")
    process_logging.zookeeper_logger(4).warning("Connection dropped")
    lines = [line.partition(" ")[2] for line in written.getvalue().splitlines()]
    assert lines == [
        "WARNING [broker 3] ottla.zookeeper.3: Connection dropped",
        "WARNING [broker 4] ottla.zookeeper.4: Connection dropped",
    ]


def test_text_in_another_format_is_its_own_message() -> None:
    assert process_logging.message_of("Killed") == "Killed"
