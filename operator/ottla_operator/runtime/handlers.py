"""The handlers of kopf: watch events go to the supervisor, and settings keep kopf from writing anything.

KafkaTopics, of which there are thousands, and namespaces are not watched through kopf (`object_watch`): it has watches
of namespaces of its own.

Only on.startup, on.cleanup and on.event are used. An index, timer, daemon or change handler would write
annotations and finalizers to users' objects, and the time of an index is quadratic in the number of objects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import kopf

from ottla_operator.api.names import CLUSTER, GROUP
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    KAFKA_CLUSTER,
    KAFKA_TOPIC,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    STATEFUL_SET,
    Obj,
    ResourceKind,
)

OWNED_KINDS = (STATEFUL_SET, POD, CLAIM, CONFIG_MAP, SERVICE, DISRUPTION_BUDGET)
"""Watched by the label of their cluster, on the server's side."""
FOLLOWED_KINDS = (KAFKA_TOPIC, NAMESPACE)
"""Watched without kopf."""
PAGE = 500
INACTIVITY_S = 70.0
REQUEST_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0

OnEvent = Callable[[str | None, Obj], None]


def make_registry(
    on_event: OnEvent,
    started: Callable[[], Awaitable[None]],
    stopped: Callable[[], Awaitable[None]],
    *,
    reads_nodes: bool,
    is_namespaced: bool,
) -> kopf.OperatorRegistry:
    """All handlers of the operator.

    Args:
        on_event: called with every watch event.
        started: called before the first event.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.peering.standalone = True
        settings.scanning.disabled = is_namespaced
        settings.posting.enabled = False
        settings.persistence.finalizer = f"{GROUP}/kopf"
        settings.watching.chunk_size = PAGE
        settings.watching.inactivity_timeout = INACTIVITY_S
        settings.networking.request_timeout = REQUEST_TIMEOUT_S
        settings.networking.connect_timeout = CONNECT_TIMEOUT_S
        for kind in OWNED_KINDS:
            settings.watching.label_selectors[_place(kind)] = CLUSTER
        await started()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await stopped()

    @kopf.on.login(registry=registry)
    async def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)

    for kind in watched_kinds(reads_nodes=reads_nodes):
        if kind in FOLLOWED_KINDS:
            continue
        kopf.on.event(*_place(kind), registry=registry, id=kind.plural)(_observer(kind, on_event))
    return registry


def watched_kinds(*, reads_nodes: bool) -> tuple[ResourceKind, ...]:
    """The kinds that are watched."""
    return (KAFKA_CLUSTER, *FOLLOWED_KINDS, *OWNED_KINDS, *((NODE,) if reads_nodes else ()))


def _observer(kind: ResourceKind, on_event: OnEvent) -> Callable[..., Awaitable[None]]:
    async def observe(event: Mapping[str, Any], **_: Any) -> None:
        on_event(event["type"], {**event["object"], "apiVersion": kind.api_version, "kind": kind.kind})

    return observe


def _place(kind: ResourceKind) -> tuple[str, str, str]:
    """
    >>> _place(STATEFUL_SET), _place(POD)
    (('apps', 'v1', 'statefulsets'), ('', 'v1', 'pods'))
    """
    group, _, version = kind.api_version.rpartition("/")
    return group, version, kind.plural
