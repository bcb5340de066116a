"""Only the modules of one log assign its values: a module elsewhere calls a method, which says what it is for."""

from __future__ import annotations

import ast
from pathlib import Path

import ottla_broker
from ottla_broker.storage.log.state import LogState

BROKER = Path(ottla_broker.__file__).parent


def _assigned(tree: ast.AST) -> list[str]:
    """The attributes of a `...state` that are assigned, such as log.state.clean_offset, or of a name for one."""
    targets = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    states = {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == "state"
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    return [
        ast.unparse(target)
        for target in targets
        if isinstance(target, ast.Attribute) and target.attr in LogState.__slots__ and _is_state(target.value, states)
    ]


def _is_state(value: ast.expr, states: set[str]) -> bool:
    is_named = isinstance(value, ast.Name) and value.id in states
    return is_named or (isinstance(value, ast.Attribute) and value.attr == "state")


def test_nobody_else_assigns_the_values_of_a_log() -> None:
    assert _assigned(ast.parse("log.state.clean_offset = 5\nother.state.phase = 1")) == ["log.state.clean_offset"]
    assert _assigned(ast.parse("state = log.state\nstate.is_full = True\nother.is_full = 1")) == ["state.is_full"]
    found = {
        str(path.relative_to(BROKER)): assigned
        for path in BROKER.rglob("*.py")
        if path.parent != BROKER / "storage" / "log" and (assigned := _assigned(ast.parse(path.read_text())))
    }
    assert found == {}
