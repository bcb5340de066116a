"""The line that says where and with what a benchmark was made."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from bench.usage import memory_bytes

_GIB = 1 << 30


def description() -> str:
    """Date, commit, Python, Java, kernel, processor, cores and memory, in two sentences."""
    memory = memory_bytes("MemTotal") / _GIB
    return (
        f"Made on {datetime.now(UTC):%Y-%m-%d} of commit {_commit()}, with CPython {platform.python_version()} "
        f"({platform.python_compiler()}) and {_java()}. The machine: {os.cpu_count()} cores of {_processor()}, "
        f"{memory:.0f} GiB of memory, Linux {platform.release()}."
    )


def _commit() -> str:
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=Path(__file__).parent, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return answer.stdout.strip() or "unknown"


def _java() -> str:
    if shutil.which("java") is None:
        return "no Java"
    answer = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return (answer.stderr.splitlines() or ["an unknown Java"])[0].replace('"', "")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
