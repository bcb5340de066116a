"""Documents that people write by mistake: one problem for one mistake, and a value that is safe beside it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_documents.kafka_cluster import parse_cluster, topic_namespaces_of
from ottla_documents.kafka_pipeline import parse_pipeline
from ottla_documents.kafka_topic import parse_topic


def _cluster(**spec: Any) -> tuple[Any, list[str]]:
    cluster, problems = parse_cluster({"metadata": {"name": "c"}, "spec": spec})
    return cluster, [str(problem) for problem in problems]


def _pipeline(**changed: Any) -> tuple[Any, list[str]]:
    spec = {
        "clusterRef": {"name": "c"},
        "source": {"topics": ["a"]},
        "sink": {"topic": {"name": "b"}},
    } | changed
    pipeline, problems = parse_pipeline({"metadata": {"name": "p"}, "spec": spec})
    return pipeline, [str(problem) for problem in problems]


@pytest.mark.parametrize("duration", ["99999h", "1234567m", "00000h", "169h", "0m"])
def test_a_window_that_would_never_open_is_a_problem(duration: str) -> None:
    cluster, problems = _cluster(maintenanceWindows=[{"schedule": "0 22 * * *", "duration": duration}])
    assert cluster.maintenance_windows == () and len(problems) == 1
    assert problems[0].startswith("spec.maintenanceWindows[0].duration: must be from 1m to 168h")


@pytest.mark.parametrize("part", [{"spec": {}}, {"metadata": {}}, {"spec": {"priorityClassName": None}}, {}])
def test_a_part_of_a_pools_template_replaces_that_of_all_brokers_also_with_nothing(part: Any) -> None:
    cluster, problems = _cluster(
        brokers={
            "template": {
                "pod": {"spec": {"priorityClassName": "high"}},
                "service": {"metadata": {"labels": {"a": "b"}}},
            },
            "pools": [{"name": "a", "replicas": 1, "template": {"pod": part}}],
        }
    )
    (pool,) = cluster.brokers.pools
    assert problems == [] and pool.template.pod.spec == {} and pool.template.service.labels == {"a": "b"}
    assert pool.path_of("template.pod") == "spec.brokers.pools[0].template.pod"


def test_an_empty_storage_class_is_the_default_one() -> None:
    disk = {"name": "d0", "size": "1Gi", "storageClassName": ""}
    cluster, problems = _cluster(brokers={"disks": [disk]}, zookeeper={"disk": {"size": "1Gi", "storageClassName": ""}})
    assert problems == [] and cluster.brokers.pools[0].disks[0].storage_class_name == ""


@pytest.mark.parametrize("pools", ["x", {}, 5, [5]])
def test_pools_that_are_wrong_are_no_pool_of_all_brokers(pools: Any) -> None:
    cluster, problems = _cluster(brokers={"pools": pools})
    assert problems and cluster.brokers.has_pools and cluster.brokers.pools == ()


def test_an_override_with_a_wrong_id_takes_nothing_from_another() -> None:
    for wrong in ({"id": "x"}, {}, {"id": -1}, {"id": True}, {"id": 0, "state": "bad"}):
        cluster, problems = _cluster(brokers={"overrides": [wrong, {"id": 0, "state": "Hold"}]})
        assert len(problems) == 1 and [one.state for one in cluster.brokers.overrides] == ["Hold"], wrong


def test_a_selector_beside_something_wrong_allows_nobody() -> None:
    document = {"spec": {"topics": {"namespaces": {"names": ["a", "B"], "selector": {}, "nams": ["b"]}}}}
    for found in (topic_namespaces_of(document), _cluster(**document["spec"])[0].topics.namespaces):
        assert found.names == {"a"} and found.selector is None
    documents: tuple[dict[str, Any], ...] = (
        {},
        {"spec": 5},
        {"spec": {"topics": []}},
        {"spec": {"topics": {"namespaces": "all"}}},
    )
    for odd in documents:
        assert not topic_namespaces_of(odd).is_any_allowed


def test_what_is_wrong_in_a_list_of_strings_is_left_out() -> None:
    cluster, problems = _cluster(brokers={"racks": ["a", 5, "b b"], "unmanagedConfig": [5, ""]})
    assert cluster.brokers.pools[0].racks == ("a",) and cluster.brokers.unmanaged_config == frozenset()
    assert [problem.partition(":")[0] for problem in problems] == [
        "spec.brokers.racks[1]",
        "spec.brokers.racks[2]",
        "spec.brokers.unmanagedConfig[0]",
        "spec.brokers.unmanagedConfig[1]",
    ]
    assert _cluster(brokers={"disks": ["x"]})[0].brokers.pools[0].disks[0].name == "d0"
    assert _pipeline(checkpoint={"accessModes": ["x"]})[0].claim.access_modes == ("ReadWriteOnce",)


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"clusterRef": {}}, "spec.clusterRef.name"),
        ({"clusterRef": {"name": 5}}, "spec.clusterRef.name"),
        ({"clusterRef": None, "bootstrapServers": 5}, "spec.bootstrapServers"),
        ({"clusterRef": None, "bootstrapServers": ""}, "spec.bootstrapServers"),
        ({"steps": [{"name": "x", "python": 5}]}, "spec.steps[0].python"),
        ({"schedule": 5, "timeZone": "Europe/Berlin"}, "spec.schedule"),
        ({"checkpoint": {"accessModes": ["x"]}, "executors": {"instances": 1}}, "spec.checkpoint.accessModes[0]"),
        ({"sink": {"parquet": {"path": "out", "partitionBy": [5]}}}, "spec.sink.parquet.partitionBy[0]"),
        ({"source": None}, "spec.source"),
        ({"sink": None}, "spec.sink"),
        ({"source": {"pattern": "a{4294967296}"}}, "spec.source.pattern"),
        ({"source": {"pattern": "(" * 500 + ")" * 500}}, "spec.source.pattern"),
    ],
)
def test_one_mistake_of_a_pipeline_is_one_problem(changed: dict[str, Any], path: str) -> None:
    problems = _pipeline(**changed)[1]
    assert [problem.partition(":")[0] for problem in problems] == [path], problems


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {
                "source": {"topics": ["a"], "table": "b", "bogus": 1},
                "sink": {"topic": {"name": "c"}, "outputMode": "update"},
            },
            "spec.source: has exactly one of",
        ),
        ({"sink": {"topic": {"name": "o"}, "jdbc": {}}}, "spec.sink: has exactly one of"),
        ({"source": {"topics": "x", "files": {"path": "in", "format": "text"}}}, "spec.source: has exactly one of"),
    ],
)
def test_two_kinds_are_reported_beside_another_mistake(changed: dict[str, Any], expected: str) -> None:
    problems = _pipeline(**changed)[1]
    assert len(problems) > 1 and any(problem.startswith(expected) for problem in problems), problems


def test_no_problem_shows_what_may_be_a_password() -> None:
    for url in ("jdbc:mysql://u:SECRET@h/d", "postgresql://u:SECRET@h/d", "jdbc:postgresql://u:SECRET@h/d"):
        jdbc = {"url": url, "table": "t", "key": ["k"], "passwordEnv": "SECRET word"}
        problems = _pipeline(sink={"jdbc": jdbc, "outputMode": "update"})[1]
        assert len(problems) == 2 and not any("SECRET" in problem for problem in problems)


@pytest.mark.parametrize("namespace", [None, "", "default"])
def test_an_empty_namespace_is_the_default_one(namespace: Any) -> None:
    topic, problems = parse_topic(
        {"metadata": {"name": "t", "namespace": namespace}, "spec": {"clusterRef": {"name": "c"}}}
    )
    assert problems == [] and topic.namespace == "default"
