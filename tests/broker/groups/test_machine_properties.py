"""Random lives of a group: whatever members, timers and writes do, the promises of the machine hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.groups.decisions import LeavingMember
from ottla_broker.groups.states import GroupState
from ottla_broker.protocol.errors import ErrorCode
from tests.broker.groups.driver import Driver

PROTOCOLS = (
    (("range", b"r"),),
    (("range", b"r"), ("sticky", b"s")),
    (("sticky", b"s"), ("range", b"r")),
    (("range", b"changed"),),
)


@dataclass
class Client:
    """What a client library remembers."""

    instance: str | None
    protocols: tuple[tuple[str, bytes], ...] = PROTOCOLS[0]
    member_id: str = ""
    generation: int = -1
    join_ticket: int | None = None
    sync_ticket: int | None = None
    is_leader: bool = False
    members: list[str] = field(default_factory=list)


class World:
    def __init__(self, **config: int) -> None:
        self.driver = Driver(None, **config)
        self.clients = [Client(None), Client(None), Client(None), Client("static-1"), Client("static-2")]

    def act(self, action: str, slot: int, variant: int) -> None:
        client, driver = self.clients[slot], self.driver
        if action == "join" and client.join_ticket is None:
            client.protocols = PROTOCOLS[variant % len(PROTOCOLS)]
            client.join_ticket = driver.join(
                client.member_id,
                group_instance_id=client.instance,
                protocols=client.protocols,
                requires_known_member_id=client.instance is None and variant % 2 == 0,
                supports_skipping_assignment=variant % 3 == 0,
                session_timeout_ms=(6_000, 10_000)[variant % 2],
                rebalance_timeout_ms=(5_000, 60_000)[variant % 2],
            )
        elif action == "retry" and client.join_ticket is not None:
            # The connection broke: the client asks again and nobody hears the first answer.
            client.join_ticket = None
            self.act("join", slot, variant)
        elif action == "sync" and client.generation >= 0 and client.sync_ticket is None:
            assignments = {m: f"{client.generation}/{m}/{variant}".encode() for m in client.members[variant % 2 :]}
            client.sync_ticket = driver.sync(
                client.member_id, client.generation, assignments, group_instance_id=client.instance
            )
        elif action == "heartbeat" and client.generation >= 0:
            error = driver.heartbeat(client.member_id, client.generation, client.instance)
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
                client.generation = -1
                client.member_id = ""
        elif action == "leave" and client.member_id:
            driver.leave(LeavingMember(client.member_id if variant % 2 else "", client.instance))
            self.restart(slot)
        elif action == "restart":
            self.restart(slot)
        elif action == "advance":
            driver.advance((100, 1_000, 3_000, 7_000, 61_000)[variant % 5])
        elif action == "stored":
            driver.finish_writes(
                (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)[
                    variant % 4
                ]
            )
        self.hear()

    def restart(self, slot: int) -> None:
        self.clients[slot] = Client(self.clients[slot].instance)

    def hear(self) -> None:
        for client in self.clients:
            if client.join_ticket in self.driver.joins:
                answer = self.driver.joins[client.join_ticket]
                client.join_ticket = None
                if answer.error is ErrorCode.NONE:
                    client.member_id, client.generation = answer.member_id, answer.generation_id
                    client.is_leader = answer.leader == answer.member_id
                    client.members = [member.member_id for member in answer.members]
                elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
                    assert client.instance is None
                    client.member_id = answer.member_id
                elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
                    client.member_id, client.generation = "", -1
            if client.sync_ticket in self.driver.syncs:
                client.sync_ticket = None

    def check_answers(self) -> None:
        leaders: dict[int, str] = {}
        for answer in self.driver.joins.values():
            if answer.error is ErrorCode.NONE:
                assert answer.protocol_name in ("range", "sticky")
                if answer.leader == answer.member_id:
                    assert answer.member_id in [member.member_id for member in answer.members]
                    if not answer.skip_assignment:
                        leaders.setdefault(answer.generation_id, answer.member_id)
                        assert leaders[answer.generation_id] == answer.member_id, "two leaders in one generation"
                else:
                    assert answer.members == ()
            else:
                assert answer.generation_id == -1 or answer.member_id == ""
        for sync in self.driver.syncs.values():
            if sync.error is ErrorCode.NONE and sync.assignment:
                generation = int(sync.assignment.split(b"/")[0])
                assert 0 < generation <= self.driver.group.generation_id

    def end(self) -> None:
        """Everybody goes silent: all that waits is answered and the group runs empty."""
        for _ in range(12):
            self.driver.finish_writes()
            self.driver.advance(400_000)
        assert self.driver.group.state is GroupState.EMPTY
        answered = {**self.driver.joins, **self.driver.syncs}
        assert [ticket for ticket in self.driver.asked if ticket not in answered] == []


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "join",
                "join",
                "join",
                "retry",
                "sync",
                "sync",
                "heartbeat",
                "leave",
                "restart",
                "advance",
                "stored",
                "stored",
            ]
        ),
        st.integers(0, 4),
        st.integers(0, 11),
    ),
    min_size=40,
    max_size=100,
)


@settings(max_examples=150, deadline=None)
@given(ACTIONS, st.sampled_from([0, 3_000]), st.sampled_from([2, 100]))
def test_every_request_is_answered_once_and_a_generation_has_one_leader(
    actions: list[tuple[str, int, int]], delay_ms: int, max_size: int
) -> None:
    world = World(group_initial_rebalance_delay_ms=delay_ms, group_max_size=max_size)
    for action in actions:
        world.act(*action)
    world.check_answers()
    world.end()
    world.check_answers()


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.lists(st.integers(0, 4), min_size=1, unique=True))
def test_members_that_keep_asking_end_in_one_generation_with_an_assignment_each(
    actions: list[tuple[str, int, int]], survivors: list[int]
) -> None:
    world = World(group_initial_rebalance_delay_ms=3_000)
    for action in actions:
        world.act(*action)
    for slot in range(len(world.clients)):
        if slot not in survivors:
            world.restart(slot)
    settled = False
    for _ in range(200):
        world.driver.finish_writes()
        for slot in survivors:
            client = world.clients[slot]
            if client.join_ticket is not None or client.sync_ticket is not None:
                continue
            if (
                client.generation != world.driver.group.generation_id
                or client.member_id not in world.driver.group.membership
            ):
                if (
                    client.member_id not in world.driver.group.membership
                    and client.member_id not in world.driver.group.membership.pending
                ):
                    client.member_id = ""
                world.act("join", slot, 1 if client.protocols == PROTOCOLS[1] else 5)
            elif (
                world.driver.heartbeat(client.member_id, client.generation, client.instance)
                is ErrorCode.REBALANCE_IN_PROGRESS
            ):
                world.act("join", slot, 1)
            else:
                world.act("sync", slot, 0)
        world.driver.finish_writes()
        world.hear()
        world.driver.advance(1_000)
        world.hear()
        group = world.driver.group
        mine = [world.clients[slot] for slot in survivors]
        settled = (
            group.state is GroupState.STABLE
            and len(group.membership) == len(survivors)
            and all(c.generation == group.generation_id and c.member_id in group.membership for c in mine)
            and all(m.assignment.startswith(b"%d/" % group.generation_id) for m in group.membership.all())
        )
        if settled:
            break
    assert settled, (world.driver.group.state, world.driver.group.membership.members)
