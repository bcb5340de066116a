"""Who listens on a port, and which CLIENT ports a fleet gets beside it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from ottla.local.layout import Layout, free_base
from ottla.local.port_owners import PortOwner, in_use, port_owner
from ottla.local.ports import HOST, free_ports
from ottla_documents.documents import load_documents

CLUSTER = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaCluster
metadata: {name: orders}
spec: {brokers: {replicas: 2}}
"""


def layout(data: Path, *, first: int, moves: bool = False) -> Layout:
    (cluster,) = load_documents([("cluster.yaml", CLUSTER)]).clusters
    return Layout(data, cluster, first_client_port=first, moves_ports=moves)


def client_ports(of: Layout) -> list[int]:
    return [place.client_port for place in of.places()]


def test_a_program_is_named_with_its_process_and_a_free_port_has_no_owner() -> None:
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
        found = port_owner(port)
        assert (found.pid, found.program) == (os.getpid(), Path(sys.executable).name)
        assert in_use([port]) == f"{port} is in use by another program ({found.program}, process {os.getpid()})"
    assert port_owner(port) == PortOwner()


def test_a_local_fleet_is_named_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "fleet.json").write_text('{"cluster": "other", "brokers": [], "version": 1}')
    program = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
    program += "sys.stdin.read()"
    # As the background process of a fleet: what it runs stands in its command line.
    command = [sys.executable, "-c", program, "ottla.local.daemon", "--data", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert str(port_owner(port)) == f"the fleet other in {tmp_path}"
        process.communicate()


def test_a_client_port_in_use_is_passed_over_and_told_once(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        given = layout(tmp_path, first=port)
        given.assign_ports()
        first, second = client_ports(given)
        assert port < first < second
        (line,) = given.passed_over
        assert line.startswith(f"{port}") and "in use by another program" in line
        assert line.endswith(f": broker 0 listens on {first}")
        again = layout(tmp_path, first=port)
        again.assign_ports()
        assert client_ports(again) == [first, second] and again.passed_over == []


def test_a_fleet_that_moves_gets_the_ports_that_are_asked_for_and_keeps_the_others(tmp_path: Path) -> None:
    before = layout(tmp_path, first=0)
    before.assign_ports()
    others = [(place.internal_port, place.http_port) for place in before.places()]
    (base,) = free_ports(1)
    moved = layout(tmp_path, first=base, moves=True)
    moved.assign_ports()
    ports = client_ports(moved)
    assert ports[0] == base and ports[1] > base
    assert [(place.internal_port, place.http_port) for place in moved.places()] == others
    assert client_ports(layout(tmp_path, first=0)) == ports
    same = layout(tmp_path, first=base, moves=True)
    same.assign_ports()
    assert client_ports(same) == ports


def test_ports_to_move_to_are_free() -> None:
    base = free_base(3)
    for port in range(base, base + 3):
        with socket.create_server((HOST, port)):
            pass
