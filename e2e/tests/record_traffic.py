"""Sends records from a pod with acks=all while something happens to the cluster, and reads them all afterwards.

A consumer group may read meanwhile; `e2e.history` checks what it has read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e.history import Absence, faults, parse_records
from e2e.kubernetes_api import LIMIT_S, Kubernetes

PROGRAM = "/opt/client/records.py"
ACKNOWLEDGED = "/tmp/acknowledged"
READ = "/tmp/read"
FIRST = 400
MEMBERS = 2


class ClientProgram:
    """A program that runs in a pod. Each line that it prints is a JSON document; the last one shows its progress."""

    def __init__(self, kubernetes: Kubernetes, pod: str, output: Path, *arguments: str) -> None:
        self.output = output
        self._kubernetes = kubernetes
        self._pod = pod
        self._arguments = arguments
        self._process = kubernetes.start(pod, "python3", PROGRAM, *arguments, output=output)

    def said(self) -> dict[str, Any]:
        """The last document, {} before the first."""
        whole = self.output.read_text(errors="replace").rpartition("\n")[0]  # the last line may still be on its way
        lines = [line for line in whole.splitlines() if line.startswith("{")]
        return dict(json.loads(lines[-1])) if lines else {}

    def stop(self) -> dict[str, Any]:
        """Ends the program. Returns its last document."""
        self._kubernetes.execute(self._pod, "pkill", "-TERM", "-f", " ".join(self._arguments[:2]))
        assert self._process.wait(LIMIT_S) == 0, self.output.read_text(errors="replace")[-2000:]
        return self.said()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class ConsumerGroup(ClientProgram):
    """The consumer group that reads a topic while `RecordTraffic` sends to it."""

    def __init__(self, kubernetes: Kubernetes, pod: str, folder: Path, topic: str) -> None:
        self._acknowledged = f"{ACKNOWLEDGED}-{topic}"
        self._read_file = f"{READ}-{topic}"
        self._formed: dict[str, Any] = {}
        super().__init__(kubernetes, pod, folder / "group", "follow", topic, str(MEMBERS), self._read_file)

    def until_formed(self) -> None:
        """Waits until each member has its partitions."""
        self._kubernetes.until(lambda: all(self.said().get("shares", [0])), f"a group is formed ({self.output})")
        self._formed = self.said()

    def until_more(self, count: int) -> Absence:
        """Waits, while a pod is absent, until the group has read that many more records than are acknowledged now."""
        acknowledged = int(self._kubernetes.execute(self._pod, "wc", "-l", self._acknowledged).split()[0])
        wanted = acknowledged + count
        self._kubernetes.until(lambda: self.said()["read"] >= wanted, f"{count} more are read ({self.output})")
        return Absence(acknowledged, int(self.said()["read"]))

    def assert_undisturbed(self, absences: Sequence[Absence]) -> None:
        """Waits until the group has read all that was acknowledged, ends it and checks it: no record is missing or came
        twice, members kept their partitions, saw no error, read on in every absence and have committed everything."""
        acknowledged = [int(line) for line in self._kubernetes.execute(self._pod, "cat", self._acknowledged).split()]
        self._kubernetes.until(lambda: self.said()["read"] >= len(acknowledged), f"all is read ({self.output})")
        said = self.stop()
        read = parse_records(self._kubernetes.execute(self._pod, "cat", self._read_file))
        assert list(faults(acknowledged, read, absences)) == []
        assert said == {**self._formed, "read": len(read), "committed": len(read)}


class ConnectionProbe(ClientProgram):
    """Opens connections to these addresses all the time."""

    def __init__(self, kubernetes: Kubernetes, pod: str, folder: Path, *addresses: str) -> None:
        super().__init__(kubernetes, pod, folder / "knocking", "knock", *addresses)
        kubernetes.until(lambda: set(self.said()) == set(addresses), f"somebody knocks ({self.output})")

    def assert_always_answered(self) -> None:
        """Ends it and checks that each address accepted some connections and refused some, and left none unanswered."""
        said = self.stop()
        assert all(sorted(answers) == ["accepted", "refused"] for answers in said.values()), said


class RecordTraffic:
    """The records of one topic."""

    def __init__(self, kubernetes: Kubernetes, pod: str, topic: str, folder: Path) -> None:
        self.topic = topic
        self._kubernetes = kubernetes
        self._pod = pod
        self._file = f"{ACKNOWLEDGED}-{topic}"
        self._folder = folder
        self._sender: ClientProgram | None = None
        self._group: ConsumerGroup | None = None

    def send(self, count: int) -> None:
        """Sends that many and returns when all are acknowledged."""
        said = self._program("send", self.topic, str(count), self._file)
        assert said == {"acknowledged": count, "refused": [], "unknown": 0}, said

    def start(self) -> None:
        """Sends until `stop`; returns when the first ones are acknowledged."""
        output = self._folder / "sender"
        self._sender = ClientProgram(self._kubernetes, self._pod, output, "send", self.topic, "-", self._file)
        self._kubernetes.until(lambda: self.acknowledged() >= FIRST, f"records are sent ({output})")

    def follow(self) -> ConsumerGroup:
        """Starts a consumer group that reads the topic from its beginning; returns when it is formed."""
        self._group = ConsumerGroup(self._kubernetes, self._pod, self._folder, self.topic)
        self._group.until_formed()
        return self._group

    def acknowledged(self) -> int:
        """The number of acknowledged records that the sender reported last."""
        assert self._sender is not None, "start was called"
        return int(self._sender.said().get("acknowledged", 0))

    def until_more(self, count: int) -> None:
        """Waits until that many more are acknowledged."""
        before = self.acknowledged()
        self._kubernetes.until(lambda: self.acknowledged() >= before + count, f"{count} more records")

    def stop(self) -> dict[str, Any]:
        """Ends the producer. Returns {"acknowledged", "refused", "unknown"}."""
        assert self._sender is not None, "start was called"
        said = self._sender.stop()
        self._sender = None
        return said

    def check(self) -> dict[str, Any]:
        """Reads everything. Returns {"acknowledged", "read", "lost", "repeated", "complete", "examples"}."""
        return self._program("check", self.topic, self._file)

    def assert_nothing_is_lost(self) -> dict[str, Any]:
        found = self.check()
        assert found["complete"] and found["lost"] == 0 and found["repeated"] == 0, found
        return found

    def close(self) -> None:
        for program in (self._sender, self._group):
            if program is not None:
                program.kill()

    def _program(self, *arguments: str) -> dict[str, Any]:
        said = self._kubernetes.execute(self._pod, "python3", PROGRAM, *arguments)
        return dict(json.loads(said.splitlines()[-1]))
