"""The requests of the KafkaAdmin port for the configuration of brokers: DescribeConfigs, IncrementalAlterConfigs.

Each broker answers for itself only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import for_code

from ottla_operator.api.fleet import SECRET, BrokerValue, BrokerValues, ConfigChanges

STATIC = "STATIC_BROKER_CONFIG"
OF_ALL = "DYNAMIC_DEFAULT_BROKER_CONFIG"
OWN = "DYNAMIC_BROKER_CONFIG"


def describe_brokers(client: KafkaAdminClient, broker_ids: Sequence[int]) -> Mapping[int, BrokerValues]:
    """Where brokers have their values from. Only for keys with a dynamic value every place is asked for."""
    if not broker_ids:
        return {}
    resources = [ConfigResource(ConfigResourceType.BROKER, str(broker_id)) for broker_id in broker_ids]
    # The client takes values of all brokers for defaults, so its own filter would drop them.
    described = client.describe_configs(resources, config_filter="all").get("broker", {})
    found: dict[int, dict[str, BrokerValue]] = {}
    asked: list[ConfigResource] = []
    for name, items in described.items():
        found[int(name)] = {
            key: BrokerValue(file=_shown(item))
            for key, item in sorted(items.items())
            if item["config_source"] == STATIC and not item["read_only"]
        }
        if dynamic := [key for key, item in items.items() if item["config_source"] in (OWN, OF_ALL)]:
            asked.append(ConfigResource(ConfigResourceType.BROKER, name, dict.fromkeys(dynamic)))
    if asked:
        for name, items in client.describe_configs(asked, True, config_filter="all").get("broker", {}).items():
            found[int(name)] |= {key: _places(key, item) for key, item in sorted(items.items())}
    return found


def _places(key: str, item: Mapping[str, Any]) -> BrokerValue:
    places = {one["source"]: _shown(one) for one in item["synonyms"] if one["name"] == key}
    return BrokerValue(places.get(OWN), places.get(OF_ALL), places.get(STATIC))


def _shown(item: Mapping[str, Any]) -> str:
    return SECRET if item["value"] is None else str(item["value"])


def alter_brokers(client: KafkaAdminClient, changes: ConfigChanges) -> dict[tuple[int | None, str], str]:
    """Changes a broker in one request. Where it refuses that each value is sent alone, so that its error is its own."""
    errors: dict[tuple[int | None, str], str] = {}
    for broker, values in changes.items():
        if not values or not _alter(client, broker, values):
            continue
        for key, value in values.items():
            if error := _alter(client, broker, {key: value}):
                errors[broker, key] = error
    return errors


def _alter(client: KafkaAdminClient, broker: int | None, values: Mapping[str, str | None]) -> str:
    """Returns the error with which the broker refuses the values, or ""."""
    operations = {
        key: (AlterConfigOp.DELETE, None) if value is None else (AlterConfigOp.SET, value)
        for key, value in values.items()
    }
    name = "" if broker is None else str(broker)
    resource = ConfigResource(ConfigResourceType.BROKER, name, operations)

    async def send() -> Any:  # the public call of the client takes no resource of all brokers
        request = client._alter_configs_request([resource], incremental=True)
        return await client._manager.send(request, node_id=broker)

    (answer,) = client._manager.run(send).responses
    if answer.error_code == 0:
        return ""
    return str(answer.error_message or for_code(answer.error_code).__name__.removesuffix("Error"))
