"""Prints what groups cost on this machine: `python -m tests.broker.groups.measure`, from the checkout.

The log is in memory (its batches are real), so this is the coordinator's own work.
"""

from __future__ import annotations

import time

from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.ports.clock import Clock
from ottla_broker.records.ids import TopicPartition
from tests.broker.groups.surroundings import Broker, in_virtual_time


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


if __name__ == "__main__":
    in_virtual_time(measure)
