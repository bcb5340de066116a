"""How long the controller takes for big events: `python -m tests.broker.controller.measure [partitions]`.

Five brokers, replication factor 3, embedded coordination store, channels that encode, decode and answer. Prints
seconds, and the longest time that the event loop did nothing else meanwhile.
"""

import asyncio
import pathlib
import sys
import tempfile
import time

from ottla_broker.controller.decisions.topic_plans import NewTopic
from ottla_broker.protocol.api import ApiKey
from tests.broker.controller.fleet import Fleet, fleet_of

WAIT_MS = 60_000


class Stall:
    """The longest gap between two turns of the loop."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.perf_counter() - before)

    def stop(self) -> None:
        self._task.cancel()


async def timed(name, act) -> None:
    stall = Stall()
    await asyncio.sleep(0)
    started = time.perf_counter()
    await act
    taken = time.perf_counter() - started
    stall.stop()
    print(f"{name:<36} {taken:6.2f} s   longest stall {stall.longest:5.2f} s")


async def main(partitions) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Fleet(pathlib.Path(directory)) as fleet:
            controller, channels = await fleet_of(fleet, 5)

            async def create() -> None:
                await controller.create_topics([NewTopic("t", partitions, 3)], timeout_ms=WAIT_MS)

            async def die() -> None:
                channels.forget()
                await fleet.kill(3)
                await channels.until(lambda: channels.requests(4, ApiKey.LEADER_AND_ISR), 60)

            async def come_back() -> None:
                await fleet.register(3)
                await channels.until(lambda: channels.requests(3, ApiKey.LEADER_AND_ISR), 60)

            async def delete() -> None:
                await controller.delete_topics(["t"], timeout_ms=WAIT_MS)
                await fleet.until_gone("/admin/delete_topics/t")

            async def take_over() -> None:
                await fleet.kill(0)
                await fleet.start_controller(1)

            print(f"{partitions} partitions")
            await timed("create a topic", create())
            await timed("a broker dies", die())
            await timed("it comes back", come_back())
            await timed("delete the topic", delete())
            await create()
            await timed("another controller takes over", take_over())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
