"""What is read out of an API server's audit log, and the figures that are made of it."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import e2e
from e2e import audit
from e2e.audit import Call
from e2e.figures import Figures, documents
from ottla_documents.kafka_topic import parse_topic

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(e2e.__path__, "e2e.") if not module.name.startswith("e2e.tests")
)


def _event(verb: str, resource: str, stage: str = "ResponseComplete", **more: Any) -> str:
    return json.dumps({"stage": stage, "verb": verb, "objectRef": {"resource": resource, **more}}) + "\n"


def test_every_call_is_counted_once_by_its_verb_and_kind(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    watch = _event("watch", "pods", "ResponseStarted") + _event("watch", "pods") * 2  # one began, it and another ended
    log.write_text(watch + _event("update", "kafkatopics", subresource="status") + _event("update", "leases"))
    found = audit.calls(log)
    assert found == {Call("watch", "pods"): 1, Call("update", "kafkatopics/status"): 1, Call("update", "leases"): 1}
    assert dict(audit.writes(log)) == {Call("update", "kafkatopics/status"): 1}


def test_only_what_came_after_a_mark_counts(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    assert audit.mark(log) == 0 and not audit.calls(log)
    log.write_text(_event("create", "events"))
    since = audit.mark(log)
    with log.open("a") as file:
        file.write(_event("patch", "services") + '{"stage": "ResponseComplete", "verb": "cre')
    assert dict(audit.writes(log, since)) == {Call("patch", "services"): 1}


def test_the_policy_records_the_operator_and_nobody_else(tmp_path: Path) -> None:
    rules = audit.policy("ottla-system")["rules"]
    assert rules[0] == {"level": "Metadata", "userGroups": ["system:serviceaccounts:ottla-system"]}
    assert rules[1:] == [{"level": "None"}]
    flags = audit.AuditLog(tmp_path, "ottla-system").flags()
    assert [Path(flag.partition("=")[2]).parent for flag in flags] == [tmp_path] * 2


def test_the_topics_of_the_measurement_are_valid() -> None:
    found = documents(Figures(topics=3, partitions=2, replicas=3))
    assert [parse_topic(document)[1] for document in found] == [[], [], []]
    assert len({document["metadata"]["name"] for document in found}) == 3


@pytest.mark.parametrize("name", MODULES)
def test_the_doctests_of_a_module_pass(name: str) -> None:
    if not name.endswith("__main__"):
        assert doctest.testmod(importlib.import_module(name)).failed == 0
