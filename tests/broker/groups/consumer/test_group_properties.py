"""Random lives of a group of the consumer protocol: KIP-848 keeps its promises whatever clients, topics and the log do.

The driver checks after every step that a partition has one owner, that no epoch falls, and that the log gives the same
group; here clients revoke slowly, vanish, come back, miss answers, and coordinators change.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.groups.consumer.group_image import Assignment, is_subset, partitions_of
from ottla_broker.protocol.errors import ErrorCode
from tests.broker.groups.consumer.group_driver import Client, GroupDriver, Topics, one_owner

SUBSCRIPTIONS: tuple[tuple[tuple[str, ...] | None, str | None], ...] = (
    (("t",), None),
    (("t", "u"), None),
    (("u",), None),
    ((), None),
    (None, "t|v.*"),
    (("u",), "v.*"),
)


@dataclass
class SlowClient(Client):
    """A consumer that may take its time to revoke: meanwhile it reports nothing."""

    wanted: Assignment | None = None
    """The assignment that it revokes for."""
    incarnation: int = 0

    def reported(self) -> Assignment | None:
        return self.owned if self.wanted is None else None


@dataclass
class Life:
    """Five clients, two of them static."""

    driver: GroupDriver
    clients: list[SlowClient] = field(
        default_factory=lambda: [
            SlowClient(f"m{number}", f"i{number}" if number >= 3 else None, ("t",)) for number in range(5)
        ]
    )

    has_lost_answers: bool = False
    """Whether the log has lost what a client has heard, as after an unclean election."""
    heard: int = 0
    """The records of the log when a client last heard an answer: an answer is given when they are committed."""

    def act(self, action: str, slot: int, variant: int) -> None:
        client, driver = self.clients[slot], self.driver
        if action == "beat":
            self.beat(client, hears_the_answer=variant % 4 != 0)
        elif action == "subscribe":
            client.names, client.regex = SUBSCRIPTIONS[variant % len(SUBSCRIPTIONS)]
            client.assignor = (None, "range", "uniform")[variant % 3]
        elif action == "revoke":
            self.finish(client)
        elif action == "leave" and client.epoch > 0:
            driver.leave(client, -2 if client.instance_id and variant % 2 else -1)
            self.vanish(client)
        elif action == "vanish":
            self.vanish(client)
        elif action == "advance":
            driver.advance((1_000, 5_000, 11_000, 46_000, 61_000)[variant % 5])
        elif action == "topic":
            self.change_topics(variant)
        elif action == "resolve":
            driver.resolve()
        elif action == "log":
            driver.writes_fail = not driver.writes_fail
        elif action == "move" and not driver.writes_fail:
            driver.restart()

    def beat(self, client: SlowClient, *, hears_the_answer: bool = True) -> None:
        if client.epoch == 0:
            client.owned, client.wanted = {}, None
        is_full = client.epoch == 0 or client.wanted is None
        answer = self.driver.heartbeat(
            client.member_id,
            client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=60_000 if is_full else -1,
            subscribed_topic_names=client.names or (() if client.regex is None else None),
            subscribed_topic_regex=client.regex or ("" if client.epoch else None),
            server_assignor=client.assignor,
            owned=client.reported(),
        )
        client.errors.append(answer.error)
        if self.driver.writes_fail or not hears_the_answer:
            return  # the client will send the same again
        self.heard = max(self.heard, len(self.driver.log))
        if answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            client.epoch, client.owned, client.wanted = 0, {}, None
        elif answer.error is ErrorCode.FENCED_INSTANCE_ID:
            self.vanish(client)
        elif answer.error is ErrorCode.NONE:
            client.epoch = answer.member_epoch
            if answer.assignment is not None:
                if is_subset(client.owned, answer.assignment):
                    client.owned, client.wanted = answer.assignment, None
                else:
                    client.wanted = answer.assignment
        self.nobody_shares()

    def finish(self, client: SlowClient) -> None:
        if client.wanted is not None:
            client.owned, client.wanted = client.wanted, None

    def vanish(self, client: SlowClient) -> None:
        """The process ends; another one starts with an id of its own."""
        client.incarnation += 1
        client.member_id = f"{client.member_id.split('.')[0]}.{client.incarnation}"
        client.epoch, client.owned, client.wanted = 0, {}, None

    def change_topics(self, variant: int) -> None:
        topics = self.driver.topics
        name = ("t", "u", "v1", "v2")[variant % 4]
        known = topics.find(name)
        if known is None:
            topics.create(name, 1 + variant % 5)
        elif variant % 3 == 0:
            topics.delete(name)
        else:
            topics.grow(name, known.partition_count + 1)

    def cut_log(self, length: int) -> None:
        """The log ends after so many records, and the next coordinator reads it."""
        if length < self.heard:
            # A client may have been given what the group does not know of: until it is gone, another one gets it too.
            self.has_lost_answers = True
        del self.driver.log[length:]
        self.driver.restart()

    def nobody_shares(self) -> None:
        """Of clients that are members of a current epoch no two have the same partition: what a client has is more than
        what the group knows of, while it revokes."""
        if self.has_lost_answers:
            return
        owned = []
        for client in self.clients:
            member = self.driver.group.image.members.get(client.member_id)
            if member is not None and client.epoch in (member.member_epoch, member.previous_member_epoch):
                owned += list(partitions_of(client.owned))
        assert len(owned) == len(set(owned)), "two consumers have the same partition"

    def converge(self, slots: list[int]) -> None:
        """The clients beat every five seconds and revoke promptly, the others are gone."""
        driver = self.driver
        driver.writes_fail = False
        for _ in range(40):
            for slot in slots:
                self.finish(self.clients[slot])
                self.beat(self.clients[slot])
            driver.resolve()
            driver.advance(5_000)
        image = driver.group.image
        assert image.state.value == "Stable"
        assert set(image.members) == {self.clients[slot].member_id for slot in slots}
        names = {name for member in image.members.values() for name in image.topics_of(member)}
        topics = [topic for name in names if (topic := driver.topics.find(name)) is not None]
        every = sorted((topic.topic_id, number) for topic in topics for number in range(topic.partition_count))
        owned = sorted(partition for slot in slots for partition in partitions_of(self.clients[slot].owned))
        assert owned == every, "a partition of a subscribed topic has no consumer, or two"


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["beat"] * 8
            + ["advance", "revoke"]
            + [
                "subscribe",
                "revoke",
                "revoke",
                "leave",
                "vanish",
                "advance",
                "advance",
                "topic",
                "resolve",
                "log",
                "move",
            ]
        ),
        st.integers(0, 4),
        st.integers(0, 11),
    ),
    min_size=30,
    max_size=90,
)
SURVIVORS = st.lists(st.integers(0, 4), min_size=1, unique=True)


@settings(max_examples=60, deadline=None)
@given(ACTIONS, SURVIVORS)
def test_members_that_keep_beating_end_with_every_partition_exactly_once(
    actions: list[tuple[str, int, int]], survivors: list[int]
) -> None:
    life = Life(GroupDriver(Topics(t=5, u=3)))
    for action in actions:
        life.act(*action)
    life.converge(survivors)


@settings(max_examples=25, deadline=None)
@given(ACTIONS, st.integers(0, 10_000), SURVIVORS)
def test_a_log_that_ends_after_any_batch_gives_a_group_that_converges(
    actions: list[tuple[str, int, int]], cut: int, survivors: list[int]
) -> None:
    life = Life(GroupDriver(Topics(t=5, u=3)))
    for action in actions:
        life.act(*action)
    driver = life.driver
    driver.writes_fail = False
    for length in driver.batches:
        one_owner(driver.replayed(length))
    life.cut_log(driver.batches[cut % len(driver.batches)] if driver.batches else 0)
    life.converge(survivors)


@settings(max_examples=25, deadline=None)
@given(ACTIONS, st.data())
def test_a_log_that_is_compacted_gives_the_same_group(actions: list[tuple[str, int, int]], data: st.DataObject) -> None:
    life = Life(GroupDriver(Topics(t=5, u=3)))
    for action in actions:
        if action[0] != "log":
            life.act(*action)
    driver = life.driver
    last = {record.key: index for index, record in enumerate(driver.log)}
    before = driver.replayed()
    keep = data.draw(st.lists(st.booleans(), min_size=len(driver.log), max_size=len(driver.log)))
    driver.log = [record for index, record in enumerate(driver.log) if keep[index] or last[record.key] == index]
    assert driver.replayed() == before
