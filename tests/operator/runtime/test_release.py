"""Uninstalling takes the lease from a running operator and leaves no topic waiting."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest

from ottla_operator.api.names import TOPIC_FINALIZER
from ottla_operator.api.objects import KAFKA_TOPIC, LEASE, Obj, dig, name_of
from ottla_operator.ports import ApiError
from ottla_operator.runtime.lease import LeaseHolder
from ottla_operator.runtime.release import release_topics
from tests.operator.kubernetes import InMemoryKubernetes
from tests.operator.topic_fleet import FLIGHTS


async def test_finalizers_are_removed_after_the_operator_has_lost_its_lease() -> None:
    kubernetes = InMemoryKubernetes()
    for name, finalizers in (("a", [TOPIC_FINALIZER]), ("b", ["other/one", TOPIC_FINALIZER]), ("c", [])):
        topic = copy.deepcopy(FLIGHTS)
        topic["metadata"] |= {"name": name, "finalizers": finalizers}
        kubernetes.put(topic)
    operator = LeaseHolder(kubernetes, "default", "operator", lambda: "2026-01-01T00:00:01Z")
    assert await operator.try_once()

    async def sleep(seconds: float) -> None:
        assert not await operator.try_once(), "it cannot renew any more"
        assert kubernetes.there(KAFKA_TOPIC, "a")["metadata"]["finalizers"] == [TOPIC_FINALIZER]

    assert await release_topics(kubernetes, "default", (), lambda: "2026-01-01T00:00:00Z", sleep) == 2
    left = {name: kubernetes.there(KAFKA_TOPIC, name)["metadata"]["finalizers"] for name in ("a", "b", "c")}
    assert left == {"a": [], "b": ["other/one"], "c": []}
    assert dig(kubernetes.there(LEASE, "ottla-operator"), "spec", "leaseDurationSeconds") == 30


async def test_only_the_topics_of_the_served_namespaces_are_released() -> None:
    kubernetes = InMemoryKubernetes()
    for namespace in ("team-a", "team-b", "team-c"):
        topic = copy.deepcopy(FLIGHTS)
        topic["metadata"] |= {"namespace": namespace, "finalizers": [TOPIC_FINALIZER]}
        kubernetes.put(topic)

    async def sleep(seconds: float) -> None:
        """No operator runs."""

    served = ("team-a", "team-b")
    assert await release_topics(kubernetes, "default", served, lambda: "2026-01-01T00:00:00Z", sleep) == 2
    left = {obj["metadata"]["namespace"]: obj["metadata"]["finalizers"] for obj in await _topics(kubernetes)}
    assert left == {"team-a": [], "team-b": [], "team-c": [TOPIC_FINALIZER]}


async def _topics(kubernetes: InMemoryKubernetes) -> Sequence[Obj]:
    return await kubernetes.list(KAFKA_TOPIC, None, "")


async def test_a_finalizer_that_cannot_be_removed_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = InMemoryKubernetes()
    for name in ("a", "b"):
        topic = copy.deepcopy(FLIGHTS)
        topic["metadata"] |= {"name": name, "finalizers": [TOPIC_FINALIZER]}
        kubernetes.put(topic)
    write = kubernetes.set_finalizers

    async def refusing(obj: Obj, finalizers: Sequence[str]) -> Obj:
        if name_of(obj) == "a":
            raise ApiError(422, "Invalid", "not this one")
        return await write(obj, finalizers)

    async def sleep(seconds: float) -> None:
        """No operator runs."""

    monkeypatch.setattr(kubernetes, "set_finalizers", refusing)
    with pytest.raises(ApiError, match="not this one"):
        await release_topics(kubernetes, "default", (), lambda: "2026-01-01T00:00:00Z", sleep)
    assert kubernetes.there(KAFKA_TOPIC, "b")["metadata"]["finalizers"] == []
    assert dig(kubernetes.there(LEASE, "ottla-operator"), "spec", "leaseDurationSeconds") == 30
