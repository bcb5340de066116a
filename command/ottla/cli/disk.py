"""`ottla disk`: decisions about the log directories of a broker that only an administrator can make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from ottla.cli.command_config import CommandConfigOption, read_command_config
from ottla.cli.messages import confirm_deletion, fail
from ottla.local.client_connector import connector_of
from ottla.local.control import ControlError, NotRunning, ask
from ottla.local.disks import DiskAdmin, DiskAdminError
from ottla.local.secure_files import SecureFiles
from ottla_broker.protocol.number_text import whole_number

T = TypeVar("T")
_PLAIN_HINT = "; where the listener has TLS, give --command-config FILE"

EXAMPLE = """\
A log directory that is offline, as `ottla local status` and the log of the
broker name it, comes back by itself when its disk is repaired. Where it is
lost for good:

\b
ottla disk forget --broker 1 --dir d1 --data .ottla/orders
ottla disk forget --broker 7 --dir /disk1 --bootstrap-server kafka:9092

--command-config names a file with security.protocol, ssl.* and sasl.*, as for Kafka's
own tools, where the listener has TLS.

Both say first which partitions had their only in-sync replica there, and ask.
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
_console = Console()


@app.callback(epilog=EXAMPLE)
def _group() -> None:
    """Decisions about the log directories (disks) of a broker."""


@app.command(short_help="Gives up what only an offline directory holds.")
def forget(
    broker: Annotated[int, typer.Option("--broker", metavar="N", help="The broker's id.")],
    directory: Annotated[str, typer.Option("--dir", metavar="DIR", help="The log directory, as in log.dirs.")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The data directory of a running local fleet.")
    ] = None,
    bootstrap_server: Annotated[
        str, typer.Option("--bootstrap-server", metavar="HOST:PORT", help="Any broker of the fleet.")
    ] = "",
    command_config: CommandConfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Gives up the partitions that exist only on an offline directory: they start again, empty.

    Partitions with another in-sync replica do not change. If the disk can be repaired, do that instead: the directory
    comes back online by itself, with its records.
    """
    if (data is None) == (not bootstrap_server):
        fail("name the fleet with --data DIR or with --bootstrap-server HOST:PORT, one of them")
    security = read_command_config(command_config)
    if data is not None:
        found = _status_of(data)
        bootstrap_server = found["bootstrap"]
        if found.get("secure", False) and not security:
            bootstrap_server = found["admin_bootstrap"]
            security = SecureFiles(data.absolute()).internal_client_keys()
        if not directory.startswith("/"):
            directory = str(data.absolute() / f"broker-{broker}" / directory)
    host, colon, port = bootstrap_server.split(",")[0].strip().rpartition(":")
    number = whole_number(port)
    if not colon or number is None or not 0 < number <= 65535:
        fail(f"--bootstrap-server {bootstrap_server}: write HOST:PORT")

    def run(act: Callable[[DiskAdmin], Coroutine[Any, Any, T]]) -> T:
        return _run(_admin(host, number, security, act), "" if security else _PLAIN_HINT)

    loss = run(lambda admin: admin.loss(broker, directory))
    if not loss.partitions:
        _console.print(f"every partition on {directory} of broker {broker} has another in-sync replica: nothing to do")
        return
    names = ", ".join(f"{topic}-{index}" for topic, index in loss.partitions)
    _console.print(
        f"{len(loss.partitions)} partitions have their only in-sync replica on {directory}: {names}",
        soft_wrap=True,
        highlight=False,
    )
    if loss.followers:
        _console.print(
            "lagging replicas exist of: "
            + ", ".join(f"{topic}-{index}" for topic, index in loss.followers)
            + "; an unclean leader election would keep the records of such a replica",
            soft_wrap=True,
            highlight=False,
        )
    confirm_deletion("permanently give up all records of these partitions?", yes, "nothing is given up")
    left = run(lambda admin: admin.forget(loss))
    if left:
        waiting = ", ".join(f"{topic}-{index}" for topic, index in left)
        _console.print(f"requested; still without a leader: {waiting}", soft_wrap=True, highlight=False)
        raise typer.Exit(1)
    _console.print(f"{len(loss.partitions)} partitions are empty and online")


def _status_of(data: Path) -> dict[str, Any]:
    try:
        return ask(data.absolute(), {"command": "status"})
    except (NotRunning, ControlError) as error:
        fail(str(error))


async def _admin(
    host: str, port: int, security: Mapping[str, str], act: Callable[[DiskAdmin], Coroutine[Any, Any, T]]
) -> T:
    from ottla_broker.adapters.clock import LoopClock
    from ottla_broker.adapters.network import SocketNetwork

    network, clock = SocketNetwork(), LoopClock()
    try:
        return await act(DiskAdmin(connector_of(network, clock, security), clock, host, port))
    finally:
        network.close()


def _run(work: Coroutine[Any, Any, T], hint: str) -> T:
    """`hint`: the end of the line about a broker that does not answer."""
    try:
        return asyncio.run(work)
    except DiskAdminError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error}{hint}")
