"""DescribeUserScramCredentials (key 50, KIP-554): describes the SCRAM credentials of users.

Behaviour
    What is stored at /config/users is read for each request: mechanisms and iterations, no salt and no key. A request
    for all users (null, or none named) has a result for each that has a credential; one result for each that is named.
Rights, in this order
    Describe:Cluster (the cluster): the error of the whole answer and of each named user.
Errors, in this order, for each user
    DUPLICATE_RESOURCE (named twice), RESOURCE_NOT_FOUND. UNKNOWN_SERVER_ERROR: what is stored is no credential.
Versions
    0 is the only one, and flexible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla_broker.quotas.entities import QuotaEntity
from ottla_broker.security.sasl.scram import ScramAlgorithm, ScramCredential
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """One result for each user."""
    if not context.may(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denial = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        names = await context.distinct([user.name async for user in context.each(request.users or ())])
        return DescribeUserScramCredentialsResponse(
            error_code=int(denial),
            error_message=None,
            results=[
                DescribeUserScramCredentialsResult(user=user, error_code=int(denial), error_message=None)
                async for user in context.each(names)
            ],
        )
    quotas = services.dynamic_config.quotas
    if not request.users:
        found = []
        async for entity, values in context.each((await quotas.all()).items()):
            if isinstance(entity.user, str) and entity.client_id is None and _has_credential(values):
                found.append(_described(entity.user, values))
        return DescribeUserScramCredentialsResponse(results=found)
    times: Counter[str] = Counter()
    async for user in context.each(request.users):
        times[user.name] += 1
    results = []
    async for name, count in context.each(times.items(), 20):
        is_read = count == 1 and name not in ("", ".", "..")
        values = await quotas.stored(QuotaEntity(user=name)) if is_read else {}
        results.append(_described(name, values) if _has_credential(values) else _missing(name, count))
    return DescribeUserScramCredentialsResponse(results=results)


def _has_credential(values: Mapping[str, str]) -> bool:
    return any(algorithm.value in values for algorithm in ScramAlgorithm)


def _described(user: str, values: Mapping[str, str]) -> DescribeUserScramCredentialsResult:
    try:
        infos = [
            CredentialInfo(
                mechanism=algorithm.code, iterations=ScramCredential.decode(values[algorithm.value]).iterations
            )
            for algorithm in ScramAlgorithm
            if algorithm.value in values
        ]
    except ValueError:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        return DescribeUserScramCredentialsResult(user=user, error_code=int(code), error_message=code.message)
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)


def _missing(user: str, times: int) -> DescribeUserScramCredentialsResult:
    code = ErrorCode.RESOURCE_NOT_FOUND
    message = f"Attempt to describe a user credential that does not exist: {user}"
    if times > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif not user:
        message = "Username must not be empty"
    return DescribeUserScramCredentialsResult(user=user, error_code=int(code), error_message=message)
