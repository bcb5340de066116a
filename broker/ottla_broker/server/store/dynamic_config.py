"""DynamicConfig: reads, watches and changes the configuration in the coordination store.

Lives here: the nodes under /config/topics and /config/brokers, the notifications under /config/changes, and which of
them reach this broker's BrokerConfig and its logs. Not here: what a key means (`ottla_broker.config`), the nodes of
client quotas (`stored_quotas`), how notifications are followed (`change_nodes`), the admin APIs (`server.handlers`). It
uses two ports, Coordination and Clock.

How a change reaches every broker (the znodes are Apache Kafka's, so that mixed clusters see each other's changes): the
broker that changes /config/topics/t adds /config/changes/config_change_0000000007 with
{"version":2,"entity_path":"topics/t"} in the same transaction. Every broker reads the entity that it names.

Source: kafka.server.ZkConfigManager and DynamicConfig.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla_broker.config import BrokerConfig, TopicConfig
from ottla_broker.config.passwords import password_encoder
from ottla_broker.coordination import znodes
from ottla_broker.coordination.quota_znodes import ENTITY_TYPES as QUOTA_ENTITY_TYPES
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import (
    BadVersion,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Set,
)
from ottla_broker.server.store.change_nodes import ChangeNode, ChangeNodes, ChangePath
from ottla_broker.server.store.stored_passwords import StoredPasswords
from ottla_broker.server.store.stored_quotas import OnQuotas, StoredQuotas
from ottla_broker.storage.files.names import is_topic_name

TOPICS = "topics"
BROKERS = "brokers"

Change = Callable[[dict[str, str]], Mapping[str, str]]
"""Stored values in, new stored values out; may raise KafkaError, and then nothing is stored."""


class DynamicConfig:
    """The dynamic configuration of one broker. `start` before use; everything runs on the broker's loop."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        coordination: Coordination,
        clock: Clock,
        on_topic_config: Callable[[str, TopicConfig], None],
        logger: logging.Logger | logging.LoggerAdapter[Any],
        on_quotas: OnQuotas = lambda entity, values: None,
    ) -> None:
        """
        Args:
            on_topic_config: called with every topic whose overrides, or whose defaults, have changed.
            on_quotas: called with the quotas of every entity, at the start and when they may have changed.
        """
        self.config = config
        self.broker_id = broker_id
        self._coordination = coordination
        self._on_topic_config = on_topic_config
        self._logger = logger
        self.quotas = StoredQuotas(coordination, on_quotas, logger)
        self._passwords = StoredPasswords(password_encoder(config), clock.in_thread, logger)
        self._topics: dict[str, TopicConfig] = {}
        self._brokers: dict[str, dict[str, str]] = {str(broker_id): {}, znodes.DEFAULT_ENTITY: {}}
        self._changes = ChangeNodes(
            ChangePath(znodes.CONFIG_CHANGES, "the configuration"),
            coordination,
            clock,
            logger,
            read_all=self._reload,
            apply=self._apply_changes,
        )

    async def start(self) -> None:
        """Reads everything stored and watches for changes from here on. Raises CoordinationError."""
        await self._changes.start()
        await self._encode_again()
        self._changes.follow()

    def topic_config(self, topic: str) -> TopicConfig:
        """The values of a topic as last read; those of a topic that is not known have no overrides."""
        found = self._topics.get(topic)
        return found if found is not None else self.config.topic_config({})

    async def load_topic(self, topic: str) -> TopicConfig:
        """Reads a topic's overrides from the store: for a log that is being created, and for DescribeConfigs.

        A new topic's overrides come without a notification, as in Apache Kafka.
        """
        overrides = await self.stored(TOPICS, topic)
        current = self.topic_config(topic)
        if current.overrides == overrides:
            return self._topics.setdefault(topic, current)
        # Its logs get the new values now: the notification will find nothing new, and report nothing.
        self._apply(TOPICS, topic, overrides)
        return self._topics[topic]

    def forget_topic(self, topic: str) -> None:
        """The topic is deleted."""
        self._topics.pop(topic, None)

    async def stored(self, entity_type: str, name: str) -> dict[str, str]:
        """The values at /config/<type>/<name> now; {} without that node."""
        path = znodes.config_path(entity_type, name)
        try:
            data, _ = await self._coordination.get(path)
        except NoNode:
            return {}
        values = self._decode(path, data)
        return values if entity_type == TOPICS else (await self._passwords.decode(path, values)).readable

    async def topic_exists(self, topic: str) -> bool:
        """Whether the topic exists and is not being deleted.

        False for what is no topic name: a topic's node has other nodes below it.
        Source: ConfigHelper and ConfigAdminManager, whose metadata cache has no topic that is being deleted.
        """
        if not is_topic_name(topic):
            return False
        # In this order: the last transaction of a deletion, which deletes both nodes, may come in between.
        marker, node = await asyncio.gather(
            self._coordination.exists(znodes.delete_topic_path(topic)),
            self._coordination.exists(znodes.topic_path(topic)),
        )
        return marker is None and node is not None

    async def update(self, entity_type: str, name: str, change: Change) -> None:
        """Stores `change(stored values)` and notifies all brokers; in force here when this returns.

        Two concurrent updates of one entity both take effect: the loser is computed again on the newer values.
        Raises what `change` raises, and CoordinationError.
        """
        path = znodes.config_path(entity_type, name)
        notification = Create(
            znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(f"{entity_type}/{name}"), sequence=True
        )
        while True:
            try:
                data, stat = await self._coordination.get(path)
            except NoNode:
                before, version = await self._passwords.decode(path, {}), None
            else:
                before, version = await self._passwords.decode(path, self._decode(path, data)), stat.version
            changed = change({**before.readable, **before.unreadable})
            new = {name: value for name, value in changed.items() if before.unreadable.get(name) != value}
            encoded = znodes.encode_config({**changed, **await self._passwords.encode(new)})
            write = Create(path, encoded) if version is None else Set(path, encoded, version)
            try:
                await self._coordination.multi([write, notification])
            except MultiFailed as failed:
                if isinstance(failed.cause, BadVersion | NoNode | NodeExists):
                    continue
                raise
            break
        self._apply(entity_type, name, dict(new))

    async def _encode_again(self) -> None:
        """Stores this broker's passwords under password.encoder.secret that are stored under the old one.

        Source: DynamicBrokerConfig.maybeReEncodePasswords.
        """
        name = str(self.broker_id)
        path = znodes.config_path(BROKERS, name)
        try:
            data, _ = await self._coordination.get(path)
        except NoNode:
            return
        if await self._passwords.are_old(self._decode(path, data)):
            await self.update(BROKERS, name, lambda stored: stored)
            self._logger.info("stored passwords are encoded with password.encoder.secret now")

    def _decode(self, path: str, data: bytes) -> dict[str, str]:
        try:
            return znodes.decode_config(path, data)
        except znodes.ZnodeError as error:
            self._logger.error("%s; its configuration is ignored", error)
            return {}

    def _apply(self, entity_type: str, name: str, values: dict[str, str]) -> None:
        if entity_type == TOPICS:
            current = self._topics.get(name)
            if current is None or current.overrides != values:
                self._topics[name] = self._make(name, values)
                self._on_topic_config(name, self._topics[name])
        elif entity_type == BROKERS and name in self._brokers:
            self._brokers[name] = values
            self._apply_broker()

    def _apply_broker(self) -> None:
        problems = self.config.apply_dynamic(self._brokers[str(self.broker_id)], self._brokers[znodes.DEFAULT_ENTITY])
        for problem in problems:
            self._logger.warning("a stored dynamic value is not in force: %s", problem)
        for name in list(self._topics):
            topic = self.config.topic_config(self._topics[name].overrides)
            if not topic.has_same_values(self._topics[name]):
                self._topics[name] = topic
                self._on_topic_config(name, topic)

    def _make(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        config = self.config.topic_config(overrides)
        for problem in config.problems:
            self._logger.warning("topic %s: a stored value is not in force: %s", topic, problem)
        return config

    async def _apply_changes(self, changes: Sequence[ChangeNode]) -> None:
        for path, data in changes:
            try:
                entity_type, _, entity = znodes.decode_config_change(path, data).partition("/")
                if entity_type in QUOTA_ENTITY_TYPES:
                    await self.quotas.read(f"{entity_type}/{entity}")
                elif entity_type in (TOPICS, BROKERS):
                    self._apply(entity_type, entity, await self.stored(entity_type, entity))
            except ValueError as error:  # it cannot be read, or names no possible node
                self._logger.error("the change of the configuration %s is ignored: %s", path, error)

    async def _reload(self) -> None:
        for name in self._brokers:
            self._brokers[name] = await self.stored(BROKERS, name)
        self._apply_broker()
        await self.quotas.reload()
        try:
            topics = await self._coordination.children(f"{znodes.CONFIG}/{TOPICS}")
        except NoNode:
            topics = []
        reads = [self.stored(TOPICS, topic) for topic in topics]
        for topic, values in zip(topics, await asyncio.gather(*reads), strict=True):
            self._apply(TOPICS, topic, values)
