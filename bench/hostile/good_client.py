"""A well-behaved client beside a hostile one: a process of its own that measures how long its requests wait.

    python -m bench.hostile.good_client PORT

It sends a small Metadata request every two milliseconds. For each line on its input it writes one line: the number of
requests since the last line, the 99th percentile of their times and the longest, in milliseconds. A request that is
not answered within LIMIT_S counts with that time, and the next one comes by another connection.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from bench.systems import ask
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey

_PAUSE_S = 0.002
LIMIT_S = 20.0


def main(port: int) -> None:
    metadata = codec.module(ApiKey.METADATA)
    request = metadata.MetadataRequest(topics=[])
    times: list[float] = []
    connection: socket.socket | None = None
    while True:
        started = time.monotonic()
        try:
            if connection is None:
                connection = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask(connection, ApiKey.METADATA, 1, request)
        except TimeoutError:
            if connection is not None:
                connection.close()
            connection = None
        times.append((time.monotonic() - started) * 1000)
        if not select.select([sys.stdin], [], [], _PAUSE_S)[0]:
            continue
        if not sys.stdin.readline():
            return
        times.sort()
        answer = {"count": len(times), "p99": times[int(len(times) * 0.99) - 1], "longest": times[-1]}
        print(json.dumps(answer), flush=True)
        times.clear()


if __name__ == "__main__":
    main(int(sys.argv[1]))
