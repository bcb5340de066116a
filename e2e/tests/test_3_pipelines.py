"""A pipeline document runs on Kubernetes: what it writes, suspend and resume, executors, and what stays after its
deletion."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.kubernetes_api import Kubernetes
from e2e.providers import KubernetesCluster
from e2e.tests.late_flights import EXECUTORS, NAME, OBJECT, OURS, HeldBatch, LateFlights, shared_volume
from ottla_operator.api.objects import (
    CLAIM,
    KAFKA_PIPELINE,
    KAFKA_TOPIC,
    POD,
    ROLE,
    STATEFUL_SET,
    dig,
    name_of,
    uid_of,
)

SHARED, SPOOLED = "shared", "spooled"
FEW_FLIGHTS, MANY_FLIGHTS, SPOOLED_FLIGHTS = "few-flights", "many-flights", "spooled-flights"
"""Topics of one test each: `flights` has records of other tests, which are no flights."""
LARGE = 40_000
"""So many flights are more than goes through Spark's messages, of which a task takes half."""


@pytest.mark.usefixtures("orders")
def test_a_pipeline_writes_each_row_once_also_after_its_pod_was_killed_or_suspended_and_leaves_its_claim(
    kubernetes: Kubernetes, client: str, pipeline_image: str
) -> None:
    flights = LateFlights(kubernetes, client, FEW_FLIGHTS)
    flights.spec.update(image=pipeline_image, resources={"requests": {"cpu": "250m", "memory": "1536Mi"}})
    flights.apply()

    flights.send(200)
    flights.until_written(late=100, dead=1)
    kubernetes.until_condition(KAFKA_PIPELINE, NAME, "Ready")
    kubernetes.until(lambda: dig(flights.status(), "progress", "lag") == 0, "status shows that nothing is left")
    (pod,) = kubernetes.list(POD, selector=OURS)
    assert flights.status()["pod"] == pod["metadata"]["name"]

    flights.send(100)
    kubernetes.delete(POD, pod["metadata"]["name"], grace_s=0)  # SIGKILL
    flights.until_written(late=150, dead=2)

    kubernetes.patch(KAFKA_PIPELINE, NAME, {"spec": {"suspend": True}})
    kubernetes.until(lambda: not kubernetes.list(POD, selector=OURS), "the driver has ended")
    kubernetes.until_condition(KAFKA_PIPELINE, NAME, "Ready", "Suspended")
    flights.send(60)
    kubernetes.patch(KAFKA_PIPELINE, NAME, {"spec": {"suspend": False}})
    flights.until_written(late=180, dead=3)

    claim = uid_of(kubernetes.there(CLAIM, OBJECT))
    kubernetes.delete(KAFKA_PIPELINE, NAME)
    kubernetes.until(lambda: not kubernetes.list(POD, selector=OURS), "the driver has ended")
    assert kubernetes.get(STATEFUL_SET, OBJECT) is None
    assert uid_of(kubernetes.there(CLAIM, OBJECT)) == claim
    assert flights.written() == (180, 3)
    kubernetes.delete(CLAIM, OBJECT)
    kubernetes.delete(KAFKA_TOPIC, FEW_FLIGHTS)


@pytest.fixture
def claim(kubernetes: Kubernetes, cluster: KubernetesCluster, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The folder of a volume whose class has the folder's name."""
    if cluster.volumes is None:
        pytest.skip("the nodes have no folder in common")
    with shared_volume(kubernetes, cluster.volumes / request.param, request.param):
        yield cluster.volumes / request.param


def _with_an_executor(flights: LateFlights, image: str, claim: Path) -> None:
    del flights.spec["sink"]["topic"]["config"]  # compressed, it would go through Spark's messages
    resources = {"requests": {"cpu": "250m", "memory": "1536Mi"}}
    flights.spec.update(
        image=image,
        resources=resources,
        executors={"instances": 1, "resources": resources},
        checkpoint={"accessModes": ["ReadWriteMany"], "storageClassName": claim.name},
    )


@pytest.mark.parametrize("claim", [SHARED], indirect=True)
@pytest.mark.usefixtures("orders")
def test_executors_write_each_row_once_and_go_with_a_driver_that_is_killed_or_suspended(
    kubernetes: Kubernetes, client: str, pipeline_image: str, claim: Path
) -> None:
    flights = LateFlights(kubernetes, client, MANY_FLIGHTS)
    flights.send(LARGE)
    _with_an_executor(flights, pipeline_image, claim)
    flights.apply()
    kubernetes.until_condition(KAFKA_PIPELINE, NAME, "Ready")
    flights.until_written(late=20_000, dead=1)
    (executor,) = kubernetes.list(POD, selector=EXECUTORS)
    driver = kubernetes.there(POD, str(flights.status()["pod"]))
    assert executor["metadata"]["ownerReferences"][0]["uid"] == uid_of(driver)
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert all("serviceaccount" not in one["mountPath"] for one in executor["spec"]["containers"][0]["volumeMounts"])
    kubernetes.until(lambda: flights.status().get("executors") == 1, "status counts it")

    kubernetes.delete(POD, name_of(executor), grace_s=0)
    flights.send(100)
    flights.until_written(late=20_050, dead=2)
    (another,) = kubernetes.list(POD, selector=EXECUTORS)
    assert uid_of(another) != uid_of(executor)

    kubernetes.delete(POD, name_of(driver), grace_s=0)  # SIGKILL
    kubernetes.until(lambda: kubernetes.get(POD, name_of(another)) is None, "the executor goes with its driver")
    flights.send(100)
    flights.until_written(late=20_100, dead=3)

    kubernetes.patch(KAFKA_PIPELINE, NAME, {"spec": {"suspend": True}})
    kubernetes.until(lambda: not kubernetes.list(POD, selector=OURS), "driver and executors have ended")
    kubernetes.delete(KAFKA_PIPELINE, NAME)
    kubernetes.until(lambda: kubernetes.get(ROLE, OBJECT) is None, "the driver's rights go too")
    assert flights.written() == (20_100, 3)
    kubernetes.delete(CLAIM, OBJECT)
    kubernetes.delete(KAFKA_TOPIC, MANY_FLIGHTS)


@pytest.mark.parametrize("claim", [SPOOLED], indirect=True)
@pytest.mark.usefixtures("orders")
def test_record_batches_of_executors_go_through_the_claim_and_a_damaged_or_left_file_changes_no_row(
    kubernetes: Kubernetes, client: str, pipeline_image: str, claim: Path
) -> None:
    flights = LateFlights(kubernetes, client, SPOOLED_FLIGHTS)
    _with_an_executor(flights, pipeline_image, claim)
    held = HeldBatch(kubernetes, claim)
    flights.spec["steps"].append(held.step(flights.spec["steps"][-1]))
    spool = claim / ".ottla" / "pipelines" / NAME / "spool"

    def spooled() -> Path:
        """The file of the first task, while the second one of its batch waits."""
        held.hold()
        before = flights.written()
        flights.send(LARGE)
        held.until_waits()
        (file,) = spool.iterdir()
        (executor,) = kubernetes.list(POD, selector=EXECUTORS)
        assert name_of(executor) in file.name, "the executor has written it"
        assert file.read_bytes().count(b'"arr_delay":30.0') > 0
        assert flights.written() == before, "nothing of the batch is sent"
        return file

    def until_told(restarts: int, message: str) -> None:
        kubernetes.until(lambda: flights.status().get("restarts") == restarts, "status counts the failed attempt")
        assert message in flights.status()["lastError"]

    flights.apply()
    missing = spooled()
    missing.unlink()
    held.let_go()
    until_told(1, f"the driver cannot read /var/lib/ottla/.ottla/pipelines/{NAME}/spool/{missing.name}: No such file")
    flights.until_written(late=20_000, dead=1)

    cut_short = spooled()
    os.truncate(cut_short, cut_short.stat().st_size // 2)
    held.let_go()
    until_told(2, f"{cut_short.name} is cut short at byte")
    flights.until_written(late=40_000, dead=2)

    whole = spooled()
    left = whole.with_name(whole.name[:-4] + "left")  # as of an attempt that was killed while it wrote
    shutil.copy(whole, left)
    os.truncate(left, left.stat().st_size // 2)
    (executor,) = kubernetes.list(POD, selector=EXECUTORS)
    kubernetes.delete(POD, name_of(executor), grace_s=0)  # SIGKILL: the second task runs again in another pod
    kubernetes.until(lambda: kubernetes.get(POD, name_of(executor)) is None, "the executor is gone")
    assert whole.exists(), "what the first task has written stays without its executor"
    held.let_go()
    flights.until_written(late=60_000, dead=3)
    kubernetes.until(lambda: list(spool.iterdir()) == [], "the files of the batch are deleted")
    assert flights.status()["restarts"] == 2, "a lost executor fails no batch"

    kubernetes.delete(KAFKA_PIPELINE, NAME)
    kubernetes.until(lambda: not kubernetes.list(POD, selector=OURS), "driver and executors have ended")
    assert flights.written() == (60_000, 3)
    kubernetes.delete(CLAIM, OBJECT)
    kubernetes.delete(KAFKA_TOPIC, SPOOLED_FLIGHTS)
