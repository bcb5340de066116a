"""The nodes of a cluster: a container runtime, a kubelet and a kube-proxy each, in the node's network namespace.

Every kubelet has a cgroup of its own below the root, so that none cleans up another's pods, and all files of a node are
below one folder. Written for Debian 12: containerd 1.6, cgroup v1 or v2 without systemd.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from e2e.certificates import Certificates
from e2e.control_plane import ControlPlane
from e2e.machine import CommandFailed, kill_and_wait, processes, run
from e2e.machine import command_line as command_line_of
from e2e.network import CONTROL_PLANE_ADDRESS, ClusterNode

CGROUPS = Path("/sys/fs/cgroup")
CGROUP_PREFIX = "ottla-"
PAUSE_IMAGE = "localhost/pause:1"
PLUGINS = "/usr/lib/cni"
STORAGE_CLASS = "local"
VOLUMES = {"100Gi": 16, "5Gi": 8}
"""Local volumes of each node, by the capacity that they declare: folders, whatever they declare."""


class NodeProcesses:
    """The processes of one node."""

    def __init__(self, node: ClusterNode, folder: Path, plane: ControlPlane) -> None:
        self.node = node
        self.folder = folder / node.name
        self._plane = plane
        self._socket = self.folder / "containerd.sock"

    def start_runtime(self) -> None:
        """containerd; returns at once. Also of a node that was stopped."""
        (self.folder / "cni").mkdir(parents=True, exist_ok=True)
        (self.folder / "cni" / "pods.conflist").write_text(json.dumps(_pod_network(self.node, self.folder)))
        (self.folder / "containerd.toml").write_text(_containerd_config(self.node, self.folder))
        command: list[str | Path] = ["containerd", "--config", self.folder / "containerd.toml"]
        self._plane.daemons.start(self._daemon("containerd"), command, netns=self.node.netns)

    def load_images(self, archives: Sequence[Path]) -> None:
        self._plane.daemons.until(self._daemon("containerd"), self._runtime_answers)
        loaded = self._folder_of_loaded
        loaded.mkdir(exist_ok=True)
        for archive in archives:
            if not (loaded / archive.name).exists():
                self._ctr("images", "import", str(archive))
                (loaded / archive.name).touch()

    @property
    def _folder_of_loaded(self) -> Path:
        return self.folder / "loaded"

    def start_kubelet(self) -> None:
        """The kubelet and kube-proxy; `plane` serves by now."""
        node, certificates = self.node, self._plane.certificates
        for hierarchy in cgroups():
            _create_cgroup(hierarchy, cgroup_of(node))
        certificates.issue(
            node.name, f"system:node:{node.name}", ["system:nodes"], [f"DNS:{node.name}", f"IP:{node.address}"]
        )
        config = self.folder / "kubelet.yaml"
        config.write_text(yaml.safe_dump(_kubelet_config(node, self.folder, certificates)))
        (self.folder / "resolv.conf").write_text("")
        self._plane.daemons.start(
            self._daemon("kubelet"),
            [
                self._plane.binaries / "kubelet",
                f"--config={config}",
                f"--kubeconfig={certificates.kubeconfig(node.name)}",
                f"--hostname-override={node.name}",
                f"--node-ip={node.address}",
                f"--root-dir={self.folder / 'kubelet'}",
                f"--cert-dir={self.folder / 'certificates'}",
                f"--node-labels=topology.kubernetes.io/zone={node.zone}",
            ],
            netns=node.netns,
        )
        self._plane.daemons.start(
            self._daemon("kube-proxy"),
            [
                self._plane.binaries / "kube-proxy",
                f"--kubeconfig={certificates.kubeconfig('kube-proxy')}",
                f"--hostname-override={node.name}",
                "--proxy-mode=iptables",
                "--cluster-cidr=10.244.0.0/16",
                "--conntrack-max-per-core=0",
            ],
            netns=node.netns,
        )

    def tag_image(self, reference: str, other: str) -> None:
        """Another name for an image that is loaded."""
        self._ctr("images", "tag", "--force", reference, other)

    def stop(self) -> None:
        """Ends everything on the node at once, as when it loses its power. Its files stay."""
        daemons = self._plane.daemons
        daemons.stop(self._daemon("kubelet"), self._daemon("kube-proxy"))
        stop_containers([self.node], self.folder)
        daemons.stop(self._daemon("containerd"))

    def volumes(self) -> list[dict[str, object]]:
        """The PersistentVolumes of the node; makes their folders."""
        found: list[dict[str, object]] = []
        for size, count in VOLUMES.items():
            for number in range(1, count + 1):
                path = self.folder / "volumes" / f"{size.lower()}-{number}"
                path.mkdir(parents=True, exist_ok=True)
                found.append(_volume(self.node, f"{self.node.name}-{path.name}", size, path))
        return found

    def _daemon(self, what: str) -> str:
        return f"{self.node.name}-{what}"

    def _runtime_answers(self) -> bool:
        try:
            self._ctr("version")
        except CommandFailed:
            return False
        return True

    def _ctr(self, *arguments: str) -> str:
        return run(["ctr", "--address", self._socket, "--namespace", "k8s.io", *arguments], timeout_s=300)


def load_images(nodes: Sequence[NodeProcesses], archives: Sequence[Path]) -> None:
    """The same images into every node."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda node: node.load_images(archives), nodes))


def stop_containers(nodes: Sequence[ClusterNode], folder: Path) -> None:
    """Ends the processes of every pod, and the shims that watched them. Kubelets are stopped before."""
    shims = [pid for pid in processes() if "containerd-shim" in (line := command_line_of(pid)) and f"{folder}/" in line]
    inside = {
        int(line)
        for hierarchy in cgroups()
        for node in nodes
        for tasks in (hierarchy / cgroup_of(node)).rglob("cgroup.procs")
        for line in tasks.read_text().split()
    }
    kill_and_wait([*shims, *sorted(inside)])


def processes_of_pod(uid: str) -> list[int]:
    """The processes of a pod's containers, but for the one that holds its namespaces."""
    inside = {
        int(line)
        for hierarchy in cgroups()
        for node in hierarchy.glob(f"{CGROUP_PREFIX}*")
        for pod in node.rglob(f"pod{uid}")
        for tasks in pod.rglob("cgroup.procs")
        for line in tasks.read_text().split()
    }
    return sorted(pid for pid in inside if command_line_of(pid).split() != ["/pause"])


def delete_cgroups(nodes: Sequence[ClusterNode]) -> None:
    for hierarchy in cgroups():
        for node in nodes:
            top = hierarchy / cgroup_of(node)
            below = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
            for path in [*below, *([top] if top.is_dir() else [])]:
                path.rmdir()


def cgroup_of(node: ClusterNode) -> str:
    return node.netns


def cgroups() -> list[Path]:
    """The root of each mounted hierarchy: one with cgroup v2, one per controller with v1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    mounted = {
        Path(fields[1]).resolve()
        for line in Path("/proc/mounts").read_text().splitlines()
        if (fields := line.split())[2] == "cgroup"
    }
    return sorted(mounted)


def _create_cgroup(hierarchy: Path, name: str) -> None:
    folder = hierarchy / name
    folder.mkdir(exist_ok=True)
    if hierarchy == CGROUPS:  # v2: what the kubelet will ask of its children
        controllers = " ".join(f"+{name}" for name in (CGROUPS / "cgroup.controllers").read_text().split())
        for parent in (CGROUPS, folder):
            (parent / "cgroup.subtree_control").write_text(controllers)
        return
    for file in ("cpuset.cpus", "cpuset.mems"):  # without these no process may enter
        if (hierarchy / file).exists():
            (folder / file).write_text((hierarchy / file).read_text())


def _containerd_config(node: ClusterNode, folder: Path) -> str:
    """restrict_oom_score_adj: without CAP_SYS_RESOURCE every pod fails otherwise ("can't get final child's PID").

    stream_server_address: exec, attach and port-forward arrive there.
    """
    plugin = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd.state"
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/containerd.ttrpc"
[{plugin}]
  sandbox_image = "{PAUSE_IMAGE}"
  stream_server_address = "{node.address}"
  restrict_oom_score_adj = true
  disable_apparmor = true
[{plugin}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{plugin}.containerd.runtimes.runc.options]
  SystemdCgroup = false
[{plugin}.cni]
  bin_dir = "{PLUGINS}"
  conf_dir = "{folder}/cni"
"""


def _pod_network(node: ClusterNode, folder: Path) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "dataDir": f"{folder}/addresses",
        "ranges": [[{"subnet": node.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}


def _kubelet_config(node: ClusterNode, folder: Path, certificates: Certificates) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": "127.0.0.1",
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup_of(node)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "podLogsDir": f"{folder}/pods",
        "volumePluginDir": f"{folder}/plugins",
        "clusterDNS": [CONTROL_PLANE_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{folder}/resolv.conf",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(certificates.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(certificates.certificate(node.name)),
        "tlsPrivateKeyFile": str(certificates.key(node.name)),
        "nodeStatusUpdateFrequency": "4s",
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "imageGCHighThresholdPercent": 100,  # images cannot be pulled again
        "imageGCLowThresholdPercent": 99,
        "maxPods": 60,
    }


def _volume(node: ClusterNode, name: str, size: str, path: Path) -> dict[str, object]:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": os.fspath(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }
