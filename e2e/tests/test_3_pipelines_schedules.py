"""A pipeline with a schedule: a Job at each of its times, which goes on where the last one has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.kubernetes_api import Kubernetes
from e2e.providers import KubernetesCluster
from e2e.tests.late_flights import NAME, OBJECT, OURS, HeldBatch, LateFlights, shared_volume
from ottla_operator.api.objects import (
    CLAIM,
    CRON_JOB,
    JOB,
    KAFKA_PIPELINE,
    KAFKA_TOPIC,
    POD,
    Obj,
    dig,
    has_condition,
    is_terminating,
    name_of,
    uid_of,
)

SCHEDULED = "scheduled"
EACH_MINUTE = "* * * * *"


@pytest.fixture
def claim(kubernetes: Kubernetes, cluster: KubernetesCluster) -> Iterator[Path]:
    """The folder of the volume."""
    if cluster.volumes is None:
        pytest.skip("the nodes have no folder in common")
    with shared_volume(kubernetes, cluster.volumes / SCHEDULED, SCHEDULED):
        yield cluster.volumes / SCHEDULED


@pytest.mark.usefixtures("orders")
def test_each_run_of_a_schedule_goes_on_where_the_last_one_ended_also_after_its_pod_was_killed(
    kubernetes: Kubernetes, cluster: KubernetesCluster, client: str, pipeline_image: str, claim: Path
) -> None:
    flights = LateFlights(kubernetes, client, "scheduled-flights")
    held = HeldBatch(kubernetes, claim)
    del flights.spec["trigger"]
    flights.spec["steps"].append(held.step(flights.spec["steps"][-1]))
    flights.spec.update(
        image=pipeline_image,
        schedule=EACH_MINUTE,
        resources={"requests": {"cpu": "250m", "memory": "1536Mi"}},
        checkpoint={"storageClassName": SCHEDULED},
    )
    flights.send(200)
    flights.apply()
    kubernetes.until_condition(KAFKA_PIPELINE, NAME, "Ready", "Waiting")
    flights.until_written(late=100, dead=1)
    completed = _completed_after(kubernetes, "")
    kubernetes.until(lambda: flights.status().get("lastRunTime") is not None, "status has the time of the run")
    kubernetes.until(lambda: "Completed" in _reasons(flights), "an Event says that the run has ended")

    flights.send(100)
    flights.until_written(late=150, dead=2)
    _completed_after(kubernetes, uid_of(completed))
    assert flights.written() == (150, 2), "the run read what the first one had not read"

    held.hold()
    flights.send(100)
    held.until_waits()
    (run,) = (job for job in kubernetes.list(JOB, selector=OURS) if not _is_finished(job))
    (pod,) = _running_pods(kubernetes)
    kubernetes.until(lambda: flights.status().get("state") == "Running", "status says that it runs")
    assert flights.status()["pod"] == name_of(pod)
    assert flights.written() == (150, 2), "the batch is in its middle"
    kubernetes.delete(POD, name_of(pod), grace_s=0)  # SIGKILL
    held.let_go()
    flights.until_written(late=200, dead=3)
    kubernetes.until(lambda: _has_completed(kubernetes, uid_of(run)), "the same Job has completed, with another pod")
    assert flights.written() == (200, 3)

    held.hold()
    flights.send(100)
    held.until_waits()
    kubernetes.patch(KAFKA_PIPELINE, NAME, {"spec": {"suspend": True}})
    kubernetes.until(lambda: all(map(is_terminating, _running_pods(kubernetes))), "the driver is to end")
    held.let_go()
    kubernetes.until(lambda: not _running_pods(kubernetes), "it ends after its batch")
    kubernetes.until_condition(KAFKA_PIPELINE, NAME, "Ready", "Suspended")
    assert "Suspended" in _reasons(flights)
    flights.until_written(late=250, dead=4)
    flights.send(100)
    _until_another_schedule_has_run(kubernetes, cluster)
    assert not [job for job in kubernetes.list(JOB, selector=OURS) if not _is_finished(job)], "no run has begun"
    assert flights.written() == (250, 4)

    kubernetes.patch(KAFKA_PIPELINE, NAME, {"spec": {"suspend": False}})
    flights.until_written(late=300, dead=5)
    kubernetes.delete(KAFKA_PIPELINE, NAME)
    kubernetes.until(lambda: not kubernetes.list(POD, selector=OURS), "the driver has ended")
    assert kubernetes.get(CRON_JOB, OBJECT) is None
    assert flights.written() == (300, 5)
    kubernetes.delete(CLAIM, OBJECT)
    kubernetes.delete(KAFKA_TOPIC, flights.topic)


def _is_finished(job: Obj) -> bool:
    return has_condition(job, "Complete") or has_condition(job, "Failed")


def _has_completed(kubernetes: Kubernetes, uid: str) -> bool:
    return any(uid_of(job) == uid and has_condition(job, "Complete") for job in kubernetes.list(JOB, selector=OURS))


def _completed_after(kubernetes: Kubernetes, uid: str) -> Obj:
    """A Job of the schedule that has completed and is not the one of this uid."""
    found: list[Obj] = []

    def holds() -> bool:
        jobs = (job for job in kubernetes.list(JOB, selector=OURS) if uid_of(job) != uid)
        found.extend(job for job in jobs if has_condition(job, "Complete"))
        return bool(found)

    kubernetes.until(holds, "a run of the schedule has completed")
    return found[0]


def _running_pods(kubernetes: Kubernetes) -> list[Obj]:
    """The pods that run; pods of ended runs stay with their Jobs."""
    return [pod for pod in kubernetes.list(POD, selector=OURS) if dig(pod, "status", "phase") == "Running"]


def _reasons(flights: LateFlights) -> set[str]:
    return {str(event["reason"]) for event in flights.events()}


def _until_another_schedule_has_run(kubernetes: Kubernetes, cluster: KubernetesCluster) -> None:
    """Awaits the next minute as Kubernetes sees it: a CronJob with the same schedule has its Job."""
    container = {"name": "true", "image": cluster.images.client.reference, "command": ["true"]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"schedule": EACH_MINUTE, "jobTemplate": {"spec": {"template": template}}}
    metadata = {"name": "minute", "namespace": "default"}
    kubernetes.create({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec})
    kubernetes.until(
        lambda: dig(kubernetes.there(CRON_JOB, "minute"), "status", "lastScheduleTime"), "the next minute has come"
    )
    kubernetes.delete(CRON_JOB, "minute")
