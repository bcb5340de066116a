"""Links of the manual and of the other pages resolve: files, folders and headings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(
    r"`((?:broker|documents|pipeline|operator|command|simulation|bench|e2e|demo|tests|scripts|crds|charts|manifests|docs|examples)/[\w./-]*[\w/])`"
)
NAMED_PYTHON = re.compile(r"`([\w/-]+\.py)`")
"""A Python file by its path, or by the end of it."""
NAMED_MODULE = re.compile(r"\b(ottla_(?:broker|documents|pipeline|operator)(?:\.[a-z_][a-z_0-9]*)+)\b")
NAME = re.compile(r"(?<!\w)[A-Za-z]\w*_\w+")
RELIED_ON = re.compile(r"What others may rely on:\n(.*?)\"\"\"", re.DOTALL)
WORD = re.compile(r"\w+")
PACKAGES = {
    "ottla_broker": "broker",
    "ottla_documents": "documents",
    "ottla_pipeline": "pipeline",
    "ottla_operator": "operator",
}


@cache
def tracked_files(pattern: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split() if (ROOT / name).exists()]


def pages() -> list[Path]:
    return [path for name in tracked_files("*.md") if (path := ROOT / name).name != "CHANGELOG.md"]


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
    tracked = [f"/{name}" for name in tracked_files("*.py")]
    files += [name for name in NAMED_PYTHON.findall(text) if not any(one.endswith(f"/{name}") for one in tracked)]
    modules = [name for name in NAMED_MODULE.findall(text) if not is_there(name)]
    assert files + modules == []


def test_every_name_that_a_module_says_others_may_rely_on_is_in_the_code() -> None:
    files = [*tracked_files("broker/*.py"), *tracked_files("tests/*.py")]
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in files]
    said = [found for text in texts for found in RELIED_ON.findall(text)]
    assert len(said) >= 12
    names = {part for one in said for code in re.findall(r"`([^`/]+)`", one) for part in NAME.findall(code)}
    code = {word for text in texts for word in WORD.findall(RELIED_ON.sub("", text))}
    assert sorted(names - code) == []


def test_the_index_of_the_decisions_has_the_title_status_and_date_of_each() -> None:
    folder = ROOT / "docs/internals/decisions"
    rows = []
    for path in sorted(folder.glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        title, status = re.search(r"^# (\d+\. .*)$", text, re.M), re.search(r"^Status: (.+), (\S+)\.$", text, re.M)
        assert title is not None and status is not None, path.name
        number, _, name = title[1].partition(". ")
        rows.append(f"| {number} | [{name}]({path.name}) | {status[1]} | {status[2]} |")
    assert [row for row in rows if row not in (folder / "README.md").read_text(encoding="utf-8")] == []


def test_the_code_map_names_every_package() -> None:
    page = (ROOT / "docs/internals/code-map.md").read_text(encoding="utf-8")
    packages = {str(Path(name).parent) for name in tracked_files("*/__init__.py")}
    top = {folder for folder in packages if re.match(r"(broker|operator|pipeline)/ottla_\w+(/\w+)?$", folder)}
    rest = {folder for folder in packages if "/" not in folder}
    assert sorted(folder for folder in top | rest if f"`{folder}`" not in page and f"`{folder}/`" not in page) == []


def test_the_index_of_the_manual_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    named = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in LINK.findall(index) if "://" not in link}
    found = [page for page in pages() if (ROOT / "docs") in page.parents and "decisions" not in page.parts]
    missing = [
        str(page.relative_to(ROOT)) for page in found if page.resolve() not in named and page.name != "README.md"
    ]
    assert missing == []
