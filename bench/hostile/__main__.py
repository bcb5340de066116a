"""`python -m bench.hostile`: what one hostile client costs another, beside Apache Kafka 3.9.1 in one run.

    python -m bench.hostile --quick            # some minutes: the newest versions, 1 MB, some APIs; no page
    python -m bench.hostile --page             # every API and field, 1 MB and 24 MB, and writes the page
    python -m bench.hostile --all-versions     # every version as well: hours

For each row a client sends one request of as many elements as fit. Meanwhile another one asks for Metadata every two
milliseconds, from a process of its own (`good_client`): its longest wait is the figure, with the resident memory that
the broker has gained at its peak. Goal: at most Apache Kafka's wait, or at most 100 ms. Status 1 where a row misses it.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track

from bench import machine
from bench.hostile.attacks import ATTACKS, Attack
from bench.hostile.many_elements import TOPIC, Content, Row, request, rows
from bench.systems import APACHE_KAFKA, OURS, System, ask
from bench.usage import resident_bytes
from ottla.local.ports import free_port
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.edge.request_scheduling import CONTROL_APIS

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "benchmark-hostile.md"
QUICK_APIS = (
    "DescribeGroups", "FindCoordinator", "DescribeTopicPartitions", "Metadata", "OffsetFetch", "Fetch", "Produce",
    "DescribeProducers", "DescribeConfigs", "DeleteTopics", "ListOffsets", "OffsetCommit",
)  # fmt: skip
SMALL_BYTES, LARGE_BYTES = 1_000_000, 24_000_000
GOAL_MS = 100.0
_ANSWER_S = 120.0
_SETTLE_S = 0.2
_MB = 1_000_000


class Harm(NamedTuple):
    """What one row did to one system."""

    longest_ms: float
    p99_ms: float
    gained_mb: float
    lag_ms: float | None
    """The largest of ottla_loop_lag_seconds; None for Apache Kafka."""
    answer: str


class Attacked:
    """A system that runs, with the good client beside it."""

    def __init__(self, name: str, work: Path) -> None:
        self.name = name
        self.http_port = free_port() if name == OURS else 0
        properties = {"auto.create.topics.enable": "false", "delete.topic.enable": "false"}
        if self.http_port:
            properties["ottla.http.listener"] = f"127.0.0.1:{self.http_port}"
        self.system = System(name, work / name, properties=properties)
        self._good: subprocess.Popen[str] | None = None
        self.versions: dict[int, int] = {}

    def start(self) -> None:
        self.system.start()
        self.system.create_topic(TOPIC, 1, 1)
        versions = codec.module(ApiKey.API_VERSIONS)
        with self.connect() as connection:
            answer = ask(connection, ApiKey.API_VERSIONS, 2, versions.ApiVersionsRequest())
        self.versions = {one.api_key: one.max_version for one in answer.api_keys}
        command = [sys.executable, "-m", "bench.hostile.good_client", str(self.system.ports[0])]
        self._good = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self) -> None:
        if self._good is not None:
            self._good.kill()
            self._good.wait()
        self.system.stop()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.system.ports[0]), timeout=_ANSWER_S)

    def measure(self, act: Callable[[], str]) -> Harm:
        """What happens while `act` runs; it gives how it was answered."""
        self._report()
        before = peak = resident_bytes(self.system.pids)
        is_over = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not is_over.wait(0.02):
                peak = max(peak, resident_bytes(self.system.pids))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            answer = act()
            time.sleep(_SETTLE_S)
        finally:
            is_over.set()
            watcher.join()
        good = self._report()
        return Harm(good["longest"], good["p99"], (peak - before) / _MB, self._lag_ms(), answer)

    def _report(self) -> dict[str, float]:
        assert self._good is not None and self._good.stdin is not None and self._good.stdout is not None
        self._good.stdin.write("\n")
        self._good.stdin.flush()
        found: dict[str, float] = json.loads(self._good.stdout.readline())
        return found

    def _lag_ms(self) -> float | None:
        if not self.http_port:
            return None
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=_ANSWER_S) as page:
            text = page.read().decode()
        above = [
            float(bound)
            for bound, count in re.findall(r'^ottla_loop_lag_seconds_bucket\{le="([\d.]+)"\} (\d+)', text, re.MULTILINE)
            if int(count) < int(re.findall(r"^ottla_loop_lag_seconds_count (\d+)", text, re.MULTILINE)[0])
        ]
        return max(above, default=0.0) * 1000


def send(measured: Attacked, frame: bytes) -> str:
    """Sends a frame; the size of the answer, or how the connection ended."""
    try:
        with measured.connect() as connection:
            connection.sendall(frame)
            length = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            left = length
            while left:
                received = len(connection.recv(min(left, 1 << 20)))
                if not received:
                    return "closed"
                left -= received
            return f"{length:,} bytes".replace(",", " ") if length else "closed"
    except TimeoutError:
        return "no answer"
    except OSError:
        return "closed"


def wanted_rows(measured: list[Attacked], *, quick: bool, all_versions: bool) -> Iterator[Row]:
    common = {
        api_key: min(one.versions.get(api_key, -1) for one in measured)
        for api_key in set.union(*(set(one.versions) for one in measured))
    }
    for row in rows({key: (0, highest) for key, highest in common.items() if highest >= 0}):
        api_key = row.definition.api_key or 0
        if api_key in CONTROL_APIS or (quick and row.definition.name not in QUICK_APIS):
            continue  # served to brokers alone
        if row.version == common[api_key] or all_versions:
            yield row


def main(
    quick: Annotated[bool, typer.Option(help="three minutes: some APIs, 1 MB")] = False,
    all_versions: Annotated[bool, typer.Option(help="every version of every API")] = False,
    page: Annotated[bool, typer.Option("--page", help="write docs/operating/benchmark-hostile.md")] = False,
    system: Annotated[list[str] | None, typer.Option(help="only these of ours, apache_kafka")] = None,
) -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="ottla-hostile-") as work:
        measured = [Attacked(name, Path(work)) for name in system or (OURS, APACHE_KAFKA)]
        try:
            for one in measured:
                one.start()
            table = _measure(measured, quick=quick, all_versions=all_versions)
        finally:
            for one in measured:
                one.stop()
    text = _page([one.name for one in measured], table, "python -m bench.hostile" + (" --quick" if quick else ""))
    if page:
        PAGE.write_text(text)
    missed = [name for name, figures in table if not _meets(figures)]
    console.print(text, markup=False, highlight=False)
    console.print(f"{len(table)} rows, {len(missed)} miss the goal" + "".join(f"\n  {name}" for name in missed))
    if missed:
        raise typer.Exit(1)


def _measure(measured: list[Attacked], *, quick: bool, all_versions: bool) -> list[tuple[str, dict[str, Harm]]]:
    table: list[tuple[str, dict[str, Harm]]] = []
    todo = list(wanted_rows(measured, quick=quick, all_versions=all_versions))
    contents = (Content.EMPTY, Content.UNKNOWN) if quick else tuple(Content)
    sizes = (SMALL_BYTES,) if quick else (SMALL_BYTES, LARGE_BYTES)
    for row in track(todo, "requests"):
        for size in sizes:
            for content in contents if size == SMALL_BYTES else (Content.EMPTY,):
                api_key = row.definition.api_key or 0
                chunks = codec.frame_request(api_key, row.version, 1, "hostile", request(row, content, size))
                frame = b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]  # no file ranges
                figures = {one.name: one.measure(partial(send, one, frame)) for one in measured}
                table.append((f"{row.name}, {content.value}, {size // _MB} MB", figures))
    for name, attack in ATTACKS.items():
        table.append((name, {one.name: one.measure(partial(_attack, one, attack)) for one in measured}))
    return table


def _attack(measured: Attacked, attack: Attack) -> str:
    attack(measured.system.ports[0], measured.http_port)
    return ""


def _meets(figures: dict[str, Harm]) -> bool:
    ours, theirs = figures.get(OURS), figures.get(APACHE_KAFKA)
    return ours is None or ours.longest_ms <= max(GOAL_MS, theirs.longest_ms if theirs is not None else 0.0)


def _page(names: list[str], table: list[tuple[str, dict[str, Harm]]], command: str) -> str:
    lines = [
        "# What a hostile client costs others",
        "",
        f"<!-- Written by `{command} --page`: do not edit. -->",
        "",
        machine.description(),
        "",
        "One client sends the request of the row, with as many elements as fit. Another one asks for Metadata every",
        "two milliseconds: its longest wait and its 99th percentile, and the resident memory that the broker gains.",
        "Goal: at most Apache Kafka's wait, or at most 100 ms. Made by `python -m bench.hostile --page`.",
        "",
        f"| request | {' | '.join(f'{name}: longest, p99 (ms) | gained (MB) | answer' for name in names)} | goal met |",
        "|---|" + "---|---|---|" * len(names) + "---|",
    ]
    for name, figures in table:
        cells = [
            f"{one.longest_ms:.0f}, {one.p99_ms:.0f} | {one.gained_mb:.0f} | {one.answer}"
            for one in (figures[each] for each in names)
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {'yes' if _meets(figures) else '**no**'} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    typer.run(main)
