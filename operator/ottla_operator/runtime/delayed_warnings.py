"""Delays the Warnings of a KafkaCluster: a condition that is True again within a minute gets none.

It is remembered in this process only: a Warning that was due while the operator was away is not written, and none is
written twice.
"""

from __future__ import annotations

from ottla_operator.api.events import delayed_warnings
from ottla_operator.api.objects import Obj
from ottla_operator.api.times import seconds_between

WARN_AFTER_S = 60.0


class DelayedWarnings:
    """The conditions of one KafkaCluster that have not been True for less than `WARN_AFTER_S`, by type."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, str]] = {}

    def changed(self, before: Obj, after: Obj, now: str) -> None:
        """The status has changed."""
        reasons = {item["type"]: str(item["reason"]) for item in after.get("conditions") or []}
        for type_ in delayed_warnings(before, after):
            self._seen[type_] = (reasons[type_], now)

    def due(self, status: Obj, now: str) -> list[Obj]:
        """The conditions that have had the same reason for `WARN_AFTER_S`, each once."""
        found = []
        for item in status.get("conditions") or []:
            reason, since = self._seen.get(str(item["type"]), ("", ""))
            if reason and (item["status"] == "True" or item["reason"] != reason):
                del self._seen[str(item["type"])]
            elif reason and (seconds_between(since, now) or 0.0) >= WARN_AFTER_S:
                del self._seen[str(item["type"])]
                found.append(item)
        return found
