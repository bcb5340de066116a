"""spec.sink and spec.deadLetters of a KafkaPipeline: where the rows of a view go, and those that cannot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla_documents.fields import Fields
from ottla_documents.pipeline_jdbc import MODES as JDBC_MODES
from ottla_documents.pipeline_jdbc import JdbcSink, parse_jdbc
from ottla_documents.pipeline_source import folder, written_topic_name
from ottla_documents.pipeline_steps import Views
from ottla_documents.secret_keys import without_secrets

SERVED = ("topic", "parquet", "delta", "jdbc")
NOT_SERVED = ("iceberg",)
EXACTLY_ONCE = "exactly-once"
GUARANTEES = (EXACTLY_ONCE, "at-least-once")
OUTPUT_MODES = ("append", "update", "complete")
_MODES = {"topic": OUTPUT_MODES, "parquet": ("append",), "delta": ("append", "complete"), "jdbc": JDBC_MODES}
_COLUMN = r"[^\W\d]\w*"


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic. `config`: keys of Kafka's producer."""

    topic: str
    guarantee: str = EXACTLY_ONCE
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileSink:
    """A folder of files: `parquet`, exactly once for readers that follow Spark's `_spark_metadata`, or `delta`, a table
    of Delta Lake, whose log has each batch once."""

    format: str
    path: str
    partition_by: tuple[str, ...] = ()


Target: TypeAlias = TopicSink | FileSink | JdbcSink


@dataclass(frozen=True, slots=True)
class Sink:
    """`view`: whose rows are written."""

    view: str
    target: Target
    output_mode: str = "append"


def parse_sink(spec: Fields, views: Views) -> Sink:
    """Reads `sink` below spec. `views`: all that there are; the last one is the default."""
    before = len(spec.problems)
    fields = spec.child("sink")
    nothing = Sink(views.names[-1], TopicSink(""))
    if not spec.has("sink"):
        spec.problem("sink", f"is required: one of {', '.join(SERVED)}")
        return nothing
    named = [kind for kind in (*SERVED, *NOT_SERVED) if fields.has(kind)]
    view = fields.text("from", views.names[-1])
    views.check(fields, "from", view)
    mode = fields.choice("outputMode", OUTPUT_MODES, "append")
    target: Target = nothing.target
    for kind in named:
        if kind in NOT_SERVED:
            fields.problem(kind, f"is not served yet; there are {', '.join(SERVED)}")
            continue
        if kind == "topic":
            target = _topic(fields)
        elif kind == "jdbc":
            target = parse_jdbc(fields, _COLUMN)
        else:
            target = _files(fields, kind)
        if mode not in _MODES[kind]:
            fields.problem("outputMode", f"{mode} does not go with {kind}, only {' and '.join(_MODES[kind])}")
    if sum(kind in SERVED for kind in named) == len(named) > 1:
        spec.problem("sink", f"has exactly one of {', '.join(SERVED)}, not {' and '.join(named)}")
    fields.finish()
    if not named and len(spec.problems) == before:
        spec.problem("sink", f"has exactly one of {', '.join(SERVED)}, and none is given")
    return Sink(view, target, mode)


def parse_dead_letters(spec: Fields) -> str:
    """The topic of `deadLetters` below spec; "" when there is none."""
    if not spec.has("deadLetters"):
        return ""
    fields = spec.child("deadLetters")
    topic = written_topic_name(fields, "topic")
    fields.finish()
    return topic


def _topic(parent: Fields) -> TopicSink:
    fields = parent.child("topic")
    config = without_secrets(fields, fields.config(), f"{fields.path}.configSecrets")
    sink = TopicSink(written_topic_name(fields, "name"), fields.choice("guarantee", GUARANTEES, EXACTLY_ONCE), config)
    fields.finish()
    return sink


def _files(parent: Fields, format: str) -> FileSink:
    fields = parent.child(format)
    columns = fields.texts("partitionBy")
    for column in columns:
        if not re.fullmatch(_COLUMN, column):
            fields.problem("partitionBy", f"{column!r} is no name of a column")
    sink = FileSink(format, folder(fields, "path"), columns)
    fields.finish()
    return sink
