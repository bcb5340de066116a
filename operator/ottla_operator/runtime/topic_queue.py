"""The queue of a cluster's KafkaTopics: each name once, in order of arrival, with those that wait for something.

queued     handled in the next batch
stalled    wait until any broker answers, and go with the first batch that may ask brokers
requeued   wait for a time: after a refused write or change, or for more brokers
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable

from ottla_operator.runtime.back_off import back_off_s

LINGER_S = 0.1
"""How long a batch fills after its first KafkaTopic."""
SETTLE_S = 1.0
"""How long after a change Kafka is asked again for a change that brokers do not show yet."""
SETTLES = 10
"""How often it is asked for that way, before the back-off begins."""
REQUEUE_S = 10.0
"""When a KafkaTopic is handled again that Kafka refuses; each further refusal doubles the time."""


class TopicQueue:
    """Names of KafkaTopics. Times are those of `monotonic`, in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._queued: dict[str, None] = {}
        self._stalled: dict[str, None] = {}
        self._requeue_at: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._settling: dict[str, int] = {}
        self._has_work = asyncio.Event()

    def put(self, name: str) -> None:
        """Queues a name; one that is queued keeps its place."""
        self._stalled.pop(name, None)
        self._requeue_at.pop(name, None)
        self._queued.setdefault(name)
        self._has_work.set()

    def wake(self) -> None:
        """Ends `wait`, also with an empty queue."""
        self._has_work.set()

    async def wait(self) -> None:
        """Waits until a name is queued, and then a little longer, so that a batch fills."""
        await self._has_work.wait()
        is_new = any(name not in self._settling for name in self._queued)
        await asyncio.sleep(LINGER_S if is_new or not self._queued else SETTLE_S)

    def take(self, most: int, *, with_stalled: bool) -> list[str]:
        """Takes out up to `most` names, stalled ones last."""
        names = list(self._queued)[:most]
        if with_stalled:
            names += list(self._stalled)[: most - len(names)]
        for name in names:
            self._queued.pop(name, None)
            self._stalled.pop(name, None)
        if not self._queued:
            self._has_work.clear()
        return names

    def stall(self, names: Iterable[str]) -> None:
        """Keeps names until a broker answers."""
        for name in names:
            self._stalled.setdefault(name)

    def queue_stalled(self) -> None:
        """Queues the stalled names: a broker has answered."""
        for name in self._stalled:
            self._queued.setdefault(name)
        self._stalled.clear()
        if self._queued:
            self._has_work.set()

    def queue_due(self) -> None:
        """Queues the names whose time has come."""
        now = self._monotonic()
        for name in [name for name, due in self._requeue_at.items() if due <= now]:
            self.put(name)

    def queue_requeued(self) -> None:
        """Queues every name that waits for a time: what it waits for may have happened."""
        for name in list(self._requeue_at):
            self.put(name)

    def requeue_after(self, name: str, seconds: float) -> None:
        """Queues a name after this time."""
        self._requeue_at[name] = self._monotonic() + seconds

    def requeue_failed(self, name: str, first_s: float | None = None) -> float:
        """Queues a name that failed after a time that grows with its failures in a row. Returns the time."""
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        pause = back_off_s(failures) if first_s is None else back_off_s(failures, first_s)
        self.requeue_after(name, pause)
        return pause

    def note_settling(self, name: str) -> int:
        """Counts that brokers do not show a change of this name yet. Returns how often that has happened in a row."""
        self._settling[name] = self._settling.get(name, 0) + 1
        return self._settling[name]

    def requeue_settling(self, name: str) -> None:
        """Queues a name whose change brokers do not show yet: soon at first, then after growing times."""
        looks = self._settling.get(name, 0)
        if looks <= SETTLES:
            self.put(name)
        else:
            self.requeue_after(name, back_off_s(looks - SETTLES, REQUEUE_S))

    def done(self, name: str) -> None:
        """Forgets the failures of a name."""
        self._failures.pop(name, None)
        self._settling.pop(name, None)

    def sizes(self) -> dict[str, int]:
        """How many names wait, by what they wait for."""
        return {"queued": len(self._queued), "stalled": len(self._stalled), "requeued": len(self._requeue_at)}

    @property
    def has_requeued(self) -> bool:
        return bool(self._requeue_at)

    @property
    def has_stalled(self) -> bool:
        return bool(self._stalled)

    @property
    def due_at(self) -> float:
        """When the next name that waits for a time is due; infinity when there is none."""
        return min(self._requeue_at.values(), default=math.inf)

    def __len__(self) -> int:
        """The number of names that need no time to pass."""
        return len(self._queued) + len(self._stalled)
