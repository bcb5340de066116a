"""Dynamic configuration of the brokers of a local fleet: what a document changes while they run.

A document that changes while brokers run is put in force by dynamic values of each broker. They outlive the brokers and
win over the files of the next start, which have the same values or newer ones: so they are removed once the brokers
have started (`settle`). What others have set stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.local.layout import BrokerPlace
from ottla.local.ports import HOST
from ottla_broker.config import ConfigSource
from ottla_broker.ports import Clock
from ottla_broker.ports.network import Connector
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.server.peers.broker_client import BrokerClient, BrokerDisconnected

_BROKER_RESOURCE = 4
_SET, _DELETE = 0, 1


async def set_values(
    connector: Connector, clock: Clock, port: int, place: BrokerPlace, changes: Mapping[str, str | None]
) -> str:
    """Sets dynamic values of one broker, and deletes those that are None. Returns why not, or "".

    Args:
        port: of a listener of the broker that `connector` can speak to.
    """
    api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    configs = [
        api.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changes.items()
    ]
    resource = api.AlterConfigsResource(resource_type=_BROKER_RESOURCE, resource_name=str(place.id), configs=configs)
    request = api.IncrementalAlterConfigsRequest(resources=[resource])
    try:
        response = await _ask(connector, clock, port, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    except BrokerDisconnected as error:
        return str(error)
    answer = response.responses[0]
    if answer.error_code == ErrorCode.NONE:
        return ""
    return str(answer.error_message or ErrorCode.of(answer.error_code).message)


async def settle(connector: Connector, clock: Clock, port: int, place: BrokerPlace) -> bool:
    """Removes the values of `place.dynamic` that are still as they were set. Returns whether it is done.

    Args:
        port: see `set_values`.
    """
    api = codec.module(ApiKey.DESCRIBE_CONFIGS)
    resource = api.DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE, resource_name=str(place.id), configuration_keys=list(place.dynamic)
    )
    request = api.DescribeConfigsRequest(resources=[resource])
    try:
        response = await _ask(connector, clock, port, ApiKey.DESCRIBE_CONFIGS, 4, request)
    except BrokerDisconnected:
        return False
    own = {
        entry.name: entry.value
        for entry in response.results[0].configs
        if entry.config_source == ConfigSource.DYNAMIC_BROKER_CONFIG
    }
    ours: dict[str, str | None] = {key: None for key, value in place.dynamic.items() if own.get(key) == value}
    return not ours or not await set_values(connector, clock, port, place, ours)


async def _ask(connector: Connector, clock: Clock, port: int, api_key: ApiKey, version: int, request: Any) -> Any:
    """Raises BrokerDisconnected."""
    client = BrokerClient(connector, clock, HOST, port, client_id="ottla-local")
    try:
        await client.connect()
        return await client.send(api_key, version, request)
    finally:
        client.close()
