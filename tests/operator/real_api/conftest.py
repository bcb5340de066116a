"""One control plane for the tests of this folder, and the operator's tests on it.

It ends with them: without work it takes a tenth of a processor.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from e2e import binaries
from e2e.control_plane import ADMIN, ControlPlane, loopback
from e2e.kubernetes_api import Kubernetes
from e2e.machine import CommandFailed
from tests.operator.fleet import Fleet
from tests.operator.real_api.kubernetes import RealKubernetes

CRDS = binaries.CHECKOUT / "crds"


@pytest.fixture(scope="package")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver on free ports of the loopback, with our CRDs."""
    plane = ControlPlane(tmp_path_factory.mktemp("kubernetes"), binaries.folder(), loopback(), is_tied=True)
    try:
        # Nobody makes service accounts here, and every pod would have to have one.
        plane.start_api_server("--disable-admission-plugins=ServiceAccount")
        plane.kubectl("apply", "-f", str(CRDS))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=170s", timeout_s=180)
        plane.daemons.until("kube-apiserver", lambda: serves_our_kinds(plane), timeout_s=180)
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="package")
def api(control_plane: ControlPlane) -> Kubernetes:
    """The API server as its administrator sees it."""
    return Kubernetes(control_plane.certificates.kubeconfig(ADMIN), str(control_plane.binaries / "kubectl"))


@pytest.fixture
def kubeconfig(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Also in KUBECONFIG."""
    path = control_plane.certificates.kubeconfig(ADMIN)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
async def real_fleets(api: Kubernetes, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Every `Fleet` of the test stands on the real API server."""
    made: list[RealKubernetes] = []

    def make() -> RealKubernetes:
        made.append(RealKubernetes())
        return made[-1]

    monkeypatch.setattr(RealKubernetes, "api", api, raising=False)
    monkeypatch.setattr(Fleet, "make_kubernetes", staticmethod(make))
    yield
    for kubernetes in made:
        await kubernetes.close()
    RealKubernetes()  # leaves nothing to the next test


def serves_our_kinds(plane: ControlPlane) -> bool:
    """Whether they can be created: a server makes the namespace `default` a moment after it is ready, and serves a CRD
    a moment after it has called that established."""
    try:
        found = json.loads(plane.kubectl("get", "--raw", "/apis/kafka.ottla.dev/v1alpha1"))
        plane.kubectl("get", "namespace", "default")
    except CommandFailed:
        return False
    return {item["name"] for item in found["resources"]} >= {"kafkaclusters", "kafkatopics", "kafkapipelines"}
