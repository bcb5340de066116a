"""The metrics over a broker's replicas: how many there are, lead, lag behind their leader's promise, and wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla_broker.metrics import Counter, Metrics
from ottla_broker.replication.delayed import DelayedProduce, TimerWheel
from ottla_broker.replication.deletion import DelayedDeleteRecords
from ottla_broker.replication.partition import Partition


def register_gauges(
    metrics: Metrics,
    partitions: Iterable[Partition],
    offline_replica_count: Callable[[], int],
    wheel: TimerWheel,
    transaction_limit_ms: int,
) -> None:
    """`partitions` are those of the broker, whenever they are looked at; `transaction_limit_ms` is
    transaction.max.timeout.ms."""

    def count(holds: Callable[[Partition], bool]) -> Callable[[], float]:
        return lambda: sum(1 for partition in partitions if holds(partition))

    prefix = "kafka_server_replicamanager_"
    metrics.gauge(f"{prefix}partitioncount", "Replicas on this broker.", count(lambda _: True))
    metrics.gauge(
        f"{prefix}offlinereplicacount",
        "Replicas on offline log directories.",
        offline_replica_count,
    )
    metrics.gauge(f"{prefix}leadercount", "Partitions this broker leads.", count(lambda p: p.is_leader))
    metrics.gauge(
        f"{prefix}underreplicatedpartitions",
        "Led partitions whose ISR is smaller than their replicas.",
        count(lambda p: p.is_under_replicated),
    )
    metrics.gauge(
        f"{prefix}reassigningpartitions",
        "Led partitions whose replicas are being changed.",
        count(lambda p: p.is_being_reassigned),
    )
    metrics.gauge(
        f"{prefix}underminisrpartitioncount",
        "Led partitions whose ISR is smaller than min.insync.replicas.",
        count(lambda p: p.is_under_min_isr),
    )
    metrics.gauge(
        f"{prefix}atminisrpartitioncount",
        "Led partitions whose ISR is just min.insync.replicas.",
        count(lambda p: p.is_leader and len(p.in_sync.committed) == p.min_isr),
    )
    metrics.gauge(
        f"{prefix}produceridcount",
        "Producers that the replicas on this broker remember.",
        lambda: sum(len(partition.log.state.producers) for partition in partitions),
    )
    metrics.gauge(
        f"{prefix}partitionswithlatetransactionscount",
        "Led partitions with a transaction that ought to have ended (transaction.max.timeout.ms and five minutes).",
        count(lambda p: p.is_leader and p.log.has_late_transaction(transaction_limit_ms)),
    )
    metrics.gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait.",
        lambda: wheel.count(DelayedProduce),
        delayedOperation="Produce",
    )
    metrics.gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait.",
        lambda: wheel.count(object) - wheel.count(DelayedProduce) - wheel.count(DelayedDeleteRecords),
        delayedOperation="Fetch",
    )
    metrics.gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait.",
        lambda: wheel.count(DelayedDeleteRecords),
        delayedOperation="DeleteRecords",
    )


def isr_counters(metrics: Metrics) -> dict[str, Counter]:
    """By what a change does: "expands", "shrinks"."""
    return {
        "expands": metrics.counter("kafka_server_replicamanager_isrexpands", "Changes that add to an ISR."),
        "shrinks": metrics.counter("kafka_server_replicamanager_isrshrinks", "Changes that take from an ISR."),
    }


def replication_bytes_in(metrics: Metrics) -> Counter:
    """Bytes that the fetchers of a broker have fetched from all leaders."""
    return metrics.counter("kafka_server_brokertopicmetrics_replicationbytesin", "Bytes fetched from leaders.")
