"""A KafkaPipeline in a Kubernetes in memory: what runs, what status says, and what stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla_documents.documents import load_documents
from ottla_operator.api.names import PIPELINE
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    CRON_JOB,
    JOB,
    KAFKA_CLUSTER,
    KAFKA_PIPELINE,
    POD,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Obj,
    dig,
    uid_of,
)
from ottla_operator.concerns.pipelines.pipeline_status import PROGRESS_S
from ottla_operator.ports import ApiError
from tests.operator.pipeline_fleet import BATCH, NAME, OBJECT, Pipelines, status


@pytest.fixture
def pipelines() -> Pipelines:
    return Pipelines()


async def test_a_stream_runs_in_the_one_pod_of_a_stateful_set_and_status_shows_its_progress(
    pipelines: Pipelines,
) -> None:
    pipelines.apply()
    await pipelines.runs()
    assert pipelines.pod() == f"{OBJECT}-0"
    container = pipelines.kubernetes.there(POD, pipelines.pod())["spec"]["containers"][0]
    assert container["image"] == "pipelines:1"
    arguments = " ".join(container["args"])
    assert "--master local[1]" in arguments and "--stay" in arguments
    assert "--bootstrap-servers orders-bootstrap.default.svc:9092" in arguments
    assert (pipelines.status("state"), pipelines.status("pod")) == ("Running", pipelines.pod())
    assert [pipelines.condition(name)[:2] for name in ("Ready", "Valid", "Running", "Degraded")] == [
        ("True", "QueryRunning"),
        ("True", "AsDeclared"),
        ("True", "QueryRunning"),
        ("False", "AsDeclared"),
    ]
    progress = pipelines.status("progress")
    assert (progress["rowsPerSecond"], progress["lag"], progress["inputRows"]) == (1234, 12, 99)
    assert progress["lastBatchTime"] == BATCH["lastBatchTime"]
    assert pipelines.events() == [("Started", f"runs in the pod {OBJECT}-0")]


async def test_the_document_of_the_driver_is_one_that_ottla_pipeline_reads_without_what_the_operator_serves(
    pipelines: Pipelines,
) -> None:
    pipelines.apply(resources={"limits": {"cpu": "1500m", "memory": "3Gi"}}, image="mine:2", checkpoint={"size": "2Gi"})
    await pipelines.settle()
    text = pipelines.kubernetes.there(CONFIG_MAP, OBJECT)["data"]["pipeline.yaml"]
    (found,) = load_documents([("pipeline.yaml", text)]).pipelines
    assert (found.name, found.cluster, found.checkpoint) == (NAME, "orders", f".ottla/pipelines/{NAME}")
    assert set(json.loads(text)["spec"]) == {"clusterRef", "source", "sink"}
    container = pipelines.kubernetes.there(POD, pipelines.pod())["spec"]["containers"][0]
    assert container["image"] == "mine:2" and "local[2]" in container["args"]
    assert {"name": "PYSPARK_SUBMIT_ARGS", "value": "--driver-memory 1536m pyspark-shell"} in container["env"]
    claim = pipelines.kubernetes.there(CLAIM, OBJECT)
    assert dig(claim, "spec", "resources", "requests", "storage") == "2Gi"


async def test_the_password_of_a_database_comes_from_its_secret(pipelines: Pipelines) -> None:
    jdbc = {"url": "jdbc:postgresql://db/flights", "table": "delays", "key": ["carrier"], "user": "ottla"}
    pipelines.apply(sink={"jdbc": {**jdbc, "passwordSecret": {"name": "flights-db", "key": "password"}}})
    await pipelines.runs()
    (container,) = pipelines.kubernetes.there(POD, pipelines.pod())["spec"]["containers"]
    password = {"secretKeyRef": {"name": "flights-db", "key": "password"}}
    assert {"name": "OTTLA_JDBC_PASSWORD", "valueFrom": password} in container["env"]


async def test_a_driver_has_no_access_to_the_api_and_is_not_root(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.settle()
    pod = pipelines.kubernetes.there(POD, pipelines.pod())["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == (OBJECT, False)
    account = pipelines.kubernetes.there(SERVICE_ACCOUNT, OBJECT)
    assert account["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


async def test_nothing_is_written_at_rest_also_by_a_new_operator(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    pipelines.kubernetes.writes.clear()
    pipelines.restart()
    pipelines.environment.passed_s += 3600
    await pipelines.settle()
    assert pipelines.kubernetes.writes == []


async def test_a_driver_that_does_not_answer_runs_while_its_pod_is_ready(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    pipelines.kubernetes.writes.clear()
    pipelines.environment.drivers.clear()
    pipelines.environment.passed_s += 3600
    await pipelines.settle()
    assert pipelines.kubernetes.writes == [] and pipelines.status("progress", "inputRows") == 99


async def test_progress_alone_is_written_at_most_once_a_minute(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    pipelines.kubernetes.writes.clear()
    for second in range(0, int(3 * PROGRESS_S), 10):
        pipelines.environment.passed_s += 10
        batch = {**BATCH, "lastBatchId": second}
        pipelines.environment.drivers[pipelines.pod()] = status("Running", queries={NAME: batch})
        await pipelines.settle()
    assert pipelines.kubernetes.writes == [("status", "KafkaPipeline", NAME)] * 3


async def test_a_failure_shows_the_last_error_and_goes_away_when_the_query_runs_again(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    await pipelines.runs("Restarting", lastError="topic 'flights' is gone", restarts=1)
    assert (pipelines.status("state"), pipelines.status("restarts")) == ("Restarting", 1)
    assert pipelines.condition("Degraded") == ("True", "Restarting", "topic 'flights' is gone")
    assert pipelines.condition("Ready")[:2] == ("False", "Restarting")
    assert pipelines.events()[-1] == ("Restarting", "topic 'flights' is gone")
    await pipelines.runs("Running", lastError="topic 'flights' is gone", restarts=1)
    assert pipelines.condition("Ready")[0] == "True" and pipelines.condition("Degraded")[0] == "False"


@pytest.mark.parametrize(("has_begun", "reason"), [(True, "Failed"), (False, "CannotStart")])
async def test_a_stream_that_has_failed_for_good_says_whether_it_could_begin(
    pipelines: Pipelines, has_begun: bool, reason: str
) -> None:
    pipelines.apply()
    error = "spec.sink.parquet.path: knows batches that the checkpoint does not"
    await pipelines.runs("Failed", lastError=error, hasBegun=has_begun)
    assert pipelines.status("state") == "Failed" and pipelines.status("lastError") == error
    assert pipelines.condition("Ready") == ("False", reason, error)
    assert pipelines.condition("Degraded") == ("True", reason, error)
    assert pipelines.events()[-1] == (reason, error)


async def test_a_changed_document_restarts_the_driver_and_keeps_its_claim(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    pod = uid_of(pipelines.kubernetes.there(POD, pipelines.pod()))
    claim = uid_of(pipelines.kubernetes.there(CLAIM, OBJECT))
    pipelines.apply(steps=[{"name": "late", "sql": "SELECT key, value FROM source"}])
    await pipelines.settle()
    assert uid_of(pipelines.kubernetes.there(POD, pipelines.pod())) != pod
    assert uid_of(pipelines.kubernetes.there(CLAIM, OBJECT)) == claim


async def test_suspend_stops_the_pod_keeps_the_checkpoint_and_ends_with_the_field(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    pipelines.apply(suspend=True)
    await pipelines.settle()
    assert pipelines.kubernetes.names(POD) == [] and pipelines.kubernetes.names(CLAIM) == [OBJECT]
    assert pipelines.status("state") == "Suspended" and pipelines.condition("Ready")[:2] == ("False", "Suspended")
    assert "pod" not in pipelines.status() and pipelines.status("progress", "inputRows") == 99
    pipelines.apply(suspend=None)
    await pipelines.runs()
    assert pipelines.status("state") == "Running"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"sink": {"topic": {"name": "flights"}}}, "spec.sink.topic.name: flights is read by this pipeline"),
        ({"steps": [{"name": "a", "sql": "SELECT * FROM sorce"}]}, "spec.steps[0].sql: no view 'sorce' is there"),
        ({"sink": {"topic": {"name": "b", "config": {"acsk": "1"}}}}, "spec.sink.topic.config.acsk: is unknown"),
        ({"checkpoint": {"path": "/data"}}, "spec.checkpoint.path: must be a folder of the claim"),
        ({"source": {"files": {"path": "../in", "format": "text"}}}, "spec.source.files.path: must be a folder"),
        ({"checkpoint": {"size": "1Mi"}}, "spec.checkpoint.size: the claim has 1Gi"),
        (
            # What is not ASCII has six bytes of each character in the ConfigMap.
            {"steps": [{"name": f"s{n}", "sql": f"select '{'ä' * 60_000}' as a from source"} for n in range(3)]},
            "spec: as JSON, with the template of executors, has 108",
        ),
    ],
)
async def test_a_wrong_field_is_named_and_what_runs_goes_on(
    pipelines: Pipelines, spec: dict[str, Any], message: str
) -> None:
    pipelines.apply()
    await pipelines.runs()
    pod = uid_of(pipelines.kubernetes.there(POD, pipelines.pod()))
    before = {**pipelines.there()["spec"]}
    pipelines.apply(**spec)
    await pipelines.settle()
    for name in ("Valid", "Ready"):
        assert pipelines.condition(name)[:2] == ("False", "InvalidSpec")
    assert message in pipelines.condition("Valid")[2] and pipelines.condition("Running")[0] == "True"
    assert pipelines.events()[-1][0] == "InvalidSpec"
    assert uid_of(pipelines.kubernetes.there(POD, pipelines.pod())) == pod
    pipelines.apply(**{key: before.get(key) for key in spec})
    await pipelines.settle()
    assert pipelines.condition("Ready")[0] == "True"


async def test_without_an_image_the_field_is_named_and_nothing_is_created() -> None:
    pipelines = Pipelines(image="")
    pipelines.apply()
    await pipelines.settle()
    assert pipelines.condition("Valid")[2].startswith("spec.image: is required")
    assert pipelines.kubernetes.names(STATEFUL_SET) == [] and pipelines.kubernetes.names(CLAIM) == []


async def test_a_pipeline_waits_for_its_cluster_and_goes_on_without_it(pipelines: Pipelines) -> None:
    pipelines.kubernetes.remove(KAFKA_CLUSTER, "orders")
    pipelines.apply()
    await pipelines.settle()
    assert pipelines.condition("Ready")[:2] == ("False", "ClusterNotFound") and pipelines.kubernetes.names(POD) == []
    pipelines.apply(clusterRef=None, bootstrapServers="other:9092")
    await pipelines.runs()
    assert pipelines.condition("Ready")[0] == "True"
    container = pipelines.kubernetes.there(POD, pipelines.pod())["spec"]["containers"][0]
    assert "--bootstrap-servers" not in container["args"]


async def test_available_now_is_a_job_that_runs_once_for_a_document(pipelines: Pipelines) -> None:
    pipelines.apply(trigger={"availableNow": True})
    await pipelines.runs()
    assert pipelines.kubernetes.names(STATEFUL_SET) == [] and pipelines.status("state") == "Running"
    first = pipelines.job()
    assert "--available-now" in first["spec"]["template"]["spec"]["containers"][0]["args"]
    pipelines.end_job(status("Completed"))
    await pipelines.settle()
    assert pipelines.status("state") == "Completed" and pipelines.condition("Ready")[:2] == ("True", "Completed")
    assert pipelines.status("progress", "inputRows") == 99
    assert [reason for reason, _ in pipelines.events()] == ["Started", "Completed"]

    pipelines.kubernetes.writes.clear()
    pipelines.image = "pipelines:2"
    pipelines.restart()
    await pipelines.settle()
    assert pipelines.kubernetes.writes == [], "an upgrade of the operator runs nothing that has run"

    pipelines.apply(deadLetters={"topic": "dead"})
    await pipelines.settle()
    assert uid_of(pipelines.job()) != uid_of(first)


async def test_a_job_repeats_what_has_ended_a_driver_but_no_failure_for_good(pipelines: Pipelines) -> None:
    pipelines.apply(trigger={"availableNow": True})
    await pipelines.settle()
    job = pipelines.job()["spec"]
    rules = {rule["action"]: rule for rule in job["podFailurePolicy"]["rules"]}
    assert rules["FailJob"]["onExitCodes"] == {"containerName": "driver", "operator": "In", "values": [3]}
    assert job["backoffLimit"] == 6  # Python ends with 1 for what nobody has foreseen


async def test_a_job_that_has_failed_says_why(pipelines: Pipelines) -> None:
    pipelines.apply(trigger={"availableNow": True})
    await pipelines.settle()
    pipelines.end_job(status("Failed", lastError="topic 'flights' is unknown"))
    await pipelines.settle()
    assert pipelines.condition("Ready") == ("False", "Failed", "topic 'flights' is unknown")
    assert pipelines.events()[-1] == ("Failed", "topic 'flights' is unknown")


async def test_a_driver_that_left_no_status_is_reported_with_the_end_of_its_log(pipelines: Pipelines) -> None:
    pipelines.apply(trigger={"availableNow": True})
    await pipelines.settle()
    pipelines.end_job("Traceback\njava.lang.OutOfMemoryError: Java heap space\n")
    await pipelines.settle()
    assert pipelines.condition("Degraded") == ("True", "Failed", "java.lang.OutOfMemoryError: Java heap space")


async def test_the_job_of_a_suspended_pipeline_is_suspended_and_goes_on(pipelines: Pipelines) -> None:
    pipelines.apply(trigger={"availableNow": True})
    await pipelines.runs()
    job = uid_of(pipelines.job())
    pipelines.apply(suspend=True)
    await pipelines.settle()
    assert pipelines.kubernetes.names(POD) == [] and pipelines.status("state") == "Suspended"
    pipelines.apply(suspend=None)
    await pipelines.settle()
    assert len(pipelines.kubernetes.names(POD)) == 1 and uid_of(pipelines.job()) == job


async def test_a_schedule_is_a_cron_job_whose_runs_do_not_overlap(pipelines: Pipelines) -> None:
    pipelines.apply(schedule="0 6 * * *", timeZone="Europe/Berlin")
    await pipelines.settle()
    spec = pipelines.kubernetes.there(CRON_JOB, OBJECT)["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("0 6 * * *", "Europe/Berlin")
    assert spec["concurrencyPolicy"] == "Forbid"
    assert pipelines.status("state") == "Waiting" and pipelines.condition("Ready")[:2] == ("True", "Waiting")
    pipelines.start_run()
    await pipelines.runs()
    assert pipelines.status("state") == "Running" and pipelines.status("lastRunTime")
    pipelines.end_job(status("Completed"))
    await pipelines.settle()
    assert pipelines.status("state") == "Waiting" and pipelines.condition("Degraded")[0] == "False"
    assert [reason for reason, _ in pipelines.events()] == ["Started", "Completed"]


async def test_a_run_of_a_schedule_that_has_failed_is_reported_until_the_next_one(pipelines: Pipelines) -> None:
    pipelines.apply(schedule="0 * * * *")
    await pipelines.settle()
    pipelines.start_run()
    await pipelines.settle()
    pipelines.end_job(status("Failed", lastError="no broker answers"))
    await pipelines.settle()
    assert pipelines.condition("Ready")[0] == "True"
    assert pipelines.condition("Degraded")[:2] == ("True", "LastRunFailed")
    assert "no broker answers" in pipelines.condition("Degraded")[2]


async def test_suspending_a_schedule_ends_the_run_that_is_under_way(pipelines: Pipelines) -> None:
    pipelines.apply(schedule="0 6 * * *")
    await pipelines.settle()
    pipelines.start_run()
    await pipelines.settle()
    pipelines.apply(suspend=True)
    await pipelines.settle()
    assert pipelines.kubernetes.there(CRON_JOB, OBJECT)["spec"]["suspend"] is True
    assert ("delete", "Job", f"{OBJECT}-0") in pipelines.kubernetes.writes
    assert pipelines.kubernetes.names(JOB) == []


async def test_another_trigger_begins_only_when_the_former_driver_is_gone(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    pipelines.apply(trigger={"availableNow": True})
    await pipelines.task.reconcile_once()
    assert ("delete", "StatefulSet", OBJECT) in pipelines.kubernetes.writes
    await pipelines.task.reconcile_once()
    assert pipelines.kubernetes.names(JOB) == [] and pipelines.condition("Ready")[1] == "Replacing"
    for name in pipelines.kubernetes.names(POD):  # the garbage collector
        pipelines.kubernetes.remove(POD, name)
    await pipelines.settle()
    assert len(pipelines.kubernetes.names(JOB)) == 1 and pipelines.kubernetes.names(STATEFUL_SET) == []


async def _made_by_another_operator(pipelines: Pipelines, **spec: Any) -> str:
    """A stream whose StatefulSet differs in fields that Kubernetes does not change. Returns the uid of the claim."""
    pipelines.apply()
    await pipelines.runs()
    stateful_set = pipelines.kubernetes.there(STATEFUL_SET, OBJECT)
    pipelines.kubernetes.remove(STATEFUL_SET, OBJECT)
    pipelines.kubernetes.put({**stateful_set, "spec": {**stateful_set["spec"], **spec}})
    pipelines.kubernetes.settle()
    return uid_of(pipelines.kubernetes.there(CLAIM, OBJECT))


async def test_a_stateful_set_with_other_immutable_fields_is_replaced_after_its_driver_and_keeps_the_claim(
    pipelines: Pipelines,
) -> None:
    claim = await _made_by_another_operator(pipelines, podManagementPolicy="OrderedReady", serviceName="another")
    driver = pipelines.pod()
    await pipelines.settle()
    assert pipelines.kubernetes.names(STATEFUL_SET) == [] and pipelines.pod() == driver
    assert pipelines.condition("Ready")[:2] == ("False", "Replacing"), "the next driver waits for the former"
    pipelines.kubernetes.remove(POD, driver)  # the garbage collector
    await pipelines.runs()
    spec = pipelines.kubernetes.there(STATEFUL_SET, OBJECT)["spec"]
    assert (spec["podManagementPolicy"], spec["serviceName"]) == ("Parallel", OBJECT)
    assert pipelines.condition("Ready")[:2] == ("True", "QueryRunning")
    assert uid_of(pipelines.kubernetes.there(CLAIM, OBJECT)) == claim
    pipelines.kubernetes.writes.clear()
    await pipelines.settle()
    assert pipelines.kubernetes.writes == []


async def test_an_immutable_config_map_with_another_document_is_replaced(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    there = pipelines.kubernetes.there(CONFIG_MAP, OBJECT)
    pipelines.kubernetes.put({**there, "immutable": True})
    pipelines.apply(deadLetters={"topic": "dead"})
    await pipelines.settle()
    document = json.loads(pipelines.kubernetes.there(CONFIG_MAP, OBJECT)["data"]["pipeline.yaml"])
    assert document["spec"]["deadLetters"] == {"topic": "dead"}


@pytest.mark.parametrize("says", ["Invalid value", "a policy says no"])
async def test_what_the_api_server_would_not_create_either_is_not_deleted(pipelines: Pipelines, says: str) -> None:
    await _made_by_another_operator(pipelines, serviceName="another")

    def refuse(obj: Obj) -> Obj:
        if obj["kind"] != STATEFUL_SET.kind:
            return obj
        if says != "Invalid value":
            raise ApiError(422, "Invalid", f"is forbidden: {says}")
        volumes = [{"name": "tmp", "emptyDir": {}, "configMap": {"name": "of-a-webhook"}}]
        return {**obj, "spec": {**obj["spec"], "template": {"spec": {"volumes": volumes}}}}

    pipelines.kubernetes.webhook = refuse
    with pytest.raises(ApiError):
        await pipelines.task.reconcile_once()
    assert pipelines.condition("Ready")[1] == "WriteFailed"
    assert pipelines.kubernetes.names(STATEFUL_SET) == [OBJECT] and pipelines.pod()


async def test_deletion_keeps_the_claim_and_the_next_pipeline_of_the_name_has_it(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    claim = uid_of(pipelines.kubernetes.there(CLAIM, OBJECT))
    assert "finalizers" not in pipelines.there()["metadata"]
    pipelines.kubernetes.remove(KAFKA_PIPELINE, NAME)
    assert await pipelines.task.reconcile_once() is None
    for kind in (STATEFUL_SET, POD, CONFIG_MAP, SERVICE_ACCOUNT):
        assert pipelines.kubernetes.names(kind) == []
    assert uid_of(pipelines.kubernetes.there(CLAIM, OBJECT)) == claim
    pipelines.apply()
    await pipelines.runs()
    assert pipelines.condition("Ready")[0] == "True"
    assert uid_of(pipelines.kubernetes.there(CLAIM, OBJECT)) == claim


async def test_a_claim_that_is_to_be_deleted_goes_with_the_pipeline_and_may_be_kept_again(
    pipelines: Pipelines,
) -> None:
    pipelines.apply(checkpoint={"claimDeletionPolicy": "Delete"})
    await pipelines.settle()
    assert dig(pipelines.kubernetes.there(CLAIM, OBJECT), "metadata", "ownerReferences", 0, "name") == NAME
    pipelines.apply(checkpoint={"claimDeletionPolicy": "Retain"})
    await pipelines.settle()
    assert not dig(pipelines.kubernetes.there(CLAIM, OBJECT), "metadata", "ownerReferences")
    pipelines.apply(checkpoint={"claimDeletionPolicy": "Delete"})
    await pipelines.settle()
    pipelines.kubernetes.remove(KAFKA_PIPELINE, NAME)
    pipelines.kubernetes.settle()
    assert pipelines.kubernetes.names(CLAIM) == []


async def test_an_object_of_somebody_else_is_not_touched(pipelines: Pipelines) -> None:
    metadata = {"name": OBJECT, "namespace": "default", "labels": {"app": "theirs"}}
    pipelines.kubernetes.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
    pipelines.apply()
    await pipelines.settle()
    assert pipelines.condition("Ready")[:2] == ("False", "NotOwned")
    assert pipelines.kubernetes.there(CONFIG_MAP, OBJECT)["data"] == {"a": "b"}


async def test_a_pod_that_cannot_start_is_named_with_the_reason(pipelines: Pipelines) -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff"}}
    pipelines.kubernetes.container_status = lambda _: {
        "name": "driver",
        "ready": False,
        "restartCount": 0,
        "state": waiting,
    }
    pipelines.apply()
    await pipelines.settle()
    assert pipelines.condition("Ready")[:2] == ("False", "Starting")
    assert pipelines.condition("Degraded")[:2] == ("True", "PodNotReady")
    assert "ImagePullBackOff" in pipelines.condition("Degraded")[2]


async def test_what_somebody_deletes_or_changes_is_put_back(pipelines: Pipelines) -> None:
    pipelines.apply()
    await pipelines.runs()
    pipelines.kubernetes.remove(CONFIG_MAP, OBJECT)
    stateful_set = pipelines.kubernetes.there(STATEFUL_SET, OBJECT)
    pipelines.kubernetes.put({**stateful_set, "spec": {**stateful_set["spec"], "replicas": 3}})
    await pipelines.settle()
    assert pipelines.kubernetes.there(STATEFUL_SET, OBJECT)["spec"]["replicas"] == 1
    assert pipelines.kubernetes.there(CONFIG_MAP, OBJECT)["metadata"]["labels"][PIPELINE] == NAME
