"""A pass reads its own writes, and nothing that was deleted comes back."""

from __future__ import annotations

from typing import Any

from ottla_operator.api.names import CLUSTER
from ottla_operator.api.objects import SERVICE, Obj
from ottla_operator.runtime.object_cache import ObjectCache


def _service(version: int, uid: str = "u", **spec: Any) -> Obj:
    metadata = {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": str(version), "labels": {CLUSTER: "c"}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def test_an_event_older_than_our_own_write_is_dropped() -> None:
    cache = ObjectCache()
    assert cache.put(_service(5, port=1))
    assert cache.put(_service(9, port=2))
    assert not cache.put(_service(7, port=1))
    assert not cache.put(_service(9, port=2)), "the echo of a write is no news"
    found = cache.get(SERVICE, "n", "a")
    assert found is not None and found["spec"] == {"port": 2}


def test_a_late_event_does_not_restore_a_deleted_object() -> None:
    cache = ObjectCache()
    cache.put(_service(5))
    assert cache.remove(_service(7))
    assert not cache.put(_service(6))
    assert cache.get(SERVICE, "n", "a") is None
    assert cache.put(_service(3, uid="another")), "a new object of the name is another one"


def test_no_event_restores_an_object_that_an_uncached_read_did_not_find() -> None:
    cache = ObjectCache()
    cache.put(_service(5))
    assert cache.remove(_service(5), is_final=True)
    assert not cache.put(_service(9))


def test_an_object_is_known_again_when_its_label_is_set_again() -> None:
    """To the watch it was deleted."""
    cache = ObjectCache()
    cache.put(_service(5))
    assert cache.remove(_service(6))
    assert cache.put(_service(7))
    assert cache.get(SERVICE, "n", "a") is not None


def test_a_deletion_of_an_older_object_keeps_the_newer_one_of_its_name() -> None:
    cache = ObjectCache()
    cache.put(_service(5, uid="new"))
    assert not cache.remove(_service(4, uid="old"))
    assert list(cache.of_cluster(("n", "c"))["Service"]) == ["a"]


def test_an_object_belongs_to_the_cluster_of_its_newest_label() -> None:
    cache = ObjectCache()
    cache.put(_service(5))
    moved = _service(6)
    moved["metadata"]["labels"] = {CLUSTER: "d"}
    cache.put(moved)
    assert cache.of_cluster(("n", "c"))["Service"] == {} and list(cache.of_cluster(("n", "d"))["Service"]) == ["a"]


def test_an_object_that_a_list_lacks_is_removed_unless_it_is_newer_than_the_list() -> None:
    cache = ObjectCache()
    cache.put(_service(5, uid="old"))
    known = frozenset({"old"})
    assert [obj["metadata"]["uid"] for obj in cache.keep_only(SERVICE, known, frozenset())] == ["old"]
    cache.put(_service(8, uid="during"))
    assert cache.keep_only(SERVICE, known, frozenset()) == []
