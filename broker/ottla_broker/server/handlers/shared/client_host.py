"""The address of a client as the group coordinator keeps and shows it."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address

from ottla_broker.server.handler_api import RequestContext


def client_host(context: RequestContext) -> str:
    """With a slash in front, as Java shows an address without a host name."""
    return f"/{_written_out(context.peer[0])}"


@lru_cache(4096)
def _written_out(host: str) -> str:
    """An IPv6 address with all of its groups, as Apache Kafka shows it; anything else as it is.

    >>> _written_out("::1"), _written_out("127.0.0.1")
    ('0:0:0:0:0:0:0:1', '127.0.0.1')
    """
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.partition("%")[0].split(":"))
