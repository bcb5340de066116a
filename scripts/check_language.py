"""Checks the language of the tree: banned phrases, names that two things share, and sentences that are hard to read.

Banned phrases stand in banned-words.txt beside this file; docs/glossary.md says which terms to use. Shared names: two
modules of one package, and two types of the tree, have the same name only where shared-names.txt says why. Sentences of
the README, docs/start and docs/operating have at most 25 words and begin with their subject. A docstring names its
subject: it does not begin with "Of" or "Those", which only the name above it would complete.

Usage: python scripts/check_language.py [PATH ...]     (without paths: every tracked file)
Exit code 1 when something is found.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
SUFFIXES = {
    ".py",
    ".md",
    ".api",
    ".keys",
    ".sh",
    ".yaml",
    ".yml",
    ".toml",
    ".txt",
    ".tpl",
    ".java",
    ".c",
    ".h",
    ".pyx",
    ".svg",
    "",
}
SKIPPED = (
    "broker/ottla_broker/protocol/generated/",
    "requirements/",
    "docs/glossary.md",
    "scripts/",
    "docs/internals/profiles/",
)
NAMED_BY_KAFKA = {"handlers", "definitions"}
"""Packages whose modules are named after Kafka's APIs and groups of keys, whatever else has such a name."""
PACKAGES = (
    "broker/ottla_broker",
    "documents/ottla_documents",
    "pipeline/ottla_pipeline",
    "operator/ottla_operator",
    "command/ottla",
    "simulation",
    "bench",
    "e2e",
    "demo",
)
PROSE = ("README.md", "docs/start/", "docs/operating/")
MOST_WORDS = 25
NOT_PROSE = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
SENTENCE_END = re.compile(r"(?<=[.!?])\)? +(?=[A-Z(`])")
NO_SUBJECT = re.compile(r"(?:Of|Those)\b")
BAD_BEGINNING = re.compile(r"(?:What|Whoever|Those)\b")


def banned_phrases() -> list[tuple[re.Pattern[str], str]]:
    """The phrases of banned-words.txt, each with the term to use instead."""
    phrases = []
    for line in (HERE / "banned-words.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            phrase, _, term = line.partition("->")
            phrases.append((re.compile(phrase.strip(), re.IGNORECASE), term.strip()))
    return phrases


def shared_names() -> set[str]:
    """The names that more than one module or type may have, by shared-names.txt."""
    lines = (HERE / "shared-names.txt").read_text(encoding="utf-8").splitlines()
    return {line.split()[0] for line in lines if line and not line.startswith("#")}


def tracked(paths: list[str]) -> list[Path]:
    """The tracked text files below the paths, relative to the root of the repository."""
    command = ["git", "ls-files", "-z", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    found = [Path(one) for one in listed if one and not one.startswith(SKIPPED)]
    return [one for one in found if one.suffix in SUFFIXES and (ROOT / one).is_file()]


def banned(paths: list[Path]) -> Iterator[str]:
    """One line for each banned phrase: where it stands and what to write."""
    phrases = banned_phrases()
    for path in paths:
        try:
            lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            for pattern, term in phrases:
                if found := pattern.search(line):
                    yield f"{path}:{number}: {found.group(0)!r}: write {term!r}"


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, list items and table cells of a page, each with the line where it begins; no headings, no code.

    >>> list(paragraphs("# Title\\n\\nOne\\ntwo.\\n- three\\n| four | `a|b` |\\n"))
    [(3, 'One two.'), (5, 'three'), (6, 'four'), (6, '`a|b`')]
    """
    first, gathered = 0, []
    kept = NOT_PROSE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for number, line in enumerate([*kept.splitlines(), ""], 1):
        item, is_row = ITEM.match(line), line.startswith("|")
        if item or is_row or not line.strip() or line.startswith("#"):
            if gathered:
                yield first, " ".join(gathered)
            gathered = []
        if is_row:
            yield from ((number, cell.strip()) for cell in line.strip("| ").split(" | "))
        elif line.strip() and not line.startswith("#"):
            first = first if gathered else number
            gathered.append(line[item.end() if item else 0 :].strip())


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph; code in backquotes is one word, of a link the text counts.

    >>> sentences("See [the page](a.md). `a b` is set (once). Then it ends.")
    ['See the page.', '`code` is set (once).', 'Then it ends.']
    """
    plain = re.sub(r"`[^`]+`", "`code`", paragraph)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain).replace("**", "")
    return SENTENCE_END.split(plain)


def hard_sentences(paths: list[Path]) -> Iterator[str]:
    """One line for each sentence of the manual that has too many words, or begins with a relative clause."""
    for path in paths:
        if path.suffix != ".md" or not str(path).startswith(PROSE):
            continue
        for line, paragraph in paragraphs((ROOT / path).read_text(encoding="utf-8")):
            for sentence in sentences(paragraph):
                count = sum(any(letter.isalnum() for letter in word) for word in sentence.split())
                if count > MOST_WORDS:
                    yield f"{path}:{line}: a sentence of {count} words: {sentence[:60]}…"
                if BAD_BEGINNING.match(sentence):
                    yield f"{path}:{line}: a sentence begins with {sentence.split()[0]}: {sentence[:60]}…"


def duplicates(paths: list[Path]) -> Iterator[str]:
    """One line for each name that two types of the tree, or two modules of one package, share."""
    allowed = shared_names()
    types: dict[str, list[str]] = defaultdict(list)
    modules: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in paths:
        package = next((one for one in PACKAGES if str(path).startswith(one + "/")), None)
        if package is None or path.suffix != ".py":
            continue
        if path.stem not in ("__init__", "__main__") and not NAMED_BY_KAFKA & set(path.parts):
            modules[package, path.stem].append(str(path))
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                types[node.name].append(f"{path}:{node.lineno}")
    shared = {name for name, places in types.items() if len(places) > 1}
    shared |= {name for (_, name), places in modules.items() if len(places) > 1}
    for name in sorted(allowed - shared):
        yield f"shared-names.txt: {name} is not shared any more: remove the line"
    for name, places in sorted(types.items()):
        if len(places) > 1 and name not in allowed:
            yield f"type {name} is defined {len(places)} times: {', '.join(places)}"
    for (_, name), places in sorted(modules.items()):
        if len(places) > 1 and name not in allowed:
            yield f"module {name} is there {len(places)} times: {', '.join(places)}"


def docstrings_without_subject(paths: list[Path]) -> Iterator[str]:
    """One line for each docstring of a class or function of the packages that does not name its subject."""
    for path in paths:
        if path.suffix != ".py" or not str(path).startswith(tuple(f"{one}/" for one in PACKAGES)):
            continue
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if NO_SUBJECT.match(text):
                    yield f"{path}:{node.lineno}: the docstring of {node.name} begins with {text.split()[0]}"


def main() -> int:
    paths = sys.argv[1:]
    checks = (banned, hard_sentences, docstrings_without_subject)
    found = [line for check in checks for line in check(tracked(paths))] + [*duplicates(tracked([]))]
    print("\n".join(found) if found else "language: nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
