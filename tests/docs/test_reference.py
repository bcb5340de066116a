"""The generated pages of the manual are what their commands write today."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ottla.testing import metrics_reference
from ottla_broker.config import reference
from ottla_broker.config.definitions import BROKER_KEYS
from ottla_broker.config.definitions.topics import TOPIC_KEYS
from ottla_pipeline.running.upsert_statements import BATCHES

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"
MAKERS = ("counter", "gauge", "histogram")


def test_the_pages_of_configuration_keys_are_current() -> None:
    assert (PAGES / "broker-configuration.md").read_text() == reference.broker_page(), "run make reference"
    assert (PAGES / "topic-configuration.md").read_text() == reference.topic_page(), "run make reference"


def test_the_pages_of_configuration_keys_have_every_key() -> None:
    broker, topic = (PAGES / "broker-configuration.md").read_text(), (PAGES / "topic-configuration.md").read_text()
    assert [name for name in BROKER_KEYS if f"| `{name}` |" not in broker] == []
    assert [name for name in TOPIC_KEYS if f"| `{name}` |" not in topic] == []


def test_keys_without_effect_stand_behind_all_that_are_served() -> None:
    for name, served in (("broker-configuration.md", BROKER_KEYS), ("topic-configuration.md", TOPIC_KEYS)):
        with_effect, _, without = (PAGES / name).read_text().partition("| why it changes nothing |")
        keys = {key: f"| `{key}` |" for key, definition in served.items() if not definition.note}
        assert [key for key, cell in keys.items() if cell not in with_effect] == [], name
        assert [key for key, cell in keys.items() if cell in without] == [], name


def test_the_page_of_metrics_is_current() -> None:
    page = (PAGES / "metrics.md").read_text()
    assert metrics_reference.written_into(page) == page, "run make reference"


def test_the_page_of_metrics_has_every_metric_that_the_code_names() -> None:
    """What appears later than at the start is listed by hand: a name in the code that the page lacks was forgotten."""
    page = (PAGES / "metrics.md").read_text()
    missing = []
    for path in (ROOT / "broker" / "ottla_broker").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in MAKERS:
                name = node.args[0] if node.args else None
                last = name.values[-1] if isinstance(name, ast.JoinedStr) else name
                if isinstance(last, ast.Constant) and isinstance(last.value, str) and last.value not in page:
                    missing.append(last.value)
    assert missing == []


def test_one_label_has_one_spelling() -> None:
    """A rule for all directories of a broker joins the metrics by this label."""
    rows = [line.split(" | ") for line in (PAGES / "metrics.md").read_text().splitlines() if line.startswith("| `")]
    labels = {label for row in rows for label in row[2].split(", ") if label}
    assert sorted(labels, key=str.lower) == sorted({label.lower(): label for label in labels}.values(), key=str.lower)
    assert "logDirectory" in labels


def test_every_metric_and_every_key_has_a_meaning() -> None:
    """A row without one is a metric without a help text, or a key without a documentation."""
    rows = [line.split(" | ") for line in (PAGES / "metrics.md").read_text().splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if len(row) < 5 or not row[3].strip()] == []
    keys = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]
    assert [key.name for key in keys if not key.documentation] == []


def test_every_metric_key_file_and_znode_of_ours_that_a_page_names_exists() -> None:
    """Metrics by their page, and a table; what begins with `ottla.` or `/ottla/` by the code of the broker."""
    metrics = (PAGES / "metrics.md").read_text()
    files = [path for path in (ROOT / "broker" / "ottla_broker").rglob("*") if path.suffix in (".py", ".keys")]
    code = "\n".join(path.read_text() for path in files)
    missing = []
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text()
        named = re.findall(r"(?<![/.\w])(?:kafka|ottla)_(?!broker|documents|operator|pipeline)[a-z0-9_]+", text)
        missing += [f"{page.name}: {name}" for name in named if name not in metrics and name != BATCHES]
        named = re.findall(r"`/?(ottla[./][a-z_-]+(?:\.[a-z_-]+)*)", text)
        modules = {name for name in named if (ROOT / "command" / name.replace(".", "/")).exists()}
        others = [name for name in named if name not in code and name not in modules and not (ROOT / name).exists()]
        missing += [f"{page.name}: {name}" for name in others]
    assert missing == []


def test_what_to_worry_about_is_a_metric() -> None:
    page = (PAGES / "metrics.md").read_text()
    assert [name for name in metrics_reference.WORRY if f"`{name}" not in page] == []


def test_what_the_page_says_of_metrics_that_appear_later_is_their_help_text() -> None:
    """They are not there when the page is written, so their meaning is listed by hand."""
    constants = {
        node.value
        for path in (ROOT / "broker" / "ottla_broker").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
    }
    listed = metrics_reference.CREATED_LATER
    assert [name for name, (_, _, meaning) in listed.items() if meaning not in constants] == []
