"""A KafkaPipeline with the task that reconciles it, in a Kubernetes in memory or a real one."""

from __future__ import annotations

import copy
import json
from typing import Any

from ottla_documents.kafka_pipeline import FAILED_FOR_GOOD
from ottla_operator.api.objects import (
    CONFIG_MAP,
    CRON_JOB,
    JOB,
    KAFKA_CLUSTER,
    KAFKA_PIPELINE,
    POD,
    Obj,
    dig,
    new,
    owned,
)
from ottla_operator.ports import ApiError
from ottla_operator.runtime.object_cache import ObjectCache, pipeline_of
from ottla_operator.runtime.pipeline_supervisor import PIPELINE_KINDS
from ottla_operator.runtime.pipeline_task import PipelineImage, PipelineTask
from tests.operator.crds.test_schemas import PIPELINE
from tests.operator.fleet import CLUSTER, Fleet, InMemoryKafka, InMemorySurroundings
from tests.operator.kubernetes import node
from tests.operator.task_contexts import task_context

NAME = PIPELINE["metadata"]["name"]
OBJECT = f"{NAME}-pipeline"
BATCH: dict[str, Any] = {
    "lastBatchId": 7,
    "lastBatchTime": "2026-01-01T00:00:00.000Z",
    "lastBatchDurationMs": 400,
    "processedRowsPerSecond": 1234.4,
    "totalInputRows": 99,
    "totalLag": 12,
    "lag": {"flights": {"0": 12}},
    "watermark": "",
}


def status(phase: str, **fields: Any) -> dict[str, Any]:
    """What a driver answers to /status."""
    return {"phase": phase, "restarts": 0, "lastError": "", "queries": {NAME: BATCH}, **fields}


class Pipelines:
    """One pipeline in a namespace with a KafkaCluster."""

    def __init__(self, image: str = "pipelines:1") -> None:
        self.kubernetes = Fleet.make_kubernetes()
        self.environment = InMemorySurroundings(self.kubernetes, InMemoryKafka(self.kubernetes))
        self.image = image
        self.kubernetes.put(node("n1", "zone-a"))
        self.kubernetes.put(copy.deepcopy(CLUSTER))
        self.restart()

    def restart(self) -> None:
        """A new operator: it knows only what the API server has."""
        cache, clusters = ObjectCache(pipeline_of), ObjectCache()
        kinds = {kind.kind for kind in PIPELINE_KINDS}

        def see(event: str, obj: Obj) -> None:
            for store, wanted in ((cache, kinds), (clusters, {KAFKA_CLUSTER.kind})):
                if obj["kind"] in wanted:
                    store.remove(obj) if event == "DELETED" else store.put(obj)

        for obj in list(self.kubernetes.objects.values()):
            see("ADDED", copy.deepcopy(obj))
        self.kubernetes.on_change = see
        context = task_context(clusters, self.kubernetes, self.environment, self._passed)
        self.task = PipelineTask(("default", NAME), cache, context, PipelineImage(self.image))

    def _passed(self) -> float:
        return float(self.environment.passed_s)

    def apply(self, **spec: Any) -> None:
        """Creates the KafkaPipeline, or changes fields of its spec; None takes one away."""
        there = self.kubernetes.objects.get((KAFKA_PIPELINE.kind, "default", NAME))
        wanted = copy.deepcopy(there or {**PIPELINE, "metadata": {**PIPELINE["metadata"], "namespace": "default"}})
        changed = {key: value for key, value in {**wanted["spec"], **spec}.items() if value is not None}
        self.kubernetes.put({**wanted, "spec": changed})

    async def settle(self) -> float | None:
        """Reconciles until nothing is written. Returns when the task wants to be called again."""
        for _ in range(20):
            writes, version = len(self.kubernetes.writes), self.kubernetes.version
            try:
                pause = await self.task.reconcile_once()
            except ApiError:
                pause = None  # the task is called again, after a time
            self.kubernetes.settle()
            if (len(self.kubernetes.writes), self.kubernetes.version) == (writes, version):
                return pause
        raise AssertionError(f"no rest: {self.kubernetes.writes[-10:]}")

    async def runs(self, phase: str = "Running", **fields: Any) -> None:
        """Settles with a driver that says this."""
        await self.settle()
        self.environment.drivers[self.pod()] = status(phase, **fields)
        await self.settle()

    def there(self) -> Obj:
        return self.kubernetes.there(KAFKA_PIPELINE, NAME)

    def status(self, *path: str) -> Any:
        return dig(self.there(), "status", *path)

    def condition(self, type_: str) -> tuple[str, str, str]:
        """(status, reason, message)."""
        found = next(one for one in self.status("conditions") if one["type"] == type_)
        return found["status"], found["reason"], found["message"]

    def pod(self) -> str:
        """The name of the only pod of a driver."""
        (name,) = (name for name in self.kubernetes.names(POD) if "-exec-" not in name)
        return name

    def executor(self, number: int, phase: str = "Running", **status: Any) -> str:
        """A pod as the driver creates it; its name. `status`: more of its status."""
        template = json.loads(self.kubernetes.there(CONFIG_MAP, OBJECT)["data"]["executor.yaml"])
        name, driver = f"{NAME}-1f-exec-{number}", self.kubernetes.there(POD, self.pod())
        (container,) = template["spec"]["containers"]
        spec = {**template["spec"], "restartPolicy": "Never", "containers": [{**container, "image": "pipelines:1"}]}
        ready = {"conditions": [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]}
        pod = new(POD, "default", name, template["metadata"]["labels"], spec=spec)
        self.kubernetes.put(owned({**pod, "status": {"phase": phase, **ready, **status}}, driver))
        return name

    def job(self) -> Obj:
        (name,) = self.kubernetes.names(JOB)
        return self.kubernetes.there(JOB, name)

    def start_run(self) -> None:
        """As the CronJob controller does at a time of the schedule."""
        cron_job = self.kubernetes.there(CRON_JOB, OBJECT)
        template = cron_job["spec"]["jobTemplate"]
        number = len(self.kubernetes.names(JOB))
        labels = template["metadata"]["labels"]
        job = new(JOB, "default", f"{OBJECT}-{number}", labels, spec=copy.deepcopy(template["spec"]))
        self.kubernetes.put(owned(job, cron_job))

    def end_job(self, said: dict[str, Any] | str) -> None:
        """The driver of the newest Job ends: `said` is what it leaves, a status or the end of its log."""
        name = self.kubernetes.names(JOB)[-1]
        is_complete = isinstance(said, dict) and said["phase"] == "Completed"
        message = json.dumps(said) if isinstance(said, dict) else said
        pod = self.kubernetes.there(POD, f"{name}-0")
        ended = {
            "exitCode": 0 if is_complete else FAILED_FOR_GOOD,
            "message": message,
            "reason": "Completed" if is_complete else "Error",
        }
        container = {
            "name": "driver", "ready": False, "restartCount": 0, "image": "i", "imageID": "",
            "state": {"terminated": ended},
        }  # fmt: skip
        pod_status = {**pod["status"], "phase": "Succeeded" if is_complete else "Failed", "conditions": []}
        self.kubernetes.put({**pod, "status": {**pod_status, "containerStatuses": [container]}})
        job, time = self.kubernetes.there(JOB, name), self.environment.now()
        before, kind = ("SuccessCriteriaMet", "Complete") if is_complete else ("FailureTarget", "Failed")
        conditions = [
            {"type": one, "status": "True", "reason": "PodFailurePolicy", "message": f"exit code {FAILED_FOR_GOOD}"}
            for one in (before, kind)
        ]
        job_status = {"conditions": conditions, "startTime": time}
        if is_complete:
            job_status |= {"completionTime": time, "succeeded": 1}
        self.kubernetes.put({**job, "status": job_status})

    def events(self) -> list[tuple[str, str]]:
        """(reason, message) of the Events of the pipeline, in order."""
        found = [obj for (kind, _, _), obj in self.kubernetes.objects.items() if kind == "Event"]
        found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [
            (one["reason"], one["message"]) for one in found if one["involvedObject"]["kind"] == KAFKA_PIPELINE.kind
        ]
