"""spec.source of a KafkaPipeline: where the rows of the view `source` come from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from ottla_documents.fields import Fields
from ottla_documents.kafka_topic import TOPIC_NAME, TOPIC_NAME_FORM

KINDS = ("topics", "pattern", "table", "files")
FILE_FORMATS = ("json", "csv", "parquet", "text")
WITH_OWN_SCHEMA = ("text",)
"""Formats whose rows have the same columns always."""
VALUE_FORMATS = ("binary", "text", "json")
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
CORRUPT_RECORD = "_corrupt_record"
"""The column with the text of a value that is not of its schema; Spark's default of columnNameOfCorruptRecord."""


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How the bytes of a value are read. `schema`: the columns as Spark's DDL has them, for json."""

    format: str = "binary"
    schema: str = ""


@dataclass(frozen=True, slots=True)
class TopicSource:
    """Records of topics: by name, or all whose name has `pattern` in it. `is_table`: the latest one of each key of one
    topic. `starting_offsets` counts without a checkpoint only; `max_offsets_per_trigger`: 0 for no limit."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    is_table: bool = False
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int = 0
    isolation_level: str = "read_committed"
    is_data_loss_fatal: bool = True
    has_headers: bool = False
    value: ValueFormat = ValueFormat()


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files that appear in a folder. `max_files_per_trigger`: 0 for no limit."""

    path: str
    format: str
    schema: str = ""
    max_files_per_trigger: int = 0


Source = TopicSource | FileSource


def parse_source(spec: Fields) -> Source:
    """Reads `source` below spec."""
    before = len(spec.problems)
    fields = spec.child("source")
    if not spec.has("source"):
        spec.problem("source", f"is required: one of {', '.join(KINDS)}")
        return TopicSource()
    named = [kind for kind in KINDS if fields.has(kind)]
    if len(named) > 1:
        spec.problem("source", f"has exactly one of {', '.join(KINDS)}, not {' and '.join(named)}")
    source: Source = TopicSource()
    if "files" in named:
        source = _files(fields)
    else:
        source = _topics(fields)
        fields.finish()
        if not named and len(spec.problems) == before:
            spec.problem("source", f"has exactly one of {', '.join(KINDS)}, and none is given")
        return source
    fields.finish()
    return source


def _topics(fields: Fields) -> TopicSource:
    topics = fields.texts("topics")
    if fields.has("topics") and fields.values["topics"] == []:
        fields.problem("topics", "names no topic")
    for topic in topics:
        _check_topic_name(fields, "topics", topic)
    pattern, table = fields.text("pattern", ""), ""
    if fields.has("pattern"):
        _check_pattern(fields, pattern)
    starting = fields.choice("startingOffsets", ("earliest", "latest"), "earliest")
    if fields.has("table"):
        table = topic_name(fields, "table")
        if starting == "latest":
            fields.problem("startingOffsets", "latest does not go with table: a table has the records of the whole log")
    return TopicSource(
        topics=(table,) if table else topics,
        pattern=pattern,
        is_table=bool(table),
        starting_offsets=starting,
        max_offsets_per_trigger=fields.whole("maxOffsetsPerTrigger", 0),
        isolation_level=fields.choice("isolationLevel", ISOLATION_LEVELS, "read_committed"),
        is_data_loss_fatal=_is_fatal(fields),
        has_headers=fields.flag("includeHeaders"),
        value=_value(fields),
    )


def _is_fatal(fields: Fields) -> bool:
    written: Any = fields.values.get("failOnDataLoss")
    fields.flag("failOnDataLoss")
    return written is not False


def _check_pattern(fields: Fields, pattern: str) -> None:
    if pattern == "" and fields.values["pattern"] == "":
        fields.problem("pattern", "is empty; .* is every topic")
    try:
        re.compile(pattern)
    except re.error as error:
        fields.problem("pattern", f"{pattern!r} is no regular expression: {error}")


def _value(fields: Fields) -> ValueFormat:
    value = fields.child("value")
    kind = value.choice("format", VALUE_FORMATS, "binary")
    schema = value.text("schema", "").strip()
    if kind == "json" and not schema and isinstance(value.values.get("schema", ""), str | None):
        value.problem("schema", "is required for json: the columns, such as 'carrier string, delay double'")
    if kind != "json" and value.has("schema"):
        value.problem("schema", f"goes with format json, not {kind}")
    if re.search(rf"\b{CORRUPT_RECORD}\b", schema):
        value.problem("schema", f"{CORRUPT_RECORD} is a column of the view already")
    value.finish()
    return ValueFormat(kind, schema)


def _files(fields: Fields) -> FileSource:
    files = fields.child("files")
    kind = files.choice("format", FILE_FORMATS, "json")
    schema = files.text("schema", "").strip()
    if kind not in WITH_OWN_SCHEMA and not schema:
        files.problem(
            "schema", "is required for a stream of files: the columns, such as 'carrier string, delay double'"
        )
    if kind in WITH_OWN_SCHEMA and files.has("schema"):
        files.problem("schema", f"cannot be chosen for {kind}, whose rows have one column, value")
    path = folder(files, "path")
    source = FileSource(path, kind, schema, files.whole("maxFilesPerTrigger", 0))
    files.finish()
    return source


def topic_name(fields: Fields, name: str) -> str:
    """The name of a topic."""
    topic = fields.text(name)
    if isinstance(fields.values.get(name), str):
        _check_topic_name(fields, name, topic)
    return topic


def written_topic_name(fields: Fields, name: str) -> str:
    """The name of a topic that is written."""
    topic = topic_name(fields, name)
    if topic in INTERNAL_TOPICS:
        fields.problem(name, f"{topic} is a topic of the brokers' own, to which they take no records")
    return topic


def _check_topic_name(fields: Fields, name: str, topic: str) -> None:
    if not re.fullmatch(TOPIC_NAME, topic) or topic in (".", ".."):
        fields.problem(name, f"must be {TOPIC_NAME_FORM}, not {topic!r}")


def are_one_folder(outer: str, inner: str) -> bool:
    """Whether `inner` is the folder `outer` or one below it whose files are read with those of `outer`: Spark and other
    readers of a folder leave out what begins with "." or "_".

    >>> are_one_folder("out", "./out"), are_one_folder("out", "out/late"), are_one_folder("out", "out/_checkpoint/x")
    (True, True, False)
    >>> are_one_folder("out", "output"), are_one_folder("out/late", "out"), are_one_folder(".", ".ottla/p")
    (False, False, False)
    """
    way = _way(outer, inner)
    return way == ["."] or not any(part.startswith((".", "_")) for part in way)


def is_below(outer: str, inner: str) -> bool:
    """Whether `inner` is in the folder `outer`, at any depth."""
    return _way(outer, inner)[0] not in (".", "..")


def _way(outer: str, inner: str) -> list[str]:
    """The folders from one to the other; relative paths begin at the same folder."""
    return os.path.relpath(os.path.join("/claim", inner), os.path.join("/claim", outer)).split("/")


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""As Hadoop's Path has it, for which `s3a:bucket/x` and `a:b` have one too."""


def folder(fields: Fields, name: str, default: str | None = None) -> str:
    """The path of a folder on a file system that the driver and the executors see."""
    path = fields.text(name, default)
    if _SCHEME.match(path):
        problem = f"must be a path of a file system, without a scheme, not {path!r}; object stores are not served yet"
        fields.problem(name, problem)
    elif isinstance(fields.values.get(name), str) and ("\0" in path or not path.strip()):
        fields.problem(name, "is empty" if not path.strip() else "has a zero byte")
    return path
