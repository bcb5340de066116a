"""Metrics in the Prometheus text format.

Apart from `metrics.py`, so that a broker without `ottla.http.listener` starts without the Prometheus client.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ottla_broker.metrics import Counter, Family, Gauge, Histogram, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """What /metrics answers: one broker's metrics, and with `of_process` memory, CPU time and open files of the
    process it runs in (process_*)."""

    def __init__(self, metrics: Metrics, *, of_process: bool = False) -> None:
        self._metrics = metrics
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        if of_process:
            ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """All samples, content type `CONTENT_TYPE`."""
        return generate_latest(self._registry)

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
            for found in source():
                samples = Metric(found.name, found.help, "counter" if found.is_counter else "gauge")
                for labels, value in found.samples:
                    samples.add_sample(f"{found.name}_total" if found.is_counter else found.name, dict(labels), value)
                yield samples


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
