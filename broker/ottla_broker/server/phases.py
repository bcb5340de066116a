"""What an event means to a broker before it serves, and while it does. Each phase has the parts that are there then.

    NotServing   from the first step of a start until the logs are loaded: there is nobody to tell
    Serving      from then on: the parts that serve, and what they are told

`Broker` has one of the two, and asks it without looking which one it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ottla_broker.config import BrokerConfig, TopicConfig
from ottla_broker.controller.controller import Controller
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.server.assembly.serving import ServingParts
from ottla_broker.server.log_dir_recovery.readmission import FORGOTTEN


class Phase(Protocol):
    """`is_ready`: the broker is registered and has metadata. `is_serving`: it is registered, or about to be, and does
    not stop."""

    @property
    def replica_manager(self) -> ReplicaManager | None: ...
    @property
    def controller(self) -> Controller | None: ...
    @property
    def has_metadata(self) -> bool: ...

    def config_changed(self, changed: tuple[str, ...], *, is_ready: bool) -> None:
        """Keys of the broker that take effect while it runs; () for all of them."""

    def topic_config_changed(self, topic: str, config: TopicConfig) -> None: ...
    def metadata_came(self) -> None:
        """The first metadata: the broker is ready."""

    def registered_again(self) -> None: ...
    def directory_failed(self, *, is_ready: bool) -> None: ...
    def directories_changed(self, *, is_serving: bool) -> None:
        """Full, or online again: which replicas may lead has changed."""

    def directory_reopened(self, path: str, logs: Mapping[TopicPartition, bool]) -> None: ...

    async def stop_serving(self) -> None:
        """Answers no client any more. The active controller stays it."""

    async def stop_controller(self) -> None: ...


class NotServing:
    """The logs are not loaded yet: nothing is told, and nothing has to be stopped."""

    replica_manager: None = None
    controller: None = None
    has_metadata = False

    def config_changed(self, changed: tuple[str, ...], *, is_ready: bool) -> None:
        return

    def topic_config_changed(self, topic: str, config: TopicConfig) -> None:
        return

    def metadata_came(self) -> None:
        return

    def registered_again(self) -> None:
        return

    def directory_failed(self, *, is_ready: bool) -> None:
        return

    def directories_changed(self, *, is_serving: bool) -> None:
        return

    def directory_reopened(self, path: str, logs: Mapping[TopicPartition, bool]) -> None:
        return

    async def stop_serving(self) -> None:
        return

    async def stop_controller(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class Serving:
    """The parts are made; see the module."""

    config: BrokerConfig
    parts: ServingParts

    @property
    def replica_manager(self) -> ReplicaManager:
        return self.parts.replica_manager

    @property
    def controller(self) -> Controller:
        return self.parts.controller

    @property
    def has_metadata(self) -> bool:
        return self.parts.metadata.is_ready

    def config_changed(self, changed: tuple[str, ...], *, is_ready: bool) -> None:
        parts = self.parts
        if FORGOTTEN in changed and is_ready:
            parts.readmission.forget()
        if "num.replica.fetchers" in changed:
            parts.replica_manager.resize_fetchers()
        if "unclean.leader.election.enable" in changed and self.config.unclean_leader_election_enable:
            parts.controller.unclean_election_enabled(None)
        recreate_rate = self.config.ottla_replica_recreate_max_bytes_per_second
        parts.replica_manager.recreation.max_bytes_per_second = recreate_rate

    def topic_config_changed(self, topic: str, config: TopicConfig) -> None:
        if config.unclean_leader_election_enable:
            self.parts.controller.unclean_election_enabled(topic)

    def metadata_came(self) -> None:
        self.parts.readmission.forget()
        self.parts.recreation.start()

    def registered_again(self) -> None:
        self.parts.controller.broker_registered()

    def directory_failed(self, *, is_ready: bool) -> None:
        self.parts.replica_manager.directory_failed()
        self.parts.directory_events.report()
        if is_ready:
            self.parts.recreation.start()

    def directories_changed(self, *, is_serving: bool) -> None:
        if is_serving:
            self.parts.directory_events.report()

    def directory_reopened(self, path: str, logs: Mapping[TopicPartition, bool]) -> None:
        self.parts.readmission.add(path, logs)
        self.parts.readmission.forget()
        self.parts.directory_events.report()

    async def stop_serving(self) -> None:
        # The active controller stays it: a flush may take minutes, and the cluster is not to be without one.
        self.parts.controller.withdraw()
        self.parts.group_coordinator.close()
        self.parts.transactions.close()
        await self.parts.replica_manager.stop()

    async def stop_controller(self) -> None:
        await self.parts.controller.stop()
