"""Which quota holds for a client: the eight levels of precedence (KIP-55). Pure.

    1. user + client id          /config/users/U/clients/C
    2. user + default client id  /config/users/U/clients/<default>
    3. user                      /config/users/U
    4. default user + client id  /config/users/<default>/clients/C
    5. both default              /config/users/<default>/clients/<default>
    6. default user              /config/users/<default>
    7. client id                 /config/clients/C
    8. default client id         /config/clients/<default>

The first level that has a bound holds. The clients that it holds for do not share it, unless they have the same tags:
the connections of one user + client id (levels 1, 2, 4, 5), of one user (3, 6), or of one client id (7, 8).

Source: kafka.server.ClientQuotaManager.DefaultQuotaCallback.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from ottla_broker.quotas.entities import DEFAULT, EntityName, QuotaEntity

UNLIMITED: Final = float(2**63 - 1)
"""The bound of a client without a quota, as Apache Kafka's."""


class Part(Enum):
    """What a level has for a user or a client id."""

    OWN = "own"
    DEFAULT = "default"
    NONE = "none"


LEVELS: Final[tuple[tuple[Part, Part], ...]] = (
    (Part.OWN, Part.OWN),
    (Part.OWN, Part.DEFAULT),
    (Part.OWN, Part.NONE),
    (Part.DEFAULT, Part.OWN),
    (Part.DEFAULT, Part.DEFAULT),
    (Part.DEFAULT, Part.NONE),
    (Part.NONE, Part.OWN),
    (Part.NONE, Part.DEFAULT),
)
"""(user, client id) of each level, the first in precedence first."""
_LEVELS_WITHOUT_CLIENT_ID: Final = tuple(parts for parts in LEVELS if parts[1] is Part.NONE)


class Tags(NamedTuple):
    """Names the clients that share one bound, in metrics too. "" where the level has no such part."""

    user: str
    client_id: str


class Match(NamedTuple):
    """The bound of a client, and with whom it shares it."""

    bound: float
    tags: Tags


class QuotaTable:
    """The bounds of one quota type.

    >>> table = QuotaTable()
    >>> table.set(QuotaEntity(client_id=DEFAULT), 100.0)
    >>> table.set(QuotaEntity(user="alice"), 200.0)
    >>> table.match("alice", "reports")
    Match(bound=200.0, tags=Tags(user='alice', client_id=''))
    >>> table.match("bob", "reports")
    Match(bound=100.0, tags=Tags(user='', client_id='reports'))
    """

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: dict[tuple[EntityName | None, EntityName | None], float] = {}

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def set(self, entity: QuotaEntity, bound: float | None) -> None:
        """Sets the bound of a user, client id or both; None removes it."""
        key = (entity.user, entity.client_id)
        if bound is None:
            self._bounds.pop(key, None)
        else:
            self._bounds[key] = bound

    def match(self, user: str, client_id: str) -> Match:
        """The quota that holds for a client.

        A client without an id ("") has none of the levels with a client id: Apache Kafka looks those up for names only.
        """
        for parts in _levels_of(client_id):
            bound = self._bounds.get((_name(parts[0], user), _name(parts[1], client_id)))
            if bound is not None:
                tags = Tags("" if parts[0] is Part.NONE else user, "" if parts[1] is Part.NONE else client_id)
                return Match(bound, tags)
        return Match(UNLIMITED, Tags("", client_id))


def _levels_of(client_id: str) -> Sequence[tuple[Part, Part]]:
    return LEVELS if client_id else _LEVELS_WITHOUT_CLIENT_ID


def _name(part: Part, name: str) -> EntityName | None:
    if part is Part.OWN:
        return name
    return DEFAULT if part is Part.DEFAULT else None
