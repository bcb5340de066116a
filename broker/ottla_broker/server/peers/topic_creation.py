"""Creates topics on demand: a client requests their metadata, or a coordinator stores its state in them.

Concurrent requests for one topic share one request to the controller.

Source: kafka.server.AutoTopicCreationManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla_broker.config import BrokerConfig
from ottla_broker.config.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla_broker.ports import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from ottla_broker.server.peers.controller_client import ControllerClient

_TIMEOUT_MS = 5000


class TopicCreation:
    """Has the controller create topics with this broker's defaults."""

    def __init__(
        self,
        config: BrokerConfig,
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
        """The same for an internal topic, with the settings that its keys give it."""
        topic = self._offsets_topic() if name == CONSUMER_OFFSETS else self._transaction_topic()
        return (await self._create([topic]))[name]

    def _offsets_topic(self) -> CreatableTopic:
        config = self._config
        return CreatableTopic(
            name=CONSUMER_OFFSETS,
            num_partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs=[
                CreatableTopicConfig(name="cleanup.policy", value="compact"),
                CreatableTopicConfig(name="compression.type", value="producer"),
                CreatableTopicConfig(name="segment.bytes", value=str(config.offsets_topic_segment_bytes)),
            ],
        )

    def _transaction_topic(self) -> CreatableTopic:
        config = self._config
        return CreatableTopic(
            name=TRANSACTION_STATE,
            num_partitions=config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor,
            configs=[
                CreatableTopicConfig(name="cleanup.policy", value="compact"),
                CreatableTopicConfig(name="compression.type", value="uncompressed"),
                CreatableTopicConfig(name="min.insync.replicas", value=str(config.transaction_state_log_min_isr)),
                CreatableTopicConfig(name="segment.bytes", value=str(config.transaction_state_log_segment_bytes)),
                CreatableTopicConfig(name="unclean.leader.election.enable", value="false"),
            ],
        )

    async def _create(self, topics: list[CreatableTopic]) -> dict[str, int]:
        fresh = [topic for topic in topics if topic.name not in self._under_way]
        if fresh:
            for topic in fresh:
                self._under_way[topic.name] = self._clock.create_future()
            self._clock.spawn(self._ask(fresh), name="create topics")
        # All of them now: an entry is removed when its own request is answered, while another one is still awaited.
        futures = {topic.name: self._under_way[topic.name] for topic in topics}
        return {name: await asyncio.shield(future) for name, future in futures.items()}

    async def _ask(self, topics: list[CreatableTopic]) -> None:
        results: dict[str, tuple[int, str | None]] = {}
        without_result = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            results = await self._controller.create_topics(topics, _TIMEOUT_MS)
        except asyncio.CancelledError:
            without_result = ErrorCode.REQUEST_TIMED_OUT  # this broker stops: the controller may create it all the same
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
