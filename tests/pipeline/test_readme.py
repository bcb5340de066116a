"""What the README and the manual say about pipelines is what is there."""

from __future__ import annotations

import re
from pathlib import Path

from ottla_pipeline.reading import options

ROOT = Path(__file__).parents[2]


def test_the_readme_prints_the_example_as_it_is() -> None:
    example = (ROOT / "examples" / "flights.py").read_text()
    assert len(example.splitlines()) <= 25
    assert f"```python\n{example}```" in (ROOT / "README.md").read_text()


def test_the_manual_has_every_option_and_no_other() -> None:
    table = [
        line
        for line in (ROOT / "docs" / "operating" / "pipelines.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    told = {name for line in table for name in re.findall(r"`([a-zA-Z.]+)`", line.split("|")[1])}
    known = {*options._OWN, *options._KAFKA, *options._STREAMING_ONLY, *options._WITHOUT_EFFECT}
    assert told == known
