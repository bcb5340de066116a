"""Topics for tests: created by librdkafka, known to every broker before they are used."""

from __future__ import annotations

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.integration.clients.driver import Administrator, Record, await_that
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.security import PLAIN, Security, wire
from tests.integration.wire import Wire

FOREVER = "-1"
"""`retention.ms` of a topic whose records have old timestamps: else retention deletes them 30 s after a broker has
started."""
_METADATA_VERSION = 9


def create(
    bootstrap: str,
    topic: str,
    partitions: int = 1,
    replicas: int = 3,
    *,
    security: Security = PLAIN,
    **config: str,
) -> None:
    """`config` with underscores for dots. Returns when every broker knows the topic."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    Librdkafka(security).create_topic(bootstrap, topic, partitions, replicas, settings)
    await_known(bootstrap, topic, partitions, security=security)


def await_known(bootstrap: str, topic: str, partitions: int = 1, *, security: Security = PLAIN) -> None:
    """The controller answers before the other brokers have heard of a topic, and a client may ask any of them next."""
    for address in bootstrap.split(","):
        with wire(address, security) as asked:
            await_that(lambda: has_leaders(asked, topic, partitions), f"{address} knows {topic}")


def await_forgotten(bootstrap: str, topic: str) -> None:
    """No broker tells of the deleted topic any more."""
    for address in bootstrap.split(","):
        with Wire(address) as wire:
            await_that(lambda: not metadata(wire, topic), f"{address} has forgotten {topic}")


def await_groups(bootstrap: str) -> None:
    """Every broker has loaded the groups it coordinates: those that have not refuse to list them."""
    api = codec.module(ApiKey.LIST_GROUPS)
    for address in bootstrap.split(","):
        with Wire(address) as wire:
            await_that(
                lambda: wire.ask(ApiKey.LIST_GROUPS, 4, api.ListGroupsRequest()).error_code == 0,
                f"{address} lists its groups",
            )


def has_leaders(wire: Wire, topic: str, partitions: int) -> bool:
    found = metadata(wire, topic)
    return len(found) == partitions and -1 not in found.values()


def metadata(wire: Wire, topic: str) -> dict[int, int]:
    """Leaders by partition as one broker knows them; empty when it does not know the topic."""
    api = codec.module(ApiKey.METADATA)
    request = api.MetadataRequest(topics=[api.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    response = wire.ask(ApiKey.METADATA, _METADATA_VERSION, request)
    return {part.partition_index: part.leader_id for part in response.topics[0].partitions}


def create_again(driver: Administrator, bootstrap: str, topic: str) -> None:
    """Deletion is answered when it has been ordered: until it is through the name is taken, as with Kafka."""

    def is_created() -> bool:
        try:
            driver.create_topic(bootstrap, topic, 1, 3, {})
        except Exception as error:
            assert "exist" in str(error).lower(), error
            return False
        return True

    await_that(is_created, "the name is free again")


def numbered(count: int, partitions: int = 1, first: int = 0) -> list[Record]:
    """Records "value <first>" to "value <count - 1>", dealt out to the partitions."""
    return [Record(None, f"value {number}".encode(), partition=number % partitions) for number in range(first, count)]
