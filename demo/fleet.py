"""The fleet of the demo, started, observed and stopped with the `ottla local` commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ottla.local.control import ask
from ottla.local.jars import MissingRequirement, find_java, zookeeper_class_path
from ottla_documents.documents import load_documents

CHECKOUT = Path(__file__).resolve().parent.parent
DOCUMENTS = (CHECKOUT / "manifests" / "cluster.yaml", CHECKOUT / "manifests" / "topics.yaml")
NAME = "demo"


def documents() -> str:
    """The documents of the README, with a cluster of the name `demo`: `orders` may be there beside it."""
    declared = load_documents([(str(path), path.read_text()) for path in DOCUMENTS])
    named = "\n---\n".join(path.read_text() for path in DOCUMENTS)
    for cluster in declared.clusters:
        named = named.replace(f"{{name: {cluster.name}}}", f"{{name: {NAME}}}")
    return named


class DemoFleet:
    """One fleet below `data`. `processes`: one process per broker and a real ZooKeeper."""

    def __init__(self, data: Path, *, processes: bool) -> None:
        self.data = data
        self.processes = processes

    def up(self) -> dict[str, Any]:
        """Starts an empty fleet, in place of an earlier demo's; gives the status with start time and memory."""
        self.down(delete_data=True)
        self.data.parent.mkdir(parents=True, exist_ok=True)
        declared = self.data.parent / "documents.yaml"
        declared.write_text(documents())
        command = ["up", "-f", str(declared)]
        if self.processes:
            command.append("--processes")
        self._ottla_local(*command)
        return ask(self.data, {"command": "status"})

    def status(self) -> dict[str, Any]:
        """What `ottla local status -o json` prints."""
        found: dict[str, Any] = json.loads(self._ottla_local("status", "-o", "json"))
        return found

    def kill(self, broker_id: int) -> None:
        self._ottla_local("kill", str(broker_id))

    def down(self, *, delete_data: bool = False) -> None:
        if (self.data / "fleet.json").exists():
            self._ottla_local("down", *(["--delete-data", "--yes"] if delete_data else []))

    def _ottla_local(self, command: str, *arguments: str) -> str:
        run = [sys.executable, "-m", "ottla.cli.main", "local", command, *arguments, "--data", str(self.data)]
        result = subprocess.run(run, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if result.returncode:
            raise SystemExit(f"ottla local {command} failed:\n{result.stderr or result.stdout}")
        return result.stdout


def can_run_processes() -> bool:
    """True where Java and the jars of ZooKeeper are found."""
    try:
        find_java()
        zookeeper_class_path()
    except MissingRequirement:
        return False
    return True


def stops_itself() -> bool:
    """Whether the demo stops its fleet: in CI nobody comes back to do it."""
    return os.environ.get("CI") == "true"
