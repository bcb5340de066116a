"""Ports that are chosen before somebody binds them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ottla.local.layout import Layout
from ottla.local.ports import HOST, RANGE_VARIABLE, free_ports, searched
from ottla_documents.documents import load_documents

CLUSTER = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaCluster
metadata: {name: orders}
spec:
  brokers: {replicas: 3, disks: [{name: d0, size: 1Gi}]}
  zookeeper: {replicas: 1, disk: {size: 1Gi}}
"""
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def first_outgoing() -> int:
    """From here on the system gives ports to whoever asks for any."""
    first = int(OUTGOING.read_text().split()[0]) if OUTGOING.exists() else 0
    if first <= 20_000:
        pytest.skip("this system gives nearly every port to outgoing connections")
    return first


def test_ports_are_different_and_none_that_the_system_gives_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RANGE_VARIABLE, raising=False)
    found = free_ports(200)
    assert len(set(found)) == 200
    assert max(found) < first_outgoing()


def test_a_fleet_keeps_its_ports_while_a_broker_of_it_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be given to any other program otherwise, and the broker could not start again."""
    monkeypatch.delenv(RANGE_VARIABLE, raising=False)
    (cluster,) = load_documents([("cluster.yaml", CLUSTER)]).clusters
    layout = Layout(tmp_path, cluster, first_client_port=0)
    layout.assign_ports()
    ports = [port for place in layout.places() for port in (place.client_port, place.internal_port, place.http_port)]
    assert len(set(ports)) == 9
    assert max(ports) < first_outgoing()


def unused() -> int:
    """A port that nobody listens on, and that `free_ports` has not given."""
    with socket.create_server((HOST, 0)) as listening:
        return int(listening.getsockname()[1])


def test_a_range_can_be_given_and_what_is_taken_in_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = unused(), unused(), unused()
    for first, last in ((a, a), (min(b, c), max(b, c))):
        monkeypatch.setenv(RANGE_VARIABLE, f"{first}-{last}")
        assert list(searched()) == list(range(first, last + 1))
    monkeypatch.setenv(RANGE_VARIABLE, f"{a}-{a}")
    with socket.create_server((HOST, a)):
        assert a not in free_ports(2)
    assert free_ports(1, taken=[a]) != [a]
    assert free_ports(1) == [a]


def test_a_port_that_was_given_is_taken_for_others_and_free_for_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is on it before its server has started, and that may take a while."""
    port = unused()
    monkeypatch.setenv(RANGE_VARIABLE, f"{port}-{port}")
    assert free_ports(1) == [port]
    assert free_ports(1) != [port]
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((HOST, port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), 5)
    with socket.create_server((HOST, port)):  # binds with SO_REUSEADDR
        pass
