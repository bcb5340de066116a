"""What was measured so far, one row a line: a run that ends early goes on where it was (`--continue`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Harm(NamedTuple):
    """What one row did to one system."""

    longest_ms: float
    p99_ms: float
    gained_mb: float
    lag_ms: float | None
    """At most so late was a timer of the loop (ottla_loop_lag_seconds); None for Apache Kafka."""
    answer: str


class MeasuredRows:
    """The rows in a file of JSON lines, by name.

    Args:
        goes_on: keeps what is in the file; else the file is empty first.
    """

    def __init__(self, path: Path, *, goes_on: bool) -> None:
        self._path = path
        self.table: dict[str, dict[str, Harm]] = {}
        if goes_on and path.exists():
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # the run ended while it wrote this line
                self.table[row["name"]] = {system: Harm(**harm) for system, harm in row["systems"].items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(_line(name, figures) for name, figures in self.table.items()))

    def add(self, name: str, figures: Mapping[str, Harm]) -> None:
        """A row is measured."""
        self.table[name] = dict(figures)
        with self._path.open("a") as file:
            file.write(_line(name, figures))


def _line(name: str, figures: Mapping[str, Harm]) -> str:
    return json.dumps({"name": name, "systems": {system: harm._asdict() for system, harm in figures.items()}}) + "\n"
