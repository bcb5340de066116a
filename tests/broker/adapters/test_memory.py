"""The memory of a process is what its cgroup, those around it and the machine leave."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla_broker.adapters import memory

MIB = 1 << 20


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/pod/broker\n", {"pod/memory.max": "104857600", "pod/broker/memory.max": "max"}, 100 * MIB),
        ("0::/pod/broker\n", {"pod/memory.max": "104857600", "pod/broker/memory.max": "52428800"}, 50 * MIB),
        ("0::/\n", {"memory.max": "73400320"}, 70 * MIB),
        ("5:cpu:/a\n4:memory:/b\n", {"memory/b/memory.limit_in_bytes": "31457280"}, 30 * MIB),
        ("5:cpu:/a\n4:cpuset,memory:/b\n", {"memory/memory.limit_in_bytes": "20971520"}, 20 * MIB),
    ],
    ids=["of the pod", "of the container", "its own namespace", "version 1", "version 1 of the root"],
)
def test_the_smallest_limit_counts(tmp_path: Path, membership: str, files: dict[str, str], expected: int) -> None:
    (tmp_path / "membership").write_text(membership)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert memory.limit(tmp_path, tmp_path / "membership") == expected


def test_without_a_limit_the_memory_of_the_machine_counts(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text("0::/pod\n")
    (tmp_path / "memory.max").write_text("max\n")
    (line,) = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:")]
    machine = int(line.split()[1]) * 1024
    assert memory.limit(tmp_path, tmp_path / "membership") == pytest.approx(machine, rel=0.01)
    assert memory.limit(tmp_path, tmp_path / "absent") == pytest.approx(machine, rel=0.01)


_PEAK = """
import resource, sys
from ottla_broker.adapters import memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20

if sys.argv[1] == "given back":
    memory.give_large_blocks_back()
before = resident()
kept = []
bytes(20_000_000)  # glibc raises its limit to what is freed
answers = []
for number in range(200):
    answers.append(b"x" * 600_000)
    kept.append(b"y" * 2000)
peak = resident()
del answers[0:199]
print(peak - before, resident() - before)
"""


@pytest.mark.parametrize(("how", "is_kept"), [("given back", False), ("as glibc does", True)])
def test_large_blocks_go_back_to_the_system_when_they_are_freed(how: str, is_kept: bool) -> None:
    """A peak of 200 answers of 600 KB, with small blocks between them that stay."""
    found = subprocess.run([sys.executable, "-c", _PEAK, how], capture_output=True, text=True, check=True)
    peak, left = map(int, found.stdout.split())
    assert peak > 100
    assert (left > 50) is is_kept
