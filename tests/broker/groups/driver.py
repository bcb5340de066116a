"""Drives one pure group machine in virtual time and checks, after every step, what must always hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ottla_broker.groups.decisions import (
    AnswerJoin,
    AnswerSync,
    ArmTimer,
    CancelAllTimers,
    CancelTimer,
    Effect,
    GroupConfig,
    GroupWrite,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    Store,
    SyncAnswer,
    SyncRequest,
    TimerKey,
    TimerKind,
)
from ottla_broker.groups.machine import Group
from ottla_broker.groups.states import GroupState
from ottla_broker.protocol.errors import ErrorCode

RANGE = (("range", b"r"),)


def join_request(member_id: str = "", **changes: object) -> JoinRequest:
    values: dict[str, object] = {
        "member_id": member_id,
        "new_member_id": "",
        "group_instance_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": RANGE,
    }
    return JoinRequest(**(values | changes))  # type: ignore[arg-type]


class Driver:
    """A group, its timers, its writes on the way, and the answers it has given by ticket."""

    def __init__(self, group: Group | None = None, **config: int) -> None:
        self.now_ms = 1_000_000
        self.group = group or Group("g", GroupConfig(**config), self.now_ms)
        self.timers: dict[TimerKey, int] = {}
        self.writes: list[GroupWrite] = []
        self.joins: dict[int, JoinAnswer] = {}
        self.syncs: dict[int, SyncAnswer] = {}
        self.asked: list[int] = []
        self._ids = 0

    def state(self) -> GroupState:
        return self.group.state

    # Requests; `join` and `sync` give a ticket whose answer stands in `joins` or `syncs` once there is one.

    def join(self, member_id: str = "", **changes: Any) -> int:
        self._ids += 1
        changes.setdefault("new_member_id", f"member-{self._ids}")
        self.asked.append(self._ids)
        ticket = self._ids
        self.carry_out(self.group.join(join_request(member_id, **changes), ticket, self.now_ms))
        return ticket

    def sync(
        self, member_id: str, generation_id: int, assignments: dict[str, bytes] | None = None, **changes: object
    ) -> int:
        self._ids += 1
        self.asked.append(self._ids)
        ticket = self._ids
        values: dict[str, object] = {"group_instance_id": None, "protocol_type": None, "protocol_name": None}
        request = SyncRequest(
            generation_id=generation_id,
            member_id=member_id,
            assignments=assignments or {},
            **(values | changes),  # type: ignore[arg-type]
        )
        self.carry_out(self.group.sync(request, ticket, self.now_ms))
        return ticket

    def heartbeat(self, member_id: str, generation_id: int, instance: str | None = None) -> ErrorCode:
        error, effects = self.group.heartbeat(member_id, instance, generation_id, self.now_ms)
        self.carry_out(effects)
        return error

    def commit(self, member_id: str, generation_id: int, instance: str | None = None) -> ErrorCode:
        error, effects = self.group.commit(member_id, instance, generation_id, self.now_ms)
        self.carry_out(effects)
        return error

    def leave(self, *members: LeavingMember) -> list[ErrorCode]:
        error, errors, effects = self.group.leave(members, self.now_ms)
        self.carry_out(effects)
        return errors if error is ErrorCode.NONE else [error]

    # Time and writes

    def advance(self, milliseconds: int) -> None:
        """Lets time pass; timers fire in the order of their deadlines."""
        end = self.now_ms + milliseconds
        while True:
            due = [(deadline, key) for key, deadline in self.timers.items() if deadline <= end]
            if not due:
                break
            deadline, key = min(due, key=lambda item: item[0])
            del self.timers[key]
            self.now_ms = deadline
            self.carry_out(self.group.expire(key, self.now_ms))
        self.now_ms = end

    def finish_writes(self, error: ErrorCode = ErrorCode.NONE) -> None:
        while self.writes:
            self.carry_out(self.group.stored(self.writes.pop(0), error, self.now_ms))

    # Conveniences

    def stable_group(self, count: int, **changes: Any) -> list[str]:
        """A stable group of `count` new members; the first leads."""
        tickets = [self.join(**changes) for _ in range(count)]
        while any(ticket not in self.joins for ticket in tickets):
            self.advance(3_000)
        members = [self.joins[ticket].member_id for ticket in tickets]
        generation = self.group.generation_id
        assignments = {member: f"{generation}/{member}".encode() for member in members}
        for member in reversed(members):
            self.sync(member, generation, assignments if self.group.membership.is_leader(member) else None)
        self.finish_writes()
        assert self.group.state is GroupState.STABLE
        return members

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AnswerJoin):
                assert effect.ticket not in self.joins, "a JoinGroup was answered twice"
                self.joins[effect.ticket] = effect.answer
            elif isinstance(effect, AnswerSync):
                assert effect.ticket not in self.syncs, "a SyncGroup was answered twice"
                self.syncs[effect.ticket] = effect.answer
            elif isinstance(effect, ArmTimer):
                assert effect.delay_ms >= 0
                self.timers[effect.key] = self.now_ms + effect.delay_ms
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
            elif isinstance(effect, CancelAllTimers):
                self.timers.clear()
            elif isinstance(effect, Store):
                self.writes.append(effect.write)
        self.check()

    def check(self) -> None:
        group, members = self.group, self.group.membership
        state = group.state
        assert members.awaiting_join == sum(m.join_ticket is not None for m in members.members.values())
        supporters = Counter(
            name for m in members.members.values() for name in dict.fromkeys(n for n, _ in m.protocols)
        )
        assert members._supporters == supporters
        assert (members.leader_id in members.members) if len(members) else members.leader_id is None
        assert all(key == member.member_id for key, member in members.members.items())
        statics = {m.group_instance_id: m.member_id for m in members.members.values() if m.is_static}
        assert members.static_ids == statics
        if state is GroupState.DEAD:
            assert not self.timers
            return
        if state is GroupState.EMPTY:
            assert not len(members)
        if state is GroupState.STABLE:
            assert len(members)
            assert all(m.sync_ticket is None for m in members.members.values())
        assert (TimerKey(TimerKind.REBALANCE) in self.timers) == (state is GroupState.PREPARING_REBALANCE)
        for member in members.members.values():
            if member.is_new or (member.join_ticket is None and member.sync_ticket is None):
                assert TimerKey(TimerKind.SESSION, member.member_id) in self.timers, member.member_id
        for pending in members.pending:
            assert TimerKey(TimerKind.PENDING_MEMBER, pending) in self.timers
        for kind, member_id in self.timers:
            if kind is TimerKind.SESSION:
                assert member_id in members.members
            if kind is TimerKind.PENDING_MEMBER:
                assert member_id in members.pending
