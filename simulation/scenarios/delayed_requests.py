"""Three brokers, and one order or answer between a controller and a broker that arrives after the world has moved on.

Chance brings such orders of events about too rarely to prove that they are harmless. Here each seed aims at one of
them; who it strikes and how long everything takes is drawn.

    answer    a broker's answer that a topic is deleted reaches a controller that has been replaced and has not heard of
              it; its successor has finished the deletion, and the topic has been created again
    order     the same, and it is the order to delete that arrives late
    repeated  nobody is replaced: the connection that carries the order hangs, its controller gives it up and repeats
              the order over another one, and the first copy arrives when the topic has been created again
    joiner    a leader asks for a follower to be taken into the ISR; before the controller reads it, that follower has
              lost power, and with it what it had, and lives again. Then the leader's session ends
    unanswered
              the answer that takes a follower into the ISR never comes to the leader, who does not hear of that
              follower again either; then the leader's session ends
    leader    a broker is made leader, loses power before it hears so, and the order is repeated to its next life

Whatever a replaced controller still wants must be refused, and so must what names an earlier life of a broker. The
oracle model is checked as in the scenario `fleet`; nothing is lost here but what the model gives up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ottla_broker.coordination import znodes
from ottla_broker.protocol.api import ApiKey
from ottla_broker.replication.isr import Change
from simulation.checker import Checker, Partition, Violation
from simulation.client import Client
from simulation.cluster import CLIENT_PORT, SimulatedBroker, SimulatedFleet
from simulation.leaderships import Leaderships
from simulation.oracle import Oracle
from simulation.scenarios.fleet import brokers_agree, checked, heal, watch
from simulation.scenarios.replicated import all_in_sync, replicas_are_equal
from simulation.scenarios.single import broker_settings, verify
from simulation.workload import Workload, create_topic, delete_topic
from simulation.world import World

TOPIC = "late"
PARTITION: Partition = (TOPIC, 0)
_WITHIN_S = 15.0
"""What does not come about by then, does not in this run: a note says so, and the run goes on to its end."""
_LOOK_S = 0.002
_REPEATED = _UNANSWERED = 0.15
"""The parts of the seeds that play these instead of one of the others."""


@dataclass
class Stage:
    """What a plot plays with."""

    world: World
    fleet: SimulatedFleet
    leaderships: Leaderships
    oracle: Oracle
    workload: Workload
    client: Client
    draw: random.Random

    async def until(self, holds: Callable[[], bool], what: str) -> bool:
        """Waits for something to come about; False, with a note, when it does not."""
        deadline = self.world.loop.time() + _WITHIN_S
        while not holds():
            if self.world.loop.time() > deadline:
                self.world.note(f"it never came about that {what}")
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def wait(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self.draw.uniform(least_s, most_s))

    async def roles(self) -> tuple[SimulatedBroker, SimulatedBroker, SimulatedBroker]:
        """(the controller, another broker, the third)."""
        await self.until(lambda: self.fleet.controller() is not None, "somebody is controller")
        controller = self.fleet.controller()
        assert controller is not None
        others = [broker for broker in self.fleet.brokers if broker is not controller]
        self.draw.shuffle(others)
        return controller, others[0], others[1]

    async def create(self, replicas: Sequence[SimulatedBroker], configs: dict[str, str] | None = None) -> None:
        """The topic of the plot, of one partition, with a producer and a consumer."""
        ids = [broker.broker_id for broker in replicas]
        await create_topic(self.workload, self.client, TOPIC, 1, len(ids), configs or {}, assignment=[ids])
        self.workload.add_producer(self.client, PARTITION, acks=-1, is_idempotent=True)
        self.workload.add_consumer(self.client, PARTITION)

    def cut(self, *ways: tuple[SimulatedBroker, SimulatedBroker]) -> None:
        for source, target in ways:
            self.fleet.fabric.cut(source.host, target.host)

    def mend(self, *ways: tuple[SimulatedBroker, SimulatedBroker]) -> None:
        for source, target in ways:
            self.fleet.fabric.mend(source.host, target.host)

    def lose_power(self, broker: SimulatedBroker) -> None:
        self.oracle.power_is_lost(broker, broker.cut_power)

    def expire(self, broker: SimulatedBroker) -> None:
        assert broker.coordination is not None
        self.fleet.store.expire(broker.coordination.session_id)

    def session(self, broker: SimulatedBroker) -> int:
        """The session under which the broker is registered, 0 when it is not."""
        return self.fleet.store.owner(znodes.BrokerRegistration.path(broker.broker_id))


# -- two controllers delete one topic ---------------------------------------------------------------------------------


async def answer(stage: Stage) -> None:
    """See the module."""
    former, other, third = await stage.roles()
    await _create_empty(stage, [former, other, third])
    # Its deletion takes a while, so that the link can fail between the order and the answer.
    image = other.machine.disks[stage.draw.choice(other.paths)]
    image.slow_s = 0.3
    asking = await _begin_deletion(stage, former, other, third)
    stage.cut((other, former))
    await _succeeded_by(stage, former, third)
    image.slow_s = 0.0
    await _deleted_and_created(stage)
    stage.mend((other, former))
    await _hears_at_last(stage, former, asking)


async def order(stage: Stage) -> None:
    """See the module."""
    former, other, third = await stage.roles()
    await _create_empty(stage, [former, other, third])
    stage.cut((former, other))
    asking = await _begin_deletion(stage, former, third)
    await _succeeded_by(stage, former, third)
    await _deleted_and_created(stage)
    stage.mend((former, other))
    await _hears_at_last(stage, former, asking)


async def repeated(stage: Stage) -> None:
    """See the module."""
    controller, other, third = await stage.roles()
    await _create_empty(stage, [controller, other, third])
    let_go = stage.fleet.fabric.hold(controller.host, other.host, int(ApiKey.STOP_REPLICA))
    asking = await _begin_deletion(stage, controller, other, third)
    await _deleted_and_created(stage)
    let_go()
    await stage.wait(0.1, 0.6)
    await asking


async def _create_empty(stage: Stage, replicas: list[SimulatedBroker]) -> None:
    stage.draw.shuffle(replicas)
    ids = [broker.broker_id for broker in replicas]
    await create_topic(stage.workload, stage.client, TOPIC, 1, 3, {}, assignment=[ids])
    await all_in_sync(stage.fleet, stage.client, stage.workload.checker)


async def _begin_deletion(stage: Stage, *obeying: SimulatedBroker) -> asyncio.Task[bool]:
    """Returns when these brokers have been told to delete the topic, and use it no more."""
    asking = stage.world.spawn(delete_topic(stage.workload, stage.client, TOPIC), name="deletion")

    def is_gone() -> bool:
        return all(replica.topic != TOPIC for broker in obeying for replica in broker.partitions())

    await stage.until(is_gone, "the brokers delete the topic")
    return asking


async def _succeeded_by(stage: Stage, former: SimulatedBroker, successor: SimulatedBroker) -> None:
    """Another broker, which reaches all, is controller; the former one hears of nothing."""
    assert former.coordination is not None
    former.coordination.hold()
    while stage.fleet.controller() is not successor:
        stage.fleet.store.remove(znodes.CONTROLLER)
        if not await stage.until(lambda: stage.fleet.controller() not in (None, former), "another is controller"):
            return


async def _deleted_and_created(stage: Stage) -> None:
    topic = znodes.topic_path(TOPIC)
    if await stage.until(lambda: stage.fleet.store.data(topic) is None, "the topic is deleted"):
        replicas = list(stage.fleet.brokers)
        stage.draw.shuffle(replicas)
        await stage.create(replicas)
        await stage.wait(0.1, 0.8)


async def _hears_at_last(stage: Stage, former: SimulatedBroker, asking: asyncio.Task[bool]) -> None:
    await stage.wait(0.1, 0.6)
    assert former.coordination is not None
    former.coordination.let_go()
    await asking
    await stage.wait(0.2, 0.5)


# -- a broker's former incarnation ----------------------------------------------------------------------------------


async def joiner(stage: Stage) -> None:
    """See the module."""
    controller, leader, follower = await stage.roles()
    between = ((leader, follower), (follower, leader))
    await stage.create([leader, follower], {"min.insync.replicas": "1"})
    await all_in_sync(stage.fleet, stage.client, stage.workload.checker)
    await stage.wait(0.1, 1.0)
    stage.cut(*between)
    await stage.until(lambda: stage.leaderships.states[PARTITION].in_sync == (leader.broker_id,), "the ISR has shrunk")
    await stage.wait(0.2, 1.0)
    stage.cut((leader, controller))
    stage.mend(*between)
    if await stage.until(lambda: _asks_for_more(leader), "the leader asks for its follower"):
        stage.lose_power(follower)
        session = stage.session(follower)
        await stage.wait(0.02, 0.3)
        stage.cut(*between)
        follower.start()
        await stage.until(lambda: stage.session(follower) not in (0, session), "the follower is registered again")
        await stage.wait(0.02, 0.3)
        stage.mend((leader, controller))
        await stage.wait(0.05, 0.5)
        stage.expire(leader)
        await stage.wait(0.2, 1.0)
        stage.mend(*between)
        await follower.wait_started()
    else:
        stage.mend((leader, controller))


async def unanswered(stage: Stage) -> None:
    """See the module."""
    controller, leader, follower = await stage.roles()
    between = ((leader, follower), (follower, leader))
    await stage.create([leader, follower], {"min.insync.replicas": "1"})
    await all_in_sync(stage.fleet, stage.client, stage.workload.checker)
    stage.cut(*between)
    await stage.until(lambda: stage.leaderships.states[PARTITION].in_sync == (leader.broker_id,), "the ISR has shrunk")
    await stage.wait(0.2, 1.0)
    stage.cut((controller, leader))
    stage.mend(*between)
    await stage.until(lambda: len(stage.leaderships.states[PARTITION].in_sync) > 1, "the follower has joined the ISR")
    stage.cut(*between)
    await stage.wait(0.7, 1.5)  # until the leader waits for the answer no longer
    stage.mend((controller, leader))
    await stage.wait(0.5, 3.0)
    stage.expire(leader)
    await stage.wait(0.2, 1.0)
    stage.mend(*between)


def _asks_for_more(leader: SimulatedBroker) -> bool:
    return any(
        (replica.topic, replica.index) == PARTITION and replica.in_sync.change is Change.EXPAND
        for replica in leader.partitions()
    )


async def leader(stage: Stage) -> None:
    """See the module."""
    controller, first, second = await stage.roles()
    await stage.create([first, second, controller])
    await all_in_sync(stage.fleet, stage.client, stage.workload.checker)
    await stage.wait(0.3, 1.5)
    stage.cut((controller, second))
    stage.expire(first)
    is_elected = await stage.until(
        lambda: stage.leaderships.states[PARTITION].leader == second.broker_id, "the second replica is to lead"
    )
    await stage.wait(0.02, 0.3)
    if is_elected:
        stage.lose_power(second)
        assert controller.coordination is not None
        controller.coordination.hold()
        await stage.wait(0.02, 0.3)
        second.start()
        listener = (second.host, CLIENT_PORT)
        await stage.until(lambda: listener in stage.fleet.fabric.listeners, "the second broker listens again")
    stage.mend((controller, second))
    if is_elected:
        await stage.wait(0.5, 2.0)
        assert controller.coordination is not None
        controller.coordination.let_go()
        await second.wait_started()


ORDERS: tuple[Callable[[Stage], Awaitable[None]], ...] = (answer, order, joiner, leader)


async def run(world: World) -> Checker:
    draw = world.stream("scenario")
    plot = draw.choice(ORDERS)
    other = world.stream("plot").random()
    if other < _REPEATED:
        plot = repeated
    elif other < _REPEATED + _UNANSWERED:
        plot = unanswered
    world.note(f"{plot.__name__}, flush.messages not 1")
    settings = broker_settings(draw, flush_every_message=False) | {
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "replica.lag.time.max.ms": "1000",
        "replica.fetch.wait.max.ms": str(draw.choice((50, 500))),
        "replica.socket.timeout.ms": "3000",
        # To the next life of a broker leads another connection: the first has to be given up.
        "controller.socket.timeout.ms": "600" if plot in (leader, repeated, unanswered) else "10000",
        "zookeeper.session.timeout.ms": "6000",
    }
    settings.pop("log.flush.interval.messages", None)  # a loss of power is to take something
    fleet = SimulatedFleet(world, 3, settings)
    checker, leaderships, oracle, workload = checked(world, fleet, is_flushed=False)
    client = Client(world, fleet.fabric, "client-1", "10.1.0.1", fleet.bootstrap)
    await fleet.start()
    watching = world.spawn(watch(oracle), name="oracle")
    if await create_topic(workload, client, "other", 2, 3, {}):
        for number in range(2):
            workload.add_producer(client, ("other", number), acks=-1, is_idempotent=True)
    await plot(Stage(world, fleet, leaderships, oracle, workload, client, draw))
    workload.check()
    heal(fleet)
    await _all_is_well(fleet, workload, client)
    await brokers_agree(fleet, leaderships)
    # Brokers go on with a topic that only they remember: whoever is controller next would not know it.
    gone = [topic for topic in sorted(checker.topics) if fleet.store.data(znodes.topic_path(topic)) is None]
    if gone:
        raise Violation(f"nobody has deleted {', '.join(gone)}, and the coordination store has them no more")
    fleet.store.remove(znodes.CONTROLLER)
    await asyncio.sleep(0.5 + draw.random())
    await _all_is_well(fleet, workload, client)
    oracle.look()
    watching.cancel()
    return checker


async def _all_is_well(fleet: SimulatedFleet, workload: Workload, client: Client) -> None:
    await all_in_sync(fleet, client, workload.checker)
    await verify(fleet, workload, client)
    await all_in_sync(fleet, client, workload.checker)
    await replicas_are_equal(fleet, client, workload.checker)
