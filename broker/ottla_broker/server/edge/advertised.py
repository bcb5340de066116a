"""The endpoints that a broker advertises, once its listeners are bound."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from ottla_broker.config import Endpoint
from ottla_broker.server.store.registration import RegistrationRefused


async def advertised_endpoints(
    configured: Iterable[Endpoint],
    bound: Mapping[str, tuple[str, int]],
    own_name: Callable[[], Awaitable[str]],
) -> tuple[Endpoint, ...]:
    """The endpoints of advertised.listeners with what they leave open.

    Args:
        configured: port 0 stands for the port that was bound, no host for this machine's own name.
        bound: (host, port) by listener.
        own_name: looks the machine's name up.

    Raises:
        RegistrationRefused: a host is missing, and the machine's name has no address.
    """
    found = []
    for endpoint in configured:
        port = endpoint.port or bound[endpoint.listener][1]
        host = endpoint.host or await _own_name(own_name)
        found.append(Endpoint(endpoint.listener, host, port, endpoint.security_protocol))
    return tuple(found)


async def _own_name(own_name: Callable[[], Awaitable[str]]) -> str:
    try:
        return await own_name()
    except OSError as error:
        raise RegistrationRefused(
            "advertised.listeners: no host is given, and the machine's own name has no address "
            f"({error.strerror or error}); set a host there, or in listeners"
        ) from error
