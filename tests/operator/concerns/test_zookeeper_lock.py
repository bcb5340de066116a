"""A ZooKeeper server holds a lock on each of its volumes for as long as its process runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla_operator.concerns.ensemble.zookeeper_files import LOCK, MARKER, start_script

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, as zkServer.sh does")


@dataclass
class Pods:
    """Pods whose start scripts run on volumes that are folders; the server of each says that it runs, and waits."""

    root: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, pod: str, data: str = "data", log: str | None = "datalog") -> subprocess.Popen[str]:
        volumes = [self.root / name for name in (data, log) if name is not None]
        for volume in volumes:
            volume.mkdir(exist_ok=True)
        ended = self.root / f"{pod}.ended"
        script = start_script(str(volumes[0]), str(self.files), str(volumes[1]) if log else None, str(ended))
        environment = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "HOSTNAME": pod}
        environment |= {"OTTLA_SERVER_ID": "1", "OTTLA_START_EMPTY": "initialize"}
        process = subprocess.Popen(
            ["bash", "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.running.append(process)
        return process

    @property
    def files(self) -> Path:
        return self.root / "files"

    def why_refused(self, pod: str) -> str:
        return (self.root / f"{pod}.ended").read_text()


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    """The server of a pod is another program than the script, as the JVM is: it inherits the locks."""
    server = tmp_path / "bin" / "zkServer.sh"
    server.parent.mkdir()
    server.write_text("#!/bin/bash\necho runs\nexec sleep 600\n")
    server.chmod(0o755)
    found = Pods(tmp_path)
    found.files.mkdir()
    (found.files / "members").write_text("server.1=127.0.0.1:2888:3888:participant;0.0.0.0:2181\n")
    for name in ("logback.xml", "zoo.cfg"):
        (found.files / name).write_text("")
    yield found
    for process in found.running:
        process.kill()
        process.communicate()


def _runs(process: subprocess.Popen[str]) -> bool:
    """Waits until its server runs, or the script has ended."""
    assert process.stdout is not None
    return process.stdout.readline() == "runs\n"


@pytest.mark.parametrize("volume", ("data", "log"))
def test_a_second_pod_on_a_volume_refuses_to_start_and_says_who_has_it(pods: Pods, volume: str) -> None:
    assert _runs(pods.start("orders-zookeeper-1-0"))
    marker = (pods.root / "data" / MARKER).read_text()
    second = pods.start("orders-zookeeper-1-1", **({"log": "other"} if volume == "data" else {"data": "other"}))
    assert second.wait(60) == 1
    said = f"the {volume} volume of server 1 is in use by orders-zookeeper-1-0: one server runs on a volume\n"
    assert pods.why_refused("orders-zookeeper-1-1") == said
    assert (pods.root / "data" / MARKER).read_text() == marker, "nothing on the volume is changed by the second"


def test_a_server_without_a_log_volume_holds_the_only_one(pods: Pods) -> None:
    assert _runs(pods.start("orders-zookeeper-1-0", log=None))
    assert pods.start("orders-zookeeper-1-1", log=None).wait(60) == 1
    assert pods.why_refused("orders-zookeeper-1-1").startswith("the data volume of server 1 is in use by orders-")


@pytest.mark.parametrize("end", (signal.SIGTERM, signal.SIGKILL))
def test_the_lock_ends_with_the_process_of_the_server(pods: Pods, end: signal.Signals) -> None:
    first = pods.start("orders-zookeeper-1-0")
    assert _runs(first)
    first.send_signal(end)
    first.wait(60)
    assert _runs(pods.start("orders-zookeeper-1-0")), "the container starts again"
    assert (pods.root / "data" / LOCK).read_text() == "orders-zookeeper-1-0\n"


def test_an_image_without_flock_is_refused_with_the_reason(pods: Pods) -> None:
    for program in ("bash", "cat", "mkdir"):
        (pods.root / "bin" / program).symlink_to(str(shutil.which(program)))
    os_path = os.environ["PATH"]
    try:
        os.environ["PATH"] = str(pods.root / "bin")
        process = pods.start("orders-zookeeper-1-0")
    finally:
        os.environ["PATH"] = os_path
    assert process.wait(60) == 1
    assert "the image has no flock" in pods.why_refused("orders-zookeeper-1-0")
