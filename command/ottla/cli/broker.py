"""`ottla broker run`: one broker as a process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ottla.cli.java_login import JavaLoginError, jaas_line

if TYPE_CHECKING:
    from ottla_broker.config import BrokerConfig
    from ottla_broker.http_server import HttpServer
    from ottla_broker.server.broker import Broker

logger = logging.getLogger("ottla")

EXAMPLE = """\
The least that a file says:

\b
broker.id=7
listeners=PLAINTEXT://127.0.0.1:9092
log.dirs=/var/lib/ottla/d0,/var/lib/ottla/d1
zookeeper.connect=127.0.0.1:2181
# for /readyz, /status and /metrics
ottla.http.listener=127.0.0.1:8080
# one broker alone: Kafka's default of 3 replicas cannot be had
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1

\b
ottla broker run server.properties
ottla broker run server.properties --override broker.id=8

A broker needs a ZooKeeper 3.9. Without one, `ottla local up` runs a whole fleet.
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback(epilog=EXAMPLE)
def _group() -> None:
    """Run one broker from a server.properties file."""


@app.command(short_help="Runs a broker until SIGTERM.")
def run(
    properties: Annotated[
        Path,
        typer.Argument(metavar="SERVER.PROPERTIES", help="Kafka's own configuration file."),
    ],
    override: Annotated[
        list[str] | None, typer.Option("--override", metavar="KEY=VALUE", help="Overrides the file; may be repeated.")
    ] = None,
    log_level: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_LOG_LEVEL",
            metavar="LEVEL",
            help="Level of the root logger: FATAL, ERROR, WARN, INFO, DEBUG, TRACE.",
        ),
    ] = "INFO",
) -> None:
    """Runs a broker until SIGTERM, which starts a controlled shutdown: leadership moves to other brokers first.

    A second SIGTERM skips the move of leadership.

    The configuration keys are those of Apache Kafka 3.9 and a few that begin with ottla.

    \b
    ottla broker run server.properties --override broker.id=7
    """
    from ottla_broker.adapters import process, process_logging
    from ottla_broker.config import BrokerConfig, ConfigError, broker_key_is_meant
    from ottla_broker.config.log_levels import LEVELS
    from ottla_broker.config.properties import decode_properties_file, keys_in_utf_8, parse_properties

    if log_level not in LEVELS:
        _refuse(f"--log-level (OTTLA_LOG_LEVEL): must be one of {', '.join(LEVELS)}, not {log_level!r}")
    overrides = _overrides(override or [])
    try:
        text = decode_properties_file(properties.read_bytes())
        if _is_yaml(properties, text):
            _refuse(f"{properties} is YAML, not a properties file: `ottla local up -f {properties}` runs documents")
        config = BrokerConfig.from_properties(text, [*_java_login(text, overrides), *(override or [])])
        _ = config.zookeeper
    except JavaLoginError as error:
        _refuse(str(error))
    except ConfigError as error:
        if error.key in overrides:
            _refuse(f"--override {error.key}={overrides[error.key]}: {error.reason}")
        _refuse(f"{properties}: {error}")
    except OSError as error:
        _refuse(f"{properties}: {error.strerror}")
    last_lines = process_logging.configure(lambda: config.broker_id, LEVELS[log_level])
    for name in (name for name in config.unknown_keys if name in overrides):
        logger.warning("--override %s: an unknown key is ignored%s", name, broker_key_is_meant(name))
    if of_file := [name for name in config.unknown_keys if name not in overrides]:
        shown = ", ".join(f"{name}{_meant(broker_key_is_meant(name))}" for name in of_file)
        logger.warning("%s: unknown keys are ignored: %s", properties, shown)
    if in_utf_8 := keys_in_utf_8(parse_properties(text)):
        logger.warning(
            "%s: read as ISO 8859-1, as Java does, but these values look like UTF-8 and are decoded wrongly "
            "(write characters beyond ASCII as \\uXXXX): %s", properties, ", ".join(in_utf_8),
        )  # fmt: skip
    _import_broker(config.http_listener is not None)
    raise typer.Exit(
        process.run(_serve(config, last_lines.__str__), writes_on_loop=config.ottla_log_write_on_loop == "auto")
    )


def _java_login(text: str, overrides: Mapping[str, str]) -> list[str]:
    """The login to ZooKeeper that KAFKA_OPTS names, as an override, unless the key is given. Raises JavaLoginError."""
    from ottla_broker.config.properties import parse_properties
    from ottla_broker.config.zookeeper_security import JAAS_KEY

    try:
        is_given = JAAS_KEY in overrides or JAAS_KEY in parse_properties(text)
    except ValueError:
        return []  # what is wrong with the file is said by whoever reads it
    line = None if is_given else jaas_line(os.environ)
    return [] if line is None else [f"{JAAS_KEY}={line}"]


def _overrides(entries: list[str]) -> dict[str, str]:
    """The keys and values of --override."""
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            _refuse(f"--override {entry}: write KEY=VALUE")
        found[name.strip()] = value
    return found


def _meant(suggestion: str) -> str:
    """
    >>> _meant("; is listeners meant?"), _meant("")
    (' (is listeners meant?)', '')
    """
    return f" ({suggestion.removeprefix('; ')})" if suggestion else ""


def _is_yaml(path: Path, text: str) -> bool:
    """Whether the file has documents for Kubernetes: YAML reads as properties of another kind."""
    from ottla_broker.config.properties import parse_properties

    try:
        return {"apiVersion", "kind"} <= parse_properties(text).keys()
    except ValueError:
        return path.suffix in (".yaml", ".yml")


def _import_broker(with_http: bool) -> None:
    """Half a second, in which a loop that runs already would answer nothing."""
    import ottla_broker.server.broker

    if with_http:
        import ottla_broker.http_server
        import ottla_broker.server.edge.http_endpoints  # noqa: F401


def _refuse(message: str) -> NoReturn:
    from ottla_broker.adapters.termination import write_reason

    write_reason(message)
    sys.stderr.write(f"{message}\n")
    raise typer.Exit(1)


async def _serve(config: BrokerConfig, last_line: Callable[[], str] = str) -> int:
    """Runs the broker. The exit status is 0 after a shutdown and 1 after a halt or a failed start."""
    from ottla_broker.adapters import process_logging
    from ottla_broker.adapters.process import freeze_garbage, make_ports, zookeeper_coordination
    from ottla_broker.adapters.termination import write_reason
    from ottla_broker.server.broker import Broker, StartRefused

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    broker = Broker(config, make_ports(config, zookeeper_coordination(config)))
    http: HttpServer | None = None
    with process_logging.about(lambda: broker.broker_id):
        try:
            if config.http_listener is not None:
                http = await _listen(broker, config, last_line)
            starting = asyncio.ensure_future(broker.start())
            halted = asyncio.ensure_future(broker.halted())
            asked = asyncio.ensure_future(stopping.wait())
            await asyncio.wait([starting, halted, asked], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                freeze_garbage()
                await asyncio.wait([halted, asked], return_when=asyncio.FIRST_COMPLETED)
            if not halted.done():
                await _stop(broker, starting)
            if broker.state == "stopped":
                return 0
            write_reason(f"halted: {await halted}")  # already logged
            return 1
        except StartRefused as error:
            write_reason(f"the broker refuses to start: {error}")
            logger.critical("the broker refuses to start: %s", error)
            return 1
        except Exception as error:
            write_reason(f"unexpected error, please report it with the log: {type(error).__name__}: {error}")
            logger.exception("the broker ends with an unexpected error, please report it")
            return 1
        finally:
            if http is not None:
                http.close()


async def _listen(broker: Broker, config: BrokerConfig, last_line: Callable[[], str]) -> HttpServer:
    from ottla_broker.http_server import HttpServer
    from ottla_broker.server.broker import StartRefused
    from ottla_broker.server.edge.http_endpoints import routes

    http = HttpServer(routes(broker, last_line), config.ottla_http_max_connections)
    assert config.http_listener is not None
    try:
        await http.start(*config.http_listener)
    except OSError as error:
        raise StartRefused(f"ottla.http.listener: {error.strerror or error}") from error
    return http


async def _stop(broker: Broker, starting: asyncio.Future[None]) -> None:
    """Shuts the broker down; a second signal skips to the flush."""
    logger.info("stopping")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.skip_to_flush)
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
    await broker.stop()
    if broker.state == "stopped":
        logger.info("stopped")
