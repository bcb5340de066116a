"""Only the modules of one log assign its values: a module elsewhere calls a method, which says what it is for."""

from __future__ import annotations

import ast
from pathlib import Path

import ottla_broker
from ottla_broker.storage.log.state import LogState

BROKER = Path(ottla_broker.__file__).parent


def _assigned(tree: ast.AST) -> list[str]:
    """The attributes of a `...state` that are assigned, such as log.state.clean_offset."""
    targets = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return [
        ast.unparse(target)
        for target in targets
        if isinstance(target, ast.Attribute)
        and target.attr in LogState.__slots__
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == "state"
    ]


def test_nobody_else_assigns_the_values_of_a_log() -> None:
    assert _assigned(ast.parse("log.state.clean_offset = 5\nother.state.phase = 1")) == ["log.state.clean_offset"]
    found = {
        str(path.relative_to(BROKER)): assigned
        for path in BROKER.rglob("*.py")
        if path.parent != BROKER / "storage" / "log" and (assigned := _assigned(ast.parse(path.read_text())))
    }
    assert found == {}
