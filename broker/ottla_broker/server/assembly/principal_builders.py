"""Loads the principal builder that principal.builder.class names, where that is not Apache Kafka's own.

A package offers one by an entry point, whose name is the value of the key:

    [project.entry-points."ottla.principal_builders"]
    acme = "acme.kafka:make_builder"

    def make_builder(config: BrokerConfig) -> PrincipalBuilder: ...

It is called once, before the listeners are opened; `config.static` has the keys of the file, with those that only the
builder knows. What it raises keeps the broker from starting. `ottla_broker.security.principal_builder` says what it
gives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ottla_broker.config import BrokerConfig
from ottla_broker.config.served import DEFAULT_PRINCIPALS
from ottla_broker.security.principal_builder import PrincipalBuilder
from ottla_broker.server.assembly.installed_packages import entry_point
from ottla_broker.server.lifecycle import StartRefused

GROUP: Final = "ottla.principal_builders"
KEY: Final = "principal.builder.class"

PrincipalBuilderFactory: TypeAlias = Callable[[BrokerConfig], PrincipalBuilder]
"""What an entry point names."""


def load_principal_builder(config: BrokerConfig, logger: logging.LoggerAdapter[Any]) -> PrincipalBuilder:
    """The builder that the key names, which is not the default.

    Raises:
        StartRefused: no entry point has that name, or it failed.
    """
    name = config.principal_builder_class
    try:
        factory: PrincipalBuilderFactory = entry_point(KEY, name, GROUP, DEFAULT_PRINCIPALS).load()
        return factory(config)
    except StartRefused:
        raise
    except Exception as error:
        logger.exception("the principal builder %s failed", name)
        raise StartRefused(f"{KEY}: {name} failed to start: {error!r}") from error
