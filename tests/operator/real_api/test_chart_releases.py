"""The chart with Helm itself on a real API server: several releases, one after the other and side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e import binaries
from e2e.control_plane import ADMIN, ControlPlane, loopback
from e2e.machine import run

pytestmark = pytest.mark.kubernetes
CHART = binaries.CHECKOUT / "charts" / "ottla"
CRDS = ("kafkaclusters.kafka.ottla.dev", "kafkatopics.kafka.ottla.dev", "kafkapipelines.kafka.ottla.dev")


class Releases:
    """Helm on a control plane without nodes and without our CRDs."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._kubeconfig = str(plane.certificates.kubeconfig(ADMIN))

    def helm(self, *arguments: str) -> str:
        program = str(self.plane.binaries / "helm")
        return run([program, "--kubeconfig", self._kubeconfig, *arguments])

    def install(self, name: str, namespace: str, *options: str) -> None:
        """No hook runs: nothing here runs a Job."""
        where = ("--namespace", namespace, "--create-namespace", "--no-hooks")
        self.helm("upgrade", "--install", name, str(CHART), *where, *options)

    def uninstall(self, name: str, namespace: str) -> None:
        self.helm("uninstall", name, "--namespace", namespace, "--no-hooks")

    def names(self, kind: str, *options: str) -> set[str]:
        return set(self.plane.kubectl("get", kind, *options, "-o", "name").split())


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Releases]:
    plane = ControlPlane(tmp_path_factory.mktemp("releases"), binaries.folder(), loopback(), is_tied=True)
    try:
        plane.start_api_server("--disable-admission-plugins=ServiceAccount")
        yield Releases(plane)
    finally:
        plane.stop()


def test_two_releases_run_side_by_side_and_one_is_installed_again_elsewhere(releases: Releases) -> None:
    releases.install("kafka", "team-a", "--set", "watchNamespaces={team-a}")
    releases.install("kafka", "team-b", "--set", "watchNamespaces={team-b}")
    assert releases.names("crd") == {f"customresourcedefinition.apiextensions.k8s.io/{name}" for name in CRDS}
    roles = releases.names("clusterrole")
    for namespace in ("team-a", "team-b"):
        assert f"clusterrole.rbac.authorization.k8s.io/{namespace}:kafka-operator-cluster" in roles
    releases.install("kafka", "team-a", "--set", "watchNamespaces={team-a}")  # an upgrade, with its CRDs
    releases.uninstall("kafka", "team-a")
    assert len(releases.names("crd")) == len(CRDS), "they stay, and with them every cluster"
    releases.install("kafka", "team-b", "--set", "watchNamespaces={team-b}")
    releases.install("kafka", "elsewhere")
    releases.install("other", "elsewhere", "--set", "watchNamespaces={team-a}", "--set", "crds.install=false")
    assert {"deployment.apps/kafka-operator", "deployment.apps/other-operator"} == releases.names(
        "deployment", "--namespace", "elsewhere"
    )
