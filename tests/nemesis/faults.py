"""What is done to a fleet, one fault at a time: it is begun, lasts, and is mended.

"broker" in a name is one that leads much and is not the controller; each partition that it does not lead shows what
the loss of a follower does. A fault lasts until everybody's session that it can cost has ended.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

from tests.nemesis.fleet import REPLICA_LAG_MS, Fleet, State
from tests.nemesis.network import CLIENTS
from tests.nemesis.nodes import Broker, Node, System

_MARGIN_S = 5.0
_PAUSE_S = 1.5


@dataclass(frozen=True, slots=True)
class Fault:
    """`choose` names the node, `begin` breaks it, `end` mends what the network's `mend` does not. `lasts_s` of the
    session timeout in seconds."""

    name: str
    choose: Callable[[Fleet, State, random.Random], Node]
    begin: Callable[[Fleet, Node], None]
    end: Callable[[Fleet, Node], None]
    lasts_s: Callable[[float], float] = lambda session_s: session_s + _MARGIN_S


def _broker(fleet: Fleet, state: State, draw: random.Random) -> Node:
    return fleet.pick(state, draw)


def _controller(fleet: Fleet, state: State, draw: random.Random) -> Node:
    return fleet.pick(state, draw, is_controller=True)


def _coordinator(fleet: Fleet, state: State, draw: random.Random) -> Node:
    return fleet.coordinator(state, draw)


def _zookeeper_leader(fleet: Fleet, state: State, draw: random.Random) -> Node:
    return fleet.zookeeper_leader()


def _zookeeper(fleet: Fleet, state: State, draw: random.Random) -> Node:
    return draw.choice(fleet.zookeepers)


def _disk_owner(fleet: Fleet, state: State, draw: random.Random) -> Node:
    return fleet.disk_owner


def _kill(fleet: Fleet, node: Node) -> None:
    fleet.kill(node)


def _start_again(fleet: Fleet, node: Node) -> None:
    fleet.start_again(node)


def _stop(fleet: Fleet, node: Node) -> None:
    node.send(signal.SIGSTOP)


def _go_on(fleet: Fleet, node: Node) -> None:
    node.send(signal.SIGCONT)


def _isolate(fleet: Fleet, node: Node) -> None:
    fleet.isolate(node)


def _cut_from_zookeeper(fleet: Fleet, node: Node) -> None:
    for server in fleet.zookeepers:
        fleet.network.cut(node.name, server.name)


def _cut_from_brokers(fleet: Fleet, node: Node) -> None:
    for broker in fleet.brokers:
        if broker is not node:
            fleet.network.cut(node.name, broker.name)


def _mute(fleet: Fleet, node: Node) -> None:
    """It hears the others, they do not hear it."""
    for broker in fleet.brokers:
        if broker is not node:
            fleet.network.cut(node.name, broker.name, both_ways=False)


def _deafen(fleet: Fleet, node: Node) -> None:
    """The others hear it, it does not hear them, nor ZooKeeper, nor the clients."""
    for other in [*(one.name for one in fleet.nodes if one is not node), CLIENTS]:
        fleet.network.cut(other, node.name, both_ways=False)


def _nothing(fleet: Fleet, node: Node) -> None:
    """The network's `mend` was all."""


def _eio(fleet: Fleet, node: Node) -> None:
    fleet.disk.say("eio")


def _hang(fleet: Fleet, node: Node) -> None:
    fleet.disk.say("hang")


def _mend_disk(fleet: Fleet, node: Node) -> None:
    fleet.disk.say("ok")
    if fleet.system is System.APACHE_KAFKA and isinstance(node, Broker):
        # It takes a log directory back at the next start only.
        fleet.stop([node])
        node.launch()


def _as_long_as_a_follower_may_lag(session_s: float) -> float:
    return REPLICA_LAG_MS / 1000 + _MARGIN_S


def _until_nobody_hears_from_it(session_s: float) -> float:
    """It leaves its ZooKeeper server when that has been silent for a while; only then does its session run out."""
    return 2 * session_s + _MARGIN_S


def _briefly(session_s: float) -> float:
    return min(_PAUSE_S, session_s / 2)


def _disk_time(session_s: float) -> float:
    return 10.0


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("kill-broker", _broker, _kill, _start_again),
        Fault("kill-controller", _controller, _kill, _start_again),
        Fault("kill-coordinator", _coordinator, _kill, _start_again),
        Fault("kill-zookeeper-leader", _zookeeper_leader, _kill, _start_again),
        Fault("stop-broker", _broker, _stop, _go_on),
        Fault("stop-controller", _controller, _stop, _go_on),
        Fault("stop-zookeeper-leader", _zookeeper_leader, _stop, _go_on),
        Fault("pause-broker", _broker, _stop, _go_on, _briefly),
        Fault("pause-coordinator", _coordinator, _stop, _go_on, _briefly),
        Fault("isolate-broker", _broker, _isolate, _nothing),
        Fault("isolate-controller", _controller, _isolate, _nothing),
        Fault("isolate-zookeeper-leader", _zookeeper_leader, _isolate, _nothing),
        Fault("isolate-zookeeper", _zookeeper, _isolate, _nothing),
        Fault("cut-broker-zookeeper", _broker, _cut_from_zookeeper, _nothing),
        Fault("cut-controller-zookeeper", _controller, _cut_from_zookeeper, _nothing),
        Fault("cut-broker-brokers", _broker, _cut_from_brokers, _nothing, _as_long_as_a_follower_may_lag),
        Fault("mute-broker", _broker, _mute, _nothing, _as_long_as_a_follower_may_lag),
        Fault("deafen-broker", _broker, _deafen, _nothing, _until_nobody_hears_from_it),
        Fault("disk-eio", _disk_owner, _eio, _mend_disk, _disk_time),
        Fault("disk-hang", _disk_owner, _hang, _mend_disk, _disk_time),
    )
}
"""By name, in the order of the table."""
LEADER_LOSSES = (
    "kill-broker",
    "kill-controller",
    "stop-broker",
    "stop-controller",
    "isolate-broker",
    "isolate-controller",
)
"""What makes the others elect new leaders once a session has ended: the failover that is promised a time."""
