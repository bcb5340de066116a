"""`ottla zookeeper`: who may change and read the znodes of a fleet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ottla.cli.java_login import VARIABLE, JavaLoginError, jaas_line
from ottla.cli.messages import complain, fail

if TYPE_CHECKING:
    from ottla_broker.config import BrokerConfig
    from ottla_broker.coordination.acl_migration import Migrated
    from ottla_broker.coordination.znode_acls import AclOf

EXAMPLE = """\
From open znodes to closed ones while the fleet runs:

\b
1. give ZooKeeper a section Server, and roll it
2. give the brokers ottla.zookeeper.sasl.jaas.config, and roll them
3. give them zookeeper.set.acl=true, and roll them
4. ottla zookeeper secure --zookeeper.connect zk:2181/kafka --zk-tls-config-file server.properties

And back: zookeeper.set.acl=false and a roll, `ottla zookeeper unsecure`, then the rest in reverse.
The options are those of Kafka's zookeeper-security-migration.
"""
_REFUSED_SHOWN = 10

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
_console = Console()

ConnectOption = Annotated[
    str, typer.Option("--zookeeper.connect", metavar="HOST:PORT[/CHROOT]", help="As in server.properties.")
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--zk-tls-config-file",
        metavar="FILE",
        help="Properties of which zookeeper.ssl.* and ottla.zookeeper.sasl.jaas.config are read, such as "
        f"server.properties. Without a login there, that of {VARIABLE}.",
    ),
]
SessionOption = Annotated[
    int, typer.Option("--zookeeper.session.timeout", metavar="MS", min=1, help="Of the session with ZooKeeper.")
]
ConnectionOption = Annotated[
    int, typer.Option("--zookeeper.connection.timeout", metavar="MS", min=1, help="Of the first connection.")
]
CheckOption = Annotated[
    bool, typer.Option("--enable.path.check", help="End when a root that every fleet has is not there.")
]


@app.callback(epilog=EXAMPLE)
def _group() -> None:
    """Who may change and read the znodes of a fleet."""


@app.command(short_help="Closes the znodes to all but the brokers.")
def secure(
    connect: ConnectOption = "localhost:2181",
    tls_config_file: FileOption = None,
    session_timeout: SessionOption = 30000,
    connection_timeout: ConnectionOption = 30000,
    enable_path_check: CheckOption = False,
) -> None:
    """Gives every znode of a fleet the ACL that it has with zookeeper.set.acl=true.

    Only whom ZooKeeper knows as this user may change it then, and read what is secret. It may be stopped, and run
    again.
    """
    from ottla_broker.coordination.znode_acls import secure_acl

    config = _config(connect, tls_config_file, session_timeout, connection_timeout)
    _run(config, secure_acl, checks_paths=enable_path_check)


@app.command(short_help="Opens the znodes to everyone.")
def unsecure(
    connect: ConnectOption = "localhost:2181",
    tls_config_file: FileOption = None,
    session_timeout: SessionOption = 30000,
    connection_timeout: ConnectionOption = 30000,
    enable_path_check: CheckOption = False,
) -> None:
    """Gives every znode of a fleet the ACL that it has without zookeeper.set.acl: anyone may do everything.

    It needs the login of the brokers, whose znodes they are. It may be stopped, and run again.
    """
    from ottla_broker.coordination.znode_acls import open_acl

    config = _config(connect, tls_config_file, session_timeout, connection_timeout)
    _run(config, open_acl, checks_paths=enable_path_check)


def _config(connect: str, path: Path | None, session_timeout_ms: int, connection_timeout_ms: int) -> BrokerConfig:
    """What a broker would be configured with, as far as it is about ZooKeeper. Else the command ends with a line."""
    from ottla_broker.config import BrokerConfig, ConfigError
    from ottla_broker.config.zookeeper_security import JAAS_KEY, SET_ACL

    values = _security_keys(path)
    try:
        if JAAS_KEY not in values and (line := jaas_line(os.environ)) is not None:
            values[JAAS_KEY] = line
        values |= {
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": str(session_timeout_ms),
            "zookeeper.connection.timeout.ms": str(connection_timeout_ms),
            SET_ACL: "true",  # for its rule: without a login nobody may change what has an ACL
        }
        return BrokerConfig.from_mapping(values)
    except JavaLoginError as error:
        fail(str(error))
    except ConfigError as error:
        if error.key == SET_ACL:
            fail(
                f"no login: give {JAAS_KEY} or a client certificate (zookeeper.ssl.*) in --zk-tls-config-file, or name "
                f"a JAAS file with a section Client by {VARIABLE}=-Djava.security.auth.login.config=FILE"
            )
        fail(f"{f'--zk-tls-config-file {path}: ' if path and error.key in values else ''}{error}")


def _security_keys(path: Path | None) -> dict[str, str]:
    from ottla_broker.config.properties import decode_properties_file, parse_properties
    from ottla_broker.config.zookeeper_security import JAAS_KEY

    if path is None:
        return {}
    try:
        given = parse_properties(decode_properties_file(path.read_bytes()))
    except OSError as error:
        fail(f"--zk-tls-config-file {path}: {error.strerror or error}")
    except ValueError as error:
        fail(f"--zk-tls-config-file {path}: {error}")
    return {key: value for key, value in given.items() if key.startswith("zookeeper.ssl.") or key == JAAS_KEY}


def _run(config: BrokerConfig, acl_of: AclOf, *, checks_paths: bool) -> None:
    from ottla_broker.ports.coordination import CoordinationError
    from ottla_broker.security.tls_settings import TlsError

    try:
        done = asyncio.run(_migrate(config, acl_of, checks_paths))
    except ValueError as error:  # zookeeper.connect
        fail(str(error))
    except (CoordinationError, TlsError) as error:
        fail(f"{error}; what is done is done, run the command again")
    _console.print(f"{done.seen} znodes, {done.changed} changed", highlight=False)
    if done.refused:
        complain(
            f"{len(done.refused)} znodes and what is below them belong to another user, who has to run the command: "
            + ", ".join(done.refused[:_REFUSED_SHOWN])
            + (", ..." if len(done.refused) > _REFUSED_SHOWN else "")
        )
        raise typer.Exit(1)


async def _migrate(config: BrokerConfig, acl_of: AclOf, checks_paths: bool) -> Migrated:
    from ottla_broker.adapters.process import zookeeper_session
    from ottla_broker.coordination.acl_migration import migrate, missing_roots

    session = zookeeper_session(config, makes_chroot=False)
    await session.start()
    try:
        if await session.exists("/") is None:
            fail(f"--zookeeper.connect {config.zookeeper_connect}: there is no such chroot")
        if missing := await missing_roots(session):
            where = f"--zookeeper.connect {config.zookeeper_connect}"
            text = f"{where}: there is no {', '.join(missing)}: is it the chroot of a fleet?"
            if checks_paths:
                fail(f"{text} Nothing is changed")
            complain(text)
        return await migrate(session, acl_of, _progress())
    finally:
        await session.close()


def _progress() -> Callable[[str, Migrated], None]:
    def show(root: str, done: Migrated) -> None:
        _console.print(f"{root}: {done.seen} znodes so far, {done.changed} changed", highlight=False)

    return show
