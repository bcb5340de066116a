"""Makes the authorizer that authorizer.class.name names: Apache Kafka's AclAuthorizer, or that of an installed package.

A package offers an authorizer by an entry point, whose name is the value of the key:

    [project.entry-points."ottla.authorizers"]
    acme = "acme.kafka:make_authorizer"

    async def make_authorizer(context: AuthorizerContext) -> StartedAuthorizer: ...

It is called once, before the listeners are opened, and gives an authorizer that has loaded what it needs to decide.
What it raises keeps the broker from starting. The authorizer's `decide` runs on the broker's event loop for each new
question of a client: what takes time (a call to another system) belongs into a task of `context.clock.spawn`, which
ends with the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from ottla_broker.authorization.acl_authorizer import AclAuthorizer
from ottla_broker.authorization.acls import Acls
from ottla_broker.authorization.authorizer import Authorizer
from ottla_broker.config import BrokerConfig
from ottla_broker.config.authorizer_keys import super_users
from ottla_broker.config.served import ACL_AUTHORIZER
from ottla_broker.ports import Clock, Coordination
from ottla_broker.server.assembly.installed_packages import entry_point
from ottla_broker.server.lifecycle import StartRefused
from ottla_broker.server.store.stored_acls import StoredAcls

GROUP: Final = "ottla.authorizers"
KEY: Final = "authorizer.class.name"


@dataclass(frozen=True, slots=True)
class AuthorizerContext:
    """What an authorizer is made of.

    Args:
        config: of the broker; `config.static` has the keys of the file, those that only the authorizer knows included.
        coordination: the session with the coordination store. Everything below /kafka-acl* is AclAuthorizer's.
    """

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    coordination: Coordination
    clock: Clock
    logger: logging.LoggerAdapter[Any]


class StartedAuthorizer(NamedTuple):
    """An authorizer that can decide, and the ACLs that clients may describe and change, if it has any."""

    authorizer: Authorizer
    acls: Acls | None = None


AuthorizerFactory: TypeAlias = Callable[[AuthorizerContext], Awaitable[StartedAuthorizer]]
"""What an entry point names."""


async def start_authorizer(context: AuthorizerContext) -> StartedAuthorizer:
    """Makes and starts the authorizer that authorizer.class.name names, which is not empty.

    Raises:
        StartRefused: no entry point has that name, or it failed.
        CoordinationError: the ACLs cannot be read.
    """
    name = context.config.authorizer_class_name
    if name == ACL_AUTHORIZER:
        return await _acl_authorizer(context)
    try:
        factory: AuthorizerFactory = entry_point(KEY, name, GROUP, ACL_AUTHORIZER).load()
        return await factory(context)
    except StartRefused:
        raise
    except Exception as error:
        context.logger.exception("the authorizer %s failed", name)
        raise StartRefused(f"{KEY}: {name} failed to start: {error!r}") from error


async def _acl_authorizer(context: AuthorizerContext) -> StartedAuthorizer:
    config = context.config
    authorizer = AclAuthorizer(super_users(config), allows_without_acl=config.allow_everyone_if_no_acl_found)
    acls = StoredAcls(authorizer, context.coordination, context.clock, context.logger)
    await acls.start()
    return StartedAuthorizer(authorizer, acls)
