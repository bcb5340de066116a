"""`ottla local` on the command line, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


class Ottla:
    """Runs `ottla local` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, status: int = 0) -> str:
        command = [sys.executable, "-m", "ottla.cli.main", "local", *arguments]
        result = subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert result.returncode == status, result.stdout + result.stderr
        return result.stdout + result.stderr

    def brokers(self, *arguments: str) -> list[dict[str, Any]]:
        """The brokers as `status` shows them."""
        found: list[dict[str, Any]] = json.loads(self("status", "-o", "json", *arguments))["brokers"]
        return found

    def status(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self("status", "-o", "json"))
        return found


def eventually(holds: Callable[[], object], what: str = "it") -> None:
    """Asks until it holds; gives up after what is long for any machine, and says that `what` never came true."""
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, f"{what} never came true"
        time.sleep(0.05)


def up_arguments(*extra: str) -> list[str]:
    return ["up", "-f", str(MANIFESTS / "cluster.yaml"), "-f", str(MANIFESTS / "topics.yaml"), *extra]
