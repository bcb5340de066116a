"""DescribeUserScramCredentials (key 50, KIP-554): describes the SCRAM credentials of users.

Behaviour
    There are none: every listener is a plain one, and what Apache Kafka has stored at /config/users is not read. A
    request for all users (null, or none named) has no results; one result for each that is named.
Rights, in this order
    Describe:Cluster (the cluster): the error of the whole answer and of each named user.
Errors, in this order, for each user
    CLUSTER_AUTHORIZATION_FAILED (of the whole answer, too), DUPLICATE_RESOURCE (named twice), RESOURCE_NOT_FOUND.
Versions
    0 is the only one, and flexible.
"""

from __future__ import annotations

from collections import Counter

from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Answers at once."""
    times: Counter[str] = Counter()
    async for user in context.each(request.users or ()):
        times[user.name] += 1
    if not context.may(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denial = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeUserScramCredentialsResponse(
            error_code=int(denial),
            error_message=denial.message,
            results=[
                DescribeUserScramCredentialsResult(user=user, error_code=int(denial), error_message=denial.message)
                async for user in context.each(times)
            ],
        )
    return DescribeUserScramCredentialsResponse(
        results=[_result(user, count) async for user, count in context.each(times.items())]
    )


def _result(user: str, times: int) -> DescribeUserScramCredentialsResult:
    code = ErrorCode.RESOURCE_NOT_FOUND
    message = f"Attempt to describe a user credential that does not exist: {user}"
    if times > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif not user:
        message = "Username must not be empty"
    return DescribeUserScramCredentialsResult(user=user, error_code=int(code), error_message=message)
