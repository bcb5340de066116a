"""Sets and removes dynamic values of brokers, and remembers what they refuse and what does not last.

In memory only: a new operator tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla_operator.api.fleet import NO_ANSWER
from ottla_operator.concerns.config.config import decide_dynamic
from ottla_operator.concerns.config.dynamic_config import allowed
from ottla_operator.effects.ports import KafkaUnavailable
from ottla_operator.facts.snapshot import ConfigKey, ConfigWrites, Snapshot
from ottla_operator.runtime.contested_writes import MOST_WRITES, NOT_WRITTEN_S
from ottla_operator.runtime.kafka_connection import KafkaConnection
from ottla_operator.runtime.refusals import Refusals

WrittenValue = tuple[int | None, str, str | None]


class BrokerConfigWriter:
    """The dynamic values of one cluster's brokers."""

    def __init__(self, kafka: KafkaConnection, monotonic: Callable[[], float], log: logging.Logger) -> None:
        self._kafka = kafka
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

    async def write(self, snapshot: Snapshot) -> tuple[ConfigKey, ...] | None:
        """Makes the changes that the snapshot asks for.

        Returns:
            What nobody declares and is undone now; None when nothing was asked of the brokers.
        """
        client = self._kafka.client
        if client is None or snapshot.cluster.paused:
            self._no_answer = ""
            return None
        decision = decide_dynamic(snapshot)
        changes = allowed(snapshot, decision.changes)
        if not changes:
            self._no_answer = ""
            return None
        for broker, values in changes.items():
            where = "all brokers" if broker is None else f"broker {broker}"
            self._log.info("dynamic configuration of %s: %s", where, ", ".join(sorted(values)))
        try:
            errors = await client.alter_broker_configs(changes)
        except KafkaUnavailable as error:
            self._log.info("the dynamic configuration is not changed: %s", error)
            self._no_answer = str(error)
            return None
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
