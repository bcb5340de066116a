"""PreparedTopics: encoded topics that many requests for all topics share, until the metadata changes.

A fleet that restarts its clients gets the same request from each of them. Not here: what is encoded (the Metadata
handler).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, NamedTuple

MAX_KINDS = 8
"""Answers of different kinds (API version, listener) that are kept; the oldest goes first."""


class EncodedTopics(NamedTuple):
    """`topics` topics in slices of bytes."""

    topics: int
    slices: tuple[bytes, ...]


class PreparedTopics:
    """The topics as of the newest version of the metadata, by the kind of the answer."""

    def __init__(self) -> None:
        self._prepared: dict[Hashable, tuple[int, asyncio.Future[EncodedTopics]]] = {}

    async def get(
        self, kind: Hashable, version: Callable[[], int], make: Callable[[], Coroutine[Any, Any, EncodedTopics]]
    ) -> EncodedTopics:
        """What `make` gives, made once for all requests that come while the metadata stays as it is.

        Args:
            kind: what the answer depends on besides the metadata.
            version: of the metadata that the topics are those of. It may change while `make` waits: who has asked about
                that version gets the result, and nobody later.
        """
        while (known := self._prepared.get(kind)) is not None and known[0] == version():
            try:
                return await asyncio.shield(known[1])
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling() or not known[1].cancelled():
                    raise
                # The client for which it was made has gone away: another one has it made.
        made: asyncio.Future[EncodedTopics] = asyncio.get_running_loop().create_future()
        self._prepared.pop(kind, None)
        self._prepared[kind] = version(), made
        while len(self._prepared) > MAX_KINDS:
            del self._prepared[next(iter(self._prepared))]
        try:
            topics = await make()
        except BaseException as error:
            if self._prepared.get(kind, (0, None))[1] is made:
                del self._prepared[kind]
            if isinstance(error, asyncio.CancelledError):
                made.cancel()
            else:
                made.set_exception(error)
                made.exception()  # nobody else may wait for it
            raise
        made.set_result(topics)
        return topics
