"""Gives turns to roll to the clusters of this operator, from the cache and from what was given a moment ago."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla_operator.api.objects import KAFKA_CLUSTER, dig
from ottla_operator.concerns.roll.state import from_status
from ottla_operator.concerns.roll.turns import QueuedRoll, cluster_text, queued_roll, rolls_ahead
from ottla_operator.runtime.object_cache import Key, ObjectCache

GIVEN_FOR_S = 30.0
"""How long a turn counts as held although status does not show it yet."""
SILENT_S = 120.0
"""A cluster without a successful reconciliation for so long neither holds a turn nor wants one."""


class RollTurns:
    """`ask` is called by one task at a time: it never awaits, so two clusters never get the same turn.

    Args:
        most: how many clusters may restart members at the same time; 0: any number.
    """

    def __init__(self, most: int, cache: ObjectCache, now: Callable[[], str], monotonic: Callable[[], float]) -> None:
        self._most = most
        self._cache = cache
        self._now = now
        self._monotonic = monotonic
        self._given: dict[str, float] = {}
        self._reconciled: dict[str, float] = {}
        self._began = monotonic()

    def reconciled(self, key: Key) -> None:
        """A reconciliation of this cluster has succeeded."""
        self._reconciled["/".join(key)] = self._monotonic()

    def ask(self, key: Key, started: str) -> tuple[str, ...]:
        """The clusters that this one has to wait for; empty when it may choose a batch now."""
        cluster, passed, now = "/".join(key), self._monotonic(), self._now()
        rolls = {}
        for other in self._cache.all(KAFKA_CLUSTER):
            name = cluster_text(other)
            is_silent = passed - self._reconciled.get(name, self._began) >= SILENT_S
            if (roll := queued_roll(other, now)) is not None and (name == cluster or not is_silent):
                rolls[name] = roll
        self._given = {name: at for name, at in self._given.items() if passed - at < GIVEN_FOR_S}
        for name in [name for name in self._given if name != cluster]:
            if (shown := rolls.get(name)) is not None and shown.holds:
                del self._given[name]  # status has it now
            else:
                rolls[name] = QueuedRoll(name, shown.started if shown is not None else now, holds=True, restarts=True)
        ahead = rolls_ahead(cluster, started, rolls.values(), self._most)
        is_shown = cluster in rolls and rolls[cluster].holds
        if ahead or is_shown or self._is_stuck(key, rolls):
            self._given.pop(cluster, None)
        else:
            self._given[cluster] = passed
        return ahead

    def _is_stuck(self, key: Key, rolls: Mapping[str, QueuedRoll]) -> bool:
        """Whether its roll could choose a batch for long and did not: its turn is nobody's."""
        roll = from_status(dig(self._cache.get(KAFKA_CLUSTER, *key), "status", "roll"))
        return roll is not None and not roll.is_waiting and "/".join(key) not in rolls
