"""Every metric of the operator: its type, its labels, what it means and when to worry.

`runtime.operator_metrics` takes names and help texts from here, and `ottla_operator.reference` prints the table for
docs/reference/metrics.md. So a metric that is served has an entry that explains it.
"""

from __future__ import annotations

from typing import NamedTuple


class MetricEntry(NamedTuple):
    """One metric. `kind`: counter, gauge or histogram; the name of a counter is without its suffix _total."""

    kind: str
    labels: tuple[str, ...]
    meaning: str
    worry: str = ""


LEASE_HELD = "ottla_operator_lease_held"
RECONCILIATION_SECONDS = "ottla_operator_reconciliation_seconds"
RECONCILIATION_FAILURES = "ottla_operator_reconciliation_failures"
WRITES = "ottla_operator_writes"
WRITE_FAILURES = "ottla_operator_write_failures"
TOPIC_CHANGES = "ottla_operator_topic_changes"
TOPICS_CHANGED_BY_OTHERS = "ottla_operator_topics_changed_by_others"
TOPIC_QUEUE = "ottla_operator_topic_queue"
TOPICS = "ottla_operator_topics"
CLUSTER_CONDITION = "ottla_operator_cluster_condition"
BROKERS = "ottla_operator_brokers"
ROLL = "ottla_operator_roll_members"
REBALANCE_PARTITIONS = "ottla_operator_rebalance_partitions"
REBALANCE_BYTES = "ottla_operator_rebalance_bytes"
LACKING = "ottla_operator_lacking"
STUCK_TASKS = "ottla_operator_stuck_tasks"

_CLUSTER = ("namespace", "cluster")

METRICS: dict[str, MetricEntry] = {
    LEASE_HELD: MetricEntry(
        "gauge", (), "1 while this operator holds the Lease and writes.",
        "the sum over the operators of one Lease is not 1 for more than 15 s",
    ),
    RECONCILIATION_SECONDS: MetricEntry(
        "histogram", ("kind",), "Duration of a reconciliation: of a KafkaCluster, or of a batch of KafkaTopics.",
    ),
    RECONCILIATION_FAILURES: MetricEntry(
        "counter", ("kind",), "Reconciliations that ended with an error and are done again.", "it grows for minutes",
    ),
    WRITES: MetricEntry(
        "counter", ("kind", "verb"), "Calls to the API server that may change something, the Lease's included.",
        "it grows at rest, the Lease's apart",
    ),
    WRITE_FAILURES: MetricEntry(
        "counter", ("kind", "verb"), "Those of them that were refused or got no answer.", "it grows for minutes",
    ),
    TOPIC_CHANGES: MetricEntry(
        "counter", ("change",), "Changes of topics that Kafka was asked for, by the kind of change.",
    ),
    TOPICS_CHANGED_BY_OTHERS: MetricEntry(
        "counter", (), "Topics that others had altered or deleted in Kafka, as the operator noticed.",
        "it grows all the time: something fights the operator",
    ),
    TOPIC_QUEUE: MetricEntry(
        "gauge", (*_CLUSTER, "state"),
        "KafkaTopics that wait: queued for the next batch, stalled until a broker answers, requeued for a time.",
        "stalled is above 0 for minutes: no broker answers",
    ),
    TOPICS: MetricEntry(
        "gauge", (*_CLUSTER, "reason"), "KafkaTopics by the reason of their condition Ready.",
        "a reason other than AsDeclared and Changing stays",
    ),
    CLUSTER_CONDITION: MetricEntry(
        "gauge", (*_CLUSTER, "type"), "1 while the condition of the KafkaCluster is True.", "Ready is 0 for minutes",
    ),
    BROKERS: MetricEntry(
        "gauge", (*_CLUSTER, "state"), "Brokers of a KafkaCluster: declared, existing, ready.",
        "ready is below declared for minutes",
    ),
    ROLL: MetricEntry(
        "gauge", (*_CLUSTER, "role", "state"),
        "Members of the rolling restart that is under way: restarting and done. Absent without a roll.",
        "restarting does not change for minutes: see the condition Rolled",
    ),
    REBALANCE_PARTITIONS: MetricEntry(
        "gauge", (*_CLUSTER, "state"),
        "Partitions of the rebalance: moving now, and to_go in all, those that move included. Absent without one.",
        "to_go does not fall for long: status.rebalance.reason says what it waits for",
    ),
    REBALANCE_BYTES: MetricEntry(
        "gauge", (*_CLUSTER, "state"),
        "Bytes of the rebalance that are to_go, and those that have moved since it began. Absent without one.",
        "moved does not grow while partitions move",
    ),
    STUCK_TASKS: MetricEntry(
        "gauge", (), "Tasks that have made no step for ten minutes; the liveness probe fails then.", "above 0",
    ),
    LACKING: MetricEntry(
        "gauge", ("kind", "namespace", "reason"),
        "1 while the operator lacks something without which it changes nothing for objects of a kind: fields of its "
        "CustomResourceDefinition (then without a namespace), or rights.",
        "it exists",
    ),
}  # fmt: skip


def table() -> str:
    """One row for each metric, in Markdown."""
    lines = ["| metric | type | labels | meaning | worry when |", "|---|---|---|---|---|"]
    for name, entry in sorted(METRICS.items()):
        shown = f"{name}_total" if entry.kind == "counter" else name
        lines.append(f"| `{shown}` | {entry.kind} | {', '.join(entry.labels)} | {entry.meaning} | {entry.worry} |")
    return "\n".join(lines)
