"""SCRAM credentials that are set, described and removed beside quotas of their users, for both brokers in one order."""

from __future__ import annotations

from collections.abc import Iterator

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated import alter_client_quotas as quotas
from ottla_broker.protocol.generated import alter_user_scram_credentials as alter
from ottla_broker.protocol.generated import describe_client_quotas as describe_quotas
from ottla_broker.protocol.generated import describe_user_scram_credentials as describe
from tests.beside.requests import Request

Set = tuple[str, int, int]
"""A user, the code of a mechanism, iterations."""
Removed = tuple[str, int]

ALTERATIONS: tuple[tuple[tuple[Set, ...], tuple[Removed, ...]], ...] = (
    ((), ()),
    ((("a", 1, 4096), ("a", 2, 8192), ("ü =,", 2, 16384)), ()),
    ((("b", 1, 4095),), ()),
    ((("b", 1, 16385),), ()),
    ((("b", 1, -1),), ()),
    ((("b", 0, 4096),), ()),
    ((("b", 3, 4096),), ()),
    ((("b", 3, 1),), ()),
    ((("b", 1, 1), ("b", 1, 20000)), ()),
    ((("b", 1, 4096), ("b", 3, 4096)), ()),
    ((("", 1, 4096),), ()),
    ((("", 3, 1),), (("", 1),)),
    ((("b", 1, 4096), ("b", 1, 4096)), ()),
    ((("b", 1, 4096),), (("b", 1),)),
    ((), (("a", 1), ("a", 1))),
    ((), (("nobody", 1),)),
    ((), (("a", 3),)),
    ((), (("a", 0), ("a", 1))),
    ((("b", 2, 4096),), (("b", 1),)),
    ((("c", 2, 4096), ("d", 1, 1), ("e", 2, 5000)), (("nobody", 2), ("a", 1))),
    ((("a", 2, 5000),), ()),
    ((), (("a", 2),)),
    ((), (("c", 2), ("e", 2), ("ü =,", 2))),
)
"""What is set and what is removed by one request."""

DESCRIBED: tuple[tuple[str, ...] | None, ...] = (None, (), ("a",), ("a", "b", "c"), ("a", "a", "b", "b"), ("ü =,",))


def requests() -> Iterator[Request]:
    """User a has a quota all the time, and c has one that is removed before its credential."""
    yield _quota("a", 1e9)
    for number, (made, removed) in enumerate(ALTERATIONS):
        yield Request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, alteration(made, removed))
        if number == len(ALTERATIONS) - 4:
            yield _quota("c", 1e9)
            yield _quota("c", None)
        for users in DESCRIBED:
            named = None if users is None else [describe.UserName(name=name) for name in users]
            body = describe.DescribeUserScramCredentialsRequest(users=named)
            yield Request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, body)
        yield Request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, describe_quotas.DescribeClientQuotasRequest(components=[]))


def alteration(made: tuple[Set, ...], removed: tuple[Removed, ...]) -> alter.AlterUserScramCredentialsRequest:
    return alter.AlterUserScramCredentialsRequest(
        deletions=[alter.ScramCredentialDeletion(name=name, mechanism=code) for name, code in removed],
        upsertions=[
            alter.ScramCredentialUpsertion(
                name=name, mechanism=code, iterations=iterations, salt=b"salt", salted_password=b"salted password"
            )
            for name, code, iterations in made
        ],
    )


def _quota(user: str, rate: float | None) -> Request:
    operation = quotas.OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)
    entity = [quotas.EntityData(entity_type="user", entity_name=user)]
    body = quotas.AlterClientQuotasRequest(entries=[quotas.EntryData(entity=entity, ops=[operation])])
    return Request(ApiKey.ALTER_CLIENT_QUOTAS, 1, body)
