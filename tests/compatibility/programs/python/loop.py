"""The loop of a Python program: one JSON request per line of standard input, one answer per line of standard output."""

from __future__ import annotations

import base64
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

Operation = Callable[..., Any]


class UnsupportedError(Exception):
    """The client has no means for an operation; the text says why."""


def data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def text(found: bytes | None) -> str | None:
    return None if found is None else base64.b64encode(found).decode("ascii")


def record(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp_ms: int | None,
    partition: int,
) -> dict[str, Any]:
    return {
        "k": text(key),
        "v": text(value),
        "h": [[name, text(found)] for name, found in headers],
        "t": timestamp_ms,
        "p": partition,
    }


def serve(operations: Mapping[str, Operation]) -> None:
    """Answers until standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        operation = operations.get(request.pop("op"))
        try:
            if operation is None:
                raise UnsupportedError("the client has no such interface")
            answer = {"ok": operation(**request) or {}}
        except UnsupportedError as error:
            answer = {"unsupported": str(error)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
