"""Names of releases in values, beside Apache Kafka's validator."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from ottla.local.jars import find_java, kafka_class_path
from ottla_broker.config.releases import any_release, level, protocol_version

_ODD = ("", "3", "0", "0.", "03.9", "+3.9", "3.9.", "3.9..", "3..9", ".3.9", "3.9-IV", "3.9-iv0", "3.9-IV00", "newest")
_ODD += ("0.8", "0.10", "0.8.2.x", "0.8.2.", "0.10.2-IV0.4", "3.9-IV0.x", "1.0.0-IV0", "1.0.zzz", "\u0663.9", "-1.0")


@pytest.mark.parametrize("text", ["4.0", "5.0", "0.5", "0.10", "3.10", "3.9-IV1", "3.9.", "03.9", "newest", ""])
def test_what_is_no_release_of_3_9_is_no_message_format_version(text: str) -> None:
    assert any_release(text) is not None


@pytest.mark.parametrize("text", ["0.8.0", "0.10.2", "0.10.2.1", "0.11.0-IV2", "1.0", "2.8-IV0", "3.0.1", "4.0-IV0"])
def test_every_release_that_3_9_knows_is_a_message_format_version(text: str) -> None:
    assert any_release(text) is None


@pytest.mark.parametrize("text", ["3.9.", "03.9", "3..9", "3.9-IV00"])
def test_what_only_looks_like_a_release_is_not_spoken_between_brokers(text: str) -> None:
    assert level(text) is None
    assert protocol_version(text) is not None


@pytest.mark.java
def test_message_format_versions_are_taken_and_refused_as_by_apache_kafka() -> None:
    if shutil.which("javac") is None:
        reason = "no javac: run scripts/install-system.sh (Debian: openjdk-17-jdk-headless)"
        pytest.fail(reason) if os.environ.get("OTTLA_TEST_ALL") == "1" else pytest.skip(reason)
    releases = [f"0.{minor}.{patch}" for minor, patch in product(range(6, 13), range(4))]
    releases += [f"{major}.{minor}" for major, minor in product(range(1, 6), range(11))]
    texts = [name + suffix for name, suffix in product(releases, ("", ".1", *(f"-IV{n}" for n in range(6))))]
    texts += _ODD
    source = Path(__file__).with_name("MessageFormatVersions.java")
    ran = subprocess.run(
        [find_java(), "-Dfile.encoding=UTF-8", "-cp", kafka_class_path(), str(source), *texts],
        capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    theirs = dict(zip(texts, (line == "true" for line in ran.stdout.split()), strict=True))
    assert {text: any_release(text) is None for text in texts} == theirs
