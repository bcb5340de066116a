"""The network of a cluster: a namespace per node and one for the control plane, which holds the switch between them.

Nothing is added to the machine's own namespace, so no traffic leaves, and nothing of the machine's is changed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from e2e.machine import NETNS, run

CONTROL_PLANE = "ottla-cp"
CONTROL_PLANE_ADDRESS = "10.88.0.1"
PREFIX_LENGTH = 24


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of the cluster. `number` starts at 1.

    >>> node = ClusterNode(2, "zone-b")
    >>> node.name, node.netns, node.address, node.pods
    ('n2', 'ottla-n2', '10.88.0.13', '10.244.2.0/24')
    """

    number: int
    zone: str

    @property
    def name(self) -> str:
        return f"n{self.number}"

    @property
    def netns(self) -> str:
        return f"ottla-{self.name}"

    @property
    def address(self) -> str:
        return str(ipaddress.ip_address(CONTROL_PLANE_ADDRESS) + 10 + self.number)

    @property
    def pods(self) -> str:
        return f"10.244.{self.number}.0/24"


def create(nodes: Sequence[ClusterNode]) -> None:
    """The control plane's namespace with the switch, and every node."""
    run(["ip", "netns", "add", CONTROL_PLANE])
    _ip(CONTROL_PLANE, "link", "set", "lo", "up")
    _ip(CONTROL_PLANE, "link", "add", "switch", "type", "bridge")
    _ip(CONTROL_PLANE, "addr", "add", f"{CONTROL_PLANE_ADDRESS}/{PREFIX_LENGTH}", "dev", "switch")
    _ip(CONTROL_PLANE, "link", "set", "switch", "up")
    _forward(CONTROL_PLANE)
    for number, node in enumerate(nodes):
        add(node, nodes[:number])


def add(node: ClusterNode, others: Sequence[ClusterNode]) -> None:
    """A node's namespace, link and routes. `others`: those that are there already."""
    run(["ip", "netns", "add", node.netns])
    _ip(node.netns, "link", "set", "lo", "up")
    _ip(CONTROL_PLANE, "link", "add", node.name, "type", "veth", "peer", "name", "eth0", "netns", node.netns)
    _ip(CONTROL_PLANE, "link", "set", node.name, "master", "switch", "up")
    _ip(node.netns, "addr", "add", f"{node.address}/{PREFIX_LENGTH}", "dev", "eth0")
    _ip(node.netns, "link", "set", "eth0", "up")
    _ip(node.netns, "route", "add", "default", "via", CONTROL_PLANE_ADDRESS)
    _forward(node.netns)
    _ip(CONTROL_PLANE, "route", "add", node.pods, "via", node.address)
    for other in others:
        _ip(node.netns, "route", "add", other.pods, "via", other.address)
        _ip(other.netns, "route", "add", node.pods, "via", node.address)


def cut(node: ClusterNode) -> None:
    """Cuts the node off: its port of the switch is down, as when a cable is pulled."""
    _ip(CONTROL_PLANE, "link", "set", node.name, "down")


def heal(node: ClusterNode) -> None:
    _ip(CONTROL_PLANE, "link", "set", node.name, "up")


def namespaces() -> list[str]:
    """The named network namespaces of this machine."""
    return sorted(entry.name for entry in NETNS.iterdir()) if NETNS.is_dir() else []


def delete(names: Sequence[str]) -> None:
    for name in names:
        if (NETNS / name).exists():
            run(["ip", "netns", "del", name])


def _ip(netns: str, *arguments: str) -> None:
    run(["ip", *arguments], netns=netns)


def _forward(netns: str) -> None:
    run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], netns=netns)
