"""A dataclass declares the fields of a mapping: how they are read, and their schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import pytest

from ottla_documents.custom_resources import CUSTOM_RESOURCES
from ottla_documents.schema.marks import Amount, Items, Named, OnlyRight, Problem, Rule, Text, WholeNumber
from ottla_documents.schema.nodes import ListNode, ObjectNode, SchemaNode, read_object, shape_of
from ottla_documents.schema.openapi import DEFAULT, description_of, object_schema


@dataclass(frozen=True, slots=True)
class Port:
    """A port."""

    name: Annotated[str, Text("[a-z]+", "lower case letters", most=5)]
    """Its name."""
    number: Annotated[int, WholeNumber(1, 65535)] = 9092
    """Its number."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server."""

    RULES: ClassVar[tuple[Rule, ...]] = (Rule("!has(self.size) || has(self.ports)", "size goes with ports"),)
    ports: Annotated[tuple[Port, ...], Items(least=1, most=2, key="name")] = (Port("main"),)
    """Where it listens. Default: the port main."""
    right_ports: Annotated[tuple[Port, ...], Items(is_atomic=True), OnlyRight()] = ()
    """Ports of which a wrong one does not count."""
    only_port: Annotated[Port | None, OnlyRight()] = None
    places: Annotated[tuple[Port, ...], Items(is_atomic=True, keeps_places=True)] = ()
    """Ports that are asked for by their place."""
    secret: Annotated[str | None, Text("[a-z]+", "lower case letters", is_hidden=True)] = None
    """What no message may show."""
    mode: Literal["", "Fast", "Safe"] = ""
    """How it runs. Default: the server decides."""
    is_public: Annotated[bool, Named("public")] = False
    """Whether others reach it."""
    size: Annotated[str, Amount()] = ""
    """How large it is."""
    from_: frozenset[str] = frozenset()
    """Where requests come from."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.is_public and self.mode != "Safe":
            yield "mode", "must be Safe where the server is public"
        if self.size and self.mode == "Fast":
            yield "", "has either size or the mode Fast"


def _read(values: dict[str, Any]) -> tuple[Server, list[str]]:
    problems: list[Problem] = []
    return read_object(Server, values, "spec", problems), [str(one) for one in problems]


def test_what_is_written_is_read_and_the_rest_has_its_default() -> None:
    written = {"ports": [{"name": "a", "number": 1}], "public": True, "mode": "Safe", "size": 5, "from": ["x", "y"]}
    assert _read(written) == (
        Server((Port("a", 1),), mode="Safe", is_public=True, size="5", from_=frozenset({"x", "y"})),
        [],
    )
    assert _read({}) == (Server(), [])
    assert _read({"ports": None, "size": None}) == (Server(), [])


@pytest.mark.parametrize(
    ("values", "found", "problem"),
    [
        ({"mode": "fast"}, Server(), "spec.mode: must be one of Fast, Safe, not 'fast'"),
        ({"mode": ""}, Server(), "spec.mode: must be one of Fast, Safe, not ''"),
        ({"public": "no"}, Server(), "spec.public: must be true or false, not 'no'"),
        ({"size": -1}, Server(), "spec.size: must be more than nothing, not -1"),
        ({"size": 0.5}, Server(), "spec.size: must be a string or a whole number; write '0.5' in quotes"),
        ({"ports": {}}, Server(), "spec.ports: must be a list, not {}"),
        ({"ports": []}, Server(()), "spec.ports: must have at least one item, not 0"),
        ({"ports": [{"name": "a"}, 5]}, Server((Port("a"),)), "spec.ports[1]: must be a mapping, not 5"),
        (
            {"places": [5, {"name": "a"}]},
            Server(places=(Port(""), Port("a"))),
            "spec.places[0]: must be a mapping, not 5",
        ),
        ({"ports": [{"number": 5}]}, Server((Port("", 5),)), "spec.ports[0].name: is required"),
        (
            {"ports": [{"name": "a", "number": 0}]},
            Server((Port("a"),)),
            "spec.ports[0].number: must be between 1 and 65535, not 0",
        ),
        ({"ports": [{"name": "A"}]}, Server((Port("A"),)), "spec.ports[0].name: must be lower case letters, not 'A'"),
        ({"ports": [{"name": "a" * 6}]}, Server((Port("a" * 6),)), "spec.ports[0].name: is longer than 5 characters"),
        ({"ports": [{"name": "a"}] * 2}, Server((Port("a"),) * 2), "spec.ports[1].name: 'a' is there twice"),
        ({"rightPorts": [{"name": "a"}, {}]}, Server(right_ports=(Port("a"),)), "spec.rightPorts[1].name: is required"),
        ({"onlyPort": {"name": "A"}}, Server(), "spec.onlyPort.name: must be lower case letters, not 'A'"),
        ({"from": ["x", "x"]}, Server(from_=frozenset("x")), "spec.from[1]: 'x' is there twice"),
        ({"form": []}, Server(), "spec.form: is not a field here; there are from, mode, onlyPort, places, ports, "),
        ({"public": True}, Server(is_public=True), "spec.mode: must be Safe where the server is public"),
        ({"mode": "Fast", "size": 1}, Server(mode="Fast", size="1"), "spec: has either size or the mode Fast"),
    ],
)
def test_a_wrong_value_is_one_problem_with_its_path_and_stops_nothing_else(
    values: dict[str, Any], found: Server, problem: str
) -> None:
    read, problems = _read(values)
    assert read == found
    assert len(problems) == 1 and problems[0].startswith(problem)


def test_what_is_compared_with_a_wrong_value_is_not_reported_beside_it() -> None:
    assert _read({"public": True, "mode": 5})[1] == ["spec.mode: must be a string, not 5"]
    assert _read({"mode": "Fast", "size": 1, "from": 1})[1] == [
        "spec.from: must be a list, not 1",
        "spec: has either size or the mode Fast",
    ]


def test_a_wrong_value_still_counts_as_written_where_others_ask_for_that() -> None:
    """Else a second problem would ask for what is there."""
    assert _read({"secret": 5})[0].secret == ""
    assert _read({"secret": "A 1"})[1] == ["spec.secret: must be lower case letters"]


def test_two_items_are_not_alike_because_their_keys_are_wrong() -> None:
    assert _read({"ports": [{}, {}]})[1] == ["spec.ports[0].name: is required", "spec.ports[1].name: is required"]
    problems = _read({"ports": [{"name": "a", "number": 0}, {"name": "a"}]})[1]
    assert problems == [
        "spec.ports[0].number: must be between 1 and 65535, not 0",
        "spec.ports[1].name: 'a' is there twice",
    ]


def test_a_list_that_is_too_long_is_one_problem_and_not_one_for_each_item() -> None:
    found, problems = _read({"ports": [{"name": "a"}, {"name": "b"}, *[{}] * 100_000]})
    assert found.ports == (Port("a"), Port("b"))
    assert problems == ["spec.ports: must have at most 2 items, not 100002"]


def test_a_value_of_any_size_is_named_in_a_line() -> None:
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    for value in (16**5000, deep, "x" * 10_000, float("nan")):
        (problem,) = _read({"size": value})[1]
        assert len(problem) < 300


def test_the_schema_follows_from_the_types_and_the_strings_below_the_fields() -> None:
    schema = object_schema(Server)
    assert "required" not in schema
    assert schema["x-kubernetes-validations"][0]["message"] == "size goes with ports"
    fields = schema["properties"]
    assert list(fields) == ["ports", "rightPorts", "onlyPort", "places", "secret", "mode", "public", "size", "from"]
    assert fields["mode"] == {
        "description": "How it runs. Default: the server decides.",
        "type": "string",
        "enum": ["Fast", "Safe"],
    }
    assert fields["public"] == {"description": "Whether others reach it. Default: false.", "type": "boolean"}
    assert fields["onlyPort"]["description"] == "A port."
    assert fields["from"]["x-kubernetes-list-type"] == "set"
    ports = fields["ports"]
    assert (ports["minItems"], ports["maxItems"], ports["x-kubernetes-list-map-keys"]) == (1, 2, ["name"])
    assert ports["items"] == {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"description": "Its name.", "type": "string", "maxLength": 5, "pattern": "^[a-z]+$"},
            "number": {
                "description": "Its number. Default: 9092.",
                "type": "integer",
                "format": "int32",
                "minimum": 1,
                "maximum": 65535,
            },
        },
    }


def test_a_field_that_nothing_describes_is_no_schema() -> None:
    @dataclass(frozen=True, slots=True)
    class Undescribed:
        """A mapping."""

        name: str = ""

    with pytest.raises(LookupError, match=r"Undescribed\.name has no description below it"):
        object_schema(Undescribed)


def _declared(node: type[Any]) -> Iterator[tuple[type[Any], Any]]:
    for field in shape_of(node).by_name.values():
        yield node, field
        inner: SchemaNode = field.node
        while isinstance(inner, ListNode):
            inner = inner.item
        if isinstance(inner, ObjectNode):
            yield from _declared(inner.type)


def test_a_description_that_names_a_default_names_the_one_that_is_declared() -> None:
    checked = 0
    for resource in CUSTOM_RESOURCES:
        for declared, field in _declared(resource.spec):
            text = description_of(declared, field)
            if isinstance(field.default, bool | int | str) and field.default not in ("", 0):
                shown = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
                assert text.partition(DEFAULT)[2].startswith(shown), (declared.__name__, field.name, text)
                checked += 1
    assert checked > 20
