"""Stored configuration: the three config APIs on a real embedded store, seen by two brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.config import BrokerConfig, ConfigSource, TopicConfig
from ottla_broker.coordination import znodes
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.metadata.cache import LEADER_DURING_DELETE, MetadataCache
from ottla_broker.metrics import Metrics
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import alter_configs as alter
from ottla_broker.protocol.generated import describe_configs as describe
from ottla_broker.protocol.generated import incremental_alter_configs as incremental
from ottla_broker.protocol.generated.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla_broker.server.edge.tls_contexts import TlsContexts
from ottla_broker.server.handlers import alter_configs, describe_configs, incremental_alter_configs, update_metadata
from ottla_broker.server.store.dynamic_config import DynamicConfig
from tests.broker.server.contexts import handler_context

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
WAIT_S = 60


class Broker:
    """One broker's dynamic configuration with its session."""

    def __init__(self, store: EmbeddedStore, broker_id: int) -> None:
        self.store = store
        self.clock = LoopClock()
        self.coordination = EmbeddedCoordination(store)
        self.config = BrokerConfig.from_mapping({"log.retention.hours": "2"})
        self.seen: asyncio.Queue[tuple[str, TopicConfig]] = asyncio.Queue()
        self.dynamic = DynamicConfig(
            self.config,
            broker_id,
            self.coordination,
            self.clock,
            lambda topic, config: self.seen.put_nowait((topic, config)),
            logging.getLogger("ottla.test"),
        )
        stores = TlsContexts(self.config, self.clock, Metrics(), own_name=None)  # type: ignore[arg-type]  # without TLS
        self.services: Any = SimpleNamespace(dynamic_config=self.dynamic, certificate_stores=stores)

    async def next_topic(self) -> tuple[str, TopicConfig]:
        return await asyncio.wait_for(self.seen.get(), WAIT_S)

    async def change(
        self, kind: int, name: str, *operations: tuple[str, int, str | None], only: bool = False
    ) -> tuple[ErrorCode, str | None]:
        response = await incremental_alter_configs.handle(
            self.services,
            handler_context(),
            incremental.IncrementalAlterConfigsRequest(
                resources=[
                    incremental.AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[
                            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
                            for key, operation, value in operations
                        ],
                    )
                ],
                validate_only=only,
            ),
        )
        (result,) = response.responses
        assert (result.resource_type, result.resource_name) == (kind, name)
        return ErrorCode(result.error_code), result.error_message

    async def replace(self, kind: int, name: str, **values: str) -> ErrorCode:
        response = await alter_configs.handle(
            self.services,
            handler_context(),
            alter.AlterConfigsRequest(
                resources=[
                    alter.AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[alter.AlterableConfig(name=k.replace("_", "."), value=v) for k, v in values.items()],
                    )
                ]
            ),
        )
        return ErrorCode(response.responses[0].error_code)

    async def describe(self, kind: int, name: str, keys: list[str] | None = None) -> describe.DescribeConfigsResult:
        response = await describe_configs.handle(
            self.services,
            handler_context(api_version=4),  # type: ignore[arg-type]
            describe.DescribeConfigsRequest(
                resources=[
                    describe.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
                ],
                include_synonyms=True,
                include_documentation=True,
            ),
        )
        return response.results[0]


@pytest_asyncio.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[tuple[Broker, Broker]]:
    store = EmbeddedStore(str(tmp_path / "coordination.sqlite"))
    pair = (Broker(store, 0), Broker(store, 1))
    for broker in pair:
        await broker.coordination.start()
    for path in znodes.PERSISTENT_PATHS:
        for depth in range(2, path.count("/") + 2):
            parent = "/".join(path.split("/")[:depth])
            if await pair[0].coordination.exists(parent) is None:
                await pair[0].coordination.create(parent)
    await pair[0].coordination.create(znodes.topic_path("t"))
    for broker in pair:
        await broker.dynamic.start()
    yield pair
    for broker in pair:
        broker.clock.cancel_all()
        await broker.coordination.close()
    await store.close()


async def test_a_topic_override_reaches_both_brokers_and_is_described(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    assert await one.change(TOPIC, "t", ("retention.ms", SET, "7")) == (ErrorCode.NONE, None)
    assert one.dynamic.topic_config("t").retention_ms == 7
    topic, config = await other.next_topic()
    assert (topic, config.retention_ms) == ("t", 7)
    assert await other.dynamic.stored("topics", "t") == {"retention.ms": "7"}

    (described,) = (await other.describe(TOPIC, "t", ["retention.ms"])).configs
    assert (described.value, described.config_source, described.config_type) == ("7", 1, 5)
    assert [(s.name, s.value, s.source) for s in described.synonyms] == [
        ("retention.ms", "7", 1),
    ]
    assert described.documentation

    assert (await other.change(TOPIC, "t", ("retention.ms", DELETE, None)))[0] is ErrorCode.NONE
    assert (await one.next_topic())[1].retention_ms == 7
    assert (await one.next_topic())[1].retention_ms == 7200000


async def test_logs_get_a_changed_override_when_describe_configs_reads_it_before_the_notification(
    brokers: tuple[Broker, Broker],
) -> None:
    one, other = brokers
    await other.change(TOPIC, "t", ("retention.ms", SET, "6"))
    await one.coordination.set(znodes.config_path("topics", "t"), znodes.encode_config({"retention.ms": "7"}))
    (described,) = (await other.describe(TOPIC, "t", ["retention.ms"])).configs
    assert described.value == "7"
    seen = [other.seen.get_nowait() for _ in range(other.seen.qsize())]
    assert [(topic, config.retention_ms) for topic, config in seen][-1:] == [("t", 7)]


async def test_the_notification_is_the_one_that_apache_kafka_writes(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    await one.change(TOPIC, "t", ("retention.ms", SET, "7"))
    await one.change(BROKER, "", ("message.max.bytes", SET, "2000"))
    names = await one.coordination.children(znodes.CONFIG_CHANGES)
    assert names == ["config_change_0000000000", "config_change_0000000001"]
    data = [(await one.coordination.get(f"{znodes.CONFIG_CHANGES}/{name}"))[0] for name in names]
    assert data == [
        b'{"version":2,"entity_path":"topics/t"}',
        b'{"version":2,"entity_path":"brokers/<default>"}',
    ]


async def test_a_cluster_wide_default_reaches_the_topics_of_every_broker(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    await one.change(TOPIC, "t", ("retention.ms", SET, "7"))
    await other.next_topic()
    assert (await one.change(BROKER, "", ("message.max.bytes", SET, "2000")))[0] is ErrorCode.NONE
    topic, config = await other.next_topic()
    assert (topic, config.max_message_bytes, config.retention_ms) == ("t", 2000, 7)
    assert other.config.topic_config({}).max_message_bytes == 2000
    (described,) = (await other.describe(BROKER, "")).configs
    assert (described.name, described.value, described.config_source) == ("message.max.bytes", "2000", 3)
    # A value of the broker itself overrides the one of the cluster.
    await other.change(BROKER, "1", ("message.max.bytes", SET, "3000"))
    assert one.config.topic_config({}).max_message_bytes == 2000
    assert other.config.topic_config({}).max_message_bytes == 3000


async def test_alter_configs_removes_the_overrides_that_it_does_not_name(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    await one.change(TOPIC, "t", ("retention.ms", SET, "7"), ("segment.bytes", SET, "100"))
    assert await one.replace(TOPIC, "t", flush_messages="1") is ErrorCode.NONE
    assert await one.dynamic.stored("topics", "t") == {"flush.messages": "1"}


async def test_append_and_subtract_change_lists(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    assert (await one.change(TOPIC, "t", ("cleanup.policy", APPEND, "delete")))[0] is ErrorCode.NONE
    assert (await one.dynamic.stored("topics", "t"))["cleanup.policy"] == "delete"
    assert (await one.change(TOPIC, "t", ("cleanup.policy", APPEND, "compact")))[0] is ErrorCode.NONE
    assert (await one.dynamic.stored("topics", "t"))["cleanup.policy"] == "delete,compact"
    assert (await one.change(TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact")))[0] is ErrorCode.NONE
    assert (await one.change(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")))[0] is ErrorCode.NONE
    assert (await one.dynamic.stored("topics", "t"))["cleanup.policy"] == ""


@pytest.mark.parametrize(
    ("stored", "operation", "value", "becomes"),
    [
        ("0:1,1:1", APPEND, "1:1,2:1", "0:1,1:1,2:1"),
        ("0:1", APPEND, "2:1,2:1", "0:1,2:1,2:1"),
        ("", APPEND, "0:1", "0:1"),
        ("0:1", APPEND, "", "0:1,"),
        ("0:1,0:1,1:1", SUBTRACT, "0:1", "0:1,1:1"),
        ("0:1, 1:1", SUBTRACT, "1:1", "0:1, 1:1"),
    ],
)
async def test_append_adds_missing_items_and_subtract_removes_one_of_each_as_in_apache_kafka(
    brokers: tuple[Broker, Broker], stored: str, operation: int, value: str, becomes: str
) -> None:
    one, _ = brokers
    key = "leader.replication.throttled.replicas"
    await one.change(TOPIC, "t", (key, SET, stored))
    assert (await one.change(TOPIC, "t", (key, operation, value)))[0] is ErrorCode.NONE
    assert (await one.dynamic.stored("topics", "t"))[key] == becomes


async def test_append_of_an_empty_item_is_refused_for_a_list_of_names(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    assert (await one.change(TOPIC, "t", ("cleanup.policy", APPEND, "")))[0] is ErrorCode.INVALID_CONFIG
    assert await one.dynamic.stored("topics", "t") == {}


async def test_a_refused_broker_value_is_not_stored(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    for name in ("", "1"):
        code, _ = await one.change(BROKER, name, ("max.connections.per.ip.overrides", SET, "127.0.0.1:many"))
        assert code is ErrorCode.INVALID_REQUEST
    assert await one.dynamic.stored("brokers", "<default>") == {}
    assert await one.dynamic.stored("brokers", "1") == {}


@pytest.mark.parametrize("resource", ["", "0"], ids=["of all brokers", "of one broker"])
async def test_a_key_of_a_plug_in_is_stored_and_described_without_its_value(
    brokers: tuple[Broker, Broker], resource: str, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-226, custom configurations: a tool or a class reads it. It may be a secret."""
    one, _ = brokers
    entity = resource or "<default>"

    async def described() -> list[Any]:
        return [item for item in (await one.describe(BROKER, resource)).configs if item.name == "my.reporter.url"]

    assert (await one.change(BROKER, resource, ("my.reporter.url", SET, "http://x")))[0] is ErrorCode.NONE
    assert await one.dynamic.stored("brokers", entity) == {"my.reporter.url": "http://x"}
    (found,) = await described()
    source = ConfigSource.DYNAMIC_BROKER_CONFIG if resource else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert (found.value, found.is_sensitive, found.read_only) == (None, True, True)
    assert (found.config_source, found.config_type) == (source, 0)
    assert "my.reporter" not in caplog.text
    assert (await one.change(BROKER, resource, ("my.reporter.url", DELETE, None)))[0] is ErrorCode.NONE
    assert await one.dynamic.stored("brokers", entity) == {}


async def test_a_synonym_of_a_topic_is_shown_as_it_is_read(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    await one.change(TOPIC, "t", ("retention.ms", SET, "007"))
    described = next(item for item in (await one.describe(TOPIC, "t")).configs if item.name == "retention.ms")
    assert (described.value, described.synonyms[0].value) == ("7", "7")


async def test_validate_only_stores_nothing(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    assert (await one.change(TOPIC, "t", ("retention.ms", SET, "7"), only=True))[0] is ErrorCode.NONE
    assert (await one.change(TOPIC, "t", ("retention.ms", SET, "x"), only=True))[0] is ErrorCode.INVALID_CONFIG
    assert await one.dynamic.stored("topics", "t") == {}


@pytest.mark.parametrize(
    ("kind", "name", "operation", "code"),
    [
        (TOPIC, "absent", ("retention.ms", SET, "7"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("retention.ms", SET, "7"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention", SET, "7"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", APPEND, "7"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", 9, "7"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("message.timestamp.type", SET, "AppendTime"), ErrorCode.INVALID_CONFIG),
        (BROKER, "1", ("message.max.bytes", SET, "7"), ErrorCode.INVALID_REQUEST),
        (BROKER, "zero", ("message.max.bytes", SET, "7"), ErrorCode.INVALID_REQUEST),
        (BROKER, "0", ("broker.rack", SET, "a"), ErrorCode.INVALID_REQUEST),
        (BROKER, "0", ("message.max.bytes", SET, "many"), ErrorCode.INVALID_REQUEST),
        (BROKER, "0", ("leader.replication.throttled.rate", SET, "-9"), ErrorCode.INVALID_REQUEST),
        (3, "x", ("a", SET, "b"), ErrorCode.INVALID_REQUEST),
        (LOGGER, "0", ("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (LOGGER, "0", ("ottla.test", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
    ],
)
async def test_a_key_that_cannot_change_at_run_time_is_refused_by_name(
    brokers: tuple[Broker, Broker], kind: int, name: str, operation: tuple[str, int, str | None], code: ErrorCode
) -> None:
    found, message = await brokers[0].change(kind, name, operation)
    assert found is code
    assert message


async def test_a_key_or_a_resource_named_twice_is_refused(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    twice = [("retention.ms", SET, "7"), ("retention.ms", SET, "8")]
    assert (await one.change(TOPIC, "t", *twice))[0] is ErrorCode.INVALID_REQUEST
    resource = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    response = await incremental_alter_configs.handle(
        one.services,
        handler_context(),
        incremental.IncrementalAlterConfigsRequest(resources=[resource, resource]),
    )
    assert [item.error_code for item in response.responses] == [42, 42]


async def test_only_the_broker_itself_describes_its_configuration(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    described = await one.describe(BROKER, "0")
    assert described.error_code == 0
    by_name = {config.name: config for config in described.configs}
    assert len(by_name) > 300
    assert (by_name["log.retention.hours"].value, by_name["log.retention.hours"].config_source) == ("2", 4)
    assert by_name["broker.id"].read_only and not by_name["num.io.threads"].read_only
    assert (await one.describe(BROKER, "1")).error_code == ErrorCode.INVALID_REQUEST
    assert (await one.describe(TOPIC, "absent")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await one.describe(TOPIC, "")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_the_level_of_a_logger_is_set_and_reset(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    logger = logging.getLogger("ottla.test")
    assert (await one.change(LOGGER, "0", ("ottla.test", SET, "DEBUG")))[0] is ErrorCode.NONE
    assert logger.level == logging.DEBUG
    (described,) = (await one.describe(LOGGER, "0", ["ottla.test"])).configs
    assert (described.value, described.config_source) == ("DEBUG", 6)
    assert (await one.change(LOGGER, "0", ("ottla.test", DELETE, None)))[0] is ErrorCode.NONE
    assert logger.level == logging.NOTSET


async def test_two_concurrent_updates_both_take_effect(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    results = await asyncio.gather(
        *(broker.change(TOPIC, "t", (key, SET, "100")) for broker, key in
          ((one, "retention.ms"), (other, "segment.bytes"), (one, "flush.ms"), (other, "flush.messages")))
    )  # fmt: skip
    assert {code for code, _ in results} == {ErrorCode.NONE}
    assert len(await one.dynamic.stored("topics", "t")) == 4


async def test_a_change_made_while_the_session_was_lost_is_seen_after_it(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    other.store.expire_session(other.coordination.session_id)
    await one.change(TOPIC, "t", ("retention.ms", SET, "7"))
    topic, config = await other.next_topic()
    assert (topic, config.retention_ms) == ("t", 7)


async def test_unknown_nodes_beside_the_config_changes_are_ignored(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    await one.coordination.create(f"{znodes.CONFIG_CHANGES}/somebody-elses")
    assert (await one.change(TOPIC, "t", ("retention.ms", SET, "7")))[0] is ErrorCode.NONE
    assert (await other.next_topic())[1].retention_ms == 7
    late = DynamicConfig(
        other.config,
        2,
        other.coordination,
        other.clock,
        lambda *_: None,
        logging.getLogger("test"),
    )
    await late.start()
    assert (await late.load_topic("t")).retention_ms == 7
    assert "somebody-elses" in await one.coordination.children(znodes.CONFIG_CHANGES)


@pytest.mark.parametrize("name", ["t/partitions", "t/", "t//x", ".", "..", "/"])
async def test_an_invalid_topic_name_is_refused_and_reads_no_other_node(
    brokers: tuple[Broker, Broker], name: str
) -> None:
    """`/brokers/topics/t/partitions` exists, and a node below `/config/topics/t` would keep t from being deleted."""
    one, _ = brokers
    await one.coordination.create(znodes.topic_partitions_path("t"))
    assert (await one.change(TOPIC, "t", ("retention.ms", SET, "7")))[0] is ErrorCode.NONE
    assert (await one.change(TOPIC, name, ("retention.ms", SET, "8")))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await one.replace(TOPIC, name, retention_ms="8") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await one.describe(TOPIC, name)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await one.coordination.children(znodes.config_path("topics", "t")) == []


@pytest.mark.parametrize("path", ["topics/", "topics//t", "topics/..", "brokers/./0"])
async def test_a_change_of_an_invalid_entity_is_ignored(brokers: tuple[Broker, Broker], path: str) -> None:
    one, other = brokers
    await one.coordination.create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(path), sequence=True)
    assert (await one.change(TOPIC, "t", ("retention.ms", SET, "7")))[0] is ErrorCode.NONE
    assert (await other.next_topic())[1].retention_ms == 7


async def test_the_overrides_of_a_deleted_topic_are_forgotten(brokers: tuple[Broker, Broker]) -> None:
    """Otherwise the overrides of every deleted topic would stay in memory."""
    one, _ = brokers
    one.services.metadata = MetadataCache(0)
    one.services.group_coordinator = SimpleNamespace(on_partitions_deleted=lambda partitions: None)

    async def is_stale_broker_epoch(_: int) -> bool:
        return False

    fence = SimpleNamespace(is_stale_broker_epoch=is_stale_broker_epoch, accepts=lambda *_: True)
    one.services.replica_manager = SimpleNamespace(fence=fence, on_metadata_changed=lambda: None)

    async def tell(*partitions: tuple[int, int]) -> None:
        context: Any = handler_context(api_version=8, connection_number=1)
        states = [
            UpdateMetadataPartitionState(partition_index=index, leader=leader, isr=[0], replicas=[0])
            for index, leader in partitions
        ]
        topic = UpdateMetadataTopicState(topic_name="t", topic_id=b"t" * 16, partition_states=states)
        await update_metadata.handle(one.services, context, UpdateMetadataRequest(topic_states=[topic]))

    await one.change(TOPIC, "t", ("retention.ms", SET, "7"))
    await tell((0, 0), (1, 0))
    await tell((0, LEADER_DURING_DELETE))
    assert one.dynamic.topic_config("t").overrides == {"retention.ms": "7"}
    await tell((1, LEADER_DURING_DELETE))
    assert one.dynamic.topic_config("t").overrides == {}


async def test_a_broker_that_starts_reads_everything_stored(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    await one.change(TOPIC, "t", ("retention.ms", SET, "7"))
    await one.change(BROKER, "", ("message.max.bytes", SET, "2000"))
    late = Broker(one.store, 2)
    await late.coordination.start()
    await late.dynamic.start()
    config = late.dynamic.topic_config("t")
    assert (config.retention_ms, config.max_message_bytes) == (7, 2000)
    late.clock.cancel_all()
    await late.coordination.close()
