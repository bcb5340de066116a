"""`ottla local`: a fleet on this machine, from the documents that Kubernetes gets."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.prompt import Confirm
from rich.table import Table

from ottla_broker.local.control import ControlError, NotRunning, ask
from ottla_operator.model.documents import DocumentError, load_documents

app = typer.Typer(no_args_is_help=True)
_console = Console()

DEFAULT_ROOT = Path(".ottla")
_START_TIMEOUT_S = 120.0
_POLL_S = 0.02

DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The fleet's data directory (default: the only one here).")
]


@app.callback()
def _group() -> None:
    """A whole fleet on this machine, from the documents that Kubernetes gets."""


@app.command()
def up(
    file: Annotated[
        list[Path], typer.Option("-f", "--file", help="KafkaCluster and KafkaTopic documents; may be repeated.")
    ],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where the fleet lives (default: .ottla/<cluster>).")
    ] = None,
    processes: Annotated[
        bool, typer.Option("--processes", help="One process per broker and a real ZooKeeper (needs Java).")
    ] = False,
    zookeeper: Annotated[
        str, typer.Option("--zookeeper", metavar="HOST:PORT", help="Use this ZooKeeper instead of the embedded one.")
    ] = "",
) -> None:
    """Starts the fleet in the background and returns when it is ready and its topics are made.

    ottla local up -f manifests/cluster.yaml -f manifests/topics.yaml
    """
    documents = _load(file)
    if len(documents.clusters) != 1:
        _fail(f"the files declare {len(documents.clusters)} KafkaClusters; a local fleet is one")
    cluster = documents.clusters[0]
    strangers = [topic.name for topic in documents.topics if topic.cluster != cluster.name]
    if strangers:
        _fail(f"spec.clusterRef.name of {', '.join(strangers)} is not {cluster.name!r}")
    directory = (data or DEFAULT_ROOT / cluster.name).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        ask(directory, {"command": "status"})
        _fail(f"the fleet {cluster.name} is already running in {directory}; stop it with: ottla local down")
    except NotRunning:
        pass
    if processes and not zookeeper and shutil.which("java") is None:
        _fail(
            "--processes starts a ZooKeeper, which needs Java: apt-get install openjdk-17-jre-headless "
            "(or name a running one with --zookeeper HOST:PORT)"
        )
    (directory / "documents.yaml").write_text("\n---\n".join(path.read_text() for path in file))
    process = _start_daemon(directory, processes, zookeeper)
    status = _until_ready(directory, process)
    _print_started(status, directory)
    if any(topic["error"] for topic in status["topics"]):
        raise typer.Exit(1)


@app.command()
def status(
    data: DataOption = None,
    output: Annotated[str, typer.Option("-o", "--output", help="json, or a table.")] = "table",
) -> None:
    """Shows the brokers, their addresses, racks and disks."""
    found = _ask(_the_fleet(data), {"command": "status"})
    if output == "json":
        wanted = ("id", "address", "http", "rack", "pid", "log_dirs")
        found["brokers"] = [{name: broker[name] for name in wanted} for broker in found["brokers"]]
        sys.stdout.write(json.dumps({name: found[name] for name in ("bootstrap", "ready", "brokers")}) + "\n")
        return
    if output != "table":
        _fail(f"-o takes json or table, not {output!r}")
    _print_table(found)


@app.command()
def kill(broker: Annotated[int, typer.Argument(help="The broker's id.")], data: DataOption = None) -> None:
    """Kills one broker without a clean shutdown (SIGKILL with --processes, which starts it again)."""
    _ask(_the_fleet(data), {"command": "kill", "broker": broker})
    _console.print(f"broker {broker} is killed")


@app.command()
def down(
    data: DataOption = None,
    delete_data: Annotated[bool, typer.Option("--delete-data", help="Delete the records too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before deleting.")] = False,
) -> None:
    """Stops the fleet in order. Its records stay, unless --delete-data says otherwise."""
    directory = _the_fleet(data)
    if delete_data and not yes and sys.stdin.isatty() and not Confirm.ask(f"delete all records in {directory}?"):
        raise typer.Exit(1)
    try:
        ask(directory, {"command": "down"}, timeout_s=120)
        _console.print("the fleet is stopped")
    except NotRunning as error:
        if not delete_data:
            _fail(str(error))
    except ControlError as error:
        _fail(str(error))
    if delete_data:
        shutil.rmtree(directory)
        _console.print(f"{directory} is deleted")


def _load(files: list[Path]) -> Any:
    try:
        return load_documents([(str(path), path.read_text()) for path in files])
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}")
    except DocumentError as error:
        _fail(str(error))


def _start_daemon(directory: Path, processes: bool, zookeeper: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ottla_broker.local.daemon", "--data", str(directory)]
    if processes:
        command.append("--processes")
    if zookeeper:
        command += ["--zookeeper", zookeeper]
    with (directory / "fleet.log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )


def _until_ready(directory: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    log = directory / "fleet.log"
    deadline = time.monotonic() + _START_TIMEOUT_S
    with _console.status("the fleet comes up"):
        while time.monotonic() < deadline:
            if process.poll() is not None:
                lines = log.read_text(errors="replace").strip().splitlines()
                _fail(f"the fleet did not start: {lines[-1] if lines else 'no reason given'} (see {log})")
            try:
                found = ask(directory, {"command": "status"})
            except NotRunning:
                time.sleep(_POLL_S)
                continue
            if found["failure"]:
                process.terminate()
                _fail(f"the fleet did not start: {found['failure']} (see {log})")
            if found["ready"] and found["topics_applied"]:
                return found
            time.sleep(_POLL_S)
    process.terminate()
    _fail(f"the fleet is not ready after {_START_TIMEOUT_S:.0f} s; see {log}")


def _print_started(found: dict[str, Any], directory: Path) -> None:
    megabytes = found["rss_bytes"] / 1e6
    _console.print(
        f"[bold]{found['cluster']}[/bold]: {len(found['brokers'])} brokers ready in {found['start_s']:.2f} s, "
        f"{megabytes:.0f} MB"
    )
    _console.print(f"bootstrap  {found['bootstrap']}", soft_wrap=True)
    for topic in found["topics"]:
        _console.print(f"topic      {topic['name']}: {topic['done'] or topic['error']}", soft_wrap=True)
    _console.print(f"data       {directory}", soft_wrap=True)
    _console.print("stop it with: ottla local down")


def _print_table(found: dict[str, Any]) -> None:
    table = Table(title=f"{found['cluster']} · {'ready' if found['ready'] else 'not ready'} · {found['bootstrap']}")
    for column in ("broker", "address", "http", "rack", "pid", "log directories"):
        table.add_column(column)
    for broker in found["brokers"]:
        directories = "\n".join(f"{entry['path']} {entry['state']}" for entry in broker["log_dirs"])
        pid = str(broker["pid"]) if broker["pid"] else "[red]not running[/red]"
        table.add_row(str(broker["id"]), broker["address"], broker["http"], broker["rack"], pid, directories)
    _console.print(table)


def _the_fleet(data: Path | None) -> Path:
    """The data directory asked for, or the only one in this folder."""
    if data is not None:
        return data.absolute()
    found = sorted(path.parent for path in DEFAULT_ROOT.glob("*/fleet.json"))
    if len(found) == 1:
        return found[0].absolute()
    if not found:
        _fail(f"there is no fleet in {DEFAULT_ROOT.absolute()}; start one with: ottla local up -f FILE")
    _fail("which fleet? choose with --data: " + ", ".join(str(path) for path in found))


def _ask(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return ask(directory, request)
    except ControlError as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    Console(stderr=True).print(message, style="red", soft_wrap=True, markup=False, highlight=False)
    raise typer.Exit(1)
