"""AlterUserScramCredentials and DescribeUserScramCredentials on a real embedded store, beside quotas of the same users,
seen by two brokers."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import describe_user_scram_credentials as describe
from ottla_broker.quotas.entities import QuotaEntity
from ottla_broker.security.sasl.scram import ScramAlgorithm, ScramCredential
from ottla_broker.server.handlers import alter_user_scram_credentials, describe_user_scram_credentials
from ottla_broker.server.store.scram_credentials import ScramCredentials
from tests.beside.scram import Removed, Set, alteration
from tests.broker.server.handlers.test_client_quotas import CONTEXT, Broker, brokers

__all__ = ["brokers"]
SHA_256, SHA_512 = ScramAlgorithm.SHA_256, ScramAlgorithm.SHA_512
SALTED = ScramCredential.of_salted(SHA_256, b"salted password", b"salt", 4096)


async def alter(broker: Broker, *made: Set, removed: tuple[Removed, ...] = (), is_controller: bool = True) -> Any:
    """(error, message) by user."""
    services: Any = SimpleNamespace(dynamic_config=broker.dynamic, controller=SimpleNamespace(is_active=is_controller))
    response = await alter_user_scram_credentials.handle(services, CONTEXT, alteration(made, removed))
    return {one.user: (ErrorCode.of(one.error_code).name, one.error_message) for one in response.results}


async def described(broker: Broker, *users: str) -> Any:
    """Iterations by mechanism of each user."""
    named = [describe.UserName(name=user) for user in users] if users else None
    request = describe.DescribeUserScramCredentialsRequest(users=named)
    response = await describe_user_scram_credentials.handle(broker.services, CONTEXT, request)
    return {
        one.user: {info.mechanism: info.iterations for info in one.credential_infos} or one.error_code
        for one in response.results
    }


def followed(broker: Broker) -> ScramCredentials:
    """The credentials that a broker has read."""
    found = ScramCredentials(logging.getLogger("ottla.test"))
    for entity, values in broker.in_force.items():
        found.on_stored(entity, values)
    return found


async def test_a_credential_is_in_force_on_every_broker_and_quotas_stay(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    await one.set({"user": "alice"}, producer_byte_rate=1024.0)
    assert await alter(one, ("alice", 1, 4096), ("alice", 2, 8192)) == {"alice": ("NONE", "")}
    assert followed(one).find(SHA_256, "alice") == SALTED
    stored = await one.dynamic.quotas.stored(QuotaEntity(user="alice"))
    assert stored["producer_byte_rate"] == "1024"
    assert stored["SCRAM-SHA-256"] == SALTED.encode()
    await other.until(QuotaEntity(user="alice"), stored)
    assert followed(other).find(SHA_256, "alice") == SALTED
    assert await described(other, "alice", "bob") == {"alice": {1: 4096, 2: 8192}, "bob": ErrorCode.RESOURCE_NOT_FOUND}
    assert await described(other) == {"alice": {1: 4096, 2: 8192}}
    await one.set({"user": "alice"}, producer_byte_rate=None)
    assert await described(other, "alice") == {"alice": {1: 4096, 2: 8192}}, "without the quota they stay"
    assert await alter(one, removed=(("alice", 1), ("alice", 2))) == {"alice": ("NONE", "")}
    await other.until(QuotaEntity(user="alice"), {})
    assert followed(other).find(SHA_256, "alice") is None
    assert await described(one) == {}


async def test_credentials_leave_quotas_when_they_go(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    await alter(one, ("alice", 1, 4096))
    await one.set({"user": "alice"}, producer_byte_rate=1024.0)
    await alter(one, removed=(("alice", 1),))
    assert await other.describe() == {"user=alice": {"producer_byte_rate": 1024.0}}


async def test_changes_of_one_user_by_two_brokers_at_once_both_take_effect(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    await asyncio.gather(
        alter(one, ("alice", 1, 4096)),
        other.set({"user": "alice"}, producer_byte_rate=1024.0),
        alter(other, ("alice", 2, 4096)),
        one.set({"user": "alice"}, consumer_byte_rate=1024.0),
    )
    assert (await one.dynamic.quotas.stored(QuotaEntity(user="alice"))).keys() == {
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
        "producer_byte_rate",
        "consumer_byte_rate",
    }


@pytest.mark.parametrize(
    ("made", "removed", "expected"),
    [
        ((("", 1, 4096),), (), {"": ("UNACCEPTABLE_CREDENTIAL", "Username must not be empty")}),
        (((".", 1, 4096),), (), {".": ("UNACCEPTABLE_CREDENTIAL", ". is not a valid user name")}),
        ((("a", 1, 4095),), (), {"a": ("UNACCEPTABLE_CREDENTIAL", "Too few iterations")}),
        ((("a", 1, 16385),), (), {"a": ("UNACCEPTABLE_CREDENTIAL", "Too many iterations")}),
        ((("a", 3, 4096),), (), {"a": ("UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism")}),
        (
            (("a", 1, 4096),),
            (("a", 1),),
            {"a": ("DUPLICATE_RESOURCE", "A user credential cannot be altered twice in the same request")},
        ),
        (
            (("a", 1, 4096), ("b", 1, 4096)),
            (("a", 2),),
            {
                "a": ("RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist"),
                "b": ("NONE", ""),
            },
        ),
    ],
)
async def test_what_cannot_be_done_for_a_user_is_not_done_at_all(
    brokers: tuple[Broker, Broker], made: tuple[Set, ...], removed: tuple[Removed, ...], expected: Any
) -> None:
    assert await alter(brokers[0], *made, removed=removed) == expected
    assert await described(brokers[0]) == {name: {1: 4096} for name, (code, _) in expected.items() if code == "NONE"}


async def test_only_the_controller_changes_them(brokers: tuple[Broker, Broker]) -> None:
    found = await alter(brokers[0], ("b", 1, 4096), ("a", 1, 1), is_controller=False)
    assert found == {"a": ("NOT_CONTROLLER", None), "b": ("NOT_CONTROLLER", None)}
    assert await described(brokers[0]) == {}


async def test_what_is_no_credential_is_not_used_and_not_logged(
    brokers: tuple[Broker, Broker], caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = brokers
    await one.dynamic.quotas.update(QuotaEntity(user="alice"), lambda stored: {"SCRAM-SHA-256": "hunter2"})
    assert followed(one).find(SHA_256, "alice") is None
    assert "user alice cannot log in by SCRAM-SHA-256" in caplog.text
    assert "hunter" not in caplog.text
    assert await described(one, "alice") == {"alice": ErrorCode.UNKNOWN_SERVER_ERROR}
