"""Topics of a request that names them by id (KIP-516): gives each its name, and sets apart the ids that are unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from ottla_broker.server.handler_api import RequestContext


class NamedById(Protocol):
    """A topic of a generated request, with both fields; a request has one of them by its version."""

    name: str
    topic_id: bytes


T = TypeVar("T", bound=NamedById)


async def with_names(
    context: RequestContext, topics: Iterable[T], name_of: Callable[[bytes], str | None]
) -> tuple[list[T], list[T]]:
    """(the topics whose id is known, each with its name; those whose id is unknown), both in their order.

    Args:
        name_of: the name of a topic id, None for an unknown one.
    """
    known, unknown = [], []
    async for topic in context.each(topics):
        name = name_of(topic.topic_id)
        if name is None:
            unknown.append(topic)
        else:
            topic.name = name
            known.append(topic)
    return known, unknown
