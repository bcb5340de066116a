"""The values of a group of the consumer rebalance protocol (KIP-848): what its records in `__consumer_offsets` say.

Every value is immutable: an operation makes a new image from an old one, and the difference of two images gives the
records to write (`consumer_records`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias

from ottla_broker.groups.consumer.states import ConsumerGroupState, MemberState
from ottla_broker.groups.decisions import Protocols

TopicId: TypeAlias = bytes
"""The 16 bytes of a topic's UUID."""

Assignment: TypeAlias = Mapping[TopicId, frozenset[int]]
"""Partitions by topic; no topic has an empty set."""

NO_PARTITIONS: Assignment = MappingProxyType({})

JOIN_EPOCH = 0
"""The member epoch of a heartbeat that joins, or joins again."""
LEAVE_EPOCH = -1
"""The member epoch of a heartbeat that leaves."""
STATIC_LEAVE_EPOCH = -2
"""The member epoch of a static member that leaves and comes back within its session timeout."""


class SubscribedTopic(NamedTuple):
    """What the assignment depends on: a topic that is created again or grows gives a new target assignment."""

    topic_id: TopicId
    partition_count: int


class TopicView(Protocol):
    """The topics of the cluster, as of the latest metadata."""

    @property
    def version(self) -> int:
        """Grows when a topic is created, deleted or gets partitions."""
        ...

    def find(self, name: str) -> SubscribedTopic | None:
        """None for a topic that does not exist, or has no id."""
        ...

    def name_of(self, topic_id: TopicId) -> str | None:
        """None for an id that no topic has."""
        ...

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        ...


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What a member says that speaks the classic protocol in a group of the consumer protocol (an online migration)."""

    session_timeout_ms: int
    protocols: Protocols
    """As the member joined with them; never empty."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member: its subscription (record 5) and its current assignment (record 8)."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] = ()
    """Sorted, each once."""
    subscribed_topic_regex: str | None = None
    """None or empty without one."""
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    """None for a member of the consumer protocol."""
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NO_PARTITIONS)
    pending_revocation: Assignment = field(default_factory=lambda: NO_PARTITIONS)

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has the target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def has_same_subscription_record(self, other: ConsumerMember) -> bool:
        """Whether both have the same record 5."""
        return _subscription(self) == _subscription(other)

    def has_same_assignment_record(self, other: ConsumerMember) -> bool:
        """Whether both have the same record 8."""
        return _current(self) == _current(other)


def _subscription(member: ConsumerMember) -> tuple[object, ...]:
    return (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.subscribed_topic_names,
        member.subscribed_topic_regex,
        member.server_assignor,
        member.classic,
    )


def _current(member: ConsumerMember) -> tuple[object, ...]:
    return (
        member.member_epoch,
        member.previous_member_epoch,
        member.state,
        member.assigned,
        member.pending_revocation,
    )


@dataclass(frozen=True, slots=True)
class ResolvedExpression:
    """The topics that a regular expression matched (record 16)."""

    topics: tuple[str, ...]
    """Sorted."""
    version: int
    """Of the metadata that they were found in."""
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupImage:
    """A whole group."""

    group_id: str
    epoch: int = 0
    """Rises with every change that asks for a new target assignment; 0 for a group without a record."""
    assignment_epoch: int = 0
    """The group epoch that `targets` was computed for."""
    members: Mapping[str, ConsumerMember] = field(default_factory=dict)
    targets: Mapping[str, Assignment] = field(default_factory=dict)
    """The target assignment by member id."""
    topics: Mapping[str, SubscribedTopic] = field(default_factory=dict)
    """The topics that members subscribe to and that exist, sorted by name."""
    expressions: Mapping[str, ResolvedExpression] = field(default_factory=dict)
    """By regular expression."""

    @property
    def state(self) -> ConsumerGroupState:
        """Source: ConsumerGroup.maybeUpdateGroupState."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_PARTITIONS)

    def topics_of(self, member: ConsumerMember) -> tuple[str, ...]:
        """The names that the member subscribes to, those of its regular expression included; sorted."""
        regex = member.subscribed_topic_regex
        resolved = self.expressions.get(regex) if regex else None
        if resolved is None:
            return member.subscribed_topic_names
        if not member.subscribed_topic_names:
            return resolved.topics
        return tuple(sorted({*member.subscribed_topic_names, *resolved.topics}))

    def subscribed_names(self) -> list[str]:
        """Every name that a member subscribes to, sorted."""
        names: set[str] = set()
        for member in self.members.values():
            names.update(member.subscribed_topic_names)
        for regex in self.regexes():
            resolved = self.expressions.get(regex)
            if resolved is not None:
                names.update(resolved.topics)
        return sorted(names)

    def regexes(self) -> dict[str, None]:
        """The regular expressions of the members, in the order of the members."""
        found = (member.subscribed_topic_regex for member in self.members.values())
        return dict.fromkeys(regex for regex in found if regex)

    def with_member(self, member: ConsumerMember) -> ConsumerGroupImage:
        """With this member added or replaced."""
        return replace(self, members={**self.members, member.member_id: member})

    def without_members(self, member_ids: Iterable[str]) -> ConsumerGroupImage:
        """Without these members, their target assignments, and regular expressions that nobody else has."""
        gone = set(member_ids)
        left = replace(
            self,
            members={key: member for key, member in self.members.items() if key not in gone},
            targets={key: target for key, target in self.targets.items() if key not in gone},
        )
        return left.with_used_expressions()

    def with_used_expressions(self) -> ConsumerGroupImage:
        """Without the topics of regular expressions that no member has."""
        used = self.regexes()
        if all(regex in used for regex in self.expressions):
            return self
        return replace(self, expressions={regex: found for regex, found in self.expressions.items() if regex in used})


def partitions_of(assignment: Assignment) -> Iterator[tuple[TopicId, int]]:
    """Every partition, sorted.

    >>> list(partitions_of({b"b": frozenset({1}), b"a": frozenset({2, 0})}))
    [(b'a', 0), (b'a', 2), (b'b', 1)]
    """
    for topic_id in sorted(assignment):
        for partition in sorted(assignment[topic_id]):
            yield topic_id, partition


def assignment_of(partitions: Iterable[tuple[TopicId, int]]) -> Assignment:
    """The assignment with these partitions, topics sorted.

    >>> dict(assignment_of([(b"b", 1), (b"a", 2), (b"a", 0)]))
    {b'a': frozenset({0, 2}), b'b': frozenset({1})}
    """
    found: dict[TopicId, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(found[topic_id]) for topic_id in sorted(found)}


def is_subset(assignment: Assignment, of: Assignment) -> bool:
    """Whether `of` has every partition of the assignment."""
    return all(partitions <= of.get(topic_id, frozenset()) for topic_id, partitions in assignment.items())
