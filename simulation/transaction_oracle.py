"""The oracle of transactions: what clients did in each, what they were told, and what may be seen of it.

A transaction is one of these, by what its producer knows:

    OPEN       no commit has been asked for: nothing of it may ever be seen
    ENDING     a commit has been asked for, and nobody knows its outcome: all of it is seen in the end, or nothing
    COMMITTED  all of it is seen, once, and its offsets are the group's unless a later one of them is
    ABORTED    nothing of it is ever seen

A producer with a transactional id has one transaction after the other. Whoever is given a later producer epoch has
ended those of the earlier ones. Plain values come in, a `Violation` is raised. Nothing here looks into a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from simulation.checker import Partition, Violation


class TransactionOutcome(Enum):
    """See the module."""

    OPEN = "open"
    ENDING = "ending"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class ProducerTransaction:
    """One transaction of one producer."""

    transactional_id: str
    number: int
    """Among those of its transactional id, by their beginning."""
    producer_epoch: int
    outcome: TransactionOutcome = TransactionOutcome.OPEN
    why: str = ""
    records: dict[Partition, list[str]] = field(default_factory=dict)
    """Those that were acknowledged."""
    offsets: dict[str, int] = field(default_factory=dict)
    """Name of a record → where it was acknowledged."""
    delivered: dict[str, tuple[Partition, int]] = field(default_factory=dict)
    """Name of a record → where a consumer has read it."""
    group_offset: int | None = None
    """What it commits for the group of its transactional id, once that was acknowledged."""

    def __str__(self) -> str:
        return f"{self.transactional_id}.{self.number}"


class TransactionOracle:
    """What is known of the transactions of one run."""

    def __init__(self) -> None:
        self._transactions: dict[str, list[ProducerTransaction]] = {}
        """By transactional id, in the order of their numbers."""
        self._epochs: dict[str, int] = {}
        """By transactional id: the latest producer epoch that was given."""
        self._asked: dict[str, int] = {}
        """By transactional id: how often a producer has asked for an epoch."""
        self.committed_count = 0
        self.aborted_count = 0
        self.acknowledged_count = 0
        self.delivered_count = 0
        self.kept_count = 0

    # -- what producers tell ----------------------------------------------------------------------------------------

    def begin(self, transactional_id: str, producer_epoch: int) -> ProducerTransaction:
        """A producer begins a transaction; it will come to nothing when the producer is fenced already."""
        known = self._transactions.setdefault(transactional_id, [])
        transaction = ProducerTransaction(transactional_id, len(known), producer_epoch)
        known.append(transaction)
        if producer_epoch < self._epochs.get(transactional_id, -1):
            self.aborted(transaction, "its producer had been fenced before")
        return transaction

    def name_of(self, transaction: ProducerTransaction, index: int) -> str:
        """The name of a record: its value."""
        return f"{transaction}/{index}"

    def acknowledged(
        self, transaction: ProducerTransaction, partition: Partition, names: Sequence[str], offset: int
    ) -> None:
        """Records were acknowledged; `offset` is the first one's, -1 when it is not told."""
        transaction.records.setdefault(partition, []).extend(names)
        self.acknowledged_count += len(names)
        if offset >= 0:
            for at, name in enumerate(names, offset):
                transaction.offsets[name] = at

    def commit_asked(self, transaction: ProducerTransaction) -> None:
        """An EndTxn is about to leave."""
        if transaction.outcome is TransactionOutcome.OPEN:
            transaction.outcome = TransactionOutcome.ENDING

    def committed(self, transaction: ProducerTransaction, why: str) -> None:
        if transaction.outcome is TransactionOutcome.ABORTED:
            raise Violation(f"{transaction} is committed ({why}) and was aborted ({transaction.why})")
        if transaction.outcome is not TransactionOutcome.COMMITTED:
            self.committed_count += 1
            transaction.outcome, transaction.why = TransactionOutcome.COMMITTED, why

    def aborted(self, transaction: ProducerTransaction, why: str) -> None:
        if transaction.outcome is TransactionOutcome.COMMITTED:
            raise Violation(f"{transaction} is aborted ({why}) and was committed ({transaction.why})")
        if transaction.delivered:
            name, (partition, offset) = next(iter(transaction.delivered.items()))
            raise Violation(f"{transaction} is aborted ({why}), {name} was read at {_text(partition)} {offset}")
        if transaction.outcome is not TransactionOutcome.ABORTED:
            self.aborted_count += 1
            transaction.outcome, transaction.why = TransactionOutcome.ABORTED, why

    def asks_for_an_epoch(self, transactional_id: str) -> int:
        """A producer is about to ask for an epoch: it fences the others, whenever its coordinator hears of it. Gives
        what `is_latest` takes."""
        self._asked[transactional_id] = self._asked.get(transactional_id, 0) + 1
        return self._asked[transactional_id]

    def is_latest(self, transactional_id: str, asked: int) -> bool:
        """Whether no other producer has asked for an epoch since."""
        return self._asked[transactional_id] == asked

    def initialized(self, transactional_id: str, producer_epoch: int) -> None:
        """A producer was given an epoch: those with earlier ones can begin a commit no more."""
        self._epochs[transactional_id] = max(producer_epoch, self._epochs.get(transactional_id, -1))
        for transaction in self._transactions.get(transactional_id, ()):
            if transaction.producer_epoch < producer_epoch and transaction.outcome is TransactionOutcome.OPEN:
                self.aborted(transaction, f"producer epoch {producer_epoch} has fenced it")

    def kept(self, transactional_id: str, producer_epoch: int, *, is_commit: bool) -> None:
        """A producer was given an open transaction of that epoch to end; what is decided is committed in the oracle."""
        known = self._transactions.get(transactional_id, ())
        found = [one for one in known if one.producer_epoch == producer_epoch]
        if not found:
            raise Violation(f"an open transaction of epoch {producer_epoch} was kept, nobody has begun it")
        self.kept_count += 1
        decided = [one for one in found if one.outcome is TransactionOutcome.COMMITTED]
        if decided and not is_commit:
            raise Violation(f"{decided[0]} is to be aborted, and was committed ({decided[0].why})")

    # -- what others see --------------------------------------------------------------------------------------------

    def delivered(self, partition: Partition, offset: int, name: str) -> None:
        """A read_committed consumer was given a record."""
        transaction = self._of(name)
        if transaction.outcome in (TransactionOutcome.OPEN, TransactionOutcome.ABORTED):
            raise Violation(
                f"{name} was read at {_text(partition)} {offset}: its transaction is {transaction.outcome.value}"
                f" ({transaction.why})"
            )
        self.delivered_count += 1
        place = transaction.delivered.setdefault(name, (partition, offset))
        if place != (partition, offset):
            raise Violation(f"{name} was read at {_text(place[0])} {place[1]} and at {_text(partition)} {offset}")
        self._check_place(transaction, name, offset)

    def group_offset(
        self, transactional_id: str, producer_epoch: int, offset: int, *, may_be_old: bool = False
    ) -> None:
        """A producer that was given its epoch has read its group's offset, with require_stable; -1 for none.

        `may_be_old`: a coordinator that was replaced and does not know it yet may have answered. It has what was
        committed before. An OffsetFetch stores nothing, so nothing tells it: Apache Kafka's coordinator answers from
        memory as well (GroupMetadataManager.getOffsets).
        """
        known = self._transactions.get(transactional_id, [])
        found = next((one for one in known if one.group_offset == offset), None)
        if found is None and offset != -1:
            raise Violation(f"the group of {transactional_id} has offset {offset}, which nobody committed")
        number = -1 if found is None else found.number
        if found is not None:
            self.committed(found, f"its offset {offset} is the group's")
        if may_be_old:
            return
        for transaction in known[number + 1 :]:
            if transaction.group_offset is None or transaction.producer_epoch >= producer_epoch:
                continue
            if transaction.outcome is TransactionOutcome.COMMITTED:
                raise Violation(
                    f"the group of {transactional_id} has offset {offset}, {transaction} is committed"
                    f" ({transaction.why}) with {transaction.group_offset}"
                )
            self.aborted(transaction, f"the group's offset is {offset}")

    # -- the end ----------------------------------------------------------------------------------------------------

    def contents(self, found: Mapping[Partition, Iterable[tuple[int, str]]], group_offsets: Mapping[str, int]) -> None:
        """All that read_committed consumers see in the end, and the offset of each transactional id's group (-1: none).

        Every transaction must have ended.
        """
        seen: dict[str, tuple[Partition, int]] = {}
        for partition, records in found.items():
            latest: dict[str, tuple[int, int, str]] = {}
            for offset, name in records:
                if name in seen:
                    raise Violation(f"{name} stands at {_text(seen[name][0])} {seen[name][1]} and at {offset}")
                seen[name] = (partition, offset)
                transaction = self._of(name)
                before = latest.get(transaction.transactional_id)
                place = (transaction.number, int(name.rpartition("/")[2]), name)
                if before is not None and before[:2] > place[:2]:
                    raise Violation(f"{_text(partition)}: {name} at {offset} comes after {before[2]}")
                latest[transaction.transactional_id] = place
        for transactional_id, known in self._transactions.items():
            committed = [one for one in known if self._check_whole(one, seen)]
            expected = [one.group_offset for one in committed if one.group_offset is not None]
            if transactional_id in group_offsets:
                offset = group_offsets[transactional_id]
                if offset != (expected[-1] if expected else -1):
                    raise Violation(
                        f"the group of {transactional_id} has offset {offset}, its last committed transaction"
                        f" has {expected[-1] if expected else 'none'}"
                    )

    def _check_whole(self, transaction: ProducerTransaction, seen: dict[str, tuple[Partition, int]]) -> bool:
        """Whether the transaction has committed; all of it must have, or nothing."""
        names = [(partition, name) for partition, listed in transaction.records.items() for name in listed]
        visible = [name for partition, name in names if seen.get(name, ("", -1))[0] == partition]
        for name in visible:
            self._check_place(transaction, name, seen[name][1])
        for name, place in transaction.delivered.items():
            if seen.get(name) != place:
                raise Violation(f"{name} was read at {_text(place[0])} {place[1]}, now it is {seen.get(name)}")
        if transaction.outcome in (TransactionOutcome.OPEN, TransactionOutcome.ABORTED):
            if visible:
                raise Violation(f"{visible[0]} can be read, {transaction} was aborted ({transaction.why})")
            return False
        missing = [name for _, name in names if name not in visible]
        if missing and (visible or transaction.outcome is TransactionOutcome.COMMITTED):
            raise Violation(
                f"{transaction} is {transaction.outcome.value} ({transaction.why}): {len(visible)} records can be read,"
                f" {len(missing)} cannot, the first {missing[0]}"
            )
        return bool(visible) or transaction.outcome is TransactionOutcome.COMMITTED

    def _check_place(self, transaction: ProducerTransaction, name: str, offset: int) -> None:
        told = transaction.offsets.get(name, offset)
        if told != offset:
            raise Violation(f"{name} was acknowledged at {told} and is at {offset}")

    def _of(self, name: str) -> ProducerTransaction:
        transactional_id, _, number = name.rpartition("/")[0].rpartition(".")
        known = self._transactions.get(transactional_id, [])
        if not number.isdigit() or int(number) >= len(known):
            raise Violation(f"a record {name} can be read that nobody sent")
        return known[int(number)]


def _text(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"
