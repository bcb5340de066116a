"""Debian's kcat. It administers nothing and knows no transactions."""

from __future__ import annotations

import json
import subprocess
from itertools import groupby
from typing import Any

from loop import UnsupportedError, data, record, serve

_NULL = "~null~"
LIMIT_S = 60


def _run(arguments: list[str], standard_input: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-m", "60", *arguments], input=standard_input, capture_output=True, text=True, timeout=LIMIT_S
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def _text(found: str | None) -> str:
    decoded = data(found)
    return "" if decoded is None else decoded.decode()


def produce(
    bootstrap: str,
    topic: str,
    records: list[dict[str, Any]],
    codec: str = "none",
    acks: str = "all",
    idempotent: bool = False,
) -> None:
    if any(each["t"] is not None for each in records):
        raise UnsupportedError("it gives every record its own clock's time")
    settings = {"acks": acks, "enable.idempotence": str(idempotent).lower(), "compression.codec": codec}
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    for partition, alike in groupby(sorted(records, key=lambda each: each["p"]), lambda each: each["p"]):
        lines = [f"{_text(each['k'])}{_NULL}{_text(each['v'])}\n" for each in alike]
        command = ["-b", bootstrap, *options, "-P", "-t", topic, "-p", str(partition), "-K", _NULL, "-Z"]
        _run(command, "".join(lines))


def _decoded(line: str) -> dict[str, Any]:
    found = json.loads(line)
    headers = found.get("headers", [])
    pairs = [(name, _bytes(value)) for name, value in zip(headers[::2], headers[1::2], strict=True)]
    return record(_bytes(found["key"]), _bytes(found["payload"]), pairs, found["ts"], found["partition"])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def read(bootstrap: str, topic: str, count: int, partitions: int, committed: bool) -> dict[str, Any]:
    isolation = f"isolation.level={'read_committed' if committed else 'read_uncommitted'}"
    printed = _run(["-b", bootstrap, "-X", isolation, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"])
    return {"records": [*map(_decoded, printed.splitlines())]}


def group(bootstrap: str, group: str, topic: str, count: int, protocol: str = "classic") -> dict[str, Any]:
    if protocol != "classic":
        raise UnsupportedError("its librdkafka has the classic protocol only")
    options = ["-X", "auto.offset.reset=earliest", "-J", "-q", "-c", str(count)]
    printed = _run(["-b", bootstrap, *options, "-G", group, topic])
    return {"records": [*map(_decoded, printed.splitlines())]}


def offset_at(bootstrap: str, topic: str, partition: int, timestamp: int) -> dict[str, Any]:
    printed = _run(["-b", bootstrap, "-Q", "-t", f"{topic}:{partition}:{timestamp}"])
    return {"offset": int(printed.rsplit(" ", 1)[1])}


if __name__ == "__main__":
    serve({each.__name__: each for each in (produce, read, group, offset_at)})
