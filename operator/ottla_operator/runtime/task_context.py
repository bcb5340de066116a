"""`TaskContext`: what all tasks of one operator share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ottla_operator.ports import Environment, KubernetesApi
from ottla_operator.runtime.object_cache import ObjectCache
from ottla_operator.runtime.operator_metrics import OperatorMetrics
from ottla_operator.runtime.prerequisites import Prerequisites


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The ports of the operator, and what it knows beside any one document.

    Args:
        cache: KafkaClusters, KafkaTopics, nodes, namespaces, and the objects of clusters.
        monotonic: seconds that only grow.
        prerequisites: what the API server lacks for the documents.
        served: the namespaces that the operator serves; empty: all.
    """

    cache: ObjectCache
    api: KubernetesApi
    environment: Environment
    monotonic: Callable[[], float]
    prerequisites: Prerequisites
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    served: Sequence[str] = ()
