"""The plug-in point for client metrics (KIP-714), and the receiver that exposes them as Prometheus series.

`ClientMetricsReceiver` is what Apache Kafka's ClientTelemetryReceiver is: it gets what clients push. `SeriesReceiver`
keeps the latest value of each series for /metrics, up to a number of series: names and attributes come from clients,
and each new one would be memory that nobody has planned for. The series of an instance go with it.

The name of a series is that of the metric without `org.apache.kafka.`, after `kafka_client_`, with underscores
(`push_reading`); its labels are who the client is and the attributes of the data point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from ottla_broker.metrics import Metrics, SourceFamily
from ottla_broker.telemetry.client_instances import ClientContext, instance_name
from ottla_broker.telemetry.push_reading import LONGEST_TEXT, Labels, PushedPoints, SeriesPoint

_HELP: Final = "Pushed by clients (KIP-714)."


class ClientMetricsReceiver(Protocol):
    """Takes the metrics that clients push."""

    def export(self, context: ClientContext, pushed: PushedPoints) -> None:
        """Takes one push."""
        ...

    def forget(self, instance_id: bytes) -> None:
        """The client instance has been silent for too long."""
        ...


class SeriesReceiver:
    """A `ClientMetricsReceiver` for /metrics.

    Args:
        most_series: of all clients together; a point beyond it is dropped, and counted.
    """

    def __init__(self, most_series: int, metrics: Metrics) -> None:
        self._most_series = most_series
        self._series: dict[bytes, dict[tuple[str, Labels], float]] = {}
        self._kinds: dict[str, bool] = {}
        """Whether a name is a counter, as the first client had it."""
        self._uses: Counter[str] = Counter()
        """Series by name."""
        self._count = 0
        self._dropped = metrics.counter(
            "ottla_client_metrics_dropped_points",
            "Data points of client metrics beyond ottla.client.metrics.max.series, or beyond what one push may have.",
        )
        metrics.add_source(self.families)

    def export(self, context: ClientContext, pushed: PushedPoints) -> None:
        self._dropped.inc(pushed.beyond)
        series = self._series.setdefault(context.instance_id, {})
        ours = {
            "client_id": context.client_id[:LONGEST_TEXT],
            "client_instance_id": instance_name(context.instance_id),
            "client_software_name": context.software_name[:LONGEST_TEXT],
            "client_software_version": context.software_version[:LONGEST_TEXT],
        }
        for point in pushed.points:
            name = point.name
            # Who the client is cannot be overridden by an attribute.
            key = (name, tuple(sorted((dict(point.labels) | ours).items())))
            is_new = key not in series
            if self._kinds.get(name, point.is_counter) != point.is_counter or (
                is_new and self._count >= self._most_series
            ):
                self._dropped.inc()
                continue
            self._kinds[name] = point.is_counter
            self._count += is_new
            self._uses[name] += is_new
            series[key] = _new_value(point, series.get(key, 0.0))

    def forget(self, instance_id: bytes) -> None:
        gone = self._series.pop(instance_id, {})
        self._count -= len(gone)
        for name, _ in gone:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name], self._kinds[name]

    def families(self) -> Iterable[SourceFamily]:
        """Everything for /metrics, by name."""
        found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for series in self._series.values():
            for (name, labels), value in series.items():
                found.setdefault(name, []).append((dict(labels), value))
        for name in sorted(found):
            yield SourceFamily(name, _HELP, self._kinds[name], found[name])


def _new_value(point: SeriesPoint, before: float) -> float:
    return before + point.value if point.is_delta else point.value
