"""APIs whose feature does not exist here: each response is that of an Apache Kafka 3.9.1 without the feature."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import (
    consumer_group_describe,
    consumer_group_heartbeat,
    sasl_authenticate,
    sasl_handshake,
)
from ottla_broker.protocol.generated import create_acls as create
from ottla_broker.protocol.generated import create_delegation_token as create_token
from ottla_broker.protocol.generated import delete_acls as delete
from ottla_broker.protocol.generated import describe_acls as describe
from ottla_broker.protocol.generated import describe_delegation_token as tokens
from ottla_broker.protocol.generated import expire_delegation_token as expire
from ottla_broker.protocol.generated import renew_delegation_token as renew
from ottla_broker.server.edge.dispatch import LISTED, Dispatcher
from ottla_broker.server.store.fleet_features import FleetView
from tests.broker.server.contexts import handler_context

VERSIONS = {listing.api_key: range(listing.lowest, listing.highest + 1) for listing in LISTED}
NO_AUTHORIZER = "No Authorizer is configured."
ACL = {"operation": 3, "permission_type": 3}
NOT_ALLOWED = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


async def ask(api_key: ApiKey, version: int, request: Any, *, is_controller: bool = True) -> Any:
    """The response, through the codec both ways, or why the connection was closed instead."""
    frame = b"".join(bytes(chunk) for chunk in codec.frame_request(int(api_key), version, 7, "test", request))
    view = memoryview(frame)[4:]
    decoded = codec.module(api_key).read_request(version, view, codec.read_request_header(view).body_offset)
    closed: list[str] = []
    services: Any = SimpleNamespace(
        controller=SimpleNamespace(is_active=is_controller),
        acls=None,
        delegation_tokens=None,
        clock=SimpleNamespace(now_ms=lambda: 0),
        config=BrokerConfig.from_mapping({"group.coordinator.rebalance.protocols": "classic,consumer"}),
        fleet_features=SimpleNamespace(view=FleetView()),
    )
    context: Any = handler_context(api_version=version, close_connection=closed.append)
    entry = Dispatcher(None)._load(api_key)  # type: ignore[arg-type]
    assert entry is not None
    response = await entry.handle(services, context, decoded)
    if closed:
        return closed[0]
    answer = b"".join(bytes(chunk) for chunk in codec.frame_response(int(api_key), version, 7, response))
    return codec.read_response_frame(api_key, version, memoryview(answer)[4:])[1]


EVERY_VERSION: list[tuple[ApiKey, Any, Any]] = [
    (
        ApiKey.DESCRIBE_ACLS,
        describe.DescribeAclsRequest(resource_type_filter=1, **ACL),
        describe.DescribeAclsResponse(error_code=54, error_message="No Authorizer is configured on the broker"),
    ),
    (
        ApiKey.CREATE_ACLS,
        create.CreateAclsRequest(creations=[create.AclCreation(resource_type=2, principal="User:a", **ACL)] * 2),
        create.CreateAclsResponse(
            results=[create.AclCreationResult(error_code=54, error_message=NO_AUTHORIZER)] * 2,
        ),
    ),
    (
        ApiKey.DELETE_ACLS,
        delete.DeleteAclsRequest(filters=[delete.DeleteAclsFilter(resource_type_filter=2, **ACL)] * 2),
        delete.DeleteAclsResponse(
            filter_results=[delete.DeleteAclsFilterResult(error_code=54, error_message=NO_AUTHORIZER)] * 2
        ),
    ),
    (
        ApiKey.SASL_HANDSHAKE,
        sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"),
        sasl_handshake.SaslHandshakeResponse(error_code=34),
    ),
    (
        ApiKey.SASL_AUTHENTICATE,
        sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"token"),
        sasl_authenticate.SaslAuthenticateResponse(
            error_code=34, error_message="SaslAuthenticate request received after successful authentication"
        ),
    ),
    (
        ApiKey.RENEW_DELEGATION_TOKEN,
        renew.RenewDelegationTokenRequest(hmac=b"x"),
        renew.RenewDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=-1),
    ),
    (
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        expire.ExpireDelegationTokenRequest(hmac=b"x"),
        expire.ExpireDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=-1),
    ),
    (
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        tokens.DescribeDelegationTokenRequest(owners=None),
        tokens.DescribeDelegationTokenResponse(error_code=NOT_ALLOWED),
    ),
    (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m"),
        consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(error_code=35),
    ),
    (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["a", "a"], include_authorized_operations=True),
        consumer_group_describe.ConsumerGroupDescribeResponse(
            groups=[consumer_group_describe.DescribedGroup(group_id="a", error_code=35)] * 2
        ),
    ),
]


@pytest.mark.parametrize(
    ("api_key", "version", "request_", "expected"),
    [
        pytest.param(api_key, version, request, expected, id=f"{api_key.name} v{version}")
        for api_key, request, expected in EVERY_VERSION
        for version in VERSIONS[api_key]
    ],
)
async def test_an_api_without_its_feature_has_the_answer_of_apache_kafka(
    api_key: ApiKey, version: int, request_: Any, expected: Any
) -> None:
    assert await ask(api_key, version, request_) == expected


@pytest.mark.parametrize("version", VERSIONS[ApiKey.CREATE_DELEGATION_TOKEN])
async def test_a_refused_delegation_token_names_its_owner_and_requester(version: int) -> None:
    requested = {"owner_principal_type": "User", "owner_principal_name": "bob"} if version >= 3 else {}
    for wanted in ({}, requested):
        response = await ask(
            ApiKey.CREATE_DELEGATION_TOKEN, version, create_token.CreateDelegationTokenRequest(**wanted)
        )
        assert (response.error_code, response.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
        assert response.principal_name == ("bob" if wanted else "ANONYMOUS")
        assert response.token_requester_principal_name == ("ANONYMOUS" if version >= 3 else "")


@pytest.mark.parametrize("version", VERSIONS[ApiKey.DESCRIBE_ACLS])
async def test_a_request_about_acls_with_an_unknown_operation_closes_the_connection(version: int) -> None:
    unknown = {"operation": 0, "permission_type": 3}
    for api_key, request in (
        (ApiKey.DESCRIBE_ACLS, describe.DescribeAclsRequest(resource_type_filter=2, **unknown)),
        (ApiKey.CREATE_ACLS, create.CreateAclsRequest(creations=[create.AclCreation(resource_type=2, **unknown)])),
        (
            ApiKey.DELETE_ACLS,
            delete.DeleteAclsRequest(filters=[delete.DeleteAclsFilter(resource_type_filter=2, **unknown)]),
        ),
    ):
        assert "0 is no type" in await ask(api_key, version, request)
