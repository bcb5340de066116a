"""What a release says of itself is the same everywhere, and its workflow names what is there."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import ottla_broker

ROOT = Path(__file__).resolve().parents[1]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_package_the_chart_and_the_program_have_one_version() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "ottla" / "Chart.yaml").read_text())
    assert {ottla_broker.__version__, chart["version"], chart["appVersion"]} == {VERSION}


def test_the_notes_of_a_release_are_what_the_changelog_says_of_its_version() -> None:
    script = ROOT / "scripts" / "build-release.sh"
    notes = subprocess.run([script, "notes"], capture_output=True, text=True, check=True).stdout
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert notes.strip() and notes.strip() in changelog
    assert not re.search("^## ", notes, re.MULTILINE)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_programs_and_waits_for_jobs_that_exist(path: Path) -> None:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    assert {need for job in jobs.values() for need in job.get("needs", [])} <= jobs.keys()
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    named = {name for one in commands for name in re.findall(r"\bscripts/[\w.-]+", one)}
    assert [name for name in named if not (ROOT / name).exists()] == []
    targets = {name for one in commands for name in re.findall(r"^make ([a-z-]+)", one, re.MULTILINE)}
    makefile = (ROOT / "Makefile").read_text()
    assert [name for name in targets if f"\n{name}:" not in makefile] == []


def test_ci_tries_every_python_that_the_package_says_it_runs_on() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    said = {one.rpartition(" ")[2] for one in classifiers if one.startswith("Programming Language :: Python :: 3.")}
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert said == {"3.11", *jobs["python"]["strategy"]["matrix"]["python"]}
