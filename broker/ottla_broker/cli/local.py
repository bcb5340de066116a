"""`ottla local`: a fleet on this machine, from the same documents as on Kubernetes."""

from __future__ import annotations

import json
import os
import shlex
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

from ottla_broker.adapters.process_logging import message_of
from ottla_broker.local.control import ControlError, NotRunning, ask
from ottla_broker.local.layout import FleetStateError, Layout, delete_fleet
from ottla_operator.model.documents import DocumentError, load_documents

app = typer.Typer(no_args_is_help=True)
_console = Console()

DEFAULT_ROOT = Path(".ottla")
_START_TIMEOUT_S = 120.0
_POLL_S = 0.02
_GIVE_UP_S = 30.0
"""The limit in seconds for the shutdown of a fleet that did not start."""

DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The fleet's data directory (default: the only one here).")
]


@app.callback()
def _group() -> None:
    """Run a fleet on this machine, from the same documents as on Kubernetes."""


@app.command()
def up(
    file: Annotated[
        list[Path],
        typer.Option("-f", "--file", metavar="FILE", help="KafkaCluster and KafkaTopic documents; may be repeated."),
    ],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The data directory (default: .ottla/<cluster>).")
    ] = None,
    processes: Annotated[
        bool, typer.Option("--processes", help="One process per broker and a real ZooKeeper (needs Java).")
    ] = False,
    zookeeper: Annotated[
        str, typer.Option("--zookeeper", metavar="HOST:PORT", help="Use this ZooKeeper instead of the embedded one.")
    ] = "",
) -> None:
    """Starts the fleet in the background and returns when it is ready and its topics exist.

    ottla local up -f manifests/cluster.yaml -f manifests/topics.yaml
    """
    documents = _load(file)
    if not documents.clusters:
        _fail(f"no KafkaCluster in {', '.join(map(str, file))}: name the file that declares it with another -f")
    if len(documents.clusters) > 1:
        _fail(f"a local fleet is one KafkaCluster, not {', '.join(one.name for one in documents.clusters)}")
    cluster = documents.clusters[0]
    others = [topic.name for topic in documents.topics if topic.cluster != cluster.name]
    if others:
        _fail(f"KafkaTopic {', '.join(others)}: spec.clusterRef.name is not {cluster.name!r}")
    directory = (data or DEFAULT_ROOT / cluster.name).absolute()
    try:
        running = ask(directory, {"command": "status"})["cluster"]
        _fail(f"the fleet {running} is already running in {directory}; stop it with: {_command('down', directory)}")
    except NotRunning:
        pass
    except ControlError as error:
        _fail(str(error))
    if processes and not zookeeper and shutil.which("java") is None:
        _fail(
            "--processes starts a ZooKeeper, which needs Java: apt-get install openjdk-17-jre-headless "
            "(or name a running one with --zookeeper HOST:PORT)"
        )
    text = "\n---\n".join(path.read_text() for path in file)
    try:
        Layout(directory, cluster)  # raises when the directory belongs to another fleet
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "documents.yaml").write_text(text)
    except FleetStateError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"--data {directory}: {error.strerror}")
    process = _start_daemon(directory, processes, zookeeper)
    status = _until_ready(directory, process)
    _print_started(status, directory)
    if any(topic["error"] for topic in status["topics"]):
        raise typer.Exit(1)


@app.command()
def status(
    data: DataOption = None,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="json|table", help="For programs, or for people.")
    ] = "table",
) -> None:
    """Shows the brokers, their addresses, racks and disks."""
    if output not in ("json", "table"):
        _fail(f"-o takes json or table, not {output!r}")
    directory = _the_fleet(data)
    found = _ask(directory, {"command": "status"})
    if output == "json":
        wanted = ("id", "address", "http", "rack", "pid", "log_dirs", "recreation")
        found["brokers"] = [{name: broker[name] for name in wanted} for broker in found["brokers"]]
        sys.stdout.write(json.dumps({name: found[name] for name in ("bootstrap", "ready", "brokers")}) + "\n")
        return
    _print_table(found, directory)


@app.command()
def kill(
    broker: Annotated[int, typer.Argument(metavar="ID", help="The broker's id, as `status` shows it.")],
    data: DataOption = None,
) -> None:
    """Kills one broker without a clean shutdown; its leadership moves.

    With --processes it gets SIGKILL and restarts; in one process it stays down until `down` and `up`.
    """
    directory = _the_fleet(data)
    comes_back = _ask(directory, {"command": "kill", "broker": broker})["comes_back"]
    later = "it is started again at once" if comes_back else "it stays down until the fleet is stopped and started"
    _console.print(f"broker {broker} is killed; {later}", soft_wrap=True)


@app.command()
def down(
    data: DataOption = None,
    delete_data: Annotated[bool, typer.Option("--delete-data", help="Delete the records too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before deleting.")] = False,
) -> None:
    """Stops the fleet. Its records stay, unless --delete-data is given."""
    directory = _the_fleet(data)
    if not (directory / "fleet.json").is_file():
        _fail(f"there is no fleet in {directory}")
    if delete_data and not yes and sys.stdin.isatty() and not Confirm.ask(f"delete all records in {directory}?"):
        raise typer.Exit(1)
    try:
        ask(directory, {"command": "down"}, timeout_s=120)
        _console.print(
            f"the fleet is stopped; its records stay in {directory}" if not delete_data else "the fleet is stopped",
            soft_wrap=True,
        )
    except NotRunning as error:
        if not delete_data:
            _fail(_with_start(str(error), directory))
    except ControlError as error:
        _fail(str(error))
    if delete_data:
        _delete(directory)


def _delete(directory: Path) -> None:
    try:
        stays = delete_fleet(directory)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}; the records in {directory} are not, or not all, deleted")
    if links := [path.name for path in stays if path.is_symlink() and path.is_dir()]:
        _fail(
            f"{', '.join(links)} in {directory}: a symbolic link, and what it points to is not deleted; delete it there"
        )
    rest = "; the folder stays, something else is in it" if stays else ""
    _console.print(f"the records in {directory} are deleted{rest}", soft_wrap=True)


def _load(files: list[Path]) -> Any:
    try:
        return load_documents([(str(path), path.read_text()) for path in files])
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}")
    except UnicodeDecodeError as error:
        _fail(f"-f: a document is not text in UTF-8: {error.reason} at byte {error.start}")
    except DocumentError as error:
        _fail(str(error))


def _start_daemon(directory: Path, processes: bool, zookeeper: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ottla_broker.local.daemon", "--data", str(directory)]
    if processes:
        command.append("--processes")
    if zookeeper:
        command += ["--zookeeper", zookeeper]
    with (directory / "fleet.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )


def _until_ready(directory: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The status of the fleet when it is ready. A fleet that does not become ready is stopped."""
    log = directory / "fleet.log"
    deadline = time.monotonic() + _START_TIMEOUT_S
    try:
        with _console.status("the fleet starts"):
            while time.monotonic() < deadline:
                if process.poll() is not None:
                    lines = log.read_text(errors="replace").strip().splitlines()
                    reason = message_of(lines[-1]) if lines else "no reason in the log"
                    _fail(f"the fleet did not start: {reason} (see {log})")
                try:
                    found = ask(directory, {"command": "status"})
                except NotRunning:
                    time.sleep(_POLL_S)
                    continue
                if found["failure"]:
                    _end(process)
                    see = "" if "(see " in found["failure"] else f" (see {log})"
                    _fail(f"the fleet did not start: {found['failure']}{see}")
                if found["ready"] and found["topics_applied"]:
                    return found
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        _end(process)
        _fail("interrupted: the fleet is stopped")
    except ControlError as error:
        _fail(f"the fleet did not start: {error} (see {log})")
    _end(process)
    _fail(f"the fleet is not ready after {_START_TIMEOUT_S:.0f} s; see {log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stops the daemon and waits, so that the next `up` can lock the directory."""
    process.terminate()
    try:
        process.wait(_GIVE_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
    _console.print(f"log        {directory / 'fleet.log'}", soft_wrap=True)
    _console.print(f"stop it with: {_command('down', directory)}", soft_wrap=True, highlight=False)


_RECREATION = (("waiting", "replicas wait"), ("catching_up", "replicas catching up"), ("lost", "partitions lost"))


def _print_table(found: dict[str, Any], directory: Path) -> None:
    down = [str(broker["id"]) for broker in found["brokers"] if not broker["pid"]]
    silent = [
        str(broker["id"])
        for broker in found["brokers"]
        if broker["pid"] and any(directory["state"] == "unknown" for directory in broker["log_dirs"])
    ]
    why = f", broker {', '.join(down)} is down" if down else ""
    why += f", broker {', '.join(silent)} does not answer" if silent else ""
    _console.print(
        f"[bold]{found['cluster']}[/bold]: {'ready' if found['ready'] else 'not ready'}{why}", highlight=False
    )
    _console.print(f"bootstrap  {found['bootstrap']}", soft_wrap=True, highlight=False)
    _console.print(f"data       {directory}", soft_wrap=True, highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("broker", "address", "http", "rack", "pid", "disks"):
        table.add_column(column, no_wrap=True, overflow="ignore")
    for broker in found["brokers"]:
        disks = ", ".join(f"{Path(entry['path']).name} {entry['state']}" for entry in broker["log_dirs"])
        disks += "".join(
            f", {broker['recreation'][name]} {words}" for name, words in _RECREATION if broker["recreation"].get(name)
        )
        pid = str(broker["pid"]) if broker["pid"] else "[red]down[/red]"
        table.add_row(str(broker["id"]), broker["address"], broker["http"], broker["rack"], pid, disks)
    _console.print(table, soft_wrap=True, highlight=False)


def _the_fleet(data: Path | None) -> Path:
    """The given data directory, or the only one in the current folder."""
    if data is not None:
        return data.absolute()
    found = sorted(path.parent for path in DEFAULT_ROOT.glob("*/fleet.json"))
    if len(found) == 1:
        return found[0].absolute()
    if not found:
        _fail(f"there is no fleet in {DEFAULT_ROOT.absolute()}; start one with: {_program()} local up -f FILE")
    _fail("which fleet? choose with --data: " + ", ".join(str(path) for path in found))


def _ask(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return ask(directory, request)
    except NotRunning as error:
        _fail(_with_start(str(error), directory))
    except ControlError as error:
        _fail(str(error))


def _program() -> str:
    """The name to call this program: `ottla` if PATH has it, else the path as typed."""
    typed = sys.argv[0]
    if Path(typed).name != "ottla":
        return "ottla"
    on_path = shutil.which("ottla")
    return "ottla" if on_path is not None and os.path.samefile(on_path, typed) else shlex.quote(typed)


def _command(name: str, directory: Path) -> str:
    """A command for the fleet in `directory`, valid in the current folder."""
    fleets = sorted(path.parent.absolute() for path in DEFAULT_ROOT.glob("*/fleet.json"))
    where = "" if fleets == [directory] else f" --data {shlex.quote(_short(directory))}"
    return f"{_program()} local {name}{where}"


def _with_start(message: str, directory: Path) -> str:
    """Adds the command that starts the fleet."""
    documents = directory / "documents.yaml"
    if not (directory / "fleet.json").is_file() or not documents.is_file():
        return message
    return f"{message}; start it with: {_command('up -f ' + shlex.quote(_short(documents)), directory)}"


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _fail(message: str) -> NoReturn:
    Console(stderr=True).print(message, style="red", soft_wrap=True, markup=False, highlight=False)
    raise typer.Exit(1)
