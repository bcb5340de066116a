"""No request, whatever is in it, holds the loop: every field of every API that repeats, with as many elements as fit.

The map of requests comes from the definitions of the wire protocol (`bench.hostile.many_elements`), so that a new API
or field is in it. A broker of the simulator gets each. What is measured is not time but how many lines of Python one
callback of the loop runs. `python -m bench.hostile` measures time and memory, in larger requests and beside Apache
Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from bench.hostile.many_elements import TOPIC, Content, Row, rows
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.server.edge.dispatch import served
from ottla_broker.server.edge.element_limits import MOST
from simulation.client import Unavailable
from simulation.world import World
from tests.broker.server.edge.line_counting import MOST_LINES, Broker, CountingLoop, answered, produced

SIZE = 24_000
"""Of a request, in bytes: far more than a slice, and small enough for a run of thousands of them."""

NAMES_SIZE = 120_000
"""Of a request of different names, in bytes: what is done once for each name of a response shows only here."""

LARGER = {"Fetch": (100_000, 60_000), "Produce": (100_000, 60_000)}
"""(size, most lines) of the APIs that handle 500 elements at once: hot ones, whose short requests take no turns."""

SERVED = {int(listing.api_key): (listing.lowest, listing.highest) for listing in served({})}

RIGHTS = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
}

NOT_SLICED = {
    "LeaderAndIsr": "of the controller alone, 100 partitions in a turn",
    "StopReplica": "of the controller alone, 100 partitions in a turn",
    "AlterPartition": "of brokers alone, one event of the controller",
    "AlterClientQuotas": "element_limits bounds it",
}
"""APIs whose handler is not interrupted, and why."""


def by_api(*, newest: bool) -> dict[str, list[Row]]:
    """The rows of the newest version of each API, or those of all older ones."""
    found: dict[str, list[Row]] = {}
    for row in rows(SERVED):
        is_newest = row.version == SERVED[row.definition.api_key or 0][1]
        if is_newest is newest and row.definition.name not in NOT_SLICED:
            found.setdefault(row.definition.name, []).append(row)
    return found


BY_API, OLDER = by_api(newest=True), by_api(newest=False)


def measured(
    wanted: list[Row], contents: Iterable[Content] = tuple(Content), size: int = 0, *, denies: bool = False
) -> dict[str, tuple[int, int | str]]:
    """(lines of the longest callback, how it was answered) of each request.

    Args:
        size: in bytes; 0: that of the API.
        denies: who sends them has no right to anything in them.
    """
    found: dict[str, tuple[int, int | str]] = {}

    async def run(world: World, loop: CountingLoop) -> None:
        broker = Broker(world, loop, 1, **(RIGHTS if denies else {}))
        await broker.start()
        if denies:
            await broker.deny()
        for row in wanted:
            usual, _ = LARGER.get(row.definition.name, (SIZE, MOST_LINES))
            for content in contents:
                found[f"{row.name} {content.value}"] = await broker.send(row, content, size or usual)

    loop = CountingLoop()
    world = World(1, loop=loop)
    world.run(run(world, loop))
    assert world.problems == []
    return found


@pytest.mark.parametrize("api", BY_API)
def test_no_callback_of_the_loop_grows_with_what_a_request_holds(api: str) -> None:
    _, most_lines = LARGER.get(api, (SIZE, MOST_LINES))
    found = measured(BY_API[api])
    assert {name: lines for name, (lines, _) in found.items() if lines > most_lines} == {}


@pytest.mark.long
@pytest.mark.parametrize("api", OLDER)
def test_no_callback_of_the_loop_grows_with_what_a_request_of_an_older_version_holds(api: str) -> None:
    _, most_lines = LARGER.get(api, (SIZE, MOST_LINES))
    found = measured(OLDER[api])
    assert {name: lines for name, (lines, _) in found.items() if lines > most_lines} == {}


@pytest.mark.extended
@pytest.mark.parametrize("api", sorted(api for api, found in BY_API.items() if found[0].definition.api_key not in MOST))
def test_no_callback_grows_with_the_different_names_in_a_request_whose_number_only_the_general_limit_bounds(
    api: str,
) -> None:
    found = measured(BY_API[api], [Content.UNKNOWN], NAMES_SIZE)
    assert {name: lines for name, (lines, _) in found.items() if lines > MOST_LINES} == {}


@pytest.mark.parametrize("api", BY_API)
def test_no_callback_grows_with_the_different_names_in_a_request_without_rights(api: str) -> None:
    is_bounded = BY_API[api][0].definition.api_key in MOST
    size, most_lines = LARGER.get(api, (SIZE if is_bounded else NAMES_SIZE, MOST_LINES))
    found = measured(BY_API[api], [Content.UNKNOWN], size, denies=True)
    assert {name: lines for name, (lines, _) in found.items() if lines > most_lines} == {}


def test_the_partitions_of_a_long_produce_are_answered_in_their_order() -> None:
    async def scenario(broker: Broker) -> Any:
        return await broker.client().request(broker.address, ApiKey.PRODUCE, 9, produced([*range(1, 2000), 0]))

    (topic,) = answered(scenario).responses
    assert [entry.index for entry in topic.partition_responses] == [*range(1, 2000), 0]
    assert [entry.error_code for entry in topic.partition_responses] == [3] * 1999 + [0]
    assert topic.partition_responses[-1].base_offset == 0


def test_a_produce_behind_a_long_one_is_appended_behind_it() -> None:
    async def scenario(broker: Broker) -> list[int]:
        client = broker.client()
        long = await client.post(broker.address, ApiKey.PRODUCE, 9, produced([*range(1, 2000), 0]))
        short = await client.post(broker.address, ApiKey.PRODUCE, 9, produced([0]))
        assert long is not None and short is not None
        return [(await each).responses[0].partition_responses[-1].base_offset for each in (long, short)]

    assert answered(scenario) == [0, 1]


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_long_fetch_answers_each_partition_once(session_epoch: int) -> None:
    async def scenario(broker: Broker) -> Any:
        client = broker.client()
        await client.request(broker.address, ApiKey.PRODUCE, 9, produced([0]))
        fetch = codec.module(ApiKey.FETCH)
        wanted = [
            fetch.FetchPartition(partition=index % 600, fetch_offset=0, partition_max_bytes=1000)
            for index in range(6000)
        ]
        request = fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1_000_000,
            session_epoch=session_epoch,
            topics=[fetch.FetchTopic(topic=TOPIC, partitions=wanted)],
        )
        return await client.request(broker.address, ApiKey.FETCH, 12, request)

    entries = [data for topic in answered(scenario).responses for data in topic.partitions]
    assert sorted(data.partition_index for data in entries) == [*range(600)]
    assert {data.error_code for data in entries if data.partition_index} == {3}
    (found,) = (data for data in entries if not data.partition_index)
    assert (found.error_code, found.high_watermark, len(found.records) > 0) == (0, 1, True)


def test_a_long_answer_is_the_same_as_a_short_one() -> None:
    groups = codec.module(ApiKey.DESCRIBE_GROUPS)

    async def scenario(broker: Broker) -> tuple[list[Any], Any]:
        client = broker.client()
        names = [f"group-{number}" for number in range(3000)]
        long = await client.request(
            broker.address, ApiKey.DESCRIBE_GROUPS, 6, groups.DescribeGroupsRequest(groups=names)
        )
        short = [
            await client.request(broker.address, ApiKey.DESCRIBE_GROUPS, 6, groups.DescribeGroupsRequest(groups=[name]))
            for name in names[::500]
        ]
        return [response.groups[0] for response in short], long.groups

    short, long = answered(scenario)
    assert len(long) == 3000
    assert long[::500] == short


def test_names_that_are_repeated_in_a_long_request_are_answered_a_hundred_times() -> None:
    groups = codec.module(ApiKey.DESCRIBE_GROUPS)

    async def scenario(broker: Broker) -> Any:
        request = groups.DescribeGroupsRequest(groups=["g"] * 5000)
        return await broker.client().request(broker.address, ApiKey.DESCRIBE_GROUPS, 6, request)

    assert [group.group_id for group in answered(scenario).groups] == ["g"] * 100


def test_a_request_beyond_the_limit_of_elements_closes_its_connection() -> None:
    join = codec.module(ApiKey.JOIN_GROUP)

    async def scenario(broker: Broker) -> str:
        request = join.JoinGroupRequest(
            group_id="g",
            protocol_type="consumer",
            protocols=[join.JoinGroupRequestProtocol(name=f"p{number}") for number in range(1001)],
        )
        with pytest.raises(Unavailable) as closed:
            await broker.client().request(broker.address, ApiKey.JOIN_GROUP, 5, request)
        return str(closed.value)

    assert answered(scenario) == "the broker closed the connection"
