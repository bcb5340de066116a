"""The consumer's side of a fetch session for one partition (KIP-227): what it may omit, and what it received."""

from __future__ import annotations

import random
from typing import Any

from ottla_broker.protocol.errors import ErrorCode
from simulation.checker import Partition, Violation

_VERSIONS = range(7, 18)


class ClientFetchSession:
    """As the official client keeps it: after any failure it asks for all again, and gives the old one up or not."""

    def __init__(self, partition: Partition, stream: random.Random) -> None:
        self._partition = partition
        self._random = stream
        self.version = stream.choice(_VERSIONS)
        self.partition_max_bytes: int = stream.choice((1, 1000, 20_000, 1 << 20))
        """What stays the same is not said again."""
        self._id = 0
        self._epoch = 0
        self._place: tuple[tuple[str, int], bool] | None = None
        self._said: Any = None
        self._was_refused = False
        self.high_watermark = -1
        """What was told last."""

    def ask(self, address: tuple[str, int], version: int, part: Any) -> tuple[int, int, bool]:
        """(session id, session epoch, whether `part` has to be named) for the next request."""
        place = (address, version >= 13)
        if place != self._place:
            self._place = place
            self._id = self._epoch = 0
        is_named = self._epoch == 0 or part != self._said
        self._said = part
        return self._id, self._epoch, is_named

    def lose(self) -> None:
        """The next request asks for a new session. It names the old one to end it, or leaves that to the broker."""
        self._epoch = 0
        if self._random.random() < 0.5:
            self._id = 0

    def take(self, response: Any) -> Any | None:
        """What the answer says of the partition, None where nothing has changed.

        Raises:
            Violation: nothing is said of what had to be.
        """
        if response.error_code:
            self.lose()
            return None
        is_new = self._epoch == 0
        self._id = response.session_id
        self._epoch = self._epoch + 1 if self._id else 0
        answers = [answer for topic in response.responses for answer in topic.partitions]
        if not answers:
            if is_new or self._was_refused or self._said.fetch_offset < self.high_watermark:
                raise Violation(
                    f"{self._partition}: a fetch session says nothing of offset {self._said.fetch_offset}, and told"
                    f" high watermark {self.high_watermark}" + ", then an error" * self._was_refused
                )
            return None
        (answer,) = answers
        self._was_refused = answer.error_code != ErrorCode.NONE
        if self._was_refused:
            if self._random.random() < 0.5:
                self.lose()
        else:
            self.high_watermark = answer.high_watermark
        return answer
