"""`ottla broker run`: one broker as a process."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from ottla_broker.adapters.http_server import HttpServer
    from ottla_broker.config import BrokerConfig
    from ottla_broker.server.broker import Broker

logger = logging.getLogger("ottla")

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run one broker from a server.properties file."""


@app.command()
def run(
    properties: Annotated[
        Path,
        typer.Argument(
            metavar="SERVER.PROPERTIES", help="Kafka's own configuration file.", exists=True, dir_okay=False
        ),
    ],
    override: Annotated[
        list[str] | None, typer.Option("--override", metavar="KEY=VALUE", help="Overrides the file; may be repeated.")
    ] = None,
    log_level: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_LOG_LEVEL", help="Level of the root logger: FATAL, ERROR, WARN, INFO, DEBUG, TRACE."
        ),
    ] = "INFO",
) -> None:
    """Runs a broker until SIGTERM, which starts a controlled shutdown: leadership moves to other brokers first.

    A second SIGTERM skips the move of leadership.

    The configuration keys are those of Apache Kafka 3.9 and a few that begin with ottla. Example:

    ottla broker run server.properties --override broker.id=7 --override log.dirs=/disk0,/disk1
    """
    from ottla_broker.adapters import process, process_logging
    from ottla_broker.config import BrokerConfig, ConfigError
    from ottla_broker.config.log_levels import LEVELS
    from ottla_broker.config.properties import decode_properties_file, keys_in_utf_8, parse_properties

    if log_level not in LEVELS:
        _refuse(f"--log-level (OTTLA_LOG_LEVEL): must be one of {', '.join(LEVELS)}, not {log_level!r}")
    try:
        text = decode_properties_file(properties.read_bytes())
        config = BrokerConfig.from_properties(text, override or [])
        _ = config.zookeeper
    except ConfigError as error:
        _refuse(f"{properties}: {error}")
    except OSError as error:
        _refuse(f"{properties}: {error.strerror}")
    last_lines = process_logging.configure(lambda: config.broker_id, LEVELS[log_level])
    if config.unknown_keys:
        logger.warning("%s: unknown keys are ignored: %s", properties, ", ".join(config.unknown_keys))
    if in_utf_8 := keys_in_utf_8(parse_properties(text)):
        logger.warning(
            "%s: read as ISO 8859-1, as Java does, but these values look like UTF-8 and are decoded wrongly "
            "(write characters beyond ASCII as \\uXXXX): %s", properties, ", ".join(in_utf_8),
        )  # fmt: skip
    _import_broker(config.http_listener is not None)
    raise typer.Exit(
        process.run(_serve(config, last_lines.__str__), writes_on_loop=config.ottla_log_write_on_loop == "auto")
    )


def _import_broker(with_http: bool) -> None:
    """Half a second, in which a loop that runs already would answer nothing."""
    import ottla_broker.server.broker

    if with_http:
        import ottla_broker.adapters.http_server
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
                http = await _listen(broker, config.http_listener, last_line)
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


async def _listen(broker: Broker, address: tuple[str, int], last_line: Callable[[], str]) -> HttpServer:
    from ottla_broker.adapters.http_server import HttpServer
    from ottla_broker.server.broker import StartRefused
    from ottla_broker.server.edge.http_endpoints import routes

    http = HttpServer(routes(broker, last_line))
    try:
        await http.start(*address)
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
