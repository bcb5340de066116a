"""A long campaign of seeds that can be stopped and continued: one line of JSON per finished seed."""

from __future__ import annotations

import json
from pathlib import Path

from simulation.runner import Outcome


class Campaign:
    """What is known of one scenario's seeds. Lines of other scenarios in the file are left alone."""

    def __init__(self, path: Path, scenario: str) -> None:
        self.path = path
        self.done: dict[int, None] = {}
        self.failed: dict[int, str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                if entry["scenario"] == scenario:
                    self.done[entry["seed"]] = None
                    if entry["error"]:
                        self.failed[entry["seed"]] = entry["error"]

    def add(self, outcome: Outcome) -> None:
        """Notes one run, at once: the campaign may be stopped at any time."""
        error = first_line(outcome.error)
        self.done[outcome.seed] = None
        if error:
            self.failed[outcome.seed] = error
        entry = {"scenario": outcome.scenario, "seed": outcome.seed, "error": error, "messages": outcome.messages}
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def first_line(error: str) -> str:
    """What a failed run says, in one line: a problem that was noted, else the last line of the traceback."""
    if not error:
        return ""
    lines = error.strip().splitlines()
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]
