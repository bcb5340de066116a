"""Which topics to look at for changes that others have made in Kafka: Kafka sends no event for those.

Every topic of a cluster is looked at once in `AUDIT_S`, in slices, so that neither the operator nor a broker is busy
with all of them at once. A look compares the topic with what it was when its KafkaTopic needed nothing; only a
KafkaTopic whose topic differs is queued. So an audit decides nothing and writes nothing.

Example, 1 000 topics: a slice of 250 every 11 s. With more than `MOST_PER_S` × `AUDIT_S` topics a round takes longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ottla_operator.api.topics import TopicDescription

AUDIT_S = 45.0
"""How long a round takes: a change by others is noticed within it, and repaired in the next batch."""
SLICE = 250
MOST_PER_S = 250.0


class TopicAudit:
    """The KafkaTopics that need nothing, by name, each with its topic as it was then.

    Args:
        monotonic: the time in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._settled: dict[str, tuple[str, int]] = {}
        self._left: list[str] = []
        self._next_at = -math.inf

    def note(self, name: str, topic: str, live: TopicDescription | None) -> None:
        """A KafkaTopic needs nothing while its topic is like this."""
        if not self._settled:
            self._next_at = self._monotonic() + AUDIT_S / 2
        self._settled[name] = (topic, _fingerprint(live))

    def forget(self, name: str) -> None:
        """A KafkaTopic is gone, or has no topic."""
        self._settled.pop(name, None)

    @property
    def due_at(self) -> float:
        """When the next slice is due; infinity when there is nothing to look at."""
        return self._next_at if self._settled else math.inf

    def next_slice(self) -> dict[str, str]:
        """The topics to look at now, by the names of their KafkaTopics. The next slice is due a moment later."""
        if not self._left:
            self._left = list(reversed(self._settled))
        taken = [self._left.pop() for _ in range(min(SLICE, len(self._left)))]
        slices = max(1, math.ceil(len(self._settled) / SLICE))
        self._next_at = self._monotonic() + max(AUDIT_S / slices, len(taken) / MOST_PER_S)
        return {name: self._settled[name][0] for name in taken if name in self._settled}

    def changed(self, looked_at: Mapping[str, str], live_topics: Mapping[str, TopicDescription]) -> list[str]:
        """The KafkaTopics of a slice whose topics differ from what they were.

        Args:
            live_topics: the topics that exist. One that the brokers answered an error for counts as unchanged.
        """
        found = []
        for name, topic in looked_at.items():
            live = live_topics.get(topic)
            if live is not None and live.error:
                continue
            if self._settled.get(name, (topic, None))[1] not in (None, _fingerprint(live)):
                found.append(name)
        return found


def _fingerprint(live: TopicDescription | None) -> int:
    if live is None:
        return 0
    return hash((live.topic_id, live.partitions, live.replicas, frozenset(live.config.items())))
