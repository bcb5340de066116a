"""The load of a long run, in a pod, with librdkafka: idempotent producers, groups of both protocols, a copier.

fleet_load.py FILE PARTITIONS    until SIGTERM; every event goes to FILE as tests.nemesis.history writes it

The copier reads, writes and commits its offsets in one transaction. Every second a line of JSON shows the progress.
After SIGTERM everything that was sent is read and copied, all is read once more, and the last line has "done".
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.nemesis.history import Acknowledged, Event, History, Indeterminate, Polled, Transacted
from tests.nemesis.load import TOPIC, Client, Reader, SteadyProducer, read_to_the_end
from tests.nemesis.transactional import (
    COPY,
    COPY_GROUP,
    TransactionalClient,
    await_copies,
    read_transactions,
)
from tests.nemesis.transactional_client import Options

BOOTSTRAP = os.environ["BOOTSTRAP"]
PRODUCERS = 3
MEMBERS = 2
"""Of each group."""
EVERY_S = 0.25
"""Each producer sends a record to each partition so often: fewer than a small machine could take, so that what is
measured is the fleet and not the machine."""
DELIVERY_TIMEOUT_MS = 120_000
"""Kafka's default of delivery.timeout.ms."""
PAUSE_S = 0.5
END_S = 1200.0
"""After all that was broken: for what has not been read or copied yet."""


class Progress:
    """What the events so far add up to; looks at each of them once."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._seen = 0
        self._counts: Counter[str] = Counter()

    def line(self, clients: list[Client], **more: object) -> str:
        events = self._history.events(self._seen)
        self._seen += len(events)
        for event in events:
            self._counts.update(counted(event))
        errors = [error for client in clients for error in client.errors]
        return json.dumps({**self._counts, "errors": errors[:5], "at": time.time(), **more})


def counted(event: Event) -> dict[str, int]:
    """What an event adds to which figure."""
    match event:
        case Acknowledged():
            return {"acknowledged": 1}
        case Indeterminate():
            return {"failed": 1}
        case Polled(by=by, records=records):
            return {f"read {by}": len(records)}
        case Transacted(outcome=outcome):
            return {f"transactions {outcome}": 1}
        case _:
            return {}


def offer_consumer_protocol() -> None:
    """Finalizes group.version 1 (KIP-848), once for a fleet."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    if "finalized" not in admin.describe_features().get("group.version", {}):
        said = admin.update_features({"group.version": 1})
        assert said == {"group.version": "OK"}, said
    admin.close()


def run(path: Path, partitions: int) -> None:
    offer_consumer_protocol()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    history = History(path)
    producers = [
        SteadyProducer(
            f"p{number}", history, BOOTSTRAP, partitions, every_s=EVERY_S, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
        )
        for number in range(PRODUCERS)
    ]
    members = [
        Reader(f"{protocol}-{number}", history, BOOTSTRAP, partitions, f"long-{protocol}", protocol)
        for protocol in ("classic", "consumer")
        for number in range(MEMBERS)
    ]
    options = Options("copy", BOOTSTRAP, "copier", COPY, partitions, 0, 1, TOPIC, COPY_GROUP, PAUSE_S)
    copier = TransactionalClient(0, history, options)
    copier.spare()
    clients: list[Client] = [*producers, *members, copier]
    progress = Progress(history)
    for client in clients:
        client.start()
    while not stopping.wait(1.0):
        print(progress.line(clients), flush=True)
    for producer in producers:
        producer.stop()
    ends = read_to_the_end(history, BOOTSTRAP, partitions, END_S)
    for member in members:
        member.stop()
    await_copies(BOOTSTRAP, ends, END_S)
    copier.stop()
    read_transactions(history, BOOTSTRAP, ends, END_S)
    history.close()
    print(progress.line(clients, done=True), flush=True)


def main(arguments: list[str]) -> None:
    try:
        run(Path(arguments[0]), int(arguments[1]))
    except Exception:
        print(json.dumps({"ended": traceback.format_exc()}), flush=True)
        raise


if __name__ == "__main__":
    main(sys.argv[1:])
