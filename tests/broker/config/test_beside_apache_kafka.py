"""Our tables beside a running Apache Kafka 3.9.1: what it tells of its configuration, ours tells too."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.systems import APACHE_KAFKA, System, ask
from ottla_broker.config import BrokerConfig, ConfigDescription
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated import describe_configs
from tests.beside.configs import OWN_DEFAULTS, SINCE_3_9

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    system = System(APACHE_KAFKA, tmp_path_factory.mktemp("apache-kafka"))
    try:
        system.start()
        system.create_topic("t", 1, 1)
        yield system
    finally:
        system.stop()


def described(system: System, resource_type: int, name: str) -> dict[str, tuple[object, ...]]:
    request = describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=None
            )
        ],
        include_synonyms=True,
    )
    with socket.create_connection(("127.0.0.1", system.ports[0]), timeout=30) as connection:
        (result,) = ask(connection, ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert result.error_code == 0
    return {
        item.name: row(
            item.value, item.read_only, item.config_source, item.is_sensitive, item.config_type, item.synonyms
        )
        for item in result.configs
    }


def row(
    value: Any, read_only: bool, source: int, sensitive: bool, kind: int, synonyms: Sequence[Any]
) -> tuple[Any, ...]:
    told = tuple((synonym.name, synonym.value, int(synonym.source)) for synonym in synonyms)
    return value, read_only, int(source), sensitive, kind, told


def ours(descriptions: Sequence[ConfigDescription]) -> dict[str, tuple[object, ...]]:
    return {
        item.name: row(
            item.value, item.is_read_only, item.source, item.is_sensitive, int(item.type or 0), item.synonyms
        )
        for item in descriptions
        if not item.name.startswith("ottla.") and item.name not in SINCE_3_9
    }


def config_of(system: System) -> BrokerConfig:
    return BrokerConfig.from_properties((Path(system.work) / "server-0.properties").read_text())


def test_every_broker_key_has_its_value_type_mode_source_and_synonyms(apache_kafka: System) -> None:
    found, expected = ours(config_of(apache_kafka).describe_all()), described(apache_kafka, 4, "0")
    for name in OWN_DEFAULTS:
        assert found.pop(name)[0] != expected.pop(name)[0]
    assert found == expected


def test_every_topic_key_has_its_value_type_source_and_synonyms(apache_kafka: System) -> None:
    assert ours(config_of(apache_kafka).topic_config({}).describe_all()) == described(apache_kafka, 2, "t")
