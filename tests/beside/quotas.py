"""Quotas that are set, described and removed, for both brokers in one order.

No quota is low enough to throttle the client that sets it. Not asked: names of hosts that have to be encoded in a path,
IPv6 addresses among them. Both refuse them, and Apache Kafka's message has them encoded.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated import alter_client_quotas as alter
from ottla_broker.protocol.generated import create_topics as create
from ottla_broker.protocol.generated import describe_client_quotas as describe
from tests.beside.requests import Request

Names = tuple[tuple[str, str | None], ...]
LARGE = 1e12

ALTERATIONS: tuple[tuple[Names, tuple[tuple[str, float | None], ...]], ...] = (
    ((("user", "a"),), (("producer_byte_rate", LARGE), ("request_percentage", 5000.5))),
    ((("user", "a"), ("client-id", "c")), (("consumer_byte_rate", LARGE),)),
    ((("user", None), ("client-id", "ü /c")), (("controller_mutation_rate", LARGE),)),
    ((("client-id", None),), (("producer_byte_rate", LARGE), ("consumer_byte_rate", 2.0**62))),
    ((("client-id", "c"),), (("request_percentage", 1e7), ("controller_mutation_rate", 0.00025))),
    ((("ip", "10.0.0.1"),), (("connection_creation_rate", 70.0),)),
    ((("ip", None),), (("connection_creation_rate", 2.0**31 - 1),)),
    # Values that are not taken, and some that are although they mean nothing.
    ((("user", "a"),), (("producer_byte_rate", -1.0),)),
    ((("user", "a"),), (("producer_byte_rate", 1.5),)),
    ((("user", "a"),), (("producer_byte_rate", 1.0000001),)),
    ((("user", "b"),), (("request_percentage", -5.0),)),
    ((("user", "b"),), (("producer_byte_rate", 0.0),)),
    ((("user", "b"),), (("producer_byte_rate", 1e300),)),
    ((("ip", "10.0.0.1"),), (("connection_creation_rate", -1.0),)),
    ((("ip", "10.0.0.1"),), (("connection_creation_rate", 2.0**31),)),
    # Keys and entities that do not exist.
    ((("user", "a"),), (("nope", 1.0),)),
    ((("user", "a"),), (("nope", None),)),
    ((("user", "a"),), (("connection_creation_rate", 1.0),)),
    ((("ip", "10.0.0.1"),), (("producer_byte_rate", 1.0),)),
    ((("user", "a"), ("ip", "10.0.0.1")), (("producer_byte_rate", 1.0),)),
    ((("role", "a"),), (("producer_byte_rate", 1.0),)),
    ((("user", ""),), (("producer_byte_rate", 1.0),)),
    ((), (("producer_byte_rate", 1.0),)),
    ((("ip", "nobody.invalid"),), (("connection_creation_rate", 1.0),)),
    # The second of two operations is not taken: neither is the first.
    ((("user", "c"),), (("producer_byte_rate", LARGE), ("nope", 1.0))),
    # Removed: one of two, all, and what was never there.
    ((("user", "a"),), (("request_percentage", None),)),
    ((("user", "a"),), (("producer_byte_rate", None),)),
    ((("user", "a"), ("client-id", "c")), (("consumer_byte_rate", None),)),
    ((("client-id", "never"),), (("producer_byte_rate", None),)),
    ((("user", "never"), ("client-id", "never")), (("producer_byte_rate", None),)),
)
"""An entity, and what is done to it: keys with values; None removes one."""

FILTERS: tuple[tuple[tuple[tuple[str, int, str | None], ...], bool], ...] = (
    ((), False),
    ((), True),
    ((("user", 0, "a"),), False),
    ((("user", 0, "a"),), True),
    ((("user", 1, None),), False),
    ((("user", 2, None),), True),
    ((("client-id", 2, None),), False),
    ((("user", 2, None), ("client-id", 0, "c")), True),
    ((("client-id", 0, "c"),), True),
    ((("ip", 2, None),), False),
    ((("ip", 1, None),), True),
)
"""(entity type, match type, name) of each component, and whether the filter is strict."""


def requests() -> Iterator[Request]:
    """Each alteration in both versions: only validated, then made; after each every filter is asked."""
    for number, (names, operations) in enumerate(ALTERATIONS):
        for validate_only in (True, False):
            yield Request(ApiKey.ALTER_CLIENT_QUOTAS, number % 2, _alteration(validate_only, (names, operations)))
        for components, is_strict in FILTERS:
            wanted = [describe.ComponentData(entity_type=t, match_type=m, match=n) for t, m, n in components]
            body = describe.DescribeClientQuotasRequest(components=wanted, strict=is_strict)
            yield Request(ApiKey.DESCRIBE_CLIENT_QUOTAS, number % 2, body)
    twice = ((("user", "d"),), (("producer_byte_rate", LARGE),)), ((("user", "d"),), (("nope", 1.0),))
    yield Request(ApiKey.ALTER_CLIENT_QUOTAS, 1, _alteration(False, *twice))
    yield Request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, describe.DescribeClientQuotasRequest(components=[]))


def changes_over_the_quota() -> Iterator[Request]:
    """One partition per second, eleven at once: what is created uses up more, and what follows is refused or throttled.

    The client waits for as long as its connection is muted, five seconds, before the last request is answered.
    """
    rate = ((("client-id", "wire"),), (("controller_mutation_rate", 1.0),))
    yield Request(ApiKey.ALTER_CLIENT_QUOTAS, 1, _alteration(False, rate))
    yield Request(ApiKey.CREATE_TOPICS, 7, _creation("q1", 16))
    yield Request(ApiKey.CREATE_TOPICS, 6, _creation("q2", 1))
    yield Request(ApiKey.CREATE_TOPICS, 5, _creation("q3", 3))


def _creation(name: str, partitions: int) -> create.CreateTopicsRequest:
    topic = create.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return create.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


def _alteration(
    validate_only: bool, *entries: tuple[Names, tuple[tuple[str, float | None], ...]]
) -> alter.AlterClientQuotasRequest:
    return alter.AlterClientQuotasRequest(
        entries=[
            alter.EntryData(
                entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in names],
                ops=[alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in operations],
            )
            for names, operations in entries
        ],
        validate_only=validate_only,
    )
