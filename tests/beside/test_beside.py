"""Random requests, answered as Apache Kafka 3.9.1 answers them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.beside import quotas, scram
from tests.beside.comparison import both, comparable, difference
from tests.beside.configs import cases, compare
from tests.beside.requests import Request, Requests


@pytest.mark.java
def test_random_requests_are_answered_as_apache_kafka_does(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with both(tmp_path, zookeeper) as ask:
        for request in islice(Requests(1), 600):
            assert difference(*ask(request)) == "", request


@pytest.mark.java
def test_configuration_values_are_taken_and_refused_as_apache_kafka_does(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    """A part of `python -m tests.beside configs`: each joined rule and list, and some values of other keys."""
    every = list(cases())
    asked = [case for case in every if len(case.operations) > 1 or case.operations[0][1] != 0] + every[::37]
    with both(tmp_path, zookeeper) as ask:
        assert {str(case): found for case in asked if (found := compare(ask, case))} == {}


@pytest.mark.java
def test_configurations_of_groups_are_refused_as_by_apache_kafka(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """Apache Kafka 3.9 has them under KRaft alone."""
    describe, alter = codec.module(ApiKey.DESCRIBE_CONFIGS), codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    replace = codec.module(ApiKey.ALTER_CONFIGS)
    group, key, value = {"resource_type": 32, "resource_name": "g1"}, "consumer.session.timeout.ms", "50000"
    described = describe.DescribeConfigsResource(**group, configuration_keys=None)
    changed = alter.AlterConfigsResource(**group, configs=[alter.AlterableConfig(name=key, value=value)])
    replaced = replace.AlterConfigsResource(**group, configs=[replace.AlterableConfig(name=key, value=value)])
    requests = (
        Request(ApiKey.DESCRIBE_CONFIGS, 4, describe.DescribeConfigsRequest(resources=[described])),
        Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter.IncrementalAlterConfigsRequest(resources=[changed])),
        Request(ApiKey.ALTER_CONFIGS, 2, replace.AlterConfigsRequest(resources=[replaced])),
    )
    with both(tmp_path, zookeeper) as ask:
        answers = [ask(request) for request in requests]
    assert [difference(*pair) for pair in answers] == [""] * 3
    codes = [one["error_code"] for ours, _ in answers for one in ours.get("results", ours.get("responses"))]
    assert codes == [ErrorCode.INVALID_REQUEST] * 3


@pytest.mark.java
def test_quotas_are_set_described_and_refused_as_apache_kafka_does(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with both(tmp_path, zookeeper) as ask:
        for request in quotas.requests():
            assert difference(*ask(request)) == "", request


@pytest.mark.java
def test_credentials_of_scram_are_set_described_and_refused_as_by_apache_kafka(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with both(tmp_path, zookeeper) as ask:
        for request in scram.requests():
            assert difference(*ask(request)) == "", request


@pytest.mark.java
def test_topics_over_the_quota_on_changes_are_refused_as_by_apache_kafka(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with both(tmp_path, zookeeper) as ask:
        answers = [ask(request) for request in quotas.changes_over_the_quota()]
    assert [difference(*pair) for pair in answers] == [""] * 4
    assert [ours["topics"][0]["error_code"] for ours, _ in answers[1:]] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED, 0]


def test_one_seed_gives_the_same_requests_again() -> None:
    assert [repr(request) for request in islice(Requests(3), 50)] == [repr(one) for one in islice(Requests(3), 50)]


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}, ""),
        ({"a": [1, 2]}, {"a": [1, 3]}, ".a[1]: 2, and Apache Kafka says 3"),
        ({"a": [1]}, {"a": []}, ".a: [1], and Apache Kafka says []"),
        (
            {"error_code": 0},
            {"error_code": 3},
            ".error_code: 'NONE', and Apache Kafka says 'UNKNOWN_TOPIC_OR_PARTITION'",
        ),
        ("closed", {"a": 1}, "answer: 'closed', and Apache Kafka says {'a': 1}"),
    ],
)
def test_a_difference_is_named_with_its_place(ours: object, theirs: object, found: str) -> None:
    assert difference(comparable(ours), comparable(theirs)) == found
