"""The keys of AclAuthorizer: its super users, and those of its own session with ZooKeeper. Pure.

Source: kafka.security.authorizer.AclAuthorizer.configure.
"""

from __future__ import annotations

import re

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.definitions import AUTHORIZER_ZOOKEEPER, find_key
from ottla_broker.config.served import ACL_AUTHORIZER, has_default_principals
from ottla_broker.config.types import ConfigError
from ottla_broker.security.principals import USER, Principal, parse_principal

_SUPER_USERS = "super.users"
_SPACED = re.compile(r"[A-Za-z0-9.]+=.*[,+]\s+[A-Za-z0-9.]+=")
"""A distinguished name with spaces behind its commas, as OpenSSL prints it."""


def check_authorizer(values: BrokerValues) -> None:
    """ConfigError for the first key of AclAuthorizer that cannot be used; other authorizers have keys of their own."""
    if values.authorizer_class_name != ACL_AUTHORIZER:
        return
    super_users(values)
    for name in sorted(values.given_keys):
        known = find_key(name) if name.startswith(AUTHORIZER_ZOOKEEPER) else None
        if known is None:
            continue
        text = values.original(name) or ""
        if known.parse(text, name=name) != values.by_name[known.name]:
            raise ConfigError(
                name,
                None if known.is_sensitive else text,
                f"the value of {known.name}, or left out: ACLs are read in the broker's session, in the cluster's "
                "ZooKeeper",
            )


def super_users(values: BrokerValues) -> tuple[Principal, ...]:
    """Who may do everything.

    Raises:
        ConfigError: an entry has no type, or no principal can be it.
    """
    found = []
    for entry in filter(None, map(str.strip, values.super_users.split(";"))):
        try:
            principal = parse_principal(entry)
        except ValueError as error:
            raise ConfigError(_SUPER_USERS, values.super_users, str(error)) from None
        reason = _why_nobody(values, principal)
        if reason:
            raise ConfigError(_SUPER_USERS, values.super_users, f"{entry!r} is nobody: {reason}")
        found.append(principal)
    return tuple(found)


def _why_nobody(values: BrokerValues, principal: Principal) -> str:
    """Why no principal can be this one; "" when one can."""
    if principal.name in ("", "*"):
        return "name each user; there is no wildcard here"
    if not has_default_principals(values.by_name["principal.builder.class"]):
        return ""
    if principal.type != USER:
        return f"the type of every principal is {USER}"
    if values.ssl_principal_mapping_rules == "DEFAULT" and _SPACED.match(principal.name):
        return "a certificate's subject has no spaces behind its commas"
    return ""
