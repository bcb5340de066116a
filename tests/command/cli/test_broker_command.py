"""`ottla broker run` as a person meets it: what is wrong is one line that names the key, and never a traceback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import missing

COMMAND = [sys.executable, "-m", "ottla.cli.main", "broker", "run"]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections as long as the test runs."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.fixture
def properties(tmp_path: Path, closed_port: int) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        f"broker.id=4\nlog.dirs={tmp_path / 'd0'}\nlisteners=PLAINTEXT://127.0.0.1:0\n"
        f"zookeeper.connect=127.0.0.1:{closed_port}\nzookeeper.connection.timeout.ms=300\n"
    )
    return path


def refusal(path: Path, *overrides: str) -> list[str]:
    """The lines of a broker that does not start."""
    arguments = [argument for override in overrides for argument in ("--override", override)]
    result = subprocess.run([*COMMAND, str(path), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    return result.stderr.splitlines()


def test_the_log_level_is_kafkas_and_comes_from_the_environment_too(
    properties: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties.write_text(f"{properties.read_text()}no.such.key=1\n")
    assert any(" WARNING " in line for line in refusal(properties))
    monkeypatch.setenv("OTTLA_LOG_LEVEL", "FATAL")
    assert not any(" WARNING " in line for line in refusal(properties))
    monkeypatch.setenv("OTTLA_LOG_LEVEL", "loud")
    levels = "FATAL, ERROR, WARN, INFO, DEBUG, TRACE"
    assert refusal(properties) == [f"--log-level (OTTLA_LOG_LEVEL): must be one of {levels}, not 'loud'"]


def test_a_file_that_is_not_text_is_refused_for_its_first_bad_value(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"broker.id=\xff\n")
    assert refusal(path) == [
        f"{path}: invalid value 'ÿ' for configuration broker.id: a whole number between -2147483648 and 2147483647"
    ]


def test_a_comment_in_iso_8859_1_keeps_no_broker_from_starting(properties: Path, closed_port: int) -> None:
    properties.write_bytes("# für später\n".encode("iso-8859-1") + properties.read_bytes())
    lines = refusal(properties)
    assert f"127.0.0.1:{closed_port}" in lines[-1]
    assert not any("UTF-8" in line for line in lines)


def test_a_value_in_utf_8_is_told(properties: Path) -> None:
    properties.write_bytes(properties.read_bytes() + "broker.rack=zöne\n".encode())
    assert any("ISO 8859-1" in line and line.endswith("broker.rack") for line in refusal(properties))


def test_a_bad_value_is_named_with_where_it_is_written(properties: Path) -> None:
    assert refusal(properties, "num.partitions=many") == [
        "--override num.partitions=many: invalid value 'many': a whole number, at least 1"
    ]
    assert refusal(properties, "foo") == ["--override foo: write KEY=VALUE"]
    properties.write_text(f"{properties.read_text()}num.partitions=many\n")
    assert refusal(properties) == [
        f"{properties}: invalid value 'many' for configuration num.partitions: a whole number, at least 1"
    ]


def test_an_unknown_key_is_named_with_the_nearest_one_and_where_it_is_written(properties: Path) -> None:
    properties.write_text(f"{properties.read_text()}min.insync.replica=2\n")
    lines = refusal(properties, "lissteners=PLAINTEXT://127.0.0.1:0")
    assert "--override lissteners: an unknown key is ignored; is listeners meant?" in lines[0]
    assert lines[1].endswith(
        f"{properties}: unknown keys are ignored: min.insync.replica (is min.insync.replicas meant?)"
    )


def test_a_zookeeper_that_is_not_there_is_named(properties: Path, closed_port: int) -> None:
    lines = refusal(properties, "colour.of.the.broker=red")
    assert "[broker 4]" in lines[0]
    assert "--override colour.of.the.broker: an unknown key is ignored" in lines[0]
    assert (
        f"CRITICAL [broker 4] ottla: the broker refuses to start: no ZooKeeper server of 127.0.0.1:{closed_port}"
        in (lines[-1])
    )


def test_a_zookeeper_whose_name_has_no_address_is_named(properties: Path) -> None:
    lines = refusal(properties, "zookeeper.connect=nonsense.invalid:2181")
    assert lines[-1].endswith(
        "no ZooKeeper server of nonsense.invalid:2181 answered in 0.3 s (no such host: nonsense.invalid)"
    )


def test_an_http_port_that_is_taken_is_named(properties: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        lines = refusal(properties, f"ottla.http.listener=127.0.0.1:{port}")
    assert lines[-1].endswith(f"ottla.http.listener: cannot listen on 127.0.0.1:{port}: Address already in use")


def test_a_log_directory_that_cannot_be_made_is_named(properties: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lines = refusal(properties, f"log.dirs={tmp_path / 'file'}")
    assert f"log.dirs: {tmp_path / 'file'}: File exists" in lines[-1]


def test_sigterm_ends_a_broker_that_waits_for_zookeeper(properties: Path) -> None:
    command = [*COMMAND, str(properties), "--override", "zookeeper.connection.timeout.ms=60000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        first = broker.stderr.readline()  # the client's first failed attempt: the broker runs
        assert "ottla.zookeeper" in first
        broker.send_signal(signal.SIGTERM)
        rest = broker.stderr.read()
        assert broker.wait(60) == 0
    assert rest.splitlines()[-1].endswith("[broker 4] ottla: stopped")


def test_a_broker_that_is_not_ready_says_over_http_what_it_waits_for(properties: Path) -> None:
    """Kubernetes knows why a container has ended, and not why one that runs does not become ready."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    options = ["zookeeper.connection.timeout.ms=60000", f"ottla.http.listener=127.0.0.1:{port}"]
    command = [*COMMAND, str(properties), *(part for option in options for part in ("--override", option))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        assert "ottla.zookeeper" in broker.stderr.readline()  # the client's first failed attempt: the port is open
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=30) as answer:
            status = json.load(answer)
        with pytest.raises(urllib.error.HTTPError) as unready:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30)
        body = unready.value.read().decode()
        broker.send_signal(signal.SIGTERM)
        broker.stderr.read()
        assert broker.wait(60) == 0
    assert status["state"] == "starting" and status["session"]["state"] == "connecting"
    assert " WARNING [broker 4] ottla" in status["last_line"] and "\n" not in status["last_line"]
    assert unready.value.code == 503 and body.startswith("not ready: starting\n")
    assert " WARNING [broker 4] ottla" in body.splitlines()[1]


@pytest.fixture
def alone() -> list[str]:
    """Runs a command as process 1, as in a container."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    there = shutil.which(command[0]) is not None
    if not there or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        missing("there are no user namespaces: run it as root")
    return command


def test_sigterm_ends_the_first_process_of_a_container_also_before_it_has_imported_anything(
    tmp_path: Path, alone: list[str]
) -> None:
    """A pod that is deleted in the moment when its container starts, as one that has waited for its image."""
    path = tmp_path / "imports"
    os.mkfifo(path)
    Path(tmp_path, "typer.py").write_text(f"open({str(path)!r}).read()\nraise SystemExit('the signal is lost')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen([*alone, *COMMAND], env=environment, stderr=subprocess.DEVNULL) as outside:
        try:
            with path.open("w"):  # opens when typer is imported
                process = int(Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text())
                os.kill(process, signal.SIGTERM)
            assert outside.wait(60) == 128 + signal.SIGTERM
        finally:
            outside.kill()


def test_sigterm_ends_the_first_process_of_a_container_also_before_it_has_read_its_file(
    tmp_path: Path, alone: list[str]
) -> None:
    """The kernel drops a signal that process 1 does not handle: the broker would start and run on until SIGKILL."""
    path = tmp_path / "server.properties"
    os.mkfifo(path)
    with subprocess.Popen([*alone, *COMMAND, str(path)], stderr=subprocess.PIPE, text=True) as outside:
        try:
            with path.open("w") as file:  # opens when the broker reads it, which ends when this is closed
                file.write(f"broker.id=4\nlog.dirs={tmp_path}\nzookeeper.connect=127.0.0.1:1\n")
                file.flush()  # the broker may be gone right after the signal
                broker = int(Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text())
                os.kill(broker, signal.SIGTERM)
            assert outside.stderr is not None
            assert outside.stderr.readline() == ""
            assert outside.wait(60) == 128 + signal.SIGTERM
        finally:
            outside.kill()
