"""Writes a KafkaTopic: its finalizer and its status, each onto the newest version that is known."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla_documents.kafka_topic import declared_topic
from ottla_operator.api.events import events
from ottla_operator.api.names import CREATED, TOPIC_FINALIZER
from ottla_operator.api.objects import (
    KAFKA_TOPIC,
    Obj,
    ResourceKind,
    annotation,
    dig,
    is_terminating,
    name_of,
    namespace_of,
    uid_of,
)
from ottla_operator.ports import ApiError, Environment, KubernetesApi
from ottla_operator.runtime.event_writer import emit_events
from ottla_operator.runtime.object_cache import Key, ObjectCache


class TopicWriter:
    """Writes for the KafkaTopics of one cluster, and puts the answers into the cache.

    Args:
        removed: gets the name of the topic of a KafkaTopic that is gone before its watch event.
        wrote_status: gets the kind, a status that was written, and the answer.
    """

    def __init__(
        self,
        key: Key,
        cache: ObjectCache,
        api: KubernetesApi,
        environment: Environment,
        log: logging.Logger,
        removed: Callable[[str], None],
        wrote_status: Callable[[ResourceKind, Obj, Obj], None],
    ) -> None:
        self._key = key
        self._cache = cache
        self._api = api
        self._environment = environment
        self._log = log
        self._removed = removed
        self._wrote_status = wrote_status

    async def set_finalizer(self, resource: Obj, *, wanted: bool, mark: str = "") -> Obj:
        """Sets or removes our finalizer, and the annotation `CREATED`. Returns the KafkaTopic as it is then.

        Args:
            mark: the value of the annotation; "" removes it.
        """
        before = annotation(resource, CREATED) or ""
        annotations = {CREATED: mark or None} if mark != before else None
        others = [item for item in dig(resource, "metadata", "finalizers") or [] if item != TOPIC_FINALIZER]
        try:
            changed = await self._api.set_finalizers(
                resource, [*others, TOPIC_FINALIZER] if wanted else others, annotations
            )
        except ApiError as error:
            if error.status == 404:
                self._remove(resource)
                return resource
            raise
        if is_terminating(changed) and not dig(changed, "metadata", "finalizers"):
            self._remove(changed)
        else:
            self._cache.put(changed)
        return changed

    async def write_status(self, resource: Obj, status: Obj | None) -> Obj:
        """Writes the status if it differs. Returns the KafkaTopic as it is then."""
        current = self._cache.get(KAFKA_TOPIC, namespace_of(resource), name_of(resource))
        if status is None or current is None or uid_of(current) != uid_of(resource):
            return resource
        before = current.get("status") or {}
        if before == status:
            return current
        try:
            changed = await self._api.replace_status({**current, "status": status})
        except ApiError as error:
            if error.status == 404:
                self._remove(resource)
                return resource
            raise
        self._wrote_status(KAFKA_TOPIC, status, changed)
        self._cache.put(changed)
        await emit_events(self._api, self._log, events(resource, before, status, self._environment.now()))
        return changed

    def _remove(self, resource: Obj) -> None:
        self._cache.remove(resource)
        self._removed(declared_topic(resource))
