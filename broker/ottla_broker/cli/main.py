"""`ottla`: the entry point of the command line. `ottla --help` lists the command groups."""

from __future__ import annotations

import os
import signal
import sys


def _end_at_sigterm() -> None:
    """The kernel drops signals that process 1 of a container does not handle. Without this handler a SIGTERM during the
    imports is lost, and the process runs until SIGKILL. There is nothing to clean up yet."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _frame: os._exit(128 + number))


if __name__ == "__main__":
    _end_at_sigterm()  # the imports below take several times as long as all that comes before

import importlib  # noqa: E402
from typing import Annotated  # noqa: E402

import typer  # noqa: E402
from typer.core import TyperGroup  # noqa: E402

_GROUPS = {
    "broker": ("ottla_broker.cli.broker", "Run one broker from a server.properties file."),
    "disk": ("ottla_broker.cli.disk", "Decisions about the log directories of a broker."),
    "local": ("ottla_broker.cli.local", "Run a fleet on this machine, from the same documents as on Kubernetes."),
    "pipeline": (
        "ottla_broker.cli.pipeline",
        "Run Spark pipelines from documents (needs the extra ottla[pipeline]).",
    ),
    "operator": ("ottla_operator.command", "The Kubernetes operator (needs the package's extra: ottla[operator])."),
}


class _LazyGroups(TyperGroup):
    """Imports the module of a group when the group is used; help only needs `_GROUPS`."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(_GROUPS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> typer.core.TyperGroup | None:  # type: ignore[override]
        if cmd_name not in _GROUPS:
            return None
        module, help_text = _GROUPS[cmd_name]
        group = typer.main.get_group(importlib.import_module(module).app)
        group.name = cmd_name
        group.help = help_text
        return group


app = typer.Typer(
    cls=_LazyGroups,
    help="Ottla: a Kafka-compatible broker fleet.\n\n"
    "Try: ottla local up -f manifests/cluster.yaml -f manifests/topics.yaml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"ottla {version('ottla')}, as Apache Kafka 3.9 in ZooKeeper mode")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Has the command groups and no command of its own."""


def main() -> None:
    """Entry point of the console script, and of a container."""
    _end_at_sigterm()
    sys.exit(app())


if __name__ == "__main__":
    main()
