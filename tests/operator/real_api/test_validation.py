"""What the API server itself refuses: the schemas and the CEL rules of crds/."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from e2e.binaries import CHECKOUT
from e2e.kubernetes_api import Kubernetes, Refused
from ottla_operator.api.objects import KAFKA_CLUSTER, KAFKA_TOPIC, KINDS, Obj, ResourceKind
from ottla_operator.effects.kubernetes_api import path_of
from tests.operator.crds.test_schemas import CLUSTER, PIPELINE, TOPIC, _with

pytestmark = pytest.mark.kubernetes
DRY = "?dryRun=All"


def _create(api: Kubernetes, document: Obj) -> Obj:
    return api.request("POST", path_of(KINDS[document["kind"]], "default", None) + DRY, copy.deepcopy(document))


DOCUMENTS = [path for folder in ("manifests", "examples") for path in sorted((CHECKOUT / folder).glob("*.yaml"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_manifests_are_accepted(api: Kubernetes, path: Any) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        _create(api, document)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("spec.brokers.replicas", "3", "spec.brokers.replicas"),
        ("spec.brokers.replicas", 0, "spec.brokers.replicas"),
        ("spec.brokers.replicas", 1001, "spec.brokers.replicas"),
        ("spec.brokers.disks", [], "spec.brokers.disks"),
        ("spec.brokers.disks", [{"name": "UPPER"}], "spec.brokers.disks[0].name"),
        ("spec.brokers.disks", [{"name": "thirteen-long"}], "spec.brokers.disks[0].name"),
        ("spec.brokers.disks", [{"name": "d0"}, {"name": "d0"}], "spec.brokers.disks[1]"),
        ("spec.brokers.disks", [{"name": "d0", "size": "a lot"}], "spec.brokers.disks[0].size"),
        ("spec.brokers.disks", [{"size": "1Gi"}], "spec.brokers.disks[0].name"),
        ("spec.brokers.racks", ["a", "a"], "spec.brokers.racks"),
        ("spec.zookeeper.replicas", 10, "spec.zookeeper.replicas"),
        ("spec.zookeeper.replicas", 2, "the number of servers is odd"),
        ("spec.zookeeper", {"connect": "zk:2181", "replicas": 3}, "image and claimDeletionPolicy do not go with it"),
        ("spec.zookeeper", {"connect": "zk:2181", "disk": {"size": "1Gi"}}, "spec.zookeeper"),
        ("spec.zookeeper", {"connect": "zk:2181", "logDisk": {}}, "spec.zookeeper"),
        ("spec.zookeeper", {"connect": "zk:2181", "resources": {}}, "spec.zookeeper"),
        ("spec.zookeeper", {"connect": "zk:2181", "template": {}}, "spec.zookeeper"),
        ("spec.brokers.template", {"pod": {"metadata": {"labels": {"a": 1}}}}, "spec.brokers.template.pod.metadata"),
        ("spec.image", "has space:1", "spec.image"),
        ("spec.imageUpdatePolicy", "Follow", "spec.imageUpdatePolicy"),
        ("spec.brokers.logging", {"level": "debug"}, "spec.brokers.logging.level"),
        ("spec.brokers", {"replicas": 1, "pools": [{"name": "a", "replicas": 1}]}, "replicas does not go with pools"),
        ("spec.brokers", {"pools": [{"name": "a", "replicas": 1}] * 2}, "spec.brokers.pools[1]"),
        ("spec.brokers", {"pools": [{"name": "a"}]}, "spec.brokers.pools[0].replicas"),
        ("spec.brokers.template", {"pod": {"spec": []}}, "spec.brokers.template.pod.spec"),
        ("spec.brokers.resources", {"requests": {"memory": "much"}}, "spec.brokers.resources.requests.memory"),
        ("spec.zookeeper.resources", {"limits": {"cpu": "-1"}}, "spec.zookeeper.resources.limits.cpu"),
        ("spec.paused", "yes", "spec.paused"),
        ("metadata.name", "x" * 41, "name"),
    ],
)
def test_a_cluster_that_has_the_wrong_shape_is_refused(api: Kubernetes, path: str, value: Any, named: str) -> None:
    with pytest.raises(Refused) as refused:
        _create(api, _with(CLUSTER, path, value))
    assert refused.value.status == 422 and named in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("spec.partitions", 0, "spec.partitions"),
        ("spec.partitions", "12", "spec.partitions"),
        ("spec.replicas", 0, "spec.replicas"),
        ("spec.deletionPolicy", "Sometimes", "spec.deletionPolicy"),
        ("spec.topicName", "with space", "spec.topicName"),
        ("spec.topicName", ".", "spec.topicName"),
        ("spec.topicName", "..", "spec.topicName"),
        ("spec.topicName", "__consumer_offsets", "belongs to the brokers"),
        ("spec.topicName", "__transaction_state", "belongs to the brokers"),
        ("spec.clusterRef", None, "spec.clusterRef"),
    ],
)
def test_a_topic_that_has_the_wrong_shape_is_refused(api: Kubernetes, path: str, value: Any, named: str) -> None:
    with pytest.raises(Refused) as refused:
        _create(api, _with(TOPIC, path, value))
    assert refused.value.status == 422 and named in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("spec.source", None, "spec.source"),
        ("spec.source", {"topics": ["a"], "startingOffsets": "now"}, "spec.source.startingOffsets"),
        ("spec.steps", [{"name": "a"}, {"name": "a"}], "spec.steps[1]"),
        ("spec.steps", [{"name": "a", "python": "clean"}], "spec.steps[0].python"),
        ("spec.sink.topic", {"name": ".."}, "spec.sink.topic.name"),
        ("spec.checkpoint", {"size": "much"}, "spec.checkpoint.size"),
        ("spec.backoffLimit", -1, "spec.backoffLimit"),
        ("metadata.name", "x" * 41, "name"),
    ],
)
def test_a_pipeline_that_has_the_wrong_shape_is_refused(api: Kubernetes, path: str, value: Any, named: str) -> None:
    with pytest.raises(Refused) as refused:
        _create(api, _with(PIPELINE, path, value))
    assert refused.value.status == 422 and named in str(refused.value)


@pytest.mark.parametrize(
    ("before", "path", "value", "named"),
    [
        (CLUSTER, "spec.brokers.rackKey", "other/key", "rackKey"),
        (CLUSTER, "spec.zookeeper", {"connect": "zk:2181/orders"}, "zookeeper"),
        (
            _with(CLUSTER, "spec.zookeeper", {"connect": "zk:2181/orders"}),
            "spec.zookeeper.connect",
            "zk:2181/other",
            "chroot",
        ),
        (TOPIC, "spec.clusterRef.name", "other", "clusterRef"),
        (TOPIC, "spec.clusterRef.namespace", "other", "clusterRef"),
        (_with(TOPIC, "spec.clusterRef.namespace", "other"), "spec.clusterRef.namespace", "third", "clusterRef"),
        (TOPIC, "spec.topicName", "other", "topicName"),
    ],
    ids=("rackKey", "zookeeper", "chroot", "clusterRef", "other namespace", "third namespace", "topicName"),
)
def test_identity_cannot_change(api: Kubernetes, before: Obj, path: str, value: Any, named: str) -> None:
    kind = KAFKA_CLUSTER if before["kind"] == "KafkaCluster" else KAFKA_TOPIC
    with _created(api, kind, before) as live, pytest.raises(Refused) as refused:
        api.request("PUT", path_of(kind, "default", live["metadata"]["name"]), _with(live, path, value))
    assert refused.value.status == 422 and named in str(refused.value)


def test_hosts_of_an_ensemble_may_change_below_the_same_chroot(api: Kubernetes) -> None:
    before = _with(CLUSTER, "spec.zookeeper", {"connect": "zk:2181/orders"})
    with _created(api, KAFKA_CLUSTER, before) as live:
        changed = _with(live, "spec.zookeeper.connect", "a:2181,b:2181/orders")
        api.request("PUT", path_of(KAFKA_CLUSTER, "default", "orders"), changed)


@pytest.mark.parametrize("value", [604800000, "604800000", 6.048e8, True, ["a"], {"a": 1}], ids=str)
def test_values_of_config_are_kept_as_they_were_written(api: Kubernetes, value: Any) -> None:
    """Also those that cannot work: the operator names them in a condition."""
    live = _create(api, _with(CLUSTER, "spec.brokers.config", {"log.retention.ms": value}))
    assert live["spec"]["brokers"]["config"] == {"log.retention.ms": value}


def test_a_conflict_of_field_managers_is_reported(api: Kubernetes) -> None:
    """An apply of the status subresource or the spec by another field manager is refused."""
    with _created(api, KAFKA_CLUSTER, _with(CLUSTER, "spec.brokers.replicas", 3)):
        text = yaml.safe_dump(_with(CLUSTER, "spec.brokers.replicas", 4))
        applied = ["apply", "--server-side", "--field-manager", "somebody", "-f", "-"]
        with pytest.raises(Exception, match=r"spec\.brokers\.replicas"):
            api.kubectl(*applied, text=text)
        api.kubectl(*applied, "--force-conflicts", text=text)


class _created:
    """A document that exists for a while."""

    def __init__(self, api: Kubernetes, kind: ResourceKind, document: Obj) -> None:
        self._api, self._kind, self._document = api, kind, document

    def __enter__(self) -> Obj:
        return self._api.request("POST", path_of(self._kind, "default", None), copy.deepcopy(self._document))

    def __exit__(self, *_: object) -> None:
        self._api.delete(self._kind, self._document["metadata"]["name"])
