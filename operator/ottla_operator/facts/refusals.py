"""What Kafka has refused a short time ago, and why: it is not asked for again meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

REFUSED_S = 60.0
"""How long a refused request is not made again, unless its kind has a time of its own."""

_Request = TypeVar("_Request", bound=Hashable)


class Refusals(Generic[_Request]):
    """The refusals of one kind of request: of partitions by topic and index, of values by broker and key."""

    def __init__(self, monotonic: Callable[[], float], lasts_s: float = REFUSED_S) -> None:
        self._monotonic = monotonic
        self._lasts_s = lasts_s
        self._refused: dict[_Request, tuple[float, str]] = {}

    def add(self, errors: Mapping[_Request, str]) -> None:
        """Each error counts from now on for `lasts_s`."""
        until = self._monotonic() + self._lasts_s
        self._refused |= {request: (until, text) for request, text in errors.items()}

    def now(self) -> Mapping[_Request, str]:
        """What still counts, with the error."""
        now = self._monotonic()
        self._refused = {request: found for request, found in self._refused.items() if found[0] > now}
        return {request: text for request, (_, text) in self._refused.items()}
