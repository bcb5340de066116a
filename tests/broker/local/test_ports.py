"""Ports that are chosen before somebody binds them."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla_broker.local.layout import Layout
from ottla_broker.local.ports import HOST, RANGE_VARIABLE, free_ports, searched
from ottla_operator.model.documents import load_documents

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


def test_a_range_can_be_given_and_what_is_taken_in_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RANGE_VARIABLE, "")
    a, b, c = free_ports(3)
    for first, last in ((a, a), (min(b, c), max(b, c))):
        monkeypatch.setenv(RANGE_VARIABLE, f"{first}-{last}")
        assert list(searched()) == list(range(first, last + 1))
    monkeypatch.setenv(RANGE_VARIABLE, f"{a}-{a}")
    assert free_ports(1) == [a]
    assert free_ports(1, taken=[a]) != [a]
    with ExitStack() as held:
        held.enter_context(socket.create_server((HOST, a)))
        assert a not in free_ports(2)
