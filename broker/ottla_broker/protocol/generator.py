"""Turns `definitions/*.api` into the modules of `generated/`; run by hand, never by the broker.

    python -m ottla_broker.protocol.generator            # write
    python -m ottla_broker.protocol.generator --check    # exit status 1 when a module is out of date

Every module of an API has the classes of its messages and

    read_request(version, buffer, offset=0) -> XRequest          read_request_at(...) -> (XRequest, end)
    read_response(version, buffer, offset=0) -> XResponse        read_response_at(...) -> (XResponse, end)
    write_request(version, request) -> list[Chunk]               write_response(version, response) -> list[Chunk]

and a module of schemas outside an API the same four per schema, named `read_<schema>` and so on. Readers raise
DecodeError, writers EncodeError. Trailing bytes are the caller's matter, `..._at` tells where the message ended.

What the classes look like
- Slotted, keyword-only constructor, equality by value, repr. Attributes are Kafka's field names in snake_case.
- A struct is named as Kafka names it. Where request and response use one name for different layouts, the
  response's class is prefixed with `Response`; equal layouts share the class.
- A uuid is 16 bytes. `bytes` and `records` are memoryview slices of the frame after a read. `records` is written
  from a buffer or a sequence of buffers and file ranges, which become chunks of the result without a copy.
- A tagged struct (`CurrentLeader`, `DivergingEpoch`, `ReplicaState` ...) is None where it is absent, which on the
  wire is the same as a struct of defaults.

How the code is shaped
Every layout (one or more versions whose bytes are alike) gets one function without calls per struct: nested arrays
become nested loops. Neighbouring fields of fixed width, the length of the next variable field and the usually empty
tag section's count are read by one precompiled Struct straight into the attributes of the object. A writer collects
parts in one list and joins them once, or at every `records` value.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ottla_broker.protocol.notation import Definition, Field, Message, Versions, parse

HERE = Path(__file__).parent
DEFINITIONS = HERE / "definitions"
GENERATED = HERE / "generated"

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""struct formats of the types of fixed width."""

WIDTHS = {"?": 1, "b": 1, "B": 1, "x": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}

PYTHON_TYPES = {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes | memoryview", "uuid": "bytes"}


def snake_case(name: str) -> str:
    """Kafka's field name as a Python attribute: `ISRNodes` -> `isr_nodes`, `isKRaftController` -> `is_kraft_...`."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return name + "_" if keyword.iskeyword(name) else name


def upper_snake_case(name: str) -> str:
    """Kafka's API name as an enum member: `OffsetForLeaderEpoch` -> `OFFSET_FOR_LEADER_EPOCH`."""
    return snake_case(name).upper()


class Code:
    """Lines of Python with an indentation, and unique names for locals."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self._names: dict[str, int] = {}

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line if line else "")

    def name(self, stem: str) -> str:
        number = self._names.get(stem, 0)
        self._names[stem] = number + 1
        return f"{stem}{number}"


def struct_name(prefix: str, formats: list[str]) -> str:
    """Name of the module constant for one fused run; `prefix` is `R` (read) or `W` (write)."""
    return f"{prefix}_" + "".join(formats).replace("?", "t").replace("16s", "u")


def default_of(member: Field) -> str:
    """The default as a Python expression; `[]` stands for a fresh list."""
    if member.default == "null":
        return "None"
    if member.is_array:
        return "[]"
    if member.is_struct or member.type == "records":
        return "None"
    if member.type == "uuid":
        return "ZERO_UUID"
    if member.type == "string":
        return repr("" if member.default in (None, '""') else member.default)
    if member.type == "bytes":
        return 'b""'
    if member.type == "bool":
        return "True" if member.default == "true" else "False"
    if member.type == "float64":
        return repr(float(member.default or 0))
    return str(int(member.default or "0", 0))


def is_null_in(member: Field, version: int) -> bool:
    return member.nullable is not None and version in member.nullable


def minimum_size(fields: tuple[Field, ...], version: int, flexible: bool) -> int:
    """Fewest bytes that a struct of these fields takes."""
    size = 1 if flexible else 0
    for member in fields:
        if version in member.versions and not (member.tag is not None and flexible):
            size += minimum_field_size(member, version, flexible)
    return size


def minimum_field_size(member: Field, version: int, flexible: bool) -> int:
    flexible = flexible and not member.never_flexible
    if member.is_array:
        return 1 if flexible else 4
    if member.type in FORMATS:
        return WIDTHS[FORMATS[member.type]]
    if member.is_struct:
        return 1 if is_null_in(member, version) else minimum_size(member.fields, version, flexible)
    return 1 if flexible else (2 if member.type == "string" else 4)


@dataclass(slots=True)
class Reader:
    """Emits the reader of one layout."""

    code: Code
    classes: dict[tuple[str, str], str]
    kind: str
    version: int
    flexible: bool
    structs: set[str]
    iterated: set[str]
    run: list[tuple[str, str]] = field(default_factory=list)

    def flush(self) -> None:
        """Emit the pending run of fixed-width values: one unpack straight into their targets."""
        if not self.run:
            return
        add = self.code.add
        formats = [format_ for format_, _ in self.run]
        targets = [target for _, target in self.run]
        self.run.clear()
        size = sum(WIDTHS[format_] for format_ in formats)
        if formats == ["B"]:
            add(f"{targets[0]} = b[o]")
        else:
            name = struct_name("R", formats)
            self.structs.add("".join(formats))
            add(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {name}(b, o)")
        add(f"o += {size}")

    def length(self, target: str, flexible: bool, wide: str) -> None:
        """Read a length into `target`: the value itself, or value + 1 in a flexible version."""
        if flexible:
            self.run.append(("B", target))
            self.flush()
            self.code.add(f"if {target} > 127:")
            self.code.add(f"    {target}, o = read_uvarint_rest(b, o, {target})")
        else:
            self.run.append((wide, target))
            self.flush()

    def struct(self, fields: tuple[Field, ...], class_name: str, variable: str, path: str) -> None:
        """Read a struct into a new object named `variable`."""
        add = self.code.add
        add(f"{variable} = new({class_name})")
        tagged: list[Field] = []
        for member in fields:
            attribute = f"{variable}.{snake_case(member.name)}"
            if self.version not in member.versions:
                add(f"{attribute} = {default_of(member)}")
            elif member.tag is not None and self.flexible:
                add(f"{attribute} = {default_of(member)}")
                tagged.append(member)
            else:
                self.value(member, attribute, path + snake_case(member.name))
        if self.flexible:
            self.tags(tagged, variable, path)
        self.flush()

    def tags(self, tagged: list[Field], variable: str, path: str) -> None:
        add = self.code.add
        count = self.code.name("t")
        self.length(count, True, "")
        add(f"if {count}:")
        self.code.depth += 1
        if not tagged:
            add(f"o = skip_tags(b, o, {count})")
        else:
            tag, size, stop = self.code.name("g"), self.code.name("z"), self.code.name("e")
            add(f"for _ in range({count}):")
            self.code.depth += 1
            add(f"{tag}, o = read_uvarint(b, o)")
            add(f"{size}, o = read_uvarint(b, o)")
            add(f"{stop} = o + {size}")
            for index, member in enumerate(tagged):
                name = path + snake_case(member.name)
                add(f"{'el' if index else ''}if {tag} == {member.tag}:")
                self.code.depth += 1
                self.value(member, f"{variable}.{snake_case(member.name)}", name)
                self.flush()
                add(f"if o != {stop}:")
                add(f"    wrong_tag_size({name!r})")
                self.code.depth -= 1
            add("else:")
            add(f"    o = {stop}")
            self.code.depth -= 1
        self.code.depth -= 1

    def value(self, member: Field, target: str, path: str) -> None:
        flexible = self.flexible and not member.never_flexible
        nullable = is_null_in(member, self.version)
        if member.is_array:
            self.array(member, target, path, flexible, nullable)
        elif member.type in FORMATS:
            self.run.append((FORMATS[member.type], target))
        elif member.is_struct:
            self.nested(member, target, path, nullable)
        elif member.type == "string":
            self.string(target, path, flexible, nullable)
        else:
            self.blob(target, path, flexible, nullable)

    def nested(self, member: Field, target: str, path: str, nullable: bool) -> None:
        variable = self.code.name("v")
        if nullable:
            marker = self.code.name("n")
            self.run.append(("b", marker))
            self.flush()
            self.code.add(f"if {marker} < 0:")
            self.code.add(f"    {target} = None")
            self.code.add("else:")
            self.code.depth += 1
        self.flush()
        self.struct(member.fields, self.classes[self.kind, member.type], variable, path + ".")
        self.code.add(f"{target} = {variable}")
        if nullable:
            self.code.depth -= 1

    def slice(self, target: str, path: str, flexible: bool, nullable: bool, wide: str, expression: str) -> None:
        """Read a length and as many bytes; `expression` makes the value of `b[o:e]`."""
        add = self.code.add
        size, stop = self.code.name("n"), self.code.name("e")
        self.length(size, flexible, wide)
        if flexible:
            add(f"if {size}:")
            add(f"    {stop} = o + {size} - 1")
        else:
            add(f"if {size} >= 0:")
            add(f"    {stop} = o + {size}")
        add(f"    {target} = {expression.format(stop)}")
        add(f"    o = {stop}")
        if nullable and flexible:
            add("else:")
            add(f"    {target} = None")
            return
        if nullable:
            add(f"elif {size} == -1:")
            add(f"    {target} = None")
        add("else:")
        add(f"    negative_length({path!r}, {'-1' if flexible else size})")

    def string(self, target: str, path: str, flexible: bool, nullable: bool) -> None:
        self.slice(target, path, flexible, nullable, "h", 'b[o:{}].tobytes().decode()')

    def blob(self, target: str, path: str, flexible: bool, nullable: bool) -> None:
        self.slice(target, path, flexible, nullable, "i", "b[o:{}]")

    def array(self, member: Field, target: str, path: str, flexible: bool, nullable: bool) -> None:
        add = self.code.add
        count = self.code.name("n")
        self.length(count, flexible, "i")
        if flexible:
            add(f"{count} -= 1")
        element = Field(
            name=member.name,
            type=member.type,
            is_array=False,
            versions=member.versions,
            fields=member.fields,
        )
        if nullable:
            add(f"if {count} == -1:")
            add(f"    {target} = None")
            add("else:")
            self.code.depth += 1
        least = max(1, minimum_field_size(element, self.version, flexible))
        bound = f"{count} * {least}" if least > 1 else count
        add(f"if {count} < 0 or {bound} > end - o:")
        add(f"    too_many({path!r}, {count}, end - o)")
        if member.type in FORMATS and member.type != "uuid":
            width = WIDTHS[FORMATS[member.type]]
            add(f'{target} = list(unpack_from(f">{{{count}}}{FORMATS[member.type]}", b, o)) if {count} else []')
            add(f"o += {count} * {width}" if width > 1 else f"o += {count}")
        else:
            values = self.code.name("l")
            add(f"{values} = []")
            done = member.is_struct and self.fixed_structs(member, values, count)
            if done and not self.flexible:
                add(f"{target} = {values}")
                if nullable:
                    self.code.depth -= 1
                return
            add(f"for _ in range({count}):")
            self.code.depth += 1
            variable = self.code.name("v")
            if member.is_struct:
                self.struct(member.fields, self.classes[self.kind, member.type], variable, path + "[].")
            else:
                self.value(element, variable, path + "[]")
                self.flush()
            add(f"{values}.append({variable})")
            self.code.depth -= 1
            add(f"{target} = {values}")
        if nullable:
            self.code.depth -= 1


    def fixed_structs(self, member: Field, values: str, count: str) -> bool:
        """Read an array of structs that are nothing but fixed-width fields with one iterator over all of them.

        In a flexible version that holds while every tag section is empty; at the first other one the list is
        emptied, and the loop behind this one reads everything again. False when the struct is not of this kind.
        """
        present = [one for one in member.fields if self.version in one.versions]
        inline = [one for one in present if one.tag is None or not self.flexible]
        if not inline or not all(is_fixed(one) for one in inline):
            return False
        add = self.code.add
        variable, row, tags = self.code.name("v"), self.code.name("r"), self.code.name("t")
        formats = [FORMATS[one.type] for one in inline]
        targets = [f"{variable}.{snake_case(one.name)}" for one in inline]
        if self.flexible:
            formats.append("B")
            targets.append(tags)
        width = sum(WIDTHS[format_] for format_ in formats)
        self.iterated.add("".join(formats))
        add(f"for {row} in {struct_name('I', formats)}(b[o : o + {count} * {width}]):")
        self.code.depth += 1
        add(f"{variable} = new({self.classes[self.kind, member.type]})")
        add(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {row}")
        if self.flexible:
            add(f"if {tags}:")
            add(f"    {values}.clear()")
            add("    break")
        for one in member.fields:
            if one not in inline:
                add(f"{variable}.{snake_case(one.name)} = {default_of(one)}")
        add(f"{values}.append({variable})")
        self.code.depth -= 1
        if self.flexible:
            add("else:")
            self.code.depth += 1
        add(f"o += {count} * {width}")
        if self.flexible:
            add(f"{count} = 0")
            self.code.depth -= 1
        return True


@dataclass(slots=True)
class Writer:
    """Emits the writer of one layout."""

    code: Code
    version: int
    flexible: bool
    structs: set[str]
    sink: str = "add"
    run: list[tuple[str, str]] = field(default_factory=list)

    def flush(self) -> None:
        """Emit the pending run of fixed-width values as one pack; format `x` is a constant zero byte."""
        if not self.run:
            return
        formats = [format_ for format_, _ in self.run]
        values = [value for format_, value in self.run if format_ != "x"]
        self.run.clear()
        if not values:
            self.code.add(f'{self.sink}(b"{chr(92)}0{f"{chr(92)}0" * (len(formats) - 1)}")')
            return
        self.structs.add("".join(formats))
        self.code.add(f"{self.sink}({struct_name('W', formats)}({', '.join(values)}))")

    def length(self, expression: str, flexible: bool, wide: str) -> None:
        """Write a length, or length + 1 as a variable-length integer in a flexible version."""
        if not flexible:
            self.run.append((wide, expression))
            self.flush()
            return
        self.flush()
        size = self.code.name("n")
        self.code.add(f"{size} = {expression} + 1")
        self.code.add(f"{self.sink}(UVARINT[{size}] if {size} < 128 else write_uvarint({size}))")

    def null(self, flexible: bool, wide: str) -> None:
        self.run.append(("x", "") if flexible else (wide, "-1"))

    def struct(self, fields: tuple[Field, ...], variable: str, path: str) -> None:
        """Write the members of the struct that `variable` names."""
        tagged: list[Field] = []
        present: list[Field] = []
        for member in fields:
            attribute = f"{variable}.{snake_case(member.name)}"
            if self.version not in member.versions:
                if not member.ignorable:
                    self.code.add(f"if {differs(member, attribute)}:")
                    self.code.add(f"    not_in_version({path + snake_case(member.name)!r}, {attribute})")
            elif member.tag is not None and self.flexible:
                tagged.append(member)
            else:
                present.append(member)
        while present:
            member = present.pop(0)
            tail: list[tuple[str, str]] = []
            if is_null_in(member, self.version):
                while present and is_fixed(present[0]):
                    fixed = present.pop(0)
                    tail.append((FORMATS[fixed.type], f"{variable}.{snake_case(fixed.name)}"))
            self.value(member, f"{variable}.{snake_case(member.name)}", path + snake_case(member.name), tail)
        if self.flexible:
            self.tags(tagged, variable, path)

    def tags(self, tagged: list[Field], variable: str, path: str) -> None:
        if not tagged:
            self.run.append(("x", ""))
            return
        self.flush()
        add = self.code.add
        entries = self.code.name("t")
        condition = " or ".join(
            # A struct of defaults is rare enough to find out behind this condition.
            f"{variable}.{snake_case(member.name)} is not None"
            if member.is_struct and not member.is_array
            else differs(member, f"{variable}.{snake_case(member.name)}")
            for member in tagged
        )
        add(f"if {condition}:")
        self.code.depth += 1
        add(f"{entries} = []")
        outer = self.sink
        for member in sorted(tagged, key=lambda one: one.tag or 0):
            attribute = f"{variable}.{snake_case(member.name)}"
            add(f"if {differs(member, attribute)}:")
            self.code.depth += 1
            payload = self.code.name("p")
            add(f"{payload} = []")
            self.sink = f"{payload}.append"
            self.value(member, attribute, path + snake_case(member.name))
            self.flush()
            add(f'{entries}.append(tagged({member.tag}, b"".join({payload})))')
            self.code.depth -= 1
        self.sink = outer
        add(f"{self.sink}(write_uvarint(len({entries})))")
        add(f'{self.sink}(b"".join({entries}))')
        self.code.depth -= 1
        add("else:")
        add(f'    {self.sink}(b"{chr(92)}0")')

    def value(
        self, member: Field, expression: str, path: str, tail: list[tuple[str, str]] | None = None
    ) -> None:
        """Write one value. `tail` is the run of fixed-width fields behind a nullable value: where the value is null,
        everything before it, the null and the tail become one pack.
        """
        flexible = self.flexible and not member.never_flexible
        if is_fixed(member):
            self.run.append((FORMATS[member.type], expression))
            return
        nullable = is_null_in(member, self.version)
        if member.is_struct and not member.is_array and not nullable:
            self.struct(member.fields, expression, path + ".")
            return
        wide = "h" if member.type == "string" and not member.is_array else "i"
        add = self.code.add
        value = self.code.name("s")
        add(f"{value} = {expression}")
        add(f"if {value} is None:")
        self.code.depth += 1
        if nullable:
            before = list(self.run)
            if member.is_struct and not member.is_array:
                self.run.append(("b", "-1"))
            else:
                self.null(flexible, wide)
            self.run += tail or []
            self.flush()
            self.run = before
            self.code.depth -= 1
            add("else:")
            self.code.depth += 1
        else:
            add(f"null_not_allowed({path!r})")
            self.code.depth -= 1
        if member.is_array:
            self.array(member, value, path, flexible)
        elif member.is_struct:
            self.run.append(("b", "1"))
            self.struct(member.fields, value, path + ".")
        elif member.type == "string":
            encoded = self.code.name("s")
            add(f"{encoded} = {value}.encode()")
            self.length(f"len({encoded})", flexible, "h")
            add(f"{self.sink}({encoded})")
        elif member.type == "bytes":
            self.length(f"len({value})", flexible, "i")
            add(f"{self.sink}({value})")
        else:
            self.records(value, flexible)
        if nullable:
            self.run += tail or []
            self.flush()
            self.code.depth -= 1

    def records(self, value: str, flexible: bool) -> None:
        add = self.code.add
        size, plain = self.code.name("n"), self.code.name("k")
        add(f"{plain} = {value}.__class__ is memoryview")
        add(f"{size} = {value}.nbytes if {plain} else records_length({value})")
        self.length(size, flexible, "i")
        add(f"if {size}:")
        add('    push(b"".join(parts))')
        add("    parts.clear()")
        add(f"    if {plain}:")
        add(f"        push({value})")
        add("    else:")
        add(f"        append_records(chunks, {value})")

    def array(self, member: Field, value: str, path: str, flexible: bool) -> None:
        add = self.code.add
        self.length(f"len({value})", flexible, "i")
        if member.type in FORMATS and member.type != "uuid":
            add(f"if {value}:")
            add(f'    {self.sink}(pack(f">{{len({value})}}{FORMATS[member.type]}", *{value}))')
            return
        element = Field(
            name=member.name, type=member.type, is_array=False, versions=member.versions, fields=member.fields
        )
        variable = self.code.name("v")
        add(f"for {variable} in {value}:")
        self.code.depth += 1
        if member.is_struct:
            self.struct(member.fields, variable, path + "[].")
        else:
            self.value(element, variable, path + "[]")
        self.flush()
        self.code.depth -= 1


def is_fixed(member: Field) -> bool:
    """Whether a value takes the same number of bytes in every message."""
    return member.type in FORMATS and not member.is_array


def differs(member: Field, expression: str) -> str:
    """Condition under which a field has another value than its default."""
    default = default_of(member)
    if member.is_struct and not member.is_array:
        members = " or ".join(differs(one, f"{expression}.{snake_case(one.name)}") for one in member.fields)
        return f"{expression} is not None and ({members})"
    if default == "None":
        return f"{expression} is not None"
    if default in ("[]", '""', "''", 'b""', "False", "0"):
        return f"{expression} is None or {expression}" if is_ever_null(member) else expression
    if default == "True":
        return f"not {expression}"
    return f"{expression} != {default}"


def is_ever_null(member: Field) -> bool:
    return member.nullable is not None


def layout(message: Message, version: int) -> tuple[object, ...]:
    """What distinguishes one version's bytes (and checks) from another's."""

    def of(fields: tuple[Field, ...]) -> tuple[object, ...]:
        return tuple((version in one.versions, is_null_in(one, version), of(one.fields)) for one in fields)

    return (message.is_flexible(version), of(message.fields))


def layouts(message: Message) -> list[tuple[int, list[int]]]:
    """The distinct layouts as (first version, all versions)."""
    found: dict[tuple[object, ...], list[int]] = {}
    for version in range(message.versions.first, message.last_version + 1):
        found.setdefault(layout(message, version), []).append(version)
    return [(versions[0], versions) for versions in found.values()]


def class_names(definition: Definition) -> tuple[dict[tuple[str, str], str], list[tuple[str, str, tuple[Field, ...]]]]:
    """Class of every (message kind or name, struct), and the classes to emit as (name, doc, fields), inner first."""
    names: dict[tuple[str, str], str] = {}
    emitted: dict[str, tuple[str, tuple[Field, ...]]] = {}
    for message in definition.messages:
        scope = scope_of(message)
        for struct, declared in reversed(message.structs().items()):
            name = struct
            doc = f"Struct of {message.name}."
            if name in emitted and emitted[name][1] != declared.fields:
                name = ("Response" if message.kind == "response" else message.name) + struct
            elif name in emitted:
                doc = f"{emitted[name][0]} And of {message.name}."
            names[scope, struct] = name
            emitted[name] = (doc, declared.fields)
        versions = f"versions {message.versions}" if str(message.versions) != "0" else "version 0"
        emitted[message.name] = (f"{message.name}, {versions}.", message.fields)
    return names, [(name, doc, fields) for name, (doc, fields) in emitted.items()]


def scope_of(message: Message) -> str:
    return message.kind if message.kind != "data" else message.name


def annotation(member: Field, class_name: str | None) -> str:
    """Type of an attribute."""
    if member.is_struct:
        text = class_name or member.type
    elif member.type == "records":
        return "Records | None"
    else:
        text = PYTHON_TYPES.get(member.type, "int")
    if member.is_array:
        text = f"list[{text}]"
    if is_ever_null(member) or default_of(member) == "None":
        text += " | None"
    return text


def emit_class(code: Code, name: str, doc: str, fields: tuple[Field, ...], names: dict[str, str]) -> None:
    add = code.add
    attributes = [(snake_case(one.name), one, annotation(one, names.get(one.type))) for one in fields]
    add("")
    add("")
    add(f"class {name}:")
    code.depth += 1
    add(f'"""{doc}"""')
    add("")
    slots = ", ".join(f'"{attribute}"' for attribute, _, _ in attributes)
    add(f"__slots__ = ({slots}{',' if len(attributes) == 1 else ''})")
    for attribute, member, type_ in attributes:
        add(f"{attribute}: {type_}{'  # ' + versions_remark(member)}")
    add("")
    if attributes:
        add("def __init__(")
        add("    self,")
        add("    *,")
        for attribute, member, type_ in attributes:
            default = default_of(member)
            add(f"    {attribute}: {type_} = {'_EMPTY' if default == '[]' else default},")
        add(") -> None:")
        for attribute, member, _ in attributes:
            if default_of(member) == "[]":
                add(f"    self.{attribute} = [] if {attribute} is _EMPTY else {attribute}")
            else:
                add(f"    self.{attribute} = {attribute}")
        add("")
    add("def __eq__(self, other: object) -> bool:")
    add(f"    if other.__class__ is not {name}:")
    add("        return NotImplemented")
    comparison = " and ".join(f"self.{attribute} == other.{attribute}" for attribute, _, _ in attributes) or "True"
    add(f"    return {comparison}")
    add("")
    add("__hash__ = None")
    add("")
    add("def __repr__(self) -> str:")
    shown = ", ".join(f"{attribute}={{self.{attribute}!r}}" for attribute, _, _ in attributes)
    add(f'    return f"{name}({shown})"')
    code.depth -= 1


def versions_remark(member: Field) -> str:
    text = f"v{member.versions}"
    if member.tag is not None:
        text += f", tag {member.tag}"
    if member.nullable is not None:
        text += f", null v{member.nullable}"
    return text


def emit_functions(
    definition: Definition,
    message: Message,
    names: dict[tuple[str, str], str],
    code: Code,
    structs_read: set[str],
    structs_iterated: set[str],
    structs_written: set[str],
) -> None:
    add = code.add
    scope = scope_of(message)
    stem = message.kind if message.kind != "data" else snake_case(message.name)
    reads: dict[int, str] = {}
    writes: dict[int, str] = {}
    for first, versions in layouts(message):
        flexible = message.is_flexible(first)
        body = Code()
        body.depth = 1
        reader = Reader(body, names, scope, first, flexible, structs_read, structs_iterated)
        body.add("end = len(b)")
        reader.struct(message.fields, message.name, "m", "")
        reader.flush()
        body.add("if o > end:")
        body.add('    raise DecodeError("the message is truncated")')
        body.add("return m, o")
        add("")
        add("")
        add(f"def _read_{stem}_{first}(b: memoryview, o: int) -> tuple[{message.name}, int]:")
        code.lines += body.lines
        body = Code()
        body.depth = 1
        writer = Writer(body, first, flexible, structs_written)
        writer.struct(message.fields, "m", "")
        writer.flush()
        if not body.lines:
            body.add("pass")
        add("")
        add("")
        add(f"def _write_{stem}_{first}(m: {message.name}, parts: list, chunks: list) -> None:")
        text = "\n".join(body.lines)
        if "add(" in text:
            add("    add = parts.append")
        if "push(" in text:
            add("    push = chunks.append")
        code.lines += body.lines
        for version in versions:
            reads[version] = f"_read_{stem}_{first}"
            writes[version] = f"_write_{stem}_{first}"
    emit_entry_points(code, definition, message, stem, reads, writes)


def emit_entry_points(
    code: Code, definition: Definition, message: Message, stem: str, reads: dict[int, str], writes: dict[int, str]
) -> None:
    add = code.add
    low, high = message.versions.first, message.last_version
    key = definition.api_key if definition.api_key is not None else -1
    index = f"version - {low}" if low else "version"
    span = range(low, high + 1)
    variable = {"request": "request", "response": "response"}.get(message.kind, "value")
    add("")
    add("")
    add(f"_{stem.upper()}_READERS = ({', '.join(reads[version] for version in span)},)")
    add(f"_{stem.upper()}_WRITERS = ({', '.join(writes[version] for version in span)},)")
    add("")
    add("")
    add(f"def read_{stem}_at(version: int, buffer: memoryview, offset: int = 0) -> tuple[{message.name}, int]:")
    add(f'    """Read {message.name} at `offset`: (message, offset behind it). Raises DecodeError."""')
    add(f"    if not {low} <= version <= {high}:")
    add(f"        raise UnsupportedVersionError({key}, version)")
    add("    if buffer.__class__ is not memoryview:")
    add("        buffer = memoryview(buffer)")
    add("    try:")
    add(f"        return _{stem.upper()}_READERS[{index}](buffer, offset)")
    add("    except MALFORMED as error:")
    add(f'        raise malformed("{message.name}", version, error) from error')
    add("")
    add("")
    add(f"def read_{stem}(version: int, buffer: memoryview, offset: int = 0) -> {message.name}:")
    add(f'    """Read {message.name} at `offset`; bytes behind it are left alone. Raises DecodeError."""')
    add(f"    if not {low} <= version <= {high}:")
    add(f"        raise UnsupportedVersionError({key}, version)")
    add("    if buffer.__class__ is not memoryview:")
    add("        buffer = memoryview(buffer)")
    add("    try:")
    add(f"        return _{stem.upper()}_READERS[{index}](buffer, offset)[0]")
    add("    except MALFORMED as error:")
    add(f'        raise malformed("{message.name}", version, error) from error')
    add("")
    add("")
    add(f"def write_{stem}(version: int, {variable}: {message.name}) -> list[Chunk]:")
    add(f'    """Chunks of {message.name} in `version`. Raises EncodeError."""')
    add(f"    if not {low} <= version <= {high}:")
    add(f"        raise UnsupportedVersionError({key}, version)")
    add("    parts: list = []")
    add("    chunks: list = []")
    add("    try:")
    add(f"        _{stem.upper()}_WRITERS[{index}]({variable}, parts, chunks)")
    add("    except UNWRITABLE as error:")
    add(f'        raise unwritable("{message.name}", version, error) from error')
    add("    if parts:")
    add('        chunks.append(b"".join(parts))')
    add("    return chunks")


SHARED = [
    "MALFORMED",
    "UNWRITABLE",
    "UVARINT",
    "ZERO_UUID",
    "Chunk",
    "DecodeError",
    "EncodeError",
    "Records",
    "UnsupportedVersionError",
    "append_records",
    "malformed",
    "negative_length",
    "not_in_version",
    "null_not_allowed",
    "read_uvarint",
    "read_uvarint_rest",
    "records_length",
    "skip_tags",
    "tagged",
    "too_many",
    "unwritable",
    "write_uvarint",
    "wrong_tag_size",
]


def module_text(definition: Definition) -> str:
    """The generated module of one definition."""
    names, classes = class_names(definition)
    functions = Code()
    read: set[str] = set()
    iterated: set[str] = set()
    written: set[str] = set()
    for message in definition.messages:
        emit_functions(definition, message, names, functions, read, iterated, written)
    body = Code()
    per_class: dict[str, dict[str, str]] = {}
    for message in definition.messages:
        scope = scope_of(message)
        own = {struct: name for (one, struct), name in names.items() if one == scope}
        for name in [message.name, *own.values()]:
            per_class.setdefault(name, {}).update(own)
    for name, doc, fields in classes:
        emit_class(body, name, doc, fields, per_class.get(name, {}))
    text = "\n".join(body.lines + functions.lines)
    head = [
        f"# Generated by ottla_broker.protocol.generator from definitions/{definition.file}: do not edit.",
        "# mypy: ignore-errors",
        '"""' + docstring(definition) + '"""',
        "",
        "from __future__ import annotations",
        "",
    ]
    if "unpack_from(f" in text or "(pack(f" in text:
        wanted = [name for name, mark in (("pack", "(pack(f"), ("unpack_from", "unpack_from(f")) if mark in text]
        head.append(f"from struct import {', '.join(['Struct', *wanted])}")
    elif read or written:
        head.append("from struct import Struct")
    used = [name for name in SHARED if re.search(rf"\b{name}\b", text)]
    if head[-1]:
        head.append("")
    head += ["from ottla_broker.protocol.primitives import (", *[f"    {name}," for name in used], ")"]
    head += ["", "_EMPTY = ()" if "_EMPTY" in text else "", "new = object.__new__"]
    for formats in sorted(read):
        head.append(f'{struct_name("R", split_formats(formats))} = Struct(">{formats}").unpack_from')
    for formats in sorted(iterated):
        head.append(f'{struct_name("I", split_formats(formats))} = Struct(">{formats}").iter_unpack')
    for formats in sorted(written):
        head.append(f'{struct_name("W", split_formats(formats))} = Struct(">{formats}").pack')
    while "" in head[-2:] and head[-1] == "":
        head.pop()
    return "\n".join(head) + "\n" + text + "\n"


def docstring(definition: Definition) -> str:
    prose = definition.prose.replace("\\", "\\\\").replace('"""', "'''")
    return prose + "\n" if "\n" in prose else prose


def split_formats(formats: str) -> list[str]:
    return re.findall(r"16s|.", formats)


def index_text(definitions: list[Definition]) -> str:
    """The module that lists every API without importing its messages."""
    lines = [
        "# Generated by ottla_broker.protocol.generator from definitions/*.api: do not edit.",
        '"""Every defined API: (key, name, module, versions, first flexible version or None)."""',
        "",
        "from __future__ import annotations",
        "",
        "APIS: tuple[tuple[int, str, str, int, int, int | None], ...] = (",
    ]
    for one in sorted((d for d in definitions if d.api_key is not None), key=lambda d: d.api_key or 0):
        request = one.message("request")
        flexible: Versions | None = request.flexible
        first = flexible.first if flexible is not None else None
        lines.append(
            f'    ({one.api_key}, "{one.name}", "{one.module}",'
            f" {request.versions.first}, {request.last_version}, {first}),"
        )
    return "\n".join([*lines, ")", ""])


def read_definitions(folder: Path = DEFINITIONS) -> list[Definition]:
    """Every definition of the folder, in the order of file names. Raises NotationError."""
    return [parse(path.name, path.read_text("utf-8")) for path in sorted(folder.glob("*.api"))]


def generate(definitions: list[Definition]) -> dict[str, str]:
    """Text of every generated file by name."""
    files = {f"{definition.module}.py": module_text(definition) for definition in definitions}
    files["index.py"] = index_text(definitions)
    files["__init__.py"] = (
        "# Generated by ottla_broker.protocol.generator: do not edit.\n"
        '"""Readers and writers of the wire messages, one module per API, generated from `definitions/`."""\n'
    )
    return files


def main() -> int:
    """Write the modules, or with `--check` say which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 when something would change")
    check = parser.parse_args().check
    files = generate(read_definitions())
    GENERATED.mkdir(exist_ok=True)
    present = {path.name: path.read_text("utf-8") for path in sorted(GENERATED.glob("*.py"))}
    stale = sorted(name for name in files.keys() | present.keys() if files.get(name) != present.get(name))
    if check:
        for name in stale:
            print(f"generated/{name} is out of date: run python -m ottla_broker.protocol.generator")
        return 1 if stale else 0
    for name in stale:
        if name in files:
            (GENERATED / name).write_text(files[name], "utf-8")
        else:
            (GENERATED / name).unlink()
    print(f"{len(files)} modules, {len(stale)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
