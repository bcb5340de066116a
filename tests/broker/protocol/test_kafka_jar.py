"""Our definitions compared with the official jars: the message descriptions of 3.9.1, and its classes at work; what is
above 3.9.1 with the descriptions of 4.3.1."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.notation import Field, MessageDefinition, Versions
from tests.broker.protocol.messages import DEFINITIONS, FEW_EXAMPLES, Case, drawn, messages
from tests.requirements import missing

pytestmark = pytest.mark.java

JARS = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla") / "jars"
CLIENTS = JARS / "kafka-clients-3.9.1.jar"
CLIENTS_4 = JARS.parent / "kafka-clients-4-jars" / "kafka-clients-4.3.1.jar"

_CONSUMER_GROUP_RECORDS = (
    "ConsumerGroupMetadata",
    "ConsumerGroupPartitionMetadata",
    "ConsumerGroupMemberMetadata",
    "ConsumerGroupTargetAssignmentMetadata",
    "ConsumerGroupTargetAssignmentMember",
    "ConsumerGroupCurrentMemberAssignment",
)
_GROUP_RECORDS = (
    *("OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"),
    *(f"{name}{part}" for name in _CONSUMER_GROUP_RECORDS for part in ("Key", "Value")),
)
RECORDS = {
    **dict.fromkeys(_GROUP_RECORDS, "group"),
    **dict.fromkeys(("TransactionLogKey", "TransactionLogValue"), "transaction"),
}
"""Records of a coordinator: described in its own jar, those of groups with names that begin with a small letter."""

RECORDS_SINCE_4_0 = ("ConsumerGroupRegularExpressionKey", "ConsumerGroupRegularExpressionValue")
COORDINATOR_4 = CLIENTS_4.parent / "kafka-group-coordinator-4.1.1.jar"

ERRORS_SINCE_4_0 = (ErrorCode.INVALID_REGULAR_EXPRESSION,)

MESSAGES = [
    message for definition in DEFINITIONS for message in definition.messages if message.name not in RECORDS_SINCE_4_0
]

HIGHEST_IN_3_9 = {
    "Produce": 11,
    "Fetch": 17,
    "ListOffsets": 9,
    "Metadata": 12,
    "OffsetCommit": 9,
    "OffsetFetch": 9,
    "DescribeGroups": 5,
    "DescribeLogDirs": 4,
    "AlterPartitionReassignments": 0,
    "UpdateFeatures": 1,
    "InitProducerId": 5,
    "WriteTxnMarkers": 1,
    "EndTxn": 4,
    "ListTransactions": 1,
    "TxnOffsetCommit": 4,
    "DescribeCluster": 1,
    "ConsumerGroupHeartbeat": 0,
    "ConsumerGroupDescribe": 0,
}
"""The highest version that 3.9.1 describes, of each API that has more here."""

ADDED_TO_RECORDS = {
    ("TransactionLogValue", f"record:{name}")
    for name in ("PreviousProducerId", "NextProducerId", "ClientTransactionVersion", "NextProducerEpoch")
}
"""Tagged fields that Apache Kafka 4 has added to a version that 3.9.1 describes; it skips them."""


@pytest.fixture(scope="module")
def jar() -> Path:
    if not CLIENTS.exists():
        missing("kafka-clients-3.9.1.jar is missing: run scripts/fetch-jars.sh")
    return CLIENTS


def _described(jar: Path, name: str) -> dict[str, Any]:
    described_in = JARS / f"kafka-{RECORDS[name]}-coordinator-3.9.1.jar" if name in RECORDS else jar
    text = zipfile.ZipFile(described_in).read(f"common/message/{name}.json").decode()
    text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"([,{\[}\]])\s*//.*$", r"\1", text, flags=re.MULTILINE)
    described: dict[str, Any] = json.loads(text)
    return described


def _range(text: str | None) -> str | None:
    return None if text in (None, "none") else str(Versions.parse(text))


def _default(value: Any, type_: str) -> str | None:
    """A default in one spelling; the ones that the notation leaves out as None."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if type_.startswith(("int", "uint")) and value is not None and text != "null":
        text = str(int(text, 0))
    return None if text in ("None", "", '""', "0", "false") else text


def _capitalised(name: str, path: str) -> str:
    """The name as our definitions of records have it; in other messages small letters are official."""
    return name[0].upper() + name[1:] if path.startswith("record:") else name


def _theirs(fields: list[dict[str, Any]], shared: dict[str, Any], path: str) -> Iterator[tuple[object, ...]]:
    for field in fields:
        yield (
            f"{path}{_capitalised(field['name'], path)}",
            field["type"],
            _range(field["versions"]),
            _range(field.get("nullableVersions")),
            field.get("tag"),
            _range(field.get("taggedVersions")),
            _default("null" if field.get("default", "") is None else field.get("default"), field["type"]),
            str(field.get("ignorable", False)).lower() == "true",
            str(field.get("mapKey", False)).lower() == "true",
            field.get("flexibleVersions"),
        )
        members = field.get("fields") or shared.get(field["type"].removeprefix("[]"), [])
        yield from _theirs(members, shared, f"{path}{_capitalised(field['name'], path)}.")


def _ours(fields: tuple[Field, ...], path: str) -> Iterator[tuple[object, ...]]:
    for field in fields:
        yield (
            f"{path}{field.name}",
            ("[]" if field.is_array else "") + field.type,
            str(field.versions),
            str(field.nullable) if field.nullable else None,
            field.tag,
            str(field.versions) if field.tag is not None else None,
            _default(field.default, field.type),
            field.ignorable,
            field.is_key,
            "none" if field.never_flexible else None,
        )
        yield from _ours(field.fields, f"{path}{field.name}.")


@pytest.mark.parametrize("message", [pytest.param(message, id=message.name) for message in MESSAGES])
def test_the_definition_has_the_fields_of_the_official_one(jar: Path, message: MessageDefinition) -> None:
    described = _described(jar, message.name)
    shared = {struct["name"]: struct["fields"] for struct in described.get("commonStructs", [])}
    root = "record:" if message.name in RECORDS else ""
    if _is_above_3_9(message):
        valid = Versions.parse(described["validVersions"])
        assert valid.last == HIGHEST_IN_3_9[_api(message)]
        ours, theirs = _ours(message.fields, root), _theirs(described["fields"], shared, root)
        # Without `ignorable`: a later version that leaves a field out makes it that.
        assert _within(valid, ours, without=7) == _within(valid, theirs, without=7)
        return
    ours = [field for field in _ours(message.fields, root) if (message.name, field[0]) not in ADDED_TO_RECORDS]
    assert ours == list(_theirs(described["fields"], shared, root))
    assert str(message.versions) == _range(described["validVersions"])
    assert (str(message.flexible) if message.flexible else None) == _range(described.get("flexibleVersions"))
    assert (str(message.deprecated) if message.deprecated else None) == _range(described.get("deprecatedVersions"))


@pytest.mark.parametrize("name", RECORDS_SINCE_4_0)
def test_the_record_of_4_0_has_the_fields_of_the_official_one(name: str) -> None:
    """The version in front of a key is its `apiKey` there."""
    if not COORDINATOR_4.exists():
        missing(f"{COORDINATOR_4.name} is missing: run scripts/fetch-jars.sh")
    described = _described(COORDINATOR_4, name)
    message = next(each for definition in DEFINITIONS for each in definition.messages if each.name == name)
    assert [each[:2] for each in _ours(message.fields, "")] == [
        each[:2] for each in _theirs(described["fields"], {}, "")
    ]
    assert message.versions.first == (described["apiKey"] if name.endswith("Key") else 0)
    assert (str(message.flexible) if message.flexible else None) == _range(described.get("flexibleVersions"))


def _api(message: MessageDefinition) -> str:
    return message.name.removesuffix("Request").removesuffix("Response")


def _is_above_3_9(message: MessageDefinition) -> bool:
    return message.kind in ("request", "response") and _api(message) in HIGHEST_IN_3_9


@pytest.mark.parametrize(
    "message", [pytest.param(message, id=message.name) for message in MESSAGES if _is_above_3_9(message)]
)
def test_the_definition_of_what_is_above_3_9_has_the_fields_of_the_official_one(message: MessageDefinition) -> None:
    """Compared are the versions that both have: 4.3.1 has dropped the oldest ones."""
    if not CLIENTS_4.exists():
        missing("kafka-clients-4.3.1.jar is missing: run scripts/fetch-jars.sh")
    described = _described(CLIENTS_4, message.name)
    shared = {struct["name"]: struct["fields"] for struct in described.get("commonStructs", [])}
    valid = Versions.parse(described["validVersions"])
    assert valid.last is not None and message.versions.last is not None
    assert HIGHEST_IN_3_9[_api(message)] < message.versions.last <= valid.last
    compared = Versions(max(valid.first, message.versions.first), message.versions.last)
    assert _within(compared, _ours(message.fields, "")) == _within(compared, _theirs(described["fields"], shared, ""))
    assert message.flexible is not None
    assert _bounded(str(message.flexible), compared) == _bounded(described["flexibleVersions"], compared)


def _within(
    versions: Versions, fields: Iterator[tuple[object, ...]], *, without: int | None = None
) -> list[tuple[object, ...]]:
    """The fields that exist in these versions, each with the versions in which it does."""
    return [
        tuple(
            _bounded(value, versions) if index in (2, 3, 5) else value
            for index, value in enumerate(field)
            if index != without
        )
        for field in fields
        if _bounded(field[2], versions) is not None
    ]


def _bounded(text: object, versions: Versions) -> str | None:
    if text is None:
        return None
    found = Versions.parse(str(text))
    assert versions.last is not None
    first = max(found.first, versions.first)
    last = versions.last if found.last is None else min(found.last, versions.last)
    return f"{first}-{last}" if first <= last else None


@pytest.mark.parametrize(
    "definition", [pytest.param(one, id=one.file) for one in DEFINITIONS if one.api_key is not None]
)
def test_the_api_key_is_the_official_one(jar: Path, definition: Any) -> None:
    assert _described(jar, f"{definition.name}Request")["apiKey"] == definition.api_key


@pytest.fixture(scope="module")
def errors(java: Any) -> dict[int, tuple[str, bool]]:
    """Java's error codes: (name, whether clients retry)."""
    rows = [row.split(" ") for row in java("errors").split(",")]
    return {int(code): (name, retriable == "true") for code, name, retriable in rows}


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_java_has_the_error_code_with_the_same_name(errors: dict[int, tuple[str, bool]], code: ErrorCode) -> None:
    if code in ERRORS_SINCE_4_0:
        assert int(code) not in errors
    else:
        assert errors[int(code)] == (code.name, code.retriable)


@pytest.fixture(scope="module")
def java(jar: Path) -> Any:
    """A running Reencode program: a function from a request line to its response."""
    yield from _reencode(jar)


@pytest.fixture(scope="module")
def java_4() -> Any:
    """The same with the classes of 4.3.1; None without its jar."""
    if CLIENTS_4.exists():
        yield from _reencode(CLIENTS_4)
    else:
        yield None


def _reencode(jar: Path) -> Iterator[Any]:
    if shutil.which("javac") is None:
        reason = "no javac: run scripts/install-system.sh (Debian: openjdk-17-jdk-headless)"
        missing(reason)
    source = Path(__file__).with_name("Reencode.java")
    process = subprocess.Popen(
        ["java", "-cp", f"{jar.parent}/*", str(source)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdin is not None and process.stdout is not None
    requests, answers = process.stdin, process.stdout

    def ask(line: str) -> str:
        requests.write(line + "\n")
        requests.flush()
        return answers.readline().strip()

    yield ask
    requests.close()
    process.wait(timeout=60)
    answers.close()


@pytest.mark.parametrize("versions", messages())
@FEW_EXAMPLES
@given(data=st.data())
def test_java_reads_and_writes_the_same_bytes(
    java: Any, java_4: Any, versions: list[Case], data: st.DataObject
) -> None:
    for case, value in drawn(data, versions):
        if case.message.name in RECORDS_SINCE_4_0:
            continue  # no class of 3.9.1, and the key has another version in 4.x
        wire = case.write(value).hex()
        is_above = _is_above_3_9(case.message) and case.version > HIGHEST_IN_3_9[_api(case.message)]
        reencode = java_4 if is_above else java
        if reencode is None:
            continue
        assert reencode(f"{_java_type(case)} {case.version} {wire}") == wire


def _java_type(case: Case) -> str:
    """How Reencode names the message."""
    name = case.message.name
    if name in RECORDS:
        return f"data org.apache.kafka.coordinator.{RECORDS[name]}.generated.{name}"
    if case.message.kind == "data":
        return f"data org.apache.kafka.common.message.{name}{'Data' if name.endswith('Header') else ''}"
    return f"{case.definition.api_key} {case.message.kind}"
