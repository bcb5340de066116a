"""The notation of the tables of keys: a line that is not in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.config import definitions
from ottla_broker.config.definitions import BROKER_KEYS
from ottla_broker.config.definitions.key_table import parse_key, read_keys
from ottla_broker.config.definitions.topics import TOPIC_KEYS
from ottla_broker.config.types import Bounds, ConfigKey, ConfigType, Importance, Known, OneOf, UpdateMode

FOLDER = Path(definitions.__file__).parent
TABLES = sorted(path.stem for path in FOLDER.glob("*.keys"))


def test_every_part_of_a_line_has_its_place() -> None:
    line = 'a.list  list = b,c {b,c,d} low per-broker internal : What it is: a "list" | of words. @NOT_YET'
    assert parse_key(line, Known.OWN) == ConfigKey(
        "a.list", ConfigType.LIST, ("b", "c"), Importance.LOW, UpdateMode.PER_BROKER,
        'What it is: a "list" | of words.', OneOf(("b", "c", "d")), "Without effect yet.", True, Known.OWN,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("default", "value"),
    [("int = 3", 3), ("long = -1", -1), ("double = 0.5", 0.5), ("boolean = false", False), ("string = null", None),
     ('string = ""', ""), ("list = []", ()), ("class = a.B", "a.B")],
)  # fmt: skip
def test_a_default_has_the_type_of_its_key(default: str, value: object) -> None:
    found = parse_key(f"a {default} high read-only : What it is.").default
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("allowed", "bounds"),
    [("1..5", Bounds(1, 5)), ("1..", Bounds(1)), ("..0.5", Bounds(None, 0.5)), ("0..10|-1", Bounds(0, 10, -1))],
)
def test_bounds_may_be_open_and_may_have_one_more_value(allowed: str, bounds: Bounds) -> None:
    found = parse_key(f"a double = 0.5 {allowed} high read-only : What it is.").validator
    assert (found, str(found)) == (bounds, str(bounds))


@pytest.mark.parametrize(
    "line",
    ["a int = 1 high read-only", "a int 1 high read-only : What.", "a number = 1 high read-only : What.",
     "a int = x high read-only : What.", "a int = 1 1...3 high read-only : What.", "a int = 1 rule high read-only : W.",
     "a int = 1 urgent read-only : What.", "a int = 1 high always : What.", "a int = 1 high read-only later : What.",
     "a int = 1 high read-only : What. @NO_SUCH_NOTE"],
)  # fmt: skip
def test_a_line_in_another_form_is_refused(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some.keys").write_text(f"# Some keys.\n\n{line}\n")
    monkeypatch.setattr("ottla_broker.config.definitions.key_table.__file__", str(tmp_path / "key_table.py"))
    with pytest.raises(ValueError, match=r"some\.keys, line 3: "):
        list(read_keys("some"))


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_its_keys_once_and_in_order(table: str) -> None:
    names = [key.name for key in read_keys(table)]
    assert names == sorted(set(names))
    assert set(names) <= (TOPIC_KEYS if table == "topics" else BROKER_KEYS).keys()


def test_no_key_stands_in_two_tables() -> None:
    names = [key.name for table in TABLES if table != "topics" for key in read_keys(table)]
    assert len(names) == len(set(names)) == len(BROKER_KEYS) > 350
