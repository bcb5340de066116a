"""The pipeline of examples/late-flights.yaml in a cluster: its topics, flights, what it has written, and a step that
holds a batch in its middle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from e2e.binaries import CHECKOUT
from e2e.kubernetes_api import Kubernetes
from ottla_operator.api.objects import EVENT, KAFKA_PIPELINE, KAFKA_TOPIC, Obj, dig

NAME = "late-flights"
OBJECT = f"{NAME}-pipeline"
OURS = f"kafka.ottla.dev/pipeline={NAME}"
EXECUTORS = f"{OURS},app.kubernetes.io/component=pipeline-executor"
SEND = """
import json, os, sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP"]})
for number in range(int(sys.argv[1])):
    flight = {"carrier": "UA", "hour": 1, "arr_delay": float(number % 2 * 30)}
    producer.produce(sys.argv[2], json.dumps(flight), partition=number // 2 % 2)
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
HOLDING = """
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import functions as F

known = set()

def hold(rows):
    return rows.withColumn("value", F.udf(passed, "string", useArrow=False)("value"))

def passed(value):
    context, folder = TaskContext.get(), Path("hold")
    if context.taskAttemptId() in known or not folder.is_dir():
        return value
    known.add(context.taskAttemptId())
    try:
        with (folder / "first").open("x") as first:
            first.write(str(context.partitionId()))
    except FileExistsError:
        if (folder / "first").read_text() != str(context.partitionId()):
            (folder / "waits").touch()
            while folder.is_dir():
                time.sleep(0.1)
    return value
"""


class LateFlights:
    """The pipeline, which reads a topic of the test's own. Counts are those since it was made."""

    def __init__(self, kubernetes: Kubernetes, client: str, topic: str) -> None:
        self._kubernetes = kubernetes
        self._client = client
        self.topic = topic
        documents = list(yaml.safe_load_all((CHECKOUT / "examples" / "late-flights.yaml").read_text()))
        (self.document,) = (document for document in documents if document["kind"] == "KafkaPipeline")
        for document in documents:
            if document["kind"] == "KafkaTopic":
                kubernetes.kubectl("apply", "-f", "-", text=yaml.safe_dump(document))
                kubernetes.until_condition(KAFKA_TOPIC, document["metadata"]["name"], "Ready")
        spec = {"clusterRef": {"name": "orders"}, "partitions": 2}
        identity = {"name": topic, "namespace": "default"}
        kubernetes.create({**self.document, "kind": "KafkaTopic", "metadata": identity, "spec": spec})
        kubernetes.until_condition(KAFKA_TOPIC, topic, "Ready")
        self.spec["source"]["topics"] = [topic]
        self._before = self._counts()

    @property
    def spec(self) -> dict[str, Any]:
        """What `apply` writes."""
        found: dict[str, Any] = self.document["spec"]
        return found

    def apply(self) -> None:
        self._kubernetes.kubectl("apply", "-f", "-", text=yaml.safe_dump(self.document))

    def send(self, flights: int) -> None:
        """Half of them are late; one more record is no flight."""
        self._kubernetes.execute(self._client, "python3", "-c", SEND, str(flights), self.topic)

    def written(self) -> tuple[int, int]:
        """How many records there are, and dead letters, in committed transactions."""
        late, dead = self._counts()
        return late - self._before[0], dead - self._before[1]

    def until_written(self, *, late: int, dead: int) -> None:
        """Waits for so many, of which none is there twice."""
        self._kubernetes.until(lambda: self.written() >= (late, dead), f"{late} rows and {dead} dead letters")
        assert self.written() == (late, dead)

    def status(self) -> dict[str, Any]:
        return dict(self._kubernetes.there(KAFKA_PIPELINE, NAME).get("status") or {})

    def events(self) -> list[Obj]:
        """The Events about the pipeline."""
        found = self._kubernetes.list(EVENT)
        return [one for one in found if dig(one, "involvedObject", "kind") == KAFKA_PIPELINE.kind]

    def _counts(self) -> tuple[int, int]:
        found = json.loads(self._kubernetes.execute(self._client, "python3", "-c", COUNT).splitlines()[-1])
        return found["late-flights"], found["flights-dead"]


class HeldBatch:
    """Holds a batch of a pipeline whose claim is a folder here: its first task ends, and the second one waits with its
    first row. The pipeline runs one task at a time."""

    def __init__(self, kubernetes: Kubernetes, claim: Path) -> None:
        self._kubernetes = kubernetes
        self._claim = claim
        self._folder = claim / "hold"
        (claim / "holding.py").write_text(HOLDING)

    @staticmethod
    def step(after: Mapping[str, Any]) -> dict[str, str]:
        """A step of the document behind another one."""
        return {"name": "held", "python": "holding:hold", "from": str(after["name"])}

    def hold(self) -> None:
        """From now on."""
        self._folder.mkdir()
        self._folder.chmod(0o777)

    def until_waits(self) -> None:
        self._kubernetes.until((self._folder / "waits").exists, "the second task waits with its first row")

    def let_go(self) -> None:
        """What waits goes on, and nothing waits any more until `hold`."""
        self._folder.rename(self._claim / f"held-{len(list(self._claim.iterdir()))}")


@contextmanager
def shared_volume(kubernetes: Kubernetes, folder: Path, name: str) -> Iterator[str]:
    """The class of a volume that is this folder, which every node can write: they are processes of one machine."""
    folder.mkdir()
    folder.chmod(0o777)
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
        "storageClassName": name,
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(folder)},
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    kubernetes.kubectl("create", "-f", "-", text=yaml.safe_dump(volume))
    yield name
    kubernetes.kubectl("delete", "persistentvolume", name)
