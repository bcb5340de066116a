"""Writes that have no effect: what an admission webhook changes back at each, or a controller soon after.

The operator gives up for a while instead of writing every two seconds for ever, and a roll goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ottla_operator.api.comparison import differences
from ottla_operator.api.objects import Obj, name_of
from ottla_operator.planning.difference import stamp, stamped
from ottla_operator.planning.snapshot import ContestedFields

GIVEN_UP_S = 600.0
MOST_WRITES = 3
"""How often in that time the same path of an object is written back before it is given up."""

Name = tuple[str, str]


@dataclass(slots=True)
class _WriteHistory:
    stamp: str
    since: float
    times: dict[str, int] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)


class ContestedWrites:
    """What was written of one cluster's objects of late. In memory only: a new operator tries again."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._written: dict[Name, _WriteHistory] = {}

    def known(self) -> dict[Name, ContestedFields]:
        """What not to write now."""
        now = self._monotonic()
        self._written = {name: one for name, one in self._written.items() if now - one.since < GIVEN_UP_S}
        return {
            name: ContestedFields(one.stamp, tuple(sorted(one.given_up)))
            for name, one in self._written.items()
            if one.given_up
        }

    def note(self, desired: Obj, before: Sequence[str], answer: Obj) -> None:
        """A write of `desired` because of the paths `before`, and the object that the API server answered with."""
        name, mark = (str(desired["kind"]), name_of(desired)), stamp(desired)
        one = self._written.get(name)
        if one is None or one.stamp != mark:
            one = self._written[name] = _WriteHistory(mark, self._monotonic())
        one.given_up |= set(differences(answer, stamped(desired)))
        for path in before:
            one.times[path] = one.times.get(path, 0) + 1
            if one.times[path] >= MOST_WRITES:
                one.given_up.add(path)
