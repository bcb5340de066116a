"""APIs of delegation tokens.

Who owns a token, has asked for it or may renew it needs no right on it; nobody else may renew or expire it.
"""

from __future__ import annotations

from typing import Any

from ottla_broker.authorization.resources import WILDCARD, AclOperation, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.beside.security.names import SOMEBODY, Names
from tests.beside.security.rows import Build, Row
from tests.beside.security.world import ADMIN, World

_Op, _Type = AclOperation, ResourceType
_CREATE, _DESCRIBE_OF = (_Op.CREATE_TOKENS, _Type.USER), (_Op.DESCRIBE_TOKENS, _Type.USER)
_DESCRIBE = (_Op.DESCRIBE, _Type.DELEGATION_TOKEN)
_DESCRIBE_CLUSTER = (_Op.DESCRIBE, _Type.CLUSTER)
_NO_TOKEN = b"x"
_NO_PERIOD = -1


def _create(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.CREATE_DELEGATION_TOKEN)
    return api.CreateDelegationTokenRequest(max_lifetime_ms=-1)


def _create_of_another(world: World, names: Names, version: int) -> Any:
    api = codec.module(ApiKey.CREATE_DELEGATION_TOKEN)
    return api.CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name=SOMEBODY, max_lifetime_ms=-1
    )


def _renew(world: World, hmac: bytes) -> Any:
    api = codec.module(ApiKey.RENEW_DELEGATION_TOKEN)
    return api.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=_NO_PERIOD)


def _expire(world: World, hmac: bytes) -> Any:
    api = codec.module(ApiKey.EXPIRE_DELEGATION_TOKEN)
    return api.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=_NO_PERIOD)


def _renew_none(world: World, names: Names, version: int) -> Any:
    return _renew(world, _NO_TOKEN)


def _renew_of_another(world: World, names: Names, version: int) -> Any:
    return _renew(world, world.token())


def _expire_none(world: World, names: Names, version: int) -> Any:
    return _expire(world, _NO_TOKEN)


def _expire_of_another(world: World, names: Names, version: int) -> Any:
    return _expire(world, world.token())


def _describe(world: World, names: Names, version: int) -> Any:
    return codec.module(ApiKey.DESCRIBE_DELEGATION_TOKEN).DescribeDelegationTokenRequest(owners=None)


def _describe_of(*users: str) -> Build:
    def build(world: World, names: Names, version: int) -> Any:
        api = codec.module(ApiKey.DESCRIBE_DELEGATION_TOKEN)
        owners = [api.DescribeDelegationTokenOwner(principal_type="User", principal_name=user) for user in users]
        return api.DescribeDelegationTokenRequest(owners=owners)

    return build


_OF_SOMEBODY = {"": Names(users=(f"User:{SOMEBODY}",))}
_OF_ADMIN = {"": Names(users=(f"User:{ADMIN}",), tokens=(WILDCARD,))}
_INSTEAD = ((_DESCRIBE,), (_DESCRIBE_CLUSTER,))

ROWS = (
    Row(ApiKey.RENEW_DELEGATION_TOKEN, _renew_none, about="of no token"),
    Row(ApiKey.RENEW_DELEGATION_TOKEN, _renew_of_another, about="of another"),
    Row(ApiKey.EXPIRE_DELEGATION_TOKEN, _expire_none, about="of no token"),
    Row(ApiKey.EXPIRE_DELEGATION_TOKEN, _expire_of_another, about="of another"),
    Row(ApiKey.DESCRIBE_DELEGATION_TOKEN, _describe, (_DESCRIBE_OF,), _OF_ADMIN, instead=_INSTEAD),
    Row(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        _describe_of(ADMIN, SOMEBODY),
        (_DESCRIBE_OF,),
        _OF_ADMIN,
        "of users",
        instead=_INSTEAD,
    ),
    Row(ApiKey.DESCRIBE_DELEGATION_TOKEN, _describe_of(), (_DESCRIBE_OF,), _OF_ADMIN, "of no user"),
    Row(ApiKey.CREATE_DELEGATION_TOKEN, _create),
    Row(ApiKey.CREATE_DELEGATION_TOKEN, _create_of_another, (_CREATE,), _OF_SOMEBODY, "of another", lowest=3),
)
