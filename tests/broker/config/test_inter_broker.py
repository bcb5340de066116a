"""The table of request versions between brokers, beside Apache Kafka's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.local.jars import find_java, kafka_class_path
from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.config.releases import level


def test_a_release_that_is_not_spoken_has_no_row() -> None:
    with pytest.raises(ValueError, match=r"2\.7"):
        inter_broker_versions("2.7")


@pytest.mark.java
def test_every_level_of_every_release_has_the_versions_that_apache_kafka_gives_it() -> None:
    if shutil.which("javac") is None:
        reason = "no javac: run scripts/install-system.sh (Debian: openjdk-17-jdk-headless)"
        pytest.fail(reason) if os.environ.get("OTTLA_TEST_ALL") == "1" else pytest.skip(reason)
    source = Path(__file__).with_name("InterBrokerVersions.java")
    ran = subprocess.run(
        [find_java(), "-cp", kafka_class_path(), str(source)], capture_output=True, text=True, timeout=120, check=True
    )
    seen, last = 0, {}
    for line in ran.stdout.splitlines():
        name, _, rest = line.partition(": ")
        *numbers, release = rest.split()
        if level(name) is None:
            major, minor = (int(part) for part in release.split(".")[:2])
            assert (major, minor) < (2, 8) or (major, minor) >= (4, 0) or name == "2.8-IV0", name
            continue
        found = inter_broker_versions(name)
        assert [
            found.fetch,
            found.list_offsets,
            found.offset_for_leader_epoch,
            found.write_txn_markers,
            int(found.has_leader_recovery),
        ] == [int(number) for number in numbers], name
        last[release] = found
        seen += 1
    assert seen == 23
    for release, found in last.items():
        assert inter_broker_versions(release) == found, f"{release} means its last level"
