"""Emits the reader of one layout; the package's docstring describes the shape of the code."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla_broker.protocol.generator.facts import (
    FORMATS,
    WIDTHS,
    Code,
    default_of,
    is_fixed,
    is_null_in,
    minimum_field_size,
    snake_case,
    struct_name,
)
from ottla_broker.protocol.notation import Field


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

    def length(self, target: str, flexible: bool, wide: str, path: str = "") -> None:
        """Read a length into `target`: the value itself, or value + 1 in a flexible version.

        A string gives its `path`: its length is bounded in a flexible version too, where two bytes are not the bound.
        """
        if flexible:
            self.run.append(("B", target))
            self.flush()
            self.code.add(f"if {target} > 127:")
            self.code.add(f"    {target}, o = read_uvarint_rest(b, o, {target})")
            if wide == "h":
                self.code.add(f"    if {target} > COMPACT_STRING_LIMIT:")
                self.code.add(f"        too_long({path!r}, {target} - 1)")
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
            add(f"if {count} > TAG_LIMIT:")
            add(f"    too_many_tags({count})")
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
        self.length(size, flexible, wide, path)
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
        self.slice(target, path, flexible, nullable, "h", "b[o:{}].tobytes().decode()")

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
            if member.type == "int32":
                add(f"if {count} < INT32S_BELOW:")
                add(f"    {target} = list(READ_INT32S[{count}](b, o))")
                add("else:")
                self.code.depth += 1
            values, at = self.code.name("l"), self.code.name("a")
            add(f"k += {count} // NUMBERS_PER_ELEMENT")
            add(f"{target} = {values} = []")
            add(f"for {at} in range(0, {count}, NUMBERS_PER_SLICE):")
            add(f"    if {at}:")
            add("        yield k")
            add(
                f"    {values} += unpack_from("
                f'f">{{min({count} - {at}, NUMBERS_PER_SLICE)}}{FORMATS[member.type]}", b, o + {at} * {width})'
            )
            if member.type == "int32":
                self.code.depth -= 1
            add(f"o += {count} * {width}" if width > 1 else f"o += {count}")
        else:
            values = self.code.name("l")
            add(f"k += {count}")
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
            self.end_of_element()
            self.code.depth -= 1
            add(f"{target} = {values}")
        if nullable:
            self.code.depth -= 1

    def end_of_element(self) -> None:
        """Yield where enough bytes were read since the last time."""
        self.code.add("if o > y:")
        self.code.add("    y = o + BYTES_PER_SLICE")
        self.code.add("    yield k")

    def fixed_structs(self, member: Field, values: str, count: str) -> bool:
        """Read an array of structs that are nothing but fixed-width fields with one iterator over a slice of them.

        In a flexible version that holds while every tag section is empty; at the first other one the list is
        emptied, and the loop behind this one reads everything again. False when the struct is not of this kind.
        """
        present = [one for one in member.fields if self.version in one.versions]
        inline = [one for one in present if one.tag is None or not self.flexible]
        if not inline or not all(is_fixed(one) for one in inline):
            return False
        add = self.code.add
        variable, row, tags = self.code.name("v"), self.code.name("r"), self.code.name("t")
        begin, stop, some = self.code.name("a"), self.code.name("e"), self.code.name("q")
        formats = [FORMATS[one.type] for one in inline]
        targets = [f"{variable}.{snake_case(one.name)}" for one in inline]
        if self.flexible:
            formats.append("B")
            targets.append(tags)
        width = sum(WIDTHS[format_] for format_ in formats)
        self.iterated.add("".join(formats))
        if self.flexible:
            add(f"{begin} = o")
        add(f"{stop} = o + {count} * {width}")
        add(f"while o < {stop}:")
        self.code.depth += 1
        add(f"{some} = {stop} if {stop} - o <= BYTES_PER_SLICE else o + BYTES_PER_SLICE // {width} * {width}")
        add(f"for {row} in {struct_name('I', formats)}(b[o:{some}]):")
        self.code.depth += 1
        add(f"{variable} = new({self.classes[self.kind, member.type]})")
        add(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {row}")
        if self.flexible:
            add(f"if {tags}:")
            add("    break")
        for one in member.fields:
            if one not in inline:
                add(f"{variable}.{snake_case(one.name)} = {default_of(one)}")
        add(f"{values}.append({variable})")
        self.code.depth -= 1
        if self.flexible:
            add("else:")
            self.code.depth += 1
        add(f"o = {some}")
        self.end_of_element()
        if self.flexible:
            add("continue")
            self.code.depth -= 1
            add(f"{values}.clear()")
            add(f"o = {begin}")
            add("break")
            self.code.depth -= 1
            add("else:")
            add(f"    {count} = 0")
        else:
            self.code.depth -= 1
        return True
