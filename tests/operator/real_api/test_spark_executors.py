"""Spark's driver and its executors with the objects of the operator, a real API server, and no kubelet.

The test does what kubelets do: it starts the processes that the pods say, on this machine, and reports that they run.
What the driver may do is what its Role says.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import audit, binaries
from e2e.audit import AuditLog, Call
from e2e.control_plane import ADMIN, ControlPlane, loopback
from e2e.kubernetes_api import Kubernetes, Refused
from ottla_documents.kafka_pipeline import FAILED_FOR_GOOD, parse_pipeline
from ottla_operator.api import names
from ottla_operator.api.objects import POD, SERVICE_ACCOUNT, Obj, dig, is_terminating, name_of, new, uid_of
from ottla_operator.concerns.pipelines import pipeline_executors, pipeline_objects
from ottla_operator.effects.kubernetes_api import path_of

pytestmark = [pytest.mark.kubernetes, pytest.mark.spark]
PRODUCTS = ("broker", "documents", "pipeline", "operator", "command")
PYTHONPATH = os.pathsep.join(str(binaries.CHECKOUT / folder) for folder in PRODUCTS)
LIMIT_S = 300
STEPS = """
import os
import pyarrow as pa

def unique(rows):
    def place(batches):
        for batch in batches:
            where = pa.array([os.environ.get("SPARK_EXECUTOR_ID", "")] * len(batch))
            yield pa.RecordBatch.from_arrays([batch.column(0), where], names=["word", "executor"])
    return rows.dropDuplicates(["word"]).mapInArrow(place, "word string, executor string")
"""
EXECUTORS = "app.kubernetes.io/component=pipeline-executor"


def _document(name: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "kafka.ottla.dev/v1alpha1",
        "kind": "KafkaPipeline",
        "metadata": {"name": name, "namespace": "default", "uid": "0"},
        "spec": {
            "source": {"files": {"path": "in", "format": "json", "schema": "word string"}},
            "steps": [{"name": "words", "python": "places:unique"}],
            "sink": {"parquet": {"path": "out"}},
            "checkpoint": {"accessModes": ["ReadWriteMany"]},
            "executors": {"instances": 1, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
            **spec,
        },
    }


class Pods:
    """The processes of pods, as kubelets would run them. `claim`: the folder that stands for the volume."""

    def __init__(self, api: Kubernetes, claim: Path, folder: Path) -> None:
        self.api = api
        self.seen: dict[str, Obj] = {}
        self._claim = claim
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, pod: Obj, *changed: str) -> None:
        """Starts the pod's process and says that it runs. `changed`: its arguments, else those of its container."""
        name, (container,) = name_of(pod), pod["spec"]["containers"]
        values = {"metadata.name": name, "status.podIP": "127.0.0.1"}
        own = {
            one["name"]: one.get("value") or values.get(dig(one, "valueFrom", "fieldRef", "fieldPath") or "", "")
            for one in container.get("env", [])
        }
        local = {"PYTHONPATH": PYTHONPATH, "SPARK_LOCAL_IP": "127.0.0.1"}
        local |= dict.fromkeys(("HOME", "SPARK_LOCAL_DIRS"), str(self._folder))
        arguments = [*container.get("command", []), *(changed or container["args"])]
        for key, value in own.items():
            arguments = [argument.replace(f"$({key})", value) for argument in arguments]
        if arguments[0] == "python3":
            arguments[0] = sys.executable
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                arguments,
                env={**os.environ, **own, **local},
                cwd=self._claim,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.say(pod, {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]})

    def say(self, pod: Obj, status: Obj) -> None:
        container = name_of_container(pod)
        running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        ended = {"terminated": {"exitCode": FAILED_FOR_GOOD if status["phase"] == "Failed" else 0}}
        state = running if status["phase"] == "Running" else ended
        said = {"name": container, "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}
        ready = [{"type": "Ready", "status": "True"}]
        body = {"status": {"conditions": ready, "containerStatuses": [said], **status}}
        self.api.patch(POD, name_of(pod), body, subresource="status")

    def play(self) -> None:
        """Starts the executors that the driver has created, and ends those that it has deleted."""
        for pod in self.api.list(POD, selector=EXECUTORS):
            name = name_of(pod)
            process = self._processes.get(name)
            if is_terminating(pod):
                self.end(name)
                self._deleted(name)
            elif process is None:
                self.seen[name] = pod
                self.start(pod)
            elif (code := process.poll()) is not None and dig(pod, "status", "phase") == "Running":
                self.say(pod, {"phase": "Failed" if code else "Succeeded"})

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Acts as the kubelet, five times a second, until it holds."""
        limit = time.monotonic() + LIMIT_S
        while not holds():
            self.play()
            time.sleep(0.2)
            assert time.monotonic() < limit, f"{what}: {self.log()}"

    def code(self, name: str) -> int | None:
        return self._processes[name].poll()

    def end(self, name: str) -> None:
        """Kills all processes of a pod."""
        process = self._processes.get(name)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self) -> str:
        return "\n".join(f"{file.name}:\n{file.read_text()[-3000:]}" for file in sorted(self._folder.glob("*.log")))

    def close(self) -> None:
        for name in self._processes:
            self.end(name)

    def _deleted(self, name: str) -> None:
        try:
            self.api.delete(POD, name, grace_s=0)
        except Refused as refused:
            if refused.status != 404:
                raise


def name_of_container(pod: Obj) -> str:
    return str(pod["spec"]["containers"][0]["name"])


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path_factory.mktemp("with-spark"), binaries.folder(), loopback(), is_tied=True)
    try:
        flags = _audit_of(plane).flags()
        plane.start_api_server("--disable-admission-plugins=ServiceAccount", *flags)
        plane.daemons.until("kube-apiserver", lambda: bool(plane.kubectl("get", "namespace", "default")), timeout_s=180)
        yield plane
    finally:
        plane.stop()


def _audit_of(plane: ControlPlane) -> AuditLog:
    return AuditLog(plane.daemons.logs, "default")


@pytest.fixture
def pods(plane: ControlPlane, tmp_path: Path) -> Iterator[Pods]:
    claim, logs = tmp_path / "claim", tmp_path / "logs"
    for folder in (claim / "in", logs):
        folder.mkdir(parents=True)
    (claim / "places.py").write_text(STEPS)
    found = Pods(Kubernetes(plane.certificates.kubeconfig(ADMIN), str(plane.binaries / "kubectl")), claim, logs)
    yield found
    found.close()


def _driver(document: Obj, pods: Pods, plane: ControlPlane, tmp_path: Path) -> tuple[Obj, list[str]]:
    """The driver's pod with all that it needs, and its arguments on this machine."""
    api = pods.api
    pipeline, problems = parse_pipeline(document)
    assert problems == []
    files = pipeline_objects.document(document, pipeline)
    workload = pipeline_objects.workload(document, pipeline, "pipelines:1", "", "")
    account = pipeline_objects.service_account(document)
    for obj in (account, files, pipeline_executors.role(document), pipeline_executors.role_binding(document)):
        api.create({**obj, "metadata": {**obj["metadata"], "ownerReferences": None}})
    template = workload["spec"]["template"]
    pod = api.create(
        new(POD, "default", f"{name_of(account)}-0", template["metadata"]["labels"], spec=template["spec"])
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"{path_of(SERVICE_ACCOUNT, 'default', name_of(account))}/token"
    token = tmp_path / "token"
    token.write_text(api.request("POST", path, request)["status"]["token"])
    for name, text in files["data"].items():
        (tmp_path / name).write_text(text)
    arguments = list(pod["spec"]["containers"][0]["args"])
    here = {
        pipeline_objects.DOCUMENT_DIR: str(tmp_path),
        pipeline_objects.TERMINATION_LOG: str(tmp_path / "end"),
        "0.0.0.0:8080": "127.0.0.1:0",
        pipeline_executors.API_SERVER: f"k8s://https://{plane.place.address}:{plane.place.api_port}",
        f"ort={pipeline_executors.DRIVER_PORT}": "ort=0",  # several tests may run
        f"ort={pipeline_executors.BLOCK_MANAGER_PORT}": "ort=0",
    }
    for there, changed in here.items():
        arguments = [argument.replace(there, changed) for argument in arguments]
    of_the_token = "spark.kubernetes.authenticate"  # in a pod they are where every client looks for them
    arguments += ["--conf", f"{of_the_token}.oauthTokenFile={token}"]
    arguments += ["--conf", f"{of_the_token}.caCertFile={plane.certificates.authority}"]
    return pod, [sys.executable, "-m", "ottla.cli.main", *arguments]


def _write(claim: Path, file: str, words: str) -> None:
    """A file that is there at once, as a source of files wants it."""
    (claim / file).write_text("\n".join(json.dumps({"word": word}) for word in words))
    (claim / file).rename(claim / "in" / file)


@pytest.mark.long
def test_an_executor_runs_the_tasks_with_the_rights_of_the_role_and_goes_with_its_driver(
    plane: ControlPlane, pods: Pods, tmp_path: Path
) -> None:
    claim = tmp_path / "claim"
    _write(claim, "words.json", "abacbd")
    driver, arguments = _driver(_document("words", trigger={"availableNow": True}), pods, plane, tmp_path)
    since = audit.mark(_audit_of(plane).path)
    pods.start(driver, *arguments)
    pods.until(lambda: pods.code(name_of(driver)) is not None, "the driver ends")
    assert pods.code(name_of(driver)) == 0, pods.log()

    assert _rows(claim / "out") == [(word, "1") for word in "abcd"], "every task ran in the executor"
    assert json.loads((tmp_path / "end").read_text())["phase"] == "Completed"
    (executor,) = pods.seen.values()
    _is_as_declared(executor, driver)
    pods.play()
    assert pods.api.list(POD, selector=EXECUTORS) == [], "the driver has deleted it"
    used = set(audit.calls(_audit_of(plane).path, since))
    assert Call("create", "pods") in used and used <= _granted()


@pytest.mark.long
def test_an_executor_that_is_killed_is_replaced_and_one_whose_driver_is_killed_ends(
    plane: ControlPlane, pods: Pods, tmp_path: Path
) -> None:
    claim = tmp_path / "claim"
    _write(claim, "first.json", "ab")
    driver, arguments = _driver(_document("stream"), pods, plane, tmp_path)
    since = audit.mark(_audit_of(plane).path)
    pods.start(driver, *arguments)
    pods.until(lambda: _rows(claim / "out") == [("a", "1"), ("b", "1")], "the first executor has written")
    pods.end(next(iter(pods.seen)))
    _write(claim, "second.json", "bc")
    pods.until(lambda: _rows(claim / "out")[2:] == [("c", "2")], "another one goes on from the state of the first")
    used = set(audit.calls(_audit_of(plane).path, since))
    assert Call("delete", "pods") in used and used <= _granted()
    pods.end(name_of(driver))
    pods.until(lambda: pods.code([*pods.seen][-1]) is not None, "the executor misses its driver")


def _granted() -> set[Call]:
    return {
        Call(verb, plural)
        for rule in pipeline_executors.RULES
        for verb in rule["verbs"]
        for plural in rule["resources"]
    }


def _is_as_declared(executor: Obj, driver: Obj) -> None:
    (owner,) = executor["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", uid_of(driver))
    spec, (container,), (of_driver,) = executor["spec"], executor["spec"]["containers"], driver["spec"]["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == driver["spec"]["serviceAccountName"]
    assert spec["securityContext"] == driver["spec"]["securityContext"]
    assert container["securityContext"] == of_driver["securityContext"] and container["image"] == of_driver["image"]
    assert container["resources"]["requests"] == container["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["checkpoint"] == pipeline_objects.CLAIM_DIR
    assert executor["metadata"]["labels"].items() >= names.executor_labels("words").items()


def _rows(folder: Path) -> list[tuple[str, str]]:
    """(word, executor) of what batches have committed to."""
    import pyarrow.parquet as parquet

    committed = [line for log in folder.glob("_spark_metadata/[0-9]*") for line in log.read_text().splitlines()[1:]]
    files = [json.loads(line)["path"].removeprefix("file://") for line in committed]
    return sorted((row["word"], row["executor"]) for file in files for row in parquet.read_table(file).to_pylist())
