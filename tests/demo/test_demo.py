"""`make demo` starts a fleet of its own name, fetches only what it needs, and goes on without Spark."""

from __future__ import annotations

import importlib.util
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from demo import spark
from demo.fleet import documents
from ottla_documents.documents import load_documents

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_declares_the_documents_of_the_readme_with_a_name_of_its_own() -> None:
    declared = load_documents([("documents", documents())])
    assert [cluster.name for cluster in declared.clusters] == ["demo"]
    assert [(topic.name, topic.cluster) for topic in declared.topics] == [("flights", "demo")]


def test_without_spark_one_line_says_how_to_install_it_and_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    printed = StringIO()
    assert spark.second_act(Console(file=printed, width=80), "127.0.0.1:1", tmp_path) is True
    (line,) = printed.getvalue().splitlines()
    assert spark.INSTALL_SPARK in line
    assert (ROOT / spark.INSTALL_SPARK.split()[0]).exists()


def test_the_demo_fetches_the_jars_of_zookeeper_alone() -> None:
    recipe = subprocess.run(
        ["make", "--no-print-directory", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "scripts/fetch-jars.sh zookeeper " in recipe
    assert "install-system" not in recipe and "--spark" not in recipe


def test_a_set_of_jars_that_does_not_exist_is_named() -> None:
    script = [str(ROOT / "scripts" / "fetch-jars.sh"), "--check", "zookeper"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "zookeper" in done.stderr, " zookeeper " in done.stderr) == (2, True, True)
