"""The whole operator with the rights of the chart and no more, beside real controllers of Kubernetes.

Nobody runs pods here: the test binds them to nodes and says that they are ready, as a scheduler and a kubelet would.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import yaml

from e2e import audit, binaries
from e2e.audit import AuditLog, Call
from e2e.control_plane import ADMIN, ControlPlane, loopback
from e2e.kubernetes_api import Kubernetes, Refused
from e2e.machine import run
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    CRON_JOB,
    JOB,
    KAFKA_CLUSTER,
    KAFKA_PIPELINE,
    KAFKA_TOPIC,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    ResourceKind,
    dig,
    is_terminating,
    name_of,
    new,
    owned,
    uid_of,
)
from ottla_operator.runtime.operator import Operator
from tests.operator.crds.test_schemas import PIPELINE
from tests.operator.fleet import CLUSTER, InMemoryKafka, InMemorySurroundings
from tests.operator.kubernetes import node
from tests.operator.pipeline_fleet import NAME, OBJECT, status
from tests.operator.real_api.conftest import serves_our_kinds
from tests.operator.real_api.kubernetes import RealKubernetes
from tests.operator.runtime.test_operator import SETTINGS
from tests.operator.topic_fleet import FLIGHTS

pytestmark = pytest.mark.kubernetes
SYSTEM, ACCOUNT = "ottla-system", "ottla-operator"
TOPICS = 20
CONTROLLERS = (
    "statefulset-controller,job-controller,cronjob-controller,garbage-collector-controller,disruption-controller,"
    "namespace-controller"
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own with the chart, but for its pods, and a certificate of the operator's account."""
    folder = binaries.folder()
    plane = ControlPlane(tmp_path_factory.mktemp("with-controllers"), folder, loopback(), is_tied=True)
    try:
        plane.start_api_server("--disable-admission-plugins=ServiceAccount", *_audit_of(plane).flags())
        plane.start_controllers(f"--controllers={CONTROLLERS}")
        plane.kubectl("create", "namespace", SYSTEM)
        chart = run(
            [folder / "helm", "template", "ottla", binaries.CHECKOUT / "charts" / "ottla", "--namespace", SYSTEM]
        )
        documents = [document for document in yaml.safe_load_all(chart) if document]
        applied = [document for document in documents if document["kind"] not in ("Deployment", "Job")]
        plane.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(applied))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=170s", timeout_s=180)
        plane.daemons.until("kube-apiserver", lambda: serves_our_kinds(plane), timeout_s=180)
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}"]
        plane.certificates.issue(ACCOUNT, f"system:serviceaccount:{SYSTEM}:{ACCOUNT}", groups)
        yield plane
    finally:
        plane.stop()


def _audit_of(plane: ControlPlane) -> AuditLog:
    return AuditLog(plane.daemons.logs, SYSTEM)


class World(RealKubernetes):
    """Only the pods are played; everything else is done by controllers."""

    def play(self) -> None:
        self._listed.clear()
        for claim in self._list(CLAIM):
            if dig(claim, "status", "phase") != "Bound" and not is_terminating(claim):
                self._set_status(CLAIM, claim, self._bound(claim))
        for pod in self._list(POD):
            try:
                if is_terminating(pod):
                    self.api.delete(POD, name_of(pod), grace_s=0)
                else:
                    self._start(pod)
            except Refused as refused:
                if refused.status not in (404, 409):
                    raise  # else a controller was faster
        self._listed.clear()

    def condition(self, kind: ResourceKind, name: str) -> bool:
        found = self.api.get(kind, name)
        conditions = dig(found, "status", "conditions") or []
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


class Running:
    """An operator that runs."""

    def __init__(self, environment: InMemorySurroundings) -> None:
        self.environment = environment
        self.start()

    def start(self) -> None:
        self._operator = Operator(replace(SETTINGS, namespace=SYSTEM), self.environment)
        self._task = asyncio.create_task(self._operator.run())

    async def stop(self) -> None:
        self._operator.stop()
        await asyncio.wait_for(self._task, 120)


@asynccontextmanager
async def _operator(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[World, Running]]:
    """Not a fixture: kopf ends every task that is younger than itself."""
    admin = Kubernetes(plane.certificates.kubeconfig(ADMIN), str(plane.binaries / "kubectl"))
    monkeypatch.setattr(World, "api", admin, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(plane.certificates.kubeconfig(ACCOUNT)))
    world = World()
    for index, zone in enumerate(("zone-a", "zone-b", "zone-c")):
        world.put(node(f"n{index}", zone))
    running = Running(InMemorySurroundings(world, InMemoryKafka(world)))
    yield world, running
    await running.stop()


async def _until(world: World, holds: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(240):
            while not holds():
                world.play()
                await asyncio.sleep(0.1)
    except TimeoutError:
        status = dig(world.api.get(KAFKA_CLUSTER, "orders"), "status")
        raise AssertionError(f"{what}: {yaml.safe_dump(status)}") from None


async def test_the_rights_of_the_chart_suffice_to_create_and_restore_everything(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _operator(plane, monkeypatch) as (world, _):
        world.put(copy.deepcopy(CLUSTER))
        world.put(copy.deepcopy(FLIGHTS))
        await _until(world, lambda: world.condition(KAFKA_CLUSTER, "orders"), "the cluster is ready")
        await _until(world, lambda: world.condition(KAFKA_TOPIC, "flights"), "the topic is ready")
        for kind, name in (
            (SERVICE, "orders-broker-1"),
            (CONFIG_MAP, "orders-zookeeper"),
            (POD, "orders-broker-2-0"),
            (STATEFUL_SET, "orders-broker-0"),
        ):
            before = uid_of(world.api.there(kind, name))
            world.api.delete(kind, name)
            await _until(
                world,
                lambda kind=kind, name=name, before=before: (  # type: ignore[misc]
                    (found := world.api.get(kind, name)) is not None and uid_of(found) != before
                ),
                f"{kind.kind} {name} comes back",
            )
            await _until(world, lambda: world.condition(KAFKA_CLUSTER, "orders"), "and the cluster is ready")

        world.api.patch(KAFKA_CLUSTER, "orders", {"spec": {"brokers": {"config": {"log.retention.hours": 5}}}})
        await _until(world, lambda: dig(world.api.get(KAFKA_CLUSTER, "orders"), "status", "roll") is not None, "a roll")
        await _until(world, lambda: dig(world.api.get(KAFKA_CLUSTER, "orders"), "status", "roll") is None, "its end")

        world.api.delete(KAFKA_CLUSTER, "orders")
        await _until(world, lambda: not world.api.list(STATEFUL_SET), "what the cluster owns is collected")
        assert len(world.api.list(CLAIM)) == 12
        await _until(
            world, lambda: not dig(world.api.get(KAFKA_TOPIC, "flights"), "metadata", "finalizers"), "released"
        )
        await world.close()


async def test_the_rights_of_the_chart_suffice_for_every_form_of_a_pipeline(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream, then a Job, then a CronJob, each after the pods of the former are gone; then nothing but the claim."""
    async with _operator(plane, monkeypatch) as (world, running):

        def state() -> str:
            for pod in world.api.list(POD):
                running.environment.drivers[name_of(pod)] = status("Running")
            return str(dig(world.api.get(KAFKA_PIPELINE, NAME), "status", "state"))

        def change(**spec: object) -> None:
            world.api.patch(KAFKA_PIPELINE, NAME, {"spec": spec})

        spec = {**PIPELINE["spec"], "clusterRef": None, "bootstrapServers": "kafka:9092", "image": "pipelines:1"}
        world.put({**PIPELINE, "spec": {key: value for key, value in spec.items() if value is not None}})
        await _until(world, lambda: state() == "Running" and len(world.api.list(STATEFUL_SET)) == 1, "a stream runs")
        claim = uid_of(world.api.there(CLAIM, OBJECT))
        change(trigger={"availableNow": True})
        await _until(world, lambda: state() == "Running" and len(world.api.list(JOB)) == 1, "a Job runs")
        assert world.api.list(STATEFUL_SET) == []
        change(trigger=None, schedule="0 6 * * *", suspend=True)
        await _until(
            world, lambda: state() == "Suspended" and len(world.api.list(CRON_JOB)) == 1, "a suspended CronJob"
        )
        await _until(world, lambda: world.api.list(JOB) == [] and world.api.list(POD) == [], "the Job is collected")
        assert uid_of(world.api.there(CLAIM, OBJECT)) == claim
        world.api.delete(KAFKA_PIPELINE, NAME)
        owned = (CRON_JOB, CONFIG_MAP, SERVICE_ACCOUNT)
        await _until(world, lambda: all(world.api.get(kind, OBJECT) is None for kind in owned), "all is collected")
        assert uid_of(world.api.there(CLAIM, OBJECT)) == claim
        await world.close()


async def test_the_rights_of_the_chart_suffice_for_executors_which_go_with_their_driver(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator may give drivers their Role, and the garbage collector deletes what a killed driver leaves."""
    async with _operator(plane, monkeypatch) as (world, running):

        def runs(executors: int | None) -> bool:
            for pod in world.api.list(POD):
                running.environment.drivers[name_of(pod)] = status("Running")
            found = dig(world.api.get(KAFKA_PIPELINE, NAME), "status") or {}
            return found.get("state") == "Running" and found.get("executors") == executors

        spec = {
            "source": PIPELINE["spec"]["source"],
            "sink": PIPELINE["spec"]["sink"],
            "bootstrapServers": "kafka:9092",
            "image": "pipelines:1",
            "checkpoint": {"accessModes": ["ReadWriteMany"]},
            "executors": {"instances": 1},
        }
        world.put({**PIPELINE, "spec": spec})
        await _until(world, lambda: runs(0), "the driver runs")
        driver = world.api.there(POD, f"{OBJECT}-0")
        template = json.loads(world.api.there(CONFIG_MAP, OBJECT)["data"]["executor.yaml"])
        (container,) = template["spec"]["containers"]
        pod_spec = {**template["spec"], "containers": [{**container, "image": "pipelines:1"}]}
        world.put(owned(new(POD, "default", f"{NAME}-exec-1", template["metadata"]["labels"], spec=pod_spec), driver))
        await _until(world, lambda: runs(1), "its executor runs")
        world.api.delete(POD, name_of(driver), grace_s=0)
        await _until(world, lambda: world.api.get(POD, f"{NAME}-exec-1") is None, "the executor is collected")
        await _until(world, lambda: runs(0), "the next driver runs")
        assert uid_of(world.api.there(POD, name_of(driver))) != uid_of(driver)

        world.api.patch(KAFKA_PIPELINE, NAME, {"spec": {"executors": None}})
        rights = (ROLE, ROLE_BINDING)
        await _until(world, lambda: runs(None) and not any(map(world.api.list, rights)), "the rights are withdrawn")
        world.api.patch(KAFKA_PIPELINE, NAME, {"spec": {"executors": {"instances": 1}}})
        await _until(world, lambda: runs(0) and all(map(world.api.list, rights)), "and given again")
        world.api.delete(KAFKA_PIPELINE, NAME)
        await _until(world, lambda: not any(map(world.api.list, rights)), "they go with the pipeline")
        await world.close()


async def test_the_operator_writes_only_its_lease_at_rest(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the API server's own account: after edits that ask for nothing, and after a restart."""
    topics = [f"t{number}" for number in range(TOPICS)]
    async with _operator(plane, monkeypatch) as (world, running):
        fleet = running.environment.fleet
        world.put(copy.deepcopy(CLUSTER))
        for name in topics:
            world.put({**copy.deepcopy(FLIGHTS), "metadata": {"name": name, "namespace": "default"}})
        await _until(world, lambda: world.condition(KAFKA_CLUSTER, "orders"), "the cluster is ready")
        await _until(world, lambda: all(world.condition(KAFKA_TOPIC, name) for name in topics), "and its topics")
        await _until(world, lambda: _may_format_nothing(world), "the last thing a new cluster waits for")
        log = _audit_of(plane).path
        assert audit.calls(log)[Call("update", "kafkatopics/status")] >= TOPICS, "the log has every call"

        async def look_at_everything() -> None:
            """Twice: when something is asked for again, what followed from the first answer has been written."""
            for value in ("1", "2"):
                fleet.asked.clear()
                running.environment.reported.clear()
                change = {"metadata": {"annotations": {"users": value}}}
                world.api.patch(KAFKA_CLUSTER, "orders", change)
                for name in topics:
                    world.api.patch(KAFKA_TOPIC, name, change)
                await _until(
                    world,
                    lambda: {*topics} <= {*fleet.asked} and len(running.environment.reported) >= 3,
                    "everything is looked at",
                )

        await look_at_everything()  # the events of becoming ready are written after the status that says so
        since = audit.mark(log)
        await look_at_everything()
        assert dict(audit.writes(log, since)) == {}
        await running.stop()
        since = audit.mark(log)
        running.start()
        await look_at_everything()
        assert dict(audit.writes(log, since)) == {}
        assert audit.calls(log, since)[Call("list", "kafkatopics")] >= 1, "the new operator has listed everything"
        await world.close()


def _may_format_nothing(world: World) -> bool:
    leave = [world.api.get(CONFIG_MAP, f"orders-broker-{number}-format") for number in (0, 1, 2)]
    return all(dig(obj, "data", "dirs") == "" for obj in leave)
