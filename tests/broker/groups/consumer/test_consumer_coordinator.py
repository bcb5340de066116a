"""Groups of the consumer protocol on a coordinator with an in-memory log: storing, loading, offsets, conversions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla_broker.exposition import Exposition
from ottla_broker.groups.consumer.consumer_protocol_bytes import read_assignment
from ottla_broker.groups.consumer.group_image import Assignment, partitions_of
from ottla_broker.groups.consumer.group_requests import GroupHeartbeat, HeartbeatAnswer
from ottla_broker.groups.decisions import JoinAnswer, LeavingMember
from ottla_broker.groups.offsets import CommittedOffset
from ottla_broker.internal_topics.partitioning import partition_for
from ottla_broker.ports.clock import Clock
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import consumer_protocol
from ottla_broker.records.ids import TopicPartition
from tests.broker.groups.consumer.group_driver import Topics
from tests.broker.groups.surroundings import Broker, in_virtual_time

NONE = ErrorCode.NONE
T0 = TopicPartition("t", 0)
BIDIRECTIONAL = {"group__consumer__migration__policy": "bidirectional", "group__initial__rebalance__delay__ms": 0}


def numbers(assignment: Assignment | None) -> list[int] | None:
    return None if assignment is None else [partition for _, partition in partitions_of(assignment)]


def owns(*partitions: int) -> Assignment:
    return {(1).to_bytes(16): frozenset(partitions)} if partitions else {}


async def beat(broker: Broker, member_id: str, epoch: int, group_id: str = "g", **fields: Any) -> HeartbeatAnswer:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 60_000, "owned": {}, "subscribed_topic_names": ("t",)} | fields
    request = GroupHeartbeat(member_id, epoch, client_id="app", client_host="/127.0.0.1", **fields)
    return await broker.coordinator.consumer_heartbeat(group_id, request, 1)


def committed(broker: Broker, group_id: str = "g", **member: Any) -> tuple[ErrorCode, list[int]]:
    error, found = broker.coordinator.fetch(group_id, [T0], require_stable=False, **member)
    return error, [-1 if each.committed is None else each.committed.offset for each in found]


async def commit(broker: Broker, member_id: str, epoch: int, offset: int = 7, version: int = 9) -> ErrorCode:
    commits = {T0: CommittedOffset(offset, -1, "", broker.clock.now_ms())}
    answers = await broker.coordinator.commit("g", member_id, None, epoch, commits, version)
    return answers[T0]


def described(broker: Broker) -> tuple[str, str, list[str]]:
    """Type, state and members of the group g."""
    overview = next((each for each in broker.coordinator.list()[1] if each.group_id == "g"), None)
    if overview is None:
        return "", "", []
    if overview.group_type == "classic":
        snapshot = broker.coordinator.describe("g").snapshot
        assert snapshot is not None
        return "classic", overview.state, [member.member_id for member in snapshot.members]
    image = broker.coordinator.describe_consumer_group("g").image
    assert image is not None
    return "consumer", overview.state, list(image.members)


# Storing and loading


def test_a_heartbeat_is_answered_when_the_log_has_what_it_changed() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        broker.log.delay_s = 1.0
        joins = clock.spawn(beat(broker, "a", 0), name="heartbeat")
        await clock.sleep(0.9)
        assert not joins.done()
        await clock.sleep(0.2)
        assert numbers((await joins).assignment) == [0, 1, 2, 3]

    in_virtual_time(scenario)


def test_a_heartbeat_that_changes_nothing_waits_for_what_was_changed_before() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        broker.log.delay_s = 1.0
        first = clock.spawn(beat(broker, "a", 0), name="heartbeat")
        await clock.sleep(0.1)
        second = clock.spawn(beat(broker, "a", 1), name="heartbeat")
        await clock.sleep(0.1)
        assert not second.done()
        await asyncio.gather(first, second)

    in_virtual_time(scenario)


def test_another_broker_goes_on_with_what_the_log_says() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        await beat(broker, "a", 0)
        await beat(broker, "b", 0)
        assert numbers((await beat(broker, "a", 1)).assignment) == [0, 1]
        assert await commit(broker, "a", 1) is NONE
        before = described(broker)

        second = Broker(clock, broker.log, epoch=1)
        loading = await beat(second, "a", 1)
        assert loading.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await second.loaded()
        assert described(second) == before == ("consumer", "Reconciling", ["a", "b"])
        assert committed(second, member_id="a", member_epoch=1) == (NONE, [7])
        assert (await beat(second, "a", 1, owned=owns(0, 1))).member_epoch == 2
        assert numbers((await beat(second, "b", 2)).assignment) == [2, 3]
        fenced = await beat(broker, "a", 1, owned=owns(0, 1))
        assert fenced.error is ErrorCode.NOT_COORDINATOR, "the first broker does not lead the partition any more"

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("append_error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_could_not_be_stored_is_stored_with_the_next_change(append_error: ErrorCode, answer: ErrorCode) -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        broker.log.error = append_error
        assert (await beat(broker, "a", 0)).error is answer
        broker.log.error = NONE
        again = await beat(broker, "a", 0)
        assert (again.error, numbers(again.assignment)) == (NONE, [0, 1, 2, 3])
        second = Broker(clock, broker.log, epoch=1)
        await second.loaded()
        assert described(second) == ("consumer", "Stable", ["a"])

    in_virtual_time(scenario)


def test_a_member_whose_session_ends_is_removed_also_in_the_log() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        await beat(broker, "a", 0)
        await clock.sleep(46)
        assert described(broker) == ("consumer", "Empty", [])
        second = Broker(clock, broker.log, epoch=1)
        await second.loaded()
        assert described(second) == ("consumer", "Empty", [])

    in_virtual_time(scenario)


def test_a_large_group_is_stored_in_several_batches() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, topics=Topics(t=3_000))
        await broker.loaded()
        names = [f"{number:03d}{'x' * 900}" for number in range(300)]
        for name in names:
            assert (await beat(broker, name, 0)).error is NONE
        sizes = [len(batch) for batch in broker.log.batches[partition_for("g", 4)]]
        assert max(sizes) < 600_000
        second = Broker(clock, broker.log, epoch=1, topics=broker.topics)
        await second.loaded()
        assert described(second)[2] == names

    in_virtual_time(scenario)


def test_expressions_are_resolved_and_assigned_with_the_next_heartbeat() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, topics=Topics(t=2, u=1))
        await broker.loaded()
        joined = await beat(broker, "a", 0, subscribed_topic_names=None, subscribed_topic_regex="t|x.*")
        assert numbers(joined.assignment) == []
        await clock.sleep(0.1)
        assert numbers((await beat(broker, "a", 1)).assignment) == [0, 1]
        second = Broker(clock, broker.log, epoch=1, topics=broker.topics)
        await second.loaded()
        image = second.coordinator.describe_consumer_group("g").image
        assert image is not None
        assert image.expressions["t|x.*"].topics == ("t",)

    in_virtual_time(scenario)


# Offsets and administration


def test_offsets_are_fenced_by_the_member_epoch() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        await beat(broker, "a", 0)
        assert await commit(broker, "a", 0) is ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(broker, "a", 1, version=8) is ErrorCode.UNSUPPORTED_VERSION
        assert await commit(broker, "x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(broker, "a", 1) is NONE
        assert committed(broker) == (NONE, [7])
        assert committed(broker, member_id="a", member_epoch=0) == (ErrorCode.STALE_MEMBER_EPOCH, [])
        assert committed(broker, member_id="x", member_epoch=1) == (ErrorCode.UNKNOWN_MEMBER_ID, [])

    in_virtual_time(scenario)


def test_offsets_of_subscribed_topics_are_not_deleted_and_groups_with_members_neither() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        await beat(broker, "a", 0)
        await commit(broker, "a", 1)
        subscribed = (NONE, {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})
        assert await broker.coordinator.delete_offsets("g", [T0]) == subscribed
        assert await broker.coordinator.delete("g") is ErrorCode.NON_EMPTY_GROUP
        await beat(broker, "a", -1)
        assert await broker.coordinator.delete_offsets("g", [T0]) == (NONE, {T0: NONE})
        second = Broker(clock, broker.log, epoch=1)
        await second.loaded()
        assert committed(second) == (NONE, [-1])

    in_virtual_time(scenario)


def test_a_deleted_group_leaves_nothing_in_the_log() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        await beat(broker, "a", 0)
        await commit(broker, "a", 1)
        await beat(broker, "a", -1)
        assert await broker.coordinator.delete("g") is NONE
        assert described(broker) == ("", "", [])
        assert (await beat(broker, "a", 1)).error is ErrorCode.GROUP_ID_NOT_FOUND
        second = Broker(clock, broker.log, epoch=1)
        await second.loaded()
        assert (described(second), committed(second)) == (("", "", []), (NONE, [-1]))

    in_virtual_time(scenario)


def test_offsets_expire_by_their_age_unless_a_member_subscribes_to_the_topic() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, offsets__retention__minutes=1)
        await broker.loaded()
        await beat(broker, "a", 0)
        await commit(broker, "a", 1)
        for _ in range(10):
            await clock.sleep(10)
            await beat(broker, "a", 1)
        await broker.coordinator.expire_offsets()
        assert committed(broker) == (NONE, [7])
        await beat(broker, "a", -1)
        await broker.coordinator.expire_offsets()
        assert committed(broker) == (NONE, [-1])
        assert described(broker) == ("", "", []), "a group without members and offsets ends"

    in_virtual_time(scenario)


def test_a_group_of_the_other_kind_is_not_found() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, group__initial__rebalance__delay__ms=0)
        await broker.loaded()
        await broker.stable_group("classic", 1)
        await beat(broker, "a", 0)
        found = broker.coordinator.describe_consumer_group("classic")
        assert (found.error, found.message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group classic is not a consumer group.",
        )
        assert broker.coordinator.describe_consumer_group("none").error is ErrorCode.GROUP_ID_NOT_FOUND
        assert broker.coordinator.describe("g").state == "Dead"
        overviews = {each.group_id: (each.group_type, each.protocol_type) for each in broker.coordinator.list()[1]}
        assert overviews == {"classic": ("classic", "consumer"), "g": ("consumer", "consumer")}
        answer = await beat(broker, "b", 0, "classic")
        assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "online upgrade is disabled" in (answer.message or "")

    in_virtual_time(scenario)


def test_a_closed_coordinator_answers_so() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        await beat(broker, "a", 0)
        broker.coordinator.close()
        assert (await beat(broker, "a", 1)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await clock.sleep(100)

    in_virtual_time(scenario)


# Conversions


def subscription(*topics: str, owned: tuple[int, ...] = ()) -> bytes:
    value = consumer_protocol.ConsumerProtocolSubscription(
        topics=list(topics),
        user_data=None,
        owned_partitions=[consumer_protocol.TopicPartition(topic="t", partitions=list(owned))] if owned else [],
    )
    return b"\x00\x01" + b"".join(consumer_protocol.write_consumer_protocol_subscription(1, value))  # type: ignore[arg-type]


def assignment(*partitions: int) -> bytes:
    topic = consumer_protocol.ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=list(partitions))
    value = consumer_protocol.ConsumerProtocolAssignment(
        assigned_partitions=[topic] if partitions else [], user_data=None
    )
    return b"\x00\x01" + b"".join(consumer_protocol.write_consumer_protocol_assignment(1, value))  # type: ignore[arg-type]


async def classic_join(
    broker: Broker, member_id: str = "", *, owned: tuple[int, ...] = (), **fields: Any
) -> JoinAnswer:
    protocols = (("cooperative-sticky", subscription("t", owned=owned)),)
    return await broker.join("g", member_id, protocols=protocols, **fields)


async def classic_sync(broker: Broker, member_id: str, generation: int) -> tuple[ErrorCode, list[int] | None]:
    answer = await broker.sync("g", member_id, generation)
    if answer.error is not NONE:
        return answer.error, None
    return answer.error, numbers(read_assignment(answer.assignment, broker.topics))


async def classic_member(broker: Broker, **fields: Any) -> str:
    """A classic group of one member that has every partition."""
    joined = await classic_join(broker, **fields)
    synced = await broker.sync("g", joined.member_id, joined.generation_id, {joined.member_id: assignment(0, 1, 2, 3)})
    assert synced.error is NONE
    return joined.member_id


def test_an_empty_group_takes_the_protocol_of_whoever_joins_and_keeps_its_offsets() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, group__initial__rebalance__delay__ms=0)
        await broker.loaded()
        member = await classic_member(broker)
        await commit(broker, member, 1)
        await broker.coordinator.leave("g", [LeavingMember(member)])
        assert (await beat(broker, "a", 0)).error is NONE
        assert (described(broker), committed(broker)) == (("consumer", "Stable", ["a"]), (NONE, [7]))
        await beat(broker, "a", -1)
        back = await classic_member(broker)
        assert (described(broker), committed(broker)) == (("classic", "Stable", [back]), (NONE, [7]))
        second = Broker(clock, broker.log, epoch=1)
        await second.loaded()
        assert (described(second), committed(second)) == (("classic", "Stable", [back]), (NONE, [7]))

    in_virtual_time(scenario)


def test_a_classic_group_is_converted_online_when_a_member_of_the_consumer_protocol_joins() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, **BIDIRECTIONAL)
        await broker.loaded()
        member = await classic_member(broker)
        joined = await beat(broker, "new", 0)
        assert (joined.member_epoch, numbers(joined.assignment)) == (2, [])
        assert described(broker) == ("consumer", "Reconciling", [member, "new"])

        assert broker.coordinator.heartbeat("g", member, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        rejoined = await classic_join(broker, member, owned=(0, 1, 2, 3))
        assert (rejoined.error, rejoined.generation_id, rejoined.leader) == (NONE, 1, "")
        assert await classic_sync(broker, member, 1) == (NONE, [0, 1])
        assert broker.coordinator.heartbeat("g", member, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        revoked = await classic_join(broker, member, owned=(0, 1))
        assert revoked.generation_id == 2
        assert await classic_sync(broker, member, 2) == (NONE, [0, 1])
        assert broker.coordinator.heartbeat("g", member, None, 2) is NONE
        assert numbers((await beat(broker, "new", 2)).assignment) == [2, 3]
        assert await commit(broker, member, 1, version=8) is ErrorCode.ILLEGAL_GENERATION
        assert await commit(broker, member, 2, version=8) is NONE

        second = Broker(clock, broker.log, epoch=1, **BIDIRECTIONAL)
        await second.loaded()
        assert described(second) == ("consumer", "Stable", [member, "new"])
        assert second.coordinator.heartbeat("g", member, None, 2) is NONE

        await second.coordinator.leave("g", [LeavingMember(member)])
        assert numbers((await beat(second, "new", 2, owned=owns(2, 3))).assignment) == [0, 1, 2, 3]

    in_virtual_time(scenario)


def test_members_of_a_rebalance_under_way_join_again_after_the_conversion() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, **BIDIRECTIONAL)
        await broker.loaded()
        joined = await classic_join(broker)
        waits = broker.sync("g", joined.member_id, 1)
        await clock.sleep(0)
        other = clock.spawn(classic_join(broker), name="join")
        await clock.sleep(0.01)
        await beat(broker, "new", 0)
        assert (await waits).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await other).error is ErrorCode.REBALANCE_IN_PROGRESS

    in_virtual_time(scenario)


def test_a_group_becomes_classic_when_the_last_member_of_the_consumer_protocol_leaves() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, **BIDIRECTIONAL)
        await broker.loaded()
        await beat(broker, "new", 0)
        joined = await classic_join(broker, new_member_id="old")
        assert (joined.error, joined.generation_id, joined.protocol_name) == (NONE, 2, "cooperative-sticky")
        assert await classic_sync(broker, "old", 2) == (NONE, [])
        left = await beat(broker, "new", -1)
        assert (left.error, left.member_epoch) == (NONE, -1)
        assert described(broker) == ("classic", "PreparingRebalance", ["old"])
        assert broker.coordinator.heartbeat("g", "old", None, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        rejoined = await classic_join(broker, "old")
        assert (rejoined.generation_id, rejoined.leader) == (3, "old")
        synced = await broker.sync("g", "old", 3, {"old": assignment(0, 1, 2, 3)})
        assert synced.error is NONE
        second = Broker(clock, broker.log, epoch=1, **BIDIRECTIONAL)
        await second.loaded()
        assert described(second) == ("classic", "Stable", ["old"])

    in_virtual_time(scenario)


def test_a_group_that_has_become_classic_rebalances_on_the_next_coordinator_too() -> None:
    """The partitions of the member that left are nobody's until then."""

    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, **BIDIRECTIONAL)
        await broker.loaded()
        await beat(broker, "new", 0)
        await classic_join(broker, new_member_id="old")
        await classic_sync(broker, "old", 2)
        await beat(broker, "new", -1)

        second = Broker(clock, broker.log, epoch=1, **BIDIRECTIONAL)
        await second.loaded()
        assert described(second) == ("classic", "PreparingRebalance", ["old"])
        assert second.coordinator.heartbeat("g", "old", None, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        rejoined = await classic_join(second, "old")
        assert (rejoined.generation_id, rejoined.leader) == (3, "old")
        assert (await second.sync("g", "old", 3, {"old": assignment(0, 1, 2, 3)})).error is NONE

        third = Broker(clock, broker.log, epoch=2, **BIDIRECTIONAL)
        await third.loaded()
        assert described(third) == ("classic", "Stable", ["old"])
        assert third.coordinator.heartbeat("g", "old", None, 3) is NONE

    in_virtual_time(scenario)


def test_a_conversion_that_could_not_be_stored_is_stored_with_the_next_generation() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, **BIDIRECTIONAL)
        await broker.loaded()
        await beat(broker, "new", 0)
        await classic_join(broker, new_member_id="old")
        broker.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await beat(broker, "new", -1)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.log.error = NONE
        rejoined = await classic_join(broker, "old")
        await broker.sync("g", "old", rejoined.generation_id, {"old": assignment(0)})
        second = Broker(clock, broker.log, epoch=1, **BIDIRECTIONAL)
        await second.loaded()
        assert described(second) == ("classic", "Stable", ["old"])

    in_virtual_time(scenario)


def test_without_the_policy_a_group_keeps_its_kind() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, group__consumer__migration__policy="upgrade", group__initial__rebalance__delay__ms=0)
        await broker.loaded()
        await beat(broker, "new", 0)
        await classic_join(broker, new_member_id="old")
        await beat(broker, "new", -1)
        assert described(broker) == ("consumer", "Assigning", ["old"])

    in_virtual_time(scenario)


def test_a_group_with_a_custom_assignor_is_not_converted() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, **BIDIRECTIONAL)
        await broker.loaded()
        joined = await classic_join(broker)
        with_user_data = assignment(0)[:-4] + b"\x00\x00\x00\x04data"
        await broker.sync("g", joined.member_id, 1, {joined.member_id: with_user_data})
        answer = await beat(broker, "new", 0)
        assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "user data of a custom assignor" in (answer.message or "")
        assert described(broker) == ("classic", "Stable", [joined.member_id])

    in_virtual_time(scenario)


def test_a_heartbeat_that_is_refused_converts_nothing() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, **BIDIRECTIONAL)
        await broker.loaded()
        member = await classic_member(broker)
        answer = await beat(broker, "new", 0, subscribed_topic_regex="(?=x)")
        assert answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert described(broker) == ("classic", "Stable", [member])
        assert broker.coordinator.heartbeat("g", member, None, 1) is NONE

    in_virtual_time(scenario)


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, **BIDIRECTIONAL)
        await broker.loaded()
        old = await classic_member(broker, group_instance_id="i")
        joined = await beat(broker, "new", 0, instance_id="i")
        assert (joined.error, numbers(joined.assignment)) == (NONE, [0, 1, 2, 3])
        assert described(broker) == ("consumer", "Stable", ["new"])
        assert broker.coordinator.heartbeat("g", old, "i", 1) is ErrorCode.FENCED_INSTANCE_ID
        back = await classic_join(broker, group_instance_id="i", new_member_id="back")
        assert back.error is NONE
        assert described(broker)[0::2] == ("classic", ["back"])

    in_virtual_time(scenario)


def test_a_classic_member_that_does_not_come_back_from_a_rebalance_is_removed() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, **BIDIRECTIONAL)
        await broker.loaded()
        member = await classic_member(broker, session_timeout_ms=10_000, rebalance_timeout_ms=20_000)
        await beat(broker, "new", 0)
        for _ in range(5):
            assert broker.coordinator.heartbeat("g", member, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
            await beat(broker, "new", 2)
            await clock.sleep(4.1)
        assert described(broker)[2] == ["new"]

    in_virtual_time(scenario)


def test_metrics_follow_the_groups() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock)
        await broker.loaded()
        await beat(broker, "a", 0)
        text = Exposition(broker.metrics).text().decode()
        lines = [
            "kafka_server_group_coordinator_metrics_consumer_group_count_stable 1.0",
            "kafka_coordinator_group_groupmetadatamanager_numgroups 1.0",
            "kafka_coordinator_group_groupmetadatamanager_numgroupsstable 0.0",
            "kafka_server_group_coordinator_metrics_consumer_group_rebalance_total 1.0",
        ]
        assert [line for line in lines if line not in text.splitlines()] == []

    in_virtual_time(scenario)
