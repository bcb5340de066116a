"""The notation of the definitions: what it accepts, and what it refuses."""

from __future__ import annotations

import re

import pytest

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generator import read_definitions
from ottla_broker.protocol.generator.facts import snake_case
from ottla_broker.protocol.notation import Definition, Field, NotationError, Versions, parse

TEXT = """\
# What it does.
#
# Errors, in the order in which they are checked

api 7 Example

request 0-3 flexible 2+ deprecated 0
  Name      string    0+   null 1+  = null  ignorable  # a remark
  Limits    []Limit   1+
    Kind    int8      1-2  = -1
    Value   Amount    2+   tag 4
  Values    []Amount  3

struct Amount
  Bytes     int64     0+   key

response 0-3 flexible 2+
  ErrorCode int16     0+
"""


def test_a_definition_has_api_versions_and_fields() -> None:
    definition = parse("07_example.api", TEXT)
    assert (definition.api_key, definition.name, definition.module) == (7, "Example", "example")
    assert definition.prose == "What it does.\n\nErrors, in the order in which they are checked"
    request = definition.message("request")
    assert (request.name, request.last_version) == ("ExampleRequest", 3)
    assert [request.is_flexible(version) for version in range(4)] == [False, False, True, True]
    name, limits, values = request.fields
    assert name == Field(
        "Name", "string", False, Versions(0, None), Versions(1, None), None, "null", True, False, False, "a remark"
    )
    assert limits.is_array and [one.name for one in limits.fields] == ["Kind", "Value"]
    assert limits.fields[1].tag == 4
    assert values.fields == limits.fields[1].fields and values.fields[0].is_key
    assert list(request.structs()) == ["Limit", "Amount"]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("request 0-3", "request 0+", "07_example.api:7: .*closed"),
        ("request 0-3", "question 0-3", "7: unknown declaration 'question'"),
        ("1-2  = -1", "2-1", "10: .*runs backwards"),
        ("1-2  = -1", "x", "10: 'x' is not a version range"),
        ("1-2  = -1", "1+  tag", "10: the line ends too early"),
        ("1-2  = -1", "1+  soon", "10: unknown word 'soon'"),
        ("    Kind", "      Kind", "10: indented too deep"),
        ("    Kind", "   Kind", "10: indent by two spaces"),
        ("[]Limit ", "[]int32", "Limits is no struct"),
        ("struct Amount", "struct Sum", "struct Amount has no fields"),
        ("request 0-3 flexible 2+", "request 0-3", "Value is tagged, but no version is flexible"),
        ("api 7 Example", "  api 7 Example", "5: a field outside a message"),
    ],
)
def test_a_broken_definition_is_refused_with_file_line_and_rule(old: str, new: str, complaint: str) -> None:
    with pytest.raises(NotationError, match=complaint):
        parse("07_example.api", TEXT.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("TransactionalId", "transactional_id"),
        ("Isr", "isr"),
        ("isKRaftController", "is_kraft_controller"),
        ("KRaftControllerId", "kraft_controller_id"),
        ("V0Host", "v0_host"),
        ("HostISRNodes", "host_isr_nodes"),
        ("From", "from_"),
    ],
)
def test_field_names_become_attributes(name: str, attribute: str) -> None:
    assert snake_case(name) == attribute


@pytest.mark.parametrize(
    "definition", [pytest.param(one, id=one.file) for one in read_definitions() if one.api_key is not None]
)
def test_every_api_describes_behaviour_errors_and_the_history_of_each_version(definition: Definition) -> None:
    prose, messages = definition.prose, definition.messages
    sections = [
        line for line in prose.splitlines() if line in ("Behaviour", "Errors, in the order of checking", "Versions")
    ]
    assert sections == ["Behaviour", "Errors, in the order of checking", "Versions"]
    history = prose.split("\nVersions\n")[1]
    told = [line.split()[0] for line in history.splitlines() if line[:1].isdigit()]
    assert told == [str(version) for version in range(messages[0].last_version + 1)]


@pytest.mark.parametrize(
    "definition", [pytest.param(one, id=one.file) for one in read_definitions() if one.api_key is not None]
)
def test_the_errors_that_a_definition_names_exist(definition: Definition) -> None:
    errors = definition.prose.split("Errors, in the order of checking\n")[1].split("\n\n")[0]
    named = re.findall(r"^- ([A-Z_]+) \((-?\d+)\): ", errors, re.MULTILINE)
    assert len(named) == sum(line.startswith("- ") for line in errors.splitlines())
    assert [(name, ErrorCode[name]) for name, _ in named] == [(name, int(number)) for name, number in named]
