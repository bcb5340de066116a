"""A KafkaPipeline with executors, in memory: the driver's rights, what Spark is told, and what status says."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from ottla_documents.documents import load_documents
from ottla_operator.api.names import PIPELINE
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    KAFKA_PIPELINE,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    dig,
    uid_of,
)
from tests.operator.pipeline_fleet import NAME, OBJECT, Pipelines, status

MANY = {"accessModes": ["ReadWriteMany"]}
EXECUTORS: dict[str, Any] = {"instances": 2, "resources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "4Gi"}}}


@pytest.fixture
def pipelines() -> Pipelines:
    return Pipelines()


def _settings(pipelines: Pipelines) -> dict[str, str]:
    """What Spark is told, by the arguments of the driver."""
    (container,) = pipelines.kubernetes.there(POD, pipelines.pod())["spec"]["containers"]
    arguments = container["args"]
    given = [value for key, value in itertools.pairwise(arguments) if key == "--conf"]
    master = arguments[arguments.index("--master") + 1]
    return {"spark.master": master, **dict(one.split("=", 1) for one in given)}


async def test_a_driver_with_executors_runs_in_sparks_client_mode(pipelines: Pipelines) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY)
    await pipelines.runs()
    said = _settings(pipelines)
    assert said["spark.master"] == "k8s://https://kubernetes.default.svc"
    assert (said["spark.driver.host"], said["spark.kubernetes.driver.pod.name"]) == ("$(POD_IP)", "$(POD_NAME)")
    assert said["spark.kubernetes.executor.container.image"] == "pipelines:1"
    assert (said["spark.executor.instances"], said["spark.executor.cores"]) == ("2", "2")
    assert (said["spark.executor.memory"], said["spark.executor.memoryOverhead"]) == ("2048m", "2048m")
    assert said["spark.kubernetes.executor.request.cores"] == "1500m"
    assert "spark.kubernetes.executor.limit.cores" not in said
    assert said["spark.authenticate"] == "true"
    (container,) = pipelines.kubernetes.there(POD, pipelines.pod())["spec"]["containers"]
    fields = {one["name"]: dig(one, "valueFrom", "fieldRef", "fieldPath") for one in container["env"]}
    assert (fields["POD_NAME"], fields["POD_IP"]) == ("metadata.name", "status.podIP")
    ports = {str(port["containerPort"]) for port in container["ports"]}
    assert {said["spark.driver.port"], said["spark.driver.blockManager.port"], "8080"} == ports
    assert dig(pipelines.kubernetes.there(CLAIM, OBJECT), "spec", "accessModes") == ["ReadWriteMany"]
    text = pipelines.kubernetes.there(CONFIG_MAP, OBJECT)["data"]["pipeline.yaml"]
    (document,) = load_documents([("pipeline.yaml", text)]).pipelines
    assert document.executors is None, "for a driver the field would be that of one machine"


async def test_the_driver_alone_has_a_token_and_it_is_for_pods_alone(pipelines: Pipelines) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY)
    await pipelines.runs()
    assert pipelines.kubernetes.there(SERVICE_ACCOUNT, OBJECT)["automountServiceAccountToken"] is False
    assert pipelines.kubernetes.there(POD, pipelines.pod())["spec"]["automountServiceAccountToken"] is True
    (rule,) = pipelines.kubernetes.there(ROLE, OBJECT)["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    assert set(rule["verbs"]) == {"get", "list", "watch", "create", "delete", "deletecollection"}
    binding = pipelines.kubernetes.there(ROLE_BINDING, OBJECT)
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", OBJECT)
    assert [(one["kind"], one["name"]) for one in binding["subjects"]] == [("ServiceAccount", OBJECT)]
    template = json.loads(pipelines.kubernetes.there(CONFIG_MAP, OBJECT)["data"]["executor.yaml"])
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["spec"]["serviceAccountName"] == OBJECT, "its imagePullSecrets"


async def test_executors_have_the_drivers_security_claim_and_pipeline_and_no_stateful_set_selects_them(
    pipelines: Pipelines,
) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY)
    await pipelines.runs()
    template = json.loads(pipelines.kubernetes.there(CONFIG_MAP, OBJECT)["data"]["executor.yaml"])
    driver = pipelines.kubernetes.there(POD, pipelines.pod())["spec"]
    (executor,), (container,) = template["spec"]["containers"], driver["containers"]
    assert template["spec"]["securityContext"] == driver["securityContext"]
    assert executor["securityContext"] == container["securityContext"]
    assert executor["workingDir"] == container["workingDir"]
    mounts = [{one["name"]: one["mountPath"] for one in each["volumeMounts"]} for each in (executor, container)]
    assert mounts[0]["checkpoint"] == mounts[1]["checkpoint"]
    claims = [dig(one, "persistentVolumeClaim", "claimName") for one in template["spec"]["volumes"]]
    assert OBJECT in claims
    labels = template["metadata"]["labels"]
    selector = pipelines.kubernetes.there(STATEFUL_SET, OBJECT)["spec"]["selector"]["matchLabels"]
    assert labels[PIPELINE] == NAME and not selector.items() <= labels.items()


async def test_executors_are_counted_and_none_is_taken_for_the_driver(pipelines: Pipelines) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY)
    await pipelines.runs()
    assert pipelines.status("executors") == 0
    pipelines.executor(1)
    await pipelines.settle()
    assert (pipelines.status("pod"), pipelines.status("executors")) == (f"{OBJECT}-0", 1)
    assert pipelines.condition("Ready")[2] == f"in the pod {OBJECT}-0 with 1 of 2 executors"
    pipelines.executor(2)
    await pipelines.settle()
    assert pipelines.status("executors") == 2 and pipelines.condition("Degraded")[0] == "False"
    pipelines.kubernetes.writes.clear()
    pipelines.restart()
    await pipelines.settle()
    assert pipelines.kubernetes.writes == []


async def test_a_run_that_has_ended_has_no_executors(pipelines: Pipelines) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY, trigger={"availableNow": True})
    await pipelines.runs()
    pipelines.executor(1)
    await pipelines.settle()
    assert pipelines.status("executors") == 1
    pipelines.end_job(status("Completed"))
    await pipelines.settle()
    assert pipelines.status("state") == "Completed" and pipelines.status("executors") is None


async def test_an_executor_that_finds_no_node_is_named(pipelines: Pipelines) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY)
    await pipelines.runs()
    pipelines.executor(1)
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu"}
    name = pipelines.executor(2, "Pending", conditions=[unscheduled])
    await pipelines.settle()
    status, reason, message = pipelines.condition("Degraded")
    assert (status, reason) == ("True", "ExecutorsNotReady")
    assert message.endswith(f"with 1 of 2 executors: the executor {name} is not scheduled (Insufficient cpu)")
    assert pipelines.condition("Running")[0] == "True" and pipelines.events()[-1][0] == "ExecutorsNotReady"


async def test_executors_that_a_killed_driver_has_left_in_its_pod_are_deleted_once_they_have_ended(
    pipelines: Pipelines,
) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY)
    await pipelines.runs()
    running, ended = pipelines.executor(1), pipelines.executor(2, "Failed")
    await pipelines.settle()
    assert {running, ended} <= {*pipelines.kubernetes.names(POD)}, "those of this driver are Spark's to delete"
    pod = pipelines.kubernetes.there(POD, pipelines.pod())
    restarted = {
        "name": "driver", "image": "i", "imageID": "", "ready": True, "restartCount": 1,
        "state": {"running": {"startedAt": "2099-01-01T00:00:00Z"}},
    }  # fmt: skip
    pipelines.kubernetes.put({**pod, "status": {**pod["status"], "containerStatuses": [restarted]}})
    await pipelines.settle()
    assert ended not in pipelines.kubernetes.names(POD) and running in pipelines.kubernetes.names(POD)


async def test_rights_and_token_go_with_the_field_but_not_before_the_driver_that_has_them(pipelines: Pipelines) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY)
    await pipelines.runs()
    former = uid_of(pipelines.kubernetes.there(POD, pipelines.pod()))
    pipelines.apply(executors=None)
    await pipelines.task.reconcile_once()
    assert pipelines.kubernetes.names(ROLE) == [OBJECT], "the driver ends its batch with its executors"
    await pipelines.settle()
    pod = pipelines.kubernetes.there(POD, pipelines.pod())
    assert uid_of(pod) != former and pod["spec"]["automountServiceAccountToken"] is False
    assert pipelines.kubernetes.names(ROLE) == [] and pipelines.kubernetes.names(ROLE_BINDING) == []
    assert "executor.yaml" not in pipelines.kubernetes.there(CONFIG_MAP, OBJECT)["data"]
    await pipelines.runs()
    assert _settings(pipelines)["spark.master"] == "local[1]" and pipelines.status("executors") is None


@pytest.mark.parametrize("spec", [{"suspend": True}, {"suspend": True, "trigger": {"availableNow": True}}])
async def test_a_suspended_pipeline_keeps_its_rights_and_has_no_driver(
    pipelines: Pipelines, spec: dict[str, Any]
) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY, **spec)
    await pipelines.settle()
    assert pipelines.kubernetes.names(POD) == [] and pipelines.kubernetes.names(ROLE) == [OBJECT]
    assert pipelines.status("state") == "Suspended"


async def test_a_claim_for_one_node_is_kept_and_executors_are_refused_by_name(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    pod = uid_of(pipelines.kubernetes.there(POD, pipelines.pod()))
    pipelines.apply(executors=EXECUTORS)
    await pipelines.settle()
    assert "spec.checkpoint.accessModes: must have ReadWriteMany" in pipelines.condition("Valid")[2]
    pipelines.apply(checkpoint=MANY)
    await pipelines.settle()
    said = "spec.checkpoint.accessModes: the claim has ReadWriteOnce and keeps it"
    assert pipelines.condition("Valid") == ("False", "InvalidSpec", said)
    assert uid_of(pipelines.kubernetes.there(POD, pipelines.pod())) == pod
    assert pipelines.kubernetes.names(ROLE) == []


async def test_the_rights_are_deleted_with_the_pipeline(pipelines: Pipelines) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY)
    await pipelines.runs()
    pipelines.executor(1)
    pipelines.kubernetes.remove(KAFKA_PIPELINE, NAME)
    pipelines.kubernetes.settle()
    for kind in (ROLE, ROLE_BINDING, POD, STATEFUL_SET):
        assert pipelines.kubernetes.names(kind) == []


async def test_another_template_of_executors_restarts_the_driver_which_reads_it(pipelines: Pipelines) -> None:
    pipelines.apply(executors=EXECUTORS, checkpoint=MANY)
    await pipelines.runs()
    pod = uid_of(pipelines.kubernetes.there(POD, pipelines.pod()))
    pipelines.apply(executors={**EXECUTORS, "resources": {"limits": {"memory": "4Gi", "example.com/gpu": "1"}}})
    await pipelines.settle()
    assert uid_of(pipelines.kubernetes.there(POD, pipelines.pod())) != pod
