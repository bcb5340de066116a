"""`python -m bench.hostile`: what one hostile client costs another, beside Apache Kafka 3.9.1 in one run.

    python -m bench.hostile --attacks          # a minute: only what is no request of many elements; no page
    python -m bench.hostile --quick            # some minutes: the newest versions, 1 MB, some APIs; no page
    python -m bench.hostile --page             # every API and field, and writes the page: some 50 minutes
    python -m bench.hostile --system apache_kafka    # the same requests to Apache Kafka alone: hours
    python -m bench.hostile --page --continue  # goes on with a run that ended early
    python -m bench.hostile --all-versions     # every version as well: hours

For each row a client sends one request of as many elements as fit. Meanwhile another one asks for Metadata every two
milliseconds, from a process of its own (`good_client`): its longest wait is the figure, with the resident memory that
the broker has gained at its peak. Goal: at most Apache Kafka's wait, or at most 100 ms. Status 1 where a row misses it.
Apache Kafka is asked where that decides, and for the attacks: many of the requests hold it for longer than a minute.
Each row that is measured is in build/hostile/ at once.
"""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track

from bench import machine
from bench.hostile.attacks import ATTACKS, MANY_PARTITIONS, PARTITIONS_OF_EACH, Attack, AttackTarget, produce_to_many
from bench.hostile.good_client import LIMIT_S
from bench.hostile.harm_page import lag_buckets, meets, most_lag_ms, page_of
from bench.hostile.many_elements import TOPIC, Content, Row, request, rows
from bench.hostile.measured_rows import Harm, MeasuredRows
from bench.systems import APACHE_KAFKA, OURS, System, ask
from bench.tls import make as make_tls
from bench.usage import resident_bytes
from ottla.local.ports import free_port
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.edge.element_limits import MOST
from ottla_broker.server.edge.request_scheduling import CONTROL_APIS

RESULTS = Path(__file__).parents[2] / "build" / "hostile"
PAGE = Path(__file__).parents[2] / "docs" / "operating" / "benchmark-hostile.md"
QUICK_APIS = (
    "DescribeGroups", "FindCoordinator", "DescribeTopicPartitions", "Metadata", "OffsetFetch", "Fetch", "Produce",
    "DescribeProducers", "DescribeConfigs", "DeleteTopics", "ListOffsets", "OffsetCommit",
)  # fmt: skip
SMALL_BYTES, LARGE_BYTES = 1_000_000, 24_000_000
_SETTLE_S = 0.2
_MB = 1_000_000


class Attacked:
    """A system that runs, with the good client beside it."""

    def __init__(self, name: str, work: Path) -> None:
        self.name = name
        self.http_port = free_port() if name == OURS else 0
        self._properties = {"auto.create.topics.enable": "false", "delete.topic.enable": "false"}
        if self.http_port:
            self._properties["ottla.http.listener"] = f"127.0.0.1:{self.http_port}"
        self._work = work / name
        keys = work / f"{name}-keys"
        keys.mkdir()
        self._tls = make_tls(keys)
        self._properties["ssl.client.auth"] = "required"
        self.system = System(name, self._work, properties=self._properties, tls=self._tls)
        self._good: subprocess.Popen[str] | None = None
        self.versions: dict[int, int] = {}

    def start(self) -> None:
        self.system.start()
        self.system.create_topic(TOPIC, 1, 1)
        for topic in MANY_PARTITIONS:
            self.system.create_topic(topic, PARTITIONS_OF_EACH, 1)
        produce_to_many(self.system.ports[0])
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

    def restart(self) -> None:
        """A new one: this one does not answer any more."""
        self.stop()
        self.system = System(self.name, self._work, properties=self._properties, tls=self._tls)
        self.start()

    @property
    def target(self) -> AttackTarget:
        return AttackTarget(self.system.ports[0], self.system.tls_ports[0], self.http_port, self._tls)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.system.ports[0]), timeout=LIMIT_S)

    def measure(self, act: Callable[[], str]) -> Harm:
        """What happens while `act` runs; it gives how it was answered."""
        self._report()
        lag = self._lag()
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
        if good["longest"] >= LIMIT_S * 1000:
            self.restart()
            return Harm(good["longest"], good["p99"], (peak - before) / _MB, None, f"{answer}; started again")
        lag_ms = most_lag_ms(lag, self._lag()) if self.http_port else None
        return Harm(good["longest"], good["p99"], (peak - before) / _MB, lag_ms, answer)

    def _report(self) -> dict[str, float]:
        assert self._good is not None and self._good.stdin is not None and self._good.stdout is not None
        self._good.stdin.write("\n")
        self._good.stdin.flush()
        found: dict[str, float] = json.loads(self._good.stdout.readline())
        return found

    def _lag(self) -> dict[float, int]:
        if not self.http_port:
            return {}
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=LIMIT_S) as page:
            return lag_buckets(page.read().decode())


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
    attacks: Annotated[bool, typer.Option("--attacks", help="only the attacks; no page")] = False,
    system: Annotated[list[str] | None, typer.Option(help="only these of ours, apache_kafka")] = None,
    goes_on: Annotated[bool, typer.Option("--continue", help="keep the rows that a run before has measured")] = False,
) -> None:
    console = Console()
    if page and attacks:
        raise typer.BadParameter("--attacks measures a part, and writes no page")
    _raise_open_files()
    kind = "attacks" if attacks else "quick" if quick else "all-versions" if all_versions else "page"
    results = MeasuredRows(RESULTS / f"{kind}.jsonl", goes_on=goes_on)
    with tempfile.TemporaryDirectory(prefix="ottla-hostile-") as work:
        measured = [Attacked(name, Path(work)) for name in system or (OURS, APACHE_KAFKA)]
        names = [one.name for one in measured]
        try:
            for one in measured:
                console.print(f"starting {one.name}")
                one.start()
            todo = [
                each
                for each in the_measures(measured, quick=quick, all_versions=all_versions)
                if (each.name in ATTACKS or not attacks)
                and is_left(names, results.table.get(each.name, {}), is_attack=each.name in ATTACKS)
            ]
            for each in track(todo, "measuring", console=console):
                act = each.prepare()
                figures: dict[str, Harm] = {}
                for one in measured:
                    if is_wanted(one.name, figures, is_attack=each.name in ATTACKS):
                        figures[one.name] = one.measure(partial(act, one))
                results.add(each.name, figures)
        finally:
            for one in measured:
                one.stop()
    command = "python -m bench.hostile" + {"all-versions": " --page --all-versions"}.get(kind, f" --{kind}")
    text = page_of(
        names, results.table, command, machine.description(), left_out(quick=quick, all_versions=all_versions)
    )
    if page:
        PAGE.write_text(text)
    missed = [name for name, figures in results.table.items() if not meets(figures)]
    console.print(text, markup=False, highlight=False)
    console.print(f"{len(results.table)} rows, {len(missed)} miss the goal" + "".join(f"\n  {name}" for name in missed))
    if missed:
        raise typer.Exit(1)


def _raise_open_files() -> None:
    """An attack holds a thousand connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Measure(NamedTuple):
    """One row of the page."""

    name: str
    prepare: Callable[[], Callable[[Attacked], str]]
    """Builds the request, which takes time; gives what is measured."""


def the_measures(measured: list[Attacked], *, quick: bool, all_versions: bool) -> Iterator[Measure]:
    """What harms most stands first: a run that ends early has it."""
    for name, attack in ATTACKS.items():
        yield Measure(name, partial(_attack, attack))
    with_large: set[str] = set()
    for row in wanted_rows(measured, quick=quick, all_versions=all_versions):
        for content in (Content.EMPTY, Content.UNKNOWN) if quick else tuple(Content):
            yield _request(row, content, SMALL_BYTES)
            if row.definition.api_key in MOST:
                yield _allowed(row, content)
        if not quick and row.definition.name not in with_large:
            with_large.add(row.definition.name)
            yield _request(row, Content.EMPTY, LARGE_BYTES)


def left_out(*, quick: bool, all_versions: bool) -> list[str]:
    """What the page says that it does not have, a line each."""
    found = ["requests that brokers alone send"]
    if not all_versions:
        found.append("older versions of the requests")
    if quick:
        return [*found, f"other requests than {', '.join(QUICK_APIS)}", "requests of 24 MB, repeated elements"]
    found.append("Apache Kafka, where ours meets 100 ms: some of these requests hold it for minutes")
    return [*found, "24 MB of other fields than the first one of each request, or of other than empty elements"]


def is_wanted(system: str, figures: Mapping[str, Harm], *, is_attack: bool) -> bool:
    """Whether a system is measured after these: Apache Kafka where it decides about the goal, and by `ATTACKS`."""
    return system == OURS or is_attack or OURS not in figures or not meets(figures)


def is_left(systems: list[str], figures: Mapping[str, Harm], *, is_attack: bool) -> bool:
    """Whether a row, of which these figures are kept, has to be measured."""
    return any(one not in figures and is_wanted(one, figures, is_attack=is_attack) for one in systems)


def _request(row: Row, content: Content, size: int) -> Measure:
    return Measure(f"{row.name}, {content.value}, {size // _MB} MB", partial(_prepared, row, content, size))


def _allowed(row: Row, content: Content) -> Measure:
    """As many elements as ours allows for this API: beyond them it closes the connection."""
    most = MOST[row.definition.api_key or 0] * 9 // 10  # the broker counts a little more
    prepare = partial(_prepared, row, content, SMALL_BYTES, most)
    return Measure(f"{row.name}, {content.value}, {most} elements at most", prepare)


def _prepared(row: Row, content: Content, size: int, most: int | None = None) -> Callable[[Attacked], str]:
    api_key = row.definition.api_key or 0
    chunks = codec.frame_request(api_key, row.version, 1, "hostile", request(row, content, size, most))
    frame = b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]  # no file ranges
    return lambda one: send(one, frame)


def _attack(attack: Attack) -> Callable[[Attacked], str]:
    def act(one: Attacked) -> str:
        attack(one.target)
        return ""

    return act


if __name__ == "__main__":
    typer.run(main)
