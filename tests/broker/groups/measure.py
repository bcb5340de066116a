"""Prints what groups cost on this machine: `python -m tests.broker.groups.measure`, from the checkout.

The log is in memory (its batches are real), so this is the coordinator's own work.
"""

from __future__ import annotations

import time

from ottla_broker.groups.consumer.assignors.assignor import MemberSubscription
from ottla_broker.groups.consumer.assignors.uniform_assignor import assign_uniform
from ottla_broker.groups.consumer.group_requests import GroupHeartbeat
from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.ports.clock import Clock
from ottla_broker.records.ids import TopicPartition
from tests.broker.groups.surroundings import Broker, in_virtual_time

TOPICS = tuple(bytes([number]) * 16 for number in range(10))
PARTITIONS = dict.fromkeys(TOPICS, 1_000)


async def measure(clock: Clock) -> None:
    broker = Broker(clock)
    broker.log.delay_s = 0.0
    await broker.loaded()
    for count in (1, 10, 100):
        commits = {
            TopicPartition("topic-name", index): CommittedOffset(12_345, 3, "", clock.now_ms())
            for index in range(count)
        }
        rounds = 200 + 3_000 // count
        started = time.perf_counter()
        for _ in range(rounds):
            await broker.coordinator.commit("simple", "", None, -1, commits)
        print(f"commit of {count} partitions: {(time.perf_counter() - started) / rounds * 1e6:.0f} µs")

    (member,) = await broker.stable_group("g", 1)
    started = time.perf_counter()
    for _ in range(20_000):
        broker.coordinator.heartbeat("g", member, None, 1)
    print(f"heartbeat: {(time.perf_counter() - started) / 20_000 * 1e6:.1f} µs")

    batches = sum(len(each) for each in broker.log.batches.values())
    broker.coordinator.close()
    started = time.perf_counter()
    successor = Broker(clock, broker.log, epoch=1)
    await successor.loaded()
    print(f"loading {batches} batches: {time.perf_counter() - started:.2f} s")

    for count in (1_000, 5_000):
        started = time.perf_counter()
        await successor.stable_group(f"of {count}", count)
        print(f"rebalance of {count} members: {time.perf_counter() - started:.2f} s")

    await measure_consumer_groups(successor)


async def measure_consumer_groups(broker: Broker) -> None:
    joining = GroupHeartbeat("m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("t",), owned={})
    await broker.coordinator.consumer_heartbeat("consumers", joining, 1)
    started = time.perf_counter()
    for _ in range(20_000):
        await broker.coordinator.consumer_heartbeat("consumers", GroupHeartbeat("m", 1), 1)
    print(f"heartbeat of the consumer protocol: {(time.perf_counter() - started) / 20_000 * 1e6:.1f} µs")

    members: dict[str, MemberSubscription] = {f"m{number}": MemberSubscription(TOPICS) for number in range(1_000)}
    print_assignment("target assignment of 10000 partitions to 1000 members", members)
    assigned = assign_uniform(members, PARTITIONS)
    members = {name: MemberSubscription(TOPICS, None, assigned.get(name, {})) for name in [*members, "new"]}
    print_assignment("the same when a member joins", members)
    half = TOPICS[:5]
    members = {
        name: MemberSubscription(half if index % 2 else TOPICS, None, member.assignment)
        for index, (name, member) in enumerate(members.items())
    }
    print_assignment("the same with different subscriptions", members)


def print_assignment(what: str, members: dict[str, MemberSubscription]) -> None:
    started = time.perf_counter()
    assign_uniform(members, PARTITIONS)
    print(f"{what}: {(time.perf_counter() - started) * 1e3:.0f} ms")


if __name__ == "__main__":
    in_virtual_time(measure)
