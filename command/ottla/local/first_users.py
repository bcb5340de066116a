"""The users and ACLs of a secure fleet, stored once, over the brokers' own listener, before its first client.

`admin` is a super user and has no ACL. `app` may use what begins with `app-`: topics, which it may create, groups, and
transactional ids. Kafka's `kafka-acls --producer --consumer` allows the same operations.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.local.client_files import MECHANISM
from ottla.local.controller_requests import PAUSE_S, TIMEOUT_MS, ControllerRequests
from ottla.local.layout import BrokerPlace
from ottla.local.ports import HOST
from ottla.local.secure_files import APP, PREFIX
from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.ports import Clock
from ottla_broker.ports.network import Connector
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.security.sasl.scram import FEWEST_ITERATIONS, ScramAlgorithm
from ottla_broker.server.peers.broker_client import BrokerClient, BrokerDisconnected

_PRINCIPAL = f"User:{APP}"
_RIGHTS: Mapping[ResourceType, Sequence[AclOperation]] = {
    ResourceType.TOPIC: (AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE),
    ResourceType.GROUP: (AclOperation.DESCRIBE, AclOperation.READ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE),
}
_ACLS = sum(map(len, _RIGHTS.values()))
_SALT_BYTES = 16
_ALGORITHM = ScramAlgorithm(MECHANISM)


class UsersNotStored(Exception):
    """The message says why."""


async def store_users(connector: Connector, clock: Clock, port: int, passwords: Mapping[str, str]) -> None:
    """Stores the users with these passwords, and the ACLs. What is stored already is replaced. Raises UsersNotStored.

    Args:
        connector: speaks to the brokers' own listener.
        port: of that listener of any broker.
    """
    requests = ControllerRequests(connector, clock, (HOST, port))
    try:
        api = codec.module(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
        upsertions = []
        for user, password in passwords.items():
            salt = secrets.token_bytes(_SALT_BYTES)
            salted = _ALGORITHM.salted_password(password, salt, FEWEST_ITERATIONS)
            upsertions.append(
                api.ScramCredentialUpsertion(
                    name=user,
                    mechanism=_ALGORITHM.code,
                    iterations=FEWEST_ITERATIONS,
                    salt=salt,
                    salted_password=salted,
                )
            )
        users = api.AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
        _check("users", *await requests.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, users, _first_error))
        acls = codec.module(ApiKey.CREATE_ACLS).CreateAclsRequest(creations=_creations())
        _check("ACLs", *await requests.ask(ApiKey.CREATE_ACLS, 3, acls, _first_error))
    finally:
        requests.close()


async def until_known(internal: Connector, users: Sequence[Connector], clock: Clock, place: BrokerPlace) -> None:
    """Returns when one broker lets every user in and knows every ACL of `app`. Raises UsersNotStored.

    Brokers that were not asked to store them take them over within a moment.

    Args:
        internal: speaks to the listener INTERNAL.
        users: log in to the listener CLIENT.
    """
    deadline = clock.monotonic() + TIMEOUT_MS / 1000
    while True:
        try:
            for user in users:
                await _log_in(user, clock, place)
            if await _known_acls(internal, clock, place) >= _ACLS:
                return
            why = "its ACLs are not all there"
        except OSError as error:
            why = str(error)
        if clock.monotonic() > deadline:
            raise UsersNotStored(f"broker {place.id} does not know the users of the fleet: {why}")
        await clock.sleep(PAUSE_S)


async def _log_in(connector: Connector, clock: Clock, place: BrokerPlace) -> None:
    """Raises BrokerDisconnected."""
    client = BrokerClient(connector, clock, HOST, place.client_port, client_id="ottla-local")
    try:
        await client.connect()
    finally:
        client.close()


async def _known_acls(connector: Connector, clock: Clock, place: BrokerPlace) -> int:
    """How many ACLs of `app` the broker knows. Raises BrokerDisconnected."""
    api = codec.module(ApiKey.DESCRIBE_ACLS)
    request = api.DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=PREFIX,
        pattern_type_filter=PatternType.PREFIXED,
        principal_filter=_PRINCIPAL,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ALLOW,
    )
    client = BrokerClient(connector, clock, HOST, place.internal_port, client_id="ottla-local")
    try:
        await client.connect()
        response = await client.send(ApiKey.DESCRIBE_ACLS, 3, request)
    finally:
        client.close()
    if response.error_code:
        raise BrokerDisconnected(response.error_message or ErrorCode.of(response.error_code).message)
    return sum(len(resource.acls) for resource in response.resources)


def _creations() -> list[Any]:
    api = codec.module(ApiKey.CREATE_ACLS)
    return [
        api.AclCreation(
            resource_type=resource_type,
            resource_name=PREFIX,
            resource_pattern_type=PatternType.PREFIXED,
            principal=_PRINCIPAL,
            host="*",
            operation=operation,
            permission_type=PermissionType.ALLOW,
        )
        for resource_type, operations in _RIGHTS.items()
        for operation in operations
    ]


def _first_error(response: Any) -> tuple[int, str]:
    failed = next((one for one in response.results if one.error_code), None)
    return (int(ErrorCode.NONE), "") if failed is None else (failed.error_code, failed.error_message or "")


def _check(what: str, code: int, message: str) -> None:
    if code != ErrorCode.NONE:
        raise UsersNotStored(f"the first {what} cannot be stored: {message}")
