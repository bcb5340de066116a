"""Runs the demo: see the package."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.fleet import CHECKOUT, DemoFleet, can_run_processes, stops_itself
from demo.flights import leader_of, load_flights, read_and_compare, send
from demo.plot import plot, prepare
from demo.spark import second_act

TOPIC = "flights"
BUILD = CHECKOUT / "build" / "demo"
LOAD_S = 12.0
"""How long the load lasts: twice the session timeout, so that the leaders have moved before it ends."""
KILL_AFTER = 0.25
"""The part of the records that is acknowledged when the leader is killed."""


def main() -> int:
    """Runs the demo; 0 when nothing was lost, altered or repeated, and Spark could read it."""
    console = Console()
    began = time.monotonic()
    fonts = prepare()
    processes = can_run_processes()
    fleet = DemoFleet(BUILD / "fleet", processes=processes)
    console.rule("Ottla: three brokers, three racks, two disks each")
    with (
        console.status("the fleet comes up from manifests/cluster.yaml and manifests/topics.yaml"),
        ThreadPoolExecutor(1) as meanwhile,
    ):
        loading = meanwhile.submit(load_flights)
        status = fleet.up()
        flights = loading.result()
        fonts.wait()
    how = (
        "one process per broker, a real ZooKeeper"
        if processes
        else "all in one process (without Java and the jars of ZooKeeper)"
    )
    console.print(f"fleet      {how}")
    console.print(f"bootstrap  {status['bootstrap']}", soft_wrap=True)
    console.print(f"ready in   {status['start_s']:.2f} s, {status['rss_bytes'] / 1e6:.0f} MB resident")
    try:
        return _run(console, fleet, status["bootstrap"], flights, began)
    finally:
        if stops_itself():
            fleet.down()
            console.print("the fleet is stopped (CI=true)")


def _run(console: Console, fleet: DemoFleet, bootstrap: str, flights: Sequence[bytes], began: float) -> int:
    victim = leader_of(bootstrap, TOPIC, 0)
    killed_at: list[float] = []
    columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        sending = progress.add_task("send", total=len(flights))
        start = time.monotonic()

        def kill() -> None:
            fleet.kill(victim)
            killed_at.append(time.monotonic() - start)
            progress.console.print(f"           broker {victim}, the leader of {TOPIC}-0, is killed")

        killer = threading.Thread(target=kill)  # the producer must not wait for it

        sent = send(
            bootstrap, TOPIC, flights, LOAD_S,
            on_progress=lambda done: progress.update(sending, completed=done),
            on_acknowledged=(int(len(flights) * KILL_AFTER), killer.start),
        )  # fmt: skip
        if killer.ident is None:
            raise SystemExit(f"only {sent.acknowledged} records were acknowledged: {sent.errors[:1]}")
        killer.join()
        reading = progress.add_task("read back", total=sent.acknowledged)
        comparison = read_and_compare(
            bootstrap, TOPIC, flights, sent, lambda done: progress.update(reading, completed=done)
        )
    picture = BUILD / "flights.png"
    plot(sent.acknowledged_at, killed_at[0], victim, picture)
    total = _grouped(len(flights))
    console.rule("what it did")
    console.print(f"sent       {_at_rate(sent.acknowledged, sent.seconds)}, acks=all, into {TOPIC}", soft_wrap=True)
    before = sent.acknowledged_by(killed_at[0])
    console.print(
        f"killed     broker {victim}, without a clean shutdown, {killed_at[0]:.1f} s after the first record: "
        f"{_grouped(before)} are acknowledged before, {_grouped(sent.acknowledged - before)} after",
        soft_wrap=True,
    )
    console.print(
        f"read       {_at_rate(comparison.read, comparison.seconds)}, each compared with what was sent", soft_wrap=True
    )
    console.print(
        f"[bold]{comparison.lost} of {total} lost[/bold], {comparison.altered} altered, {comparison.repeated} repeated"
    )
    console.print(f"picture    {_short(picture)}: records per second over time, the kill marked", soft_wrap=True)
    console.print(f"records    {_short(fleet.data)}; the fleet's log is fleet.log in it", soft_wrap=True)
    console.print(f"all of it took {time.monotonic() - began:.0f} s")
    is_read_by_spark = second_act(console, bootstrap, BUILD)
    if not stops_itself():
        _next_steps(console, fleet, bootstrap)
    for error in sent.errors[:5]:
        console.print(f"not acknowledged: {error}", style="red")
    is_whole = not (comparison.lost or comparison.altered or comparison.repeated) and sent.acknowledged == len(flights)
    if not 0 < before < sent.acknowledged:
        console.print(
            "the kill does not fall between acknowledged records: run it again on an idle machine", style="red"
        )
        return 1
    return 0 if is_whole and is_read_by_spark else 1


def _next_steps(console: Console, fleet: DemoFleet, bootstrap: str) -> None:
    data = _short(fleet.data)
    console.rule("the fleet stays up: try it")
    with_kcat = (f"kcat -b {bootstrap} -L -t {TOPIC}", f"kcat -b {bootstrap} -C -t {TOPIC} -o beginning -c 3")
    for line in (*(with_kcat if shutil.which("kcat") else ()), f".venv/bin/ottla local status --data {data}"):
        console.print(f"  {line}", soft_wrap=True, highlight=False)
    console.print(f"stop it:  .venv/bin/ottla local down --data {data} --delete-data", soft_wrap=True, highlight=False)


def _at_rate(records: int, seconds: float) -> str:
    return f"{_grouped(records)} records in {seconds:.1f} s ({_grouped(round(records / max(seconds, 0.001)))} a second)"


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


if __name__ == "__main__":
    sys.exit(main())
