"""What a row of the tables is, and the questions that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.edge.dispatch import LISTED, Listing, served
from tests.beside.requests import Request
from tests.beside.security.names import NOTHING, Names, Right
from tests.beside.security.world import World

Need = tuple[AclOperation, ResourceType]
"""A right on each resource of a type that a request is about."""


NAMES_IDS: Mapping[ApiKey, int] = {
    ApiKey.PRODUCE: 13,
    ApiKey.FETCH: 13,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
}
"""APIs whose requests name topics by id from a version on (KIP-516)."""
Build = Callable[[World, Names, int], Any]
"""The body of a request to one broker about names, in a version. It may ask the broker to make what it needs."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of request of one API."""

    api_key: ApiKey
    build: Build
    needs: tuple[Need, ...] = ()
    """In the order in which they are asked for."""
    variants: Mapping[str, Names] = field(default_factory=lambda: NOTHING)
    """By what they are; the first one names what exists."""
    about: str = ""
    lowest: int = 0
    highest: int = 99
    instead: tuple[tuple[Need, ...], ...] = ()
    """Other sets of rights with which it is asked too."""
    changes: bool = False
    """Granted, it changes topics: they are made again before the next question."""
    is_ours_alone: bool = False
    """Apache Kafka 3.9 with ZooKeeper does not serve it."""

    def __str__(self) -> str:
        return self.api_key.name + (f" {self.about}" if self.about else "")

    @property
    def versions(self) -> range:
        """Those that Apache Kafka 3.9 serves; of what it does not serve, ours."""
        return self.own_versions if self.is_ours_alone else self._range(LISTED)

    @property
    def own_versions(self) -> range:
        """Those of ours, beyond 3.9."""
        return self._range(served({}))

    def _range(self, listings: Iterable[Listing]) -> range:
        listing = next(one for one in listings if one.api_key is self.api_key)
        return range(max(self.lowest, listing.lowest), min(self.highest, listing.highest) + 1)

    def rights(self, names: Names, needs: tuple[Need, ...] | None = None) -> tuple[Right, ...]:
        """All that it takes, or that of other needs."""
        every = self.needs if needs is None else needs
        return tuple(Right(operation, kind, name) for operation, kind in every for name in names.of(kind))

    def request(self, world: World, names: Names, version: int) -> Request | None:
        """None where the version cannot say it."""
        body = self.build(world, names, version)
        if body is None:
            return None
        try:
            codec.frame_request(int(self.api_key), version, 1, "beside", body)
        except ValueError:
            return None
        return Request(self.api_key, version, body)


class Question(NamedTuple):
    """A request with the rights of who asks it."""

    row: Row
    variant: str
    names: Names
    rights: tuple[Right, ...]
    version: int

    def __str__(self) -> str:
        variant = f" ({self.variant})" if self.variant else ""
        return f"{self.row} v{self.version}{variant}, with {', '.join(map(str, self.rights)) or 'no right'}"

    @property
    def names_twice(self) -> bool:
        """One name comes twice."""
        return any(len(set(names)) < len(names) for names in self.names if names)

    @property
    def is_granted(self) -> bool:
        """Nothing that it takes is missing."""
        return set(self.row.rights(self.names)) <= set(self.rights)


def questions(row: Row, *, is_of_ours: bool = False) -> Iterator[Question]:
    """Without a right, with each right but one, with all, and with those that may do instead. In that order, all
    versions with the same rights one after the other.

    Args:
        is_of_ours: in each version of ours too.
    """
    for variant, names in row.variants.items():
        every = row.rights(names)
        sets = [(), *(tuple(right for right in every if right != missing) for missing in every), every]
        sets += [row.rights(names, needs) for needs in row.instead]
        for rights in dict.fromkeys(sets):
            for version in row.own_versions if is_of_ours else row.versions:
                yield Question(row, variant, names, rights, version)
