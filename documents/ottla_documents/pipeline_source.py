"""spec.source of a KafkaPipeline: where the rows of the view `source` come from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, TypeAlias

from ottla_documents.field_types import TopicName
from ottla_documents.schema.marks import Items, Rule, Text, WholeNumber

KINDS = ("topics", "pattern", "table", "files")
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
CORRUPT_RECORD = "_corrupt_record"
"""The column with the text of a value that is not of its schema; Spark's default of columnNameOfCorruptRecord."""
Folder: TypeAlias = Annotated[str, Text(least=1, most=1024)]
"""A folder on a file system that the driver and the executors see."""
Columns: TypeAlias = Annotated[str, Text(least=1, most=65536)]
"""The columns of a table, as Spark's DDL has them."""
Limit: TypeAlias = Annotated[int, WholeNumber(1)]


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How the values of records are read."""

    format: Literal["binary", "text", "json"] = "binary"
    """binary, text, or json with a schema, which makes the column value a struct."""
    schema: Columns = ""
    """The columns of json, as in Spark's DDL, such as 'carrier string, delay double'."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.format == "json" and not self.schema.strip():
            yield "schema", "is required for json: the columns, such as 'carrier string, delay double'"
        if self.format != "json" and self.schema:
            yield "schema", f"goes with format json, not {self.format}"
        if re.search(rf"\b{CORRUPT_RECORD}\b", self.schema):
            yield "schema", f"{CORRUPT_RECORD} is a column of the view already"


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
    """Files that appear in a folder of the claim."""

    path: Folder
    """A folder of the claim, relative to its root."""
    format: Literal["json", "csv", "parquet", "text"] = "json"
    """The format of the files."""
    schema: Columns = ""
    """The columns, as in Spark's DDL. Required, but for text."""
    max_files_per_trigger: Limit = 0
    """The most files of a batch. Default: no limit."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if wrong := folder_problem(self.path):
            yield "path", wrong
        if self.format != "text" and not self.schema.strip():
            yield (
                "schema",
                "is required for a stream of files: the columns, such as 'carrier string, delay double'",
            )
        if self.format == "text" and self.schema:
            yield "schema", "cannot be chosen for text, whose rows have one column, value"


Source = TopicSource | FileSource


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """Where the rows of the view `source` come from. Exactly one of topics, pattern, table and files."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"[{', '.join(f'has(self.{kind})' for kind in KINDS)}].filter(one, one).size() == 1",
            f"has exactly one of {', '.join(KINDS)}",
        ),
    )
    topics: Annotated[tuple[TopicName, ...] | None, Items(least=1, most=1000)] = None
    """The topics that are read."""
    pattern: Annotated[str | None, Text(least=1, most=1024)] = None
    """A regular expression; every topic in whose name it is found is read."""
    table: TopicName | None = None
    """A topic that is read as the changelog of a table: the view `source` has the latest record of each key. Goes with
    the outputModes update and complete."""
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    """Where a topic begins that the checkpoint does not know. latest does not go with table, and with deadLetters only
    where the sink is a topic."""
    max_offsets_per_trigger: Limit = 0
    """The most records of a batch. Default: no limit."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether records of open and aborted transactions are left out."""
    fail_on_data_loss: bool = True
    """Whether the pipeline fails when records that it has not read are gone. With false it goes on behind them."""
    include_headers: bool = False
    """Whether the view `source` has the column headers."""
    value: ValueFormat = ValueFormat()
    files: FileSource | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        kinds = (self.topics, self.pattern, self.table, self.files)
        named = [name for name, one in zip(KINDS, kinds, strict=True) if one is not None]
        if len(named) > 1:
            yield "", f"has exactly one of {', '.join(KINDS)}, not {' and '.join(named)}"
        if not named:
            yield "", f"has exactly one of {', '.join(KINDS)}, and none is given"
        if self.pattern is not None and (wrong := pattern_problem(self.pattern)):
            yield "pattern", f"{self.pattern!r} is no regular expression: {wrong}"
        if self.table is not None and self.starting_offsets == "latest":
            yield "startingOffsets", "latest does not go with table: a table has the records of the whole log"
        if named == ["files"]:
            for name, is_written in self._of_topics():
                if is_written:
                    yield name, "goes with topics, pattern and table, not with files"

    def _of_topics(self) -> tuple[tuple[str, bool], ...]:
        """The fields that files do not have, and whether one differs from its default."""
        return (
            ("startingOffsets", self.starting_offsets != "earliest"),
            ("maxOffsetsPerTrigger", self.max_offsets_per_trigger != 0),
            ("isolationLevel", self.isolation_level != "read_committed"),
            ("failOnDataLoss", not self.fail_on_data_loss),
            ("includeHeaders", self.include_headers),
            ("value", self.value != ValueFormat()),
        )

    @property
    def has_topics(self) -> bool:
        return self.topics is not None or self.pattern is not None or self.table is not None

    @property
    def source(self) -> Source:
        if self.files is not None and self.topics is None and self.pattern is None and self.table is None:
            return replace(self.files, schema=self.files.schema.strip())
        return TopicSource(
            topics=(self.table,) if self.table else self.topics or (),
            pattern=self.pattern or "",
            is_table=bool(self.table),
            starting_offsets=self.starting_offsets,
            max_offsets_per_trigger=self.max_offsets_per_trigger,
            isolation_level=self.isolation_level,
            is_data_loss_fatal=self.fail_on_data_loss,
            has_headers=self.include_headers,
            value=replace(self.value, schema=self.value.schema.strip()),
        )


def pattern_problem(pattern: str) -> str:
    """Why a text is no regular expression; "" when it is one."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError) as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    return ""


def written_topic_problem(topic: str) -> str:
    """Why a topic cannot be written; "" when it can."""
    is_internal = topic in INTERNAL_TOPICS
    return f"{topic} is a topic of the brokers' own, to which they take no records" if is_internal else ""


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
"""The scheme of a path, as Hadoop's Path has it, for which `s3a:bucket/x` and `a:b` have one too."""


def folder_problem(path: str) -> str:
    """Why a path is none of a file system that the driver and the executors see; "" when it is one."""
    if _SCHEME.match(path):
        return f"must be a path of a file system, without a scheme, not {path!r}; object stores are not served yet"
    if "\0" in path or not path.strip():
        return "is empty" if not path.strip() else "has a zero byte"
    return ""
