"""The provider `processes`: Kubernetes as plain processes of this machine. Needs root and a few Debian packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from e2e import binaries, leftovers, network, nodes
from e2e.audit import AuditLog
from e2e.control_plane import ADMIN, ControlPlane, Place
from e2e.images import Image, ImageSet, build_images
from e2e.machine import NETNS, CommandFailed, run, until
from e2e.network import CONTROL_PLANE, CONTROL_PLANE_ADDRESS, ClusterNode
from e2e.nodes import STORAGE_CLASS, NodeProcesses
from e2e.providers import SYSTEM, KubernetesCluster, ReportStep
from ottla.local.jars import cache_directory

NODES = (ClusterNode(1, "zone-a"), ClusterNode(2, "zone-b"), ClusterNode(3, "zone-c"))
SPARE = ClusterNode(4, "zone-b")
"""A node that is added when another one of its zone is lost."""
INSTALL_SCRIPT = binaries.CHECKOUT / "scripts" / "install-kubernetes.sh"
LONGEST_FOLDER = 60
"""Unix sockets are below the folder, and their paths end at 108 bytes."""

COREFILE = """\
.:53 {{
    bind {address}
    errors
    ready 127.0.0.1:8181
    cache 1
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        ttl 1
    }}
}}
"""


class ProcessProvider:
    """One cluster at a time per machine; its state is in the cache's folder e2e/cluster."""

    def __init__(self, *, with_pipelines: bool = False) -> None:
        """`with_pipelines`: with the image of drivers of pipelines, which has Spark."""
        self._with_pipelines = with_pipelines
        self.folder = cache_directory() / "e2e" / "cluster"
        self._before = cache_directory() / "e2e" / "before.json"
        self._image_store = cache_directory() / "e2e" / "buildah"
        place = Place(CONTROL_PLANE_ADDRESS, 6443, 2379, 2380, CONTROL_PLANE)
        self._plane = ControlPlane(self.folder, binaries.folder(), place)
        self._nodes = [NodeProcesses(node, self.folder, self._plane) for node in NODES]
        self._spare = NodeProcesses(SPARE, self.folder, self._plane)
        self._audit = AuditLog(self.folder, SYSTEM)

    def up(self, step: ReportStep) -> KubernetesCluster:
        if os.geteuid() != 0:
            raise CommandFailed("the provider processes needs root (network namespaces, mounts, cgroups)")
        if len(str(self.folder)) > LONGEST_FOLDER:
            raise CommandFailed(
                f"{self.folder}: longer than {LONGEST_FOLDER} characters; set OTTLA_CACHE to a short one"
            )
        if self._before.exists():
            raise CommandFailed("a cluster is up, or what is left of one: `python -m e2e down` first")
        step("Debian packages")
        if subprocess.run([INSTALL_SCRIPT], check=False).returncode != 0:
            raise CommandFailed(f"{INSTALL_SCRIPT.name} failed, see above")
        self._before.parent.mkdir(parents=True, exist_ok=True)
        leftovers.machine_state().save(self._before)
        step("programs of Kubernetes (ten minutes the first time)")
        binaries.build()
        images = build_images(step, with_pipelines=self._with_pipelines)
        step("network, control plane, container runtimes")
        self.folder.mkdir(parents=True)
        network.create(NODES)
        for node in self._nodes:
            node.start_runtime()
        self._plane.start_api_server(*self._audit.flags())
        self._plane.start_controllers()
        self._plane.start_scheduler()
        step("images into the nodes")
        nodes.load_images(self._nodes, images.archives())
        step("nodes and DNS")
        self._plane.certificates.issue("kube-proxy", "system:kube-proxy")
        for node in self._nodes:
            node.start_kubelet()
        self._start_dns()
        self._create_volumes()
        self._plane.daemons.until("n1-kubelet", self._nodes_exist)
        self._plane.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=240s", timeout_s=270)
        return self._cluster(images)

    def reload(self, step: ReportStep) -> KubernetesCluster:
        """Builds the changed images and loads them into the nodes of the cluster that is up."""
        images = build_images(step, with_pipelines=self._with_pipelines)
        step("images into the nodes")
        nodes.load_images(self._present(), images.archives())
        return self._cluster(images)

    def add_spare(self, images: ImageSet) -> None:
        """Adds the node SPARE, with volumes of its own, unless it is there."""
        if not self._spare.folder.exists():
            network.add(SPARE, NODES)
            self._spare.start_runtime()
            nodes.load_images([self._spare], images.archives())
            self._spare.start_kubelet()
            self._create(self._spare.volumes())
        self._until_node_is_ready(SPARE.name)

    def tag_image(self, image: Image, tag: str) -> Image:
        """The same image under another tag, in every node: another release as far as Kubernetes knows."""
        other = Image(image.name, tag)
        for node in self._present():
            node.tag_image(image.reference, other.reference)
        return other

    def lose_node(self, name: str) -> None:
        """The node is gone with its disks: its processes end, and its Node object is deleted."""
        self._named(name).stop()
        self._plane.kubectl("delete", "node", name)

    def start_node(self, name: str) -> None:
        """A lost node comes back, with what its disks held."""
        node = self._named(name)
        node.start_runtime()
        node.load_images(())
        node.start_kubelet()
        self._until_node_is_ready(name)

    def _present(self) -> list[NodeProcesses]:
        """The nodes, and the spare one once it is there."""
        return [*self._nodes, *([self._spare] if self._spare.folder.exists() else [])]

    def _named(self, name: str) -> NodeProcesses:
        return next(node for node in (*self._nodes, self._spare) if node.node.name == name)

    def _until_node_is_ready(self, name: str) -> None:
        self._plane.kubectl("wait", "--for=create", f"node/{name}", "--timeout=240s", timeout_s=270)
        self._plane.kubectl("wait", "--for=condition=Ready", f"node/{name}", "--timeout=240s", timeout_s=270)

    def _cluster(self, images: ImageSet) -> KubernetesCluster:
        return KubernetesCluster(
            kubeconfig=self._plane.certificates.kubeconfig(ADMIN),
            images=images,
            storage_class=STORAGE_CLASS,
            kubectl=str(binaries.folder() / "kubectl"),
            helm=str(binaries.folder() / "helm"),
            netns=CONTROL_PLANE,
            volumes=self.folder,
            audit=self._audit.path,
        )

    def down(self, step: ReportStep) -> list[str]:
        if not self._before.exists():
            return []
        step("processes and pods")
        before = leftovers.MachineState.load(self._before)
        daemons = self._plane.daemons
        daemons.stop(*(name for name in daemons.running() if name.endswith(("-kubelet", "-kube-proxy"))))
        nodes.stop_containers((*NODES, SPARE), self.folder)
        daemons.stop(*daemons.running())
        step("mounts, namespaces, cgroups, kernel parameters")
        self._unmount()
        network.delete([name for name in network.namespaces() if name not in before.namespaces])
        if str(NETNS) not in before.mounts:  # `ip netns` mounts the folder of the names
            while str(NETNS) in leftovers.machine_state().mounts:
                run(["umount", NETNS])
        nodes.delete_cgroups((*NODES, SPARE))
        leftovers.restore_kernel_parameters(before)
        self._delete_host_paths(before)
        shutil.rmtree(self.folder, ignore_errors=True)
        found = leftovers.leftovers(before, leftovers.machine_state(), self.folder)
        if self.folder.exists():
            found.append(f"files: {self.folder}")
        if not found:
            self._before.unlink()
        return found

    def _start_dns(self) -> None:
        corefile = self.folder / "Corefile"
        kubeconfig = self._plane.certificates.kubeconfig(ADMIN)
        corefile.write_text(COREFILE.format(address=CONTROL_PLANE_ADDRESS, kubeconfig=kubeconfig))
        self._plane.daemons.start("coredns", [binaries.folder() / "coredns", "-conf", corefile], netns=CONTROL_PLANE)

    def _create_volumes(self) -> None:
        storage_class: dict[str, object] = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": STORAGE_CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        self._create([storage_class, *(volume for node in self._nodes for volume in node.volumes())])

    def _create(self, items: list[dict[str, object]]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        self._plane.kubectl("create", "-f", "-", text=json.dumps(listed))

    def _nodes_exist(self) -> bool:
        return len(self._plane.kubectl("get", "nodes", "-o", "name").split()) == len(NODES)

    def _unmount(self) -> None:
        """Unmounts everything below the folder, and below the store of images: buildah leaves a mount there when it is
        killed. Mounts may disappear meanwhile: ended containers clean up."""

        def is_unmounted() -> bool:
            for mount in self._mounts():
                try:
                    run(["umount", "--lazy", mount])
                except CommandFailed:
                    if mount in self._mounts():
                        raise
            return not self._mounts()

        until(is_unmounted, f"nothing is mounted below {self.folder}")

    def _mounts(self) -> list[str]:
        """Mount points below the folder and the store of images, the deepest first."""
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        below = (f"{self.folder}/", f"{self._image_store}/")
        return sorted((path for path in mounts if path.startswith(below)), reverse=True)

    def _delete_host_paths(self, before: leftovers.MachineState) -> None:
        """Deletes what the programs keep outside of the folder that they get: sockets, links to logs, locks."""
        for path in map(Path, leftovers.HOST_PATHS):
            if str(path) in before.paths:
                for link in path.rglob("*") if path.name == "containers" else ():
                    if link.is_symlink() and not link.exists():
                        link.unlink()
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
