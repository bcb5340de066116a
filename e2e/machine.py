"""Processes of this machine: commands, and daemons that outlive the command that started them. Linux only."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

NETNS = Path("/run/netns")
POLL_S = 0.1


class CommandFailed(RuntimeError):
    """A command ended with another status than 0, or did not end in time. The message holds the end of its output."""


class NotInTime(RuntimeError):
    """A condition did not hold in time."""


def run(
    argv: Sequence[str | Path],
    *,
    netns: str | None = None,
    text: str | None = None,
    timeout_s: float = 120,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Runs a command and gives its standard output; `text` is its input. Raises CommandFailed."""
    command = [*within(netns), *(str(part) for part in argv)]
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL if text is None else None,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{' '.join(command)}: did not end within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        tail = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise CommandFailed(f"{' '.join(command)}: status {done.returncode}: {tail}")
    return done.stdout


def within(netns: str | None) -> list[str]:
    """What a command line starts with to run in a network namespace.

    Not `ip netns exec`: that mounts /sys again, and the cgroups below it disappear.

    >>> within("n1")
    ['nsenter', '--net=/run/netns/n1']
    """
    return [] if netns is None else ["nsenter", f"--net={NETNS / netns}"]


def until(holds: Callable[[], bool], what: str, *, timeout_s: float = 180) -> None:
    """Waits until a condition holds; raises NotInTime with `what` in the message."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise NotInTime(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(POLL_S)


def started_at(pid: int) -> str | None:
    """When a process was started, in clock ticks since the boot; None when it has ended (a zombie has)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def command_line(pid: int) -> str:
    """The command line of a process, "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def processes() -> list[int]:
    """Every process of the machine."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def kill_and_wait(pids: Sequence[int]) -> None:
    """Sends SIGKILL and waits until the processes have ended."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for pid in pids:
        until(lambda pid=pid: _has_ended(pid), f"the end of process {pid}")  # type: ignore[misc]


def _has_ended(pid: int) -> bool:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # another command's child
    return started_at(pid) is None


class Daemons:
    """Background processes of one cluster, by name. Who stops them may be another command than who started them.

    `are_tied`: they end with the process that started them, whatever ends it.
    """

    def __init__(self, folder: Path, *, are_tied: bool = False) -> None:
        self._prefix = ["setpriv", "--pdeathsig", "KILL"] if are_tied else []
        self._pids = folder / "pids"
        self.logs = folder / "logs"

    def start(self, name: str, argv: Sequence[str | Path], *, netns: str | None = None) -> int:
        """Starts a process in a session of its own; its output goes to logs/NAME.log."""
        self._pids.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        with open(self.logs / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [*self._prefix, *within(netns), *(str(part) for part in argv)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self._pids / name).write_text(f"{process.pid} {started_at(process.pid)}")
        return process.pid

    def pid(self, name: str) -> int | None:
        """The pid of a daemon that runs. A pid that another process has taken since is none."""
        try:
            pid, began = (self._pids / name).read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if started_at(int(pid)) == began else None

    def running(self) -> list[str]:
        names = sorted(os.listdir(self._pids)) if self._pids.is_dir() else []
        return [name for name in names if self.pid(name) is not None]

    def stop(self, *names: str) -> None:
        """Ends daemons at once: their state goes with them."""
        pids = [pid for name in names if (pid := self.pid(name)) is not None]
        kill_and_wait(pids)
        for name in names:
            (self._pids / name).unlink(missing_ok=True)

    def until(self, name: str, holds: Callable[[], bool], *, timeout_s: float = 180) -> None:
        """Waits for a daemon's readiness. When it ends instead, the error shows the end of its log."""

        def ready_or_dead() -> bool:
            return self.pid(name) is None or holds()

        until(ready_or_dead, f"{name} (see {self.logs / name}.log)", timeout_s=timeout_s)
        if self.pid(name) is None:
            tail = (self.logs / f"{name}.log").read_text(errors="replace")[-2000:]
            raise CommandFailed(f"{name} ended at its start:\n{tail}")
