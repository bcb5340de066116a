"""What is wrong with the transactions of a history. Pure: events in, findings out.

Clients append unique values to lists and read them (`list appends`); others copy the topic that everybody reads to a
second one, and commit their offsets in the same transaction (`copies`). A reader called FINAL reads all lists, and the
copy, with read_committed when all is over.

| class | what is found |
|---|---|
| txn-G1a | a value was read of a transaction that aborted, or whose client died before it asked to commit |
| txn-G1c | transactions saw each other |
| txn-incompatible-order, txn-duplicate-elements, txn-unknown-value | as in `elle` |
| txn-lost-write | a transaction committed, and the last reader does not find one of its values |
| txn-partial | of a transaction with an unknown outcome the last reader finds some values, and not others |
| copy-lost | a record was never copied |
| copy-duplicate | a record was copied twice |
| copy-unknown | a copy of what is not there |
| copy-order | the copies stand in another order than the records |
| copy-offset | the group's offset is not the end of what it has copied |

Kafka does not promise that the writes of two transactions to a partition do not interleave (G0), nor that a poll ends
where a transaction does (G1b); that all of a transaction is there or nothing is asked of the last reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tests.nemesis import elle
from tests.nemesis.checker import FINAL, Finding
from tests.nemesis.history import Committed, Copied, Event, Polled, Transacted

LOST_WRITE = "txn-lost-write"
PARTIAL = "txn-partial"
COPY_LOST = "copy-lost"
COPY_DUPLICATE = "copy-duplicate"
COPY_UNKNOWN = "copy-unknown"
COPY_ORDER = "copy-order"
COPY_OFFSET = "copy-offset"
_OF_ELLE = (elle.G1A, elle.G1C, elle.INCOMPATIBLE_ORDER, elle.DUPLICATE_ELEMENTS, elle.UNKNOWN_VALUE)
_PREFIX = "txn-"
CLASSES = (
    *(_PREFIX + kind for kind in _OF_ELLE),
    LOST_WRITE,
    PARTIAL,
    COPY_LOST,
    COPY_DUPLICATE,
    COPY_UNKNOWN,
    COPY_ORDER,
    COPY_OFFSET,
)
_SHOWN = 5


def findings(events: Iterable[Event]) -> list[Finding]:
    """Everything wrong with transactions, in the order of CLASSES. A history without transactions has nothing wrong.

    Raises:
        ValueError: two transactions have one number, or append one value to one key.
    """
    history = list(events)
    ended = [event for event in history if isinstance(event, Transacted)]
    found = [Finding(_PREFIX + one.kind, one.what) for one in _of_elle(ended)]
    found += _appends(ended)
    found += _copies(history)
    return sorted(found, key=lambda one: CLASSES.index(one.kind))


def _of_elle(ended: list[Transacted]) -> Iterator[elle.Finding]:
    """A value that must not be read is told of once: whoever reads the list later reads it too."""
    known: set[str] = set()
    for one in elle.findings(_transactions(ended), has_write_order=False):
        _, _, value = one.what.partition(" read ")
        if one.kind in _OF_ELLE and not (one.kind in (elle.G1A, elle.UNKNOWN_VALUE) and value in known):
            known.add(value)
            yield one


def _transactions(ended: list[Transacted]) -> Iterator[elle.Transaction]:
    """What a client read in a transaction that did not commit was read all the same: it stands for itself, as T-17
    beside T17.

    Reads come first: no client reads its own values before it has committed them.
    """
    for event in ended:
        outcome = elle.Outcome(event.outcome)
        reads = tuple(elle.Read(key, values) for key, values in event.reads)
        appends = tuple(elle.Append(key, value) for key, value in event.appends)
        if outcome is elle.Outcome.OK or not reads:
            yield elle.Transaction(event.number, outcome, (*reads, *appends))
        else:
            yield elle.Transaction(event.number, outcome, appends)
            yield elle.Transaction(-event.number, elle.Outcome.OK, reads)


def _appends(ended: list[Transacted]) -> Iterator[Finding]:
    final = [event for event in ended if event.by == FINAL]
    if not final:
        return
    present = {(key, value) for event in final for key, values in event.reads for value in values}
    for event in ended:
        missing = [f"{key}={value}" for key, value in event.appends if (key, value) not in present]
        if not missing:
            continue
        name = f"T{event.number} of {event.by}, begun at {event.began:.3f}"
        if event.outcome == elle.Outcome.OK.value:
            yield Finding(LOST_WRITE, f"{name}, committed at {event.at:.3f}: {_some(missing)} not there")
        elif event.outcome == elle.Outcome.INFO.value and len(missing) < len(event.appends):
            there = [f"{key}={value}" for key, value in event.appends if (key, value) in present]
            yield Finding(PARTIAL, f"{name}: {_some(there)} there, {_some(missing)} not")


def _copies(history: list[Event]) -> Iterator[Finding]:
    copied = {event.partition: event.values for event in history if isinstance(event, Copied)}
    committed = {event.partition: event.offset for event in history if isinstance(event, Committed)}
    if not copied:
        return
    records: dict[int, dict[int, str]] = {partition: {} for partition in copied}
    for event in history:
        if isinstance(event, Polled) and event.by == FINAL:
            records.setdefault(event.partition, {}).update(event.records)
    for partition in sorted(records):
        source = [value for _, value in sorted(records[partition].items())]
        copies = copied.get(partition, ())
        yield from _compared(partition, source, copies)
        end = max(records[partition], default=-1) + 1
        if (committed.get(partition) or 0) != end:
            what = f"{partition}: the group is at offset {committed.get(partition)}, the records end at {end}"
            yield Finding(COPY_OFFSET, what)


def _compared(partition: int, source: list[str], copies: tuple[str, ...]) -> Iterator[Finding]:
    counts = Counter(copies)
    known = set(source)
    lost = [value for value in source if value not in counts]
    if lost:
        yield Finding(COPY_LOST, f"{partition}: {len(lost)} never copied: {_some(lost)}")
    doubled = [value for value, count in counts.items() if count > 1]
    if doubled:
        yield Finding(COPY_DUPLICATE, f"{partition}: {len(doubled)} copied more than once: {_some(doubled)}")
    unknown = [value for value in counts if value not in known]
    if unknown:
        yield Finding(COPY_UNKNOWN, f"{partition}: {len(unknown)} copies of what is not there: {_some(unknown)}")
    if not lost and not doubled and not unknown:
        for was, copy in zip(source, copies, strict=True):
            if was != copy:
                yield Finding(COPY_ORDER, f"{partition}: a copy of {copy} stands where {was} comes next")
                return


def _some(values: list[str]) -> str:
    return ", ".join(values[:_SHOWN]) + (f" … {len(values)} in all" if len(values) > _SHOWN else "")
