"""`ottla pipeline` without Spark: what it says about documents, status and reset."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ottla.cli import pipeline
from ottla.cli.pipeline import app
from ottla_documents.documents import load_documents
from ottla_documents.kafka_pipeline import FAILED_FOR_GOOD
from ottla_pipeline.errors import PipelineError
from ottla_pipeline.running.run_folder import RunFolder

DOCUMENT = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: delays}
spec:
  bootstrapServers: 127.0.0.1:1
  source: {topics: [flights]}
  steps:
  - name: late
    sql: SELECT key, value FROM source
  sink: {topic: {name: delays}}
  checkpoint: {path: CHECKPOINT}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(DOCUMENT.replace("CHECKPOINT", str(tmp_path / "checkpoint")))
    return path


def ottla(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def folder(file: Path) -> RunFolder:
    return RunFolder(load_documents([("f", file.read_text())]).pipelines[0])


def test_validate_says_in_one_line_what_a_pipeline_does(file: Path) -> None:
    found = ottla("validate", "-f", file)
    assert found.exit_code == 0
    assert found.output.startswith("delays: topics flights -> late -> topic delays, exactly-once; each batch at once;")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "FROM source",
            "FROM sorce",
            "spec.steps[0].sql: no view 'sorce' is there; there are source; is sou",
        ),
        ("name: delays}}", "name: delays, config: {acsk: 1}}}", "delays: spec.sink.topic.config.acsk: is unknown"),
        (
            "name: delays}}",
            "name: delays, config: {batch.sise: 1}}}",
            "spec.sink.topic.config.batch.sise: is unknown; did you mean batch.size?",
        ),
        ("KafkaPipeline", "KafkaTopic", "spec.clusterRef: is required"),
        ("spec:", "spec", "not YAML"),
    ],
)
def test_a_mistake_is_told_by_its_field(file: Path, old: str, new: str, message: str) -> None:
    file.write_text(file.read_text().replace(old, new))
    for command in ("validate", "run", "status", "reset", "plan"):
        found = ottla(command, "-f", file)
        assert found.exit_code == (FAILED_FOR_GOOD if command == "run" else 1) and message in found.output


def test_a_file_that_is_missing_or_has_no_pipeline_is_told(tmp_path: Path, file: Path) -> None:
    assert "No such file or directory" in ottla("validate", "-f", tmp_path / "nowhere.yaml").output
    (tmp_path / "empty.yaml").write_text("---\n")
    assert "no KafkaPipeline in" in ottla("validate", "-f", tmp_path / "empty.yaml").output


def test_one_of_several_pipelines_is_chosen_by_name(file: Path) -> None:
    text = file.read_text()
    file.write_text(text + "---" + text.replace("{name: delays}\nspec", "{name: other}\nspec"))
    assert ottla("validate", "-f", file).output.count("->") == 4
    assert "which pipeline? choose with --name: delays, other" in ottla("status", "-f", file).output
    assert "--name third: there are delays, other" in ottla("status", "-f", file, "--name", "third").output
    assert ottla("status", "-f", file, "--name", "other").exit_code == 0


def test_a_suspended_pipeline_is_not_run(file: Path) -> None:
    file.write_text(file.read_text().replace("  sink:", "  suspend: true\n  sink:"))
    found = ottla("run", "-f", file)
    assert found.exit_code == 0 and "spec.suspend is true, nothing is run" in found.output


def test_executors_are_checked_and_told_to_have_no_effect_here(file: Path) -> None:
    executors = "  executors: {instances: 2}\n  sink:"
    file.write_text(file.read_text().replace("  sink:", executors).replace("bootstrapServers: 127.0.0.1:1", "KEPT"))
    file.write_text(file.read_text().replace("KEPT", "clusterRef: {name: nowhere}"))
    found = ottla("run", "-f", file)
    assert found.exit_code == FAILED_FOR_GOOD and "spec.checkpoint.accessModes: must have ReadWriteMany" in found.output
    file.write_text(file.read_text().replace("checkpoint: {", "checkpoint: {accessModes: [ReadWriteMany], "))
    found = ottla("run", "-f", file)
    said = "delays: spec.executors is for Kubernetes and has no effect here: Spark runs with local[*]\n"
    assert found.exit_code == FAILED_FOR_GOOD and said in found.output


def test_a_cluster_that_does_not_run_here_is_told_before_spark_starts(file: Path) -> None:
    file.write_text(file.read_text().replace("bootstrapServers: 127.0.0.1:1", "clusterRef: {name: nowhere}"))
    found = ottla("run", "-f", file)
    assert found.exit_code == FAILED_FOR_GOOD and found.output.startswith("spec.clusterRef.name nowhere: ")
    assert "--bootstrap-servers HOST:PORT" in found.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--end-status", "/nowhere/end.json"], "--end-status /nowhere/end.json: there is no folder /nowhere"),
        (["--bootstrap-servers", "broker"], "--bootstrap-servers: must be HOST:PORT,HOST:PORT; 'broker' is no address"),
    ],
)
def test_a_wrong_option_is_told_before_spark_starts(file: Path, arguments: list[str], message: str) -> None:
    found = ottla("run", "-f", file, *arguments)
    assert (found.exit_code, found.output) == (FAILED_FOR_GOOD, f"{message}\n")
    assert not folder(file).path.exists()


def test_staying_after_a_failure_needs_an_address_that_says_so(file: Path) -> None:
    found = ottla("run", "-f", file, "--stay")
    assert found.exit_code == FAILED_FOR_GOOD and "--stay goes with --http" in found.output


class Stopped:
    """A Spark session of which only its end is asked for."""

    def stop(self) -> None:
        """Nothing."""


def ends_with(error: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a run end so, without Spark; None for attempts that have all failed."""
    runner = pytest.importorskip("ottla_pipeline.running.runner")

    def run(_one: Any, _spark: Any) -> bool:
        if error is not None:
            raise error
        return False

    monkeypatch.setattr(runner.PipelineRun, "run", run)
    monkeypatch.setattr(pipeline, "_require_spark", lambda: None)
    monkeypatch.setattr(pipeline, "_open_spark", lambda *_: Stopped())


def gone(call: str) -> Exception:
    """What Py4J raises for a call that the JVM does not answer any more."""
    return pytest.importorskip("py4j.protocol").Py4JError(f"An error occurred while calling {call}")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Spark's JVM has ended (Connection"),
        ("o34.isActive", "Spark's JVM has ended (Py4JError: An error occurred while calling o34.isActive)"),
        (
            OSError(errno.ENOSPC, "No space left on device", "checkpoint/status.json.new"),
            "OSError: [Errno 28] No space left on device: 'checkpoint/status.json.new'; run the pipeline again",
        ),
    ],
)
def test_a_run_that_ends_unforeseen_is_one_line_and_is_to_be_restarted(
    file: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | str, said: str
) -> None:
    ends_with(gone(error) if isinstance(error, str) else error, monkeypatch)
    end = file.parent / "end.json"
    found = ottla("run", "-f", file, "--http", "127.0.0.1:0", "--stay", "--end-status", end)
    assert found.exit_code == 1 and isinstance(found.exception, SystemExit)
    assert found.output.splitlines()[-1].startswith(said)
    status = json.loads(end.read_text())
    assert (status["phase"], status["hasBegun"]) == ("Failed", True)
    assert status["lastError"] == found.output.splitlines()[-1]


def refused_by_spark(error_class: str) -> Exception:
    return pytest.importorskip("pyspark.errors").PySparkRuntimeError(errorClass=error_class, messageParameters={})


@pytest.mark.parametrize("error", [None, PipelineError("Spark does not start"), "CONTEXT_ONLY_VALID_ON_DRIVER"])
def test_a_run_that_has_failed_for_good_has_an_exit_code_that_python_has_for_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | str | None
) -> None:
    ends_with(refused_by_spark(error) if isinstance(error, str) else error, monkeypatch)
    found = ottla("run", "-f", file)
    assert found.exit_code == FAILED_FOR_GOOD == 3
    assert "run the pipeline again" not in found.output


def test_a_jvm_that_does_not_start_is_to_be_started_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = pytest.importorskip("ottla_pipeline.running.session")

    def open_session(*_: Any) -> None:
        raise refused_by_spark("JAVA_GATEWAY_EXITED")

    monkeypatch.setattr(session, "open_session", open_session)
    monkeypatch.setattr(pipeline, "_require_spark", lambda: None)
    found = ottla("run", "-f", file, "--master", "local[1]")
    assert found.exit_code == 1
    assert found.output.startswith("Spark does not start with --master local[1]: Spark's JVM has ended (PySparkRuntime")
    assert found.output.endswith("run the pipeline again, it goes on from its checkpoint\n")


def test_a_pipeline_that_another_process_runs_is_to_be_run_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a pod that is cut off, which still holds the lock."""
    monkeypatch.setattr(pipeline, "_require_spark", lambda: None)
    with folder(file).locked():
        found = ottla("run", "-f", file)
    assert found.exit_code == 1 and "is running" in found.output


def test_status_of_a_pipeline_that_never_ran_is_pending(file: Path) -> None:
    assert ottla("status", "-f", file).output == "delays: Pending\n"
    assert json.loads(ottla("status", "-f", file, "-o", "json").output)["phase"] == "Pending"


def test_status_shows_rates_lag_and_the_last_error(file: Path) -> None:
    query = {
        "lastBatchId": 4, "lastBatchTime": "2026-01-01T00:00:00.000Z", "numInputRows": 10, "inputRowsPerSecond": 5.0,
        "processedRowsPerSecond": 20.0, "watermark": "", "stateRows": 0, "lag": {"flights": {"0": 3, "1": 4}},
    }  # fmt: skip
    with folder(file).locked():
        folder(file).write_status({"phase": "Running", "lastError": "a broker was away", "queries": {"delays": query}})
        shown = ottla("status", "-f", file).output
    assert shown.startswith("delays: Running\n") and "lag of flights: 7 (0: 3, 1: 4)" in shown
    assert "lastError: a broker was away" in shown


def test_a_pipeline_whose_process_was_killed_has_failed(file: Path) -> None:
    with folder(file).locked():
        folder(file).write_status({"phase": "Running", "lastError": "", "queries": {}})
    found = json.loads(ottla("status", "-f", file, "-o", "json").output)
    assert (found["phase"], found["lastError"]) == ("Failed", "its process was killed")


def test_reset_says_what_it_deletes_and_wants_a_yes(file: Path) -> None:
    assert "it has never run" in ottla("reset", "-f", file).output
    query = folder(file).query
    query.mkdir(parents=True)
    found = ottla("reset", "-f", file)
    assert found.exit_code == 1 and f"  {query}\n" in found.output and "pass --yes" in found.output and query.exists()
    found = ottla("reset", "-f", file, "--yes")
    assert found.exit_code == 0 and not query.exists()
    assert "what is in topic delays stays; the next run reads from the beginning, and writes it again" in found.output


def test_reset_is_refused_while_the_pipeline_runs(file: Path) -> None:
    folder(file).query.mkdir(parents=True)
    with folder(file).locked():
        found = ottla("reset", "-f", file, "--yes")
    assert found.exit_code == 1 and "the pipeline delays is running" in found.output and folder(file).query.exists()


def test_help_has_a_whole_document_that_is_valid() -> None:
    from ottla.cli.pipeline import EXAMPLE

    text = EXAMPLE[EXAMPLE.index("apiVersion") : EXAMPLE.index("\n\n\b\nottla pipeline validate")]
    (found,) = load_documents([("help", text)]).pipelines
    assert found.name == "delays" and found.dead_letters == "flights-dead"
    from ottla.cli.main import app as ottla_app

    shown = CliRunner().invoke(ottla_app, ["pipeline", "--help"]).output
    assert "kind: KafkaPipeline\n" in shown and "ottla pipeline validate -f FILE " in shown
