"""The objects of the ensemble: Services, budget, ConfigMap, Secret, and each server's claims and StatefulSet.

Pure builders; which of the objects are wanted is decided in `zookeeper`.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla_documents.disk_spec import DiskSpec
from ottla_documents.kafka_cluster import KafkaCluster
from ottla_operator.api import names
from ottla_operator.api.objects import (
    CLAIM,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    SECRET,
    SERVICE,
    Obj,
    dig,
    label,
    new,
    owned,
    short_hash,
)
from ottla_operator.concerns.ensemble.ensemble_volumes import (
    FIRST_GENERATION,
    VolumesDecision,
    claim_name,
)
from ottla_operator.concerns.ensemble.observation import EnsembleObservation
from ottla_operator.concerns.ensemble.super_user import restart_annotation
from ottla_operator.concerns.ensemble.zookeeper_files import (
    ADMIN_PORT,
    CLIENT_PORT,
    DATA,
    ELECTION_PORT,
    FILES,
    LOG,
    LOGBACK,
    METRICS_PORT,
    PEER_PORT,
    members,
    ready_script,
    start_script,
    static_config,
)
from ottla_operator.concerns.ensemble.zookeeper_layout import disks_of, files_name, has_log_disk
from ottla_operator.facts.images import FIELDS as IMAGE_FIELDS
from ottla_operator.facts.progress import unready_are_down
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.objects.pod_template import claim_with_metadata, with_metadata, with_template
from ottla_operator.objects.pods import (
    CONTAINER_SECURITY,
    TERMINATION_POLICY,
    pod_security,
    resource_requirements,
    stateful_set,
)

SUPER_FLAGS_KEY = "SERVER_JVMFLAGS"
GRACE_S = 60
POD_FIELDS = (
    "spec.zookeeper.resources", "spec.zookeeper.template.pod", "spec.zookeeper.image", *IMAGE_FIELDS[1:],
)  # fmt: skip
"""The fields that only the pods follow from: with a problem of theirs it is not known how a server should be."""


def super_secret(snapshot: Snapshot, password: str, digest: str) -> Obj:
    """The Secret of the ensemble's super user. `digest`: super:<base64 of the SHA-1 of super:password>."""
    cluster = snapshot.cluster
    flags = f"-Dzookeeper.DigestAuthenticationProvider.superDigest={digest}"
    secret = new(
        SECRET,
        cluster.namespace,
        names.zookeeper_secret(cluster.name),
        names.labels(cluster.name, names.ZOOKEEPER),
        type="Opaque",
        stringData={"password": password, SUPER_FLAGS_KEY: flags},
    )
    return owned(secret, snapshot.resource)


def _labels(cluster: KafkaCluster, server: int | None = None, **extra: str) -> dict[str, str]:
    numbered = {} if server is None else {"server_id": str(server)}
    return names.labels(cluster.name, names.ZOOKEEPER, **numbered, **extra)


def _selector(cluster: KafkaCluster) -> dict[str, str]:
    return {names.CLUSTER: cluster.name, "app.kubernetes.io/component": names.ZOOKEEPER}


def service(snapshot: Snapshot) -> Obj:
    cluster = snapshot.cluster
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _selector(cluster),
        "ports": [
            {"name": "client", "port": CLIENT_PORT},
            {"name": "peer", "port": PEER_PORT},
            {"name": "election", "port": ELECTION_PORT},
        ],
    }
    service = new(SERVICE, cluster.namespace, names.zookeeper_service(cluster.name), _labels(cluster), spec=spec)
    return owned(with_metadata(service, cluster.zookeeper.template.service), snapshot.resource)


def disruption_budget(snapshot: Snapshot, servers: Collection[int]) -> Obj:
    """minAvailable as an absolute number: maxUnavailable does not count pods that are missing.

    One server may be evicted, but none of two, which an ensemble has only while it is resized. Those whose containers
    have failed and do not run may always be.
    """
    cluster = snapshot.cluster
    count = len(servers)
    pods = [snapshot.pod(names.pod_of(names.zookeeper_name(cluster.name, server))) for server in servers]
    spec = {
        "minAvailable": count if count == 2 else count - 1,
        "selector": {"matchLabels": _selector(cluster)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow" if unready_are_down(pods) else "IfHealthyBudget",
    }
    name = names.zookeeper_service(cluster.name)
    return owned(new(DISRUPTION_BUDGET, cluster.namespace, name, _labels(cluster), spec=spec), snapshot.resource)


def files_config_map(snapshot: Snapshot, volumes: VolumesDecision) -> Obj:
    """The ConfigMap with the files, the record of which servers hold data and the permissions to start empty.

    One object, so that the record and the permissions change in one write. A container reads them when it starts.
    """
    cluster = snapshot.cluster
    data = {"members": members(cluster, volumes.record.servers), **_scripts(snapshot)}
    data |= {_permission_key(server): permission for server, permission in volumes.permissions.items()}
    files = new(CONFIG_MAP, cluster.namespace, files_name(cluster), _labels(cluster), data=data)
    files["metadata"]["annotations"] = {names.ENSEMBLE: volumes.record.to_text()}
    return owned(files, snapshot.resource)


def _scripts(snapshot: Snapshot) -> dict[str, str]:
    """The files whose change restarts the servers."""
    return {
        "zoo.cfg": static_config(has_log_disk(snapshot)),
        "logback.xml": LOGBACK,
        "start.sh": start_script(log=LOG if has_log_disk(snapshot) else None),
        "ready.sh": ready_script(),
    }


def _permission_key(server: int) -> str:
    return f"start-empty-{server}"


def server_claim(
    snapshot: Snapshot, server: int, role: str, disk: DiskSpec, volumes: VolumesDecision, *, is_removed: bool = False
) -> Obj:
    """The claim of a server. `is_removed`: the server has left the ensemble; the claim counts for no server."""
    cluster = snapshot.cluster
    name = claim_name(snapshot, server, role)
    live = snapshot.get(CLAIM, name)
    size = disk.size or cluster.zookeeper.disk.size
    if live is not None:
        size = str(dig(live, "spec", "resources", "requests", "storage") or size)
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    storage_class = dig(live, "spec", "storageClassName") or disk.storage_class_name
    if storage_class:
        spec["storageClassName"] = storage_class
    labels = _labels(cluster, server, disk=role, generation=str(FIRST_GENERATION))
    if is_removed or (live is not None and label(live, names.REMOVED) is not None):
        labels[names.REMOVED] = "true" if is_removed else "false"
    claim = new(CLAIM, cluster.namespace, name, labels, spec=spec)
    claim["metadata"]["annotations"] = {names.ENSEMBLE: volumes.record.to_text()}
    return claim_with_metadata(claim, cluster.zookeeper.template.claim, live)


def server_stateful_set(snapshot: Snapshot, observed: EnsembleObservation, server: int) -> Obj:
    """The StatefulSet of one server, as it should be."""
    cluster = snapshot.cluster
    name = names.zookeeper_name(cluster.name, server)
    labels = _labels(cluster, server)
    mounts = [{"name": "files", "mountPath": FILES, "readOnly": True}, {"name": "tmp", "mountPath": "/tmp"}]
    volumes: list[Obj] = [
        {"name": "files", "configMap": {"name": files_name(cluster)}},
        {"name": "tmp", "emptyDir": {}},
    ]
    for role, _, _ in disks_of(snapshot):
        mounts.append({"name": role, "mountPath": DATA if role == "data" else LOG})
        volumes.append({"name": role, "persistentVolumeClaim": {"claimName": claim_name(snapshot, server, role)}})
    container: Obj = {
        "name": names.ZOOKEEPER,
        "image": snapshot.images.zookeeper,
        "command": ["bash", f"{FILES}/start.sh"],
        "env": [
            {"name": "OTTLA_SERVER_ID", "value": str(server)},
            {
                "name": "OTTLA_START_EMPTY",
                "valueFrom": {"configMapKeyRef": {"name": files_name(cluster), "key": _permission_key(server)}},
            },
            {
                "name": SUPER_FLAGS_KEY,
                "valueFrom": {"secretKeyRef": {"name": names.zookeeper_secret(cluster.name), "key": SUPER_FLAGS_KEY}},
            },
        ],
        "ports": [
            {"name": "client", "containerPort": CLIENT_PORT},
            {"name": "peer", "containerPort": PEER_PORT},
            {"name": "election", "containerPort": ELECTION_PORT},
            {"name": "admin", "containerPort": ADMIN_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "volumeMounts": mounts,
        "startupProbe": _alive(period=2, failures=60),
        "livenessProbe": _alive(period=10, failures=6),
        "readinessProbe": {
            "exec": {"command": ["bash", f"{FILES}/ready.sh"]},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 2,
        },
        "resources": resource_requirements(cluster.zookeeper.resources),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": TERMINATION_POLICY,
    }
    if snapshot.images.pull_policy:
        container["imagePullPolicy"] = snapshot.images.pull_policy
    selector = _selector(cluster)
    pod_spec: Obj = {
        "containers": [container],
        "volumes": volumes,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": pod_security(),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector},
            }
            for key in dict.fromkeys((cluster.brokers.rack_key, "kubernetes.io/hostname"))
        ],
    }
    annotations = {names.CONFIG: short_hash(_scripts(snapshot)), **restart_annotation(snapshot, observed, server)}
    built = stateful_set(cluster.namespace, name, labels, names.zookeeper_service(cluster.name), pod_spec, annotations)
    return owned(with_template(built, cluster.zookeeper.template.pod), snapshot.resource)


def _alive(*, period: int, failures: int) -> Obj:
    """A probe that succeeds while the process answers, with or without a quorum."""
    return {
        "httpGet": {"path": "/commands/ruok", "port": ADMIN_PORT},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
