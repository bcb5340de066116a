"""What is known about one KafkaPipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ottla_documents.kafka_pipeline import KafkaPipeline
from ottla_documents.schema.marks import Problem
from ottla_operator.api.objects import Obj, ResourceKind
from ottla_operator.api.pipeline_report import PipelineReport
from ottla_operator.facts.snapshot import ContestedFields


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """What is known. `problems`: of the document. `objects`: those with the label of the pipeline, by kind and name.
    `has_cluster`: whether the KafkaCluster of spec.clusterRef exists. `image`: the operator's, "" when it has none."""

    resource: Obj
    pipeline: KafkaPipeline
    problems: tuple[Problem, ...]
    objects: Mapping[str, Mapping[str, Obj]]
    has_cluster: bool
    image: str
    pull_policy: str
    now: str
    report: PipelineReport | None = None
    contested: Mapping[tuple[str, str], ContestedFields] | None = None

    def all(self, kind: ResourceKind) -> Iterator[Obj]:
        """The objects of a kind that exist and are this pipeline's, sorted by name."""
        return (obj for _, obj in sorted(self.objects.get(kind.kind, {}).items()))
