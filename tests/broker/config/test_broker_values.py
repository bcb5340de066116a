"""Attributes of a broker's and of a topic's values against the tables of keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_type_hints

import pytest

import ottla_broker
from ottla_broker.config import BROKER_KEYS, TOPIC_KEYS, BrokerConfig, BrokerValues, ConfigKey, ConfigType, TopicValues
from ottla_broker.config.broker_values import BROKER_ATTRIBUTES
from ottla_broker.config.topic_values import TOPIC_ATTRIBUTES

TYPES: Mapping[ConfigType, type] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.STRING: str,
    ConfigType.CLASS: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple[str, ...],  # type: ignore[dict-item]
}


@pytest.mark.parametrize(
    ("values", "attributes", "keys"),
    [(BrokerValues, BROKER_ATTRIBUTES, BROKER_KEYS), (TopicValues, TOPIC_ATTRIBUTES, TOPIC_KEYS)],
)
def test_each_attribute_has_the_name_and_the_type_of_a_key(
    values: type, attributes: Mapping[str, str], keys: Mapping[str, ConfigKey]
) -> None:
    hints = get_type_hints(values)
    assert set(hints) == set(attributes)
    for attribute, name in attributes.items():
        expected = TYPES[keys[name].type]
        assert hints[attribute] == (expected | None if keys[name].default is None else expected), name


def test_an_attribute_follows_a_dynamic_update() -> None:
    config = BrokerConfig.from_mapping({"num.replica.fetchers": "2"})
    assert config.num_replica_fetchers == 2
    config.apply_dynamic({"num.replica.fetchers": "3"}, {})
    assert config.num_replica_fetchers == 3


def test_code_outside_the_package_reads_no_configuration_by_the_name_of_its_key() -> None:
    package = Path(ottla_broker.__file__).parent
    by_name = re.compile(r"\.by_name\b|\b_?config\[|\b_?config\.get\(")
    found = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in ("config", "protocol")
        for line in path.read_text(encoding="utf-8").splitlines()
        if by_name.search(line)
    ]
    assert found == []
