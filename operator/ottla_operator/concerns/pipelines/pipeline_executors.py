"""The executors of a KafkaPipeline: the driver's rights, the settings with which Spark creates the pods, and their
template. Pure.

Spark runs in its client mode: the driver is the process of the pipeline's own pod, which creates the pods of executors.
They are owned by that pod, so Kubernetes deletes them with it. Only with spec.executors the driver has a token, and a
Role for pods of its namespace.

Source of the settings: "Running Spark on Kubernetes" and its configuration page, Spark 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_documents.executors import Executors
from ottla_operator.api import names
from ottla_operator.api.objects import (
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Obj,
    dig,
    has_condition,
    label,
    name_of,
    namespace_of,
    new,
    owned,
)
from ottla_operator.api.pipeline_report import driver_status
from ottla_operator.concerns.pipelines import spark_sizes
from ottla_operator.objects.pods import (
    CONTAINER_SECURITY,
    TERMINATION_POLICY,
    not_ready_reason,
    pod_security,
    resource_requirements,
)

API_SERVER = "k8s://https://kubernetes.default.svc"
DRIVER_PORT, BLOCK_MANAGER_PORT = 7078, 7079
"""Spark's own defaults where it creates the driver's pod itself: fixed, so that a NetworkPolicy can name them."""
EXECUTOR = "executor"
"""The name of the container."""
POD_NAME, POD_IP = "POD_NAME", "POD_IP"
COMMAND = ("python3", "-m", "ottla_pipeline.running.executor")
LEAST_SHUFFLE_PARTITIONS = 4
RULES: list[Obj] = [
    {
        "apiGroups": [""],
        "resources": [POD.plural],
        "verbs": ["get", "list", "watch", "create", "delete", "deletecollection"],
    },
]
"""What Spark 4.2 does in client mode, with the settings below, which spare it ConfigMaps, Services and claims."""


def role(resource: Obj) -> Obj:
    """The driver's rights, in its namespace. RBAC cannot narrow them to pods with a label."""
    return owned(new(ROLE, *_identity(resource), rules=RULES), resource)


def role_binding(resource: Obj) -> Obj:
    namespace, name, _ = _identity(resource)
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": name, "namespace": namespace}
    reference = {"apiGroup": ROLE.api_version.partition("/")[0], "kind": ROLE.kind, "name": name}
    return owned(new(ROLE_BINDING, *_identity(resource), roleRef=reference, subjects=[subject]), resource)


def driver_environment() -> list[Obj]:
    """What the settings name as $(…), which Kubernetes puts in their place."""
    return [
        {"name": POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]


def driver_ports() -> list[Obj]:
    return [
        {"name": "driver", "containerPort": DRIVER_PORT},
        {"name": "blockmanager", "containerPort": BLOCK_MANAGER_PORT},
    ]


def spark_settings(namespace: str, executors: Executors, image: str, pull_policy: str, template: str) -> dict[str, str]:
    """The settings of the driver's session.

    Args:
        image: of the executors; the driver's, so that Python's modules are the same.
        pull_policy: "" for Spark's default, IfNotPresent.
        template: the file with the pod template, in the driver's pod.
    """
    resources, heap = executors.resources, spark_sizes.heap_mib(executors.resources)
    cores = spark_sizes.threads(resources)
    requested = resources.requests.get("cpu") or resources.limits.get("cpu")
    settings = {
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.driver.pod.name": f"$({POD_NAME})",  # the owner of the executors
        "spark.kubernetes.executor.container.image": image,
        "spark.kubernetes.executor.podTemplateFile": template,
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR,
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.driver.host": f"$({POD_IP})",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.authenticate": "true",  # else whoever reaches the driver's port may run code in it
        "spark.network.crypto.enabled": "true",
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": str(cores),
        "spark.executor.memory": f"{heap}m",
        "spark.executor.memoryOverhead": f"{spark_sizes.memory_mib(resources) - heap}m",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": str(max(LEAST_SHUFFLE_PARTITIONS, executors.instances * cores)),
    }
    settings |= {"spark.kubernetes.executor.request.cores": requested} if requested else {}
    settings |= {"spark.kubernetes.executor.limit.cores": resources.limits["cpu"]} if "cpu" in resources.limits else {}
    return settings | ({"spark.kubernetes.container.image.pullPolicy": pull_policy} if pull_policy else {})


def pod_template(resource: Obj, executors: Executors, claim_dir: str) -> Obj:
    """The pod of an executor as Spark begins with it; Spark adds image, environment, cpu and memory.

    It has the claim where the driver has it, and the account for its imagePullSecrets, without a token.
    """
    name = names.pipeline_object(name_of(resource))
    container: Obj = {
        "name": EXECUTOR,
        "command": list(COMMAND),
        "workingDir": claim_dir,
        "env": [{"name": "HOME", "value": "/tmp"}],
        "volumeMounts": [{"name": "checkpoint", "mountPath": claim_dir}, {"name": "tmp", "mountPath": "/tmp"}],
        "resources": resource_requirements(executors.resources),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": TERMINATION_POLICY,
    }
    spec: Obj = {
        "containers": [container],
        "volumes": [
            {"name": "checkpoint", "persistentVolumeClaim": {"claimName": name}},
            {"name": "tmp", "emptyDir": {}},
        ],
        "serviceAccountName": name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
    }
    metadata = {"labels": names.executor_labels(name_of(resource))}
    return {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": metadata, "spec": spec}


def is_executor(pod: Obj) -> bool:
    return label(pod, "app.kubernetes.io/component") == names.PIPELINE_EXECUTOR


def running_executors(pods: Iterable[Obj]) -> int:
    """How many of the executors run."""
    return sum(has_condition(pod, "Ready") for pod in pods)


def executor_not_ready_reason(pods: Iterable[Obj]) -> str:
    """Why an executor does not start, in the words of Kubernetes; "" while all of them run or are about to."""
    for pod in pods:
        is_unscheduled = any(
            one.get("type") == "PodScheduled" and one.get("status") == "False"
            for one in dig(pod, "status", "conditions") or []
        )
        waiting = [dig(one, "state", "waiting", "reason") for one in dig(pod, "status", "containerStatuses") or []]
        if is_unscheduled or any(reason not in (None, "ContainerCreating", "PodInitializing") for reason in waiting):
            return f"the executor {name_of(pod)} {not_ready_reason(pod)}"
    return ""


def left_executors(executors: Iterable[Obj], driver: Obj | None) -> list[Obj]:
    """Executors that have ended and that no driver knows: they are older than the container of the driver.

    A driver deletes its executors itself. One whose container is killed, and started again in the same pod, leaves
    them: they end when they miss it, and their pods stay with their owner.
    """
    since = str(dig(driver_status(driver), "state", "running", "startedAt") or "")
    ended = (pod for pod in executors if dig(pod, "status", "phase") in ("Succeeded", "Failed"))
    return [pod for pod in ended if str(dig(pod, "metadata", "creationTimestamp") or "") < since]


def _identity(resource: Obj) -> tuple[str, str, dict[str, str]]:
    name = name_of(resource)
    return namespace_of(resource), names.pipeline_object(name), names.pipeline_labels(name)
