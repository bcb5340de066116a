"""Decides which connections the broker accepts.

    max.connections                          of the broker. At the limit a listener accepts nothing: new connections
                                             wait. With more than one listener the inter-broker listener still accepts,
                                             and the client connection that is idle for longest is closed (KIP-402).
    listener.name.X.max.connections          of one listener, without exception.
    max.connection.creation.rate             accepted per second, by the broker (without the inter-broker listener);
                                             after listener.name.X., by one listener (KIP-612). The next one waits.
    connection_creation_rate                 accepted per second from one address, a client quota (KIP-612). One above
                                             it is closed, after a while: at once, its client would try again at once.
    max.connections.per.ip, ….overrides      of one address; more are closed at once.

Rates are those of client quotas (`quotas.sampled_rate`, quota.window.num and quota.window.size.seconds): what was not
used for ten seconds may come at once. Whoever waits for a rate waits for one sample at most.

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
from ottla_broker.config.listeners import parse_connection_overrides
from ottla_broker.quotas.sampled_rate import SampledRate

logger = logging.getLogger("ottla.server")

_MAX = "max.connections"
_RATE = "max.connection.creation.rate"
_NO_RATE = 2**31 - 1
_FEW_ADDRESSES = 1000


class ConnectionLimits:
    """See the module.

    `opened` and `closed` keep the counts; `privileged` are the inter-broker and controller listeners.
    """

    def __init__(self, config: BrokerConfig, privileged: Collection[str | None]) -> None:
        self._config = config
        self._privileged = privileged
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        self._rate = self._new_rate()
        self._rates: dict[str, SampledRate] = {}
        self._accepts_at: dict[str, float] = {}
        """By listener: when its rate allows the next connection."""
        self._rates_of_addresses: dict[str, SampledRate] = {}
        """Of those with a quota."""
        self._forgets_at = _FEW_ADDRESSES
        self._quota_of_address: dict[str, int] = {}
        self._default_quota = _NO_RATE
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
        rate = self._rates.setdefault(listener, self._new_rate())
        wait_s = self._record(rate, self._own(listener, _RATE), now)
        if not self.is_protected(listener):
            wait_s = max(wait_s, self._record(self._rate, self._config.max_connection_creation_rate, now))
        self._accepts_at[listener] = now + wait_s

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
        if not self.is_protected(listener) and self.total >= self._config.max_connections:
            return math.inf
        return max(self._accepts_at.get(listener, now) - now, 0.0)

    def set_address_quota(self, address: str | None, rate: int | None) -> None:
        """Sets the connection_creation_rate of an address, or of those without their own (None); None removes it."""
        if address is None:
            self._default_quota = _NO_RATE if rate is None else rate
        elif rate is None:
            self._quota_of_address.pop(plain(address), None)
        else:
            self._quota_of_address[plain(address)] = rate

    def throttle_s(self, address: str, now: float) -> float:
        """Counts a connection of an address; 0 when it is kept, else the seconds after which to close it instead."""
        address = plain(address)
        quota = self._quota_of_address.get(address, self._default_quota)
        if quota == _NO_RATE:
            return 0.0
        rate = self._rates_of_addresses.get(address)
        if rate is None:
            if len(self._rates_of_addresses) >= self._forgets_at:
                self._forget_rates(now)
            rate = self._rates_of_addresses[address] = self._new_rate()
        wait_s = self._record(rate, quota, now)
        if wait_s:
            rate.record(-1, now)
        return wait_s

    def _new_rate(self) -> SampledRate:
        return SampledRate(self._config.quota_window_num, self._config.quota_window_size_seconds)

    def _record(self, rate: SampledRate, bound: int, now: float) -> float:
        """Counts a connection, and gives the seconds to wait for `bound`."""
        rate.record(1, now)
        if bound >= _NO_RATE:
            return 0.0
        longest_s: float = self._config.quota_window_size_seconds
        return min(rate.throttle_s(bound, now), longest_s)

    def _forget_rates(self, now: float) -> None:
        """Drops the rates that are back at 0, so that addresses that never come again take no memory.

        The next time when twice as many as are left are there: each new address pays for a constant number of others.
        """
        rates = self._rates_of_addresses
        for address in [one for one, rate in rates.items() if not rate.measure(now)]:
            del rates[address]
        self._forgets_at = max(_FEW_ADDRESSES, 2 * len(rates))

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

    def _given_overrides(self) -> tuple[tuple[str, int], ...]:
        return parse_connection_overrides(self._config.max_connections_per_ip_overrides)

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
