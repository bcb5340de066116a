"""Sends records from a pod with acks=all while something happens to the fleet, and reads everything again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from e2e.kubernetes_api import LIMIT_S, Kubernetes

PROGRAM = "/opt/client/records.py"
ACKNOWLEDGED = "/tmp/acknowledged"
FIRST = 400


class Records:
    """The records of one topic."""

    def __init__(self, kubernetes: Kubernetes, pod: str, topic: str, folder: Path) -> None:
        self.topic = topic
        self._kubernetes = kubernetes
        self._pod = pod
        self._file = f"{ACKNOWLEDGED}-{topic}"
        self._output = folder / "sender"
        self._sender: subprocess.Popen[bytes] | None = None

    def send(self, count: int) -> None:
        """Sends that many and returns when all are acknowledged."""
        said = self._program("send", self.topic, str(count), self._file)
        assert said == {"acknowledged": count, "refused": [], "unknown": 0}, said

    def start(self) -> None:
        """Sends until `stop`; returns when the first ones are acknowledged."""
        self._sender = self._kubernetes.start(
            self._pod, "python3", PROGRAM, "send", self.topic, "-", self._file, output=self._output
        )
        self._kubernetes.until(lambda: self.acknowledged() >= FIRST, f"records are sent ({self._output})")

    def acknowledged(self) -> int:
        """How many were acknowledged, as the sender told last."""
        whole = self._output.read_text(errors="replace").rpartition("\n")[0]  # the last line may still be on its way
        lines = [line for line in whole.splitlines() if line.startswith("{")]
        return int(json.loads(lines[-1])["acknowledged"]) if lines else 0

    def until_more(self, count: int) -> None:
        """Waits until that many more are acknowledged."""
        before = self.acknowledged()
        self._kubernetes.until(lambda: self.acknowledged() >= before + count, f"{count} more records")

    def stop(self) -> dict[str, Any]:
        """Ends the sending; gives {"acknowledged", "refused", "unknown"}."""
        assert self._sender is not None, "start was called"
        self._kubernetes.execute(self._pod, "pkill", "-TERM", "-f", f"send {self.topic}")
        self._sender.wait(LIMIT_S)
        self._sender = None
        text = self._output.read_text(errors="replace")
        said = json.loads(text.splitlines()[-1]) if text.strip() else {}
        assert isinstance(said, dict) and "refused" in said, text[-2000:]
        return said

    def check(self) -> dict[str, Any]:
        """Reads everything: {"acknowledged", "read", "lost", "repeated", "complete", "examples"}."""
        return self._program("check", self.topic, self._file)

    def assert_nothing_is_lost(self) -> dict[str, Any]:
        found = self.check()
        assert found["complete"] and found["lost"] == 0 and found["repeated"] == 0, found
        return found

    def close(self) -> None:
        if self._sender is not None:
            self._sender.kill()
            self._sender.wait()

    def _program(self, *arguments: str) -> dict[str, Any]:
        said = self._kubernetes.execute(self._pod, "python3", PROGRAM, *arguments)
        return dict(json.loads(said.splitlines()[-1]))
