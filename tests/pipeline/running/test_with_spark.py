"""`ottla pipeline` as a user runs it: real Spark, real brokers, a process that gets signals."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bench.java import jars
from ottla.local.ports import free_port
from ottla.testing import RunningCluster, cluster
from ottla_documents.kafka_pipeline import FAILED_FOR_GOOD
from ottla_pipeline.running.run_folder import PLAN_LOG
from ottla_pipeline.sink.marker import group_of
from tests.pipeline.sink.test_delivery import read_all, topic

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.long]

FLIGHTS = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: late-flights}
spec:
  bootstrapServers: BOOTSTRAP
  source:
    files: {path: in, format: json, schema: "carrier string, delay double", maxFilesPerTrigger: 1}
  steps:
  - name: late
    python: flight_steps:late
  - name: records
    sql: >-
      SELECT carrier AS key, CAST(delay AS string) AS value,
      IF(delay > 1000, 'no flight is so late', NULL) AS _error FROM late
  sink:
    topic: {name: late}
  trigger: {interval: 100ms}
  checkpoint: {path: checkpoint}
  deadLetters: {topic: dead}
"""
STEPS = "def late(rows):\n    return rows.where('delay > 15')\n"


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, config={"auto.create.topics.enable": "false"}) as found:
        yield found


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla.cli.main", "pipeline", *arguments, "-f", str(folder / "p.yaml")]


def ottla(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(folder, *arguments), cwd=folder, capture_output=True, text=True)


def rows(folder: Path, name: str, lines: list[Any]) -> None:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (folder / f"{name}.new").write_text(text)
    os.replace(folder / f"{name}.new", folder / "in" / name)


def processes_of(session: int) -> list[Path]:
    """The folders in /proc of the processes that run in a session."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                state, _, _, of = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(of) == session and state != "Z":
                    found.append(folder)
    return found


def commands_and_environments(session: int) -> Iterator[str]:
    """The command lines and environments of the processes that run in a session."""
    for folder in processes_of(session):
        with contextlib.suppress(OSError):  # it has ended
            yield (folder / "cmdline").read_text() + (folder / "environ").read_text()


def write_document(folder: Path, text: str, fleet: RunningCluster) -> None:
    (folder / "in").mkdir()
    (folder / "flight_steps.py").write_text(STEPS)
    (folder / "p.yaml").write_text(text.replace("BOOTSTRAP", fleet.bootstrap))


ODD = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: odd}
spec:
  source: {files: {path: in, format: text}}
  sink: {parquet: {path: p.yaml}}
  checkpoint: {path: checkpoint}
"""


@pytest.mark.parametrize(
    ("old", "new", "arguments", "message"),
    [
        ("", "", (), "odd: spec.sink: Parent path is not a directory: file:"),
        (
            "path: in",
            "path: a.txt",
            (),
            "odd: spec.source.files.path: a.txt is a file; files that appear in a folder",
        ),
        ("", "", ("--master", "local[x]"), "Spark does not start with --master local[x]: Could not parse Master URL"),
    ],
)
def test_what_only_java_finds_wrong_is_one_line_that_names_the_field_or_the_option(
    tmp_path: Path, old: str, new: str, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a.txt").touch()
    (tmp_path / "p.yaml").write_text(ODD.replace(old, new))
    found = ottla(tmp_path, "run", *arguments)
    assert found.returncode == FAILED_FOR_GOOD and message in found.stdout + found.stderr
    assert "Traceback" not in found.stderr
    status = json.loads(ottla(tmp_path, "status", "-o", "json").stdout)
    assert status["phase"] == "Failed" and status["lastError"] in found.stdout + found.stderr


def test_a_document_runs_until_sigterm_goes_on_later_and_sends_what_it_cannot_read_to_the_dead_letters(
    fleet: RunningCluster, tmp_path: Path
) -> None:
    for name in ("late", "dead"):
        topic(fleet, name)
    write_document(tmp_path, FLIGHTS, fleet)
    rows(tmp_path, "0.json", [{"carrier": "UA", "delay": 30}, {"carrier": "UA", "delay": 5}, "{nonsense", ""])
    end = tmp_path / "end.json"
    serving = command(tmp_path, "run", "--http", f"127.0.0.1:{(port := free_port())}", "--end-status", str(end))
    process = subprocess.Popen(
        serving, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    lines = iter(process.stdout)
    assert next(line for line in lines if "batch 0" in line).startswith("late-flights: batch 0, ")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status") as answer:
        said = json.loads(answer.read())
    assert (said["phase"], said["pipeline"]) == ("Running", "late-flights")
    assert said["queries"]["late-flights"]["totalInputRows"] >= 4
    refused = ottla(tmp_path, "reset", "--yes")
    assert refused.returncode == 1 and "is running" in refused.stderr
    workers = [text for text in commands_and_environments(process.pid) if "pyspark.daemon" in text]
    assert workers and not any("pyspark.zip" in text for text in workers)
    os.killpg(process.pid, signal.SIGTERM)  # as a shell ends a job, with all of its processes
    _, errors = process.communicate()
    assert process.returncode == 0 and "Traceback" not in errors
    assert json.loads(end.read_text())["phase"] == "Stopped"
    status = json.loads(ottla(tmp_path, "status", "-o", "json").stdout)
    assert (status["phase"], status["queries"]["late-flights"]["lastBatchId"] >= 0) == ("Stopped", True)

    rows(tmp_path, "1.json", [{"carrier": "AA", "delay": 40}, {"carrier": "AA", "delay": 5000}])
    again = ottla(tmp_path, "run", "--available-now")
    assert again.returncode == 0, again.stderr
    assert Counter(value for _, _, value in read_all(fleet, "late")) == {b"30.0": 1, b"40.0": 1}
    dead = {value for _, _, value in read_all(fleet, "dead")}
    assert b"{nonsense" in dead and len(dead) == 2
    assert json.loads(ottla(tmp_path, "status", "-o", "json").stdout)["phase"] == "Completed"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("CAST(delay AS string)", "CAST(dely AS string)", "spec.steps[1].sql: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("flight_steps:late", "flight_steps:lat", "spec.steps[0].python: the module flight_steps has no lat"),
    ],
)
def test_what_only_spark_can_find_wrong_names_its_field_and_is_not_tried_again(
    fleet: RunningCluster, tmp_path: Path, old: str, new: str, message: str
) -> None:
    write_document(tmp_path, FLIGHTS.replace(old, new), fleet)
    failed = ottla(tmp_path, "plan")
    assert failed.returncode == 1 and failed.stderr.splitlines()[-1].startswith(message)
    assert "WARN" not in failed.stderr.upper()
    assert (tmp_path / "checkpoint" / PLAN_LOG).stat().st_size > 0


def test_what_spark_refuses_of_the_sink_is_a_failure_for_good(fleet: RunningCluster, tmp_path: Path) -> None:
    two_values = FLIGHTS.replace("AS string) AS value,", "AS string) AS value, carrier AS value,")
    write_document(tmp_path, two_values, fleet)
    failed = ottla(tmp_path, "run")
    assert failed.returncode == FAILED_FOR_GOOD
    assert "late-flights: spec.sink: [AMBIGUOUS_REFERENCE]" in failed.stdout
    assert json.loads(ottla(tmp_path, "status", "-o", "json").stdout)["phase"] == "Failed"


COUNTS = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: counts}
spec:
  bootstrapServers: BOOTSTRAP
  source: {topics: [counted], value: {format: text}}
  steps:
  - name: counts
    sql: >-
      SELECT value AS key, CAST(count(*) AS string) AS value, IF(count(*) > 2, 'too often', NULL) AS _error
      FROM source GROUP BY value
  sink: {topic: {name: counts}, outputMode: update}
  trigger: {availableNow: true}
  checkpoint: {path: checkpoint}
  deadLetters: {topic: too-often}
"""


def test_rows_that_a_step_marks_are_sorted_in_one_pass_over_the_source_and_with_one_state(
    fleet: RunningCluster, tmp_path: Path
) -> None:
    for name in ("counted", "counts", "too-often"):
        topic(fleet, name)
    write_document(tmp_path, COUNTS, fleet)
    produce(fleet, "counted", [b"a", b"b", b"a", b"c", b"a"])
    assert ottla(tmp_path, "run").returncode == 0
    assert sorted(record[1:] for record in read_all(fleet, "counts")) == [(b"b", b"1"), (b"c", b"1")]
    assert [record[1:] for record in read_all(fleet, "too-often")] == [(b"a", b"3")]
    query = json.loads(ottla(tmp_path, "status", "-o", "json").stdout)["queries"]["counts"]
    assert (query["totalInputRows"], query["stateRows"]) == (5, 3)


NEWEST = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: newest}
spec:
  bootstrapServers: BOOTSTRAP
  source: {topics: [hired], startingOffsets: latest, value: {format: json, schema: "name string"}}
  steps:
  - {name: names, sql: "SELECT value.name AS value, IF(value.name = '', 'has no name', NULL) AS _error FROM source"}
  sink: {topic: {name: names}}
  trigger: {availableNow: true}
  checkpoint: {path: checkpoint}
  deadLetters: {topic: nobody}
"""


def test_a_pipeline_that_begins_at_the_latest_offset_reads_each_record_after_it_as_a_row_or_a_dead_letter(
    fleet: RunningCluster, tmp_path: Path
) -> None:
    for name in ("hired", "names", "nobody"):
        topic(fleet, name)
    write_document(tmp_path, NEWEST, fleet)
    produce(fleet, "hired", [b'{"name": "before"}', b"{before"])
    assert ottla(tmp_path, "run").returncode == 0
    produce(fleet, "hired", [b'{"name": "Ada"}', b"{bad", b'{"name": ""}', b'{"name": "Lin"}'])
    assert ottla(tmp_path, "run").returncode == 0
    assert sorted(value for _, _, value in read_all(fleet, "names")) == [b"Ada", b"Lin"]
    assert sorted(value for _, _, value in read_all(fleet, "nobody")) == [b"", b"{bad"]


SELDOM = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: seldom}
spec:
  bootstrapServers: BOOTSTRAP
  source: {files: {path: in, format: json, schema: "value string"}}
  sink: SINK
  trigger: {availableNow: true}
  restartPolicy: Never
  checkpoint: {path: checkpoint}
  deadLetters: {topic: DEAD}
"""


def forget_marker(fleet: RunningCluster, checkpoint: Path) -> None:
    """As brokers do after offsets.retention.minutes."""
    group = group_of(json.loads((checkpoint / "metadata").read_text())["id"])
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.delete_consumer_groups([group])[group].result(60)


@pytest.mark.parametrize(
    ("sink", "checkpoint", "dead"),
    [("topic: {name: seldom}", "query", "seldom-dead"), ("parquet: {path: out}", "dead-letters", "seldom-dead-too")],
)
def test_a_pipeline_goes_on_exactly_once_after_longer_than_its_marker_is_kept(
    fleet: RunningCluster, tmp_path: Path, sink: str, checkpoint: str, dead: str
) -> None:
    topic(fleet, dead)
    if "seldom}" in sink:
        topic(fleet, "seldom")
    write_document(tmp_path, SELDOM.replace("SINK", f"{{{sink}}}").replace("DEAD", dead), fleet)
    for number, line in enumerate(("{bad", "{worse")):
        rows(tmp_path, f"{number}.json", [{"value": "a"}, line])
        done = ottla(tmp_path, "run")
        assert done.returncode == 0, done.stdout
        forget_marker(fleet, tmp_path / "checkpoint" / checkpoint)
    assert sorted(value for _, _, value in read_all(fleet, dead)) == [b"{bad", b"{worse"]

    # Killed after the end of the transaction, before Spark's commit log had the batch, and started a month later.
    last = tmp_path / "checkpoint" / checkpoint / "commits" / "1"
    last.unlink()
    os.utime(tmp_path / "checkpoint" / checkpoint / "offsets" / "1", (0, 0))
    again = ottla(tmp_path, "run")
    assert again.returncode == FAILED_FOR_GOOD and "batch 0 left no marker" in again.stdout
    assert "`ottla pipeline reset`" in again.stdout
    assert sorted(value for _, _, value in read_all(fleet, dead)) == [b"{bad", b"{worse"]


PAGE = Path(__file__).parents[3] / "docs" / "operating" / "pipeline-documents.md"


def test_the_first_commands_of_the_manual_print_what_it_says(fleet: RunningCluster, tmp_path: Path) -> None:
    """Without the first of them, `ottla local up`, in whose place this module's fleet is."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[:6]
    assert [language for language, _ in found] == ["sh", "python", "sh", "", "python", ""]
    _, producing, running, batch_line, consuming, records = (text for _, text in found)
    for name in ("flights", "late-flights", "flights-dead"):
        topic(fleet, name)
    (tmp_path / "examples").symlink_to(PAGE.parents[2] / "examples")

    def printed(*arguments: str) -> str:
        done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    printed("-c", producing.replace("127.0.0.1:9092", fleet.bootstrap))
    run = ["-m", "ottla.cli.main", *running.split()[1:], "--bootstrap-servers", fleet.bootstrap]
    lines = printed(*run).splitlines()
    rate = re.compile(r"\d+ rows/s")
    assert [rate.sub("", line) for line in lines[1:]] == [rate.sub("", batch_line.strip())]
    assert printed("-c", consuming.replace("127.0.0.1:9092", fleet.bootstrap)) == records


DELTA = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: words}
spec:
  bootstrapServers: BOOTSTRAP
  source: {topics: [words], value: {format: text}}
  sink: {delta: {path: table}}
  trigger: {availableNow: true}
  checkpoint: {path: checkpoint}
"""
READ_TABLE = """
import json, sys
from pathlib import Path
from ottla_pipeline.running.query_options import session_settings
from ottla_pipeline.running.session import open_session
from ottla_documents.pipeline_sink import FileSink, Sink
settings = session_settings("read", "local[1]", Path("read"), Sink("source", FileSink("delta", "table")))
spark = open_session(settings | {"spark.jars": sys.argv[1]}, [])
print(json.dumps([row.asDict() for row in spark.read.format("delta").load("table").select("value").collect()]))
"""


def produce(fleet: RunningCluster, name: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": fleet.bootstrap})
    for value in values:
        producer.produce(name, value)
    assert producer.flush(60) == 0


def delta_jars() -> str:
    return ",".join(str(jar) for jar in sorted((jars().parent / "delta-jars").glob("*.jar")))


def read_table(folder: Path) -> list[dict[str, Any]]:
    program = [sys.executable, "-c", READ_TABLE, delta_jars()]
    read = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(read.stdout)


def test_a_delta_table_has_each_record_once_after_a_batch_that_spark_does_not_know_to_be_written(
    fleet: RunningCluster, tmp_path: Path
) -> None:
    topic(fleet, "words")
    write_document(tmp_path, DELTA, fleet)
    without = ottla(tmp_path, "run")
    assert without.returncode == FAILED_FOR_GOOD and "Delta Lake is not on Spark's class path" in without.stderr
    produce(fleet, "words", [b"a", b"b", b"a"])
    run = ("run", "--conf", f"spark.jars={delta_jars()}")
    assert ottla(tmp_path, *run).returncode == 0
    for mark in (tmp_path / "checkpoint" / "query" / "commits").iterdir():
        mark.unlink()  # as after a kill between the commit of the table and that of the checkpoint
    produce(fleet, "words", [b"c"])
    again = ottla(tmp_path, *run)
    assert again.returncode == 0, again.stderr
    assert Counter(row["value"] for row in read_table(tmp_path)) == {"a": 2, "b": 1, "c": 1}


def test_a_stream_that_has_failed_for_good_stays_and_says_why_until_sigterm(
    fleet: RunningCluster, tmp_path: Path
) -> None:
    """As the operator runs it: the container would otherwise be restarted, and fail the same way again."""
    write_document(tmp_path, FLIGHTS.replace("CAST(delay AS string)", "CAST(dely AS string)"), fleet)
    port, end = free_port(), tmp_path / "end.json"
    process = subprocess.Popen(
        command(tmp_path, "run", "--http", f"127.0.0.1:{port}", "--stay", "--end-status", str(end)),
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert any("ends with SIGTERM" in line for line in process.stdout)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status") as answer:
        said = json.loads(answer.read())
    assert (said["phase"], said["hasBegun"]) == ("Failed", False)
    assert said["lastError"].startswith("spec.steps[1].sql: [UNRESOLVED_COLUMN")
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == FAILED_FOR_GOOD and json.loads(end.read_text())["phase"] == "Failed"


def test_a_run_whose_jvm_is_killed_says_so_and_is_to_be_restarted(fleet: RunningCluster, tmp_path: Path) -> None:
    write_document(tmp_path, FLIGHTS, fleet)
    end = tmp_path / "end.json"
    process = subprocess.Popen(
        command(tmp_path, "run", "--end-status", str(end)),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert next(process.stdout).startswith("late-flights: ")  # Spark is there
    (jvm,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(jvm), signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith("Spark's JVM has ended (")
    status = json.loads(end.read_text())
    assert (status["phase"], status["hasBegun"]) == ("Failed", True) and status["lastError"] in errors


def test_a_run_that_a_signal_ends_before_all_is_read_has_an_exit_code_that_says_so(
    fleet: RunningCluster, tmp_path: Path
) -> None:
    """A Job of Kubernetes whose pod is evicted is not complete; the next pod goes on where this one has ended."""
    for name in ("cut", "cut-dead"):
        topic(fleet, name)
    text = FLIGHTS.replace("{name: late}\n  trigger", "{name: cut}\n  trigger").replace(
        "topic: dead", "topic: cut-dead"
    )
    write_document(tmp_path, text, fleet)
    for number in range(6):
        rows(tmp_path, f"{number}.json", [{"carrier": "UA", "delay": 100 + number}])
    process = subprocess.Popen(
        command(tmp_path, "run", "--available-now"),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert next(process.stdout).startswith("late-flights: ")  # Spark is there, and nothing is read yet
    for folder in processes_of(process.pid):  # all at once, as systemd: also Java and Spark's Python processes
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(folder.name), signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in errors
    assert ottla(tmp_path, "run", "--available-now").returncode == 0
    assert Counter(value for _, _, value in read_all(fleet, "cut")) == {f"{100 + n}.0".encode(): 1 for n in range(6)}
