"""A partition's log gives back the groups that wrote it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.groups.decisions import GroupSnapshot, LeavingMember
from ottla_broker.groups.offsets import CommittedOffset, ExpiryRule, GroupOffsets
from ottla_broker.groups.records import offset_record, offset_tombstone
from ottla_broker.groups.replay import Replay
from ottla_broker.internal_topics.topic_log import LoadedBatch, StateRecord
from ottla_broker.ports.clock import Clock
from ottla_broker.records import record
from ottla_broker.records.batch import read_header
from ottla_broker.records.control_records import ControlType, EndTransactionMarker, build_marker
from ottla_broker.records.ids import TopicPartition
from ottla_broker.records.record import build_records, decode_records
from tests.broker.groups.surroundings import Broker, in_virtual_time

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base_offset: int, *records: StateRecord, producer_id: int = -1) -> LoadedBatch:
    return LoadedBatch(base_offset, build_records(records, 0, base_offset), producer_id, producer_id >= 0)


def marker(base_offset: int, producer_id: int, kind: ControlType) -> LoadedBatch:
    encoded = build_marker(EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=0)
    header = read_header(encoded)
    return LoadedBatch(base_offset, decode_records(encoded), header.producer_id, True, header.is_control)


def commit(value: int) -> CommittedOffset:
    return CommittedOffset(value, -1, "", 0)


def replayed(*batches: LoadedBatch) -> dict[str, GroupOffsets]:
    replay = Replay()
    for each in batches:
        replay.add(each)
    return {group.group_id: group.offsets for group in replay.groups()}


def offsets_of(offsets: GroupOffsets) -> dict[TopicPartition, int]:
    return {partition: stored.committed.offset for partition, stored in offsets.stored.items()}


def test_the_last_record_of_a_key_counts_and_tombstones_remove() -> None:
    groups = replayed(
        batch(0, offset_record("g", T0, commit(1)), offset_record("g", T1, commit(1))),
        batch(2, offset_record("g", T0, commit(5)), offset_record("gone", T0, commit(1))),
        batch(4, offset_tombstone("g", T1), offset_tombstone("gone", T0)),
    )
    assert {group: offsets_of(offsets) for group, offsets in groups.items()} == {"g": {T0: 5}}


def test_transactional_offsets_count_when_their_producer_commits() -> None:
    groups = replayed(
        batch(0, offset_record("committed", T0, commit(1)), producer_id=7),
        batch(1, offset_record("aborted", T0, commit(2)), producer_id=8),
        batch(2, offset_record("open", T0, commit(3)), producer_id=9),
        marker(3, 7, ControlType.COMMIT),
        marker(4, 8, ControlType.ABORT),
    )
    assert offsets_of(groups["committed"]) == {T0: 1}
    assert "aborted" not in groups
    assert offsets_of(groups["open"]) == {}
    assert groups["open"].is_unstable(T0)
    groups["open"].end_transaction(9, 5, is_commit=True)
    assert offsets_of(groups["open"]) == {T0: 3}


def test_a_transaction_that_ends_late_does_not_undo_a_newer_commit() -> None:
    groups = replayed(
        batch(0, offset_record("g", T0, commit(1)), producer_id=7),
        batch(1, offset_record("g", T0, commit(9))),
        marker(2, 7, ControlType.COMMIT),
    )
    assert offsets_of(groups["g"]) == {T0: 9}


def test_an_offset_that_is_due_to_expire_stays_while_a_transaction_is_to_replace_it() -> None:
    """With it the transaction's own would go, and its marker find nothing."""
    offsets = replayed(
        batch(0, offset_record("g", T0, commit(1)), offset_record("g", T1, commit(1))),
        batch(2, offset_record("g", T0, commit(9)), producer_id=7),
    )["g"]
    assert offsets.remove(offsets.expired(ExpiryRule(), 100, 10)) == [T1]
    offsets.end_transaction(7, 5, is_commit=True)
    assert offsets_of(offsets) == {T0: 9}


def test_records_that_are_not_ours_are_skipped() -> None:
    groups = replayed(
        LoadedBatch(
            0,
            [
                record.Record(0, 0, None, b"no key"),
                record.Record(1, 0, b"", b""),
                record.Record(2, 0, b"\x00\x0bunknown kind", b""),
                record.Record(3, 0, b"\x00\x01\x00\x05cut", b""),
                record.Record(4, 0, offset_record("g", T1, commit(1)).key, b"\x00\x63unknown version"),
            ],
        ),
        batch(5, offset_record("g", T0, commit(4))),
    )
    assert offsets_of(groups["g"]) == {T0: 4}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "join", "leave", "delete", "drop topic", "simple", "wait"]),
        st.integers(0, 3),
        st.integers(0, 1_000),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_whatever_happened_the_next_coordinator_has_the_same_groups(steps: list[tuple[str, int, int]]) -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, group__initial__rebalance__delay__ms=0)
        await broker.loaded()
        coordinator = broker.coordinator
        members: dict[str, list[str]] = {}
        for step, number, value in steps:
            group, partition = f"g{number % 2}", TopicPartition(f"t{number}", value % 2)
            what = {partition: commit(value)}
            if step == "join" and not members.get(group):
                members[group] = await broker.stable_group(group, 1 + value % 3)
            elif step == "leave" and members.get(group):
                await coordinator.leave(group, [LeavingMember(member) for member in members.pop(group)])
            elif step == "commit":
                joined = members.get(group)
                task = coordinator.commit(group, joined[0] if joined else "", None, generation(broker, group), what)
                clock.spawn(task, name="commit")
            elif step == "simple":
                await coordinator.commit(f"simple{number}", "", None, -1, what)
            elif step == "delete":
                clock.spawn(coordinator.delete(group), name="delete")
            elif step == "drop topic":
                coordinator.on_partitions_deleted([partition])
            else:
                await clock.sleep(0.003)
        await clock.sleep(1.0)
        for member_ids, group in ((member_ids, group) for group, member_ids in members.items()):
            for member_id in member_ids:
                coordinator.heartbeat(group, member_id, None, generation(broker, group))
        successor = Broker(clock, broker.log, epoch=1)
        await successor.loaded()
        assert state(successor) == state(broker)

    in_virtual_time(scenario)


def generation(broker: Broker, group_id: str) -> int:
    snapshot = broker.coordinator.describe(group_id).snapshot
    return snapshot.generation_id if snapshot is not None and snapshot.members else -1


def state(broker: Broker) -> dict[str, tuple[GroupSnapshot, dict[TopicPartition, CommittedOffset]]]:
    """Groups that have left something in the log."""
    found = {}
    for group_id in sorted(overview.group_id for overview in broker.coordinator.list()[1]):
        snapshot = broker.coordinator.describe(group_id).snapshot
        assert snapshot is not None
        _, offsets = broker.coordinator.fetch(group_id, None, require_stable=True)
        committed = {each.partition: each.committed for each in offsets if each.committed is not None}
        if snapshot.generation_id > 0 or committed:
            found[group_id] = (replace(snapshot, current_state_timestamp_ms=-1), committed)
    return found


def test_loading_ends_when_the_broker_stops_leading() -> None:
    async def scenario(clock: Clock) -> None:
        broker = Broker(clock, partitions=1)
        await broker.loaded()
        for number in range(500):
            await broker.coordinator.commit("g", "", None, -1, {T0: commit(number)})
        successor = Broker(clock, broker.log, partitions=1, epoch=1)
        await asyncio.sleep(0)
        successor.coordinator.partitions.on_resignation(0, 2)
        await clock.sleep(1.0)
        assert list(successor.coordinator.list()[1]) == []

    in_virtual_time(scenario)
