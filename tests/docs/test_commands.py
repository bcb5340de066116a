"""The commands that the manual shows are there: make targets, modules, scripts, `ottla` commands and their options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer.main

from ottla.cli import broker, disk, local, pipeline, zookeeper
from ottla_operator import command as operator
from tests.docs.test_links import ROOT, pages

CODE = re.compile(r"^```.*?\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
APPS = {
    "broker": broker.app,
    "disk": disk.app,
    "local": local.app,
    "operator": operator.app,
    "pipeline": pipeline.app,
    "zookeeper": zookeeper.app,
}
OTTLA = re.compile(r"\bottla (broker|disk|local|operator|pipeline|zookeeper) (\w+)([^`|\n#]*)")
OPTION = re.compile(r"(?<=\s)--[a-z][a-z.-]+")


def code_of(page: Path) -> str:
    """Everything that a page shows as code, a line that ends in a backslash joined with the next."""
    parts = (block or inline for block, inline in CODE.findall(page.read_text(encoding="utf-8")))
    return "\n".join(parts).replace("\\\n", " ")


def missing_ottla_commands(text: str) -> Iterator[str]:
    for group, name, rest in OTTLA.findall(text):
        command = typer.main.get_group(APPS[group]).commands.get(name)
        if command is None:
            yield f"ottla {group} {name}"
            continue
        known = {option for parameter in command.params for option in parameter.opts}
        yield from (f"ottla {group} {name} {option}" for option in OPTION.findall(rest) if option not in known)


def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_shows_exists(page: Path) -> None:
    text = code_of(page)
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = [f"make {name}" for name in re.findall(r"\bmake ([a-z][a-z0-9-]*)", text) if name not in targets]
    missing += [f"python -m {name}" for name in re.findall(r"python3? -m ([\w.]+)", text) if not is_module(name)]
    missing += [name for name in re.findall(r"\bscripts/[\w-]+\.\w+", text) if not (ROOT / name).exists()]
    # A comment in the first line of a block names the file that a reader makes of it.
    missing += [name for name in re.findall(r"(?<![\w/])(?<!# )tests/[\w/]+\.py", text) if not (ROOT / name).exists()]
    missing += missing_ottla_commands(text)
    assert missing == []
