"""The requests of `ottla disk`: Metadata, DescribeLogDirs, IncrementalAlterConfigs.

Not here: what the broker does (`server/log_dir_recovery/readmission.py`), the command line (`cli/disk.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla_broker.ports import Clock
from ottla_broker.ports.network import Connector
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.peers.broker_client import BrokerClient

_FORGOTTEN = "ottla.log.dirs.forgotten"
_BROKER_RESOURCE = 4
_APPEND = 2
_PATIENCE_S = 20.0
_POLL_S = 0.2

Partition = tuple[str, int]


class DiskAdminError(Exception):
    """The command is not possible; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Partitions with their only in-sync replica on the directory. `followers`: those with another, lagging replica."""

    broker: int
    directory: str
    partitions: tuple[Partition, ...]
    followers: tuple[Partition, ...]


class DiskAdmin:
    """Finds the broker through the one at host:port. Methods raise OSError when a broker does not respond."""

    def __init__(self, connector: Connector, clock: Clock, host: str, port: int) -> None:
        self._connector = connector
        self._clock = clock
        self._first = (host, port)

    async def loss(self, broker: int, directory: str) -> Loss:
        """The partitions that `forget` gives up. DiskAdminError unless the directory is the broker's and offline."""
        api = codec.module(ApiKey.DESCRIBE_LOG_DIRS)
        client = await self._client(broker)
        described = await client.send(ApiKey.DESCRIBE_LOG_DIRS, 4, api.DescribeLogDirsRequest(topics=None))
        errors = {one.log_dir: one.error_code for one in described.results}
        if directory not in errors:
            raise DiskAdminError(f"broker {broker} has no log directory {directory}; it has {', '.join(errors)}")
        if errors[directory] != ErrorCode.KAFKA_STORAGE_ERROR:
            raise DiskAdminError(f"log directory {directory} of broker {broker} is not offline: nothing is given up")
        # From this broker, whose metadata already has its own offline replicas.
        metadata = await self._metadata(client)
        held = {
            (topic.name, partition.partition_index)
            for one in described.results
            for topic in one.topics
            for partition in topic.partitions
        }
        alone: list[Partition] = []
        followers: list[Partition] = []
        for topic in metadata.topics:
            for partition in topic.partitions:
                name = (topic.name, partition.partition_index)
                is_here = broker in partition.replica_nodes and name not in held
                if is_here and list(partition.isr_nodes) == [broker]:
                    alone.append(name)
                    if len(partition.replica_nodes) > 1:
                        followers.append(name)
        return Loss(broker, directory, tuple(alone), tuple(followers))

    async def forget(self, loss: Loss) -> list[Partition]:
        """Makes the broker give up the partitions. Returns those that have no leader after `_PATIENCE_S` seconds."""
        api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        client = await self._client(loss.broker)
        request = api.IncrementalAlterConfigsRequest(
            resources=[
                api.AlterConfigsResource(
                    resource_type=_BROKER_RESOURCE,
                    resource_name=str(loss.broker),
                    configs=[api.AlterableConfig(name=_FORGOTTEN, config_operation=_APPEND, value=loss.directory)],
                )
            ]
        )
        (answer,) = (await client.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
        if answer.error_code:
            raise DiskAdminError(answer.error_message or ErrorCode.of(answer.error_code).message)
        deadline = self._clock.monotonic() + _PATIENCE_S
        while True:
            left = await self._without_leader(client, loss)
            if not left or self._clock.monotonic() > deadline:
                return left
            await self._clock.sleep(_POLL_S)

    async def _without_leader(self, client: BrokerClient, loss: Loss) -> list[Partition]:
        found = {
            (topic.name, partition.partition_index): partition
            for topic in (await self._metadata(client)).topics
            for partition in topic.partitions
        }
        return [
            name
            for name in loss.partitions
            if name in found and (found[name].leader_id < 0 or loss.broker in found[name].offline_replicas)
        ]

    async def _metadata(self, client: BrokerClient) -> Any:
        api = codec.module(ApiKey.METADATA)
        return await client.send(ApiKey.METADATA, 12, api.MetadataRequest(topics=None, allow_auto_topic_creation=False))

    async def _client(self, broker: int) -> BrokerClient:
        first = BrokerClient(self._connector, self._clock, *self._first, client_id="ottla-disk")
        await first.connect()
        brokers = {one.node_id: one for one in (await self._metadata(first)).brokers}
        if broker not in brokers:
            raise DiskAdminError(f"broker {broker} is not running; there are {', '.join(map(str, sorted(brokers)))}")
        client = BrokerClient(
            self._connector, self._clock, brokers[broker].host, brokers[broker].port, client_id="ottla-disk"
        )
        await client.connect()
        return client
