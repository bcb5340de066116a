"""What the manual quotes from logs and errors is in the code."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.docs.test_links import ROOT

PLACEHOLDER = re.compile(
    r"^listeners: |^/cluster/id|\borders-[\w-]+|\bd\d\b|\bHOSTS?(?::PORT)?\b|\bTOPIC-N\b|\b[A-Z]\b|\d+|…"
)
PAGES = ("docs/operating/troubleshooting.md", "docs/operating/kubernetes-failures.md")


@cache
def strings_of_the_code() -> str:
    """Every string of the products, one a line; of a formatted one the constant parts."""
    found = []
    for product in ("broker", "documents", "pipeline", "operator", "command"):
        for path in (ROOT / product).rglob("*.py"):
            if "generated" not in path.parts:
                nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                found += [
                    node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
                ]
    return "\n".join(found)


def test_every_message_that_the_troubleshooting_pages_quote_is_in_the_code() -> None:
    missing = []
    for page in PAGES:
        rows = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
        for quoted in re.findall(r"`([^`]+)`", "\n".join(rows)):
            is_message = quoted.count(" ") >= 3 and not quoted.startswith(("kubectl ", "ottla "))
            parts = [part.strip(" :,()") for part in PLACEHOLDER.split(quoted)] if is_message else []
            missing += [f"{page}: {part}" for part in parts if len(part) > 8 and part not in strings_of_the_code()]
    assert missing == []
