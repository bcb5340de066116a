"""The members of one group: who is in, who leads, who waits, what protocols they share.

Every change of the member set goes through here so that the counts the rules ask for (how many wait for the join to
end, how many support a protocol) are always right without walking all members. When to change it is decided by
`machine.py`. Pure; iteration is in the order of joining.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_broker.groups.decisions import JoinMember, MemberSnapshot, Protocols
from ottla_broker.protocol.errors import ErrorCode


class Member:
    """One member. `join_ticket` and `sync_ticket` name the requests that wait for an answer."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_ticket: int | None = None
        self.sync_ticket: int | None = None
        self.is_new = False
        """Has never been in a generation: its client may not know its member id and cannot beat."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str) -> bytes:
        """KeyError when the member does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def snapshot(self, protocol_name: str | None, assignment: bytes) -> MemberSnapshot:
        return MemberSnapshot(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            b"" if protocol_name is None else self.metadata(protocol_name),
            assignment,
        )


class Membership:
    """Members by id, in the order of joining."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.leader_id: str | None = None
        self.pending: dict[str, None] = {}
        """Ids that were given to members which have not joined with them yet (KIP-394)."""
        self.static_ids: dict[str, str] = {}
        """Member id by group instance id (KIP-345)."""
        self.awaiting_join = 0
        self._supporters: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    def get(self, member_id: str) -> Member | None:
        return self.members.get(member_id)

    def find(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE for a member; FENCED_INSTANCE_ID where another one has its instance id, else UNKNOWN_MEMBER_ID."""
        if group_instance_id is not None:
            current = self.static_ids.get(group_instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def all(self) -> list[Member]:
        return list(self.members.values())

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    @property
    def has_everybody_joined(self) -> bool:
        """True as well for a group without members."""
        return self.awaiting_join == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members; a negative one counts as 0."""
        return max((0, *(member.rebalance_timeout_ms for member in self.members.values())))

    def add(self, member: Member) -> None:
        """The first member leads. Its instance id, if any, is free (the machine has seen to that)."""
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id
        self._count(member.protocols, 1)
        if member.join_ticket is not None:
            self.awaiting_join += 1
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Takes a member or a pending id out; the longest member leads where the leader went."""
        self.pending.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member.protocols, -1)
        if member.join_ticket is not None:
            self.awaiting_join -= 1
        if member.group_instance_id is not None:
            self.static_ids.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Gives a static member another id, in its old place, leadership included."""
        old_id = member.member_id
        self.members = {member_id if key == old_id else key: value for key, value in self.members.items()}
        member.member_id = member_id
        assert member.group_instance_id is not None
        self.static_ids[member.group_instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id

    def set_join_ticket(self, member: Member, ticket: int | None) -> int | None:
        """The ticket that waited until now."""
        previous = member.join_ticket
        member.join_ticket = ticket
        self.awaiting_join += (ticket is not None) - (previous is not None)
        return previous

    def update(self, member: Member, protocols: Protocols, session_timeout_ms: int, rebalance_timeout_ms: int) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def shares_a_protocol(self, protocols: Protocols) -> bool:
        """True when every member supports one of these."""
        return any(self._supporters.get(name, 0) == len(self.members) for name, _ in protocols)

    def select_protocol(self) -> str:
        """The vote: every member votes for the first of its protocols that all support; ties go to the first voted for.

        >>> group = Membership()
        >>> for number, names in enumerate(["range sticky", "sticky range", "sticky range"]):
        ...     protocols = tuple((name, b"") for name in names.split())
        ...     group.add(Member(f"m{number}", None, "", "", 0, 0, protocols))
        >>> group.select_protocol()
        'sticky'
        """
        everybody = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            preferred = next(name for name, _ in member.protocols if self._supporters[name] == everybody)
            votes[preferred] = votes.get(preferred, 0) + 1
        return max(votes, key=votes.__getitem__)

    def elect_joined_leader(self) -> bool:
        """Keeps a leader that has joined, else takes the longest member that has; False when nobody has."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.join_ticket is not None:
            return True
        joined = next((member for member in self.members.values() if member.join_ticket is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def join_members(self, protocol_name: str) -> tuple[JoinMember, ...]:
        return tuple(
            JoinMember(member.member_id, member.group_instance_id, member.metadata(protocol_name))
            for member in self.members.values()
        )

    def restore(self, members: Iterable[MemberSnapshot], protocol_name: str | None, leader: str | None) -> None:
        """Puts back what a group record says."""
        for found in members:
            protocols: Protocols = () if protocol_name is None else ((protocol_name, found.subscription),)
            self.add(
                Member(
                    found.member_id,
                    found.group_instance_id,
                    found.client_id,
                    found.client_host,
                    found.session_timeout_ms,
                    found.rebalance_timeout_ms,
                    protocols,
                    found.assignment,
                )
            )
        if leader is not None and leader in self.members:
            self.leader_id = leader

    def _count(self, protocols: Protocols, step: int) -> None:
        for name in dict.fromkeys(name for name, _ in protocols):
            count = self._supporters.get(name, 0) + step
            if count:
                self._supporters[name] = count
            else:
                self._supporters.pop(name, None)
