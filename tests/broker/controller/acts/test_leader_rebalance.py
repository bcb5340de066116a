"""Which brokers the controller's own check of preferred leaders elects, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from ottla_broker.config import BrokerConfig
from ottla_broker.controller.acts.leader_rebalance import FIRST_RUN_S, LeaderRebalance
from ottla_broker.controller.acts.requested_elections import ElectionType
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.values import LeaderAndIsr, RegisteredBroker, ReplicaAssignment, Topic
from ottla_broker.records.ids import TopicPartition


class Check:
    """The check of a controller of three brokers: broker 2 leads the partition that prefers broker 1."""

    def __init__(self) -> None:
        self.context = ControllerContext(1, 0)
        for broker in (1, 2, 3):
            self.register(broker, epoch=7)
        self.context.add_topic(Topic("t", None, {0: ReplicaAssignment((1, 2))}))
        self.context.leadership[TopicPartition("t", 0)] = LeaderAndIsr(2, 3, (1, 2), 5, 1)
        self.elected: list[TopicPartition] = []
        self.delays: list[float] = []
        self._timers: list[Callable[[], None]] = []
        self._acts: list[Callable[[], Awaitable[None]]] = []
        self.rebalance = LeaderRebalance(
            context=self.context,
            clock=self,  # type: ignore[arg-type]
            config=BrokerConfig.from_mapping({"broker.id": "1"}),
            elections=self,  # type: ignore[arg-type]
            queue=lambda name, act: self._acts.append(act),
        )

    def register(self, broker: int, *, epoch: int) -> None:
        self.context.brokers[broker] = RegisteredBroker(broker, epoch, ())

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.delays.append(delay_s)
        self._timers.append(callback)

    async def elect(self, partitions: Collection[TopicPartition], kind: ElectionType) -> None:
        self.elected += partitions

    async def run(self) -> None:
        self._timers.pop()()
        await self._acts.pop()()


async def test_a_broker_that_has_just_registered_is_elected_five_seconds_later() -> None:
    """A controller that restarts takes over five seconds before the brokers that restarted with it are reachable."""
    check = Check()
    check.rebalance.start()
    check.register(1, epoch=8)
    await check.run()
    assert check.elected == []
    await check.run()
    assert check.elected == [TopicPartition("t", 0)]
    assert check.delays == [FIRST_RUN_S, FIRST_RUN_S, 300.0]


async def test_a_broker_that_is_there_at_the_failover_is_elected_in_the_first_run() -> None:
    check = Check()
    check.rebalance.start()
    await check.run()
    assert check.elected == [TopicPartition("t", 0)] and check.delays == [FIRST_RUN_S, 300.0]


async def test_a_new_broker_that_leads_all_that_prefers_it_costs_no_further_run() -> None:
    check = Check()
    check.rebalance.start()
    check.register(3, epoch=8)
    await check.run()
    assert check.elected == [TopicPartition("t", 0)] and check.delays == [FIRST_RUN_S, 300.0]
