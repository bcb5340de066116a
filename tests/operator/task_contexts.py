"""The context of a task as a test makes it."""

from __future__ import annotations

from collections.abc import Callable

from ottla_operator.ports import Environment, KubernetesApi
from ottla_operator.runtime.object_cache import ObjectCache
from ottla_operator.runtime.prerequisites import Prerequisites
from ottla_operator.runtime.task_context import TaskContext


def task_context(
    cache: ObjectCache, api: KubernetesApi, environment: Environment, monotonic: Callable[[], float]
) -> TaskContext:
    """One whose prerequisites nobody else has."""
    return TaskContext(cache, api, environment, monotonic, Prerequisites(api, monotonic))
