"""Values of topic configuration are compared as values: what people write, what brokers print."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_broker.config import TOPIC_KEYS, BrokerConfig, ConfigType, TopicConfig
from ottla_documents.topic_config import canonical_text
from ottla_operator.api.topics import TopicDescription
from tests.operator.topic_fleet import Topics

AS_PEOPLE_WRITE = [
    ("cleanup.policy", "compact, delete", "compact,delete"),
    ("cleanup.policy", " compact ,delete\n", "compact,delete"),
    ("cleanup.policy", "delete,compact", "compact,delete"),
    ("min.cleanable.dirty.ratio", "0.50", "0.5"),
    ("min.cleanable.dirty.ratio", 0.5, "0.5"),
    ("min.cleanable.dirty.ratio", 1, "1.0"),
    ("min.cleanable.dirty.ratio", ".5", "0.5"),
    ("min.cleanable.dirty.ratio", "5e-1", "0.5"),
    ("retention.ms", 6.048e8, "604800000"),
    ("retention.ms", "6.048e+08", "604800000"),
    ("retention.ms", "007", "7"),
    ("retention.ms", "+7", "7"),
    ("retention.ms", "604800000\n", "604800000"),
    ("retention.ms", -1, "-1"),
    ("retention.ms", "604800000", "604800000"),  # the default
    ("preallocate", False, "false"),
    ("unclean.leader.election.enable", True, "true"),
    ("unclean.leader.election.enable", "True", "true"),
    ("unclean.leader.election.enable", "TRUE", "true"),
    ("compression.type", "zstd\n", "zstd"),
    ("message.format.version", "2.8", "2.8"),
    ("message.format.version", 2.8, "2.8"),
    ("flush.messages", 9223372036854775807, "9223372036854775807"),
    ("flush.messages", "9223372036854775807", "9223372036854775807"),
]


@pytest.mark.parametrize(("key", "written", "printed"), AS_PEOPLE_WRITE)
async def test_a_value_that_the_topic_has_is_not_sent_again(
    topics: Topics, key: str, written: Any, printed: str
) -> None:
    topics.kafka.topics_there["flights"] = TopicDescription("flights", "old", 12, 3, {key: printed})
    topics.apply(config={key: written})
    await topics.settle()
    assert topics.kafka.requests == [] and topics.ready() == ("True", "AsDeclared")


@pytest.mark.parametrize(("key", "written", "printed"), AS_PEOPLE_WRITE)
async def test_a_value_is_sent_as_a_broker_reads_and_prints_it(
    topics: Topics, key: str, written: Any, printed: str
) -> None:
    topics.apply(config={key: written})
    await topics.settle()
    (created,) = topics.kafka.requests
    stored = created.config[key]  # type: ignore[union-attr]
    assert TopicConfig({key: stored}, BrokerConfig.from_mapping({})).describe(key).value == stored
    assert sorted(stored.split(",")) == sorted(printed.split(","))


@pytest.mark.parametrize("key", sorted(TOPIC_KEYS))
async def test_every_key_with_its_default_value_causes_no_change(topics: Topics, key: str) -> None:
    described = TopicConfig({}, BrokerConfig.from_mapping({})).describe(key)
    topics.kafka.topics_there["flights"] = TopicDescription("flights", "old", 12, 3, {key: described.value or ""})
    topics.apply(config={key: described.value or ""})
    await topics.settle()
    assert topics.kafka.requests == [] and topics.ready()[0] == "True"


@pytest.mark.parametrize("key", [name for name, known in TOPIC_KEYS.items() if known.type is not ConfigType.LIST])
def test_the_text_of_a_value_is_what_a_broker_prints(key: str) -> None:
    described = TopicConfig({}, BrokerConfig.from_mapping({})).describe(key)
    assert canonical_text(key, f" {described.value}\n") == described.value


async def test_another_value_is_still_written(topics: Topics) -> None:
    topics.kafka.topics_there["flights"] = TopicDescription(
        "flights", "old", 12, 3, {"cleanup.policy": "compact,delete"}
    )
    topics.apply(config={"cleanup.policy": "compact"})
    await topics.settle()
    assert topics.kafka.topics_there["flights"].config == {"cleanup.policy": "compact"}


async def test_a_value_in_another_form_is_no_difference(topics: Topics) -> None:
    topics.kafka.topics_there["flights"] = TopicDescription(
        "flights", "old", 12, 3, {"min.cleanable.dirty.ratio": "0.50"}
    )
    topics.apply(config={"min.cleanable.dirty.ratio": "0.5"})
    await topics.settle()
    assert topics.kafka.requests == []
