"""Before an uninstallation: removes our finalizer from KafkaTopics, so that none waits for an operator that is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ottla_operator.api.names import TOPIC_FINALIZER
from ottla_operator.api.objects import KAFKA_TOPIC, LEASE, Obj, dig, new
from ottla_operator.ports import ApiError, KubernetesApi
from ottla_operator.runtime.lease import DURATION_S, NAME

HOLDER = "uninstall"
HOLD_S = 300
AFTERWARDS_S = 30
ATTEMPTS = 5


async def release_topics(
    api: KubernetesApi,
    lease_namespace: str,
    namespaces: Sequence[str],
    now: Callable[[], str],
    sleep: Callable[[float], Awaitable[None]],
    lease: str = NAME,
) -> int:
    """Takes the lease from a running operator, waits until it has stopped, and removes our finalizers.

    A new operator can acquire the lease half a minute later.

    Args:
        namespaces: those of the KafkaTopics; empty: all.

    Returns:
        The number of KafkaTopics that had the finalizer.

    Raises:
        ApiError: for one KafkaTopic, after all others are done; or for the lease or the list.
    """
    await _take_lease(api, lease_namespace, lease, now(), HOLD_S)
    await sleep(DURATION_S)
    released = 0
    failed: ApiError | None = None
    for namespace in namespaces or (None,):
        for topic in await api.list(KAFKA_TOPIC, namespace, ""):
            try:
                released += await release_topic(api, topic)
            except ApiError as error:
                failed = failed or error
    await _take_lease(api, lease_namespace, lease, now(), AFTERWARDS_S)
    if failed is not None:
        raise failed
    return released


async def _take_lease(api: KubernetesApi, namespace: str, name: str, now: str, seconds: int) -> None:
    """Takes the lease whoever holds it. Tries again after a renewal in between."""
    for attempt in range(ATTEMPTS):
        live = await api.get(LEASE, namespace, name)
        base = live if live is not None else new(LEASE, namespace, name, {})
        renewed = now.replace("Z", ".000000Z")
        spec = {**base.get("spec", {}), "holderIdentity": HOLDER, "renewTime": renewed, "leaseDurationSeconds": seconds}
        try:
            await (api.create({**base, "spec": spec}) if live is None else api.replace({**base, "spec": spec}))
            return
        except ApiError as error:
            if error.status != 409 or attempt == ATTEMPTS - 1:
                raise


async def release_topic(api: KubernetesApi, topic: Obj) -> int:
    """Removes our finalizer from a KafkaTopic. Returns 1 when it had it, else 0. Raises ApiError."""
    current: Obj | None = topic
    for attempt in range(ATTEMPTS):
        if current is None:
            return 0
        finalizers = dig(current, "metadata", "finalizers") or []
        if TOPIC_FINALIZER not in finalizers:
            return 0
        try:
            await api.set_finalizers(current, [item for item in finalizers if item != TOPIC_FINALIZER])
            return 1
        except ApiError as error:
            if error.status not in (404, 409) or attempt == ATTEMPTS - 1:
                raise
        current = await api.get(KAFKA_TOPIC, str(topic["metadata"]["namespace"]), str(topic["metadata"]["name"]))
    return 0
