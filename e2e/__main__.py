"""The command `python -m e2e`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from e2e.binaries import CHECKOUT
from e2e.machine import CommandFailed, NotInTime, within
from e2e.providers import KubernetesCluster, Provider
from ottla.local.jars import cache_directory

app = typer.Typer(add_completion=False, no_args_is_help=False)
console = Console(highlight=False)
HANDLE = "cluster.json"
LONGEST_TEST_S = 1800
"""The limit of one test: a roll waits for every pod that it replaces, and the machine may be busy."""
LONG = CHECKOUT / "build" / "e2e" / "long"
FIGURES = CHECKOUT / "build" / "e2e" / "operator.json"


class Where(StrEnum):
    """Where the cluster comes from."""

    processes = "processes"
    kind = "kind"
    existing = "existing"


ProviderOption = Annotated[
    Where,
    typer.Option(
        "--provider",
        help="processes: Kubernetes as plain processes of this machine (root on Debian). kind: nodes as Docker "
        "containers. existing: the cluster of KUBECONFIG, with images from a registry (OTTLA_E2E_IMAGE and so on).",
    ),
]
TestsOption = Annotated[str, typer.Option("--tests", help="Only the tests that this expression names, as pytest's -k.")]


LongOption = Annotated[
    bool, typer.Option("--long", help="The long proof of the operator under load instead of the tests (processes).")
]
OnlyOption = Annotated[
    str, typer.Option("--only", help="With --long: only these scenarios, by name, separated by commas: roll-six.")
]


PipelinesOption = Annotated[
    bool,
    typer.Option("--pipelines", help="With an image of Spark (1.2 GB) and the test of pipelines (processes)."),
]


class Steps:
    """Prints each step and how long it took."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._what: str | None = None
        self._status = console.status("")

    def __call__(self, what: str) -> None:
        self.done()
        self._what, self._began = what, time.monotonic()
        self._status = console.status(what)
        self._status.start()

    def done(self) -> None:
        self._status.stop()
        if self._what is not None:
            console.print(f"{time.monotonic() - self._began:6.1f} s  {self._what}")
            self._what = None


@app.callback(invoke_without_command=True)
def everything(
    context: typer.Context,
    provider: ProviderOption = Where.processes,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster up: `python -m e2e kubectl get pods`.")
    ] = False,
    tests: TestsOption = "",
    is_long: LongOption = False,
    only: OnlyOption = "",
    pipelines: PipelinesOption = False,
) -> None:
    """Brings a real Kubernetes cluster up, runs the end-to-end tests in it and takes it down again.

    The first run builds Kubernetes from Go modules (ten minutes) into ${OTTLA_CACHE:-~/.cache/ottla}. Without a command
    everything is done; up, test and down are its parts.
    """
    if context.invoked_subcommand is not None:
        return
    began = time.monotonic()
    chosen = _provider(provider, with_pipelines=pipelines)
    status = 1
    try:
        cluster = _up(chosen)
        status = _long(only) if is_long else _test(cluster, tests)
    except (CommandFailed, NotInTime) as error:
        console.print(f"[red]{error}[/red]", soft_wrap=True, markup=True)
    finally:
        if keep:
            console.print("the cluster stays up: python -m e2e kubectl get pods -A; python -m e2e down", soft_wrap=True)
        elif not _down(chosen):
            status = 1
    console.print(f"all of it took {time.monotonic() - began:.0f} s")
    raise typer.Exit(status)


@app.command()
def up(provider: ProviderOption = Where.processes, pipelines: PipelinesOption = False) -> None:
    """Brings the cluster up and leaves it running."""
    try:
        _up(_provider(provider, with_pipelines=pipelines))
    except (CommandFailed, NotInTime) as error:
        console.print(f"[red]{error}[/red]", soft_wrap=True)
        raise typer.Exit(1) from error


@app.command()
def reload() -> None:
    """Builds changed images and loads them into the nodes of the cluster that is up (processes)."""
    from e2e.providers.processes import ProcessProvider

    has_pipelines = _handle().images.pipeline is not None
    steps = Steps()
    try:
        _remember(ProcessProvider(with_pipelines=has_pipelines).reload(steps))
    finally:
        steps.done()


@app.command()
def test(tests: TestsOption = "") -> None:
    """Runs the tests in the cluster that is up."""
    raise typer.Exit(_test(_handle(), tests))


@app.command()
def figures(
    topics: Annotated[int, typer.Option("--topics", help="KafkaTopics that are applied.", min=1)] = 1000,
    partitions: Annotated[int, typer.Option("--partitions", help="Of each topic.", min=1)] = 1,
    rest_s: Annotated[float, typer.Option("--rest", help="Seconds at rest that are watched.", min=1)] = 300,
    out: Annotated[Path, typer.Option("--out", help="Where the figures go.")] = FIGURES,
) -> None:
    """Measures the operator: many topics created, calls and writes at rest, memory. Fails when it writes at rest.

    In the cluster that is up; else one is brought up for it and taken down again (processes).
    """
    measure = ["--topics", str(topics), "--partitions", str(partitions), "--rest-s", str(rest_s), "--out", str(out)]
    if _handle_path().exists():
        raise typer.Exit(_figures(_handle(), measure))
    chosen = _provider(Where.processes)
    status = 1
    try:
        status = _figures(_up(chosen), measure)
    except (CommandFailed, NotInTime) as error:
        console.print(f"[red]{error}[/red]", soft_wrap=True, markup=True)
    finally:
        if not _down(chosen):
            status = 1
    raise typer.Exit(status)


@app.command("long")
def long_proof(only: OnlyOption = "") -> None:
    """Runs the scenarios of `--long` in the cluster that is up."""
    _handle()
    raise typer.Exit(_long(only))


@app.command()
def down(provider: ProviderOption = Where.processes) -> None:
    """Takes the cluster down, also one that did not come up, and checks that nothing is left behind."""
    if not _down(_provider(provider)):
        raise typer.Exit(1)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def kubectl(context: typer.Context) -> None:
    """kubectl in the cluster that is up: python -m e2e kubectl get pods -A."""
    cluster = _handle()
    command = [*within(cluster.netns), cluster.kubectl, "--kubeconfig", str(cluster.kubeconfig), *context.args]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def _provider(where: Where, *, with_pipelines: bool = False) -> Provider:
    if where is Where.processes:
        from e2e.providers.processes import ProcessProvider

        return ProcessProvider(with_pipelines=with_pipelines)
    if where is Where.kind:
        from e2e.providers.kind import KindProvider

        return KindProvider()
    from e2e.providers.existing import ExistingProvider

    return ExistingProvider()


def _up(provider: Provider) -> KubernetesCluster:
    steps = Steps()
    try:
        cluster = provider.up(steps)
    finally:
        steps.done()
    _remember(cluster)
    return cluster


def _remember(cluster: KubernetesCluster) -> None:
    handle = _handle_path()
    handle.parent.mkdir(parents=True, exist_ok=True)
    handle.write_text(json.dumps(asdict(cluster), default=str))


def _down(provider: Provider) -> bool:
    """Whether nothing is left behind."""
    steps = Steps()
    try:
        left = provider.down(steps)
    except (CommandFailed, NotInTime) as error:
        left = [f"everything that was to come after this: {error}"]
    finally:
        steps.done()
    _handle_path().unlink(missing_ok=True)
    for line in left:
        console.print(f"[red]left behind: {line}[/red]", soft_wrap=True)
    if not left:
        console.print("nothing is left behind")
    return not left


def _test(cluster: KubernetesCluster, expression: str) -> int:
    """pytest, in the network namespace from which the cluster is reached."""
    results = CHECKOUT / "build" / "e2e" / "junit.xml"
    command = [
        *within(cluster.netns), sys.executable, "-m", "pytest", "-v", "--tb=short", "--color=auto",
        "--rootdir", str(CHECKOUT), "-c", str(CHECKOUT / "pyproject.toml"), f"--junit-xml={results}",
        "-o", f"timeout={LONGEST_TEST_S}",
        *(["-k", expression] if expression else []), str(CHECKOUT / "e2e" / "tests"),
    ]  # fmt: skip
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "OTTLA_E2E": str(_handle_path())}
    return subprocess.run(command, cwd=CHECKOUT, env=environment, check=False).returncode


def _figures(cluster: KubernetesCluster, arguments: list[str]) -> int:
    command = [*within(cluster.netns), sys.executable, "-m", "e2e.figures", "--handle", str(_handle_path())]
    return subprocess.run([*command, *arguments], check=False).returncode


def _long(only: str) -> int:
    netns = _handle().netns
    command = [*within(netns), sys.executable, "-m", "e2e.long", "--handle", str(_handle_path()), "--only", only]
    return subprocess.run([*command, "--out", str(LONG)], cwd=CHECKOUT, check=False).returncode


def _handle() -> KubernetesCluster:
    if not _handle_path().exists():
        console.print("no cluster is up: python -m e2e up")
        raise typer.Exit(1)
    return load_cluster(_handle_path())


def _handle_path() -> Path:
    return cache_directory() / "e2e" / HANDLE


def load_cluster(path: Path) -> KubernetesCluster:
    """Reads the file in which `up` has described the cluster."""
    from e2e.providers import cluster_from_json

    return cluster_from_json(json.loads(path.read_text()))


if __name__ == "__main__":
    app()
