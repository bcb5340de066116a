"""Links of the manual and of the other pages resolve: files, folders and headings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(
    r"`((?:broker|operator|pipeline|simulation|bench|e2e|demo|tests|scripts|crds|charts|manifests|docs|examples)/[\w./-]*[\w/])`"
)
NAMED_MODULE = re.compile(r"\b(ottla_(?:broker|operator|pipeline)(?:\.[a-z_][a-z_0-9]*)+)\b")
PACKAGES = {"ottla_broker": "broker", "ottla_operator": "operator", "ottla_pipeline": "pipeline"}


def pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for one in listed.split() if (path := ROOT / one).exists() and path.name != "CHANGELOG.md"]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = page if not name else page.parent / name
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{link}: there is no such heading"


def is_there(module: str) -> bool:
    """Whether a dotted name is a module, or an attribute of a module that is there."""
    parts = module.split(".")
    folder = ROOT / PACKAGES[parts[0]]
    for part in parts:
        if (folder / f"{part}.py").is_file():
            return True
        folder /= part
        if not folder.is_dir():
            return (folder.parent / "__init__.py").is_file() and part in (folder.parent / "__init__.py").read_text()
    return True


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_and_module_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    files = [name for name in NAMED_FILE.findall(text) if not (ROOT / name).exists() and "<" not in name]
    modules = [name for name in NAMED_MODULE.findall(text) if not is_there(name)]
    assert files + modules == []


def test_the_index_of_the_manual_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    named = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in LINK.findall(index) if "://" not in link}
    found = [page for page in pages() if (ROOT / "docs") in page.parents and "decisions" not in page.parts]
    missing = [
        str(page.relative_to(ROOT)) for page in found if page.resolve() not in named and page.name != "README.md"
    ]
    assert missing == []
