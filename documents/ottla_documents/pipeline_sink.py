"""spec.sink and spec.deadLetters of a KafkaPipeline: where the rows of a view go, and those that cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeAlias

from ottla_documents.field_types import Config, TopicName
from ottla_documents.pipeline_jdbc import COLUMN, JdbcSink, JdbcSinkDocument
from ottla_documents.pipeline_jdbc import MODES as JDBC_MODES
from ottla_documents.pipeline_source import Folder, folder_problem, written_topic_problem
from ottla_documents.pipeline_steps import Views
from ottla_documents.schema.marks import Items, Problem, Rule, Text
from ottla_documents.secret_keys import without_secrets

KINDS = ("topic", "parquet", "delta", "jdbc")
EXACTLY_ONCE = "exactly-once"
_MODES = {
    "topic": ("append", "update", "complete"),
    "parquet": ("append",),
    "delta": ("append", "complete"),
    "jdbc": JDBC_MODES,
}
PartitionColumns: TypeAlias = Annotated[tuple[Annotated[str, Text(least=1, most=255)], ...], Items(most=16)]


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


@dataclass(frozen=True, slots=True)
class TopicSinkDocument:
    """A topic. The view has a column value, and key, headers, partition and timestamp where it likes."""

    name: TopicName
    """The name of the topic."""
    guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"
    """How often a row is written when a batch is repeated."""
    config: Config = field(default_factory=dict)
    """Keys of Kafka's producer, with values of any scalar type. Default: Kafka's defaults."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if wrong := written_topic_problem(self.name):
            yield "name", wrong


@dataclass(frozen=True, slots=True)
class FileSinkDocument:
    """Files in a folder of the claim."""

    path: Folder
    """A folder of the claim, relative to its root."""
    partition_by: PartitionColumns = ()
    """Columns by whose values the files are in folders of their own."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if wrong := folder_problem(self.path):
            yield "path", wrong
        for column in self.partition_by:
            if not re.fullmatch(COLUMN, column):
                yield "partitionBy", f"{column!r} is no name of a column"


@dataclass(frozen=True, slots=True)
class SinkDocument:
    """Where the rows of a view go. Exactly one of topic, parquet, delta and jdbc."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"[{', '.join(f'has(self.{kind})' for kind in KINDS)}].filter(one, one).size() == 1",
            f"has exactly one of {', '.join(KINDS)}",
        ),
    )
    from_: Annotated[str, Text(most=128)] = ""
    """The view whose rows are written. Default: the last one."""
    output_mode: Literal["append", "update", "complete"] = "append"
    """As in Spark."""
    topic: TopicSinkDocument | None = None
    parquet: FileSinkDocument | None = None
    """Parquet files in a folder of the claim, exactly once for readers that follow _spark_metadata."""
    delta: FileSinkDocument | None = None
    """A table of Delta Lake in a folder of the claim, exactly once for every reader. The image has the jars of Delta
    Lake among those of Spark."""
    jdbc: JdbcSinkDocument | None = None

    @property
    def named(self) -> list[str]:
        kinds = (self.topic, self.parquet, self.delta, self.jdbc)
        return [name for name, one in zip(KINDS, kinds, strict=True) if one is not None]

    def problems(self) -> Iterator[tuple[str, str]]:
        for kind in self.named:
            if self.output_mode not in _MODES[kind]:
                yield "outputMode", f"{self.output_mode} does not go with {kind}, only {' and '.join(_MODES[kind])}"
        if len(self.named) > 1:
            yield "", f"has exactly one of {', '.join(KINDS)}, not {' and '.join(self.named)}"
        if not self.named:
            yield "", f"has exactly one of {', '.join(KINDS)}, and none is given"


@dataclass(frozen=True, slots=True)
class DeadLettersDocument:
    """Where records go that are not of the schema, and rows whose column _error is not null."""

    topic: TopicName
    """The name of the topic."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if wrong := written_topic_problem(self.topic):
            yield "topic", wrong


def sink_declared(document: SinkDocument, path: str, views: Views, problems: list[Problem]) -> Sink:
    """The sink of `sink` below spec.

    Args:
        path: of `sink`.
        views: all that there are; the last one is the default.
    """
    view = document.from_ or views.names[-1]
    views.check(f"{path}.from", view, problems)
    return Sink(view, _target(document, path, problems), document.output_mode)


def _target(document: SinkDocument, path: str, problems: list[Problem]) -> Target:
    if document.jdbc is not None:
        return document.jdbc.sink
    for name, files in (("parquet", document.parquet), ("delta", document.delta)):
        if files is not None:
            return FileSink(name, files.path, files.partition_by)
    if document.topic is None:
        return TopicSink("")
    place = f"{path}.topic"
    config = without_secrets(document.topic.config, f"{place}.config", f"{place}.configSecrets", problems)
    return TopicSink(document.topic.name, document.topic.guarantee, config)
