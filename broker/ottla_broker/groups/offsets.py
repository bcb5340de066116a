"""The committed offsets of one group: what is stored, what is on its way to the log, what has expired.

Pure. The records themselves are in `records.py`, appending them is the coordinator's.

An offset counts once its record is in the log, and of two the one that stands later in the log counts, whatever the
order in which their appends were confirmed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from ottla_broker.groups.machine import Group
from ottla_broker.groups.states import GroupState
from ottla_broker.records.ids import TopicPartition

NO_LEADER_EPOCH = -1
NO_EXPIRE_TIMESTAMP = -1


class CommittedOffset(NamedTuple):
    """What a consumer commits for a partition; times are milliseconds since the epoch."""

    offset: int
    leader_epoch: int
    """Of the last consumed record (KIP-320), -1 when the client did not say."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRE_TIMESTAMP
    """-1 unless the client named a retention (OffsetCommit v2 to v4)."""


class StoredOffset(NamedTuple):
    committed: CommittedOffset
    log_offset: int
    """Base offset of the batch in `__consumer_offsets`."""


class ExpiryRule(NamedTuple):
    """When offsets of a group expire."""

    since_empty_ms: int | None = None
    """They expire together, the retention after this; None: each the retention after its commit."""
    subscribed: Container[str] = ()
    """Topics whose offsets are kept."""


def classic_expiry_rule(group: Group) -> ExpiryRule | None:
    """The rule of a classic group; None where nothing expires.

    A group without members keeps its offsets for the retention from the moment it became empty; a stable consumer
    group loses those of topics that no member subscribes to, for the retention after their last commit; a group
    that only ever committed (no protocol type) likewise, whatever the topic. Others keep all.
    """
    if group.protocol_type is None:
        return ExpiryRule()
    if group.state is GroupState.EMPTY:
        return ExpiryRule(group.state_timestamp_ms)
    if group.is_consumer_group and group.state is GroupState.STABLE and group.subscribed_topics is not None:
        return ExpiryRule(None, group.subscribed_topics)
    return None


class GroupOffsets:
    """By partition, in the order of the first commit."""

    def __init__(self) -> None:
        self.stored: dict[TopicPartition, StoredOffset] = {}
        self._pending: dict[TopicPartition, list[CommittedOffset]] = {}
        self._transactional: dict[int, dict[TopicPartition, StoredOffset]] = {}
        """By producer id: in the log, and of a transaction that is open."""

    def __len__(self) -> int:
        return len(self.stored)

    @property
    def is_empty(self) -> bool:
        """Nothing stored and nothing on its way."""
        return not (self.stored or self._pending or self._transactional)

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        found = self.stored.get(partition)
        return None if found is None else found.committed

    def is_unstable(self, partition: TopicPartition) -> bool:
        """A commit, transactional or not, is on its way (OffsetFetch with RequireStable, KIP-447)."""
        return partition in self._pending or any(partition in each for each in self._transactional.values())

    # Commits on their way

    def stage(self, commits: Mapping[TopicPartition, CommittedOffset]) -> None:
        for partition, commit in commits.items():
            self._pending.setdefault(partition, []).append(commit)

    def complete(self, commits: Mapping[TopicPartition, CommittedOffset], log_offset: int) -> None:
        """The batch with these is in the log at `log_offset`. What `remove` took away meanwhile stays away."""
        for partition, commit in commits.items():
            if self._unstage(partition, commit):
                self.put(partition, commit, log_offset)

    def fail(self, commits: Mapping[TopicPartition, CommittedOffset]) -> None:
        for partition, commit in commits.items():
            self._unstage(partition, commit)

    def _unstage(self, partition: TopicPartition, commit: CommittedOffset) -> bool:
        staged = self._pending.get(partition, [])
        for index, each in enumerate(staged):
            if each is commit:
                del staged[index]
                if not staged:
                    del self._pending[partition]
                return True
        return False

    def put(self, partition: TopicPartition, commit: CommittedOffset, log_offset: int) -> None:
        """Takes a commit from the log unless a later one is known."""
        known = self.stored.get(partition)
        if known is None or known.log_offset <= log_offset:
            self.stored[partition] = StoredOffset(commit, log_offset)

    # Transactional commits (KIP-98): they count once the producer's commit marker is in the log. Whether the batch was
    # confirmed in time does not matter: a marker behind it that is committed says that the batch is.

    def put_transactional(
        self, producer_id: int, partition: TopicPartition, commit: CommittedOffset, log_offset: int
    ) -> None:
        """A commit has its place in the log."""
        self._transactional.setdefault(producer_id, {})[partition] = StoredOffset(commit, log_offset)

    def discard_transactional(self, producer_id: int, partition: TopicPartition) -> None:
        staged = self._transactional.get(producer_id)
        if staged is not None:
            staged.pop(partition, None)
            if not staged:
                del self._transactional[producer_id]

    def has_transactional(self, producer_id: int) -> bool:
        """Whether the producer has commits here that are not settled."""
        return producer_id in self._transactional

    def end_transaction(self, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        """A marker of the producer stands in the log at `marker_offset`: it settles the commits before it."""
        for partition, stored in list(self._transactional.get(producer_id, {}).items()):
            if stored.log_offset < marker_offset:
                self.discard_transactional(producer_id, partition)
                if is_commit:
                    self.put(partition, stored.committed, stored.log_offset)

    # Removal

    def discard(self, partition: TopicPartition) -> None:
        """A tombstone was read from the log. Compaction would remove the commits of open transactions before it too."""
        self.stored.pop(partition, None)
        for producer_id in list(self._transactional):
            self.discard_transactional(producer_id, partition)

    def known(self) -> list[TopicPartition]:
        """Partitions with a stored offset, a commit on its way, or one of an open transaction."""
        transactional = (partition for each in self._transactional.values() for partition in each)
        return list(dict.fromkeys([*self.stored, *self._pending, *transactional]))

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forgets these; gives those that have a record in the log, or on its way there: they need tombstones."""
        removed = []
        for partition in partitions:
            is_pending = self._pending.pop(partition, None) is not None
            is_known = partition in self.stored or any(partition in each for each in self._transactional.values())
            self.discard(partition)
            if is_pending or is_known:
                removed.append(partition)
        return removed

    def expired(self, rule: ExpiryRule, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Which stored offsets have outlived `offsets.retention.minutes` (KIP-211)."""
        found = []
        for partition, (commit, _) in self.stored.items():
            if partition.topic in rule.subscribed or self.is_unstable(partition):
                continue
            if commit.expire_timestamp_ms != NO_EXPIRE_TIMESTAMP:
                is_expired = now_ms >= commit.expire_timestamp_ms
            else:
                base_ms = commit.commit_timestamp_ms if rule.since_empty_ms is None else rule.since_empty_ms
                is_expired = now_ms - base_ms >= retention_ms
            if is_expired:
                found.append(partition)
        return found
