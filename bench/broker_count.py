"""What more brokers on one machine give: `python -m bench.broker_count`.

A broker uses one core, and a thread for each log directory beside it, so a node of many cores runs several. Fleets of
1, 2 and 3 brokers take turns under the same load: for each broker a client of plain sockets in a process of its own,
which produces to a partition that this broker leads, acks=all, one replica. The clients need CPU time too: on two cores
they compete with the brokers, and the CPU time of a request says more than the rate.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.requests import TOPIC
from bench.systems import OURS, System

LOADS = ((1_000, 32, 60_000), (65_536, 5, 8_000))
"""(bytes of the one record of a request, requests without an answer, requests of each client and round)."""


def topic_of(broker: int) -> str:
    """The topic whose partition this broker leads."""
    return f"{TOPIC}-{broker}"


def create_topics(system: System) -> None:
    """A topic of one partition on each broker."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": system.bootstrap})
    new = [NewTopic(topic_of(number), 1, replica_assignment=[[number]]) for number in range(system.count)]
    for created in admin.create_topics(new).values():
        created.result(timeout=60)
    for number in range(system.count):
        system.wait_until_in_sync(topic_of(number), 1, 1)


def drive(system: System, record_bytes: int, in_flight: int, requests: int) -> float:
    """All clients at the same time; the sum of their rates in requests a second."""
    line = [sys.executable, "-m", "bench.requests", "drive"]
    clients = [
        subprocess.Popen(
            [*line, str(port), str(record_bytes), "1", str(in_flight), str(requests), topic_of(number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, port in enumerate(system.ports)
    ]
    rate = 0.0
    for client in clients:
        out, _ = client.communicate(timeout=600)
        if client.returncode:
            raise RuntimeError(f"a client ended with status {client.returncode}")
        rate += requests / float(out)
    return rate


def main(
    brokers: Annotated[list[int] | None, typer.Option(help="of a fleet; may be repeated; default 1, 2 and 3")] = None,
    rounds: Annotated[int, typer.Option(help="alternating between the fleets; the first is a warm-up", min=2)] = 4,
    out: Annotated[Path, typer.Option(help="where it works and writes broker_count.json")] = Path("build/bench"),
) -> None:
    """Requests and bytes a second of all brokers together, CPU of a request and memory, by number of brokers."""
    work = out.absolute() / "broker-count-work"
    fleets = {count: System(OURS, work / f"brokers-{count}", count) for count in brokers or [1, 2, 3]}
    values: dict[tuple[int, int], list[tuple[float, float]]] = {}
    memory: dict[int, float] = {}
    console = Console(stderr=True)
    try:
        for fleet in fleets.values():
            fleet.start()
            create_topics(fleet)
        turns = [(load, number, one) for load in LOADS for number in range(rounds) for one in fleets.items()]
        for (record_bytes, in_flight, requests), number, (count, fleet) in track(turns, "rounds", console=console):
            before = fleet.cpu_seconds()
            rate = drive(fleet, record_bytes, in_flight, requests)
            cpu_us = (fleet.cpu_seconds() - before) / (requests * count) * 1e6
            memory[count] = fleet.resident_bytes() / 1e6
            if number:
                values.setdefault((record_bytes, count), []).append((rate, cpu_us))
    finally:
        for fleet in fleets.values():
            fleet.stop()
    table = Table("record bytes", "brokers", "requests/s", "MB/s", "lowest–highest requests/s", "CPU µs", "MB a broker")
    for (record_bytes, count), found in values.items():
        rates, cpus = sorted(rate for rate, _ in found), sorted(cpu for _, cpu in found)
        rate, spread = rates[len(rates) // 2], f"{rates[0]:.0f}–{rates[-1]:.0f}"
        figures = (f"{rate:.0f}", f"{rate * record_bytes / 1e6:.0f}", spread, f"{cpus[len(cpus) // 2]:.0f}")
        table.add_row(str(record_bytes), str(count), *figures, f"{memory[count]:.0f}")
    Console().print(table)
    rows = [
        {"bytes": record_bytes, "brokers": count, "requests_s": rate, "cpu_us": cpu, "at": time.time()}
        for (record_bytes, count), found in values.items()
        for rate, cpu in found
    ]
    (out / "broker_count.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    typer.run(main)
