"""Moves one member towards its target assignment: revoke first, then assign what other members have released. Pure.

Source: CurrentAssignmentBuilder of Apache Kafka's group coordinator (KIP-848).

Example: A owns p0 and p1 in epoch 1. B joins: epoch 2, the target is A p0, B p1.

    heartbeat of   owned by it   member epoch   state                  assigned   pending revocation
    B (joins)      none          2              UnreleasedPartitions   none       none
    A              p0, p1        1              UnrevokedPartitions    p0         p1
    A              p0            2              Stable                 p0         none
    B              none          2              Stable                 p1         none
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ottla_broker.groups.consumer.group_image import NO_PARTITIONS, Assignment, ConsumerMember, TopicId
from ottla_broker.groups.consumer.states import MemberState


class MustRejoin(Exception):
    """The member's state is unknown to this release: it has to give up its partitions and join again."""


def reconcile(
    member: ConsumerMember,
    assignment_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: Callable[[TopicId, int], bool],
) -> ConsumerMember:
    """The member's next state; the same object where it stays as it is.

    Args:
        assignment_epoch: the epoch of the target assignment.
        owned: the partitions that the member says it owns; None where it does not say.
        is_free: whether no other member owns a partition.

    Raises:
        MustRejoin: see there.
    """
    if member.is_reconciled_to(assignment_epoch):
        return member
    if member.state is MemberState.STABLE:
        return _next(member, member.member_epoch, assignment_epoch, target, owned, is_free)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.pending_revocation):
            return member
        return _next(member, member.member_epoch + 1, assignment_epoch, target, owned, is_free)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _next(member, member.member_epoch, assignment_epoch, target, owned, is_free)
    if owned is None or owned:
        raise MustRejoin
    return _next(member, assignment_epoch, assignment_epoch, target, owned, is_free)


def _next(
    member: ConsumerMember,
    member_epoch: int,
    assignment_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: Callable[[TopicId, int], bool],
) -> ConsumerMember:
    kept: dict[TopicId, frozenset[int]] = {}
    to_revoke: dict[TopicId, frozenset[int]] = {}
    assigned: dict[TopicId, frozenset[int]] = {}
    is_waiting = False
    for topic_id in sorted({*target, *member.assigned}):
        wanted = target.get(topic_id, frozenset())
        current = member.assigned.get(topic_id, frozenset())
        if current & wanted:
            kept[topic_id] = current & wanted
        if current - wanted:
            to_revoke[topic_id] = current - wanted
        missing = wanted - current
        free = frozenset(partition for partition in missing if is_free(topic_id, partition))
        is_waiting = is_waiting or len(free) < len(missing)
        if wanted & current or free:
            assigned[topic_id] = (wanted & current) | free
    if to_revoke and _owns_any(owned, to_revoke):
        return _changed(member, member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _changed(member, assignment_epoch, state, assigned, NO_PARTITIONS)


def _changed(
    member: ConsumerMember, member_epoch: int, state: MemberState, assigned: Assignment, pending: Assignment
) -> ConsumerMember:
    """The same object where only the previous epoch would change."""
    if (member.member_epoch, member.state, member.assigned, member.pending_revocation) == (
        member_epoch,
        state,
        assigned,
        pending,
    ):
        return member
    return replace(
        member,
        previous_member_epoch=member.member_epoch,
        member_epoch=member_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )


def _owns_any(owned: Assignment | None, partitions: Assignment) -> bool:
    """True as well where the member does not say what it owns."""
    if owned is None:
        return True
    return any(owned.get(topic_id, frozenset()) & pending for topic_id, pending in partitions.items())
