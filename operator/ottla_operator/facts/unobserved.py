"""What stands for an observation whose reading ended with a bug."""

from __future__ import annotations

from typing import Any


class ObservationFailed(Exception):
    """The observer of a concern raised; the message says what."""


class Unobserved:
    """Raises as soon as a concern asks for something of it: a bug in what one concern observes is a bug of that
    concern, and stops no other."""

    __slots__ = ("_reason",)

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        raise ObservationFailed(self._reason)
