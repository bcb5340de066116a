"""AlterClientQuotas (key 49, KIP-546): sets and removes the quotas of entities.

Behaviour
    Served by every broker. Each entry is carried out by itself, in their order; an entity that is named twice has one
    result, the last. Quotas are stored at /config/users, /config/clients and /config/ips, and in force on this broker
    when it answers, on the others when they have read the notification.
Rights, in this order
    AlterConfigs:Cluster (the cluster): the error of each entry.
Errors, in this order
    entry: INVALID_REQUEST (no entity type, one that does not exist, an empty name, ip beside user or client-id),
    INVALID_REQUEST (an ip that is neither an address nor the name of a host; also a name of two dots or one, which no
    znode can have). For each key: INVALID_REQUEST (it does not exist for this entity; a fraction, or less than 0, for a
    whole number).
    An IPv6 address is refused, as by Apache Kafka in ZooKeeper mode, whose brokers could not read it back.
Versions
    0: KIP-546. 1: flexible.
"""

from __future__ import annotations

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.protocol.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    ResponseEntryData,
)
from ottla_broker.quotas.alterations import Alteration, altered, parse_entity
from ottla_broker.quotas.entities import QuotaEntity
from ottla_broker.server.handler_api import RequestContext, Services


async def handle(
    services: Services, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """One result per entity."""
    results: dict[frozenset[tuple[str, str | None]], ResponseEntryData] = {}
    async for entry in context.each(request.entries, 20):
        names = {part.entity_type: part.entity_name for part in entry.entity}
        result = ResponseEntryData(
            error_message=None, entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()]
        )
        try:
            await _alter(services, entry, request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = int(error.code), error.message
        results[frozenset(names.items())] = result
    return AlterClientQuotasResponse(entries=list(results.values()))


async def _alter(services: Services, entry: EntryData, validate_only: bool) -> None:
    """Raises KafkaError, and CoordinationError when the store cannot be reached."""
    entity = parse_entity((part.entity_type, part.entity_name) for part in entry.entity)
    await _check_names(services, entity)
    alterations = [Alteration(op.key, None if op.remove else op.value) for op in entry.ops]
    quotas = services.dynamic_config.quotas
    if validate_only:
        altered(entity, await quotas.stored(entity), alterations)
    else:
        await quotas.update(entity, lambda stored: altered(entity, stored, alterations))


async def _check_names(services: Services, entity: QuotaEntity) -> None:
    for entity_type, name in entity.names.items():
        if name in (".", ".."):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is not a valid {entity_type} name.")
    if isinstance(entity.ip, str):
        try:
            if ":" in entity.ip:
                raise OSError("the address would be encoded in the path")
            await services.resolve(entity.ip)
        except OSError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{entity.ip} is not a valid IP or resolvable host.") from None
