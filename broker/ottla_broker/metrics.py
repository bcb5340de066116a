"""The metrics registry of one broker.

Names come from Kafka's MBeans by the rule in `docs/reference/metrics.md`. The objects handed out are plain slots that
the hot path bumps without a lock or a label look-up (everything runs on one loop); `exposition.py` makes Prometheus
samples of them when /metrics is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

LATENCY_BUCKETS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        self.value += amount


class Gauge:
    """Either set, or read from `function` when somebody looks."""

    __slots__ = ("_function", "_value")

    def __init__(self, function: Callable[[], float] | None) -> None:
        self._function = function
        self._value = 0.0

    def set(self, value: float) -> None:
        self._value = value

    @property
    def value(self) -> float:
        return self._function() if self._function is not None else self._value


class Histogram:
    """Counts observations, in seconds unless the name says otherwise, per bucket."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Family:
    """All metrics of one name, by their label values."""

    __slots__ = ("children", "help", "kind", "label_names")

    def __init__(self, kind: type, help_text: str, label_names: tuple[str, ...]) -> None:
        self.kind = kind
        self.help = help_text
        self.label_names = label_names
        self.children: dict[tuple[str, ...], Counter | Gauge | Histogram] = {}


class SourceFamily(NamedTuple):
    """All samples of one name, with labels of their own each."""

    name: str
    help: str
    is_counter: bool
    samples: Sequence[tuple[Mapping[str, str], float]]


class Metrics:
    """Asking twice for one name and labels gives the same object; another kind or label set is a ValueError."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self.sources: list[Callable[[], Iterable[SourceFamily]]] = []
        """Asked for more when /metrics is read: what others measure, whose labels nobody knows before."""

    def add_source(self, source: Callable[[], Iterable[SourceFamily]]) -> None:
        """`source` is called whenever /metrics is read; no name of its families is one of `families`."""
        self.sources.append(source)

    def counter(self, name: str, help_text: str, **labels: str) -> Counter:
        child = self._child(Counter, name, help_text, labels, Counter)
        assert isinstance(child, Counter)
        return child

    def gauge(self, name: str, help_text: str, function: Callable[[], float] | None = None, **labels: str) -> Gauge:
        child = self._child(Gauge, name, help_text, labels, lambda: Gauge(function))
        assert isinstance(child, Gauge)
        return child

    def histogram(
        self, name: str, help_text: str, bounds: tuple[float, ...] = LATENCY_BUCKETS_S, **labels: str
    ) -> Histogram:
        child = self._child(Histogram, name, help_text, labels, lambda: Histogram(bounds))
        assert isinstance(child, Histogram)
        return child

    def remove(self, name: str, **labels: str) -> None:
        """Forgets one labelled metric (a deleted topic's); an unknown one is fine."""
        family = self.families.get(name)
        if family is not None:
            family.children.pop(tuple(labels.get(label, "") for label in family.label_names), None)

    def _child(
        self,
        kind: type,
        name: str,
        help_text: str,
        labels: dict[str, str],
        make: Callable[[], Counter | Gauge | Histogram],
    ) -> Counter | Gauge | Histogram:
        label_names = tuple(sorted(labels))
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = Family(kind, help_text, label_names)
        elif family.kind is not kind or family.label_names != label_names:
            raise ValueError(f"metric {name} is a {family.kind.__name__} with labels {family.label_names}")
        key = tuple(str(labels[label]) for label in label_names)
        child = family.children.get(key)
        if child is None:
            child = family.children[key] = make()
        return child
