"""Decides which connections the broker accepts.

    max.connections                          of the broker. At the limit a listener accepts nothing: new connections
                                             wait. With more than one listener the inter-broker listener still accepts,
                                             and the client connection that is idle for longest is closed (KIP-402).
    listener.name.X.max.connections          of one listener, without exception.
    max.connection.creation.rate             accepted per second, by the broker (without the inter-broker listener);
                                             after listener.name.X., by one listener (KIP-612). The next one waits.
    max.connections.per.ip, ….overrides      of one address; more are closed at once.

Source: kafka.network.ConnectionQuotas.

Decisions only. Not here: listeners and connections (`socket_server`).
"""

from __future__ import annotations

import ipaddress
import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping

from ottla_broker.config import BrokerConfig
from ottla_broker.config.definitions import find_key
from ottla_broker.rates import WindowedRate

logger = logging.getLogger("ottla.server")

_MAX = "max.connections"
_RATE = "max.connection.creation.rate"
_WINDOWS = 11
_WINDOW_S = 1.0
_NO_RATE = 2**31 - 1


class ConnectionLimits:
    """See the module.

    `opened` and `closed` keep the counts; `privileged` are the inter-broker and controller listeners.
    """

    def __init__(self, config: BrokerConfig, privileged: Collection[str | None]) -> None:
        self._config = config
        self._privileged = privileged
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        self._rate = WindowedRate(_WINDOWS, _WINDOW_S)
        self._rates: dict[str, WindowedRate] = {}
        self._overrides: Mapping[str, int] = {}
        """By address."""

    @property
    def total(self) -> int:
        return self._of_listener.total()

    def is_protected(self, listener: str) -> bool:
        """Whether clients cannot use up the listener's connections: with a single listener all are alike."""
        return listener in self._privileged and len(self._config.listeners.bound) > 1

    def opened(self, listener: str, address: str, now: float) -> None:
        """A connection counts from now on (seconds)."""
        self._of_listener[listener] += 1
        self._of_address[plain(address)] += 1
        self._rates.setdefault(listener, WindowedRate(_WINDOWS, _WINDOW_S)).record(1, now)
        if not self.is_protected(listener):
            self._rate.record(1, now)

    def closed(self, listener: str, address: str) -> None:
        self._of_listener[listener] -= 1
        address = plain(address)
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    def reason_to_close(self, address: str) -> str:
        """Why another connection of the address is not kept, "" when it is."""
        address = plain(address)
        most: int = self._overrides.get(address, self._config.max_connections_per_ip)
        if self._of_address[address] < most:
            return ""
        return f"{address} has max.connections.per.ip={most} connections"

    def wait_s(self, listener: str, now: float) -> float:
        """For how long the listener accepts nothing: 0 when it may, infinity until a connection ends."""
        if self._of_listener[listener] >= self._own(listener, _MAX):
            return math.inf
        own_rate = self._own(listener, _RATE)
        wait_s = self._rates[listener].wait_s(own_rate, now) if own_rate < _NO_RATE and listener in self._rates else 0.0
        if self.is_protected(listener):
            return wait_s
        if self.total >= self._config.max_connections:
            return math.inf
        rate = self._config.max_connection_creation_rate
        return max(wait_s, self._rate.wait_s(rate, now)) if rate < _NO_RATE else wait_s

    @property
    def excess(self) -> int:
        """How many client connections to close: a broker connected over the limit, or the limit was lowered."""
        return max(self.total - self._config.max_connections, 0)

    @property
    def override_hosts(self) -> list[str]:
        """The hosts of max.connections.per.ip.overrides, names or addresses."""
        return [host for host, _ in self._given_overrides()]

    def resolved(self, addresses: Mapping[str, Collection[str]]) -> None:
        """Sets the addresses of the `override_hosts`."""
        self._overrides = {
            plain(address): most for host, most in self._given_overrides() for address in addresses.get(host, ())
        }

    def _given_overrides(self) -> list[tuple[str, int]]:
        found = []
        entries = self._config.max_connections_per_ip_overrides.split(",")
        for entry in filter(None, map(str.strip, entries)):
            host, _, most = entry.rpartition(":")
            found.append((host.strip().removeprefix("[").removesuffix("]"), int(most)))
        return found

    def _own(self, listener: str, key: str) -> int:
        """What `listener.name.X.KEY` says; no limit without it."""
        name = f"listener.name.{listener.lower()}.{key}"
        text = self._config.original(name)
        known = find_key(name)
        if text is None or known is None:
            return _NO_RATE
        return int(known.parse(text, name=name))


def plain(address: str) -> str:
    """An address in its usual form, also of an IPv4 client on a socket of both families.

    >>> plain("::ffff:10.0.0.1"), plain("10.0.0.1"), plain("0:0::1")
    ('10.0.0.1', '10.0.0.1', '::1')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
