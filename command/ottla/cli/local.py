"""`ottla local`: a fleet on this machine, from the same documents as on Kubernetes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.cli.document_files import read_documents
from ottla.cli.local_output import (
    failed_topics,
    print_applied,
    print_first_commands,
    print_fleet,
    print_fleets,
    print_security,
    print_started,
    print_topics,
    say,
)
from ottla.cli.local_start import START_TIMEOUT_S, check_zookeeper, start_fleet, waited_s
from ottla.cli.messages import complain, confirm_deletion, fail
from ottla.local.control import ControlError, NotRunning, ask
from ottla.local.known_fleets import ROOT, fleet_directories, known_fleets
from ottla.local.layout import HIGHEST_PORT, FleetStateError, Layout, delete_fleet, security_differs
from ottla.local.secure_files import CLIENTS, PRIVATE_UMASK
from ottla_broker.config import is_meant
from ottla_documents.documents import Documents
from ottla_documents.kafka_cluster import KafkaCluster

EXAMPLE = """\
A fleet is documents, the same as on Kubernetes:

\b
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaCluster
metadata: {name: orders}
spec:
  brokers:
    replicas: 3
    disks: [{name: d0}, {name: d1}]
    config: {min.insync.replicas: 2}    # Kafka's own broker keys
---
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaTopic
metadata: {name: flights}
spec:
  clusterRef: {name: orders}
  partitions: 12
  replicas: 3
  config: {retention.ms: 604800000}     # Kafka's own topic keys

\b
ottla local up -f fleet.yaml          starts it, or applies what has changed
ottla local up -f fleet.yaml --port 9192     on ports 9192, 9193, ...
ottla local up -f fleet.yaml --secure        with TLS, passwords and ACLs
ottla local status                    the fleets of this folder
ottla local kill 1                    one broker fails
ottla local down                      stops it; its records stay
ottla local down --delete-data        stops it; its records go
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_APPLY_TIMEOUT_S = 300.0
_POLL_S = 0.02

DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The fleet's data directory (default: the only one here).")
]


@app.callback(epilog=EXAMPLE)
def _group() -> None:
    """Run a fleet on this machine, from the same documents as on Kubernetes."""


@app.command(short_help="Starts a fleet, or applies documents to one that runs.")
def up(
    file: Annotated[
        list[Path],
        typer.Option("-f", "--file", metavar="FILE", help="KafkaCluster and KafkaTopic documents; may be repeated."),
    ],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The data directory (default: .ottla/<cluster>).")
    ] = None,
    processes: Annotated[
        bool,
        typer.Option(
            "--processes",
            help="One process per broker, started again when it ends, and a real ZooKeeper (needs Java).",
        ),
    ] = False,
    zookeeper: Annotated[
        str, typer.Option("--zookeeper", metavar="HOST:PORT", help="Use this ZooKeeper instead of the embedded one.")
    ] = "",
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=1,
            max=HIGHEST_PORT,
            help="Clients find the brokers on the free ports from N on (default: those it has, first from 9092 on).",
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="TLS, SASL and ACLs; chosen when the fleet begins. Writes the settings of clients into DIR/clients.",
        ),
    ] = False,
) -> None:
    """Starts the fleet in the background and returns when it is ready and its topics exist.

    A fleet that runs gets what has changed: new and changed topics, and broker keys that change without a restart. What
    needs a restart is named.

    \b
    ottla local up -f manifests/cluster.yaml -f manifests/topics.yaml
    """
    documents = read_documents(file)
    cluster = _the_cluster(documents, file)
    directory = (data or ROOT / cluster.name).absolute()
    options = ["--processes"] * processes + (["--zookeeper", zookeeper] if zookeeper else [])
    options += ["--port", str(port)] if port else []
    options += ["--secure"] * secure
    request: dict[str, Any] = {
        "command": "apply",
        "documents": "\n---\n".join(path.read_text(encoding="utf-8") for path in file),
        "processes": processes,
        "zookeeper": zookeeper,
        "port": port or 0,
        "secure": secure,
    }
    try:
        found = ask(directory, {"command": "status"})
        _check_name(found, cluster, directory)
        if problem := security_differs(directory, found.get("secure", False), secure):
            fail(problem)
    except NotRunning:
        pass
    except ControlError as error:
        fail(str(error))
    else:
        _apply(directory, request)
        return
    if processes and not zookeeper and shutil.which("java") is None:
        fail(
            "--processes starts a ZooKeeper, which needs Java: apt-get install openjdk-17-jre-headless "
            "(or name a running one with --zookeeper HOST:PORT)"
        )
    if zookeeper:
        check_zookeeper(zookeeper)
    if secure:
        os.umask(PRIVATE_UMASK)
    _write_documents(directory, cluster, request["documents"], secure=secure)
    status = start_fleet(directory, options)
    if status is None:  # another `up` was faster
        _apply(directory, request)
        return
    print_started(status, waited_s())
    say(f"bootstrap  {status['bootstrap']}")
    print_topics(status["topics"])
    if secure:
        _print_clients(directory, status["bootstrap"])
    say(f"data       {directory}")
    say(f"log        {directory / 'fleet.log'}")
    say(f"stop it with: {_command('down', directory)}")
    if failed := failed_topics(status["topics"]):
        fail(failed)


@app.command(short_help="Shows the fleets of this folder, or the brokers of one.")
def status(
    data: DataOption = None,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="json|table", help="For programs, or for people.")
    ] = "table",
) -> None:
    """Shows the brokers of a fleet, their addresses, racks and disks.

    Without --data, where this folder has several fleets: their names, states and folders, and the brokers of the one
    that runs. The demo's fleet is one of them.

    With -o json: {"bootstrap", "ready", "secure", "brokers": [{"id", "address", "http", "rack", "pid", "log_dirs":
    [{"path", "state"}], "recreation"}]}. A state is online, full, offline, or unknown when the broker is down or does
    not answer.
    """
    if output not in ("json", "table"):
        fail(f"-o {output}: write json or table")
    fleets = known_fleets() if data is None else []
    if len(fleets) > 1:
        running = [fleet for fleet in fleets if fleet.found is not None]
        if output == "table":
            print_fleets(fleets, {fleet.data: _short(fleet.data) for fleet in fleets})
        elif len(running) != 1:
            fail("which fleet? choose with --data: " + ", ".join(_short(fleet.data) for fleet in fleets))
        if len(running) != 1:
            return
        if output == "table":
            say("")
        data = running[0].data
    directory = _the_fleet(data)
    found = _ask(directory, {"command": "status"})
    if output == "json":
        fields = ("id", "address", "http", "rack", "pid", "log_dirs", "recreation")
        found["brokers"] = [{name: broker[name] for name in fields} for broker in found["brokers"]]
        sys.stdout.write(json.dumps({name: found[name] for name in ("bootstrap", "ready", "secure", "brokers")}) + "\n")
        return
    print_fleet(found, directory)


@app.command(short_help="Kills one broker without a clean shutdown.")
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
    say(f"broker {broker} is killed; {later}")


@app.command(short_help="Stops the fleet; its records stay.")
def down(
    data: DataOption = None,
    delete_data: Annotated[bool, typer.Option("--delete-data", help="Delete the records too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before deleting.")] = False,
) -> None:
    """Stops the fleet. Its records stay, unless --delete-data is given, which asks first."""
    directory = _the_fleet(data, is_named=delete_data)
    if not (directory / "fleet.json").is_file():
        fail(f"there is no fleet in {directory}")
    if delete_data:
        confirm_deletion(f"delete all records in {directory}?", yes, "nothing is stopped or deleted")
    try:
        ask(directory, {"command": "down"}, timeout_s=120)
        say(f"the fleet is stopped; its records stay in {directory}" if not delete_data else "the fleet is stopped")
    except NotRunning as error:
        if not delete_data:
            fail(_with_start(str(error), directory))
    except ControlError as error:
        fail(str(error))
    if delete_data:
        _delete(directory)


def _delete(directory: Path) -> None:
    try:
        stays = delete_fleet(directory)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}; the records in {directory} are not, or not all, deleted")
    if links := [path.name for path in stays if path.is_symlink() and path.is_dir()]:
        fail(
            f"{', '.join(links)} in {directory}: a symbolic link, and what it points to is not deleted; delete it there"
        )
    rest = "; the folder stays, something else is in it" if stays else ""
    say(f"the records in {directory} are deleted{rest}")


def _the_cluster(documents: Documents, files: list[Path]) -> KafkaCluster:
    names = ", ".join(map(str, files))
    if not documents.clusters:
        other = "; a KafkaPipeline runs with `ottla pipeline run -f FILE`" if documents.pipelines else ""
        fail(f"no KafkaCluster in {names}: name the file that declares it with another -f{other}")
    if len(documents.clusters) > 1:
        fail(f"a local fleet is one KafkaCluster, not {', '.join(one.name for one in documents.clusters)}")
    cluster = documents.clusters[0]
    wrong = [
        f"{place}: spec.clusterRef.name: must be {cluster.name}, not {topic.cluster!r}"
        f"{is_meant(topic.cluster, [cluster.name])}"
        for topic, place in zip(documents.topics, documents.topic_places, strict=True)
        if topic.cluster != cluster.name
    ]
    if wrong:
        fail("\n".join(wrong))
    return cluster


def _check_name(status: dict[str, Any], cluster: KafkaCluster, directory: Path) -> None:
    if status["cluster"] != cluster.name:
        fail(
            f"the fleet {status['cluster']} is already running in {directory}, not {cluster.name}; "
            "choose another --data"
        )


def _print_clients(directory: Path, bootstrap: str) -> None:
    clients = _short(directory / CLIENTS)
    print_security(clients)
    print_first_commands(clients, bootstrap)


def _write_documents(directory: Path, cluster: KafkaCluster, text: str, *, secure: bool) -> None:
    try:
        Layout(directory, cluster, secure=secure)  # raises when the directory belongs to another fleet
        directory.mkdir(parents=True, exist_ok=True)
    except FleetStateError as error:
        fail(str(error))
    except (FileExistsError, NotADirectoryError):
        file = next(path for path in (directory, *directory.parents) if path.exists())
        fail(f"--data {directory}: {'' if file == directory else f'{file} '}is a file, not a directory")
    except OSError as error:
        fail(f"--data {directory}: cannot be created: {error.strerror}")
    try:
        (directory / "documents.yaml").write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"--data {directory}: cannot be written: {error.strerror}")


def _apply(directory: Path, request: dict[str, Any]) -> None:
    """Gives the documents to the fleet that runs."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            answer = ask(directory, request, timeout_s=_APPLY_TIMEOUT_S)
            break
        except NotRunning as error:  # the process that has the lock does not listen yet
            if time.monotonic() > deadline:
                fail(str(error))
            time.sleep(_POLL_S)
        except ControlError as error:
            fail(str(error))
    print_applied(answer, f"{_command('down', directory)}, then up again")
    say(f"bootstrap  {answer['bootstrap']}")
    print_topics(answer["topics"])
    if answer.get("secure"):
        _print_clients(directory, answer["bootstrap"])
    refused = [one["name"] for one in answer["config"] if one["error"]]
    if refused:
        complain(f"{len(refused)} of {len(answer['config'])} broker keys could not be changed: {', '.join(refused)}")
    if failed := failed_topics(answer["topics"]):
        complain(failed)
    if refused or failed:
        raise typer.Exit(1)


def _the_fleet(data: Path | None, *, is_named: bool = False) -> Path:
    """The given data directory, or the fleet of this folder that is meant.

    That is the only one, else the only one that runs, else the only one that is not the demo's.

    Args:
        is_named: for what cannot be undone: which one runs does not decide.
    """
    if data is not None:
        return data.absolute()
    found = fleet_directories()
    if not found:
        fail(f"there is no fleet in {ROOT.absolute()}; start one with: {_program()} local up -f FILE")
    if len(found) > 1 and not is_named:
        running = [fleet.data for fleet in known_fleets() if fleet.found is not None or fleet.problem]
        found = running if len(running) == 1 else found
    if len(found) > 1:
        own = [path for path in found if path.parent == ROOT.absolute()]
        found = own if len(own) == 1 else found
    if len(found) > 1:
        fail("which fleet? choose with --data: " + ", ".join(_short(path) for path in found))
    return found[0]


def _ask(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return ask(directory, request)
    except NotRunning as error:
        fail(_with_start(str(error), directory))
    except ControlError as error:
        fail(str(error))


def _program() -> str:
    """The name to call this program: `ottla` if PATH has it, else the path as typed."""
    typed = sys.argv[0]
    if Path(typed).name != "ottla":
        return "ottla"
    on_path = shutil.which("ottla")
    return "ottla" if on_path is not None and os.path.samefile(on_path, typed) else shlex.quote(typed)


def _command(name: str, directory: Path) -> str:
    """A command for the fleet in `directory`, valid in the current folder."""
    where = "" if fleet_directories() == [directory] else f" --data {shlex.quote(_short(directory))}"
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
