"""Each public report of the threat model has a test of its number, and no other number has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _marked() -> set[int]:
    found = set()
    for path in ROOT.glob("tests/**/*.py"):
        text = path.read_text(encoding="utf-8")
        if "public_report" in text:
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.public_report"]
            found |= {int(ast.literal_eval(mark.args[0])) for mark in marks}
    return found


def test_every_report_has_a_test() -> None:
    text = (ROOT / "docs/internals/threat-model.md").read_text(encoding="utf-8")
    section = text.partition("## What others were told")[2].partition("\n## ")[0]
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", section, re.M)}
    assert listed == {5, 6, 7, 12, 13, 14, 15, 16, 17, 18, 20}
    assert _marked() == listed
