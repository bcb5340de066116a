"""Java properties syntax."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.local.jars import find_java
from ottla_broker.config import BrokerConfig
from ottla_broker.config.properties import decode_properties_file, keys_in_utf_8, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a   =   1 ", {"a": "1 "}),
        ("  a\t:\t1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("# c\n! d\n\n   \na=1", {"a": "1"}),
        ("a=1\\\n   2\\\n3\nb=4", {"a": "123", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=x\\\n# not a comment", {"a": "x# not a comment"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b c", {"a b": "c"}),
        ("a=\\u00e9\\t\\n\\q", {"a": "é\t\nq"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_reads_what_java_reads(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_broken_unicode_escape_is_named() -> None:
    with pytest.raises(ValueError, match=r"broken escape \\u00g"):
        parse_properties("a=\\u00g1")


def test_a_file_is_read_as_iso_8859_1() -> None:
    text = decode_properties_file("# für\nbroker.rack=zöne\n".encode("iso-8859-1"))
    assert parse_properties(text) == {"broker.rack": "zöne"}


def test_a_value_in_utf_8_is_read_as_java_reads_it_and_told() -> None:
    values = parse_properties(decode_properties_file("# für\nbroker.rack=zöne\nlog.dirs=/a\n".encode()))
    assert values == {"broker.rack": "z\u00c3\u00b6ne", "log.dirs": "/a"}
    assert keys_in_utf_8(values) == ("broker.rack",)
    assert keys_in_utf_8(parse_properties("a=\\u00f6\nb=\\u20ac\nc=z\u00f6ne")) == ()


def test_only_the_blanks_of_java_are_taken_off_a_value() -> None:
    text = decode_properties_file("broker.id=1\nbroker.rack= à\nlog.dirs=/à , /b\nzookeeper.connect=z:1\n".encode())
    config = BrokerConfig.from_properties(text)
    assert config.broker_rack == "\u00c3\u00a0"
    assert config.log_dirs == ("/\u00c3\u00a0", "/b")


@pytest.mark.java
def test_any_bytes_are_read_as_java_util_properties_reads_them(tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        reason = "no javac: run scripts/install-system.sh (Debian: openjdk-17-jdk-headless)"
        pytest.fail(reason) if os.environ.get("OTTLA_TEST_ALL") == "1" else pytest.skip(reason)
    draw = random.Random(18)
    pieces = (b"a", b"b", b"u", b"0", b"\\", b"\\u00e9", b"\\ud83d\\ude00", b"\\ud83d", b"=", b":", b"#", b"!", b" ")
    pieces += (
        b"\t",
        b"\f",
        b"\n",
        b"\r",
        b"\r\n",
        b"\\\n",
        b"\\\r\n  ",
        b"\xfc",
        "ü".encode(),
        b"\x85",
        b"\xa0",
        b"\0",
    )
    files = [b"".join(draw.choices(pieces, k=draw.randint(0, 14))) for _ in range(3000)]
    paths = [tmp_path / f"{number}.properties" for number in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    source = Path(__file__).with_name("JavaProperties.java")
    command = [find_java(), str(source), *(path.name for path in paths)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    theirs = dict(zip(files, (_without_nothing(line) for line in ran.stdout.split("\n")), strict=False))
    assert {data: line for data, line in theirs.items() if _as_printed(data) != line} == {}


def _as_printed(data: bytes) -> str:
    try:
        values = parse_properties(decode_properties_file(data))
    except ValueError:
        return "refused"
    return _without_nothing(" ".join(sorted(f"{_hex(name)}={_hex(value)}" for name, value in values.items())))


def _without_nothing(line: str) -> str:
    """A key without a name is nobody's, and Java makes one of a backslash that ends a file, with some ends of lines."""
    return " ".join(entry for entry in line.split() if not entry.startswith("="))


def _hex(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()
