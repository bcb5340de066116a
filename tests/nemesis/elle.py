"""What is wrong with a history of transactions that append to lists and read them: Adya's anomalies, as Elle has them.

Pure: transactions in, findings out. A key is a list (a partition of a topic), an append adds a value that nobody else
appends to that key, a read sees the whole list from its beginning. So the longest read of a key tells the order of its
versions, and each value names the transaction that wrote it. From that follow the dependencies:

    ww  T1 -> T2   T2 appended the value that comes next behind one of T1
    wr  T1 -> T2   T2 read a list that ends with a value of T1

| kind | what is found |
|---|---|
| G0 | a cycle of ww alone: the writes of transactions interleave |
| G1a | an aborted read: a value of a transaction that failed was read |
| G1b | an intermediate read: a list was read that ends in the middle of what another transaction appended to it |
| G1c | a cycle of ww and wr with at least one wr: two transactions saw each other |
| internal | a transaction read a list that does not continue what it had read and appended itself |
| incompatible-order | two reads of one key, and neither is a beginning of the other |
| duplicate-elements | a value stands twice in a read |
| unknown-value | a value was read that nobody appended |

A transaction whose outcome is unknown (INFO) may have committed: what was read of it counts as written, and its own
reads count for nothing. Of a failed one nothing may be seen; whoever reads it has read aborted data, whatever else.

Apache Kafka promises neither that the records of two transactions do not interleave in a partition (G0) nor that a poll
ends where a transaction does (G1b): it promises that there is no G1a, and no G1c of wr alone. With `has_write_order`
false ww does not count, and this is what is checked; whose reads are polls leaves G1b aside.

Source: Adya, Weak Consistency (1999); Kingsbury and Alvaro, Elle (2020). The code follows the definitions, not theirs.

Worked example: T2 reads what T1 appends, and T1 what T2 appends.

>>> t1 = Transaction(1, Outcome.OK, (Append("x", 1), Read("y", (2,))))
>>> t2 = Transaction(2, Outcome.OK, (Append("y", 2), Read("x", (1,))))
>>> [str(one) for one in findings([t1, t2])]
['G1c: T1 -wr x=1-> T2 -wr y=2-> T1']
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

G0 = "G0"
G1A = "G1a"
G1B = "G1b"
G1C = "G1c"
INTERNAL = "internal"
INCOMPATIBLE_ORDER = "incompatible-order"
DUPLICATE_ELEMENTS = "duplicate-elements"
UNKNOWN_VALUE = "unknown-value"
KINDS = (DUPLICATE_ELEMENTS, INCOMPATIBLE_ORDER, UNKNOWN_VALUE, INTERNAL, G0, G1A, G1B, G1C)
"""In the order in which findings come: the first ones say that the order of versions is not to be trusted."""


class Outcome(Enum):
    """What the client was told of a transaction's end."""

    OK = "ok"
    FAIL = "fail"
    """Certainly aborted."""
    INFO = "info"
    """Committed or aborted, nobody knows."""


class Append(NamedTuple):
    key: str
    value: int


class Read(NamedTuple):
    key: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction: its operations in their order."""

    number: int
    outcome: Outcome
    operations: tuple[Append | Read, ...]

    def __str__(self) -> str:
        return f"T{self.number}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: its kind, and a sentence that names the transactions."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


class _Edge(NamedTuple):
    kind: str
    """ww or wr."""
    key: str
    value: int
    """The value of the first transaction that the second one follows or has read."""
    target: int


_Graph = dict[int, list[_Edge]]


@dataclass(slots=True)
class _History:
    """What is known of the whole history before anything is concluded."""

    transactions: dict[int, Transaction]
    writers: dict[tuple[str, int], Transaction] = field(default_factory=dict)
    last_appends: dict[tuple[int, str], int] = field(default_factory=dict)
    """(transaction, key) -> the last value that it appended to it."""
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The longest read of each key."""


def findings(history: Iterable[Transaction], *, has_write_order: bool = True) -> list[Finding]:
    """Everything wrong with a history, in the order of KINDS.

    Args:
        history: the transactions, in any order.
        has_write_order: the system promises that one transaction writes before or after another; without, ww does not
            count, and there is no G0.

    Raises:
        ValueError: two transactions have one number, or append one value to one key.
    """
    known = _known(history)
    found = [*_reads(known)]
    graph = _dependencies(known, has_write_order)
    found += _cycles(graph, G0, lambda edge: edge.kind == "ww", lambda edge: True)
    found += _cycles(graph, G1C, lambda edge: True, lambda edge: edge.kind == "wr")
    return sorted(found, key=lambda one: KINDS.index(one.kind))


def _known(history: Iterable[Transaction]) -> _History:
    known = _History({})
    for transaction in history:
        if transaction.number in known.transactions:
            raise ValueError(f"two transactions are called {transaction}")
        known.transactions[transaction.number] = transaction
        for operation in transaction.operations:
            if isinstance(operation, Append):
                if (writer := known.writers.get((operation.key, operation.value))) is not None:
                    raise ValueError(f"{operation.value} is appended to {operation.key} twice, by {writer} first")
                known.writers[operation.key, operation.value] = transaction
                known.last_appends[transaction.number, operation.key] = operation.value
            elif transaction.outcome is Outcome.OK and len(operation.values) > len(known.orders.get(operation.key, ())):
                known.orders[operation.key] = operation.values
    return known


def _committed_reads(known: _History) -> Iterator[tuple[Transaction, Read]]:
    for transaction in known.transactions.values():
        if transaction.outcome is Outcome.OK:
            for operation in transaction.operations:
                if isinstance(operation, Read):
                    yield transaction, operation


def _reads(known: _History) -> Iterator[Finding]:
    """What a single read shows."""
    for reader, (key, values) in _committed_reads(known):
        repeated = [value for value, count in Counter(values).items() if count > 1]
        if repeated:
            yield Finding(DUPLICATE_ELEMENTS, f"{reader} read {key} with {repeated} more than once")
        order = known.orders[key] if values else ()
        if values != order[: len(values)]:
            yield Finding(INCOMPATIBLE_ORDER, f"{reader} read {key} as {list(values)}, another as {list(order)}")
        for value in dict.fromkeys(values):
            writer = known.writers.get((key, value))
            if writer is None:
                yield Finding(UNKNOWN_VALUE, f"{reader} read {key}={value}, which nobody appended")
            elif writer.outcome is Outcome.FAIL:
                yield Finding(G1A, f"{reader} read {key}={value} of {writer}, which failed")
        if values and (writer := known.writers.get((key, values[-1]))) is not None and writer is not reader:
            last = known.last_appends[writer.number, key]
            if last != values[-1]:
                yield Finding(G1B, f"{reader} read {key} up to {values[-1]} of {writer}, which went on to {last}")
    for transaction in known.transactions.values():
        if transaction.outcome is Outcome.OK:
            yield from _internal(transaction)


def _internal(transaction: Transaction) -> Iterator[Finding]:
    """What a transaction has seen and done itself must be in what it reads later, in that order."""
    seen: dict[str, tuple[int, ...]] = {}
    appended: dict[str, tuple[int, ...]] = defaultdict(tuple)
    """Since the last read, or since the beginning."""
    for operation in transaction.operations:
        key = operation.key
        if isinstance(operation, Append):
            appended[key] += (operation.value,)
            continue
        own = appended.pop(key, ())
        before = seen.get(key)
        is_as_expected = operation.values[len(operation.values) - len(own) :] == own if own else True
        if before is not None:
            is_as_expected = operation.values == before + own
        if not is_as_expected:
            expected = f"to end with {list(own)}" if before is None else str(list(before + own))
            yield Finding(INTERNAL, f"{transaction} read {key} as {list(operation.values)}, expected {expected}")
        seen[key] = operation.values


def _dependencies(known: _History, has_write_order: bool) -> _Graph:
    """The edges by the number of the transaction that they leave, without those from a transaction to itself."""
    graph: dict[int, dict[_Edge, None]] = defaultdict(dict)

    def add(source: Transaction | None, target: Transaction | None, kind: str, key: str, value: int) -> None:
        if source is not None and target is not None and source is not target:
            graph[source.number][_Edge(kind, key, value, target.number)] = None

    if has_write_order:
        for key, order in known.orders.items():
            for value, following in pairwise(order):
                add(known.writers.get((key, value)), known.writers.get((key, following)), "ww", key, value)
    for reader, (key, values) in _committed_reads(known):
        if values:
            add(known.writers.get((key, values[-1])), reader, "wr", key, values[-1])
    return {number: list(edges) for number, edges in graph.items()}


def _cycles(
    graph: _Graph, kind: str, belongs: Callable[[_Edge], bool], begins: Callable[[_Edge], bool]
) -> list[Finding]:
    """One shortest cycle of each strongly connected component that has one through an edge that `begins` it."""
    edges = {number: [edge for edge in leaving if belongs(edge)] for number, leaving in graph.items()}
    found = []
    for component in _components(edges):
        members = set(component)
        best: list[tuple[int, _Edge]] | None = None
        for source in sorted(members):
            for edge in edges.get(source, ()):
                if edge.target not in members or not begins(edge):
                    continue
                path = _path(edges, members, edge.target, source)
                if path is not None and (best is None or len(path) + 1 < len(best)):
                    best = [(source, edge), *path]
        if best is not None:
            steps = "".join(f"T{number} -{edge.kind} {edge.key}={edge.value}-> " for number, edge in best)
            found.append(Finding(kind, f"{steps}T{best[0][0]}"))
    return found


def _path(edges: _Graph, members: set[int], source: int, target: int) -> list[tuple[int, _Edge]] | None:
    """A shortest path within a component, as (transaction, edge that leaves it)."""
    reached: dict[int, tuple[int, _Edge] | None] = {source: None}
    waiting = deque([source])
    while waiting:
        number = waiting.popleft()
        if number == target:
            steps: list[tuple[int, _Edge]] = []
            step = reached[number]
            while step is not None:
                steps.append(step)
                step = reached[step[0]]
            return steps[::-1]
        for edge in edges.get(number, ()):
            if edge.target in members and edge.target not in reached:
                reached[edge.target] = (number, edge)
                waiting.append(edge.target)
    return None


def _components(edges: _Graph) -> list[Sequence[int]]:
    """The strongly connected components of more than one transaction (Tarjan, without recursion)."""
    found: list[Sequence[int]] = []
    index: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in sorted(edges):
        if root in index:
            continue
        index[root] = lowest[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        visits = [(root, iter(edges.get(root, ())))]
        while visits:
            number, leaving = visits[-1]
            for edge in leaving:
                target = edge.target
                if target not in index:
                    index[target] = lowest[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    visits.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_stack:
                    lowest[number] = min(lowest[number], index[target])
            else:
                visits.pop()
                if visits:
                    parent = visits[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[number])
                if lowest[number] == index[number]:
                    component: list[int] = []
                    while not component or component[-1] != number:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    if len(component) > 1:
                        found.append(component)
    return found
