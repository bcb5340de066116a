"""The cost of one produce request, with a client of plain sockets: `python -m bench.requests --in-flight 5`.

Kafka's and librdkafka's clients choose the size of a request themselves. Here the bytes are the same for every system,
so that the CPU per request is comparable. The client sends one frame repeatedly and keeps `in_flight` requests
outstanding. It runs in its own process, and its CPU is not counted.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.page_cache import PageCache
from bench.systems import APACHE_KAFKA, NULL_BROKER, OURS, System, ask
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.record import Record, build_batch

PRODUCE_VERSION = 9
TOPIC = "requests"


def request(record_bytes: int, partitions: int = 1, topic: str = TOPIC) -> Any:
    """Produce with acks=all: for each partition one batch with one record of `record_bytes` that nothing compresses."""
    module = codec.module(ApiKey.PRODUCE)
    batch = build_batch([Record(0, 1_000, None, os.urandom(record_bytes))])
    data = [module.PartitionProduceData(index=index, records=memoryview(batch)) for index in range(partitions)]
    return module.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[module.TopicProduceData(name=topic, partition_data=data)],
    )


def drive(port: int, record_bytes: int, partitions: int, in_flight: int, requests: int, topic: str = TOPIC) -> float:
    """Sends `requests` of them; seconds from the first to the last answer. ValueError when one is refused."""
    message = request(record_bytes, partitions, topic)
    chunks = codec.frame_request(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "bench", message)
    frame = b"".join(chunk for chunk in chunks if isinstance(chunk, bytes | bytearray | memoryview))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = ask(connection, ApiKey.PRODUCE, PRODUCE_VERSION, message)
        errors = {partition.error_code for partition in answer.responses[0].partition_responses}
        if error := max(errors):
            raise ValueError(f"the broker refuses the request with error code {error}")
        connection.sendall(frame)
        answer_bytes = 4 + struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        connection.recv(answer_bytes - 4, socket.MSG_WAITALL)
        started = time.perf_counter()
        for _ in range(in_flight):
            connection.sendall(frame)
        sent, answered, pending = in_flight, 0, 0
        while answered < requests:
            received = len(connection.recv(65_536))
            if not received:
                raise ValueError("the broker closed the connection")
            whole, pending = divmod(pending + received, answer_bytes)
            answered += whole
            for _ in range(min(whole, requests - sent)):
                connection.sendall(frame)
                sent += 1
        return time.perf_counter() - started


def main(
    in_flight: Annotated[list[int] | None, typer.Option(help="requests without an answer; may be repeated")] = None,
    record_bytes: Annotated[int, typer.Option("--bytes", help="of the one record for a partition")] = 100,
    partitions: Annotated[int, typer.Option(help="in a request, each with a batch of one record")] = 1,
    requests: Annotated[int, typer.Option(help="per round")] = 100_000,
    rounds: Annotated[int, typer.Option(help="alternating between the systems; the first is a warm-up")] = 4,
    system: Annotated[list[str] | None, typer.Option(help="ours, null_broker, apache_kafka; default: all")] = None,
    against: Annotated[str | None, typer.Option(help="KEY=VALUE: a further broker of ours with this property")] = None,
    against_command: Annotated[
        str | None,
        typer.Option(help="a further broker of ours, run by this command with the properties file behind it"),
    ] = None,
    out: Annotated[Path, typer.Option(help="where it works and writes requests.json")] = Path("build/bench"),
) -> None:
    """CPU of the broker per request in µs, and requests a second, system by system in turn."""
    work = out.absolute() / "requests-work"
    systems = {name: System(name, work / name) for name in system or (OURS, NULL_BROKER, APACHE_KAFKA)}
    if against is not None:
        key, _, value = against.partition("=")
        systems[f"{OURS}, {against}"] = System(OURS, work / "against", properties={key: value})
    if against_command is not None:
        words = shlex.split(against_command)
        systems["command"] = System(OURS, work / "command", runs=lambda _, file: [*words, str(file)])
    depths = in_flight or [1, 5, 32]
    values: dict[tuple[str, int], list[tuple[float, float]]] = {}
    page_cache = PageCache(work)
    try:
        for one in systems.values():
            one.start()
            one.create_topic(TOPIC, partitions, 1)
        turns = [(depth, number, one) for depth in depths for number in range(rounds) for one in systems.items()]
        for depth, number, (name, one) in track(turns, "rounds", console=Console(stderr=True)):
            page_cache.fill()
            before = one.cpu_seconds()
            line = [sys.executable, "-m", "bench.requests", "drive", str(one.ports[0])]
            numbers = [str(record_bytes), str(partitions), str(depth), str(requests)]
            driven = subprocess.run([*line, *numbers], check=True, capture_output=True, text=True)
            cpu = (one.cpu_seconds() - before) / requests * 1e6
            if number:
                values.setdefault((name, depth), []).append((cpu, requests / float(driven.stdout)))
    finally:
        for one in systems.values():
            one.stop()
        page_cache.close()
    table = Table(
        "system",
        "in flight",
        "CPU µs a request",
        "lowest–highest",
        "requests/s",
        title=f"{partitions} x {record_bytes} bytes, acks=all",
    )
    for (name, depth), found in values.items():
        cpus = sorted(cpu for cpu, _ in found)
        rates = sorted(rate for _, rate in found)
        middle = len(found) // 2
        spread = f"{cpus[0]:.0f}–{cpus[-1]:.0f}"
        table.add_row(name, str(depth), f"{cpus[middle]:.0f}", spread, f"{rates[middle]:.0f}")
    Console().print(table)
    rows = [
        {
            "system": name,
            "in_flight": depth,
            "bytes": record_bytes,
            "partitions": partitions,
            "cpu_us": cpu,
            "requests_s": rate,
        }
        for (name, depth), found in values.items()
        for cpu, rate in found
    ]
    (out / "requests.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"]:
        port, record_bytes, partitions, in_flight, requests = map(int, sys.argv[2:7])
        print(drive(port, record_bytes, partitions, in_flight, requests, *sys.argv[7:]))
    else:
        typer.run(main)
