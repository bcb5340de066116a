"""The requests of the KafkaAdmin port for the configuration of brokers: DescribeConfigs, IncrementalAlterConfigs.

Each broker answers for itself only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError as ClientError
from kafka.errors import UnknownBrokerIdError, for_code

from ottla_documents.limits import too_long_for_kafka
from ottla_operator.api.fleet import NO_ANSWER, SECRET, BrokerValue, BrokerValues, ConfigChanges

STATIC = "STATIC_BROKER_CONFIG"
OF_ALL = "DYNAMIC_DEFAULT_BROKER_CONFIG"
OWN = "DYNAMIC_BROKER_CONFIG"


def describe_brokers(client: KafkaAdminClient, broker_ids: Sequence[int]) -> Mapping[int, BrokerValues]:
    """Where those brokers that answer have their values from; for keys with a dynamic value every place.

    Raises:
        ClientError: none answers.
    """
    found: dict[int, dict[str, BrokerValue]] = {}
    for broker_id in broker_ids:
        try:
            found[broker_id] = _describe(client, broker_id)
        except ClientError:  # it stops, or has not started yet: the others are wanted all the same
            if broker_id == broker_ids[-1] and not found:
                raise
    return found


def _describe(client: KafkaAdminClient, broker_id: int) -> dict[str, BrokerValue]:
    name = str(broker_id)
    items = _ask(client, ConfigResource(ConfigResourceType.BROKER, name), has_places=False)
    found = {
        key: BrokerValue(file=_shown(item))
        for key, item in sorted(items.items())
        if item["config_source"] == STATIC and not item["read_only"]
    }
    if dynamic := [key for key, item in items.items() if item["config_source"] in (OWN, OF_ALL)]:
        asked = ConfigResource(ConfigResourceType.BROKER, name, dict.fromkeys(dynamic))
        places = _ask(client, asked, has_places=True)
        found |= {key: _places(key, item) for key, item in sorted(places.items())}
    return found


def _ask(client: KafkaAdminClient, resource: ConfigResource, *, has_places: bool) -> dict[str, Any]:
    # The client takes values of all brokers for defaults, so its own filter would drop them.
    try:
        answer = client.describe_configs([resource], has_places, config_filter="all")
    except UnknownBrokerIdError:
        # The client's own metadata is from while the broker was away, and is refreshed only after five minutes.
        client._manager.run(client._manager.cluster.refresh_metadata)
        answer = client.describe_configs([resource], has_places, config_filter="all")
    return dict(answer.get("broker", {}).get(resource.name, {}))


def _places(key: str, item: Mapping[str, Any]) -> BrokerValue:
    places = {one["source"]: _shown(one) for one in item["synonyms"] if one["name"] == key}
    return BrokerValue(places.get(OWN), places.get(OF_ALL), places.get(STATIC))


def _shown(item: Mapping[str, Any]) -> str:
    return SECRET if item["value"] is None else str(item["value"])


def alter_brokers(client: KafkaAdminClient, changes: ConfigChanges) -> dict[tuple[int | None, str], str]:
    """Changes a broker in one request. Where it refuses that each value is sent alone, so that its error is its own.

    A broker that does not answer, or closes the connection, has `NO_ANSWER` and why as the error of what it was asked
    for; the others are asked all the same.
    """
    errors: dict[tuple[int | None, str], str] = {}
    for broker, values in changes.items():
        try:
            if not values or not _alter(client, broker, values):
                continue
            for key, value in values.items():
                if error := _alter(client, broker, {key: value}):
                    errors[broker, key] = error
        except ClientError as error:
            why = f"{NO_ANSWER}{type(error).__name__}: {error}"
            errors |= {(broker, key): why for key in values if (broker, key) not in errors}
    return errors


def _alter(client: KafkaAdminClient, broker: int | None, values: Mapping[str, str | None]) -> str:
    """Returns the error with which the broker refuses the values, or ""."""
    for key, value in values.items():
        if value is not None and (wrong := too_long_for_kafka(value)):
            return f"{key} {wrong}"  # the client would send it, and the broker closes the connection
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
