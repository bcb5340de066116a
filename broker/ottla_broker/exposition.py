"""Metrics in the Prometheus text format.

Apart from `metrics.py`, so that a broker without `ottla.http.listener` starts without the Prometheus client.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ottla_broker.metrics import Counter, Family, Gauge, Histogram, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SAMPLES_PER_PART = 500
"""A broker has samples for each topic: what formats them lets the loop do other work between the parts."""


class _Collected:
    """A registry of one family."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> tuple[Metric]:
        return (self._metric,)


class Exposition:
    """What /metrics answers: one broker's metrics, and with `of_process` memory, CPU time and open files of the
    process it runs in (process_*)."""

    def __init__(self, metrics: Metrics, *, of_process: bool = False) -> None:
        self._metrics = metrics
        self._of_process = CollectorRegistry(auto_describe=False)
        if of_process:
            ProcessCollector(registry=self._of_process)

    def text(self) -> bytes:
        """All samples, content type `CONTENT_TYPE`."""
        return b"".join(self.parts())

    def parts(self) -> Iterator[bytes]:
        """The same in parts of at most SAMPLES_PER_PART samples. A family is read when its first part is made."""
        for metric in self.collect():
            samples = metric.samples
            for start in range(0, max(1, len(samples)), SAMPLES_PER_PART):
                some = Metric(metric.name, metric.documentation, metric.type)
                some.samples = samples[start : start + SAMPLES_PER_PART]
                text = generate_latest(_Collected(some))  # all that a registry does here is to collect
                yield text if not start else _without_head(text)
        yield generate_latest(self._of_process)

    def collect(self) -> Iterator[Metric]:
        """Prometheus' collector interface."""
        families = self._metrics.families
        for name in sorted(families):
            family = families[name]
            if family.kind is Counter:
                counters = CounterMetricFamily(name, family.help, labels=family.label_names)
                for key, child in list(family.children.items()):
                    assert isinstance(child, Counter)
                    counters.add_metric(key, child.value)
                yield counters
            elif family.kind is Gauge:
                gauges = GaugeMetricFamily(name, family.help, labels=family.label_names)
                for key, child in list(family.children.items()):
                    assert isinstance(child, Gauge)
                    gauges.add_metric(key, child.value)
                yield gauges
            else:
                yield _histogram_family(name, family)
        for source in self._metrics.sources:
            for found in list(source()):  # as of one moment: parts are made in several turns of the loop
                samples = Metric(found.name, found.help, "counter" if found.is_counter else "gauge")
                for labels, value in found.samples:
                    samples.add_sample(f"{found.name}_total" if found.is_counter else found.name, dict(labels), value)
                yield samples


def _without_head(text: bytes) -> bytes:
    """Without the lines of a family's help and type.

    >>> _without_head(b"# HELP a b\\n# TYPE a gauge\\na 1.0\\n")
    b'a 1.0\\n'
    """
    return text.split(b"\n", 2)[2]


def _histogram_family(name: str, family: Family) -> Metric:
    histograms = HistogramMetricFamily(name, family.help, labels=family.label_names)
    for key, child in list(family.children.items()):
        assert isinstance(child, Histogram)
        cumulative, buckets = 0, []
        for bound, count in zip((*child.bounds, float("inf")), child.counts, strict=True):
            cumulative += count
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), float(cumulative)))
        histograms.add_metric(key, buckets, child.total)
    return histograms
