"""What AlterClientQuotas stores and refuses, and what DescribeClientQuotas finds, as Apache Kafka's ZkAdminManager."""

from __future__ import annotations

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.quotas.alterations import Alteration, altered, parse_bounds, parse_entity
from ottla_broker.quotas.entities import DEFAULT, QuotaEntity
from ottla_broker.quotas.filters import parse_filter

USER, BOTH, IP = QuotaEntity(user="alice"), QuotaEntity(user="alice", client_id="c"), QuotaEntity(ip="10.0.0.1")


@pytest.mark.parametrize(
    ("names", "entity"),
    [
        ([("user", "alice")], USER),
        ([("client-id", None)], QuotaEntity(client_id=DEFAULT)),
        ([("client-id", "c"), ("user", "alice")], BOTH),
        ([("ip", None)], QuotaEntity(ip=DEFAULT)),
        ([("user", "bob"), ("user", "alice")], USER),
    ],
)
def test_an_entity_is_read_from_a_request(names: list[tuple[str, str | None]], entity: QuotaEntity) -> None:
    assert parse_entity(names) == entity


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("role", "x")], "Unhandled client quota entity type: role"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "u"), ("ip", "10.0.0.1")], "IP entity should not be used with user/client ID entity"),
    ],
)
def test_a_bad_entity_is_refused(names: list[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        parse_entity(names)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("entity", "key", "value", "stored"),
    [
        (USER, "producer_byte_rate", 1000.0, "1000"),
        (USER, "producer_byte_rate", 999.9999999, "1000"),
        (BOTH, "consumer_byte_rate", 0.0, "0"),
        (BOTH, "request_percentage", -5.0, "-5.0"),
        (USER, "consumer_byte_rate", 2.0**63, "9223372036854775807"),
        (USER, "request_percentage", 12.5, "12.5"),
        (USER, "controller_mutation_rate", 2e7, "2.0E7"),
        (IP, "connection_creation_rate", 7.0, "7"),
    ],
)
def test_a_value_is_stored_as_apache_kafka_writes_it(entity: QuotaEntity, key: str, value: float, stored: str) -> None:
    assert altered(entity, {}, [Alteration(key, value)]) == {key: stored}


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        (USER, "nope", 1.0, "Invalid configuration key nope"),
        (USER, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        (IP, "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        (USER, "producer_byte_rate", 1.5, "Configuration producer_byte_rate must be a LONG value"),
        (IP, "connection_creation_rate", 3e9, "Configuration connection_creation_rate must be a INT value"),
        (IP, "connection_creation_rate", -1.0, "Configuration connection_creation_rate must be a INT value"),
        (USER, "producer_byte_rate", -1.0, "Configuration producer_byte_rate must be a LONG value"),
        (USER, "producer_byte_rate", float("inf"), "must be a LONG value"),
    ],
)
def test_a_bad_value_is_refused_by_name(entity: QuotaEntity, key: str, value: float, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        altered(entity, {}, [Alteration(key, value)])
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_removals_leave_the_other_values_also_those_of_scram() -> None:
    stored = {"producer_byte_rate": "1", "request_percentage": "5.0", "SCRAM-SHA-256": "secret"}
    assert altered(USER, stored, [Alteration("producer_byte_rate", None), Alteration("never_set", None)]) == {
        "request_percentage": "5.0",
        "SCRAM-SHA-256": "secret",
    }


@pytest.mark.parametrize(
    ("key", "text"),
    [("producer_byte_rate", "1_024"), ("producer_byte_rate", "1" * 5000), ("request_percentage", "1_0.0")],
)
def test_a_stored_value_that_java_reads_no_number_in_is_a_problem(key: str, text: str) -> None:
    bounds, problems = parse_bounds(USER, {key: text, "consumer_byte_rate": "5"})
    assert bounds == {"consumer_byte_rate": 5.0}
    assert len(problems) == 1 and problems[0].startswith(key)


ENTITIES = {
    "user": USER,
    "user default": QuotaEntity(user=DEFAULT),
    "client": QuotaEntity(client_id="c"),
    "client default": QuotaEntity(client_id=DEFAULT),
    "both": BOTH,
    "both default": QuotaEntity(user=DEFAULT, client_id=DEFAULT),
    "ip": IP,
    "ip default": QuotaEntity(ip=DEFAULT),
}
EXACT, OF_DEFAULT, ANY = 0, 1, 2


@pytest.mark.parametrize(
    ("components", "is_strict", "found"),
    [
        ([], False, set(ENTITIES)),
        ([], True, set()),
        ([("user", EXACT, "alice")], False, {"user", "both"}),
        ([("user", EXACT, "alice")], True, {"user"}),
        ([("user", OF_DEFAULT, None)], False, {"user default", "both default"}),
        ([("user", ANY, None)], True, {"user", "user default"}),
        ([("client-id", ANY, None)], False, {"client", "client default", "both", "both default"}),
        ([("client-id", EXACT, "c"), ("user", ANY, None)], True, {"both"}),
        ([("ip", ANY, None)], True, {"ip", "ip default"}),
        ([("ip", EXACT, "10.0.0.1")], False, {"ip"}),
        ([("ip", OF_DEFAULT, "ignored")], False, {"ip default"}),
    ],
)
def test_a_filter_finds_the_entities_that_it_names(
    components: list[tuple[str, int, str | None]], is_strict: bool, found: set[str]
) -> None:
    wanted = parse_filter(components, is_strict)
    assert {name for name, entity in ENTITIES.items() if wanted.accepts(entity)} == found
