"""A group with members of both protocols under random lives: KIP-848 keeps its promises during an online migration."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.groups.consumer import classic_members
from ottla_broker.groups.consumer.consumer_protocol_bytes import read_assignment
from ottla_broker.groups.consumer.group_image import Assignment, is_subset, partitions_of
from ottla_broker.groups.decisions import LeavingMember, SyncRequest
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import consumer_protocol
from tests.broker.groups.consumer.group_driver import Client, GroupDriver, Topics
from tests.broker.groups.driver import join_request


@dataclass
class ClassicClient:
    """A consumer with the cooperative assignor: it revokes what it must and joins again with the rest."""

    new_id: str
    member_id: str = ""
    generation: int = -1
    owned: Assignment = field(default_factory=dict)
    is_joined: bool = False

    def step(self, driver: GroupDriver) -> None:
        """One request, the one that the consumer would send next."""
        before = driver.group.image
        if not self.is_joined:
            self.join(driver)
        elif self.generation >= 0:
            error = classic_members.heartbeat(driver.group, self.member_id, None, self.generation)
            self.heard(error)
        driver.carry_out(before)

    def join(self, driver: GroupDriver) -> None:
        request = join_request(
            self.member_id,
            new_member_id=self.new_id,
            protocols=(("cooperative-sticky", self.subscription(driver)),),
            session_timeout_ms=45_000,
        )
        answer = classic_members.join(driver.group, request, driver.topics)
        if answer.error is not ErrorCode.NONE:
            self.heard(answer.error)
            return
        self.member_id, self.generation, self.is_joined = answer.member_id, answer.generation_id, True
        sync = SyncRequest(self.generation, self.member_id, None, "consumer", "cooperative-sticky", {})
        synced = classic_members.sync(driver.group, sync, driver.topics)
        self.heard(synced.error)
        if synced.error is ErrorCode.NONE:
            assigned = read_assignment(synced.assignment, driver.topics)
            must_join = not is_subset(self.owned, assigned)
            self.owned = assigned
            self.is_joined = not must_join

    def heard(self, error: ErrorCode) -> None:
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.is_joined = False
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.member_id, self.generation, self.owned, self.is_joined = "", -1, {}, False

    def leave(self, driver: GroupDriver) -> None:
        before = driver.group.image
        classic_members.leave(driver.group, [LeavingMember(self.member_id)], driver.topics)
        driver.carry_out(before)
        self.heard(ErrorCode.UNKNOWN_MEMBER_ID)

    def subscription(self, driver: GroupDriver) -> bytes:
        owned: dict[str, list[int]] = {}
        for topic_id, partition in partitions_of(self.owned):
            owned.setdefault(driver.topics.name_of(topic_id) or "", []).append(partition)
        value = consumer_protocol.ConsumerProtocolSubscription(
            topics=["t"],
            user_data=None,
            owned_partitions=[
                consumer_protocol.TopicPartition(topic=name, partitions=partitions)
                for name, partitions in owned.items()
            ],
        )
        written = consumer_protocol.write_consumer_protocol_subscription(1, value)
        return b"\x00\x01" + b"".join(written)  # type: ignore[arg-type]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["step"] * 8 + ["leave", "advance", "grow", "move"]), st.integers(0, 4), st.integers(0, 3)
    ),
    min_size=30,
    max_size=90,
)


@settings(max_examples=40, deadline=None)
@given(ACTIONS, st.sets(st.integers(0, 4), min_size=1))
def test_members_of_both_protocols_end_with_every_partition_exactly_once(
    actions: list[tuple[str, int, int]], survivors: set[int]
) -> None:
    driver = GroupDriver(Topics(t=7))
    classic = [ClassicClient(f"c{number}") for number in range(3)]
    consumers = [Client(f"m{number}", names=("t",)) for number in range(2)]

    def step(slot: int) -> None:
        if slot < len(classic):
            classic[slot].step(driver)
        else:
            driver.beat(consumers[slot - len(classic)])

    for action, slot, variant in actions:
        if action == "step":
            step(slot)
        elif action == "leave" and slot < len(classic) and classic[slot].member_id:
            classic[slot].leave(driver)
        elif action == "leave" and slot >= len(classic) and consumers[slot - len(classic)].epoch > 0:
            driver.leave(consumers[slot - len(classic)])
        elif action == "advance":
            driver.advance((1_000, 5_000, 46_000, 61_000)[variant])
        elif action == "grow":
            known = driver.topics.find("t")
            assert known is not None
            driver.topics.grow("t", known.partition_count + 1)
        elif action == "move":
            driver.restart()
    for _ in range(40):
        for slot in sorted(survivors):
            step(slot)
        driver.advance(5_000)
    owned: list[tuple[bytes, int]] = []
    for slot in survivors:
        client = classic[slot] if slot < len(classic) else consumers[slot - len(classic)]
        owned += partitions_of(client.owned)
    topic = driver.topics.find("t")
    assert topic is not None
    assert sorted(owned) == [(topic.topic_id, number) for number in range(topic.partition_count)]
    assert driver.group.state.value == "Stable"
