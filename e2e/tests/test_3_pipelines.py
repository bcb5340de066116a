"""A pipeline document runs on Kubernetes: what it writes, suspend and resume, and what stays after its deletion."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from e2e.binaries import CHECKOUT
from e2e.kubernetes_api import Kubernetes
from e2e.providers import KubernetesCluster
from ottla_operator.api.objects import (
    CLAIM,
    KAFKA_PIPELINE,
    KAFKA_TOPIC,
    POD,
    ROLE,
    STATEFUL_SET,
    Obj,
    dig,
    name_of,
    uid_of,
)

NAME = "late-flights"
OBJECT = f"{NAME}-pipeline"
OURS = f"kafka.ottla.dev/pipeline={NAME}"
EXECUTORS = f"{OURS},app.kubernetes.io/component=pipeline-executor"
SHARED = "shared"
FEW_FLIGHTS, MANY_FLIGHTS = "few-flights", "many-flights"
"""Topics of one test each: `flights` has records of other tests, which are no flights."""
SEND = """
import json, os, sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP"]})
for number in range(int(sys.argv[1])):
    producer.produce(sys.argv[2], json.dumps({"carrier": "UA", "hour": 1, "arr_delay": float(number % 2 * 30)}))
producer.produce(sys.argv[2], "{nonsense")
assert producer.flush(120) == 0
"""
COUNT = """
import json, os
from confluent_kafka import Consumer, TopicPartition
settings = {"bootstrap.servers": os.environ["BOOTSTRAP"], "group.id": "count", "isolation.level": "read_committed"}
consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
found = {}
for topic in ("late-flights", "flights-dead"):
    partitions = list(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found[topic], ended = 0, set()
    while len(ended) < len(partitions):
        message = consumer.poll(60)
        assert message is not None, "no answer"
        if message.error() is None:
            found[topic] += 1
        else:
            ended.add(message.partition())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def image(cluster: KubernetesCluster) -> str:
    if cluster.images.pipeline is None:
        pytest.skip("without the image of Spark: make e2e E2E=--pipelines")
    return cluster.images.pipeline.reference


@pytest.mark.usefixtures("orders")
def test_a_pipeline_writes_each_row_once_also_after_its_pod_was_killed_or_suspended_and_leaves_its_claim(
    kubernetes: Kubernetes, client: str, image: str
) -> None:
    pipeline = _with_topics(kubernetes, FEW_FLIGHTS)
    before = _written(kubernetes, client)
    pipeline["spec"] |= {"image": image, "resources": {"requests": {"cpu": "250m", "memory": "1536Mi"}}}
    kubernetes.kubectl("apply", "-f", "-", text=yaml.safe_dump(pipeline))

    kubernetes.execute(client, "python3", "-c", SEND, "200", FEW_FLIGHTS)
    _until_written(kubernetes, client, before, late=100, dead=1)
    kubernetes.until_condition(KAFKA_PIPELINE, NAME, "Ready")
    kubernetes.until(lambda: dig(_status(kubernetes), "progress", "lag") == 0, "status shows that nothing is left")
    (pod,) = kubernetes.list(POD, selector=OURS)
    assert _status(kubernetes)["pod"] == pod["metadata"]["name"]

    kubernetes.execute(client, "python3", "-c", SEND, "100", FEW_FLIGHTS)
    kubernetes.delete(POD, pod["metadata"]["name"], grace_s=0)  # SIGKILL
    _until_written(kubernetes, client, before, late=150, dead=2)

    kubernetes.patch(KAFKA_PIPELINE, NAME, {"spec": {"suspend": True}})
    kubernetes.until(lambda: not kubernetes.list(POD, selector=OURS), "the driver has ended")
    kubernetes.until_condition(KAFKA_PIPELINE, NAME, "Ready", "Suspended")
    kubernetes.execute(client, "python3", "-c", SEND, "60", FEW_FLIGHTS)
    kubernetes.patch(KAFKA_PIPELINE, NAME, {"spec": {"suspend": False}})
    _until_written(kubernetes, client, before, late=180, dead=3)

    claim = uid_of(kubernetes.there(CLAIM, OBJECT))
    kubernetes.delete(KAFKA_PIPELINE, NAME)
    kubernetes.until(lambda: not kubernetes.list(POD, selector=OURS), "the driver has ended")
    assert kubernetes.get(STATEFUL_SET, OBJECT) is None
    assert uid_of(kubernetes.there(CLAIM, OBJECT)) == claim
    assert _written(kubernetes, client) == (before[0] + 180, before[1] + 3)
    kubernetes.delete(CLAIM, OBJECT)
    kubernetes.delete(KAFKA_TOPIC, FEW_FLIGHTS)


@pytest.fixture
def shared_volume(kubernetes: Kubernetes, cluster: KubernetesCluster) -> Iterator[str]:
    """The class of a volume that every node can write: the nodes are processes of one machine."""
    if cluster.volumes is None:
        pytest.skip("the nodes have no folder in common")
    folder = cluster.volumes / SHARED
    folder.mkdir()
    folder.chmod(0o777)
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": SHARED,
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(folder)},
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": SHARED}, "spec": spec}
    kubernetes.kubectl("create", "-f", "-", text=yaml.safe_dump(volume))
    yield SHARED
    kubernetes.kubectl("delete", "persistentvolume", SHARED)


@pytest.mark.usefixtures("orders")
def test_executors_write_each_row_once_and_go_with_a_driver_that_is_killed_or_suspended(
    kubernetes: Kubernetes, client: str, image: str, shared_volume: str
) -> None:
    pipeline = _with_topics(kubernetes, MANY_FLIGHTS)
    before = _written(kubernetes, client)
    # Tasks of more than goes through Spark's messages: compressed it is less, so that is left out.
    kubernetes.execute(client, "python3", "-c", SEND, "40000", MANY_FLIGHTS)
    del pipeline["spec"]["sink"]["topic"]["config"]
    pipeline["spec"] |= {
        "image": image,
        "resources": {"requests": {"cpu": "250m", "memory": "1536Mi"}},
        "executors": {"instances": 1, "resources": {"requests": {"cpu": "250m", "memory": "1536Mi"}}},
        "checkpoint": {"accessModes": ["ReadWriteMany"], "storageClassName": shared_volume},
    }
    kubernetes.kubectl("apply", "-f", "-", text=yaml.safe_dump(pipeline))
    kubernetes.until_condition(KAFKA_PIPELINE, NAME, "Ready")
    _until_written(kubernetes, client, before, late=20_000, dead=1)
    (executor,) = kubernetes.list(POD, selector=EXECUTORS)
    driver = kubernetes.there(POD, str(_status(kubernetes)["pod"]))
    assert executor["metadata"]["ownerReferences"][0]["uid"] == uid_of(driver)
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert all("serviceaccount" not in one["mountPath"] for one in executor["spec"]["containers"][0]["volumeMounts"])
    kubernetes.until(lambda: _status(kubernetes).get("executors") == 1, "status counts it")

    kubernetes.delete(POD, name_of(executor), grace_s=0)
    kubernetes.execute(client, "python3", "-c", SEND, "100", MANY_FLIGHTS)
    _until_written(kubernetes, client, before, late=20_050, dead=2)
    (another,) = kubernetes.list(POD, selector=EXECUTORS)
    assert uid_of(another) != uid_of(executor)

    kubernetes.delete(POD, name_of(driver), grace_s=0)  # SIGKILL
    kubernetes.until(lambda: kubernetes.get(POD, name_of(another)) is None, "the executor goes with its driver")
    kubernetes.execute(client, "python3", "-c", SEND, "100", MANY_FLIGHTS)
    _until_written(kubernetes, client, before, late=20_100, dead=3)

    kubernetes.patch(KAFKA_PIPELINE, NAME, {"spec": {"suspend": True}})
    kubernetes.until(lambda: not kubernetes.list(POD, selector=OURS), "driver and executors have ended")
    kubernetes.delete(KAFKA_PIPELINE, NAME)
    kubernetes.until(lambda: kubernetes.get(ROLE, OBJECT) is None, "the driver's rights go too")
    assert _written(kubernetes, client) == (before[0] + 20_100, before[1] + 3)
    kubernetes.delete(CLAIM, OBJECT)
    kubernetes.delete(KAFKA_TOPIC, MANY_FLIGHTS)


def _with_topics(kubernetes: Kubernetes, source: str) -> Obj:
    """The pipeline of the example, which reads a topic of this name. Its topics are there."""
    documents = list(yaml.safe_load_all((CHECKOUT / "examples" / "late-flights.yaml").read_text()))
    for document in documents:
        if document["kind"] == "KafkaTopic":
            kubernetes.kubectl("apply", "-f", "-", text=yaml.safe_dump(document))
            kubernetes.until_condition(KAFKA_TOPIC, document["metadata"]["name"], "Ready")
    (pipeline,) = (document for document in documents if document["kind"] == "KafkaPipeline")
    spec = {"clusterRef": {"name": "orders"}, "partitions": 2}
    identity = {"name": source, "namespace": "default"}
    kubernetes.create({**pipeline, "kind": "KafkaTopic", "metadata": identity, "spec": spec})
    kubernetes.until_condition(KAFKA_TOPIC, source, "Ready")
    pipeline["spec"]["source"]["topics"] = [source]
    return dict(pipeline)


def _status(kubernetes: Kubernetes) -> dict[str, object]:
    return dict(kubernetes.there(KAFKA_PIPELINE, NAME).get("status") or {})


def _written(kubernetes: Kubernetes, client: str) -> tuple[int, int]:
    """How many records there are, and dead letters, in committed transactions."""
    found = json.loads(kubernetes.execute(client, "python3", "-c", COUNT).splitlines()[-1])
    return found["late-flights"], found["flights-dead"]


def _until_written(kubernetes: Kubernetes, client: str, before: tuple[int, int], *, late: int, dead: int) -> None:
    wanted = (before[0] + late, before[1] + dead)
    kubernetes.until(lambda: _written(kubernetes, client) >= wanted, f"{late} rows and {dead} dead letters")
    assert _written(kubernetes, client) == wanted
