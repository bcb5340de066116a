"""The table finds the logs of a topic and counts those of a directory without a look at all others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.log_dirs.log_table import LogTable


def _log(topic: str, partition: int, path: str) -> Any:
    values = {"log_end_offset": 0, "high_watermark": 0, "size_bytes": 0}
    disk = SimpleNamespace(path=path)
    return SimpleNamespace(state=SimpleNamespace(topic_partition=TopicPartition(topic, partition), disk=disk, **values))


def test_the_logs_of_a_topic_are_its_current_and_its_future_ones() -> None:
    table = LogTable()
    logs = [_log("a", 1, "/d0"), _log("a", 0, "/d1"), _log("b", 0, "/d0")]
    for log in logs:
        table.put(log)
    future = _log("a", 0, "/d0")
    table.put_future(future)
    assert table.of_topic("a") == [logs[1], logs[0], future]
    assert table.of_topic("b") == [logs[2]] and table.of_topic("c") == []


def test_a_directory_is_counted_with_what_it_has_after_a_swap_and_a_deletion() -> None:
    table = LogTable()
    old, new = _log("a", 0, "/d0"), _log("a", 0, "/d1")
    table.put(old)
    table.put(_log("a", 1, "/d0"))
    table.put_future(new)
    assert (table.count_in("/d0"), table.count_in("/d1")) == (2, 1)
    table.take_future(TopicPartition("a", 0))
    table.put(new)
    assert (table.count_in("/d0"), table.count_in("/d1")) == (1, 1)
    assert list(table.current) == [TopicPartition("a", 0), TopicPartition("a", 1)]
    assert table.take(TopicPartition("a", 0)) is new and table.take(TopicPartition("a", 0)) is None
    assert table.count_in("/d1") == 0 and len(table.of_topic("a")) == 1


def test_a_directory_that_is_offline_has_no_current_logs() -> None:
    table = LogTable()
    lost, kept = _log("a", 0, "/d0"), _log("a", 1, "/d1")
    table.put(lost)
    table.put(kept)
    table.take_offline(lost.state.disk)
    assert table.count_in("/d0") == 0 and table.of_topic("a") == [kept]
