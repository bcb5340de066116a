"""The faults of a fleet: each starts, lasts for a while and is healed, independently of the others.

`FAULTS` lists them with their frequency. A fault is an `async def fault(scene)`: it draws its target and strength from
`scene.draw`, and has healed what it did when it returns. `simulation.broker_restarts` restarts brokers that end;
`simulation.administration` has the actions of an administrator.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ottla_broker.coordination import znodes
from simulation.broker_restarts import BrokerRestarts
from simulation.client import Client
from simulation.cluster import SimulatedBroker, SimulatedFleet
from simulation.filesystem import DiskImage
from simulation.oracle import Oracle
from simulation.world import World


@dataclass
class Scene:
    """What a fault may strike. `draw` is the fault's own stream."""

    world: World
    fleet: SimulatedFleet
    restarts: BrokerRestarts
    oracle: Oracle
    clients: list[Client]
    draw: random.Random

    def broker(self) -> SimulatedBroker:
        return self.draw.choice(self.fleet.brokers)

    async def last(self, *typical_s: float) -> None:
        """A while: one of these, more or less."""
        await asyncio.sleep(self.draw.choice(typical_s) * (0.2 + self.draw.random()))


_LONGEST_STOP_S = 120.0

Fault = Callable[[Scene], Awaitable[None]]


# -- network ----------------------------------------------------------------------------------------------------------


async def delay(scene: Scene) -> None:
    """Every message of a host takes longer, so that those of different connections overtake each other."""
    host = scene.broker().host
    scene.fleet.fabric.slow(host, scene.draw.choice((0.02, 0.3, 2.0)))
    await scene.last(1.0, 4.0)
    scene.fleet.fabric.slow(host, 0.0)


async def loss(scene: Scene) -> None:
    """Messages are lost: the connections that carried them break."""
    for _ in range(scene.draw.choice((1, 1, 4))):
        scene.fleet.fabric.break_some(scene.draw.choice((0.1, 0.5, 1.0)))
        await scene.last(0.05, 0.5)


async def cut_between_brokers(scene: Scene) -> None:
    """Two brokers do not reach each other, or only one the other."""
    one, other = scene.draw.sample(scene.fleet.brokers, 2)
    await _cut(scene, [(one.host, other.host)], scene.draw.random() < 0.5)


async def isolation(scene: Scene) -> None:
    """A broker reaches no other broker, or is reached by none; the coordination store it may still reach."""
    one = scene.broker()
    pairs = [(one.host, other.host) for other in scene.fleet.brokers if other is not one]
    await _cut(scene, pairs, scene.draw.random() < 0.5)


async def split(scene: Scene) -> None:
    """The brokers fall into two halves; one of them loses the coordination store too."""
    brokers = list(scene.fleet.brokers)
    scene.draw.shuffle(brokers)
    cut = scene.draw.randrange(1, len(brokers))
    seconds = scene.draw.choice((1.0, 3.0, 8.0)) * (0.2 + scene.draw.random())
    for broker in brokers[:cut]:
        if broker.coordination is not None and broker.is_up:
            scene.fleet.store.disconnect(broker.coordination, seconds)
    await _cut(scene, [(one.host, other.host) for one in brokers[:cut] for other in brokers[cut:]], False, seconds)


async def cut_from_clients(scene: Scene) -> None:
    """The clients do not reach a broker, or are not reached by it."""
    broker = scene.broker()
    pairs = [(broker.host, client.host) for client in scene.clients]
    await _cut(scene, pairs, scene.draw.random() < 0.5)


async def cut_from_coordination(scene: Scene) -> None:
    """A broker loses the coordination store, for less or longer than its session lasts."""
    broker = scene.broker()
    if broker.coordination is not None and broker.is_up:
        seconds = scene.draw.choice((0.2, 1.0, 6.0)) * (0.2 + scene.draw.random())
        scene.fleet.store.disconnect(broker.coordination, seconds)
        await asyncio.sleep(seconds)


async def _cut(scene: Scene, pairs: list[tuple[str, str]], is_one_way: bool, seconds: float | None = None) -> None:
    fabric, draw = scene.fleet.fabric, scene.draw
    if is_one_way:
        pairs = [draw.choice((pair, pair[::-1])) for pair in pairs]
    else:
        pairs = [way for pair in pairs for way in (pair, pair[::-1])]
    for source, target in pairs:
        fabric.cut(source, target)
    if seconds is None:
        await scene.last(0.5, 2.0, 6.0)
    else:
        await asyncio.sleep(seconds)
    is_lost = draw.random() < 0.4
    for source, target in pairs:
        fabric.mend(source, target, is_lost=is_lost)


# -- processes and power ----------------------------------------------------------------------------------------------


async def crash(scene: Scene) -> None:
    """kill -9, now or between any two calls of a disk."""
    broker = scene.broker()
    await scene.restarts.until_gone(broker, scene.draw, broker.crash)


async def crash_of_the_controller(scene: Scene) -> None:
    broker = scene.fleet.controller()
    if broker is not None:
        await scene.restarts.until_gone(broker, scene.draw, broker.crash)


async def power_loss(scene: Scene) -> None:
    """What was not synced is gone, or torn."""
    broker = scene.broker()
    await scene.restarts.until_gone(broker, scene.draw, lambda: scene.oracle.power_is_lost(broker, broker.cut_power))


async def power_loss_of_several(scene: Scene) -> None:
    """A rack, or all of them."""
    brokers = scene.draw.sample(scene.fleet.brokers, scene.draw.randrange(2, len(scene.fleet.brokers) + 1))
    for broker in brokers:
        scene.oracle.power_is_lost(broker, broker.cut_power)
    for broker in brokers:
        await scene.restarts.has_ended(broker, scene.draw)


async def graceful_shutdown(scene: Scene) -> None:
    """SIGTERM: the broker moves its leaderships and stops in order, if nothing comes between."""
    broker = scene.broker()
    if broker.is_up and broker.is_ready:
        scene.restarts.stopping[broker.broker_id] = None
        try:
            async with asyncio.timeout(_LONGEST_STOP_S):
                await broker.stop_gracefully()
        except TimeoutError:
            scene.world.problem(f"broker {broker.broker_id} has not stopped {_LONGEST_STOP_S} s after SIGTERM")
        await scene.restarts.has_ended(broker, scene.draw)


# -- disks ------------------------------------------------------------------------------------------------------------


def _disk(scene: Scene) -> tuple[SimulatedBroker, DiskImage]:
    broker = scene.broker()
    scene.world.has_failed_disk = True
    return broker, broker.machine.disks[scene.draw.choice(broker.paths)]


async def disk_error(scene: Scene) -> None:
    """From some call on every one fails with EIO."""
    broker, image = _disk(scene)
    with scene.restarts.may_halt(broker):
        image.fails_in = scene.draw.choice((1, 10, 50)) * scene.draw.randrange(10)
        await scene.last(1.0, 5.0)
        image.fails_in = None
        failed, image.failure = image.failure == errno.EIO, None
        if failed:
            await scene.restarts.directory_returns(broker)


async def disk_full(scene: Scene) -> None:
    """Nothing more fits, or little."""
    broker, image = _disk(scene)
    with scene.restarts.may_halt(broker):
        image.capacity_bytes = image.used_bytes() + scene.draw.choice((0, 1, 500, 5000))
        await scene.last(1.0, 5.0)
        image.capacity_bytes = 1 << 40


async def disk_hangs(scene: Scene) -> None:
    """No call is answered, for less or longer than ottla.log.dir.io.timeout.ms."""
    broker, image = _disk(scene)
    with scene.restarts.may_halt(broker):
        image.is_hung = True
        await scene.last(0.5, 2.0, 8.0)
        image.is_hung = False
        await scene.restarts.directory_returns(broker)


async def disk_slow(scene: Scene) -> None:
    """Every call takes up to so much longer."""
    _, image = _disk(scene)
    image.slow_s = scene.draw.choice((0.005, 0.05, 0.3))
    await scene.last(1.0, 4.0)
    image.slow_s = 0.0


# -- coordination, controller, clocks ---------------------------------------------------------------------------------


async def session_expiry(scene: Scene) -> None:
    broker = scene.broker()
    if broker.coordination is not None and broker.is_up:
        scene.fleet.store.expire(broker.coordination.session_id)


async def slow_coordination(scene: Scene) -> None:
    scene.fleet.store.slow_s = scene.draw.choice((0.02, 0.2, 0.5))
    await scene.last(1.0, 3.0)
    scene.fleet.store.slow_s = 0.0


async def controller_flapping(scene: Scene) -> None:
    """The office changes hands again and again: its node is deleted, or the session of its holder ends."""
    for _ in range(scene.draw.choice((1, 2, 5))):
        controller = scene.fleet.controller()
        if controller is None or controller.coordination is None or scene.draw.random() < 0.5:
            scene.fleet.store.remove(znodes.CONTROLLER)
        else:
            scene.fleet.store.expire(controller.coordination.session_id)
        await scene.last(0.05, 0.5)


async def clock_jump(scene: Scene) -> None:
    """The wall clock of a machine jumps, either way."""
    machine = scene.broker().machine
    by_ms = scene.draw.choice((-1, 1)) * scene.draw.randrange(10, scene.draw.choice((1000, 60_000, 10 * 3_600_000)))
    scene.world.trace.event("clock", machine.name, by_ms)
    machine.clock_skew_ms += by_ms


FAULTS: dict[str, tuple[int, Fault]] = {
    "delay": (2, delay),
    "loss": (2, loss),
    "cut between brokers": (3, cut_between_brokers),
    "isolation": (3, isolation),
    "split": (2, split),
    "cut from clients": (1, cut_from_clients),
    "cut from coordination": (3, cut_from_coordination),
    "crash": (4, crash),
    "crash of the controller": (2, crash_of_the_controller),
    "power loss": (4, power_loss),
    "power loss of several": (1, power_loss_of_several),
    "graceful shutdown": (3, graceful_shutdown),
    "disk EIO": (2, disk_error),
    "disk full": (2, disk_full),
    "disk hangs": (2, disk_hangs),
    "disk slow": (2, disk_slow),
    "session expiry": (3, session_expiry),
    "slow coordination": (1, slow_coordination),
    "controller flapping": (3, controller_flapping),
    "clock jump": (1, clock_jump),
}
"""Name → (how often it is drawn, what it does)."""


def draw_fault(draw: random.Random, faults: dict[str, tuple[int, Fault]]) -> tuple[str, Fault]:
    (name,) = draw.choices(list(faults), [weight for weight, _ in faults.values()])
    return name, faults[name][1]
