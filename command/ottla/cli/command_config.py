"""`--command-config FILE`: how a command reaches brokers, in the file that Kafka's own tools take (client.properties).

Of its keys `security.protocol`, `ssl.*` and `sasl.*` have an effect, in the spelling of Java's clients or of
librdkafka. Other keys of an admin client are taken, so that one file serves all tools.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.messages import fail
from ottla_broker.config.properties import decode_properties_file, parse_properties
from ottla_broker.security.client_settings import KEYS, client_security, is_security_key, nearest
from ottla_broker.security.tls_settings import TlsError

CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config", metavar="FILE", help="Properties of a client of Kafka: security.protocol, ssl.*, sasl.*."
    ),
]
_WITHOUT_EFFECT = (
    "auto.include.jmx.reporter", "bootstrap.controllers", "bootstrap.servers", "client.dns.lookup", "client.id",
    "connections.max.idle.ms", "default.api.timeout.ms", "enable.metrics.push", "metadata.max.age.ms",
    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "request.timeout.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
)  # fmt: skip
"""Keys of Kafka's AdminClientConfig about what a command chooses itself."""


def read_command_config(path: Path | None) -> dict[str, str]:
    """The keys of the file about security, which can be used; none without a file. Else the command ends with a line.

    The stores that they name are read, so that what is wrong with them is said by this command, not by a connection.
    """
    if path is None:
        return {}
    try:
        given = parse_properties(decode_properties_file(path.read_bytes()))
    except OSError as error:
        fail(f"--command-config {path}: {error.strerror or error}")
    except ValueError as error:
        fail(f"--command-config {path}: {error}")
    for key in given:
        if not is_security_key(key) and key not in _WITHOUT_EFFECT:
            fail(f"--command-config {path}: {key}: is unknown{nearest(key, (*KEYS, *_WITHOUT_EFFECT))}")
    found = {key: value for key, value in given.items() if is_security_key(key)}
    try:
        _check_stores(found)
    except TlsError as error:
        fail(f"--command-config {path}: {error}")
    return found


def _check_stores(security: Mapping[str, str]) -> None:
    """Raises TlsError."""
    settings = client_security(security).tls
    if settings is not None:
        from ottla_broker.security.tls_context import load_client

        load_client(settings, time.time())
