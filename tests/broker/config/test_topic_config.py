"""What a topic's overrides give, and which are refused."""

from __future__ import annotations

import pytest

from ottla_broker.config import TOPIC_KEYS, BrokerConfig, ConfigSource, Synonym, validate_topic_config
from ottla_broker.protocol.errors import ErrorCode, KafkaError


def config(**values: str) -> BrokerConfig:
    return BrokerConfig.from_mapping({name.replace("_", "."): value for name, value in values.items()})


def test_a_topic_takes_the_defaults_of_3_9() -> None:
    topic = config().topic_config({})
    assert len(TOPIC_KEYS) == 36
    for name, key in TOPIC_KEYS.items():
        assert topic.by_name[name] == key.default, name
        assert key.documentation.endswith(".")


def test_an_override_wins_over_the_broker_and_both_are_told() -> None:
    topic = config(log_retention_ms="5").topic_config({"retention.ms": "7"})
    assert topic.retention_ms == 7
    assert topic.source("retention.ms") is ConfigSource.TOPIC_CONFIG
    assert topic.synonyms("retention.ms") == (
        Synonym("retention.ms", "7", ConfigSource.TOPIC_CONFIG),
        Synonym("log.retention.ms", "5", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    )


def test_a_broker_default_reaches_its_topics() -> None:
    broker = config(message_max_bytes="2000", log_roll_hours="2", log_flush_interval_ms="9")
    topic = broker.topic_config({})
    assert topic.max_message_bytes == 2000
    assert topic.source("max.message.bytes") is ConfigSource.STATIC_BROKER_CONFIG
    assert topic.segment_ms == 7200000
    assert topic.flush_ms == 9
    broker.apply_dynamic({}, {"message.max.bytes": "3000"})
    assert topic.max_message_bytes == 2000
    assert broker.topic_config({}).max_message_bytes == 3000


def test_a_stored_override_that_cannot_be_read_leaves_the_default_and_is_told() -> None:
    topic = config().topic_config({"segment.bytes": "many", "retention.ms": "5", "no.such": "1"})
    assert topic.segment_bytes == 1073741824
    assert topic.retention_ms == 5
    assert len(topic.problems) == 2


def test_internal_topics_carry_compact() -> None:
    overrides = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    validate_topic_config(overrides, internal=True)
    assert config().topic_config(overrides).cleanup_policy == ("compact",)


@pytest.mark.parametrize(
    "overrides",
    [
        {"retention.ms": "-1", "retention.bytes": "-1", "flush.messages": "1", "message.format.version": "2.8"},
        {"cleanup.policy": "delete", "compression.type": "producer", "message.timestamp.type": "CreateTime"},
        {"min.insync.replicas": "2", "unclean.leader.election.enable": "true", "segment.jitter.ms": "0"},
        {"leader.replication.throttled.replicas": "0:1,1:2", "follower.replication.throttled.replicas": "*"},
        {"leader.replication.throttled.replicas": "0:1,", "follower.replication.throttled.replicas": "0:1,, 01:2"},
        {"leader.replication.throttled.replicas": "", "local.retention.ms": "-2"},
    ],
)
def test_good_overrides_pass(overrides: dict[str, str]) -> None:
    validate_topic_config(overrides)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention", "1", "Unknown topic config name: retention"),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "6.048e+08", "whole number"),
        ("segment.bytes", "13", "at least 14"),
        ("min.cleanable.dirty.ratio", "1.5", "between 0 and 1"),
        ("cleanup.policy", "keep", "one of compact, delete"),
        ("compression.type", "brotli", "one of"),
        ("compression.zstd.level", "23", "between"),
        ("message.timestamp.type", "AppendTime", "one of"),
        ("message.timestamp.before.max.ms", "-1", "at least 0"),
        ("remote.storage.enable", "true", "tiered storage is not built"),
        ("leader.replication.throttled.replicas", "0-1", "PARTITION:BROKER"),
        ("leader.replication.throttled.replicas", "*,0:1", "PARTITION:BROKER"),
        ("min.compaction.lag.ms", "9223372036854775808", "whole number"),
        ("retention.ms", "1" * 5000, "whole number"),
        ("retention.ms", "-" + "9" * 5000, "whole number"),
        ("retention.ms", "1_000", "whole number"),
        ("retention.ms", "", "whole number"),
        ("min.cleanable.dirty.ratio", "0_0.5", "a number"),
        ("min.cleanable.dirty.ratio", "inf", "a number"),
        ("min.cleanable.dirty.ratio", "1" * 5000, "between 0 and 1"),
    ],
)
def test_a_bad_override_is_refused_with_its_name(name: str, value: str, words: str) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_config({name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert name in caught.value.message
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "0" * 5000 + "7", 7),
        ("retention.ms", "+7", 7),
        ("retention.ms", "-" + "0" * 5000 + "1", -1),
        ("retention.ms", "0" * 5000, 0),
        ("min.cleanable.dirty.ratio", ".5f", 0.5),
        ("min.cleanable.dirty.ratio", "5.e-1D", 0.5),
    ],
)
def test_a_number_may_be_written_as_java_reads_it(name: str, text: str, value: float) -> None:
    validate_topic_config({name: text})
    assert config().topic_config({name: text}).by_name[name] == value


def test_the_shortest_compaction_lag_may_not_exceed_the_longest() -> None:
    with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms"):
        validate_topic_config({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
