"""The provider `existing`: the cluster of KUBECONFIG. It has to have three nodes in three zones and a storage class.

The images come from a registry that the cluster can pull from; nothing is built and nothing is taken down but what the
tests made.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from e2e.images import Image, ImageSet
from e2e.machine import CommandFailed
from e2e.providers import KubernetesCluster, ReportStep

VARIABLES = {
    "OTTLA_E2E_IMAGE": "the image of the Dockerfile",
    "OTTLA_E2E_ZOOKEEPER_IMAGE": "the image of e2e/images/zookeeper, or zookeeper:3.9",
    "OTTLA_E2E_CLIENT_IMAGE": "the image of e2e/images/client",
}


class ExistingProvider:
    """`environment`: where the variables are read from."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment

    def up(self, step: ReportStep) -> KubernetesCluster:
        step("the cluster of KUBECONFIG")
        return KubernetesCluster(
            kubeconfig=Path(self._environment.get("KUBECONFIG") or "~/.kube/config").expanduser(),
            images=ImageSet(*(self._image(variable) for variable in VARIABLES)),
            storage_class=self._environment.get("OTTLA_E2E_STORAGE_CLASS", "local"),
            kubectl=_program("kubectl"),
            helm=_program("helm"),
        )

    def down(self, step: ReportStep) -> list[str]:
        step("nothing: the cluster was there before")
        return []

    def _image(self, variable: str) -> Image:
        reference = self._environment.get(variable, "")
        if not reference:
            raise CommandFailed(f"{variable} is not set: {VARIABLES[variable]}, in a registry the cluster pulls from")
        return image_from(reference)


def image_from(reference: str) -> Image:
    """
    >>> image_from("registry:5000/ottla:1").tag, image_from("registry:5000/ottla").tag
    ('1', 'latest')
    """
    name, colon, tag = reference.rpartition(":")
    return Image(name, tag) if colon and "/" not in tag else Image(reference, "latest")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise CommandFailed(f"{name} is missing")
    return found
