"""Templates as a user gets them wrong: each problem names its field."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_documents.kafka_cluster import KafkaCluster, parse_cluster


def _parsed(template: Any, role: str = "brokers") -> tuple[KafkaCluster, list[str]]:
    cluster, problems = parse_cluster({"metadata": {"name": "c"}, "spec": {role: {"template": template}}})
    return cluster, [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"priorityClas": "high"}, "priorityClas: is not a field of PodSpec in Kubernetes; is priorityClass"),
        (
            {"containers": [{"name": "a", "env": [{"name": "A", "value": 5}]}]},
            "containers[0].env[0].value: must be a st",
        ),
        ({"containers": {"broker": {}}}, "containers: must be a list"),
        ({"containers": ["broker"]}, "containers[0]: must be a mapping"),
        ({"terminationGracePeriodSeconds": "300"}, "terminationGracePeriodSeconds: must be a whole number, not '300'"),
        ({"terminationGracePeriodSeconds": True}, "terminationGracePeriodSeconds: must be a whole number"),
        ({"hostNetwork": "yes"}, "hostNetwork: must be true or false"),
        ({"nodeSelector": {"a": True}}, "nodeSelector.a: must be a string, not True; put it in quotes"),
        (
            {"nodeSelector": {"$patch": "replace"}, "securityContext": {"$patch": "merge"}},
            "securityContext.$patch: there",
        ),
        ({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "much"}}]}, "volumes[0].emptyDir.sizeLimit: "),
        ([], "spec: must be a mapping"),
    ],
)
def test_a_field_that_a_pod_does_not_have_is_named(spec: Any, problem: str) -> None:
    _, problems = _parsed({"pod": {"spec": spec}})
    prefix = "spec.brokers.template.pod." + ("" if spec == [] else "spec.")
    assert len(problems) == 1 and problems[0].startswith(f"{prefix}{problem}")


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"labels": {"app.kubernetes.io/name": "kafka"}}, "labels.app.kubernetes.io/name: is set by the operator"),
        ({"labels": {"kafka.ottla.dev/rack": "a"}}, "labels.kafka.ottla.dev/rack: kafka.ottla.dev is the operator's"),
        ({"annotations": {"x.kafka.ottla.dev/a": "b"}}, "annotations.x.kafka.ottla.dev/a: kafka.ottla.dev is the"),
        ({"labels": {"a b": "c"}}, "labels.a b: is no name of a label"),
        ({"labels": {"a": "b c"}}, "labels.a: 'b c' is no value of a label"),
        ({"labels": {"a": "x" * 64}}, "labels.a: "),
        ({"annotations": {"scrape": True}}, "annotations.scrape: must be a string, not True; put it in quotes"),
        ({"name": "x"}, "name: is not a field here"),
    ],
)
@pytest.mark.parametrize("name", ["pod", "service", "bootstrapService", "persistentVolumeClaim"])
def test_wrong_labels_and_annotations_are_named(name: str, metadata: Any, problem: str) -> None:
    _, problems = _parsed({name: {"metadata": metadata}})
    assert len(problems) == 1 and problems[0].startswith(f"spec.brokers.template.{name}.metadata.{problem}")


def test_null_and_empty_fields_are_absent_ones() -> None:
    """An API server returns neither, so they would differ from what it has for ever."""
    env = [{"name": "A", "value": ""}]
    spec = {"priorityClassName": "", "tolerations": None, "containers": [{"name": "broker", "env": env, "image": None}]}
    cluster, problems = _parsed({"pod": {"spec": spec}}, "zookeeper")
    assert problems == []
    assert cluster.zookeeper.template.pod.spec == {"containers": [{"name": "broker", "env": env}]}


def test_numbers_are_quantities_and_ports_may_have_names() -> None:
    probe = {"httpGet": {"port": "metrics"}}
    agent = {"name": "agent", "image": "a", "resources": {"requests": {"cpu": 1}}, "readinessProbe": probe}
    cluster, problems = _parsed({"pod": {"spec": {"containers": [agent]}}})
    assert problems == []
    assert cluster.brokers.template.pod.spec["containers"][0]["resources"] == {"requests": {"cpu": "1"}}


def test_labels_of_an_application_are_allowed() -> None:
    metadata = {"labels": {"app.kubernetes.io/part-of": "orders", "team": ""}, "annotations": {"a/b": "any text: {}"}}
    cluster, problems = _parsed({"pod": {"metadata": metadata}})
    assert problems == [] and cluster.brokers.template.pod.metadata.labels["team"] == ""


def test_an_ensemble_that_exists_has_no_template() -> None:
    zookeeper = {"connect": "zk:2181", "template": {}}
    _, problems = parse_cluster({"metadata": {"name": "c"}, "spec": {"zookeeper": zookeeper}})
    assert [problem.path for problem in problems] == ["spec.zookeeper.connect"]
