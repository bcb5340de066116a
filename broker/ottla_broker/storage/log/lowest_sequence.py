"""The lowest sequence of a producer's batches that came to a log and are not in it. Pure.

The order of sequences is here too: 0 follows 2^31-1.
Source: VerificationStateEntry of Apache Kafka.
"""

from __future__ import annotations

from ottla_broker.records.batch import MAX_SEQUENCE


class LowestSequence:
    """The lowest sequence of one epoch of a producer: a newer epoch begins with sequences of its own."""

    __slots__ = ("producer_epoch", "sequence")

    def __init__(self, producer_epoch: int, sequence: int) -> None:
        self.producer_epoch = producer_epoch
        self.sequence = sequence

    def add(self, producer_epoch: int, sequence: int) -> None:
        """Another batch has come.

        >>> lowest = LowestSequence(3, 20)
        >>> lowest.add(3, 10); lowest.add(3, 30); lowest.add(2, 0); lowest.sequence
        10
        >>> lowest.add(4, 15); lowest.sequence
        15
        """
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.sequence = sequence
        elif producer_epoch == self.producer_epoch and is_before(sequence, self.sequence):
            self.sequence = sequence


def is_before(sequence: int, other: int) -> bool:
    """Whether a sequence comes before another one; 0 follows 2^31-1.

    >>> is_before(3, 4), is_before(4, 4), is_before(2**31 - 1, 0), is_before(0, 2**31 - 1)
    (True, False, True, False)
    """
    return 0 < (other - sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2
