"""What a user adds to the pods, Services and claims of a cluster: `spec.brokers.template`, `spec.zookeeper.template`.

Here the documents are read. `objects.pod_template` adds them to the operator's own objects, and refuses what would
replace a field that the operator sets. `ottla local` checks and ignores them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla_documents.fields import Fields
from ottla_documents.pod_spec import read_pod_spec

OWN_DOMAIN = "kafka.ottla.dev"
OWN_LABELS = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "app.kubernetes.io/managed-by",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
)
"""Labels that the operator or the StatefulSet controller sets, beside those of `OWN_DOMAIN`."""
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}")
_LABEL = re.compile(rf"({_NAME})?")


@dataclass(frozen=True, slots=True)
class AddedMetadata:
    """Labels and annotations that an object gets beside the operator's own."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """`spec`: fields of a pod's spec, merged into the operator's as Kubernetes' strategic merge does it."""

    metadata: AddedMetadata = AddedMetadata()
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Template:
    """What is added to the objects of the brokers or of the ZooKeeper servers; the latter have no bootstrap Service."""

    pod: PodTemplate = PodTemplate()
    service: AddedMetadata = AddedMetadata()
    bootstrap_service: AddedMetadata = AddedMetadata()
    claim: AddedMetadata = AddedMetadata()


NO_TEMPLATE = Template()


def parse_template(parent: Fields, *, has_bootstrap: bool) -> Template:
    """Reads the field `template` below `parent`."""
    fields = parent.child("template")
    pod = fields.child("pod")
    template = Template(
        pod=PodTemplate(_parse_metadata(pod), _parse_spec(pod)),
        service=_parse_object(fields, "service"),
        bootstrap_service=_parse_object(fields, "bootstrapService") if has_bootstrap else AddedMetadata(),
        claim=_parse_object(fields, "persistentVolumeClaim"),
    )
    pod.finish()
    fields.finish()
    return template


def _parse_object(parent: Fields, name: str) -> AddedMetadata:
    fields = parent.child(name)
    metadata = _parse_metadata(fields)
    fields.finish()
    return metadata


def _parse_spec(pod: Fields) -> dict[str, Any]:
    if not pod.has("spec"):
        return {}
    return read_pod_spec(pod.values["spec"], f"{pod.path}.spec", pod.problems)


def _parse_metadata(parent: Fields) -> AddedMetadata:
    fields = parent.child("metadata")
    labels, annotations = _texts(fields, "labels"), _texts(fields, "annotations")
    for key in OWN_LABELS:
        if key in labels:
            fields.problem(f"labels.{key}", "is set by the operator; it cannot be set here")
    for key, value in labels.items():
        if len(value) > 63 or not _LABEL.fullmatch(value):
            fields.problem(f"labels.{key}", f"{value!r} is no value of a label")
    fields.finish()
    return AddedMetadata(labels, annotations)


def _texts(parent: Fields, name: str) -> dict[str, str]:
    """Labels or annotations: the entries with the name of a label and a string."""
    fields = parent.child(name)
    found: dict[str, str] = {}
    for key, value in fields.values.items():
        domain = str(key).rpartition("/")[0]
        if not _KEY.fullmatch(str(key)):
            fields.problem(str(key), "is no name of a label or annotation")
        elif domain == OWN_DOMAIN or domain.endswith(f".{OWN_DOMAIN}"):
            fields.problem(str(key), f"{OWN_DOMAIN} is the operator's; it cannot be set here")
        elif not isinstance(value, str):
            fields.problem(str(key), f"must be a string, not {value!r}; put it in quotes")
        else:
            found[str(key)] = value
    return found
