"""The fleets of a checkout, running or not: those of .ottla, and the demo's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.local.control import ControlError, NotRunning, ask
from ottla.local.port_owners import fleet_name

ROOT = Path(".ottla")
"""Where `ottla local up` puts fleets, below the current folder."""
_DEMO = Path("build/demo/fleet")


@dataclass(frozen=True, slots=True)
class KnownFleet:
    """`found`: its answer to the command status, None when it does not run. `problem`: why it gave none."""

    name: str
    data: Path
    found: dict[str, Any] | None
    problem: str = ""


def fleet_directories() -> list[Path]:
    """The data directories of the fleets of this folder, absolute, in alphabetical order; the demo's last."""
    found = sorted(path.parent for path in ROOT.glob("*/fleet.json"))
    return [path.absolute() for path in (*found, *([_DEMO] if (_DEMO / "fleet.json").is_file() else []))]


def known_fleets() -> list[KnownFleet]:
    """The fleets of this folder, each asked for its status."""
    fleets = []
    for data in fleet_directories():
        found: dict[str, Any] | None = None
        problem = ""
        try:
            found = ask(data, {"command": "status"})
        except NotRunning:
            pass
        except ControlError as error:
            problem = str(error)
        fleets.append(KnownFleet(fleet_name(data) or data.name, data, found, problem))
    return fleets
