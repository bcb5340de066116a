"""Writes without effect: fields that an admission webhook changes back at each write, or a controller soon after.

The operator stops writing such a field for a while instead of writing it every two seconds, and a roll goes on. It is
one object, by its uid, whose field is changed back: the next pod of a broker never had a label that the former had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ottla_operator.api.comparison import differences
from ottla_operator.api.objects import Obj, name_of, uid_of
from ottla_operator.facts.difference import stamp, stamped
from ottla_operator.facts.snapshot import ContestedFields

NOT_WRITTEN_S = 600.0
MOST_WRITES = 3
"""How often in that time a field of an object is written back before the operator stops."""

_ANNOTATIONS = "metadata.annotations"

Name = tuple[str, str]


@dataclass(slots=True)
class _WriteHistory:
    uid: str
    stamp: str
    since: float
    annotations: Obj = field(default_factory=dict)
    """The annotations as they were declared last; their values are not in the stamp."""
    times: dict[str, int] = field(default_factory=dict)
    contested: set[str] = field(default_factory=set)


class ContestedWrites:
    """The recent writes of one cluster's objects. In memory only: a new operator tries again."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._written: dict[Name, _WriteHistory] = {}

    def known(self) -> dict[Name, ContestedFields]:
        """The fields not to write now, by kind and name."""
        now = self._monotonic()
        self._written = {name: one for name, one in self._written.items() if now - one.since < NOT_WRITTEN_S}
        return {
            name: ContestedFields(one.uid, one.stamp, tuple(sorted(one.contested)))
            for name, one in self._written.items()
            if one.contested
        }

    def note(self, desired: Obj, before: Sequence[str], answer: Obj) -> None:
        """Records a write.

        Args:
            before: the paths that differed before the write.
            answer: the object that the API server returned.
        """
        name, mark, uid = (str(desired["kind"]), name_of(desired)), stamp(desired), uid_of(answer)
        one = self._written.get(name)
        if one is None or (one.uid, one.stamp) != (uid, mark):
            one = self._written[name] = _WriteHistory(uid, mark, self._monotonic())
        declared = dict(desired["metadata"].get("annotations") or {})
        if declared != one.annotations:  # ours have changed: nobody has changed them back
            one.annotations = declared
            one.times = {path: times for path, times in one.times.items() if not path.startswith(_ANNOTATIONS)}
        one.contested |= set(differences(answer, stamped(desired)))
        for path in before:
            one.times[path] = one.times.get(path, 0) + 1
            if one.times[path] >= MOST_WRITES:
                one.contested.add(path)
