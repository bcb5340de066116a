"""Who serves fewer namespaces than before leaves no finalizer behind in the others."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest

from ottla_operator.api.names import SERVED, TOPIC_FINALIZER
from ottla_operator.api.objects import KAFKA_TOPIC, LEASE, Obj, annotation, new
from ottla_operator.ports import ApiError
from ottla_operator.runtime.scope import leave_dropped_namespaces
from tests.operator.kubernetes import InMemoryKubernetes
from tests.operator.topic_fleet import FLIGHTS

PLACE = ("ottla-system", "ottla-operator")
LOG = logging.getLogger("tests")


def _kubernetes(served: str | None, *namespaces: str) -> InMemoryKubernetes:
    """A KafkaTopic with our finalizer in each namespace, and a Lease whose last holder has served some."""
    kubernetes = InMemoryKubernetes()
    lease = new(LEASE, *PLACE, {}, spec={"holderIdentity": "a"})
    if served is not None:
        lease["metadata"]["annotations"] = {SERVED: served}
    kubernetes.put(lease)
    for namespace in namespaces:
        topic: dict[str, Any] = copy.deepcopy(FLIGHTS)
        topic["metadata"] |= {"namespace": namespace, "finalizers": ["theirs", TOPIC_FINALIZER]}
        kubernetes.put(topic)
    return kubernetes


def _with_finalizer(kubernetes: InMemoryKubernetes) -> list[str]:
    topics = [obj for (kind, _, _), obj in kubernetes.objects.items() if kind == KAFKA_TOPIC.kind]
    assert all("theirs" in one["metadata"]["finalizers"] for one in topics)
    return sorted(one["metadata"]["namespace"] for one in topics if TOPIC_FINALIZER in one["metadata"]["finalizers"])


@pytest.mark.parametrize(
    ("before", "served", "kept"),
    (
        ("*", ("a",), ["a"]),
        ("a,b", ("a",), ["a", "c"]),
        ("a,b", ("b", "a"), ["a", "b", "c"]),
        ("a", ("a", "b"), ["a", "b", "c"]),
        ("a", (), ["a", "b", "c"]),
        (None, ("a",), ["a", "b", "c"]),
    ),
)
async def test_finalizers_go_where_the_operator_serves_no_more_and_nowhere_else(
    before: str | None, served: tuple[str, ...], kept: list[str]
) -> None:
    kubernetes = _kubernetes(before, "a", "b", "c")
    assert await leave_dropped_namespaces(kubernetes, *PLACE, served, LOG) == 3 - len(kept)
    assert _with_finalizer(kubernetes) == kept
    lease = await kubernetes.get(LEASE, *PLACE)
    assert lease is not None and annotation(lease, SERVED) == (",".join(sorted(served)) or "*")
    kubernetes.writes.clear()
    assert await leave_dropped_namespaces(kubernetes, *PLACE, served, LOG) == 0
    assert kubernetes.writes == [], "once"


async def test_the_scope_is_recorded_although_the_lease_is_renewed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = _kubernetes("a,b")
    replace, renewed = kubernetes.replace, []

    async def after_a_renewal(obj: Obj) -> Obj:
        if not renewed:
            renewed.append(True)
            kubernetes.put({**obj, "spec": {"holderIdentity": "b"}})
        return await replace(obj)

    monkeypatch.setattr(kubernetes, "replace", after_a_renewal)
    await leave_dropped_namespaces(kubernetes, *PLACE, ("a",), LOG)
    lease = await kubernetes.get(LEASE, *PLACE)
    assert lease is not None and annotation(lease, SERVED) == "a" and lease["spec"]["holderIdentity"] == "b"


async def test_what_is_not_done_is_not_recorded_as_done(monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = _kubernetes("a,b", "b")

    async def refused(*_: Any) -> Any:
        raise ApiError(403, "Forbidden", "no")

    monkeypatch.setattr(kubernetes, "set_finalizers", refused)
    with pytest.raises(ApiError):
        await leave_dropped_namespaces(kubernetes, *PLACE, ("a",), LOG)
    lease = await kubernetes.get(LEASE, *PLACE)
    assert lease is not None and annotation(lease, SERVED) == "a,b"
