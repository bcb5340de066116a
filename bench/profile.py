"""A flame graph of the broker under one scenario: `python -m bench.profile produce-java-64k`.

py-spy samples the broker from outside, so that no profiler inside changes the result; it needs the right to trace
(root). It counts a thread only while it has the interpreter: from outside, a thread in a system call looks busy. What
the interpreter does not see (copies, page cache, checksums) is sampled by Linux `perf` where it is installed. Writes
build/bench/profile-<scenario>.svg (the flame graph) and .txt (CPU of each thread, shares of the kernel, of each library
and of each function), and prints the latter.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bench import tls
from bench.java import LoadResult
from bench.scenarios import BY_NAME, FULL, Request
from bench.systems import NULL_BROKER, OURS, System
from bench.usage import thread_cpu_seconds

_SHOWN = 25
_SAMPLER = re.compile(r"[^<>]*py-spy record[^<>]*")
"""The title that py-spy gives a flame graph: its own command, with the paths of this machine."""


def main(
    scenario: Annotated[str, typer.Argument(help="a scenario of the benchmark")],
    system: Annotated[str, typer.Option(help="ours or null_broker")] = OURS,
    records: Annotated[int, typer.Option(help="records of 1 kB; a tenth as many of 100 bytes")] = 1_000_000,
    rate: Annotated[int, typer.Option(help="samples per second")] = 200,
    native: Annotated[bool, typer.Option(help="functions written in C too")] = False,
    out: Annotated[Path, typer.Option(help="where the files go")] = Path("build/bench"),
) -> None:
    """Runs the load once to warm the broker up, and once under the sampler."""
    chosen = BY_NAME.get(scenario)
    if chosen is None or system not in (OURS, NULL_BROKER):
        raise typer.BadParameter(f"the scenarios are {', '.join(BY_NAME)}; the systems ours and null_broker")
    sampler = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if sampler is None:
        raise typer.BadParameter("py-spy is missing: `make setup` installs it")
    out = out.absolute()
    work = out / "profile-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    keys = tls.make(work) if chosen.is_tls else None
    profiled = System(system, work / system, chosen.brokers, tls=keys)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        profiled.start()
        profiled.create_topic("profile", chosen.partitions, chosen.brokers)
        volume = replace(FULL, records=records, requests=max(1, records // 10))
        request = Request(work, profiled, "profile", volume, is_tls=chosen.is_tls)
        if scenario.startswith("consume"):
            BY_NAME["produce-java-64k"].load(request)
        chosen.load(request)
        drawn = out / f"profile-{scenario}.svg"
        folded = work / "folded"
        options = ["--gil", "--nonblocking", "--rate", str(rate), *(["--native"] if native else [])]
        pid = profiled.pids[0]
        samplers = [
            _start(sampler, pid, drawn, "flamegraph", options),
            _start(sampler, pid, folded, "raw", options),
        ]
        kernel = _sample_kernel(pid, work / "perf.data")
        before = thread_cpu_seconds(pid)
        try:
            result: LoadResult = chosen.load(request)
        finally:
            after = thread_cpu_seconds(pid)
            for process in samplers:
                process.send_signal(signal.SIGINT)
            for process in samplers:
                process.wait(60)
        drawn.write_text(_SAMPLER.sub(scenario, drawn.read_text()))
        text = (
            _threads(before, after, result) + _kernel_shares(kernel, work / "perf.data") + _shares(folded.read_text())
        )
        drawn.with_suffix(".txt").write_text(text)
        typer.echo(text)
        typer.echo(f"{result.bytes / result.seconds / 1e6:.0f} MB/s while sampled; flame graph: {drawn}")
    finally:
        profiled.stop()
        shutil.rmtree(work, ignore_errors=True)


def _start(sampler: str, pid: int, output: Path, kind: str, options: list[str]) -> subprocess.Popen[bytes]:
    line = [sampler, "record", "--pid", str(pid), "--format", kind, "--function", "--output", str(output), *options]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _sample_kernel(pid: int, data: Path) -> subprocess.Popen[bytes] | None:
    """Starts `perf record`; None where there is none."""
    perf = shutil.which("perf")
    if perf is None:
        return None
    line = [perf, "record", "--quiet", "-e", "cpu-clock", "-F", "499", "-g", "--pid", str(pid), "--output", str(data)]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _kernel_shares(sampler: subprocess.Popen[bytes] | None, data: Path) -> str:
    """Where the CPU time of all threads goes: by kernel and library, then by system call and what it waits on."""
    if sampler is None:
        return "Linux' perf is not installed: nothing is known of the kernel's share\n"
    sampler.send_signal(signal.SIGINT)
    sampler.wait(60)
    parts = _report(data, "--no-children", "dso")[:6]
    calls = [(share, name) for share, name in _report(data, "--children", "symbol") if name in _KERNEL_FUNCTIONS]
    rows = [f"{share:>7}  {name}" for share, name in parts]
    rows += [f"{share:>7}  {name}: {_KERNEL_FUNCTIONS[name]}" for share, name in calls]
    return "CPU time of all threads\n" + "\n".join(rows) + "\n"


_KERNEL_FUNCTIONS = {
    "__x64_sys_recvfrom": "receiving from sockets, the copy included",
    "__x64_sys_writev": "writing to the page cache",
    "copy_folio_from_iter_atomic": "of that the copy",
    "__alloc_frozen_pages_noprof": "of that finding pages",
    "try_to_compact_pages": "of that moving others' pages to make large ones",
    "__x64_sys_sendto": "sending answers",
    "__x64_sys_sendmsg": "sending answers in several buffers",
    "__x64_sys_sendfile64": "sending file ranges",
    "__x64_sys_epoll_pwait": "waiting for sockets",
    "__x64_sys_futex": "handing over between threads",
    "__x64_sys_fdatasync": "flushing",
    "asm_exc_page_fault": "memory touched for the first time",
}


def _report(data: Path, *options: str) -> list[tuple[str, str]]:
    """(share, name) out of `perf report`, largest first."""
    line = [
        "perf",
        "report",
        "--input",
        str(data),
        "--call-graph",
        "none",
        "--stdio",
        *options[:-1],
        "--sort",
        options[-1],
    ]
    text = subprocess.run(line, capture_output=True, text=True, check=False).stdout
    rows = [row.split() for row in text.splitlines() if row.strip() and not row.startswith("#")]
    return [(row[0], next(word for word in reversed(row) if word != "-")) for row in rows if len(row) > 1]


def _threads(before: dict[int, tuple[float, float]], after: dict[int, tuple[float, float]], result: LoadResult) -> str:
    """CPU time of each thread during the load; those that did nothing are left out."""
    rows = ["  user  system  s per GB  thread"]
    for number, (thread, (user, system)) in enumerate(after.items()):
        user_before, system_before = before.get(thread, (0.0, 0.0))
        user, system = user - user_before, system - system_before
        if user + system:
            name = "event loop" if number == 0 else f"thread {number}"
            rows.append(f"{user:6.2f}  {system:6.2f}  {(user + system) / (result.bytes / 1e9):8.2f}  {name}")
    return "\n".join(rows) + "\n"


def _shares(folded: str) -> str:
    """A table out of folded stacks (`outer;inner 12` on each line): samples in a function itself, and below it too.

    >>> print(_shares("a (x.py);b (x.py) 3\\na (x.py) 1"))
      self   with callees  function (4 samples)
     75.0%          75.0%  b (x.py)
     25.0%         100.0%  a (x.py)
    <BLANKLINE>
    """
    own: Counter[str] = Counter()
    below: Counter[str] = Counter()
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        own[frames[-1]] += int(count)
        for frame in dict.fromkeys(frames):
            below[frame] += int(count)
    total = max(1, own.total())
    rows = [f"  self   with callees  function ({own.total()} samples)"]
    rows += [f"{count / total:6.1%}  {below[frame] / total:13.1%}  {frame}" for frame, count in own.most_common(_SHOWN)]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    typer.run(main)
