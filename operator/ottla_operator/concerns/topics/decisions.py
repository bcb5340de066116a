"""Decides what one KafkaTopic needs: create its topic, alter the configuration, add partitions, delete it, or nothing.

Kubernetes wins: a configuration that was changed by hand is changed back. A decreased number of partitions is reported
in a condition and stops nothing else. Another number of replicas is moved by the rebalance of the KafkaCluster.

A topic belongs to the oldest KafkaTopic that names it and is not terminating. It is deleted with its KafkaTopic only
when no other KafkaTopic names it, and when deletionPolicy says so or, without one, when it was created for the
KafkaTopic. What records whether it existed before is written and confirmed before the topic is created: an annotation
with the uid of the KafkaTopic, in the same write as our finalizer; or `status.adopted`, together with the topic that it
is about (`status.topicName`, `status.topicId`), where there is a status already or no finalizer to set. Without a
record, or with one about another topic, the topic stays.

Example, a rename under GitOps: KafkaTopic b (topicName: t) is applied while KafkaTopic a has topic t; b reports
ConflictingTopic. a is deleted: its finalizer is removed, and t stays. b gets the topic: for b it existed before, so b
adopts it, and t is deleted with b only if b has `deletionPolicy: Delete`.

A KafkaTopic of another namespace counts only while the KafkaCluster allows that namespace (spec.topics.namespaces). One
that is no longer allowed has no topic, and its topic stays in Kafka; allowed again, it is what it was before.

A KafkaTopic has our finalizer only while its topic would be deleted with it, and loses it with its cluster or
namespace: nothing could delete topics then. What needs no answer of a broker does not wait for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ottla_documents.kafka_topic import KafkaTopic, has_unusable_name
from ottla_documents.topic_config import is_same_value
from ottla_operator.api.condition_reasons import KAFKA_ERROR, READY
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec, merged
from ottla_operator.api.names import CREATED, TOPIC_FINALIZER
from ottla_operator.api.objects import Obj, annotation, dig, is_terminating, name_of, namespace_of, uid_of
from ottla_operator.api.topics import (
    AlterTopicConfig,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    TopicChange,
    TopicDescription,
)
from ottla_operator.concerns.topics.observation import TopicFacts
from ottla_operator.concerns.topics.partition_limits import PartitionLimits, why_refused
from ottla_operator.concerns.topics.reasons import reason_of_kafka_error

NOT_MANAGED_KEYS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Topic keys that are not changed back: tools set them while they reassign replicas."""
NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"

_CONFIG_FIELDS = ("spec.config", "spec.unmanagedConfig")
_OBSERVED = ("topicName", "topicId", "partitions", "replicas", "adopted")


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """What to do, in this order: write and confirm `record`, set `finalizer` (True sets ours, False removes it), make
    `changes`, write `status`.

    `is_marked`: the annotation `CREATED` is set with the finalizer.
    `needs_fleet`: the rest needs an answer of the brokers. `requeue_after_wait`: it waits for something in Kafka, which
    no event of a Kubernetes object announces.
    """

    changes: tuple[TopicChange, ...] = ()
    finalizer: bool | None = None
    status: Obj | None = None
    record: Obj | None = None
    needs_fleet: bool = False
    requeue_after_wait: bool = False
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class _NeededChanges:
    """What makes the topic as declared, and what of the declaration cannot be done."""

    changes: list[TopicChange] = field(default_factory=list)
    faults: list[Condition] = field(default_factory=list)
    requeue_after_wait: bool = False


def decide_topic(facts: TopicFacts) -> TopicDecision:
    """What to do for one KafkaTopic now."""
    if is_terminating(facts.resource):
        return _release(facts)
    has_finalizer = _has_finalizer(facts.resource)
    off = False if has_finalizer else None
    if facts.cluster_is_terminating:
        namespace = facts.topic.cluster_namespace
        place = f"namespace {namespace}" if namespace else "this namespace"
        message = f"spec.clusterRef.name: there is no KafkaCluster {facts.topic.cluster} in {place}"
        return TopicDecision((), off, _status(facts, condition_false(READY, "ClusterNotFound", message)))
    if not facts.is_allowed:
        topic = facts.topic
        message = (
            f"spec.clusterRef: KafkaCluster {topic.cluster} of namespace {topic.cluster_namespace} does not allow "
            f"KafkaTopics of namespace {topic.namespace}; its spec.topics.namespaces would have to"
        )
        return TopicDecision((), off, _status(facts, condition_false(READY, NAMESPACE_NOT_ALLOWED, message)))
    if has_unusable_name(facts.problems):
        return TopicDecision((), off, _status(facts, invalid_spec(READY, facts.problems), has_topic=False))
    if facts.topic_owner:
        message = f"KafkaTopic {facts.topic_owner} is older and has topic {facts.topic.topic_name}"
        return TopicDecision(
            (), off, _status(facts, condition_false(READY, "ConflictingTopic", message), has_topic=False)
        )
    if facts.cluster_is_paused:
        return TopicDecision((), None, _status(facts, condition_false(READY, "Paused", "the KafkaCluster is paused")))
    if not facts.is_asked:
        return TopicDecision(finalizer=off if _is_kept_for_sure(facts) else None, needs_fleet=True)
    if facts.live is not None and facts.live.error:
        return TopicDecision((), None, refused(facts, facts.live.error), requeue_after_wait=True)
    if facts.live is not None and facts.live.is_internal:
        condition = condition_false(
            READY, "InternalTopic", f"{facts.topic.topic_name} belongs to the brokers: nothing is changed"
        )
        return TopicDecision((), off, _status(facts, condition, has_topic=False))
    return _serve(facts, has_finalizer)


def _serve(facts: TopicFacts, has_finalizer: bool) -> TopicDecision:
    """The KafkaTopic has its topic, and brokers have answered."""
    needed = _create(facts) if facts.live is None else _align(facts, facts.live)
    keep = _deletes(facts.topic, is_adopted(facts)) and (
        facts.live is not None or bool(needed.changes) or has_finalizer
    )
    is_mark_wrong = is_adopted(facts) is True and _has_mark(facts)
    finalizer = keep if keep != has_finalizer or is_mark_wrong else None
    creates = any(isinstance(change, CreateTopic) for change in needed.changes)
    is_new = creates and not (facts.resource.get("status") or {}).keys() & {"adopted", "topicId"}
    marks = is_new and finalizer is True
    is_recorded = is_new and (marks or _has_mark(facts))
    record = _record(facts, creates) if (creates or finalizer is True) and not is_recorded else None
    condition = needed.faults[0] if needed.faults else condition_true(READY)
    if needed.changes and not needed.faults:
        condition = condition_false(READY, "Changing", ", ".join(type(change).__name__ for change in needed.changes))
    status = _status(facts, condition)
    return TopicDecision(
        tuple(needed.changes),
        finalizer,
        status,
        record,
        requeue_after_wait=needed.requeue_after_wait,
        is_marked=marks,
    )


def is_adopted(facts: TopicFacts) -> bool | None:
    """Whether the topic existed before the KafkaTopic; None while that is unknown.

    A record counts for the topic that it is about. A topic with another id is not the one that was created, and one
    that exists without a record existed before.
    """
    recorded = _recorded(facts)
    if not facts.is_asked or (facts.live is not None and facts.live.error):
        return recorded
    if facts.live is None:
        return recorded or False
    known_id = recorded_id(facts) or facts.live.topic_id
    if recorded is False and facts.live.topic_id and known_id != facts.live.topic_id:
        return True
    return True if recorded is None else recorded


def refused(facts: TopicFacts, error: str) -> Obj:
    """The status after the brokers refused a change. `error` is "Name: message", with the name of Kafka's error."""
    name, _, message = error.partition(": ")
    if is_terminating(facts.resource):
        return _terminating(facts, f"topic {facts.topic.topic_name} is not deleted: {error}; {_HOW_TO_KEEP}")
    reason = reason_of_kafka_error(name)
    return _status(facts, condition_false(READY, reason or KAFKA_ERROR, message if reason else error))


def waiting(facts: TopicFacts, change: str = "") -> Obj | None:
    """The status while no broker answers; None when the current status is still true.

    Args:
        change: why a change of the topic is not answered, "" for none. The first reason stays shown.
    """
    if is_terminating(facts.resource):
        return _terminating(
            facts, f"topic {facts.topic.topic_name} is deleted first, and no broker answers; {_HOW_TO_KEEP}"
        )
    if facts.problems:
        return _status(facts, invalid_spec(READY, facts.problems))
    is_served = dig(facts.resource, "status", "topicId") is not None and _recorded(facts) is not None
    shown = str(dig(facts.resource, "status", "conditions", 0, "message") or "")
    if shown.startswith(_UNANSWERED) or (is_served and _was_served(facts) and not change):
        return None
    message = f"{_UNANSWERED}{change[:_WHY_LENGTH]}" if change else "no broker answers"
    return _status(facts, condition_false(READY, "WaitingForKafka", message))


def found_existing(facts: TopicFacts, topic_id: str) -> Obj:
    """The record after the first creation was refused because the topic exists.

    Args:
        topic_id: what was recorded before that creation, which counts again: a broker that is behind did not know the
            topic. Without one ("") the topic existed before the KafkaTopic.
    """
    status = {**(facts.resource.get("status") or {}), "topicName": facts.topic.topic_name}
    return {**status, "topicId": topic_id} if topic_id else {**status, "adopted": True}


def recorded_id(facts: TopicFacts) -> str:
    """The id in the record about the topic that the KafkaTopic names, "" when there is none."""
    status = facts.resource.get("status") or {}
    return str(status.get("topicId") or "") if status.get("topicName") == facts.topic.topic_name else ""


def partitions_held(resource: Obj, limits: PartitionLimits) -> int:
    """The partitions that a KafkaTopic counts for in its cluster: those of its topic, or those being created."""
    if is_refused_here(resource):
        return 0
    status = resource.get("status") or {}
    if "partitions" in status:
        return int(status["partitions"])
    if status.get("adopted") is not False:
        return 0
    declared = dig(resource, "spec", "partitions")
    return declared if isinstance(declared, int) and declared > 0 else limits.default


def oldest_first(resources: Sequence[Obj]) -> list[Obj]:
    """The KafkaTopics in the order in which one of them has the topic that all name."""
    return sorted(
        resources, key=lambda obj: (dig(obj, "metadata", "creationTimestamp") or "", name_of(obj), uid_of(obj))
    )


def topic_owner_of(resource: Obj, documents: Sequence[Obj]) -> str:
    """The KafkaTopic that has the topic of `resource`; "" when that is `resource` or there is none.

    Args:
        documents: all KafkaTopics that name the topic and that the cluster allows. A terminating one does not have it.
    """
    first = next((obj for obj in oldest_first(documents) if not is_terminating(obj)), None)
    if first is None or uid_of(first) == uid_of(resource):
        return ""
    is_near = namespace_of(first) == namespace_of(resource)
    return name_of(first) if is_near else f"{namespace_of(first)}/{name_of(first)}"


def is_refused_here(resource: Obj) -> bool:
    """Whether status says that the KafkaCluster does not allow KafkaTopics of this namespace."""
    return bool(dig(resource, "status", "conditions", 0, "reason") == NAMESPACE_NOT_ALLOWED)


_WHY_LENGTH = 300
_UNANSWERED = "the brokers do not answer the change: "
_HOW_TO_KEEP = "spec.deletionPolicy: Retain deletes the KafkaTopic and keeps the topic"


def _has_finalizer(resource: Obj) -> bool:
    return TOPIC_FINALIZER in (dig(resource, "metadata", "finalizers") or [])


def _was_served(facts: TopicFacts) -> bool:
    return dig(facts.resource, "status", "conditions", 0, "reason") not in (
        None,
        "ConflictingTopic",
        "ClusterNotFound",
        NAMESPACE_NOT_ALLOWED,
        "Paused",
    )


def _deletes(topic: KafkaTopic, adopted: bool | None) -> bool:
    """Whether the topic is deleted with its KafkaTopic."""
    if topic.deletion_policy:
        return topic.deletion_policy == "Delete"
    return adopted is False


def _is_kept_for_sure(facts: TopicFacts) -> bool:
    """Whether the topic stays when the KafkaTopic is deleted, whatever the brokers would answer."""
    policy = facts.topic.deletion_policy
    return policy == "Retain" or (not policy and _recorded(facts) is True)


def _recorded(facts: TopicFacts) -> bool | None:
    """The record about the topic that the KafkaTopic names: status, else the annotation of this very KafkaTopic."""
    status = facts.resource.get("status") or {}
    adopted = status.get("adopted")
    if status.get("topicName") == facts.topic.topic_name and isinstance(adopted, bool):
        return adopted
    return False if _has_mark(facts) else None


def _has_mark(facts: TopicFacts) -> bool:
    return annotation(facts.resource, CREATED) == mark_of(facts.resource, facts.topic.topic_name)


def mark_of(resource: Obj, topic: str) -> str:
    """The value of the annotation `CREATED`.

    >>> mark_of({"metadata": {"uid": "b7"}}, "flights")
    'b7/flights'
    """
    return f"{uid_of(resource)}/{topic}"


def _release(facts: TopicFacts) -> TopicDecision:
    """The KafkaTopic is terminating, and waits for the operator if it has our finalizer.

    A broker that does not know the topic may be behind: that it is gone is what the controller answers.
    """
    if not _has_finalizer(facts.resource):
        others = ", ".join(dig(facts.resource, "metadata", "finalizers") or [])
        return TopicDecision(status=_terminating(facts, f"waits for the finalizers {others}") if others else None)
    if (
        facts.cluster_is_terminating
        or not facts.is_allowed
        or facts.topic_owner
        or has_unusable_name(facts.problems)
        or _recorded(facts) is None
        or not _deletes(facts.topic, _recorded(facts))
    ):
        return TopicDecision(finalizer=False)
    if facts.cluster_is_paused:
        message = f"topic {facts.topic.topic_name} is deleted first, and the KafkaCluster is paused; {_HOW_TO_KEEP}"
        return TopicDecision(status=_terminating(facts, message))
    if not facts.is_asked:
        return TopicDecision(needs_fleet=True)
    live = facts.live
    if live is not None and live.error:
        return TopicDecision(status=refused(facts, live.error), requeue_after_wait=True)
    if live is None and facts.is_deleted:
        return TopicDecision(finalizer=False)
    if live is not None and (live.is_internal or not _deletes(facts.topic, is_adopted(facts))):
        return TopicDecision(finalizer=False)
    topic_id = recorded_id(facts) if live is None else live.topic_id
    return TopicDecision((DeleteTopic(facts.topic.topic_name, topic_id),))


def _create(facts: TopicFacts) -> _NeededChanges:
    topic = facts.topic
    if facts.problems:
        return _NeededChanges(faults=[invalid_spec(READY, facts.problems)])
    if topic.replicas > facts.brokers:
        message = f"spec.replicas: {topic.replicas} replicas need as many brokers, {facts.brokers} are registered"
        return _NeededChanges(faults=[condition_false(READY, "NotEnoughBrokers", message)], requeue_after_wait=True)
    if why := why_refused(facts.limits, topic.partitions, 0):
        return _NeededChanges(faults=[condition_false(READY, "PartitionLimit", why)], requeue_after_wait=True)
    return _NeededChanges([CreateTopic(topic.topic_name, topic.partitions, topic.replicas, topic.config)])


def _align(facts: TopicFacts, live: TopicDescription) -> _NeededChanges:
    topic = facts.topic
    needed = _NeededChanges()
    if facts.problems:
        needed.faults.append(invalid_spec(READY, facts.problems))
    if not any(problem.path.startswith(_CONFIG_FIELDS) for problem in facts.problems):
        changed = {
            key: value
            for key, value in topic.config.items()
            if key not in live.config or not is_same_value(key, value, live.config[key])
        }
        left_alone = topic.unmanaged_config.union(NOT_MANAGED_KEYS)
        unset = tuple(key for key in sorted(live.config) if key not in topic.config and key not in left_alone)
        if changed or unset:
            needed.changes.append(AlterTopicConfig(topic.topic_name, changed, unset))
    if topic.partitions > live.partitions and (why := why_refused(facts.limits, topic.partitions, live.partitions)):
        needed = replace(needed, requeue_after_wait=True)
        needed.faults.append(condition_false(READY, "PartitionLimit", why))
    elif topic.partitions > live.partitions:
        needed.changes.append(CreatePartitions(topic.topic_name, topic.partitions))
    elif 0 < topic.partitions < live.partitions:
        message = f"spec.partitions: the topic has {live.partitions}, and partitions cannot be taken away"
        needed.faults.append(condition_false(READY, "PartitionsDecreased", message))
    if 0 < topic.replicas != live.replicas:
        needed.faults.append(_replicas_change(facts, live))
        return replace(needed, requeue_after_wait=True)
    return needed


def _replicas_change(facts: TopicFacts, live: TopicDescription) -> Condition:
    """Another number of replicas is a reassignment, which the rebalance of the KafkaCluster makes."""
    change = f"spec.replicas: {live.replicas} of the topic become {facts.topic.replicas}"
    if facts.rebalance_mode != "Auto":
        message = f"{change} only while spec.rebalance.mode of the KafkaCluster is Auto, not {facts.rebalance_mode}"
        return condition_false(READY, "ReplicasChangeNotSupported", message)
    if facts.topic.replicas > facts.brokers:
        message = f"spec.replicas: {facts.topic.replicas} replicas need as many brokers, {facts.brokers} are registered"
        return condition_false(READY, "NotEnoughBrokers", message)
    return condition_false(READY, "Changing", f"{change}; status.replicasChange has the progress")


def _replicas_progress(facts: TopicFacts) -> Obj | None:
    """status.replicasChange: how far the rebalance has moved the topic to another number of replicas."""
    live, declared = facts.live, facts.topic.replicas
    if live is None or live.error or live.is_internal or not 0 < declared != live.replicas or facts.problems:
        return None
    if facts.rebalance_mode != "Auto" or declared > facts.brokers:
        return None
    done = sum(1 for count in live.whole if count == declared)
    progress: Obj = {"from": live.replicas, "to": declared, "partitionsDone": done, "partitions": live.partitions}
    return progress if facts.bytes_to_go is None else {**progress, "bytesToGo": facts.bytes_to_go}


def _record(facts: TopicFacts, creates: bool) -> Obj | None:
    """What status has to record before our finalizer is set or the topic is created; None when it does.

    Before a creation there is no topic id; the id that is found afterwards is that of the created topic.
    """
    before = facts.resource.get("status") or {}
    record = {**before, "topicName": facts.topic.topic_name, "adopted": is_adopted(facts) is True}
    record.pop("topicId", None)
    if not creates and facts.live is not None:
        record["topicId"] = facts.live.topic_id
    return None if record == before else record


def _terminating(facts: TopicFacts, message: str) -> Obj:
    return _status(replace(facts, live=None), condition_false(READY, "Terminating", message))


def _status(facts: TopicFacts, condition: Condition, *, has_topic: bool = True) -> Obj:
    """The new status.

    Args:
        has_topic: False when the KafkaTopic has no topic; a record of an earlier one is dropped.
    """
    generation = int(dig(facts.resource, "metadata", "generation") or 0)
    before = facts.resource.get("status") or {}
    status: Obj = {
        "observedGeneration": generation,
        "conditions": merged(before.get("conditions"), [condition], generation, facts.now),
    }
    if not has_topic:
        return status
    if before.get("topicName") == facts.topic.topic_name:
        status |= {key: before[key] for key in _OBSERVED if key in before}
    status["topicName"] = facts.topic.topic_name
    live = facts.live
    if live is not None and not live.error:
        status |= {
            "adopted": is_adopted(facts) is True,
            "topicId": live.topic_id,
            "partitions": live.partitions,
            "replicas": live.replicas,
        }
        if (progress := _replicas_progress(facts)) is not None:
            status["replicasChange"] = progress
    elif facts.is_asked and live is None and not is_terminating(facts.resource):
        for key in ("partitions", "replicas"):
            status.pop(key, None)
    return status
