"""What a group remembers of the ids of topics."""

from __future__ import annotations

from ottla_pipeline.reading.topic_ids import STORE, digest, digests, entries, recreated, remembered
from ottla_pipeline.topic_partition import TopicPartition


def test_many_topics_fit_into_the_metadata_of_few_offsets() -> None:
    ids = {f"topic-{number}": digest(b"%d" % number) for number in range(601)}
    found = entries(ids)
    assert list(found) == [TopicPartition(STORE, number) for number in range(3)]
    assert all(len(text) <= 4096 for text in found.values())
    assert remembered(found.values(), ids) == ids


def test_what_others_commit_is_not_taken_for_ids() -> None:
    assert remembered(["", "a note", "topic-ids=%%%"], ["t"]) == {}


def test_what_more_topics_have_left_does_not_count() -> None:
    now = {f"topic-{number}": digest(b"1") for number in range(250)}
    left = entries({**dict.fromkeys(now, digest(b"2")), "deleted": digest(b"2")})[TopicPartition(STORE, 1)]
    assert remembered([*entries(now).values(), left], now) == now


def test_a_topic_is_recreated_when_both_ids_are_known_and_differ() -> None:
    before = {"same": b"1" * 16, "other": b"1" * 16, "without": b"1" * 16, "from-now-on": bytes(16)}
    now = {"same": b"1" * 16, "other": b"2" * 16, "without": bytes(16), "from-now-on": b"1" * 16, "new": b"3" * 16}
    known, found = (digests({TopicPartition(topic, 0): one for topic, one in ids.items()}) for ids in (before, now))
    assert recreated(known, found) == ["other"]
