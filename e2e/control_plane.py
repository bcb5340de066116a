"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler as plain processes.

Started alone they need no root: tests/operator/real_api runs the operator against them within seconds. The provider
`processes` starts them in a network namespace and adds nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from e2e.certificates import Certificates
from e2e.machine import CommandFailed, Daemons, run
from ottla.local.ports import HOST, free_ports

SERVICES = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"
GRACE_OF_NODES = "20s"
ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the API server listens, which ports etcd takes, and the network namespace of all of it (None: this one)."""

    address: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    netns: str | None = None


def loopback() -> Place:
    """Free ports of the loopback."""
    api, etcd, etcd_peer = free_ports(3)
    return Place(HOST, api, etcd, etcd_peer)


class ControlPlane:
    """Its processes and files below `folder`; stopping it leaves the files. `is_tied`: it ends with this process."""

    def __init__(self, folder: Path, binaries: Path, place: Place, *, is_tied: bool = False) -> None:
        self.place = place
        self.binaries = binaries
        self.daemons = Daemons(folder, are_tied=is_tied)
        self.certificates = Certificates(folder / "pki", f"https://{place.address}:{place.api_port}")
        self._etcd = folder / "etcd"
        self._folder = folder

    def start_api_server(self, *extra: str) -> None:
        """etcd and the API server; returns when it serves. `extra`: more flags of kube-apiserver."""
        place, certificates = self.place, self.certificates
        self._issue()
        clients = f"http://127.0.0.1:{place.etcd_port}"
        peers = f"http://127.0.0.1:{place.etcd_peer_port}"
        self._start(
            "etcd",
            f"--data-dir={self._etcd}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._start(
            "kube-apiserver",
            f"--etcd-servers={clients}",
            f"--bind-address={place.address}",
            f"--secure-port={place.api_port}",
            f"--advertise-address={place.address}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--client-ca-file={certificates.authority}",
            f"--tls-cert-file={certificates.certificate('apiserver')}",
            f"--tls-private-key-file={certificates.key('apiserver')}",
            f"--kubelet-client-certificate={certificates.certificate('apiserver-kubelet')}",
            f"--kubelet-client-key={certificates.key('apiserver-kubelet')}",
            f"--kubelet-certificate-authority={certificates.authority}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={certificates.accounts_public}",
            f"--service-account-signing-key-file={certificates.accounts_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICES}",
            *(["--endpoint-reconciler-type=none"] if place.address.startswith("127.") else []),
            *extra,
        )
        self.daemons.until("kube-apiserver", self._is_ready, timeout_s=180)

    def start_controllers(self, *extra: str) -> None:
        """`extra`: more flags of kube-controller-manager."""
        certificates = self.certificates
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={certificates.kubeconfig('kube-controller-manager')}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={certificates.accounts_key}",
            f"--root-ca-file={certificates.authority}",
            f"--cluster-signing-cert-file={certificates.authority}",
            f"--cluster-signing-key-file={certificates.authority_key}",
            f"--node-monitor-grace-period={GRACE_OF_NODES}",
            *(["--secure-port=0"] if self.place.netns is None else []),
            *extra,
        )

    def start_scheduler(self) -> None:
        kubeconfig = self.certificates.kubeconfig("kube-scheduler")
        self._start("kube-scheduler", f"--kubeconfig={kubeconfig}", "--leader-elect=false")

    def stop(self) -> None:
        self.daemons.stop("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")

    def kubectl(self, *arguments: str, text: str | None = None, timeout_s: float = 60) -> str:
        """kubectl as the cluster's administrator. Raises CommandFailed."""
        kubeconfig = self.certificates.kubeconfig(ADMIN)
        command: list[str | Path] = [self.binaries / "kubectl", "--kubeconfig", kubeconfig, *arguments]
        return run(command, netns=self.place.netns, text=text, timeout_s=timeout_s)

    def _start(self, name: str, *arguments: str) -> None:
        self.daemons.start(name, [self.binaries / name, *arguments], netns=self.place.netns)

    def _is_ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw", "/readyz", "--request-timeout=10s") == "ok"
        except CommandFailed:
            return False

    def _issue(self) -> None:
        certificates = self.certificates
        certificates.create_authority()
        service = "kubernetes.default.svc"
        names = ["DNS:kubernetes", "DNS:kubernetes.default", f"DNS:{service}", f"DNS:{service}.cluster.local"]
        addresses = [f"IP:{address}" for address in dict.fromkeys(("127.0.0.1", self.place.address, FIRST_SERVICE))]
        certificates.issue("apiserver", "kube-apiserver", alternatives=[*names, *addresses])
        for name in ("apiserver-kubelet", ADMIN):
            certificates.issue(name, name, ["system:masters"])
        for name in ("kube-controller-manager", "kube-scheduler"):
            certificates.issue(name, f"system:{name}")
