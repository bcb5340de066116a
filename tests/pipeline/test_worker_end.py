"""What a Python process of Spark prints when it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from ottla_pipeline.worker_end import end_quietly_in_daemon
from tests.pipeline.fleets import until


def printed(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        raise error
    except Exception:
        sys.modules["__main__"].traceback.print_exc()  # as the daemon does
    return capsys.readouterr().err


def test_a_worker_prints_no_traceback_when_spark_has_closed_its_socket_and_prints_all_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "traceback", traceback, raising=False)
    end_quietly_in_daemon()
    assert "Broken" in printed(BrokenPipeError("Broken"), capsys), "this process is no worker of Spark's daemon"
    monkeypatch.setattr(main, "__spec__", SimpleNamespace(name="pyspark.daemon"), raising=False)
    for _ in range(2):
        end_quietly_in_daemon()
        assert printed(BrokenPipeError(), capsys) == printed(ConnectionResetError(), capsys) == ""
        assert "ValueError: other" in printed(ValueError("other"), capsys)
    assert main.traceback.format_exc is traceback.format_exc


ROOT = Path(__file__).parents[2]
TASK = """
import PACKAGE

def main(infile, outfile):
    while True:
        outfile.write(bytes(1 << 16))
"""


@pytest.mark.parametrize(("package", "is_quiet"), [("ottla_pipeline", True), ("ottla_broker", False)])
def test_a_task_that_spark_stops_reading_prints_nothing(tmp_path: Path, package: str, is_quiet: bool) -> None:
    """With the daemon that Spark starts, and this test in the place of Spark."""
    (tmp_path / "pyspark_task.py").write_text(TASK.replace("PACKAGE", package))
    environment = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *(str(ROOT / name) for name in ("broker", "pipeline"))]),
        "PYTHON_WORKER_FACTORY_SECRET": "secret", "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }  # fmt: skip
    daemon = subprocess.Popen(
        [sys.executable, "-m", "pyspark.daemon", "pyspark_task"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert daemon.stdout is not None
    port = int.from_bytes(daemon.stdout.read(4), "big")
    with socket.create_connection(("127.0.0.1", port)) as spark, spark.makefile("rb") as answers:
        process = int.from_bytes(answers.read(4), "big")
        spark.sendall((6).to_bytes(4, "big") + b"secret")
        assert answers.read(4 + 2)[4:] == b"ok"
        answers.read(100_000)
    until(lambda: not Path(f"/proc/{process}").exists(), "the task has ended")
    _, printed_lines = daemon.communicate()  # the end of its input ends the daemon
    assert (b"BrokenPipeError" in printed_lines or b"ConnectionResetError" in printed_lines) is not is_quiet
