"""The notation of the wire definitions, and its parser.

Lives here: the grammar of `definitions/*.api`, the values it is parsed into, and the rules of a definition. Not here:
Python code for the messages (`generator`), which also reads the files. Pure.

A definition file describes one API, request and response together, or a few schemas that no API carries:

    # Prose: what the API does, the errors in the order they are checked, what each version changed.

    api 1 Fetch

    request 0-17 flexible 12+ deprecated 0-3
      ClusterId      string        12+    tag 0  null 12+  = null  ignorable
      Topics         []FetchTopic  0+
        Topic        string        0-12   ignorable
        Partitions   []int32       0+

    response 0-17 flexible 12+
      ThrottleTimeMs int32         1+     ignorable

One line is one field: its name as Kafka's documentation has it, its type, the versions that carry it, then in any
order:

    null RANGE      may be null in these versions (independent of whether the version is flexible)
    tag N           sits in the tag section of the struct; a tagged value equal to its default is not sent
    = VALUE         default, also the value a reader sees in versions without the field; without it: zero, empty,
                    false, the zero UUID, null for `records`
    ignorable       a writer may drop a value other than the default in versions without the field
    key             the field identifies the element of its array (a hint)
    flexible none   keeps the old encoding in flexible versions (ClientId of the request header alone)
    # TEXT          a remark

Types are bool, int8, int16, uint16, int32, uint32, int64, float64, string, bytes, records, uuid, the name of a
struct whose fields follow one level deeper, or `[]` and one of these. A struct that is used twice is declared after
the message by `struct NAME`. Version ranges are `3`, `3-5`, `3+`. `data NAME RANGE` declares a schema
outside an API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

SCALARS = frozenset(
    {"bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "string", "bytes", "records", "uuid"}
)


class NotationError(ValueError):
    """A definition file breaks the notation; the message names file, line and rule."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A closed range of versions; `last` is None where it is open at the top."""

    first: int
    last: int | None

    def __contains__(self, version: int) -> bool:
        return version >= self.first and (self.last is None or version <= self.last)

    def __str__(self) -> str:
        if self.last is None:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @staticmethod
    def parse(text: str) -> Versions:
        """`3`, `3-5` or `3+`; ValueError for anything else."""
        match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
        if match is None:
            raise ValueError(f"{text!r} is not a version range")
        first = int(match[1])
        if match[2]:
            return Versions(first, None)
        last = int(match[3]) if match[3] else first
        if last < first:
            raise ValueError(f"version range {text!r} runs backwards")
        return Versions(first, last)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message or struct."""

    name: str
    type: str
    """Element type for an array."""
    is_array: bool
    versions: Versions
    nullable: Versions | None = None
    tag: int | None = None
    default: str | None = None
    """The default as written, None where the notation's own default applies."""
    ignorable: bool = False
    is_key: bool = False
    never_flexible: bool = False
    remark: str = ""
    fields: tuple[Field, ...] = ()
    """The members, for a struct."""

    @property
    def is_struct(self) -> bool:
        return self.type not in SCALARS


@dataclass(frozen=True, slots=True)
class MessageDefinition:
    """A request, a response, or a schema outside an API."""

    kind: str
    """`request`, `response` or `data`."""
    name: str
    versions: Versions
    flexible: Versions | None
    deprecated: Versions | None
    fields: tuple[Field, ...]

    @property
    def last_version(self) -> int:
        assert self.versions.last is not None
        return self.versions.last

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version in self.flexible

    def structs(self) -> dict[str, Field]:
        """Every struct of the message by name, in order of first use, as a field that declares it."""
        found: dict[str, Field] = {}

        def walk(fields: tuple[Field, ...]) -> None:
            for member in fields:
                if member.is_struct:
                    found.setdefault(member.type, member)
                    walk(member.fields)

        walk(self.fields)
        return found


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition file."""

    file: str
    api_key: int | None
    name: str
    prose: str
    messages: tuple[MessageDefinition, ...]

    @property
    def module(self) -> str:
        """Name of the generated module: the file's name without number and ending."""
        return re.sub(r"^\d+_", "", self.file.removesuffix(".api"))

    def message(self, kind: str) -> MessageDefinition:
        return next(message for message in self.messages if message.kind == kind)


@dataclass(slots=True)
class _Line:
    number: int
    indent: int
    words: list[str]
    remark: str


@dataclass(slots=True)
class _Open:
    """A message under construction."""

    kind: str
    name: str
    versions: Versions
    flexible: Versions | None
    deprecated: Versions | None
    fields: tuple[Field, ...] = ()
    structs: dict[str, tuple[Field, ...]] = field(default_factory=dict)


def parse(file: str, text: str) -> Definition:
    """Parse one definition file.

    `file` is the file's name (`01_fetch.api`). Raises NotationError.
    """
    prose, lines = _split(file, text)
    api_key: int | None = None
    name = ""
    messages: list[_Open] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        try:
            if line.indent:
                raise ValueError("a field outside a message")
            head = line.words[0]
            if head == "api":
                api_key, name = int(line.words[1]), line.words[2]
                continue
            if head not in ("request", "response", "data", "struct"):
                raise ValueError(f"unknown declaration {head!r}")
            body, index = _block(file, lines, index, 0)
            if head == "struct":
                messages[-1].structs[line.words[1]] = body
            else:
                messages.append(_open(line.words, name, body))
        except (ValueError, IndexError) as error:
            if isinstance(error, NotationError):
                raise
            raise NotationError(f"{file}:{line.number}: {error}") from error
    return Definition(file, api_key, name, prose, tuple(_close(file, message) for message in messages))


def _split(file: str, text: str) -> tuple[str, list[_Line]]:
    prose: list[str] = []
    lines: list[_Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        if not raw.strip():
            if prose and not lines:
                prose.append("")
            continue
        if raw.startswith("#"):
            if lines:
                raise NotationError(f"{file}:{number}: prose stands before the first declaration")
            prose.append(raw.removeprefix("#").removeprefix(" ").rstrip())
            continue
        code, _, remark = raw.partition(" # ")
        indent = len(code) - len(code.lstrip(" "))
        if indent % 2:
            raise NotationError(f"{file}:{number}: indent by two spaces")
        lines.append(_Line(number, indent // 2, code.split(), remark.strip()))
    return "\n".join(prose).strip(), lines


def _open(words: list[str], api_name: str, body: tuple[Field, ...]) -> _Open:
    rest = iter(words[1:])
    kind = words[0]
    name = next(rest) if kind == "data" else api_name + kind.capitalize()
    versions = Versions.parse(next(rest))
    if versions.last is None:
        raise ValueError("the versions of a message are closed: write 0-3")
    flexible: Versions | None = None
    deprecated: Versions | None = None
    for word in rest:
        if word == "flexible":
            flexible = Versions.parse(next(rest))
        elif word == "deprecated":
            deprecated = Versions.parse(next(rest))
        else:
            raise ValueError(f"unknown word {word!r}")
    return _Open(kind, name, versions, flexible, deprecated, body)


def _block(file: str, lines: list[_Line], index: int, depth: int) -> tuple[tuple[Field, ...], int]:
    """Fields of the block one deeper than `depth`, and the index of the line after it."""
    fields: list[Field] = []
    while index < len(lines) and lines[index].indent > depth:
        line = lines[index]
        if line.indent != depth + 1:
            raise NotationError(f"{file}:{line.number}: indented too deep")
        try:
            parsed = _field(line)
        except (ValueError, StopIteration) as error:
            raise NotationError(f"{file}:{line.number}: {str(error) or 'the line ends too early'}") from error
        members, index = _block(file, lines, index + 1, depth + 1)
        if members and not parsed.is_struct:
            raise NotationError(f"{file}:{line.number}: {parsed.name} is no struct and has no members")
        fields.append(replace(parsed, fields=members))
    return tuple(fields), index


def _field(line: _Line) -> Field:
    words = iter(line.words)
    name, type_, versions = next(words), next(words), Versions.parse(next(words))
    nullable: Versions | None = None
    tag: int | None = None
    default: str | None = None
    flags: set[str] = set()
    for word in words:
        if word == "null":
            nullable = Versions.parse(next(words))
        elif word == "tag":
            tag = int(next(words))
        elif word == "=":
            default = next(words)
        elif word in ("ignorable", "key"):
            flags.add(word)
        elif word == "flexible":
            if next(words) != "none":
                raise ValueError("a field can only say 'flexible none'")
            flags.add(word)
        else:
            raise ValueError(f"unknown word {word!r}")
    return Field(
        name=name,
        type=type_.removeprefix("[]"),
        is_array=type_.startswith("[]"),
        versions=versions,
        nullable=nullable,
        tag=tag,
        default=default,
        ignorable="ignorable" in flags,
        is_key="key" in flags,
        never_flexible="flexible" in flags,
        remark=line.remark,
    )


def _close(file: str, message: _Open) -> MessageDefinition:
    """Give every use of a shared struct its members, and check the rules of the notation."""

    def resolve(fields: tuple[Field, ...]) -> Iterator[Field]:
        for member in fields:
            if not member.is_struct:
                yield member
                continue
            members = member.fields or message.structs.get(member.type, ())
            if not members:
                raise NotationError(f"{file}: {message.name}: struct {member.type} has no fields")
            yield replace(member, fields=tuple(resolve(members)))

    fields = tuple(resolve(message.fields))
    if message.kind != "data":
        for member in _walk(fields):
            if member.tag is not None and message.flexible is None:
                raise NotationError(f"{file}: {message.name}: {member.name} is tagged, but no version is flexible")
    return MessageDefinition(message.kind, message.name, message.versions, message.flexible, message.deprecated, fields)


def _walk(fields: tuple[Field, ...]) -> Iterator[Field]:
    for member in fields:
        yield member
        yield from _walk(member.fields)
