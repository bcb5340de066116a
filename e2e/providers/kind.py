"""The provider `kind`: nodes as containers of Docker. Only where Docker may run privileged containers.

CI cannot run it; a test checks the arguments. Local volumes are folders of the nodes, made before the cluster is used.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from e2e.images import ImageSet, build_images
from e2e.machine import CommandFailed, run
from e2e.nodes import STORAGE_CLASS, VOLUMES
from e2e.providers import KubernetesCluster, ReportStep
from ottla.local.jars import cache_directory

NAME = "ottla"
ZONES = ("zone-a", "zone-b", "zone-c")
VOLUME_FOLDER = "/var/ottla"


def configuration() -> str:
    """kind's configuration: one control plane, a worker in each zone."""
    workers = [{"role": "worker", "labels": {"topology.kubernetes.io/zone": zone}} for zone in ZONES]
    cluster = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": "control-plane"}, *workers],
    }
    return yaml.safe_dump(cluster)


def create_command(kubeconfig: Path) -> list[str]:
    return [
        "kind",
        "create",
        "cluster",
        "--name",
        NAME,
        "--kubeconfig",
        str(kubeconfig),
        "--config",
        "-",
        "--wait",
        "5m",
    ]


def load_commands(images: ImageSet) -> list[list[str]]:
    """One command per image archive; kind has its own pause image."""
    archives = [image.archive for image in (images.ottla, images.zookeeper, images.client)]
    return [["kind", "load", "image-archive", str(archive), "--name", NAME] for archive in archives if archive]


def delete_command() -> list[str]:
    return ["kind", "delete", "cluster", "--name", NAME]


def workers() -> list[str]:
    """The names that kind gives the workers of `configuration`.

    >>> workers()
    ['ottla-worker', 'ottla-worker2', 'ottla-worker3']
    """
    return [f"{NAME}-worker{number if number > 1 else ''}" for number in range(1, len(ZONES) + 1)]


def folder_command(worker: str) -> list[str]:
    """Makes the folders of a worker's volumes."""
    return ["docker", "exec", worker, "mkdir", "-p", *(path for _, _, path in _volumes())]


def storage() -> str:
    """The storage class and its volumes, for kubectl."""
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    items: list[object] = [storage_class]
    for worker in workers():
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [worker]}
        for name, size, path in _volumes():
            spec = {
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": STORAGE_CLASS,
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": path},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            }
            metadata = {"name": f"{worker}-{name}"}
            items.append({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


class KindProvider:
    """A cluster named `ottla`."""

    def __init__(self) -> None:
        self._kubeconfig = cache_directory() / "e2e" / "kind.kubeconfig"

    def up(self, step: ReportStep) -> KubernetesCluster:
        for program in ("docker", "kind", "kubectl", "helm"):
            if shutil.which(program) is None:
                raise CommandFailed(f"{program} is missing: the provider kind needs docker, kind, kubectl and helm")
        images = build_images(step)
        step("kind create cluster")
        run(create_command(self._kubeconfig), text=configuration(), timeout_s=600)
        step("images into the nodes")
        for command in load_commands(images):
            run(command, timeout_s=600)
        for worker in workers():
            run(folder_command(worker))
        run(["kubectl", "--kubeconfig", self._kubeconfig, "create", "-f", "-"], text=storage())
        return KubernetesCluster(self._kubeconfig, images, STORAGE_CLASS, "kubectl", "helm")

    def down(self, step: ReportStep) -> list[str]:
        step("kind delete cluster")
        run(delete_command(), timeout_s=600)
        self._kubeconfig.unlink(missing_ok=True)
        return []


def _volumes() -> list[tuple[str, str, str]]:
    """(name, capacity, folder) of the volumes of each worker."""
    return [
        (f"{size.lower()}-{number}", size, f"{VOLUME_FOLDER}/{size.lower()}-{number}")
        for size, count in VOLUMES.items()
        for number in range(1, count + 1)
    ]
