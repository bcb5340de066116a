"""AlterUserScramCredentials (key 51, KIP-554): sets and removes SCRAM credentials of users.

Behaviour
    Served by the controller. One result for each user: what is asked for a user is done as a whole or not at all. The
    credentials are stored at /config/users beside the quotas of the user, which stay as they are; they are in force on
    this broker when it answers, on the others when they have read the notification. Who has authenticated before stays
    connected.
Rights, in this order
    Alter:Cluster (the cluster): the error of each user.
Errors, in this order
    NOT_CONTROLLER for every user. CLUSTER_AUTHORIZATION_FAILED for every user. For each user: UNACCEPTABLE_CREDENTIAL
    (no name, or one of a dot or two, which no znode can have; fewer iterations than 4096 or more than 16384),
    UNSUPPORTED_SASL_MECHANISM (no mechanism of SCRAM), DUPLICATE_RESOURCE (a mechanism is named twice),
    RESOURCE_NOT_FOUND (a credential is to be removed that does not exist).
Versions
    0 is the only one, and flexible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from ottla_broker.quotas.entities import QuotaEntity
from ottla_broker.security.sasl.scram import FEWEST_ITERATIONS, MOST_ITERATIONS, ScramAlgorithm, ScramCredential
from ottla_broker.server.handler_api import RequestContext, Services

_WITHOUT_MESSAGE = (ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_ALGORITHMS = {algorithm.code: algorithm for algorithm in ScramAlgorithm}


@dataclass(slots=True)
class _Changes:
    """What a request asks for one user."""

    removed: list[int] = field(default_factory=list)
    """Codes of mechanisms."""
    set: list[ScramCredentialUpsertion] = field(default_factory=list)


async def handle(
    services: Services, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """One result for each user, in the order of their names."""
    changes: dict[str, _Changes] = {}
    async for deletion in context.each(request.deletions):
        changes.setdefault(deletion.name, _Changes()).removed.append(deletion.mechanism)
    async for upsertion in context.each(request.upsertions):
        changes.setdefault(upsertion.name, _Changes()).set.append(upsertion)
    is_controller = services.controller.is_active
    may_change = not is_controller or context.may(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    results = []
    async for user in context.each(await context.sorted(list(changes)), 20):
        result = AlterUserScramCredentialsResult(user=user)
        try:
            if not is_controller:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            if not may_change:
                raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            _check(user, changes[user])
            await _store(services, user, changes[user])
        except KafkaError as error:
            result.error_code = int(error.code)
            result.error_message = None if error.code in _WITHOUT_MESSAGE else error.message
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


def _check(user: str, changes: _Changes) -> None:
    """Raises KafkaError. Of several mistakes the last one is told, as by Apache Kafka."""
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if user in (".", ".."):
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{user} is not a valid user name")
    found: KafkaError | None = None
    for code in changes.removed:
        if code not in _ALGORITHMS:
            found = KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    for upsertion in changes.set:
        if upsertion.mechanism not in _ALGORITHMS:
            found = KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        elif upsertion.iterations < FEWEST_ITERATIONS:
            found = KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        elif upsertion.iterations > MOST_ITERATIONS:
            found = KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if found is not None:
        raise found
    named = [*changes.removed, *(upsertion.mechanism for upsertion in changes.set)]
    if len(set(named)) < len(named):
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


async def _store(services: Services, user: str, changes: _Changes) -> None:
    """Raises KafkaError, and CoordinationError when the store cannot be reached."""

    def changed(stored: Mapping[str, str]) -> dict[str, str]:
        values = dict(stored)
        for code in changes.removed:
            if values.pop(_ALGORITHMS[code].value, None) is None:
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
        for upsertion in changes.set:
            algorithm = _ALGORITHMS[upsertion.mechanism]
            values[algorithm.value] = ScramCredential.of_salted(
                algorithm, bytes(upsertion.salted_password), bytes(upsertion.salt), upsertion.iterations
            ).encode()
        return values

    await services.dynamic_config.quotas.update(QuotaEntity(user=user), changed)
