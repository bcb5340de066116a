"""How the replicas of a broker reach the controller and the other brokers.

Lives here: the value that `server` gives the replica manager. Not here: connections and wire formats (`server.peers`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla_broker.replication.alter_partition import SendAlterPartition
from ottla_broker.replication.fetch_client import ConnectToBroker


@dataclass(frozen=True, slots=True)
class InterBrokerContext:
    """How the replicas of one broker reach other brokers.

    Args:
        broker_epoch: gives the epoch of this broker's registration (its czxid), -1 before the first.
        send_alter_partition: sends AlterPartition to the active controller.
        connect: makes a connection to another broker's host and port.
        listener: the name of the inter-broker listener.
        report_directories: writes the event that has the controller send LeaderAndIsr for this broker's replicas again.
    """

    broker_epoch: Callable[[], int]
    send_alter_partition: SendAlterPartition
    connect: ConnectToBroker
    listener: str
    report_directories: Callable[[], None]
