"""A failure of a query in the words of its document: source and sink know options, the user wrote fields. Pure."""

from __future__ import annotations

import re

from ottla_documents.kafka_pipeline import KafkaPipeline
from ottla_documents.pipeline_sink import TopicSink
from ottla_documents.pipeline_source import TopicSource

_SOURCES = re.compile(r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\] sources")
_STATE = re.compile(
    r"\[(?:STATE_STORE_\w*SCHEMA_NOT_COMPATIBLE|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA)\]"
)
"""Conditions of Spark for a query whose state is not that of its checkpoint."""
_NO_TOPIC = re.compile(r"(?:option \w+: )?topic '([^']+)' does not exist")
_OPTION = re.compile(r"^option (?:kafka\.)?([\w.]+)(?=: )")
_OF_SOURCE = ("startingOffsets", "maxOffsetsPerTrigger", "failOnDataLoss", "includeHeaders")


def in_words_of_document(reason: str, pipeline: KafkaPipeline) -> str:
    """The reason, with the field that it is about where that is known.

    >>> from ottla_documents.kafka_pipeline import parse_pipeline
    >>> spec = {"source": {"topics": ["a"]}, "sink": {"topic": {"name": "b"}}, "bootstrapServers": "h:1"}
    >>> pipeline, _ = parse_pipeline({"metadata": {"name": "p"}, "spec": spec})
    >>> in_words_of_document("option subscribe: topic 'a' does not exist at h:1", pipeline)
    "spec.source.topics: topic 'a' does not exist at h:1"
    >>> in_words_of_document("topic 'b' does not exist at h:1, and its brokers create none", pipeline)
    "spec.sink.topic.name: topic 'b' does not exist at h:1, and its brokers create none"
    >>> in_words_of_document("no broker of kafka.bootstrap.servers answers: h:1", pipeline)
    'spec.bootstrapServers: no broker answers: h:1'
    >>> in_words_of_document("ZeroDivisionError: division by zero", pipeline)
    'ZeroDivisionError: division by zero'
    """
    source, target = pipeline.source, pipeline.sink.target
    if match := _SOURCES.search(reason):
        return (
            f"spec.checkpoint.path: {pipeline.checkpoint} goes on from a query that reads {match[1]} times, and the "
            f"document has {match[2]} now (deadLetters read what is not of a schema once more): take the change back, "
            "or forget what was read with `ottla pipeline reset`"
        )
    if _STATE.search(reason):
        return (
            f"spec.checkpoint.path: {pipeline.checkpoint} has the state of another document, from before a change of a "
            f"schema or of a step: take the change back, or forget the state with `ottla pipeline reset`: {reason}"
        )
    if reason.startswith("no broker of kafka.bootstrap.servers"):
        field = "spec.clusterRef" if pipeline.cluster else "spec.bootstrapServers"
        return reason.replace("no broker of kafka.bootstrap.servers", f"{field}: no broker", 1)
    if (match := _NO_TOPIC.match(reason)) and (field := _field_of_topic(match[1], pipeline)):
        return f"{field}: {reason.removeprefix('option subscribe: ')}"
    reason = reason.replace("failOnDataLoss=false", "spec.source.failOnDataLoss: false")
    reason = reason.replace(
        "missingMarker=write writes it, twice if it was written before",
        "`ottla pipeline reset` forgets what was read, and the next run writes all of it again",
    )
    reason = reason.replace("kafka.max.request.size is", "spec.sink.topic.config.max.request.size is")
    if match := _OPTION.match(reason):
        option = match[1]
        if option in _OF_SOURCE and isinstance(source, TopicSource):
            return f"spec.source.{option}{reason[match.end() :]}"
        if option in pipeline.client_config:
            return f"spec.clientConfig.{option}{reason[match.end() :]}"
        if option == "subscribePattern":
            return f"spec.source.pattern{reason[match.end() :]}"
        if isinstance(target, TopicSink) and option in target.config:
            return f"spec.sink.topic.config.{option}{reason[match.end() :]}"
    return reason


def is_for_good(reason: str) -> bool:
    """Whether another attempt of the same document fails in the same way."""
    return _SOURCES.search(reason) is not None or _STATE.search(reason) is not None


def _field_of_topic(topic: str, pipeline: KafkaPipeline) -> str:
    source, target = pipeline.source, pipeline.sink.target
    if isinstance(source, TopicSource) and topic in source.topics:
        return "spec.source.table" if source.is_table else "spec.source.topics"
    if isinstance(target, TopicSink) and topic == target.topic:
        return "spec.sink.topic.name"
    return "spec.deadLetters.topic" if topic == pipeline.dead_letters else ""
