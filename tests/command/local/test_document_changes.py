"""What a changed KafkaCluster means for a fleet that runs."""

from __future__ import annotations

import pytest

from ottla.local.document_changes import (
    ClusterChange,
    changes_by_pool,
    decide_cluster_change,
    without_refused,
)
from ottla_documents.documents import load_documents
from ottla_documents.kafka_cluster import KafkaCluster


def cluster(brokers: str, spec: str = "") -> KafkaCluster:
    text = (
        "apiVersion: kafka.ottla.dev/v1alpha1\nkind: KafkaCluster\nmetadata: {name: orders}\n"
        f"spec:\n  brokers: {{{brokers}}}\n{spec}"
    )
    (found,) = load_documents([("f.yaml", text)]).clusters
    return found


def change(before: str, after: str, spec: str = "") -> ClusterChange:
    return decide_cluster_change(cluster(before), cluster(after, spec))


def shown(found: ClusterChange) -> list[str]:
    return [f"{one.key}: {one.shown}" for one in found.dynamic]


def test_the_same_document_changes_nothing() -> None:
    config = "config: {min.insync.replicas: 2, log.cleanup.policy: 'compact,delete'}"
    found = change(config, config.replace("compact,delete", "compact, delete"))
    assert (found.dynamic, found.restart) == ((), ())
    assert found.cluster == cluster(config)


def test_a_key_that_can_change_while_brokers_run_is_set_and_one_that_is_gone_has_its_default() -> None:
    found = change(
        "config: {message.max.bytes: 1000, log.retention.ms: 5}", "config: {message.max.bytes: 2000, num.io.threads: 9}"
    )
    assert shown(found) == [
        "log.retention.ms: from 5 to its default",
        "message.max.bytes: from 1000 to 2000",
        "num.io.threads: from its default to 9",
    ]
    assert changes_by_pool(found.dynamic) == {
        "main": {"log.retention.ms": "604800000", "message.max.bytes": "2000", "num.io.threads": "9"}
    }
    assert found.restart == ()
    assert found.cluster.brokers.pools[0].config == {"message.max.bytes": "2000", "num.io.threads": "9"}


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("replicas: 3", "replicas: 5", "spec.brokers.replicas: from 3 to 5"),
        (
            "replicas: 3",
            "replicas: 2",
            "spec.brokers.replicas: from 3 to 2; what only the brokers that leave hold is gone with them",
        ),
        (
            "disks: [{name: d0}, {name: d1}]",
            "disks: [{name: d0}]",
            "spec.brokers.disks: from d0, d1 to d0; what only d1 holds is gone with it",
        ),
        ("disks: [{name: d0}]", "disks: [{name: d0}, {name: d1}]", "spec.brokers.disks: from d0 to d0, d1"),
        ("racks: [a]", "racks: [a, b]", "spec.brokers.racks: from a to a, b"),
        ("replicas: 1", "pools: [{name: p, replicas: 1}]", "spec.brokers.pools: from main to p"),
        ("", "config: {num.partitions: 4}", "spec.brokers.config.num.partitions: from its default to 4"),
        ("config: {num.partitions: 4}", "", "spec.brokers.config.num.partitions: from 4 to its default"),
        (
            "pools: [{name: p, replicas: 1}]",
            "pools: [{name: p, replicas: 1, config: {num.partitions: 4}}]",
            "spec.brokers.pools[0].config.num.partitions: from its default to 4",
        ),
    ],
)
def test_what_a_start_decides_is_named_with_its_field_and_stays_as_it_is(before: str, after: str, line: str) -> None:
    found = change(before, after)
    assert found.restart == (line,)
    assert found.dynamic == ()
    assert found.cluster == cluster(before)


def test_a_version_needs_a_restart() -> None:
    found = change("", "", "  version: '3.8'")
    assert found.restart == ("spec.version (inter.broker.protocol.version): from none to 3.8",)


@pytest.mark.parametrize(
    "field", ["disks: [{name: d0, size: 9Gi}]", "resources: {requests: {cpu: 1}}", "rackKey: other"]
)
def test_what_is_for_kubernetes_alone_changes_nothing(field: str) -> None:
    assert change("", field).restart == ()


def test_a_key_of_one_pool_is_set_on_its_brokers_alone() -> None:
    pools = "pools: [{name: a, replicas: 1%s}, {name: b, replicas: 1}]"
    found = change(pools % "", pools % ", config: {message.max.bytes: 9}")
    assert changes_by_pool(found.dynamic) == {"a": {"message.max.bytes": "9"}}


def test_what_brokers_refuse_stays_as_it_was_and_is_a_change_again_the_next_time() -> None:
    before = cluster("config: {num.io.threads: 8, message.max.bytes: 1}")
    after = cluster("config: {num.io.threads: 99, message.max.bytes: 2, background.threads: 99}")
    found = decide_cluster_change(before, after)
    kept = without_refused(found, before, {("main", "num.io.threads"), ("main", "background.threads")})
    assert kept.brokers.pools[0].config == {"num.io.threads": "8", "message.max.bytes": "2"}
    assert shown(decide_cluster_change(kept, after)) == [
        "background.threads: from its default to 99",
        "num.io.threads: from 8 to 99",
    ]
