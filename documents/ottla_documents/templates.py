"""What a user adds to the pods, Services and claims of a cluster: `spec.brokers.template`, `spec.zookeeper.template`.

Here the documents are read. `objects.pod_template` adds them to the operator's own objects, and refuses what would
replace a field that the operator sets. `ottla local` checks and ignores them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from ottla_documents.field_types import TEXTS_SCHEMA, read_texts
from ottla_documents.pod_spec import POD_SPEC_SCHEMA, read_pod_spec
from ottla_documents.schema.api_group import GROUP
from ottla_documents.schema.marks import Problem, ReadBy

OWN_DOMAIN = GROUP
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


def _read_labels(value: object, path: str, problems: list[Problem]) -> dict[str, str]:
    found = _read_annotations(value, path, problems)
    for key, text in found.items():
        if key in OWN_LABELS:
            problems.append(Problem(f"{path}.{key}", "is set by the operator; it cannot be set here"))
        if len(text) > 63 or not _LABEL.fullmatch(text):
            problems.append(Problem(f"{path}.{key}", f"{text!r} is no value of a label"))
    return found


def _read_annotations(value: object, path: str, problems: list[Problem]) -> dict[str, str]:
    """The entries with the name of a label and a string."""
    found: dict[str, str] = {}
    for key, text in read_texts(value, path, problems).items():
        domain = key.rpartition("/")[0]
        if not _KEY.fullmatch(key):
            problems.append(Problem(f"{path}.{key}", "is no name of a label or annotation"))
        elif domain == OWN_DOMAIN or domain.endswith(f".{OWN_DOMAIN}"):
            problems.append(Problem(f"{path}.{key}", f"{OWN_DOMAIN} is the operator's; it cannot be set here"))
        else:
            found[key] = text
    return found


@dataclass(frozen=True, slots=True)
class AddedMetadata:
    """Labels and annotations that the operator adds."""

    labels: Annotated[Mapping[str, str], ReadBy(_read_labels, TEXTS_SCHEMA)] = field(default_factory=dict)
    """Labels to add. Those that the operator sets, and those of kafka.ottla.dev, are refused; a condition names
    them."""
    annotations: Annotated[Mapping[str, str], ReadBy(_read_annotations, TEXTS_SCHEMA)] = field(default_factory=dict)
    """Annotations to add. Those of kafka.ottla.dev are refused."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """Pods. A change restarts what runs in them, with the reason TemplateChanged: brokers in batches, ZooKeeper servers
    one at a time."""

    metadata: AddedMetadata = AddedMetadata()
    spec: Annotated[Mapping[str, Any], ReadBy(read_pod_spec, POD_SPEC_SCHEMA)] = field(default_factory=dict)
    """Fields of a PodSpec of Kubernetes, merged into the operator's as a strategic merge. The container of a broker is
    named broker, that of a ZooKeeper server zookeeper. containers, initContainers, volumes, env and imagePullSecrets
    merge by name, volumeMounts by mountPath, ports by containerPort and protocol, hostAliases by ip,
    topologySpreadConstraints by topologyKey and whenUnsatisfiable. Terms of affinity and tolerations are added to the
    operator's; required node terms go together with the broker's rack. Other lists replace. A field that Kubernetes
    does not have, or that would replace what the operator sets and needs, changes nothing; the condition BrokersReady
    or ZooKeeperReady names it."""


@dataclass(frozen=True, slots=True)
class Template:
    """What is added to the objects of the brokers or of the ZooKeeper servers; the latter have no bootstrap Service."""

    pod: PodTemplate = PodTemplate()
    service: AddedMetadata = AddedMetadata()
    bootstrap_service: AddedMetadata = AddedMetadata()
    claim: AddedMetadata = AddedMetadata()


NO_TEMPLATE = Template()


@dataclass(frozen=True, slots=True)
class ObjectTemplate:
    """An object."""

    metadata: AddedMetadata = AddedMetadata()


@dataclass(frozen=True, slots=True)
class BrokersTemplateDocument:
    """What the pods, Services and PersistentVolumeClaims of the brokers have beside what the operator sets. Default:
    nothing. `ottla local` ignores it."""

    pod: PodTemplate = PodTemplate()
    """The pods of the brokers. A change restarts the brokers in batches, with the reason TemplateChanged."""
    service: ObjectTemplate = ObjectTemplate()
    """The Service of each broker and the headless Service of all of them."""
    bootstrap_service: ObjectTemplate = ObjectTemplate()
    """The Service for bootstrap.servers."""
    persistent_volume_claim: ObjectTemplate = ObjectTemplate()
    """The PersistentVolumeClaims of the brokers, existing ones too."""

    @property
    def template(self) -> Template:
        claim = self.persistent_volume_claim.metadata
        return Template(self.pod, self.service.metadata, self.bootstrap_service.metadata, claim)


NO_BROKERS_TEMPLATE = BrokersTemplateDocument()


@dataclass(frozen=True, slots=True)
class PoolTemplateDocument:
    """What the pods, Services and PersistentVolumeClaims of the pool have beside what the operator sets. Each of the
    three that is written replaces that of spec.brokers.template."""

    pod: PodTemplate | None = None
    """The pods of the brokers. A change restarts the brokers in batches, with the reason TemplateChanged."""
    service: ObjectTemplate | None = None
    """The Service of each broker of the pool."""
    persistent_volume_claim: ObjectTemplate | None = None
    """The PersistentVolumeClaims of the brokers of the pool, existing ones too."""

    def written(self) -> frozenset[str]:
        """The fields that are written, by their names in the document."""
        parts = {"pod": self.pod, "service": self.service, "persistentVolumeClaim": self.persistent_volume_claim}
        return frozenset(name for name, part in parts.items() if part is not None)

    def over(self, other: Template) -> Template:
        """What is written, and else the same of `other`."""
        claim = self.persistent_volume_claim
        return replace(
            other,
            pod=other.pod if self.pod is None else self.pod,
            service=other.service if self.service is None else self.service.metadata,
            claim=other.claim if claim is None else claim.metadata,
        )


NO_POOL_TEMPLATE = PoolTemplateDocument()


@dataclass(frozen=True, slots=True)
class EnsembleTemplateDocument:
    """What the pods, the Service and the PersistentVolumeClaims of the ZooKeeper servers have beside what the operator
    sets. Default: nothing. `ottla local` ignores it."""

    pod: PodTemplate = PodTemplate()
    """The pods of the servers. A change restarts the servers one at a time."""
    service: ObjectTemplate = ObjectTemplate()
    """The headless Service of the servers."""
    persistent_volume_claim: ObjectTemplate = ObjectTemplate()
    """The PersistentVolumeClaims of the servers, existing ones too."""

    @property
    def template(self) -> Template:
        return Template(self.pod, self.service.metadata, AddedMetadata(), self.persistent_volume_claim.metadata)
