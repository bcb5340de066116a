"""Topics created on demand: because a client asked for their metadata, or because a coordinator keeps its state there.

Several requests for one topic at a time share one request to the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla_broker.ports import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from ottla_broker.server.controller_client import ControllerClient

CONSUMER_OFFSETS = "__consumer_offsets"
_TIMEOUT_MS = 5000


class TopicCreation:
    """Asks the controller for topics with this broker's defaults."""

    def __init__(
        self,
        config: Mapping[str, Any],
        clock: Clock,
        controller: ControllerClient,
        logger: logging.LoggerAdapter[Any],
    ) -> None:
        self._config = config
        self._clock = clock
        self._controller = controller
        self._logger = logger
        self._under_way: dict[str, asyncio.Future[int]] = {}

    async def create(self, names: Sequence[str]) -> dict[str, int]:
        """Error code per name: NONE and TOPIC_ALREADY_EXISTS mean that the metadata will have it soon."""
        return await self._create([CreatableTopic(name=n, num_partitions=-1, replication_factor=-1) for n in names])

    async def create_internal(self, name: str) -> int:
        """The same for `__consumer_offsets`, with the settings that its keys give it."""
        if name != CONSUMER_OFFSETS:
            raise ValueError(f"{name} is not an internal topic that is served")
        topic = CreatableTopic(
            name=name,
            num_partitions=self._config["offsets.topic.num.partitions"],
            replication_factor=self._config["offsets.topic.replication.factor"],
            configs=[
                CreatableTopicConfig(name="cleanup.policy", value="compact"),
                CreatableTopicConfig(name="compression.type", value="producer"),
                CreatableTopicConfig(name="segment.bytes", value=str(self._config["offsets.topic.segment.bytes"])),
            ],
        )
        return (await self._create([topic]))[name]

    async def _create(self, topics: list[CreatableTopic]) -> dict[str, int]:
        fresh = [topic for topic in topics if topic.name not in self._under_way]
        if fresh:
            for topic in fresh:
                self._under_way[topic.name] = self._clock.create_future()
            self._clock.spawn(self._ask(fresh), name="create topics")
        return {topic.name: await asyncio.shield(self._under_way[topic.name]) for topic in topics}

    async def _ask(self, topics: list[CreatableTopic]) -> None:
        results: dict[str, tuple[int, str | None]] = {}
        without_result = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            results = await self._controller.create_topics(topics, _TIMEOUT_MS)
        except asyncio.CancelledError:
            without_result = ErrorCode.REQUEST_TIMED_OUT  # this broker stops: the controller may do it all the same
            raise
        finally:
            for topic in topics:
                code, message = results.get(topic.name, (int(without_result), None))
                if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
                    why = message or ErrorCode.of(code).message
                    self._logger.warning("topic %s is not created: %s", topic.name, why)
                future = self._under_way.pop(topic.name)
                if not future.done():
                    future.set_result(code)
