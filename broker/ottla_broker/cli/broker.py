"""`ottla broker run`: one broker as a process."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run one broker from a server.properties file."""


@app.command()
def run(
    properties: Annotated[Path, typer.Argument(help="Kafka's own server.properties.", exists=True, dir_okay=False)],
    override: Annotated[
        list[str] | None, typer.Option("--override", metavar="KEY=VALUE", help="Wins over the file; may be repeated.")
    ] = None,
) -> None:
    """Runs a broker until SIGTERM, which stops it in order; a second SIGTERM skips to the flush.

    The configuration keys are Apache Kafka 3.9's, plus a few that begin with ottla. Example:

    ottla broker run server.properties --override broker.id=7 --override log.dirs=/disk0,/disk1
    """
    from ottla_broker.adapters import process
    from ottla_broker.config import BrokerConfig, ConfigError

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        config = BrokerConfig.from_properties(properties.read_text(), override or [])
        _ = config.zookeeper
    except ConfigError as error:
        sys.stderr.write(f"{properties}: {error}\n")
        raise typer.Exit(1) from None
    if config.unknown_keys:
        logging.getLogger("ottla").warning(
            "%s: unknown keys are ignored: %s", properties, ", ".join(config.unknown_keys)
        )
    raise typer.Exit(process.run(_serve(config)))


async def _serve(config: object) -> int:
    """Runs the broker; the exit status is 0 after an orderly stop and 1 after a halt or a refusal to start."""
    from ottla_broker.adapters.http import HttpServer
    from ottla_broker.adapters.process import freeze_garbage, make_ports, zookeeper_coordination
    from ottla_broker.config import BrokerConfig
    from ottla_broker.server.broker import Broker, StartRefused
    from ottla_broker.server.http_routes import routes

    assert isinstance(config, BrokerConfig)
    broker = Broker(config, make_ports(config, zookeeper_coordination(config)))
    http = HttpServer(routes(broker))
    if config.http_listener is not None:
        await http.start(*config.http_listener)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    halted = asyncio.ensure_future(broker.halted())
    asked = asyncio.ensure_future(stopping.wait())
    try:
        starting = asyncio.ensure_future(broker.start())
        await asyncio.wait([starting, halted, asked], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            freeze_garbage()
            await asyncio.wait([halted, asked], return_when=asyncio.FIRST_COMPLETED)
        if halted.done():
            sys.stderr.write(f"broker halted: {halted.result()}\n")
            return 1
        if not starting.done():
            starting.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, broker.hurry)
        await broker.stop()
        return 0
    except StartRefused as error:
        sys.stderr.write(f"broker refuses to start: {error}\n")
        return 1
    finally:
        http.close()
