"""Starts the background process of a local fleet and waits until the fleet is ready."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ottla.cli.local_output import StartProgress
from ottla.cli.messages import fail
from ottla.local.control import IS_LOCKED, ControlError, NotRunning, ask
from ottla.local.fleet_state import starting_brokers
from ottla_broker.adapters.process_logging import message_of
from ottla_broker.config import ConfigError
from ottla_broker.config.listeners import parse_zookeeper_connect

START_TIMEOUT_S = 120.0
_POLL_S = 0.02
_GIVE_UP_S = 30.0
"""The limit in seconds for the shutdown of a fleet that did not start."""
_ZOOKEEPER_TIMEOUT_S = 2.0


def check_zookeeper(connect: str) -> None:
    """Names an address that cannot be one of a ZooKeeper at once: a start would try it for seconds."""
    try:
        servers = parse_zookeeper_connect(connect).servers
    except ConfigError as error:
        fail(f"--zookeeper {connect}: {error.allowed}")
    reasons = []
    for host, port in servers:
        try:
            socket.create_connection((host, port), _ZOOKEEPER_TIMEOUT_S).close()
            return
        except socket.gaierror:
            reasons.append(f"{host}: no such host")
        except ConnectionRefusedError:
            reasons.append(f"{host}:{port}: nobody listens there")
        except OSError:
            return  # it may be slow; the start waits for it
    fail(f"--zookeeper {connect}: {', '.join(reasons)}")


def start_fleet(directory: Path, options: list[str]) -> dict[str, Any] | None:
    """Starts the fleet whose documents are in `directory`.

    Args:
        options: of `ottla.local.daemon`.

    Returns:
        Its status when it is ready; None when another process runs it. A fleet that does not become ready is stopped,
        and ends the command.
    """
    return _until_ready(directory, _start_daemon(directory, options))


def _start_daemon(directory: Path, options: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ottla.local.daemon", "--data", str(directory), *options]
    with (directory / "fleet.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )


def _until_ready(directory: Path, process: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    log = directory / "fleet.log"
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        with StartProgress("the fleet starts") as progress:
            while time.monotonic() < deadline:
                if (ended := process.poll()) is not None:
                    if ended == IS_LOCKED:
                        return None
                    lines = log.read_text(errors="replace").strip().splitlines()
                    reason = message_of(lines[-1]) if lines else "no reason in the log"
                    fail(f"the fleet did not start: {reason} (see {log})")
                try:
                    status = ask(directory, {"command": "status"})
                except NotRunning:
                    progress.waits_for("its process")
                    time.sleep(_POLL_S)
                    continue
                if status["failure"]:
                    _end(process)
                    see = "" if "(see " in status["failure"] else f" (see {log})"
                    fail(f"the fleet did not start: {status['failure']}{see}")
                if status["ready"] and status["topics_applied"]:
                    return status
                progress.waits_for(starting_brokers(status))
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        _end(process)
        fail("interrupted: the fleet is stopped")
    except ControlError as error:
        fail(f"the fleet did not start: {error} (see {log})")
    _end(process)
    fail(f"the fleet is not ready after {START_TIMEOUT_S:.0f} s; see {log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stops the daemon and waits, so that the next `up` can lock the directory."""
    process.terminate()
    try:
        process.wait(_GIVE_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def waited_s() -> float:
    """The seconds since this process has started: what the person has waited, imports included."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
