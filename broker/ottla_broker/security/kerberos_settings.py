"""What the keys of a listener say about Kerberos. Pure values.

Source: com.sun.security.auth.module.Krb5LoginModule; org.apache.kafka.common.security.kerberos.KerberosLogin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_broker.security.kerberos_rules import KerberosRules


class KeytabError(ValueError):
    """A keytab, or the Kerberos library, that cannot be used.

    Args:
        key: the configuration key that names it.
        reason: what is wrong, and what to do.
        file: "" where it is no file.
    """

    def __init__(self, key: str, reason: str, file: str = "") -> None:
        self.key = key
        self.file = file
        super().__init__(f"{key}: {file}: {reason}" if file else f"{key}: {reason}")


@dataclass(frozen=True, slots=True)
class Keytab:
    """A principal and the file with its keys, as a JAAS line of Krb5LoginModule names them.

    Args:
        key: that of the JAAS line.
    """

    key: str
    principal: str
    file: str


@dataclass(frozen=True, slots=True)
class Renewal:
    """When a broker logs in again.

    Args:
        window: the part of a ticket's life after which it does.
        jitter: the part of its life that is added at most.
        shortest_s: between two logins, unless the ticket ends before.
    """

    window: float
    jitter: float
    shortest_s: float

    def wait_s(self, lifetime_s: float, drawn: float) -> float:
        """How long a ticket is used from its login on.

        Args:
            lifetime_s: of the ticket.
            drawn: from 0 up to 1.

        >>> Renewal(0.5, 0.25, 60).wait_s(1000, 0.5), Renewal(0.5, 0.25, 60).wait_s(100, 0)
        (625.0, 60)
        """
        proposed = lifetime_s * (self.window + self.jitter * drawn)
        wait_s = max(proposed, self.shortest_s)
        return wait_s if wait_s < lifetime_s else min(proposed, lifetime_s)


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """The Kerberos keys of one listener.

    Args:
        service: the first component of the brokers' principals, for which clients ask.
        is_initiator: whether the keytab may be used to log in to others.
    """

    keytab: Keytab
    service: str
    rules: KerberosRules
    renewal: Renewal
    is_initiator: bool


def keytab_of(key: str, options: Mapping[str, str]) -> Keytab:
    """The keytab by the options of Krb5LoginModule in a JAAS line.

    >>> keytab_of("k", {"useKeyTab": "true", "keyTab": "/k.keytab", "principal": "kafka/b.example@EXAMPLE"}).file
    '/k.keytab'

    Raises:
        ValueError: they name no keytab, or no principal; the message says which option.
    """
    if is_true(options, "useTicketCache"):
        raise ValueError("useTicketCache is not served: name a keytab by useKeyTab=true and keyTab")
    if not is_true(options, "useKeyTab"):
        raise ValueError("useKeyTab=true is needed: passwords are not asked for")
    file, principal = options.get("keyTab", ""), options.get("principal", "")
    if not file:
        raise ValueError("it has no keyTab, the file with the keys of the principal")
    if principal in ("", "*"):
        raise ValueError("it has no principal, such as kafka/broker.example@EXAMPLE")
    return Keytab(key, principal, file)


def is_true(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Whether an option of Krb5LoginModule is on."""
    return options.get(name, default).lower() == "true"
