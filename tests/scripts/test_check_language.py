"""The check of the language finds what it is there for, in a small repository."""

from __future__ import annotations

import doctest
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_language.py"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script over an empty repository with lists of its own."""
    spec = importlib.util.spec_from_file_location("check_language", SCRIPT)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    lists = tmp_path / "scripts"
    lists.mkdir()
    (lists / "banned-words.txt").write_text("# phrase -> term\nodd wor[d]s -> plain ones\n")
    (lists / "shared-names.txt").write_text("# name reason\nShared both mean the same\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(found, "ROOT", tmp_path)
    monkeypatch.setattr(found, "HERE", lists)
    return found


def add(script: ModuleType, name: str, text: str) -> None:
    path = Path(script.ROOT) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    subprocess.run(["git", "-C", str(script.ROOT), "add", name], check=True)


def test_a_banned_phrase_is_found_in_any_case_with_its_line_and_term(script: ModuleType) -> None:
    add(script, "docs/page.md", "A page\nof Odd Words.\n")
    add(script, "docs/glossary.md", "odd words\n")
    found = list(script.banned(script.tracked([])))
    assert found == ["docs/page.md:2: 'Odd Words': write 'plain ones'"]


def test_two_types_and_two_modules_of_one_name_are_found(script: ModuleType) -> None:
    add(script, "broker/ottla_broker/a/thing.py", "class Same: ...\nclass Shared: ...\n")
    add(script, "broker/ottla_broker/b/thing.py", "class Same: ...\nclass Shared: ...\n")
    add(script, "broker/ottla_broker/server/handlers/thing.py", "class Other: ...\n")
    types, modules = script.duplicates(script.tracked([]))
    assert types.startswith("type Same is defined 2 times")
    assert modules == "module thing is there 2 times: broker/ottla_broker/a/thing.py, broker/ottla_broker/b/thing.py"


def test_a_listed_name_that_nothing_shares_any_more_is_found(script: ModuleType) -> None:
    add(script, "broker/ottla_broker/a/thing.py", "class Shared: ...\n")
    assert list(script.duplicates(script.tracked([]))) == [
        "shared-names.txt: Shared is not shared any more: remove the line"
    ]


def test_the_lists_of_the_repository_can_be_read(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "HERE", SCRIPT.parent)
    assert all(pattern.pattern and term for pattern, term in script.banned_phrases())
    assert script.shared_names()


def test_a_long_sentence_and_one_without_its_subject_are_found_in_the_manual(script: ModuleType) -> None:
    long = " ".join(["word"] * 26)
    add(
        script,
        "docs/start/page.md",
        f"# Those\n\nShort one. W{long[1:]}.\n\n```sh\n{long}\n```\n\n- What is it.\n\n| a | Whoever b |\n",
    )
    add(script, "docs/internals/page.md", f"{long}\n")
    found = list(script.hard_sentences(script.tracked([])))
    assert [line.rpartition(": ")[0] for line in found] == [
        "docs/start/page.md:3: a sentence of 26 words",
        "docs/start/page.md:9: a sentence begins with What",
        "docs/start/page.md:11: a sentence begins with Whoever",
    ]


def test_code_and_the_target_of_a_link_are_no_words(script: ModuleType) -> None:
    words = " ".join(["word"] * 22)
    add(script, "README.md", f"`a b c d` [{words}\nlast](a.md) — (yes).\n")
    assert list(script.hard_sentences(script.tracked([]))) == []


def test_the_functions_of_the_check_do_what_their_examples_say(script: ModuleType) -> None:
    assert doctest.testmod(script).failed == 0


def test_a_docstring_that_does_not_name_its_subject_is_found(script: ModuleType) -> None:
    text = 'class Limits:\n    """Of one broker."""\n\n    def known(self):\n        """Often called."""\n'
    add(script, "broker/ottla_broker/limits.py", text)
    assert list(script.docstrings_without_subject(script.tracked([]))) == [
        "broker/ottla_broker/limits.py:1: the docstring of Limits begins with Of"
    ]
