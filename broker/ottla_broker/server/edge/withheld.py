"""What a request names without the right to it: taken out before the handler is called, answered behind it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from ottla_broker.authorization.authorizer import AclCheck
from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.edge.rights import ERROR_WITHOUT, Entries

if TYPE_CHECKING:
    from ottla_broker.server.handler_api import RequestContext, Services


async def withhold(services: Services, context: RequestContext, request: Any, entries: Entries) -> list[Any]:
    """Leaves in the request the entries that have their right, and gives the answers to the others.

    Raises ClientIsGone.
    """
    if entries.only_at_controller and not services.controller.is_active:
        return []
    requested = list(getattr(request, entries.requested) or ())
    for question in entries.whole:
        check = question(request)
        if check is not None and not context.may(*check):
            setattr(request, entries.requested, [])
            error = ERROR_WITHOUT[check.resource_type]
            return [await _answer(context, entries, one, error) async for one in context.each(requested)]
    if entries.instead is not None and context.may(*entries.instead, logs=False):
        return []
    checks: list[AclCheck | None] = []
    names: dict[tuple[AclOperation, ResourceType], list[str]] = {}
    async for one in context.each(requested):
        check = entries.check(services, request, one)
        checks.append(check)
        if check is not None:
            names.setdefault(check[:2], []).append(check.name)
    times: dict[Hashable, int] = {}
    identity = entries.identity
    if identity is not None:
        async for one in context.each(requested):
            times[identity(one)] = times.get(identity(one), 0) + 1
    denied = {kind: await context.denied_of_many(*kind, some) for kind, some in names.items()}
    if not any(denied.values()):
        return []
    left: list[Any] = []
    answers: list[Any] = []
    async for one, check in context.each(zip(requested, checks, strict=True)):
        is_repeated = identity is not None and times[identity(one)] > 1
        if check is not None and check.name in denied[check[:2]] and not is_repeated:
            answers.append(await _answer(context, entries, one, ERROR_WITHOUT[check.resource_type]))
        else:
            left.append(one)
    setattr(request, entries.requested, left)
    return answers


async def _answer(context: RequestContext, entries: Entries, one: Any, error: ErrorCode) -> Any:
    answer, partitions = entries.refused(codec.module(context.api_key), one, error)
    async for partition in context.each(partitions):
        answer.partitions.append(partition)
    return answer
