"""Every API has its row of rights, and what a request names without its right never reaches a handler."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.authorization.access import Access
from ottla_broker.authorization.authorizer import AclCheck
from ottla_broker.authorization.resources import CLUSTER_NAME, AclOperation, ResourceType
from ottla_broker.controller.acts.topic_administration import TopicResult
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.security.principals import Principal
from ottla_broker.server import rights_reference
from ottla_broker.server.edge.cluster_action import ONLY_FROM_BROKERS, REFUSALS, has_right_of_brokers
from ottla_broker.server.edge.dispatch import ABOVE_KAFKA_3_9, LISTED, Listing
from ottla_broker.server.edge.rights import ERROR_WITHOUT, RIGHTS
from ottla_broker.server.edge.withheld import withhold
from ottla_broker.server.handlers import create_partitions
from tests.broker.server.contexts import handler_context

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "rights.md"
EVERY = [*LISTED, *(row.listing for row in ABOVE_KAFKA_3_9)]
WITH_ENTRIES = [listing for listing in EVERY if RIGHTS[listing.api_key].entries is not None]
WITH_NAMES = [listing for listing in WITH_ENTRIES if listing.api_key is not ApiKey.ALTER_CLIENT_QUOTAS]
"""The entries of the other one need a right on the cluster: all or none."""


class Rights:
    """An authorizer that allows everything but what is on the resources named here."""

    def __init__(self, *denied: str) -> None:
        self.version = 0
        self.denied = denied

    def decide(self, principal: Principal, address: str, checks: Sequence[AclCheck]) -> list[bool]:
        return [check.name not in self.denied for check in checks]

    def allows_any(
        self, principal: Principal, address: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return True


def context_of(listing: Listing, *denied: str) -> Any:
    access = Access(Rights(*denied), Principal("User", "alice"), "127.0.0.1")
    connection = SimpleNamespace(access=access, has_cluster_action=True)
    return handler_context(connection=connection, api_key=int(listing.api_key), api_version=listing.highest)


def entry_of(api_key: ApiKey, name: str) -> Any:
    """One entry of a request about the resource of this name, with one partition where it has some."""
    wire = codec.module(api_key)
    match api_key:
        case ApiKey.LIST_OFFSETS:
            return wire.ListOffsetsTopic(name=name, partitions=[wire.ListOffsetsPartition(partition_index=3)])
        case ApiKey.OFFSET_FOR_LEADER_EPOCH:
            return wire.OffsetForLeaderTopic(topic=name, partitions=[wire.OffsetForLeaderPartition(partition=3)])
        case ApiKey.OFFSET_COMMIT:
            partition = wire.OffsetCommitRequestPartition(partition_index=3)
            return wire.OffsetCommitRequestTopic(name=name, partitions=[partition])
        case ApiKey.TXN_OFFSET_COMMIT:
            partition = wire.TxnOffsetCommitRequestPartition(partition_index=3)
            return wire.TxnOffsetCommitRequestTopic(name=name, partitions=[partition])
        case ApiKey.DELETE_RECORDS:
            return wire.DeleteRecordsTopic(name=name, partitions=[wire.DeleteRecordsPartition(partition_index=3)])
        case ApiKey.OFFSET_DELETE:
            partition = wire.OffsetDeleteRequestPartition(partition_index=3)
            return wire.OffsetDeleteRequestTopic(name=name, partitions=[partition])
        case ApiKey.DESCRIBE_PRODUCERS:
            return wire.TopicRequest(name=name, partition_indexes=[3])
        case ApiKey.CREATE_PARTITIONS:
            return wire.CreatePartitionsTopic(name=name, count=2)
        case ApiKey.DESCRIBE_CONFIGS:
            return wire.DescribeConfigsResource(resource_type=2, resource_name=name)
        case ApiKey.ALTER_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return wire.AlterConfigsResource(resource_type=2, resource_name=name)
        case ApiKey.ALTER_CLIENT_QUOTAS:
            return wire.EntryData(entity=[wire.EntityData(entity_type="user", entity_name=name)])
    return name  # groups and transactional ids


async def withheld_from(listing: Listing, request: Any, *denied: str) -> list[Any]:
    entries = RIGHTS[listing.api_key].entries
    assert entries is not None
    services: Any = SimpleNamespace(
        broker_id=1,
        controller=SimpleNamespace(is_active=True),
        metadata=SimpleNamespace(topic_name=lambda topic_id: None),
    )
    return await withhold(services, context_of(listing, *denied), request, entries)


def request_of(listing: Listing, *names: str) -> Any:
    entries = RIGHTS[listing.api_key].entries
    assert entries is not None
    wire = codec.module(listing.api_key)
    request = getattr(wire, f"{codec.spec(listing.api_key).name}Request")()
    setattr(request, entries.requested, [entry_of(listing.api_key, name) for name in names])
    return request


def test_every_api_that_is_served_has_a_row_and_no_other() -> None:
    assert set(RIGHTS) == {listing.api_key for listing in EVERY}


def test_what_only_brokers_send_needs_cluster_action() -> None:
    for api_key in (*ONLY_FROM_BROKERS, *REFUSALS):
        assert RIGHTS[api_key].rights[0].operation is AclOperation.CLUSTER_ACTION


def test_the_page_and_the_docstrings_of_the_handlers_have_the_rights_of_the_table() -> None:
    assert PAGE.read_text() == rights_reference.page()
    for path, source in rights_reference.handler_sources().items():
        assert path.read_text() == source, f"{path.name}: run `make reference`"


@pytest.mark.parametrize("listing", WITH_NAMES, ids=lambda listing: f"{listing.module}-{listing.highest}")
async def test_an_entry_without_its_right_is_answered_and_the_others_reach_the_handler(listing: Listing) -> None:
    entries = RIGHTS[listing.api_key].entries
    assert entries is not None
    request = request_of(listing, "mine", "secret-1", "secret-2")
    left = [getattr(request, entries.requested)[0]]
    answers = await withheld_from(listing, request, "secret-1", "secret-2", CLUSTER_NAME)
    assert getattr(request, entries.requested) == left
    assert len(answers) == 2
    check = entries.check(None, request, entry_of(listing.api_key, "secret-1"))  # type: ignore[arg-type]
    assert check is not None
    error = int(ERROR_WITHOUT[check.resource_type])
    for answer in answers:
        assert "secret" in repr(answer)
        of_each = getattr(answer, "partitions", None) or [answer]
        assert [one.error_code for one in of_each] == [error]
    wire = codec.module(listing.api_key)
    response = getattr(wire, f"{codec.spec(listing.api_key).name}Response")()
    getattr(response, entries.answered).extend(answers)
    for version in range(listing.lowest, listing.highest + 1):
        written = b"".join(bytes(chunk) for chunk in wire.write_response(version, response))
        assert b"secret" in written or version >= 10  # by topic id


@pytest.mark.parametrize("api_key", [ApiKey.CREATE_PARTITIONS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
async def test_what_is_named_twice_is_refused_for_that(api_key: ApiKey) -> None:
    listing = next(one for one in LISTED if one.api_key is api_key)
    request = request_of(listing, "secret", "secret")
    assert await withheld_from(listing, request, "secret") == []
    assert len(getattr(request, "resources", None) or request.topics) == 2


async def test_who_becomes_controller_while_it_reads_a_request_adds_no_partition_without_rights() -> None:
    listing = next(one for one in LISTED if one.api_key is ApiKey.CREATE_PARTITIONS)
    grown: list[str] = []

    async def create(growths: Any, **_: Any) -> list[TopicResult]:
        grown.extend(growth.name for growth in growths)
        return [TopicResult(growth.name, ErrorCode.NONE, None) for growth in growths]

    controller = SimpleNamespace(is_active=False, create_partitions=create)
    throttle = SimpleNamespace(mutation_charge=lambda *_, **__: None)
    services: Any = SimpleNamespace(broker_id=1, controller=controller, throttle=throttle)
    names = [f"secret-{number}" for number in range(1_000)]
    context, request = context_of(listing, *names), request_of(listing, *names)
    entries = RIGHTS[ApiKey.CREATE_PARTITIONS].entries
    assert entries is not None
    assert await withhold(services, context, request, entries) == []
    asyncio.get_running_loop().call_soon(setattr, controller, "is_active", True)
    answer = await create_partitions.handle(services, context, request)
    assert {result.error_code for result in answer.results} == {int(ErrorCode.NOT_CONTROLLER)}
    assert grown == []


async def test_two_resources_that_need_the_same_right_are_not_one_that_is_named_twice() -> None:
    listing = next(one for one in LISTED if one.api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS)
    wire = codec.module(listing.api_key)
    of_brokers = [wire.AlterConfigsResource(resource_type=4, resource_name=name) for name in ("", "1")]
    request = wire.IncrementalAlterConfigsRequest(resources=of_brokers)
    answers = await withheld_from(listing, request, CLUSTER_NAME)
    assert request.resources == []
    assert [(one.resource_name, one.error_code) for one in answers] == [("", 31), ("1", 31)]


async def test_whoever_may_act_on_the_cluster_needs_no_right_on_topics_to_look_up_epochs() -> None:
    listing = next(one for one in LISTED if one.api_key is ApiKey.OFFSET_FOR_LEADER_EPOCH)
    assert await withheld_from(listing, request_of(listing, "secret"), "secret") == []
    assert len(await withheld_from(listing, request_of(listing, "secret"), "secret", CLUSTER_NAME)) == 1


@pytest.mark.parametrize("listing", WITH_ENTRIES, ids=lambda listing: f"{listing.module}-{listing.highest}")
async def test_nothing_is_withheld_from_who_has_every_right(listing: Listing) -> None:
    entries = RIGHTS[listing.api_key].entries
    assert entries is not None
    request = request_of(listing, "a", "b")
    assert await withheld_from(listing, request) == []
    assert len(getattr(request, entries.requested)) == 2


async def test_without_the_right_on_the_group_every_topic_of_a_commit_is_refused() -> None:
    listing = next(one for one in LISTED if one.api_key is ApiKey.OFFSET_COMMIT)
    request = request_of(listing, "a", "b")
    request.group_id = "team"
    answers = await withheld_from(listing, request, "team")
    assert request.topics == []
    assert [(one.name, [partition.error_code for partition in one.partitions]) for one in answers] == [
        ("a", [30]),
        ("b", [30]),
    ]


async def test_a_request_of_a_broker_needs_the_listener_and_the_right() -> None:
    stop = next(one for one in LISTED if one.api_key is ApiKey.STOP_REPLICA)
    markers = next(one for one in LISTED if one.api_key is ApiKey.WRITE_TXN_MARKERS)
    assert has_right_of_brokers(context_of(stop))
    assert not has_right_of_brokers(context_of(stop, CLUSTER_NAME))
    assert not has_right_of_brokers(context_of(markers, CLUSTER_NAME))
    other_listener = context_of(stop)
    other_listener.connection.has_cluster_action = False
    assert not has_right_of_brokers(other_listener)
    administrator = context_of(markers)
    administrator.connection.has_cluster_action = False
    assert has_right_of_brokers(administrator), "with Alter on the cluster"
