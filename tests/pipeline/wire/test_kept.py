"""Connections that a task leaves to the next one of its process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_pipeline.errors import ClusterUnreachable
from ottla_pipeline.wire import cluster as wire_cluster
from ottla_pipeline.wire import kept
from ottla_pipeline.wire.connecting import Connecting
from ottla_pipeline.wire.connection import Connection
from ottla_pipeline.wire.kept import kept_cluster


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=1) as found:
        yield found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
    """Every connection that is made."""
    found: list[Connection] = []

    def recorded(*arguments: Any, **named: Any) -> Connection:
        found.append(Connection(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(wire_cluster, "Connection", recorded)
    monkeypatch.setattr(kept, "_kept", [])
    yield found
    for connection in found:
        connection.close()


def connecting_to(fleet: RunningCluster, **options: Any) -> Connecting:
    host, port = fleet.bootstrap.split(",")[0].split(":")
    return Connecting(bootstrap=((host, int(port)),), **options)


def test_the_next_task_with_the_same_options_takes_the_connections(
    fleet: RunningCluster, opened: list[Connection]
) -> None:
    for _ in range(3):
        with kept_cluster(connecting_to(fleet)) as brokers:
            brokers.layout_of(None)
    assert len(opened) == 1
    with kept_cluster(connecting_to(fleet, client_id="another")) as brokers:
        brokers.layout_of(None)
    assert len(opened) == 2


def test_two_tasks_at_a_time_have_connections_of_their_own(fleet: RunningCluster, opened: list[Connection]) -> None:
    with kept_cluster(connecting_to(fleet)) as one, kept_cluster(connecting_to(fleet)) as other:
        one.layout_of(None)
        other.layout_of(None)
    assert len(opened) == 2


def test_after_an_error_or_a_long_pause_connections_are_new(
    fleet: RunningCluster, opened: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ClusterUnreachable), kept_cluster(connecting_to(fleet)) as brokers:
        brokers.layout_of(None)
        raise ClusterUnreachable("the task failed")
    with kept_cluster(connecting_to(fleet)) as brokers:
        brokers.layout_of(None)
    assert len(opened) == 2
    monkeypatch.setattr(kept, "IDLE_S", -1.0)
    with kept_cluster(connecting_to(fleet)) as brokers:
        brokers.layout_of(None)
    assert len(opened) == 3


def test_a_connection_that_the_broker_has_closed_meanwhile_is_not_taken(
    fleet: RunningCluster, opened: list[Connection]
) -> None:
    with kept_cluster(connecting_to(fleet)) as brokers:
        brokers.layout_of(None)
        # What a broker does with a connection that is idle for too long, seen from here.
        brokers.connection(*connecting_to(fleet).bootstrap[0])._transport.socket.shutdown(socket.SHUT_RD)
    with kept_cluster(connecting_to(fleet)) as brokers:
        brokers.layout_of(None)
    assert len(opened) == 2


def test_connections_are_shared_by_no_two_threads(fleet: RunningCluster, opened: list[Connection]) -> None:
    taken: list[object] = []
    both = threading.Barrier(2, timeout=60)

    def task() -> None:
        with kept_cluster(connecting_to(fleet)) as brokers:
            taken.append(brokers)
            both.wait()
            brokers.layout_of(None)

    threads = [threading.Thread(target=task) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, taken))) == 2
