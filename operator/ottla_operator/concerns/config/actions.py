"""Sets and removes dynamic values of brokers, and remembers what they refuse and what does not last.

In memory only: a new operator tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from ottla_operator.api.fleet import NO_ANSWER
from ottla_operator.concerns.config.config import decide_dynamic
from ottla_operator.concerns.config.dynamic_config import NOTHING_DYNAMIC, DynamicConfigDecision, allowed
from ottla_operator.concerns.config.observation import ConfigKey, ConfigWrites
from ottla_operator.facts.contested_writes import MOST_WRITES, NOT_WRITTEN_S
from ottla_operator.facts.refusals import Refusals
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.ports import KafkaAdmin

WrittenValue = tuple[int | None, str, str | None]


class DynamicConfigWriter:
    """The dynamic values of one cluster's brokers."""

    def __init__(self, monotonic: Callable[[], float], log: logging.Logger) -> None:
        self._monotonic = monotonic
        self._log = log
        self._refused: Refusals[WrittenValue] = Refusals(monotonic, NOT_WRITTEN_S)
        self._no_answer = ""
        self._written: dict[WrittenValue, tuple[float, int]] = {}
        """Since when, and how often a value was written."""

    def known(self, undone: tuple[ConfigKey, ...] = ()) -> ConfigWrites:
        """What came of the writes of the last minutes."""
        now = self._monotonic()
        self._written = {one: found for one, found in self._written.items() if now - found[0] < NOT_WRITTEN_S}
        contested = frozenset(one for one, (_, times) in self._written.items() if times >= MOST_WRITES)
        return ConfigWrites(self._refused.now(), contested, undone, self._no_answer)

    def changes(self, snapshot: Snapshot) -> DynamicConfigDecision:
        """The changes that the snapshot asks for and that may be written now."""
        decision = NOTHING_DYNAMIC if snapshot.cluster.paused else decide_dynamic(snapshot)
        self._no_answer = ""
        return replace(decision, changes=allowed(self.known(), decision.changes))

    def was_silent(self, error: str) -> None:
        """No broker has answered the write."""
        self._log.info("the dynamic configuration is not changed: %s", error)
        self._no_answer = error

    async def write(self, admin: KafkaAdmin, decision: DynamicConfigDecision) -> tuple[ConfigKey, ...]:
        """Makes the changes. Returns what nobody declares and is undone now. Raises KafkaUnavailable."""
        changes = decision.changes
        for broker, values in changes.items():
            where = "all brokers" if broker is None else f"broker {broker}"
            self._log.info("dynamic configuration of %s: %s", where, ", ".join(sorted(values)))
        errors = await admin.alter_broker_configs(changes)
        silent = {one: text.removeprefix(NO_ANSWER) for one, text in errors.items() if text.startswith(NO_ANSWER)}
        self._no_answer = "; ".join(dict.fromkeys(f"broker {one[0]}: {why}" for one, why in silent.items()))
        now = self._monotonic()
        asked = [
            (broker, key, value)
            for broker, values in changes.items()
            for key, value in values.items()
            if (broker, key) not in silent
        ]
        for one in asked:
            since, times = self._written.get(one, (now, 0))
            self._written[one] = (since, times + 1)
        self._refused.add({one: errors[one[:2]] for one in asked if one[:2] in errors})
        for (broker, key), text in errors.items():
            how = "not answered" if (broker, key) in silent else "refused"
            self._log.warning("%s of broker %s is %s: %s", key, "(all)" if broker is None else broker, how, text)
        done = {one[:2] for one in asked} - errors.keys()
        return tuple(key for key in decision.undeclared if key in done)
