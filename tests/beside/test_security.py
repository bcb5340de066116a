"""What somebody without a right is answered: as by Apache Kafka 3.9.1, and nothing about what exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.edge.dispatch import ABOVE_KAFKA_3_9, LISTED
from tests.beside.security.existence import named_unasked, pairs, reason, told, told_of_partitions
from tests.beside.security.matrix import ROWS, Side, compare, every_difference, sides
from tests.beside.security.revoked import stories
from tests.beside.security.rows import Question, Row, questions

SOME = (
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_ACLS,
)
"""Rights on each type of resource, errors of each kind, names that are left out, authorized operations."""


WITHOUT_RIGHTS = {ApiKey.API_VERSIONS, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
"""They need none, and name no resource."""


def test_every_api_is_asked_without_its_rights() -> None:
    served = {listing.api_key for listing in (*LISTED, *(row.listing for row in ABOVE_KAFKA_3_9))}
    assert {row.api_key for row in ROWS} == served - WITHOUT_RIGHTS


def differences(tmp_path: Path, zookeeper: ZooKeeperServer, rows: Sequence[Row]) -> dict[str, str]:
    asked = [question for row in rows for question in questions(row)]
    with sides(tmp_path, zookeeper) as brokers:
        answers = {str(question): compare(brokers["ours"], brokers["theirs"], question) for question in asked}
    return {question: where for question, where in answers.items() if where}


@pytest.mark.java
def test_some_apis_answer_without_rights_as_apache_kafka_does(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    assert differences(tmp_path, zookeeper, [row for row in ROWS if row.api_key in SOME and not row.changes]) == {}


@pytest.mark.java
def test_every_api_answers_without_rights_as_apache_kafka_does(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    assert differences(tmp_path, zookeeper, ROWS) == {}


@pytest.mark.java
def test_rights_that_are_taken_away_end_as_with_apache_kafka(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with sides(tmp_path, zookeeper) as brokers:
        answers = {story.about: (brokers["ours"].tell(story), brokers["theirs"].tell(story)) for story in stories()}
    assert {about: found for about, pair in answers.items() if (found := list(every_difference(*pair)))} == {}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[Side]:
    with sides(tmp_path_factory.mktemp("ours"), zookeeper, only="ours") as brokers:
        yield brokers["ours"]


def without_rights(rows: Sequence[Row]) -> Iterator[Question]:
    for row in rows:
        if row.needs:
            yield from (question for question in questions(row, is_of_ours=True) if not question.rights)


@pytest.mark.java
def test_nobody_without_its_right_is_told_whether_something_exists(ours: Side) -> None:
    found = {}
    for row in ROWS:
        for pair in pairs(row):
            if (what := told(ours, pair)) and not reason(pair):
                found[str(pair)] = what
    assert found == {}


@pytest.mark.java
def test_nobody_without_rights_is_told_how_many_partitions_there_are(ours: Side) -> None:
    found = {str(question): told_of_partitions(ours, question) for question in without_rights(ROWS)}
    assert {question: what for question, what in found.items() if what} == {}


@pytest.mark.java
def test_nobody_without_rights_is_told_a_name_that_the_request_has_not_said(ours: Side) -> None:
    found = {str(question): named_unasked(ours, question) for question in without_rights(ROWS)}
    assert {question: names for question, names in found.items() if names} == {}
