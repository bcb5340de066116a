"""Listeners, advertised addresses and the ZooKeeper address, parsed from their keys with Kafka's rules. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from ottla_broker.config.types import INT_MAX, ConfigError
from ottla_broker.protocol.number_text import whole_number

_SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(r"([^:/\s]+)\s*:\s*//(?:\[([^\]]*)\]|([^:/\[\]]*)):(-?[0-9]+)")
ZOOKEEPER_PORT = 2181


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener by name, its address and its security protocol.

    In the configuration an empty host means every interface (listeners) or this machine's own name
    (advertised.listeners). `security_protocol` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    """

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Listeners:
    """The addresses of one broker, in the order of the file. The names are those of listeners, upper case."""

    bound: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker: str
    control_plane: str | None
    of_brokers: frozenset[str] = frozenset()
    """Those that serve the requests that only brokers send."""


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """Servers as (host, port), and the chroot: "" or a path that begins with a slash."""

    servers: tuple[tuple[str, int], ...]
    chroot: str

    @property
    def connect_string(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)


def parse_listeners(values: Mapping[str, Any], is_given: Callable[[str], bool]) -> Listeners:
    """Listeners from typed values; `is_given` tells which keys are set and not only defaulted.

    ConfigError for: a malformed entry, a name or port used twice, a name without an entry in
    listener.security.protocol.map, an advertised name that is not bound, an advertised 0.0.0.0, an inter-broker or
    control-plane listener, or one of ottla.broker.request.listeners, that does not exist.
    """
    protocols = _protocol_map(values["listener.security.protocol.map"])
    if is_given("listeners") or not (is_given("host.name") or is_given("port")):
        bound_text = values["listeners"]
    else:
        bound_text = f"PLAINTEXT://{_bracketed(values['host.name'] or '')}:{values['port']}"
    bound = _endpoints("listeners", bound_text, protocols)
    ports = [endpoint.port for endpoint in bound if endpoint.port != 0]
    if len(set(ports)) != len(ports):
        raise ConfigError("listeners", bound_text, "each listener must have a port of its own")

    advertised_key = "advertised.listeners"
    if is_given(advertised_key) and values[advertised_key].strip():
        advertised = _endpoints(advertised_key, values[advertised_key], protocols)
    elif is_given("advertised.host.name") or is_given("advertised.port"):
        host, port = values["advertised.host.name"], values["advertised.port"]
        advertised = tuple(
            replace(endpoint, host=host or endpoint.host, port=endpoint.port if port is None else port)
            for endpoint in bound
        )
    else:
        advertised = bound
    bound_names = [endpoint.listener for endpoint in bound]
    for endpoint in advertised:
        if endpoint.listener not in bound_names:
            raise ConfigError(
                advertised_key, endpoint.listener, f"a listener named in listeners: {', '.join(bound_names)}"
            )
        if endpoint.host in ("0.0.0.0", "::"):
            raise ConfigError(
                advertised_key, f"{endpoint.listener}://{endpoint.host}:{endpoint.port}",
                "an address that clients can reach; set advertised.listeners",
            )  # fmt: skip
    advertised_names = [endpoint.listener for endpoint in advertised]
    inter_broker = _inter_broker(values, is_given, protocols, advertised_names)
    control_plane = _control_plane(values, is_given, bound_names, advertised_names)
    of_brokers = {inter_broker, *_further_listeners_of_brokers(values, bound_names)}
    return Listeners(
        bound,
        advertised,
        inter_broker,
        control_plane,
        frozenset(of_brokers if control_plane is None else {*of_brokers, control_plane}),
    )


def security_protocol_of(values: Mapping[str, Any], listener: str) -> str:
    """The security protocol of a listener by name, from typed values; PLAINTEXT for one that the map does not have.

    >>> security_protocol_of({"listener.security.protocol.map": "CLIENT:SASL_SSL"}, "CLIENT")
    'SASL_SSL'
    """
    return _protocol_map(values["listener.security.protocol.map"]).get(listener, "PLAINTEXT")


def _protocol_map(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in _SECURITY_PROTOCOLS or name in found:
            raise ConfigError(
                "listener.security.protocol.map", entry,
                f"NAME:PROTOCOL, each name once, with a protocol of {', '.join(_SECURITY_PROTOCOLS)}",
            )  # fmt: skip
        found[name] = protocol
    return found


def _endpoints(key: str, text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    found: list[Endpoint] = []
    for entry in (part.strip() for part in text.split(",")):
        match = _LISTENER.fullmatch(entry)
        port = None if match is None else _port(match[4])
        if match is None or port is None:
            raise ConfigError(key, entry, "NAME://HOST:PORT, separated by commas")
        name = match[1].upper()
        if name not in protocols:
            raise ConfigError(
                key,
                entry,
                f"the name {name} needs an entry in listener.security.protocol.map, such as {name}:PLAINTEXT",
            )
        if any(endpoint.listener == name for endpoint in found):
            raise ConfigError(key, text, f"each listener name once, but {name} stands twice")
        found.append(Endpoint(name, match[2] if match[2] is not None else match[3], port, protocols[name]))
    return tuple(found)


def _inter_broker(
    values: Mapping[str, Any],
    is_given: Callable[[str], bool],
    protocols: Mapping[str, str],
    advertised_names: list[str],
) -> str:
    key = "inter.broker.listener.name"
    if is_given(key) and is_given("security.inter.broker.protocol"):
        raise ConfigError(key, values[key], "only one of it and security.inter.broker.protocol may be given")
    if is_given(key):
        name = values[key].upper()
        if name not in protocols:
            raise ConfigError(key, values[key], f"the name {name} needs an entry in listener.security.protocol.map")
    else:
        name = values["security.inter.broker.protocol"]
    if name not in advertised_names:
        raise ConfigError(
            key, values[key] if is_given(key) else None,
            f"{name} is not among the advertised listeners {', '.join(advertised_names)}; name one of them",
        )  # fmt: skip
    return str(name)


def _control_plane(
    values: Mapping[str, Any], is_given: Callable[[str], bool], bound_names: list[str], advertised_names: list[str]
) -> str | None:
    key = "control.plane.listener.name"
    if not is_given(key):
        return None
    name = str(values[key]).upper()
    if name not in bound_names or name not in advertised_names:
        raise ConfigError(key, values[key], f"a listener that is bound and advertised: {', '.join(advertised_names)}")
    if is_given("inter.broker.listener.name") and name == values["inter.broker.listener.name"].upper():
        raise ConfigError(key, values[key], "another listener than inter.broker.listener.name")
    return name


def _further_listeners_of_brokers(values: Mapping[str, Any], bound_names: list[str]) -> list[str]:
    key = "ottla.broker.request.listeners"
    names = [name.upper() for name in values[key]]
    for name in names:
        if name not in bound_names:
            raise ConfigError(key, name, f"listeners named in listeners: {', '.join(bound_names)}")
    return names


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_zookeeper_connect(text: str) -> ZooKeeperAddress:
    """`h1:2181,h2:2181/chroot`; the port defaults to 2181. ConfigError when a chroot stands anywhere but at the end.

    >>> parse_zookeeper_connect("a:2181,b/fleets/one")
    ZooKeeperAddress(servers=(('a', 2181), ('b', 2181)), chroot='/fleets/one')
    """
    key = "zookeeper.connect"
    allowed = "HOST:PORT,HOST:PORT/CHROOT"
    hosts, slash, path = text.strip().partition("/")
    if "," in path:
        raise ConfigError(key, text, f"the chroot is written once, after the last server: {allowed}")
    chroot = (slash + path).rstrip("/")
    servers: list[tuple[str, int]] = []
    for server in hosts.split(","):
        match = re.fullmatch(r"\s*(?:\[([^\]]+)\]|([^:\s\[\]]+))(?::([0-9]+))?\s*", server)
        port = None if match is None else _port(match[3] or str(ZOOKEEPER_PORT))
        if match is None or not port:
            raise ConfigError(key, text, allowed)
        servers.append((match[1] or match[2], port))
    if "//" in chroot:
        raise ConfigError(key, text, "a chroot without empty parts")
    return ZooKeeperAddress(tuple(servers), chroot)


def parse_http_listener(text: str) -> tuple[str, int]:
    """(host, port) of ottla.http.listener: `HOST:PORT`, `:PORT` for every interface, `http://` before it is fine."""
    match = re.fullmatch(r"(?:http://)?(?:\[([^\]]*)\]|([^:/\[\]]*)):([0-9]+)/?", text.strip())
    port = None if match is None else _port(match[3])
    if match is None or port is None:
        raise ConfigError("ottla.http.listener", text, "HOST:PORT")
    return (match[1] if match[1] is not None else match[2]), port


def parse_networks(key: str, entries: Sequence[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Addresses and networks, as a list of `key` names them.

    >>> parse_networks("k", ["10.1.0.0/16", "::1"])
    (IPv4Network('10.1.0.0/16'), IPv6Network('::1/128'))
    """
    found = []
    for entry in entries:
        try:
            found.append(ip_network(entry))
        except ValueError:
            raise ConfigError(key, entry, "addresses and networks, such as 10.0.0.7 and 10.1.0.0/16") from None
    return tuple(found)


def parse_connection_overrides(text: str) -> tuple[tuple[str, int], ...]:
    """(host, most connections) of max.connections.per.ip.overrides: `HOST:NUMBER,HOST:NUMBER`.

    >>> parse_connection_overrides("10.0.0.1:5, [::1]:6")
    (('10.0.0.1', 5), ('::1', 6))
    """
    found: list[tuple[str, int]] = []
    for entry in filter(None, map(str.strip, text.split(","))):
        host, colon, number = entry.rpartition(":")
        most = whole_number(number.strip())
        if not colon or most is None or not -INT_MAX - 1 <= most <= INT_MAX:
            raise ConfigError("max.connections.per.ip.overrides", text, "ADDRESS:NUMBER,ADDRESS:NUMBER,...")
        found.append((host.strip().removeprefix("[").removesuffix("]"), most))
    return tuple(found)


def _port(text: str) -> int | None:
    port = whole_number(text)
    return port if port is not None and 0 <= port <= 65535 else None
