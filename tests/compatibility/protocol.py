"""Speaks with a client's program: one JSON object per line each way.

    {"op": "produce", "bootstrap": "...", "topic": "...", ...}   ->   {"ok": {...}}
                                                                 or   {"error": "RecordTooLarge: ..."}
                                                                 or   {"unsupported": "why the client cannot"}

Bytes are base64. A record is {"k": key, "v": value, "h": [[name, value], ...], "t": timestamp in ms, "p": partition}.
"""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER_TIMEOUT_S = 90.0


class Unsupported(Exception):
    """The client has no means for the operation; the text says why."""


class ClientError(Exception):
    """The client reports an error, ends, or does not answer."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is sent and as it is read."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0

    def encode(self) -> dict[str, Any]:
        return {
            "k": _text(self.key),
            "v": _text(self.value),
            "h": [[name, _text(value)] for name, value in self.headers],
            "t": self.timestamp_ms,
            "p": self.partition,
        }

    @staticmethod
    def decode(found: Mapping[str, Any]) -> Record:
        headers = tuple((name, _bytes(value)) for name, value in found.get("h", []))
        return Record(_bytes(found["k"]), _bytes(found["v"]), headers, found.get("t"), found.get("p", 0))


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class Program:
    """A running client program. One request at a time."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        """`log`: takes what the program writes to its standard error."""
        self._log = log
        self._lock = threading.Lock()
        self._answers: queue.Queue[str | None] = queue.Queue()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=None if environment is None else dict(environment),
            )
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Runs one operation.

        Raises:
            Unsupported, ClientError.
        """
        with self._lock:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
                self._process.stdin.flush()
                line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
            except queue.Empty:
                self.close()
                raise ClientError(f"{op}: no answer within {ANSWER_TIMEOUT_S:.0f} s") from None
            except OSError:
                line = None
        if line is None:
            raise ClientError(f"{op}: the program ended with status {self._process.wait()}: {self._last_words()}")
        answer = json.loads(line)
        if "unsupported" in answer:
            raise Unsupported(answer["unsupported"])
        if "error" in answer:
            raise ClientError(f"{op}: {answer['error']}")
        found: dict[str, Any] = answer["ok"]
        return found

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # some clients print to their standard output
                self._answers.put(line)
        self._answers.put(None)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"
