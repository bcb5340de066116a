"""What can happen to KafkaTopics, and to the topics themselves."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from ottla_operator.api.names import TOPIC_FINALIZER
from ottla_operator.api.objects import KAFKA_TOPIC, dig
from tests.operator.model_based.long_text import LongText
from tests.operator.model_based.machine import Machine

DOCUMENTS = ("a", "b", "flights")
TOPICS = (None, "flights", "flights")
ODD_TOPICS = (".", "__consumer_offsets", LongText("t" * 250))
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"retention.ms": 604800000},
    {"retention.ms": "604800000"},
    {"retention.ms": 6.048e8},
    {"retention.ms": " 604800000"},
    {"retention.ms": "604800000\n"},
    {"retention.ms": -1, "min.insync.replicas": 1},
    {"cleanup.policy": "compact,delete"},
    {"cleanup.policy": "compact, delete"},
    {"min.cleanable.dirty.ratio": "0.50"},
    {"min.cleanable.dirty.ratio": 0.5, "preallocate": False},
    {"preallocate": "FALSE", "compression.type": "zstd"},
)
WRONG_CONFIGS: tuple[dict[str, Any], ...] = (
    {"retention.ms": "much"},
    {"retention.ms": {"a": 1}},
    {"no.such": 1},
    {"min.compaction.lag.ms": 100, "max.compaction.lag.ms": 10},
    {"follower.replication.throttled.replicas": LongText("0:1," * 8192 + "0:1")},
)

documents = st.sampled_from(DOCUMENTS)
topics = st.sampled_from(("a", "b", "flights"))
configs = st.sampled_from((*CONFIGS, *CONFIGS, *WRONG_CONFIGS))
policies = st.sampled_from((None, None, "Delete", "Retain"))
partitions = st.sampled_from((None, None, 1, 2, 3))
replicas = st.sampled_from((None, None, 1, 2, 9))


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """spec of a KafkaTopic as somebody writes it."""
    spec: dict[str, Any] = {"clusterRef": {"name": "orders"}}
    for field, values in (
        ("topicName", st.sampled_from((*TOPICS, *TOPICS, *ODD_TOPICS))),
        ("partitions", partitions),
        ("replicas", replicas),
        ("config", configs),
        ("deletionPolicy", policies),
    ):
        if (value := draw(values)) is not None and value != {}:
            spec[field] = copy.deepcopy(value)
    return spec


class TopicRules(Machine):
    """Rules only; the world is the machine's."""

    @rule(writer=st.sampled_from((0, 1)), name=documents, spec=specs())
    def apply(self, writer: int, name: str, spec: dict[str, Any]) -> None:
        self.writers[writer].apply(name, spec)

    @rule(writer=st.sampled_from((0, 1)))
    def read(self, writer: int) -> None:
        self.writers[writer].read()

    @rule(
        writer=st.sampled_from((0, 1)),
        name=documents,
        change=st.tuples(st.just("partitions"), partitions)
        | st.tuples(st.just("replicas"), replicas)
        | st.tuples(st.just("config"), configs)
        | st.tuples(st.just("deletionPolicy"), policies),
    )
    def edit(self, writer: int, name: str, change: tuple[str, Any]) -> None:
        self.writers[writer].edit(name, *change)

    @rule(name=documents, policy=policies)
    def set_the_policy(self, name: str, policy: str | None) -> None:
        self.writers[0].read()
        self.writers[0].edit(name, "deletionPolicy", policy)

    @rule(writer=st.sampled_from((0, 1)), name=documents)
    def delete(self, writer: int, name: str) -> None:
        self.writers[writer].delete(name)

    @rule(old=documents, new=documents, deletes_first=st.booleans(), pause=st.sampled_from((0.0, 0.05, 1.0, 30.0)))
    def rename(self, old: str, new: str, deletes_first: bool, pause: float) -> None:
        """A document moves to another name and means the same topic, as GitOps does it: in any order."""
        there = self.world.find(KAFKA_TOPIC, old)
        if there is None or old == new or self.world.find(KAFKA_TOPIC, new) is not None:
            return
        topic = dig(there, "spec", "topicName") or old
        spec = {**there["spec"], "topicName": topic}
        if deletes_first:
            self.writers[0].delete(old)
            self.world.advance(pause)
            self.writers[1].apply(new, spec)
        else:
            self.writers[1].apply(new, spec)
            self.world.advance(pause)
            self.writers[0].delete(old)

    @rule(name=topics, count=st.sampled_from((1, 2)), config=st.sampled_from(CONFIGS[6:8]))
    def a_client_creates_a_topic(self, name: str, count: int, config: dict[str, Any]) -> None:
        if name not in self.world.kafka.topics_there:
            self.world.kafka.make(name, count, 1, {key: str(value) for key, value in config.items()})

    @rule(name=topics)
    def a_client_deletes_a_topic(self, name: str) -> None:
        self.world.kafka.topics_there.pop(name, None)

    @rule(name=topics, config=st.sampled_from(({}, {"retention.ms": "1"}, {"max.message.bytes": "5"})))
    def a_client_alters_a_topic(self, name: str, config: dict[str, str]) -> None:
        live = self.world.kafka.topics_there.get(name)
        if live is not None:
            self.world.kafka.topics_there[name] = replace(live, config=config)

    @rule(name=documents)
    def somebody_removes_the_finalizers(self, name: str) -> None:
        there = self.world.find(KAFKA_TOPIC, name)
        if there is not None and TOPIC_FINALIZER in (dig(there, "metadata", "finalizers") or []):
            self.world.kubernetes.put({**there, "metadata": {**there["metadata"], "finalizers": []}})

    @rule(name=documents)
    def somebody_removes_the_status(self, name: str) -> None:
        there = self.world.find(KAFKA_TOPIC, name)
        if there is not None:
            self.world.kubernetes.put({key: value for key, value in there.items() if key != "status"})

    @rule(name=topics, error=st.sampled_from(("PolicyViolationError: no", "RequestTimedOutError: busy")))
    def kafka_refuses_a_topic(self, name: str, error: str) -> None:
        self.world.kafka.refusals[name] = error

    @rule(names=st.sets(topics))
    def a_broker_that_is_behind_answers(self, names: set[str]) -> None:
        self.world.kafka.unseen = names

    @rule(answers=st.booleans(), slow=st.booleans())
    def kafka_is_away_or_slow(self, answers: bool, slow: bool) -> None:
        self.world.kafka.answers, self.world.kafka.is_slow = answers, slow
