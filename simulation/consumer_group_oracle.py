"""The oracle of one group: which member has which partition, which epochs were told, which offsets are committed.

A member *has* a partition from the response that gives it until it acknowledges the revocation, leaves, is fenced or
dies. A member that is silent may be removed without hearing of it, but not before its session timeout: a response
covers its request's time plus that. So two members must never have one partition at a time that is covered for both.
What a broker says that does not coordinate the group any more counts for nothing.

Plain values come in, a `Violation` is raised. Members are named by their runs, not by their member ids. Times are those
of the run, in seconds.

Source: KIP-848, "Member Epoch" and "Assignment & Reconciliation"; OffsetCommit and OffsetFetch of its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from simulation.checker import Partition, Violation


@dataclass
class _Holding:
    """That a member has a partition. `covered_until_s` is -inf as long as no coordinator has confirmed it."""

    told_s: float
    covered_until_s: float


@dataclass
class Commit:
    """An offset that a member has sent. `acknowledged_s` is None without a response; it may still come to be."""

    member: str
    offset: int
    sent_s: float
    acknowledged_s: float | None = None


class ConsumerGroupOracle:
    """What is known of one group."""

    def __init__(self, group_id: str, *, is_converted: bool = False) -> None:
        """`is_converted`: members of both protocols join it. A group without members that is converted begins with the
        first epoch again, as in Apache Kafka: a new group takes its place."""
        self.group_id = group_id
        self._is_converted = is_converted
        self.highest_epoch = 0
        """Of those that members were told."""
        self.assigned_count = 0
        self.commit_count = 0
        self.fenced_count = 0
        self._holdings: dict[Partition, dict[str, _Holding]] = {}
        self._epochs: dict[str, int] = {}
        self._covered: dict[str, float] = {}
        """By member: until when it is not removed."""
        self._began_again_s = -inf
        self._commits: dict[Partition, list[Commit]] = {}
        self._last_offset = 0

    # -- epochs -----------------------------------------------------------------------------------------------------

    def joined(
        self, member: str, epoch: int, highest_before: int, *, sent_s: float, at_s: float, is_current: bool
    ) -> None:
        """A member that had none was given this epoch; `highest_before` is what `highest_epoch` was when it asked."""
        self._epochs.pop(member, None)
        if is_current and epoch < highest_before and sent_s > self._began_again_s:
            # Members of the group before. One of the group that began again has no higher epoch, and may have been the
            # first of it by a response that did not count here, as another broker coordinated by then.
            others = [
                name
                for name, until_s in self._covered.items()
                if name != member and until_s >= at_s and self._epochs.get(name, epoch + 1) > epoch
            ]
            if others or not self._is_converted:
                raise Violation(
                    f"group {self.group_id}: {member} joins with epoch {epoch}, {highest_before} was told before,"
                    f" and {', '.join(others) or 'nobody'} is a member"
                )
            self.highest_epoch = 0
            self._began_again_s = at_s
        self.epoch_told(member, epoch)

    def epoch_told(self, member: str, epoch: int) -> None:
        """A member was told its epoch, or the generation of what it was assigned."""
        before = self._epochs.get(member, 0)
        if epoch < before:
            raise Violation(f"group {self.group_id}: the epoch of {member} fell from {before} to {epoch}")
        self._epochs[member] = epoch
        self.highest_epoch = max(self.highest_epoch, epoch)

    # -- partitions -------------------------------------------------------------------------------------------------

    def told(self, member: str, partitions: Iterable[Partition], *, at_s: float, covered_until_s: float | None) -> None:
        """A response gave a member these partitions, beside what it had.

        `covered_until_s`: it is not removed before; None where the broker does not coordinate the group any more.
        """
        for partition in partitions:
            held = self._holdings.setdefault(partition, {})
            if member not in held:
                self.assigned_count += 1
                held[member] = _Holding(at_s, -inf)
        self.confirmed(member, at_s=at_s, covered_until_s=covered_until_s)

    def confirmed(self, member: str, *, at_s: float, covered_until_s: float | None) -> None:
        """A response says that the member still has what it had."""
        if covered_until_s is None:
            return
        self._covered[member] = max(covered_until_s, self._covered.get(member, -inf))
        for partition, held in self._holdings.items():
            holding = held.get(member)
            if holding is None:
                continue
            if holding.covered_until_s == -inf:
                holding.told_s = at_s
            holding.covered_until_s = max(holding.covered_until_s, covered_until_s)
            self._check_owner(partition, member)

    def released(self, member: str, partitions: Iterable[Partition]) -> None:
        """The member uses these no more. To be called before it says so."""
        for partition in partitions:
            self._holdings.get(partition, {}).pop(member, None)

    def gone(self, member: str) -> None:
        """The member has left, or was told that it is none, or its process has ended."""
        self.released(member, self._holdings)
        self._epochs.pop(member, None)
        self._covered.pop(member, None)

    def fenced(self, member: str) -> None:
        """As `gone`: its coordinator refused it."""
        self.fenced_count += 1
        self.gone(member)

    def _check_owner(self, partition: Partition, member: str) -> None:
        held = self._holdings[partition]
        mine = held[member]
        for other, theirs in held.items():
            if other == member:
                continue
            if mine.told_s < theirs.covered_until_s and theirs.told_s < mine.covered_until_s:
                raise Violation(
                    f"group {self.group_id}: {partition[0]}-{partition[1]} has two owners: {member} since"
                    f" {mine.told_s:.3f} until at least {mine.covered_until_s:.3f}, {other} since {theirs.told_s:.3f}"
                    f" until at least {theirs.covered_until_s:.3f}"
                )

    # -- offsets ----------------------------------------------------------------------------------------------------

    def commit_sent(self, member: str, partition: Partition, at_s: float) -> Commit:
        """A member commits for a partition that it has; gives the offset to commit, which no other commit has."""
        self._last_offset += 1
        commit = Commit(member, self._last_offset, at_s)
        self._commits.setdefault(partition, []).append(commit)
        return commit

    def commit_acknowledged(self, partition: Partition, commit: Commit, at_s: float) -> None:
        """The commit was answered without an error."""
        commit.acknowledged_s = at_s
        self.commit_count += 1
        held = self._holdings.get(partition, {})
        mine = held.get(commit.member)
        if mine is None or mine.covered_until_s == -inf:
            return
        for other, theirs in held.items():
            is_next = theirs.covered_until_s > -inf and mine.told_s < theirs.told_s < commit.sent_s
            if is_next:
                raise Violation(
                    f"group {self.group_id}: {commit.member} committed {commit.offset} of"
                    f" {partition[0]}-{partition[1]} at {commit.sent_s:.3f}, which {other} was given at"
                    f" {theirs.told_s:.3f}: it was fenced"
                )

    def commit_refused(self, partition: Partition, commit: Commit) -> None:
        """The commit was refused for good, so its offset must never be read."""
        self._commits[partition].remove(commit)

    def offset_read(self, partition: Partition, offset: int, *, asked_s: float) -> None:
        """The coordinator has told the committed offset, -1 for none, to a request of that time."""
        known = self._commits.get(partition, [])
        if offset == -1:
            late = [one for one in known if one.acknowledged_s is not None and one.acknowledged_s < asked_s]
            if late:
                raise Violation(
                    f"group {self.group_id} has no offset of {partition[0]}-{partition[1]},"
                    f" {late[-1].offset} was committed"
                )
            return
        found = next((one for one in known if one.offset == offset), None)
        if found is None:
            raise Violation(
                f"group {self.group_id} has offset {offset} of {partition[0]}-{partition[1]}: nobody committed it,"
                " or it was refused"
            )
        later = next((one for one in known if _replaces(one, found, asked_s)), None)
        if later is not None:
            raise Violation(
                f"group {self.group_id} has offset {offset} of {partition[0]}-{partition[1]}, by {found.member},"
                f" and {later.member} committed {later.offset} after it"
            )

    # -- the end ----------------------------------------------------------------------------------------------------

    def owners(self, expected: Mapping[Partition, Iterable[str]], live: Iterable[str]) -> str:
        """Why the live members do not have every partition exactly once, "" when they do.

        `expected`: for every partition, the members that subscribe to it.
        """
        members = set(live)
        for partition, subscribed in sorted(expected.items()):
            held = [name for name in self._holdings.get(partition, {}) if name in members]
            if len(held) != 1 or held[0] not in subscribed:
                return f"{partition[0]}-{partition[1]} is with {', '.join(held) or 'nobody'}"
        for partition, holding in sorted(self._holdings.items()):
            if partition not in expected and any(name in members for name in holding):
                return f"{partition[0]}-{partition[1]} is assigned, nobody subscribes to it"
        return ""


def _replaces(later: Commit, found: Commit, asked_s: float) -> bool:
    """Whether the offset of `found` was certainly replaced before the request: a commit that began when it was done, or
    could come to be no more since another member had the partition, was acknowledged."""
    if later is found or later.acknowledged_s is None or later.acknowledged_s >= asked_s:
        return False
    if found.acknowledged_s is not None:
        return later.sent_s > found.acknowledged_s
    return later.member != found.member and later.sent_s > found.sent_s
