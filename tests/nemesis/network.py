"""Every node in a network namespace of its own, joined by a router that can cut any road, one way or both.

Clients run where the router is. A packet from node to node passes the router's FORWARD chain, one between a client and
a node its INPUT or OUTPUT; a cut drops there, silently, as a broken network does, and nobody is told of a closed
connection. Namespaces have no names: they live as long as the processes in them, and these end with the command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_INSIDE = "OTTLA_NEMESIS_INSIDE"
_TOOLS = ("unshare", "nsenter", "ip", "iptables")
CLIENTS = "clients"
"""The router's own place, in cuts."""


def skip_reason() -> str:
    """Why this machine cannot do it, "" when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"{', '.join(missing)} missing: run scripts/install-system.sh" if missing else ""


def is_inside() -> bool:
    """Whether this process is the one that `enter` started."""
    return os.environ.get(_INSIDE) == "1"


def enter(arguments: Sequence[str]) -> int:
    """Runs `python -m tests.nemesis ARGUMENTS` in namespaces of its own; gives its status.

    It is process 1 of a process namespace: when it ends, by whatever, the kernel ends everything that it started, and
    with the processes go their networks and mounts.
    """
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += [sys.executable, "-m", "tests.nemesis", *arguments]
    return subprocess.run(command, env={**os.environ, _INSIDE: "1"}, check=False).returncode


class Network:
    """The router and its nodes. Only inside `enter`: it changes the rules of the namespace that it is in."""

    def __init__(self) -> None:
        assert is_inside(), "the rules of the machine's own network are nobody's to change"
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses: dict[str, str] = {}
        _run("ip", "link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def add(self, name: str) -> str:
        """A new node; gives its address."""
        subnet = f"10.77.{len(self._holders) + 1}"
        # `unshare` becomes `sleep`; the namespace is there when it has.
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
        assert holder.stdout is not None and holder.stdout.readline()
        self._holders[name] = holder
        self._addresses[name] = f"{subnet}.2"
        _run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "address", "add", f"{subnet}.1/24", "dev", name)
        _run("ip", "link", "set", name, "up")
        for command in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{subnet}.2/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", "default", "via", f"{subnet}.1"),
        ):
            _run(*self.prefix(name), "ip", *command)
        return self._addresses[name]

    def prefix(self, name: str) -> list[str]:
        """What to put before a command so that it runs on the node; the process becomes the command."""
        return ["nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net", "--"]

    def address(self, name: str) -> str:
        return self._addresses[name]

    def cut(self, source: str, destination: str, *, both_ways: bool = True) -> None:
        """From here on, packets from one to the other are dropped. Names of nodes, or CLIENTS."""
        self._rule("-A", source, destination)
        if both_ways:
            self._rule("-A", destination, source)

    def mend(self) -> None:
        """Every cut."""
        for chain in ("FORWARD", "INPUT", "OUTPUT"):
            _run("iptables", "-F", chain)

    def close(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    def _rule(self, action: str, source: str, destination: str) -> None:
        if source == CLIENTS:
            where = ["OUTPUT", "-d", self._addresses[destination]]
        elif destination == CLIENTS:
            where = ["INPUT", "-s", self._addresses[source]]
        else:
            where = ["FORWARD", "-s", self._addresses[source], "-d", self._addresses[destination]]
        _run("iptables", action, *where, "-j", "DROP")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
