"""Emits the writer of one layout; the package's docstring describes the shape of the code."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla_broker.protocol.generator.facts import FORMATS, Code, differs, is_fixed, is_null_in, snake_case, struct_name
from ottla_broker.protocol.notation import Field


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

    def length(self, expression: str, flexible: bool, wide: str, path: str = "") -> None:
        """Write a length, or length + 1 as a variable-length integer in a flexible version. `path`: of a string."""
        if not flexible:
            self.run.append((wide, expression))
            self.flush()
            return
        self.flush()
        size = self.code.name("n")
        self.code.add(f"{size} = {expression} + 1")
        longer = f"write_string_length({size}, {path!r})" if wide == "h" else f"write_uvarint({size})"
        self.code.add(f"{self.sink}(UVARINT[{size}] if {size} < 128 else {longer})")

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

    def value(self, member: Field, expression: str, path: str, tail: list[tuple[str, str]] | None = None) -> None:
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
            self.length(f"len({encoded})", flexible, "h", path)
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
        if member.type == "int32":
            size, table = self.code.name("n"), "COMPACT_INT32S" if flexible else "INT32S"
            self.flush()
            add(f"{size} = len({value})")
            add(
                f"{self.sink}({table}[{size}]({size}{' + 1' if flexible else ''}, *{value})"
                f" if {size} < INT32S_BELOW else write_int32s({value}, {flexible}))"
            )
            return
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
        add("k -= 1")
        add("if not k:")
        add("    k = ELEMENTS_PER_SLICE")
        add("    yield")
        self.code.depth -= 1
