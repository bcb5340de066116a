"""The `sh` and `python` blocks of a page of the manual, and a program that runs them in order.

A block that a test cannot run carries its reason in the page: `<!-- not run: REASON -->` on the line above it.

`python -m tests.docs.page_blocks REQUEST` runs a page, and writes what came of it. It runs in namespaces of its own
(`command_of_namespaces`): the page has the network for itself, so that the ports which it prints are free, and every
process that the page leaves behind ends with the program.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import socket
import struct
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"(?:^<!-- not run: (.+?) -->\n)?^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REASON = re.compile(r"^<!-- not run:", re.MULTILINE)
_AS_ROOT = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_BLOCK_S = 120.0


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page. `line`: where it begins. `reason`: why a test does not run it, "" when it does."""

    line: int
    language: str
    code: str
    reason: str = ""


def blocks_of(text: str) -> list[Block]:
    """The `sh` and `python` blocks of a page, in its order.

    >>> [(block.line, block.language, block.reason) for block in blocks_of('''A page.
    ... ```sh
    ... make demo
    ... ```
    ... <!-- not run: it needs Docker -->
    ... ```sh
    ... docker ps
    ... ```
    ... ''')]
    [(2, 'sh', ''), (6, 'sh', 'it needs Docker')]
    """
    found = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        found.append(Block(line, match[2], match[3], match[1] or ""))
    return found


@functools.cache
def command_of_namespaces() -> tuple[str, ...]:
    """What to put before a command so that it gets a network and processes of its own; () where that is refused."""
    for command in (_AS_ROOT, [*_AS_ROOT, "--user", "--map-root-user"]):
        try:
            done = subprocess.run([*command, "true"], capture_output=True, timeout=60, check=False)
        except FileNotFoundError:
            break
        if done.returncode == 0:
            # A shell is process 1: unlike Python it reaps the orphans of others, whose end `ottla local down` awaits.
            return (*command, "sh", "-c", '"$@"; exit $?', "sh")
    return ()


def _open_loopback() -> None:
    """Sets `lo` up: in a new network namespace it is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _run(block: Block, names: dict[str, Any], label: str) -> tuple[int, str]:
    """Status and output of a block. Python blocks of a page are one session, as a person types them: `names`."""
    if block.language == "sh":
        command = ["bash", "-euo", "pipefail", "-c", block.code]
        output = subprocess.PIPE
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True,
                timeout=_BLOCK_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            return 1, f"not ended after {_BLOCK_S:.0f} s: {error.output!r}"
        return done.returncode, done.stdout
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            exec(compile(block.code, label, "exec"), names)
    except Exception as error:
        return 1, f"{printed.getvalue()}{type(error).__name__}: {error}"
    return 0, printed.getvalue()


def main() -> int:
    """Runs the blocks of a page `times` times and writes their statuses and outputs; ends at the first that fails."""
    request = json.loads(Path(sys.argv[1]).read_text())
    _open_loopback()
    os.chdir(request["folder"])
    blocks = [Block(**fields) for fields in request["blocks"]]
    results: list[dict[str, Any]] = []
    for time in range(1, request["times"] + 1):
        names: dict[str, Any] = {"__name__": "__main__"}
        for block in blocks:
            label = f"{request['page']}:{block.line}, time {time}"
            status, output = _run(block, names, label)
            results.append({"block": label, "line": block.line, "status": status, "output": output})
            Path(request["results"]).write_text(json.dumps(results))
            if status:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
