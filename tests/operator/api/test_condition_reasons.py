"""Every condition that the operator sets stands in one table, and everything in the table is set by the operator."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla_operator
from ottla_operator.api import condition_reasons
from ottla_operator.api.condition_reasons import (
    CLUSTER,
    PIPELINE,
    READY,
    TOPIC,
    reason_of_ready,
)
from ottla_operator.api.conditions import Condition, condition_false, condition_true, condition_unknown
from ottla_operator.concerns.topics import reasons as topic_reasons
from ottla_operator.condition_table import CONDITION_REASONS, CONDITION_TYPES, NOT_NEEDED_FOR_READY, is_listed

ROOT = Path(ottla_operator.__file__).parent
MAKERS = {"condition_true": "True", "condition_false": "False", "condition_unknown": "Unknown"}
FROM_TABLE_ONLY = {"InternalError", "InvalidSpec", "AsDeclared", "KafkaError"}
"""Reasons that the code names by a constant of the table, for every type."""


@functools.cache
def _constants() -> dict[str, str]:
    """The texts of the tables that have a name, by it: types, and reasons that several conditions have."""
    modules = [condition_reasons]
    for path in sorted(ROOT.glob("concerns/*/reasons.py")):
        modules.append(importlib.import_module(f"ottla_operator.concerns.{path.parent.name}.reasons"))
    return {name: value for one in modules for name, value in vars(one).items() if isinstance(value, str)}


def _literals() -> Iterator[tuple[str, str, str]]:
    """Each (type, status, reason) that the operator's code gives to a condition as literals."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in MAKERS:
                continue
            type_, *others = node.args
            if isinstance(type_, ast.Name) and others and isinstance(others[0], ast.Constant):
                yield _constants()[type_.id], MAKERS[node.func.id], str(others[0].value)


def test_every_reason_in_the_code_is_in_the_table() -> None:
    found = set(_literals())
    assert len(found) > 40
    assert found <= {(row.type, row.status, row.reason) for row in CONDITION_REASONS}


def test_every_reason_of_the_table_is_in_the_code_or_an_error_of_kafka() -> None:
    in_code = set(_literals())
    tables = {"condition_reasons.py", "condition_table.py", "reasons.py"}
    sources = "".join(path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py") if path.name not in tables)
    constants = {text: name for name, text in _constants().items()}
    stale = [
        row
        for row in CONDITION_REASONS
        if (row.type, row.status, row.reason) not in in_code
        and row.reason not in FROM_TABLE_ONLY
        and topic_reasons.reason_of_kafka_error(row.reason) is None
        and f'"{row.reason}"' not in sources
        and not (row.reason in constants and re.search(rf"\b{constants[row.reason]}\b", sources))
    ]
    assert stale == []


def test_conditions_are_created_only_by_the_functions_of_their_module() -> None:
    outside = [
        f"{path.name}:{node.lineno}"
        for path in ROOT.rglob("*.py")
        if path.name != "conditions.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Condition"
    ]
    assert outside == []


def test_each_reason_is_listed_once_with_its_meaning_and_a_known_type() -> None:
    keys = [(row.resource, row.type, row.status, row.reason) for row in CONDITION_REASONS]
    assert len(set(keys)) == len(keys)
    assert {(row.resource, row.type) for row in CONDITION_REASONS} == {
        (one.resource, one.type) for one in CONDITION_TYPES
    }
    assert {row.resource for row in CONDITION_REASONS} == {CLUSTER, TOPIC, PIPELINE}
    for row in CONDITION_REASONS:
        assert row.meaning.endswith(".") and (row.status == "True" or row.action.endswith(".")), row


@pytest.mark.parametrize(
    ("type_", "status", "reason"),
    [
        ("Ready", "False", "NoSuchReason"),
        ("Ready", "True", "Paused"),
        ("Rolled", "False", "ClaimLost"),
        ("Ready", "False", "RolledBlocked"),
        ("NoSuchType", "True", "AsDeclared"),
    ],
)
def test_a_condition_with_a_reason_that_the_table_does_not_have_fails_its_test(
    type_: str, status: str, reason: str
) -> None:
    assert not is_listed(type_, status, reason)
    with pytest.raises(Exception, match=f"{type_}={status} {reason}"):
        Condition(type_, status, reason)  # type: ignore[arg-type]


def test_ready_sums_up_the_reasons_of_the_other_conditions() -> None:
    assert condition_false(READY, reason_of_ready("DisksReady", "ClaimLost"), "").reason == "DisksClaimLost"
    assert condition_unknown("DisksReady", "InternalError", "").status == "Unknown"
    assert condition_true(READY).reason == "AsDeclared"


def test_the_health_check_of_the_manual_names_reasons_that_exist() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operating" / "kubernetes.md").read_text(encoding="utf-8")
    named = re.findall(r"(\w+) = true", page.split("local needs_a_person = {")[1].split("}")[0])
    own = {row.reason for row in CONDITION_REASONS if row.type == READY}
    summed_up = {
        reason_of_ready(row.type, row.reason)
        for row in CONDITION_REASONS
        if row.type != READY and row.status != "True" and row.type not in NOT_NEEDED_FOR_READY
    }
    assert len(named) > 15 and [name for name in named if name not in own | summed_up] == []
