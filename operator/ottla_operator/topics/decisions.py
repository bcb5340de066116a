"""What one KafkaTopic asks for: create, alter, grow, delete, adopt; and what is shown instead of done.

Kubernetes wins: a configuration changed by hand is changed back. Partitions decreased and a changed replica count are
conditions, and nothing else stops for them.

The finalizer is ours and stands only while the topic would be deleted with the document. It is put on before a topic is
created, so it also tells after a crash that we created it. It never outlives its cluster or its namespace: nobody is
left to delete topics then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla_operator.api.conditions import READY, Condition, bad, good, invalid, merged
from ottla_operator.api.names import TOPIC_FINALIZER
from ottla_operator.api.objects import Obj, dig, is_deleting, name_of, uid_of
from ottla_operator.model.fields import Problem
from ottla_operator.model.topic import KafkaTopic

LEFT_ALONE = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Topic keys that tools set while they move replicas."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as the fleet has it. `replicas`: of its partition with the fewest. `config`: what is set on the topic."""

    name: str
    topic_id: str
    partitions: int
    replicas: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Create:
    topic: str
    partitions: int
    replicas: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Grow:
    """To `partitions` in all."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Alter:
    topic: str
    set: Mapping[str, str]
    unset: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic: str


TopicChange = Create | Grow | Alter | DeleteTopic


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """`brokers`: how many are registered. `cluster_is_going`: it is absent, or it or the namespace is being deleted.

    `rival`: the name of an older KafkaTopic that means the same topic.
    """

    topic: KafkaTopic
    problems: Sequence[Problem]
    resource: Obj
    live: TopicView | None
    brokers: int
    cluster_is_going: bool
    cluster_is_paused: bool
    rival: str
    now: str


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """`finalizer`: True to put ours on, False to take it off, None to leave it. Changes come after the finalizer.

    `look_again`: what is waited for is the fleet's matter, and no event of a Kubernetes object will tell of it.

    `status` is None where the document is going.
    """

    changes: tuple[TopicChange, ...] = ()
    finalizer: bool | None = None
    status: Obj | None = None
    look_again: bool = False


@dataclass(frozen=True, slots=True)
class _Wanted:
    changes: list[TopicChange] = field(default_factory=list)
    faults: list[Condition] = field(default_factory=list)
    look_again: bool = False


def decide_topic(facts: TopicFacts) -> TopicDecision:
    """What to do for one document now."""
    resource = facts.resource
    has_finalizer = TOPIC_FINALIZER in (dig(resource, "metadata", "finalizers") or [])
    if is_deleting(resource):
        return _release(facts) if has_finalizer else TopicDecision()
    if facts.cluster_is_going:
        name = facts.topic.cluster
        condition = bad(READY, "NoCluster", f"spec.clusterRef.name: there is no KafkaCluster {name} in this namespace")
        return TopicDecision((), False if has_finalizer else None, _status(facts, condition, is_adopted(facts)))
    if facts.rival:
        condition = bad(
            READY, "Conflict", f"KafkaTopic {facts.rival} is older and means topic {facts.topic.topic_name}"
        )
        return TopicDecision((), False if has_finalizer else None, _status(facts, condition, adopted=None))
    if facts.cluster_is_paused:
        condition = bad(READY, "Paused", "the KafkaCluster is paused: nothing is changed")
        return TopicDecision((), None, _status(facts, condition, is_adopted(facts)))
    wanted = _create(facts) if facts.live is None else _align(facts, facts.live)
    adopted = is_adopted(facts)
    keep = _deletes(facts.topic, adopted) and (facts.live is not None or bool(wanted.changes) or has_finalizer)
    finalizer = keep if keep != has_finalizer else None
    condition = wanted.faults[0] if wanted.faults else good(READY)
    if wanted.changes and not wanted.faults:
        condition = bad(READY, "Changing", ", ".join(type(change).__name__ for change in wanted.changes))
    return TopicDecision(tuple(wanted.changes), finalizer, _status(facts, condition, adopted), wanted.look_again)


def is_adopted(facts: TopicFacts) -> bool | None:
    """Whether the topic was there before the document; None while neither is known.

    Our finalizer without a recorded answer means that we were about to create it.
    """
    recorded = dig(facts.resource, "status", "adopted")
    if isinstance(recorded, bool):
        return recorded
    if TOPIC_FINALIZER in (dig(facts.resource, "metadata", "finalizers") or []):
        return False
    return facts.live is not None


def refused(facts: TopicFacts, error: str) -> Obj:
    """The status after the brokers refused a change."""
    reason, _, message = error.partition(": ")
    return _status(facts, bad(READY, reason or "KafkaError", message), is_adopted(facts))


def waiting(facts: TopicFacts) -> Obj:
    """The status of a document whose fleet does not answer."""
    return _status(facts, bad(READY, "WaitingForKafka", "no broker answers"), is_adopted(facts))


def oldest_first(resources: Sequence[Obj]) -> list[Obj]:
    """The order in which documents have a claim to one topic."""
    return sorted(
        resources, key=lambda obj: (dig(obj, "metadata", "creationTimestamp") or "", name_of(obj), uid_of(obj))
    )


def _deletes(topic: KafkaTopic, adopted: bool | None) -> bool:
    """Whether the topic goes with its document."""
    if topic.deletion_policy:
        return topic.deletion_policy == "Delete"
    return adopted is False


def _release(facts: TopicFacts) -> TopicDecision:
    """The document is going and waits for us."""
    was_ours = dig(facts.resource, "status", "topicName") is not None
    if facts.cluster_is_going or facts.rival or not was_ours or not _deletes(facts.topic, is_adopted(facts)):
        return TopicDecision(finalizer=False)
    if facts.cluster_is_paused:
        return TopicDecision()
    if facts.live is None:
        return TopicDecision(finalizer=False)
    return TopicDecision((DeleteTopic(facts.topic.topic_name),))


def _create(facts: TopicFacts) -> _Wanted:
    topic = facts.topic
    if facts.problems:
        return _Wanted(faults=[invalid(READY, facts.problems)])
    if topic.replicas > facts.brokers:
        message = f"spec.replicas: {topic.replicas} replicas need as many brokers, {facts.brokers} are registered"
        return _Wanted(faults=[bad(READY, "NotEnoughBrokers", message)], look_again=True)
    return _Wanted([Create(topic.topic_name, topic.partitions, topic.replicas, topic.config)])


def _align(facts: TopicFacts, live: TopicView) -> _Wanted:
    topic = facts.topic
    wanted = _Wanted()
    if facts.problems:
        wanted.faults.append(invalid(READY, facts.problems))
    if not any(problem.path.startswith("spec.config") for problem in facts.problems):
        changed = {key: value for key, value in topic.config.items() if live.config.get(key) != value}
        unset = tuple(key for key in sorted(live.config) if key not in topic.config and key not in LEFT_ALONE)
        if changed or unset:
            wanted.changes.append(Alter(topic.topic_name, changed, unset))
    if topic.partitions > live.partitions:
        wanted.changes.append(Grow(topic.topic_name, topic.partitions))
    elif 0 < topic.partitions < live.partitions:
        message = f"spec.partitions: the topic has {live.partitions}, and partitions cannot be taken away"
        wanted.faults.append(bad(READY, "PartitionsDecreased", message))
    if 0 < topic.replicas != live.replicas:
        message = f"spec.replicas: changing {live.replicas} to {topic.replicas} is not served yet"
        wanted.faults.append(bad(READY, "ReplicasChangeNotServed", message))
    return wanted


def _status(facts: TopicFacts, condition: Condition, adopted: bool | None) -> Obj:
    generation = int(dig(facts.resource, "metadata", "generation") or 0)
    previous = dig(facts.resource, "status", "conditions")
    status: Obj = {
        "observedGeneration": generation,
        "conditions": merged(previous, [condition], generation, facts.now),
    }
    if not facts.rival:
        status["topicName"] = facts.topic.topic_name
    if adopted is not None and (facts.live is not None or dig(facts.resource, "status", "adopted") is not None):
        status["adopted"] = adopted
    if facts.live is not None:
        status["topicId"] = facts.live.topic_id
        status["partitions"] = facts.live.partitions
        status["replicas"] = facts.live.replicas
    return status
