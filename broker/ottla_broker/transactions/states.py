"""The states of a transactional id and everything that depends on the state alone, as tables.

The machine (`machine.py`) asks these tables before any rule of its own. Pure.

    new ──InitProducerId──▶ Empty ◀──────────────────InitProducerId──────────────────┐
                              │                                                      │
             AddPartitionsToTxn, AddOffsetsToTxn                                     │
                              ▼                                                      │
                 ┌──────▶ Ongoing ──EndTxn (commit)──▶ PrepareCommit ──markers──▶ CompleteCommit
                 │         │    └────EndTxn (abort)──▶ PrepareAbort ──markers──▶ CompleteAbort
                 │         │                             ▲                           │
                 │         └──▶ PrepareEpochFence ───────┘                           │
                 │           InitProducerId, transaction timeout                     │
                 └────────────AddPartitionsToTxn, AddOffsetsToTxn────────────────────┘

With transaction.version 2 a producer may also abort before it has added a partition: Empty, CompleteCommit and
CompleteAbort then go to PrepareAbort (KIP-890).

PrepareEpochFence is never stored: the producer epoch is raised and PrepareAbort is appended in one step. Dead follows
Empty, CompleteCommit and CompleteAbort when the transactional id expires; its record is a tombstone.

Source: kafka.coordinator.transaction.TransactionState.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from types import MappingProxyType
from typing import NamedTuple

from ottla_broker.protocol.errors import ErrorCode


class TransactionState(IntEnum):
    """The value is the TransactionStatus of a record in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


STATE_NAMES = MappingProxyType(
    {
        TransactionState.EMPTY: "Empty",
        TransactionState.ONGOING: "Ongoing",
        TransactionState.PREPARE_COMMIT: "PrepareCommit",
        TransactionState.PREPARE_ABORT: "PrepareAbort",
        TransactionState.COMPLETE_COMMIT: "CompleteCommit",
        TransactionState.COMPLETE_ABORT: "CompleteAbort",
        TransactionState.DEAD: "Dead",
        TransactionState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
    }
)
"""The names on the wire (DescribeTransactions, ListTransactions)."""

PREVIOUS_STATES = MappingProxyType(
    {
        TransactionState.EMPTY: (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        ),
        TransactionState.ONGOING: (
            TransactionState.ONGOING,
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        ),
        TransactionState.PREPARE_COMMIT: (TransactionState.ONGOING,),
        TransactionState.PREPARE_ABORT: (
            TransactionState.ONGOING,
            TransactionState.PREPARE_EPOCH_FENCE,
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        ),
        TransactionState.COMPLETE_COMMIT: (TransactionState.PREPARE_COMMIT,),
        TransactionState.COMPLETE_ABORT: (TransactionState.PREPARE_ABORT,),
        TransactionState.DEAD: (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        ),
        TransactionState.PREPARE_EPOCH_FENCE: (TransactionState.ONGOING,),
    }
)
"""From which states a state may be entered."""

STORED_STATES = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
"""The states that a record may have. A transactional id is always in one of them; the other two are only passed."""

ENDING_STATES = MappingProxyType(
    {
        TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
        TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
    }
)
"""The states in which markers are written, and the state when all of them are."""

EXPIRABLE_STATES = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
"""In which a transactional id may expire (transactional.id.expiration.ms)."""


class InitAction(Enum):
    """What an InitProducerId does."""

    RAISE_EPOCH = "raise epoch"
    """Gives the next epoch, or a new producer id."""
    FENCE = "fence"
    """Aborts the open transaction with a raised epoch; the producer tries again."""
    WAIT = "wait"
    """CONCURRENT_TRANSACTIONS until the markers are written."""


INIT_ACTIONS = MappingProxyType(
    {
        TransactionState.EMPTY: InitAction.RAISE_EPOCH,
        TransactionState.ONGOING: InitAction.FENCE,
        TransactionState.PREPARE_COMMIT: InitAction.WAIT,
        TransactionState.PREPARE_ABORT: InitAction.WAIT,
        TransactionState.COMPLETE_COMMIT: InitAction.RAISE_EPOCH,
        TransactionState.COMPLETE_ABORT: InitAction.RAISE_EPOCH,
    }
)

ADD_ANSWERS = MappingProxyType(
    {
        TransactionState.EMPTY: ErrorCode.NONE,
        TransactionState.ONGOING: ErrorCode.NONE,
        TransactionState.PREPARE_COMMIT: ErrorCode.CONCURRENT_TRANSACTIONS,
        TransactionState.PREPARE_ABORT: ErrorCode.CONCURRENT_TRANSACTIONS,
        TransactionState.COMPLETE_COMMIT: ErrorCode.NONE,
        TransactionState.COMPLETE_ABORT: ErrorCode.NONE,
    }
)
"""Whether partitions are added to the transaction, or verified, for its current producer (AddPartitionsToTxn)."""


class EndAnswer(Enum):
    """What an EndTxn of the current producer is answered."""

    PREPARE = "prepare"
    """The decision is stored, then answered with NONE."""
    REPEATED = "repeated"
    """NONE: it has ended that way."""
    IN_PROGRESS = "in progress"
    """CONCURRENT_TRANSACTIONS: it is ending, one way or the other; the producer hears which when it has ended."""
    INVALID = "invalid"
    """INVALID_TXN_STATE: there is nothing to end, or it has ended the other way."""
    FENCED = "fenced"
    """PRODUCER_FENCED: the epoch is not one that may end a transaction in this state."""


COMMIT_ANSWERS = MappingProxyType(
    {
        TransactionState.EMPTY: EndAnswer.INVALID,
        TransactionState.ONGOING: EndAnswer.PREPARE,
        TransactionState.PREPARE_COMMIT: EndAnswer.IN_PROGRESS,
        TransactionState.PREPARE_ABORT: EndAnswer.IN_PROGRESS,
        TransactionState.COMPLETE_COMMIT: EndAnswer.REPEATED,
        TransactionState.COMPLETE_ABORT: EndAnswer.INVALID,
    }
)
"""EndTxn that commits."""

ABORT_ANSWERS = MappingProxyType(
    {
        TransactionState.EMPTY: EndAnswer.INVALID,
        TransactionState.ONGOING: EndAnswer.PREPARE,
        TransactionState.PREPARE_COMMIT: EndAnswer.IN_PROGRESS,
        TransactionState.PREPARE_ABORT: EndAnswer.IN_PROGRESS,
        TransactionState.COMPLETE_COMMIT: EndAnswer.INVALID,
        TransactionState.COMPLETE_ABORT: EndAnswer.REPEATED,
    }
)
"""EndTxn that aborts."""


class EndAnswers(NamedTuple):
    """What an EndTxn of transaction.version 2 is answered, where each transaction ends with a raised epoch (KIP-890).

    The epoch says which transaction is meant: that before the current one is of a request that is sent again.
    """

    repeated: EndAnswer
    current: EndAnswer


COMMIT_ANSWERS_2 = MappingProxyType(
    {
        TransactionState.EMPTY: EndAnswers(EndAnswer.FENCED, EndAnswer.INVALID),
        TransactionState.ONGOING: EndAnswers(EndAnswer.FENCED, EndAnswer.PREPARE),
        TransactionState.PREPARE_COMMIT: EndAnswers(EndAnswer.IN_PROGRESS, EndAnswer.FENCED),
        TransactionState.PREPARE_ABORT: EndAnswers(EndAnswer.IN_PROGRESS, EndAnswer.FENCED),
        TransactionState.COMPLETE_COMMIT: EndAnswers(EndAnswer.REPEATED, EndAnswer.INVALID),
        TransactionState.COMPLETE_ABORT: EndAnswers(EndAnswer.INVALID, EndAnswer.INVALID),
    }
)
"""EndTxn of version 2 that commits."""

ABORT_ANSWERS_2 = MappingProxyType(
    {
        TransactionState.EMPTY: EndAnswers(EndAnswer.FENCED, EndAnswer.PREPARE),
        TransactionState.ONGOING: EndAnswers(EndAnswer.FENCED, EndAnswer.PREPARE),
        TransactionState.PREPARE_COMMIT: EndAnswers(EndAnswer.IN_PROGRESS, EndAnswer.FENCED),
        TransactionState.PREPARE_ABORT: EndAnswers(EndAnswer.IN_PROGRESS, EndAnswer.FENCED),
        TransactionState.COMPLETE_COMMIT: EndAnswers(EndAnswer.INVALID, EndAnswer.PREPARE),
        TransactionState.COMPLETE_ABORT: EndAnswers(EndAnswer.REPEATED, EndAnswer.PREPARE),
    }
)
"""EndTxn of version 2 that aborts."""


def can_enter(target: TransactionState, current: TransactionState) -> bool:
    """
    >>> can_enter(TransactionState.PREPARE_COMMIT, TransactionState.EMPTY)
    False
    """
    return current in PREVIOUS_STATES[target]
