"""The metrics of one operator process: what its tasks count, and what the object cache shows when /metrics is read.

Names and meanings are in `api.metric_names`. What the cache shows is computed for a scrape and costs nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ottla_broker.metrics import Metrics, SourceFamily
from ottla_documents.kafka_cluster import DEFAULT_REPLICAS
from ottla_operator.api import metric_names as names
from ottla_operator.api.condition_reasons import READY
from ottla_operator.api.objects import KAFKA_CLUSTER, KAFKA_TOPIC, Obj, dig, name_of
from ottla_operator.runtime.object_cache import Key, ObjectCache, cluster_of

UNKNOWN_REASON = "None"
"""The reason of a KafkaTopic whose status the operator has not written yet."""


class OperatorMetrics:
    """What the tasks report. `registry`: for the exposition."""

    def __init__(self) -> None:
        self.registry = Metrics()
        self.registry.counter(names.TOPICS_CHANGED_BY_OTHERS, names.METRICS[names.TOPICS_CHANGED_BY_OTHERS].meaning)

    def reconciled(self, kind: str, seconds: float) -> None:
        """A reconciliation of this kind of object took this long, with an error or without."""
        name = names.RECONCILIATION_SECONDS
        self.registry.histogram(name, names.METRICS[name].meaning, kind=kind).observe(seconds)

    @contextmanager
    def measured(self, kind: str, monotonic: Callable[[], float], *, counts: bool = True) -> Iterator[None]:
        """Reports how long a reconciliation takes, and whether it fails. `counts`: whether it has anything to do."""
        began = monotonic()
        try:
            yield
        except Exception:
            self.failed(kind)
            raise
        finally:
            if counts:
                self.reconciled(kind, monotonic() - began)

    def failed(self, kind: str) -> None:
        """A reconciliation of this kind of object ended with an error."""
        self._count(names.RECONCILIATION_FAILURES, kind=kind)

    def wrote(self, verb: str, kind: str, has_failed: bool) -> None:
        """A call to the API server that may have changed something."""
        self._count(names.WRITES, verb=verb, kind=kind)
        if has_failed:
            self._count(names.WRITE_FAILURES, verb=verb, kind=kind)

    def changed_topic(self, change: str) -> None:
        """Kafka was asked for a change of a topic."""
        self._count(names.TOPIC_CHANGES, change=change)

    def found_changed_by_others(self) -> None:
        """A topic was not as the operator had left it."""
        self._count(names.TOPICS_CHANGED_BY_OTHERS)

    def show(
        self,
        cache: ObjectCache,
        queues: Callable[[], Mapping[Key, Mapping[str, int]]],
        is_lease_held: Callable[[], bool],
        stuck_tasks: Callable[[], int],
        lacking: Callable[[], Sequence[tuple[str, str, str]]] = tuple,
    ) -> None:
        """Shows what these know, whenever /metrics is read.

        Args:
            queues: the sizes of each cluster's queue of KafkaTopics, by state.
            lacking: kind, namespace and reason of what the operator lacks.
        """

        def families() -> Iterator[SourceFamily]:
            yield _family(names.LEASE_HELD, [({}, float(is_lease_held()))])
            yield _family(
                names.LACKING,
                [({"kind": kind, "namespace": place, "reason": why}, 1.0) for kind, place, why in lacking()],
            )
            yield _family(names.STUCK_TASKS, [({}, float(stuck_tasks()))])
            yield _family(
                names.TOPIC_QUEUE,
                [
                    ({**_labels(key), "state": state}, float(size))
                    for key, sizes in sorted(queues().items())
                    for state, size in sizes.items()
                ],
            )
            yield _family(names.TOPICS, topics_by_reason(cache))
            clusters = list(cache.all(KAFKA_CLUSTER))
            yield _family(names.CLUSTER_CONDITION, [one for cluster in clusters for one in _conditions(cluster)])
            yield _family(names.BROKERS, [one for cluster in clusters for one in _brokers(cluster)])
            yield _family(names.ROLL, [one for cluster in clusters for one in _roll(cluster)])
            rebalances = [(_labels(_key(cluster)), found) for cluster in clusters if (found := _rebalance(cluster))]
            yield _family(names.REBALANCE_PARTITIONS, _rebalance_samples(rebalances, _PARTITIONS))
            yield _family(names.REBALANCE_BYTES, _rebalance_samples(rebalances, _BYTES))

        self.registry.add_source(families)

    def _count(self, name: str, **labels: str) -> None:
        self.registry.counter(name, names.METRICS[name].meaning, **labels).inc()


_Samples = list[tuple[Mapping[str, str], float]]


def _family(name: str, samples: _Samples) -> SourceFamily:
    return SourceFamily(name, names.METRICS[name].meaning, False, samples)


def _labels(key: Key) -> dict[str, str]:
    return {"namespace": key[0], "cluster": key[1]}


def topics_by_reason(cache: ObjectCache) -> _Samples:
    """How many KafkaTopics of each cluster have each reason of Ready."""
    found: Counter[tuple[Key, str]] = Counter()
    for topic in cache.all(KAFKA_TOPIC):
        if (key := cluster_of(topic)) is not None:
            found[key, _reason_of_ready(topic)] += 1
    return [({**_labels(key), "reason": reason}, float(count)) for (key, reason), count in sorted(found.items())]


def _reason_of_ready(obj: Obj) -> str:
    for condition in dig(obj, "status", "conditions") or []:
        if condition.get("type") == READY:
            return str(condition.get("reason") or UNKNOWN_REASON)
    return UNKNOWN_REASON


def _conditions(cluster: Obj) -> _Samples:
    labels = _labels(_key(cluster))
    return [
        ({**labels, "type": str(condition["type"])}, float(condition.get("status") == "True"))
        for condition in dig(cluster, "status", "conditions") or []
    ]


def _brokers(cluster: Obj) -> _Samples:
    labels = _labels(_key(cluster))
    counts = {
        "declared": _declared(cluster),
        "existing": dig(cluster, "status", "replicas") or 0,
        "ready": dig(cluster, "status", "readyReplicas") or 0,
    }
    return [({**labels, "state": state}, float(count)) for state, count in counts.items()]


def _declared(cluster: Obj) -> int:
    """How many brokers spec declares; what is no number counts as absent."""
    pools = dig(cluster, "spec", "brokers", "pools")
    if isinstance(pools, list):
        found = [dig(pool, "replicas") for pool in pools]
        return sum(count for count in found if isinstance(count, int))
    declared = dig(cluster, "spec", "brokers", "replicas")
    return declared if isinstance(declared, int) else DEFAULT_REPLICAS


def _roll(cluster: Obj) -> _Samples:
    roll = dig(cluster, "status", "roll")
    if not isinstance(roll, dict):
        return []
    labels = {**_labels(_key(cluster)), "role": str(roll.get("role") or "")}
    return [
        ({**labels, "state": "restarting"}, float(len(roll.get("batch") or []))),
        ({**labels, "state": "done"}, float(len(roll.get("done") or []))),
    ]


def _rebalance(cluster: Obj) -> Mapping[str, float]:
    """What status.rebalance says in numbers, by state; empty when there is none."""
    found = dig(cluster, "status", "rebalance")
    if not isinstance(found, dict):
        return {}
    return {
        "moving": len(found.get("batch") or []),
        "to_go": found.get("partitionsToGo") or 0,
        "bytes_to_go": found.get("bytesToGo") or 0,
        "bytes_moved": found.get("bytesMoved") or 0,
    }


_PARTITIONS = {"moving": "moving", "to_go": "to_go"}
_BYTES = {"to_go": "bytes_to_go", "moved": "bytes_moved"}


def _rebalance_samples(
    rebalances: Sequence[tuple[Mapping[str, str], Mapping[str, float]]], states: Mapping[str, str]
) -> _Samples:
    return [
        ({**labels, "state": state}, float(found[field]))
        for labels, found in rebalances
        for state, field in states.items()
    ]


def _key(cluster: Obj) -> Key:
    return str(dig(cluster, "metadata", "namespace") or ""), name_of(cluster)
