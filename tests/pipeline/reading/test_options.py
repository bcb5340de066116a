"""What may be written in `.option(...)`, and the one line that a wrong one gets."""

from __future__ import annotations

import pytest

from ottla_pipeline.errors import OptionError
from ottla_pipeline.reading.java_patterns import compile_java
from ottla_pipeline.reading.options import (
    Assign,
    AtEnd,
    AtOffsets,
    AtTimestamps,
    NoMatch,
    Subscribe,
    SubscribePattern,
    parse,
)
from ottla_pipeline.topic_partition import EARLIEST, LATEST, TopicPartition

BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
TOPIC = {**BROKER, "subscribe": "flights"}
DIGITS = "1" * 5000
"""More than Python reads as one number."""


def test_the_defaults_are_those_of_the_stock_connector() -> None:
    options = parse(TOPIC)
    assert options.topics == Subscribe(("flights",))
    assert (options.starting, options.ending) == (AtEnd(EARLIEST), AtEnd(LATEST))
    assert options.fail_on_data_loss and not options.include_headers
    assert options.no_match is NoMatch.ERROR
    assert options.min_partitions is None and options.max_records_per_partition is None
    assert not options.connecting.read_committed
    assert options.connecting.bootstrap == (("127.0.0.1", 9092),)
    assert (options.connecting.retries, options.connecting.poll_timeout_ms) == (3, 120_000)


def test_names_have_no_case_and_lists_may_have_spaces() -> None:
    options = parse({"KAFKA.BOOTSTRAP.SERVERS": "a:1, [::1]:2", "SubScribe": " x , y,x", "includeheaders": "TRUE"})
    assert options.topics == Subscribe(("x", "y"))
    assert options.connecting.bootstrap == (("a", 1), ("::1", 2))
    assert options.include_headers


def test_topics_come_from_a_pattern_or_an_assignment() -> None:
    assert parse({**BROKER, "subscribePattern": "fl.*"}).topics == SubscribePattern(compile_java("fl.*"))
    assert parse({**BROKER, "assign": '{"t": [2, 0], "u": [1]}'}).topics == Assign(
        (TopicPartition("t", 2), TopicPartition("t", 0), TopicPartition("u", 1))
    )


def test_offsets_may_be_given_by_partition_and_a_time_wins_over_them() -> None:
    offsets = {"startingOffsets": '{"flights": {"0": 23, "1": -2}}'}
    by_time = {"startingOffsetsByTimestamp": '{"flights": {"0": 1700000000000}}'}
    one_time = {"startingTimestamp": "1600000000000"}
    first, second = TopicPartition("flights", 0), TopicPartition("flights", 1)
    assert parse({**TOPIC, **offsets}).starting == AtOffsets({first: 23, second: -2}, "startingOffsets")
    assert parse({**TOPIC, **offsets, **by_time}).starting == AtTimestamps(
        {first: 1700000000000}, 0, "startingOffsetsByTimestamp"
    )
    assert parse({**TOPIC, **offsets, **by_time, **one_time}).starting == AtTimestamps(
        None, 1600000000000, "startingTimestamp"
    )


def test_what_concerns_streams_alone_is_taken_and_told() -> None:
    assert parse({**TOPIC, "maxOffsetsPerTrigger": "5"}).ignored == ("maxOffsetsPerTrigger",)
    assert parse({**TOPIC, "kafka.session.timeout.ms": "5", "groupIdPrefix": "x"}).ignored == ()


def test_a_fetch_is_as_large_as_the_smaller_of_both_limits() -> None:
    limits = {"kafka.max.partition.fetch.bytes": "2000", "kafka.fetch.max.bytes": "1000"}
    assert parse({**TOPIC, **limits}).connecting.partition_fetch_bytes == 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t"}, "option kafka.bootstrap.servers: is needed"),
        ({**TOPIC, "kafka.bootstrap.servers": "localhost"}, "'localhost' is not host:port"),
        ({**TOPIC, "kafka.bootstrap.servers": f"a:{DIGITS}"}, "1' is not host:port"),
        ({**TOPIC, "minPartitions": DIGITS}, "option minPartitions: must be a whole number, not '1111"),
        ({**TOPIC, "minPartitions": "1_0"}, "option minPartitions: must be a whole number, not '1_0'"),
        ({**TOPIC, "startingOffsets": f'{{"t": {{"{DIGITS}": 1}}}}'}, "option startingOffsets: must be earliest"),
        ({**TOPIC, "startingOffsets": f'{{"t": {{"0": {DIGITS}}}}}'}, "option startingOffsets: must be earliest"),
        ({**BROKER, "subscribePattern": f"a{{{DIGITS}}}"}, "option subscribePattern: 'a{1"),
        ({**BROKER, "assign": f'{{"t": [{2**31}]}}'}, "option assign: must be JSON"),
        (BROKER, "exactly one of assign, subscribe and subscribePattern is needed, none is given"),
        ({**TOPIC, "assign": "{}"}, "assign and subscribe are given"),
        ({**BROKER, "subscribe": " , "}, "option subscribe: names no topic"),
        ({**BROKER, "subscribePattern": "("}, "option subscribePattern: '(': a ( is not closed"),
        ({**TOPIC, "startingTimestamp": "9223372036854775808"}, "option startingTimestamp: must be at most 9223"),
        ({**TOPIC, "endingOffsets": '{"t": {"0": 9223372036854775808}}'}, "option endingOffsets: 9223372036854775808"),
        ({**TOPIC, "endingOffsetsByTimestamp": '{"t": {"0": -3}}'}, "option endingOffsetsByTimestamp: -3 for t-0 is"),
        ({**TOPIC, "provider": "ottla"}, "write CREATE TEMPORARY VIEW ... USING ottla OPTIONS (...)"),
        ({**TOPIC, "path": "x"}, "option path: is of no use here: write load() without a path"),
        ({**BROKER, "assign": '{"t": 0}'}, 'option assign: must be JSON such as {"topic": [0, 1]}, not 0 for t'),
        ({**BROKER, "assign": "t"}, "option assign: must be JSON"),
        ({**TOPIC, "startingOffset": "earliest"}, "option startingoffset: is unknown; did you mean startingOffsets?"),
        ({**TOPIC, "colour": "red"}, "option colour: is unknown"),
        ({**TOPIC, "startingOffsets": "latest"}, "option startingOffsets: 'latest' would read nothing"),
        ({**TOPIC, "endingOffsets": "earliest"}, "option endingOffsets: 'earliest' would read nothing"),
        ({**TOPIC, "startingOffsets": '{"flights": {"0": -1}}'}, "option startingOffsets: -1 (latest) for flights-0"),
        ({**TOPIC, "endingOffsets": '{"flights": {"0": -2}}'}, "option endingOffsets: -2 (earliest) for flights-0"),
        ({**TOPIC, "endingOffsets": '{"flights": {"0": -3}}'}, "option endingOffsets: -3 for flights-0 is no offset"),
        ({**TOPIC, "startingOffsets": '{"flights": {"x": 1}}'}, "option startingOffsets: must be earliest, latest or"),
        ({**TOPIC, "startingOffsets": "first"}, "option startingOffsets: must be earliest, latest or JSON"),
        ({**TOPIC, "startingTimestamp": "soon"}, "option startingTimestamp: must be a whole number, not 'soon'"),
        ({**TOPIC, "startingOffsetsByTimestampStrategy": "skip"}, "must be error or latest, not 'skip'"),
        ({**TOPIC, "minPartitions": "0"}, "option minPartitions: must be at least 1, not 0"),
        ({**TOPIC, "includeHeaders": "yes"}, "option includeHeaders: must be true or false, not 'yes'"),
        ({**TOPIC, "kafka.isolation.level": "serializable"}, "option kafka.isolation.level: must be read_committed or"),
        ({**TOPIC, "kafka.auto.offset.reset": "latest"}, "option kafka.auto.offset.reset: cannot be set"),
        ({**TOPIC, "kafka.sasl.mechanism": "PLAIN"}, "so kafka.sasl.mechanism would have no effect: set SASL_SSL"),
        ({**TOPIC, "kafka.security.protocol": "SASL_SSL"}, "option kafka.sasl.mechanism: is not given: of PLAIN"),
        ({**TOPIC, "kafka.fetch.max.bites": "1"}, "option kafka.fetch.max.bites: is unknown; did you mean kafka.f"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse(options)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
