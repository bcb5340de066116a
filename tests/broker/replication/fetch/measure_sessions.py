"""Measures a fetch with and without a session.

    python -m tests.broker.replication.fetch.measure_sessions [partitions]

One broker with real logs and sockets; of the partitions one has a record for the client. Prints milliseconds of
processor time per fetch, the client's (which decodes the response) included.
"""

import asyncio
import pathlib
import statistics
import sys
import tempfile
import time

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated import fetch as fetch_api
from tests.broker.replication.fleet import Fleet

SAMPLES = 7


def request(fleet, partitions, session_id=0, session_epoch=-1):
    parts = [fetch_api.FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in partitions]
    topic = fetch_api.FetchTopic(topic="t", topic_id=fleet.topics["t"].topic_id, partitions=parts)
    return fetch_api.FetchRequest(
        session_id=session_id,
        session_epoch=session_epoch,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[topic] if parts else [],
    )


async def measure(name, fetches, ask) -> None:
    """The median of a few samples of so many fetches each."""
    samples = []
    for _ in range(SAMPLES):
        before = time.process_time()
        for _ in range(fetches):
            response = await ask()
            assert response.error_code == 0
        samples.append((time.process_time() - before) / fetches * 1000)
    print(f"{name:<34} {statistics.median(samples):8.3f} ms")


async def main(count) -> None:
    with tempfile.TemporaryDirectory() as directory:
        fleet = Fleet(pathlib.Path(directory))
        await fleet.start(1)
        await fleet.create("t", (1,), partitions=count)
        await fleet.produce(1, "t", "a record", index=count // 2)
        client = await fleet.client(1)

        def ask(asked):
            return client.send(int(ApiKey.FETCH), 17, asked)

        everything = request(fleet, range(count))
        await measure(f"{count} partitions, no session", 30, lambda: ask(everything))
        one = request(fleet, [count // 2])
        await measure("1 partition, no session", 500, lambda: ask(one))
        opened = await ask(request(fleet, range(count), 0, 0))
        if opened.session_id:
            epoch = 0

            def go_on():
                nonlocal epoch
                epoch += 1
                return ask(request(fleet, [], opened.session_id, epoch))

            await measure(f"{count} partitions in a session", 500, go_on)
        client.close()
        fleet.stop()


asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
