"""What a connection remembers of its rights, for how long, and what is logged."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from ottla_broker.authorization.access import LONGEST_KEPT, MOST_DECISIONS, Access
from ottla_broker.authorization.authorizer import AclCheck
from ottla_broker.authorization.resources import AclOperation, ResourceType, mask
from ottla_broker.security.principals import Principal

READ, WRITE, DESCRIBE, TOPIC = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, ResourceType.TOPIC


class Rights:
    """An authorizer that allows what is named, and counts what it is asked."""

    def __init__(self, *allowed: AclCheck) -> None:
        self.version = 0
        self.allowed = set(allowed)
        self.asked: list[AclCheck] = []

    def decide(self, principal: Principal, address: str, checks: Sequence[AclCheck]) -> list[bool]:
        assert (str(principal), address) == ("User:alice", "10.0.0.7")
        self.asked += checks
        return [check in self.allowed for check in checks]

    def allows_any(
        self, principal: Principal, address: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return any(check[:2] == (operation, resource_type) for check in self.allowed)


def access_to(rights: Rights) -> Access:
    return Access(rights, Principal("User", "alice"), "10.0.0.7")


def test_the_denied_names_are_those_that_are_not_allowed_and_each_is_asked_for_once() -> None:
    rights = Rights(AclCheck(READ, TOPIC, "a"))
    access = access_to(rights)
    assert access.denied("Fetch", READ, TOPIC, ["a", "b", "a", "c"]) == {"b", "c"}
    assert access.denied("Fetch", READ, TOPIC, ["c", "a"]) == {"c"}
    assert not access.allows("Fetch", WRITE, TOPIC, "a")
    assert sorted(check.name for check in rights.asked if check.operation is READ) == ["a", "b", "c"]
    assert [check.operation for check in rights.asked].count(WRITE) == 1


def test_a_change_is_in_force_at_the_next_request() -> None:
    rights = Rights(AclCheck(READ, TOPIC, "a"))
    access = access_to(rights)
    assert access.allows("Fetch", READ, TOPIC, "a")
    assert not access.allows("Fetch", READ, TOPIC, "b")
    rights.allowed = {AclCheck(READ, TOPIC, "b")}
    rights.version += 1
    assert not access.allows("Fetch", READ, TOPIC, "a")
    assert access.allows("Fetch", READ, TOPIC, "b")


def test_a_client_that_names_many_resources_fills_no_memory() -> None:
    rights = Rights()
    access = access_to(rights)
    for number in range(3 * MOST_DECISIONS):
        assert not access.allows("Metadata", DESCRIBE, TOPIC, f"t{number}", logs=False)
    kept = sum(map(len, access._decided.values()))
    assert 0 < kept <= MOST_DECISIONS + 1


def test_a_client_that_names_long_resources_fills_no_memory() -> None:
    longest, longer = "g" * LONGEST_KEPT, "g" * (LONGEST_KEPT + 1)
    rights = Rights(AclCheck(READ, TOPIC, longer))
    access = access_to(rights)
    for _ in range(2):
        assert access.denied("Fetch", READ, TOPIC, [longest, longer, "h" * 32_000]) == {longest, "h" * 32_000}
        assert access.allows("Fetch", READ, TOPIC, longer)
    assert [name for names in access._decided.values() for name in names] == [longest]


def test_every_request_is_logged_as_apache_kafka_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    access = access_to(Rights(AclCheck(READ, TOPIC, "a")))
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        for _ in range(2):
            access.denied("Fetch", READ, TOPIC, ["secret", "a", "secret"])
        access.denied("Metadata", READ, TOPIC, ["silent"], logs=False)
    line = (
        "Principal = User:alice is Denied Operation = Read from host = 10.0.0.7 on resource = Topic:LITERAL:secret"
        " for request = Fetch with resourceRefCount = 2"
    )
    assert caplog.messages == [line, line]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
        access.denied("Fetch", READ, TOPIC, ["a"])
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]
    assert "is Allowed Operation = Read" in caplog.messages[0]


def test_authorized_operations_are_those_that_are_allowed() -> None:
    access = access_to(Rights(AclCheck(READ, TOPIC, "a"), AclCheck(DESCRIBE, TOPIC, "a")))
    assert access.operations(TOPIC, "a") == mask(READ, DESCRIBE)
    assert access.operations(TOPIC, "b") == 0
