"""The providers of a Kubernetes cluster: each brings one up and takes it down, and describes it to the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from e2e.images import Image, ImageSet

SYSTEM = "ottla-system"
"""The namespace that the operator is installed into."""


@dataclass(frozen=True, slots=True)
class KubernetesCluster:
    """A cluster that is up, as the tests need to know it.

    `netns`: the network namespace from which the API server is reached, None where it is this machine's own.
    `volumes`: the folder below which the nodes' volumes are, None where the tests cannot reach them.
    `audit`: the API server's audit log of the operator's calls (`e2e.audit`), None where there is none.
    """

    kubeconfig: Path
    images: ImageSet
    storage_class: str
    kubectl: str
    helm: str
    netns: str | None = None
    volumes: Path | None = None
    audit: Path | None = None


ReportStep = Callable[[str], object]
"""Gets a few words about each step."""


class Provider(Protocol):
    """`up` and `down` may run in different processes."""

    def up(self, step: ReportStep) -> KubernetesCluster:
        """A cluster with three nodes in three zones, the images loaded, a storage class `local`."""
        ...

    def down(self, step: ReportStep) -> list[str]:
        """Takes it down as far as it was brought up; gives what is left behind, one line each."""
        ...


def cluster_from_json(found: dict[str, Any]) -> KubernetesCluster:
    """Parses a cluster that was written as JSON, with paths as text."""
    images = {name: _image(image) for name, image in found["images"].items() if image is not None}
    paths = {name: Path(found[name]) if found[name] else None for name in ("kubeconfig", "volumes", "audit")}
    return KubernetesCluster(**{**found, **paths, "images": ImageSet(**images)})


def _image(found: dict[str, Any]) -> Image:
    return Image(found["name"], found["tag"], Path(found["archive"]) if found["archive"] else None)
