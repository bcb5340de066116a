"""A scope that was made narrower: the namespaces that this operator served before, and serves no more.

Nobody looks after what is there, and nobody removes our finalizers: a KafkaTopic, and with it its namespace, would
never be deleted. So the Lease records which namespaces its holder serves. Who holds it next and serves fewer removes
the finalizers in the others, as `ottla operator release` does in all; the topics stay. An operator that serves such a
namespace from then on sets them again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla_operator.api.names import SERVED
from ottla_operator.api.objects import KAFKA_TOPIC, LEASE, annotation, namespace_of
from ottla_operator.ports import ApiError, KubernetesApi
from ottla_operator.runtime.release import release_topic

ALL = "*"
ATTEMPTS = 5


async def leave_dropped_namespaces(
    api: KubernetesApi, lease_namespace: str, lease: str, served: Sequence[str], log: logging.Logger
) -> int:
    """Removes the finalizers in the namespaces that are served no more, and records those that are.

    Args:
        served: empty: all.

    Returns:
        The number of KafkaTopics that had the finalizer.

    Raises:
        ApiError: something could not be read or written. What was done before stays done.
    """
    now = ",".join(sorted(served)) or ALL
    live = await api.get(LEASE, lease_namespace, lease)
    before = None if live is None else annotation(live, SERVED)
    if before == now:
        return 0
    released = 0
    if before is not None and served:
        kept = set(served)
        places: tuple[str | None, ...] = (None,) if before == ALL else tuple(set(before.split(",")) - kept)
        for place in sorted(places, key=str):
            for topic in await api.list(KAFKA_TOPIC, place, ""):
                released += 0 if namespace_of(topic) in kept else await release_topic(api, topic)
        if places:
            which = "all others" if before == ALL else ", ".join(sorted(map(str, places)))
            log.warning(
                "served no more: %s; nobody looks after the KafkaClusters there, and %d KafkaTopics have lost their "
                "finalizer",
                which,
                released,
            )
    await _record(api, lease_namespace, lease, now)
    return released


async def _record(api: KubernetesApi, namespace: str, lease: str, served: str) -> None:
    """Tries again after a renewal in between."""
    for attempt in range(ATTEMPTS):
        live = await api.get(LEASE, namespace, lease)
        if live is None:
            return
        annotations = {**(live["metadata"].get("annotations") or {}), SERVED: served}
        try:
            await api.replace({**live, "metadata": {**live["metadata"], "annotations": annotations}})
            return
        except ApiError as error:
            if error.status != 409 or attempt == ATTEMPTS - 1:
                raise
