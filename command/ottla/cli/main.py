"""`ottla`: the entry point of the command line. `ottla --help` lists the command groups."""

from __future__ import annotations

import os
import re
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
from difflib import get_close_matches  # noqa: E402
from typing import Annotated, Any  # noqa: E402

import typer  # noqa: E402
from typer.core import TyperGroup  # noqa: E402

_GROUPS = {
    "broker": ("ottla.cli.broker", "Run one broker from a server.properties file."),
    "disk": ("ottla.cli.disk", "Decisions about the log directories of a broker."),
    "local": ("ottla.cli.local", "Run a fleet on this machine, from the same documents as on Kubernetes."),
    "pipeline": (
        "ottla.cli.pipeline",
        "Run Spark pipelines from documents (needs the extra ottla[pipeline]).",
    ),
    "zookeeper": ("ottla.cli.zookeeper", "Who may change and read the znodes of a fleet."),
    "operator": ("ottla_operator.command", "The Kubernetes operator (needs the extra ottla[operator])."),
}


_HELP = """\
Ottla: a Kafka-compatible broker fleet.

\b
ottla local up -f manifests/cluster.yaml -f manifests/topics.yaml
ottla local status
ottla COMMAND --help     an example of each
"""
_CommandLineError: Any = typer.BadParameter.__mro__[2]
"""What is wrong with a command line: ClickException, which typer brings along or takes from click."""


class _LazyGroups(TyperGroup):
    """Imports the module of a group when the group is used; help only needs `_GROUPS`."""

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        if args[0] not in _GROUPS and not args[0].startswith("-"):
            close = get_close_matches(args[0], _GROUPS)
            meant = f". Did you mean {' or '.join(map(repr, close))}?" if close else f". There are {', '.join(_GROUPS)}"
            ctx.fail(f"No such command {args[0]!r}{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _GROUPS.items()])

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
    help=_HELP,
    rich_markup_mode=None,
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
    try:
        sys.exit(app(prog_name="ottla", standalone_mode=False))
    except _CommandLineError as error:
        sys.exit(_refuse(error))
    except typer.Abort:
        sys.exit(1)


def _refuse(error: Any) -> int:
    """Says in one line what is wrong with a command line, and where its help is. A command alone is a call for help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return int(error.exit_code)
    from ottla.cli.messages import complain

    text = " ".join(str(error.format_message()).split())
    text = re.sub(r"is not a valid int(eger)?( range)?\b", "is not a whole number", text)
    ending = "" if text.endswith(("?", ".")) else "."
    context = getattr(error, "ctx", None)
    command = "ottla" if context is None else context.command_path
    complain(f"{command}: {text}{ending} See: {command} --help")
    return int(error.exit_code)


if __name__ == "__main__":
    main()
