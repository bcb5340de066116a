"""The state machine of one classic consumer group. Everything that affects its state happens here.

Pure: requests, expired timers and outcomes of writes go in, a list of effects comes out (`decisions.py`); no clock, no
randomness, no await. The coordinator calls one method at a time and carries out the effects in order.

Rules
- The states and what they answer stand in `states.py`; a transition that its table lacks is an assertion.
- A ticket (a waiting JoinGroup or SyncGroup) is answered exactly once. A member's newer request replaces its older
  one, which is answered with REBALANCE_IN_PROGRESS; nothing waits for ever.
- A member that waits for an answer needs no heartbeat: its session timer is armed again when it is answered. A new
  member is the exception, it is given `NEW_MEMBER_JOIN_TIMEOUT_MS` to be still there.
- A static member (KIP-345) is known by its instance id: it survives a rebalance that it missed, and a newcomer with
  its instance id takes its place and fences it.

Example: two members, initial rebalance delay 3 s

    now    in                         state                 out
    0      join A                     PreparingRebalance    arm rebalance 3 s
    1 s    join B                     PreparingRebalance    (delay will be extended: B is new)
    3 s    rebalance timer            PreparingRebalance    arm rebalance 3 s
    6 s    rebalance timer            CompletingRebalance   answer A (leader, member list), answer B; generation 1
    6.1 s  sync B                     CompletingRebalance
    6.2 s  sync A with assignments    CompletingRebalance   store generation 1
    6.3 s  stored                     Stable                answer A, answer B with their assignments
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla_broker.groups.decisions import (
    NO_MEMBER_ID,
    AnswerJoin,
    AnswerSync,
    ArmTimer,
    CancelAllTimers,
    CancelTimer,
    Effect,
    Explain,
    GroupConfig,
    GroupSnapshot,
    GroupWrite,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    StaticReplacement,
    Store,
    SyncAnswer,
    SyncRequest,
    TimerKey,
    TimerKind,
    WritePurpose,
)
from ottla_broker.groups.membership import Member, Membership
from ottla_broker.groups.states import COMMIT_ANSWERS, HEARTBEAT_ANSWERS, GroupState, can_enter
from ottla_broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from ottla_broker.protocol.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long the JoinGroup of a member that was never in a generation may wait (KAFKA-7610)."""

MIN_WAIT_FOR_STATIC_MEMBERS_MS = 1_000
"""With a rebalance timeout of 0 the machine would otherwise wait for them in a busy loop."""

_REBALANCE = TimerKey(TimerKind.REBALANCE)
_SYNC = TimerKey(TimerKind.SYNC)


class Group:
    """One group. Create it empty, or from a record with `Group.restored`."""

    def __init__(self, group_id: str, config: GroupConfig, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms: int | None = now_ms
        """When the state was entered; None when restored from a record that does not say."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.subscribed_topics: dict[str, None] | None = None
        """Of a consumer group: the topics of this generation's members. None where they cannot be read."""
        self.membership = Membership()
        self._config = config
        self._pending_sync: dict[str, None] = {}
        self._is_storing = False
        """This generation's assignment is on its way to the log."""
        self._is_in_initial_delay = False
        self._initial_delay_left_ms = 0
        self._has_new_member = False
        self._has_generation_of_its_own = True
        """False: it was one of the consumer protocol, and begins with a rebalance."""
        self._effects: list[Effect] = []
        self._now_ms = now_ms

    @staticmethod
    def restored(snapshot: GroupSnapshot, config: GroupConfig, now_ms: int) -> Group:
        """The group as its last record left it: Stable with members, else Empty. See `start`.

        A record with members and without a leader is that of a group which was one of the consumer protocol, and has
        not had its first rebalance (`consumer.migration`).
        """
        group = Group(snapshot.group_id, config, now_ms)
        timestamp = snapshot.current_state_timestamp_ms
        group.state_timestamp_ms = None if timestamp == -1 else timestamp
        group.generation_id = snapshot.generation_id
        group.protocol_type = snapshot.protocol_type or None
        group.protocol_name = snapshot.protocol_name
        group.membership.restore(snapshot.members, snapshot.protocol_name, snapshot.leader)
        group.state = GroupState.STABLE if len(group.membership) else GroupState.EMPTY
        group._has_generation_of_its_own = snapshot.leader is not None or not snapshot.members
        group._read_subscriptions()
        return group

    # Questions

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """True as well where the topics cannot be read: offsets are then not deleted (KIP-496)."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def snapshot(self) -> GroupSnapshot:
        """The group as DescribeGroups shows it: metadata and assignments only while Stable."""
        name = self.protocol_name if self.state is GroupState.STABLE else None
        return self._snapshot(name, {m.member_id: m.assignment for m in self.membership.all()} if name else {})

    # Requests

    def join(self, request: JoinRequest, ticket: int, now_ms: int) -> list[Effect]:
        """JoinGroup. Errors in order: GROUP_MAX_SIZE_REACHED (KIP-389), COORDINATOR_NOT_AVAILABLE (Dead),
        INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED (KIP-394), FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID."""
        self._now_ms = now_ms
        if not self._has_room_for(request.member_id):
            self._forget(request.member_id)
            self._refuse_join(ticket, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        elif self.state is GroupState.DEAD:
            self._refuse_join(ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        elif not self._supports(request):
            self._refuse_join(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif request.member_id == NO_MEMBER_ID:
            self._join_new(request, ticket)
        elif request.member_id in self.membership.pending and request.group_instance_id is None:
            self._cancel(TimerKey(TimerKind.PENDING_MEMBER, request.member_id))
            self._add_member(request, request.member_id, ticket)
        else:
            self._join_known(request, ticket)
        self._complete_join_if_everybody_is_in()
        return self._decision()

    def sync(self, request: SyncRequest, ticket: int, now_ms: int) -> list[Effect]:
        """SyncGroup. Errors in order: COORDINATOR_NOT_AVAILABLE (Dead), FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID,
        ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL (KIP-559), REBALANCE_IN_PROGRESS."""
        self._now_ms = now_ms
        error = self._check_sync(request)
        if error is not ErrorCode.NONE:
            self._effects.append(AnswerSync(ticket, SyncAnswer(error)))
            return self._decision()
        member = self.membership.members[request.member_id]
        self._pending_sync.pop(member.member_id, None)
        if not self._pending_sync:
            self._cancel(_SYNC)
        if self.state is GroupState.STABLE:
            self._effects.append(AnswerSync(ticket, self._assignment_of(member)))
            self._await_heartbeat(member)
        else:
            if member.sync_ticket is not None:
                self._effects.append(AnswerSync(member.sync_ticket, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)))
            member.sync_ticket = ticket
            if self.membership.is_leader(member.member_id) and not self._is_storing:
                # Of two assignments for one generation members could get one while the log keeps the other.
                self._is_storing = True
                self._store(WritePurpose.ASSIGNMENT, request.assignments, None)
        return self._decision()

    def heartbeat(
        self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int
    ) -> tuple[ErrorCode, list[Effect]]:
        """Heartbeat. Errors in order: COORDINATOR_NOT_AVAILABLE (Dead), FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID,
        ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS."""
        self._now_ms = now_ms
        error = self._check_member(member_id, group_instance_id, generation_id)
        if error is ErrorCode.NONE:
            self._await_heartbeat(self.membership.members[member_id])
            error = HEARTBEAT_ANSWERS[self.state]
        return error, self._decision()

    def leave(self, members: Sequence[LeavingMember], now_ms: int) -> tuple[ErrorCode, list[ErrorCode], list[Effect]]:
        """LeaveGroup: the error of the request, one per member, and the decision. Per member FENCED_INSTANCE_ID or
        UNKNOWN_MEMBER_ID."""
        self._now_ms = now_ms
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, [], []
        errors = [self._leave_one(leaving) for leaving in members]
        return ErrorCode.NONE, errors, self._decision()

    def commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int
    ) -> tuple[ErrorCode, list[Effect]]:
        """Whether an OffsetCommit is accepted. Errors in order: COORDINATOR_NOT_AVAILABLE (Dead), FENCED_INSTANCE_ID,
        UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.

        Without a generation (an admin client, or a consumer that assigns itself) only an Empty group accepts it.
        """
        self._now_ms = now_ms
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE, []
        if generation_id < 0 and member_id == NO_MEMBER_ID and group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, []
        error = self._check_member(member_id, group_instance_id, generation_id)
        if error is ErrorCode.NONE:
            error = COMMIT_ANSWERS[self.state]
            if error is ErrorCode.NONE:
                self._await_heartbeat(self.membership.members[member_id])
        return error, self._decision()

    def check_transactional_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Whether a TxnOffsetCommit is accepted. Errors in order: COORDINATOR_NOT_AVAILABLE (Dead), FENCED_INSTANCE_ID,
        UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION (KIP-447).

        A producer that names no member, as before version 3, is not checked. A rebalance does not matter, and the
        commit does not count as a heartbeat: the producer may be another process.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation_id < 0 and member_id == NO_MEMBER_ID and group_instance_id is None:
            return ErrorCode.NONE
        return self._check_member(member_id, group_instance_id, generation_id)

    # Timers and writes

    def expire(self, key: TimerKey, now_ms: int) -> list[Effect]:
        """A timer has run out."""
        self._now_ms = now_ms
        if self.state is GroupState.DEAD:
            return []
        if key.kind is TimerKind.REBALANCE:
            self._expire_rebalance()
        elif key.kind is TimerKind.SYNC:
            self._expire_sync()
        elif key.kind is TimerKind.PENDING_MEMBER:
            self.membership.pending.pop(key.member_id, None)
            self._complete_join_if_everybody_is_in()
        else:
            self._expire_session(key.member_id)
        return self._decision()

    def stored(self, write: GroupWrite, error: ErrorCode, now_ms: int) -> list[Effect]:
        """A group record was appended (`error` NONE) or could not be."""
        self._now_ms = now_ms
        if write.purpose is WritePurpose.ASSIGNMENT:
            # A rebalance may have begun while the record was on its way: then the assignment is of an older generation.
            is_current = write.snapshot.generation_id == self.generation_id
            if self.state is GroupState.COMPLETING_REBALANCE and is_current:
                self._finish_assignment(write.snapshot, error)
        elif write.static_member is not None:
            self._finish_static_replacement(write.static_member, error)
        # An empty generation that could not be stored does no harm: it has no members, and the generation before
        # it, should the log give it back, times out.
        return self._decision()

    def start(self, now_ms: int) -> list[Effect]:
        """A restored group begins: its members have a session timeout to show themselves. A group that a lower
        group.max.size no longer holds rebalances, and one that was of the consumer protocol."""
        self._now_ms = now_ms
        if len(self.membership) > self._config.group_max_size:
            self._prepare_rebalance(f"the loaded group is larger than group.max.size {self._config.group_max_size}")
        for member in self.membership.all():
            self._await_heartbeat(member)
        if not self._has_generation_of_its_own:
            self._rebalance_if_possible("the group was one of the consumer protocol")
        return self._decision()

    def unload(self, now_ms: int) -> list[Effect]:
        """The partition has another leader: requests that wait get NOT_COORDINATOR; the group is Dead."""
        self._now_ms = now_ms
        self._transition(GroupState.DEAD)
        for member in self.membership.all():
            self._answer_join(member, JoinAnswer(ErrorCode.NOT_COORDINATOR, member.member_id))
            self._answer_sync(member, SyncAnswer(ErrorCode.NOT_COORDINATOR))
        self._effects.append(CancelAllTimers())
        return self._decision()

    def convert(self, now_ms: int) -> list[Effect]:
        """The group becomes one of the consumer protocol (KIP-848): members that wait get REBALANCE_IN_PROGRESS.

        They join again, and this group is Dead.
        """
        self._now_ms = now_ms
        self._transition(GroupState.DEAD)
        for member in self.membership.all():
            self._answer_join(member, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            self._answer_sync(member, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        self._effects.append(CancelAllTimers())
        return self._decision()

    def delete(self, now_ms: int) -> list[Effect]:
        """An Empty group ends (DeleteGroups, or its last offset is gone)."""
        assert self.state is GroupState.EMPTY, self.state
        self._now_ms = now_ms
        self._transition(GroupState.DEAD)
        self._effects.append(CancelAllTimers())
        return self._decision()

    # Joining

    def _has_room_for(self, member_id: str) -> bool:
        """KIP-389. While preparing, those who have joined count, so that the last to rejoin are refused by a
        group that was made smaller."""
        if self.state is GroupState.PREPARING_REBALANCE:
            member = self.membership.get(member_id)
            if member is not None and member.join_ticket is not None:
                return True
            return self.membership.awaiting_join < self._config.group_max_size
        if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member_id in self.membership or len(self.membership) < self._config.group_max_size
        return True

    def _supports(self, request: JoinRequest) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type) and bool(request.protocols)
        return self.protocol_type == request.protocol_type and self.membership.shares_a_protocol(request.protocols)

    def _join_new(self, request: JoinRequest, ticket: int) -> None:
        new_id = request.new_member_id
        if request.group_instance_id is not None:
            old_id = self.membership.static_ids.get(request.group_instance_id)
            if old_id is not None:
                self._replace_static_member(request, old_id, ticket)
            else:
                self._add_member(request, new_id, ticket)
        elif request.requires_known_member_id:
            self.membership.pending[new_id] = None
            self._effects.append(ArmTimer(TimerKey(TimerKind.PENDING_MEMBER, new_id), request.session_timeout_ms))
            self._refuse_join(ticket, ErrorCode.MEMBER_ID_REQUIRED, new_id)
        else:
            self._add_member(request, new_id, ticket)

    def _join_known(self, request: JoinRequest, ticket: int) -> None:
        error = self.membership.find(request.member_id, request.group_instance_id)
        member = self.membership.get(request.member_id)
        if error is not ErrorCode.NONE or member is None:
            self._refuse_join(ticket, error, request.member_id)
            return
        is_leader = self.membership.is_leader(member.member_id)
        is_unchanged = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING_REBALANCE and is_unchanged:
            # The answer to its first JoinGroup got lost.
            self._effects.append(AnswerJoin(ticket, self._generation_for(member, with_members=is_leader)))
        elif self.state is GroupState.STABLE and is_unchanged and not is_leader:
            self._effects.append(AnswerJoin(ticket, self._generation_for(member, with_members=False)))
        else:
            # A leader that joins a stable group has seen something that its metadata does not show (new partitions).
            self._update_member(request, member, ticket)
            reason = "the leader joined again" if is_leader and is_unchanged else "a member's metadata changed"
            self._rebalance_if_possible(f"{reason}: {member.member_id}{_because(request.reason)}")

    def _add_member(self, request: JoinRequest, member_id: str, ticket: int) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        member.join_ticket = ticket
        if self.state is GroupState.PREPARING_REBALANCE and self.generation_id == 0:
            self._has_new_member = True
        if not len(self.membership):
            self.protocol_type = request.protocol_type
        self.membership.add(member)
        self._effects.append(ArmTimer(TimerKey(TimerKind.SESSION, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS))
        self._rebalance_if_possible(f"new member {member_id}{_because(request.reason)}")

    def _update_member(self, request: JoinRequest, member: Member, ticket: int) -> None:
        self.membership.update(member, request.protocols, request.session_timeout_ms, request.rebalance_timeout_ms)
        replaced = self.membership.set_join_ticket(member, ticket)
        if replaced is not None:
            self._refuse_join(replaced, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)

    def _replace_static_member(self, request: JoinRequest, old_id: str, ticket: int) -> None:
        """The instance came back without its member id (KIP-345): it gets a new one, and the old one is fenced."""
        member = self.membership.members[old_id]
        new_id = request.new_member_id
        undo = StaticReplacement(
            group_instance_id=request.group_instance_id or "",
            old_member_id=old_id,
            new_member_id=new_id,
            old_leader=self.membership.leader_id or "",
            old_protocols=member.protocols,
            old_session_timeout_ms=member.session_timeout_ms,
            old_rebalance_timeout_ms=member.rebalance_timeout_ms,
            ticket=ticket,
            supports_skipping_assignment=request.supports_skipping_assignment,
        )
        self._answer_join(member, JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._answer_sync(member, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
        self._rename(member, new_id)
        self._update_member(request, member, ticket)
        self._await_heartbeat(member)
        instance = f"static member {request.group_instance_id} came back as {new_id}{_because(request.reason)}"
        if self.state is GroupState.STABLE:
            if self.membership.select_protocol() == self.protocol_name:
                assignments = {each.member_id: each.assignment for each in self.membership.members.values()}
                self._store(WritePurpose.STATIC_MEMBER, assignments, undo)
            else:
                self._rebalance_if_possible(f"{instance} and changes the protocol")
        elif self.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the old id right now.
            self._prepare_rebalance(instance)

    def _finish_static_replacement(self, done: StaticReplacement, error: ErrorCode) -> None:
        """Answers the instance that came back, unless a rebalance that began meanwhile will do so."""
        member = self.membership.get(done.new_member_id)
        if self.state is not GroupState.STABLE or member is None or member.join_ticket != done.ticket:
            return
        if error is not ErrorCode.NONE:
            answer = self._generation_for(member, with_members=False)._replace(error=error)
            self._answer_join(member, answer._replace(member_id=NO_MEMBER_ID, leader=done.old_leader))
            self.membership.update(
                member, done.old_protocols, done.old_session_timeout_ms, done.old_rebalance_timeout_ms
            )
            self._rename(member, done.old_member_id)
        else:
            is_leader = self.membership.is_leader(member.member_id)
            if done.supports_skipping_assignment:
                # KIP-814: the leader watches the topics again, but a stable group would ignore its assignment.
                answer = self._generation_for(member, with_members=is_leader)._replace(skip_assignment=is_leader)
            else:
                # An older leader gets the member id from before, which is not its own: it does not assign.
                answer = self._generation_for(member, with_members=False)._replace(leader=done.old_leader)
            self._answer_join(member, answer)
        self._await_heartbeat(member)

    def _rename(self, member: Member, member_id: str) -> None:
        self._cancel(TimerKey(TimerKind.SESSION, member.member_id))
        if member.member_id in self._pending_sync:
            del self._pending_sync[member.member_id]
            self._pending_sync[member_id] = None
        self.membership.rename(member, member_id)

    # The rebalance

    def _rebalance_if_possible(self, reason: str) -> None:
        if can_enter(GroupState.PREPARING_REBALANCE, self.state):
            self._prepare_rebalance(reason)

    def _prepare_rebalance(self, reason: str) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._answer_all_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self._forget_pending_syncs()
        self._is_storing = False
        self._is_in_initial_delay = self.state is GroupState.EMPTY
        self._transition(GroupState.PREPARING_REBALANCE)
        self._effects.append(Explain(f"rebalance after generation {self.generation_id}: {reason}"))
        if self._is_in_initial_delay:
            # The first members of a fresh group rarely come alone: wait for the others (KIP-134).
            delay_ms = self._config.group_initial_rebalance_delay_ms
            self._initial_delay_left_ms = max(self.membership.rebalance_timeout_ms - delay_ms, 0)
            self._effects.append(ArmTimer(_REBALANCE, delay_ms))
        elif self.membership.has_everybody_joined:
            self._complete_join()
        else:
            self._effects.append(ArmTimer(_REBALANCE, self.membership.rebalance_timeout_ms))

    def _expire_rebalance(self) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        if self._is_in_initial_delay and self._has_new_member and self._initial_delay_left_ms:
            self._has_new_member = False
            delay_ms = min(self._config.group_initial_rebalance_delay_ms, self._initial_delay_left_ms)
            self._initial_delay_left_ms -= delay_ms
            self._effects.append(ArmTimer(_REBALANCE, delay_ms))
        else:
            self._complete_join()

    def _complete_join_if_everybody_is_in(self) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE or self._is_in_initial_delay:
            return
        if self.membership.has_everybody_joined:
            self._cancel(_REBALANCE)
            self._complete_join()

    def _complete_join(self) -> None:
        """Ends the joining with those who joined, and static members that did not."""
        self._is_in_initial_delay = False
        absent = [m for m in self.membership.members.values() if m.join_ticket is None and not m.is_static]
        for member in absent:
            self._forget(member.member_id)
        if absent:
            self._effects.append(Explain(f"removed without rejoining: {_listed(absent)}"))
        if len(self.membership) and not self.membership.elect_joined_leader():
            # Only static members, and none is back yet: their session timers will end this.
            delay_ms = max(self.membership.rebalance_timeout_ms, MIN_WAIT_FOR_STATIC_MEMBERS_MS)
            self._effects.append(ArmTimer(_REBALANCE, delay_ms))
            return
        self.generation_id += 1
        self._forget_pending_syncs()
        if not len(self.membership):
            self.protocol_name = None
            self._read_subscriptions()
            self._transition(GroupState.EMPTY)
            self._store(WritePurpose.EMPTY, {}, None)
            return
        self.protocol_name = self.membership.select_protocol()
        self._read_subscriptions()
        self._transition(GroupState.COMPLETING_REBALANCE)
        leader_members = self.membership.join_members(self.protocol_name)
        for member in self.membership.all():
            answer = self._generation_for(member, with_members=False)
            if self.membership.is_leader(member.member_id):
                answer = answer._replace(members=leader_members)
            self._answer_join(member, answer)
            self._await_heartbeat(member)
            member.is_new = False
            self._pending_sync[member.member_id] = None
        self._effects.append(ArmTimer(_SYNC, self.membership.rebalance_timeout_ms))

    def _finish_assignment(self, stored: GroupSnapshot, error: ErrorCode) -> None:
        self._is_storing = False
        if error is not ErrorCode.NONE:
            self._answer_all_syncs(error)
            self._rebalance_if_possible(f"the assignment could not be stored: {error.name}")
            return
        for each in stored.members:
            member = self.membership.get(each.member_id)
            if member is not None:
                member.assignment = each.assignment
        self._transition(GroupState.STABLE)
        for member in self.membership.all():
            if self._answer_sync(member, self._assignment_of(member)):
                self._await_heartbeat(member)

    def _answer_all_syncs(self, error: ErrorCode) -> None:
        for member in self.membership.all():
            member.assignment = b""
            if self._answer_sync(member, SyncAnswer(error)):
                self._await_heartbeat(member)

    def _expire_sync(self) -> None:
        absent = [self.membership.members[member_id] for member_id in self._pending_sync]
        if not absent or self.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        for member in absent:
            self._forget(member.member_id)
        self._prepare_rebalance(f"removed without SyncGroup: {_listed(absent)}")

    # Leaving

    def _leave_one(self, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == NO_MEMBER_ID:
            # An administrator removes by instance id.
            if leaving.group_instance_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            found = self.membership.static_ids.get(leaving.group_instance_id)
            if found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id in self.membership.pending:
            self._forget(member_id)
            self._complete_join_if_everybody_is_in()
            return ErrorCode.NONE
        else:
            error = self.membership.find(member_id, leaving.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._remove_member(self.membership.members[member_id], f"left{_because(leaving.reason)}")
        return ErrorCode.NONE

    def _expire_session(self, member_id: str) -> None:
        member = self.membership.get(member_id)
        if member is None:
            return
        is_waiting = member.join_ticket is not None or member.sync_ticket is not None
        if member.is_new or not is_waiting:
            self._remove_member(member, "sent no heartbeat within its session timeout")

    def _remove_member(self, member: Member, reason: str) -> None:
        # UNKNOWN_MEMBER_ID makes a client that is still there join again.
        self._answer_join(member, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID))
        self._forget(member.member_id)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._rebalance_if_possible(f"member {member.member_id} {reason}")
        else:
            self._complete_join_if_everybody_is_in()

    def _forget(self, member_id: str) -> None:
        """Takes a member or a pending id out, with its timers; a request of it that waits is answered."""
        if member_id in self.membership.pending:
            self._cancel(TimerKey(TimerKind.PENDING_MEMBER, member_id))
        member = self.membership.remove(member_id)
        if member is None:
            return
        self._pending_sync.pop(member_id, None)
        self._cancel(TimerKey(TimerKind.SESSION, member_id))
        if member.join_ticket is not None:
            self._refuse_join(member.join_ticket, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID)
            member.join_ticket = None
        self._answer_sync(member, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))

    # Checks

    def _check_member(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.membership.find(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        error = self._check_member(request.member_id, request.group_instance_id, request.generation_id)
        if error is not ErrorCode.NONE:
            return error
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != self.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # Building blocks

    def _transition(self, target: GroupState) -> None:
        assert can_enter(target, self.state), f"{self.group_id}: {self.state} -> {target}"
        self.state = target
        self.state_timestamp_ms = self._now_ms

    def _read_subscriptions(self) -> None:
        name = self.protocol_name
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            self.subscribed_topics = None
        elif not len(self.membership):
            self.subscribed_topics = {}
        elif name is None:
            self.subscribed_topics = None
        else:
            self.subscribed_topics = subscribed_topics(m.metadata(name) for m in self.membership.members.values())

    def _generation_for(self, member: Member, *, with_members: bool) -> JoinAnswer:
        name = self.protocol_name
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            name,
            self.membership.leader_id or "",
            members=self.membership.join_members(name) if with_members and name is not None else (),
        )

    def _assignment_of(self, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol_name)

    def _store(self, purpose: WritePurpose, assignments: Mapping[str, bytes], undo: StaticReplacement | None) -> None:
        snapshot = self._snapshot(self.protocol_name, assignments)
        self._effects.append(Store(GroupWrite(purpose, snapshot, undo)))

    def _snapshot(self, protocol_name: str | None, assignments: Mapping[str, bytes]) -> GroupSnapshot:
        return GroupSnapshot(
            self.group_id,
            self.protocol_type or "",
            self.generation_id,
            protocol_name,
            self.membership.leader_id,
            -1 if self.state_timestamp_ms is None else self.state_timestamp_ms,
            tuple(
                member.snapshot(protocol_name, assignments.get(member.member_id, b""))
                for member in self.membership.all()
            ),
        )

    def _await_heartbeat(self, member: Member) -> None:
        self._effects.append(ArmTimer(TimerKey(TimerKind.SESSION, member.member_id), member.session_timeout_ms))

    def _cancel(self, key: TimerKey) -> None:
        self._effects.append(CancelTimer(key))

    def _forget_pending_syncs(self) -> None:
        self._pending_sync.clear()
        self._cancel(_SYNC)

    def _refuse_join(self, ticket: int, error: ErrorCode, member_id: str) -> None:
        self._effects.append(AnswerJoin(ticket, JoinAnswer(error, member_id)))

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        ticket = self.membership.set_join_ticket(member, None)
        if ticket is not None:
            self._effects.append(AnswerJoin(ticket, answer))

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        ticket = member.sync_ticket
        if ticket is None:
            return False
        member.sync_ticket = None
        self._effects.append(AnswerSync(ticket, answer))
        return True

    def _decision(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _because(reason: str | None) -> str:
    """A client's own words (KIP-800), for the log."""
    return f" (client reason: {reason})" if reason else ""


def _listed(members: Sequence[Member]) -> str:
    return ", ".join(member.member_id for member in members)
