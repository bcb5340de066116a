"""What the README and the manual say about pipelines is what is there."""

from __future__ import annotations

import re
from pathlib import Path

from ottla_pipeline.reading import options
from ottla_pipeline.sink import write_options
from ottla_pipeline.wire.security_options import SECURITY_OPTIONS

ROOT = Path(__file__).parents[2]


def test_the_readme_prints_the_example_as_it_is() -> None:
    example = (ROOT / "examples" / "flights.py").read_text()
    assert len(example.splitlines()) <= 25
    assert f"```python\n{example}```" in (ROOT / "README.md").read_text()


def in_the_table(options: set[str]) -> set[str]:
    """Those of security are in security.md, but for the first of them."""
    return options - set(SECURITY_OPTIONS) | {"kafka.security.protocol"}


def test_the_manual_has_every_option_and_no_other() -> None:
    table = [
        line
        for line in (ROOT / "docs" / "operating" / "pipelines.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    told = {name for line in table for name in re.findall(r"`([a-zA-Z.]+)`", line.split("|")[1])}
    known = {*options._OWN, *options._KAFKA, *options._STREAMING_ONLY, *options._WITHOUT_EFFECT}
    assert told == in_the_table(known)


def test_the_manual_of_the_sink_has_every_option_and_no_other() -> None:
    manual = (ROOT / "docs" / "operating" / "spark-sink.md").read_text()
    table = manual.split("## Options")[1].split("## What is exactly once")[0].splitlines()
    told = {name for line in table if line.startswith("| `") for name in re.findall(r"`([\w.]+)`", line.split("|")[1])}
    known = {*write_options._OWN, *write_options._OF_CONNECTING, *write_options._KAFKA, "checkpointLocation"}
    assert told == in_the_table(known)


def test_the_manual_lists_every_example() -> None:
    manual = (ROOT / "docs" / "operating" / "pipeline-examples.md").read_text()
    elsewhere = {"first_records.py"}  # without Spark: docs/start/on-this-machine.md prints it
    found = {path.name for path in (ROOT / "examples").glob("*.*")} - elsewhere
    missing = [name for name in sorted(found) if f"examples/{name})" not in manual]
    assert missing == []
