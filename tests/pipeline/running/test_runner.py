"""What a run does when its queries cannot begin. No Spark session: nothing is planned or started."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_documents.kafka_pipeline import KafkaPipeline, Trigger, parse_pipeline
from ottla_pipeline.errors import DatabaseUnreachable, PipelineError
from ottla_pipeline.running.run_folder import RunFolder

pytest.importorskip("pyspark")
from pyspark.errors import PySparkException

from ottla_documents.pipeline_steps import PythonStep
from ottla_pipeline.running import frames, restarts, runner
from ottla_pipeline.running.failure_reasons import failure_reason
from ottla_pipeline.running.frames import StepError
from ottla_pipeline.running.spark_errors import pipeline_error


@pytest.fixture
def pipeline(tmp_path: Path) -> KafkaPipeline:
    spec = {
        "source": {"files": {"path": "in", "format": "text"}},
        "sink": {"parquet": {"path": str(tmp_path / "out")}},
        "checkpoint": {"path": str(tmp_path / "checkpoint")},
    }
    found, problems = parse_pipeline({"metadata": {"name": "p"}, "spec": spec})
    assert problems == []
    return found


def run(pipeline: KafkaPipeline, error: PipelineError, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, dict[str, Any]]:
    """Whether it went well, and its status; it is asked to end when it waits for another attempt."""
    monkeypatch.setattr(runner, "build_frames", lambda *_: None)

    def cannot_begin(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(runner, "start_queries", cannot_begin)
    ends, folder, said = threading.Event(), RunFolder(pipeline), []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:  # the failure, and when it is tried again
            ends.set()

    streams = SimpleNamespace(addListener=lambda _: None, removeListener=lambda _: None)
    with folder.locked():
        one = runner.PipelineRun(pipeline, {}, folder, is_once=False, is_asked_to_end=ends, say=say)
        went_well = one.run(SimpleNamespace(streams=streams))  # type: ignore[arg-type]
    status = folder.status()
    assert status is not None
    return went_well, status


def test_a_database_that_is_away_is_looked_for_again(pipeline: KafkaPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    went_well, status = run(pipeline, DatabaseUnreachable("nobody answers"), monkeypatch)
    assert (went_well, status["phase"]) == (True, "Stopped")
    assert (status["restarts"], status["lastError"]) == (1, "nobody answers")


@pytest.mark.parametrize("is_planned", [False, True])
def test_attempts_in_which_no_python_process_of_spark_starts_do_not_use_up_the_limit(
    pipeline: KafkaPipeline, monkeypatch: pytest.MonkeyPatch, is_planned: bool
) -> None:
    """On a starved machine, while a query is planned or after it has begun; with a limit of one failure."""
    of_spark = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back."
    attempts = 0

    def begins(*_: Any, **__: Any) -> list[Any]:
        nonlocal attempts
        attempts += 1
        if not is_planned and attempts <= 8:
            raise pipeline_error(PySparkException(of_spark))
        return []

    monkeypatch.setattr(runner, "build_frames", lambda *_: None)
    monkeypatch.setattr(runner, "start_queries", begins)
    monkeypatch.setattr(runner, "follow", lambda *_: failure_reason(of_spark) if attempts <= 8 else "")
    monkeypatch.setattr(restarts, "FIRST_WAIT_S", 0.0)
    said: list[str] = []
    streams = SimpleNamespace(addListener=lambda _: None, removeListener=lambda _: None)
    folder = RunFolder(replace(pipeline, backoff_limit=1, trigger=Trigger(is_available_now=True)))
    one = runner.PipelineRun(
        replace(pipeline, backoff_limit=1, trigger=Trigger(is_available_now=True)),
        {}, folder, is_once=True, is_asked_to_end=threading.Event(), say=said.append,
    )  # fmt: skip
    with folder.locked():
        assert one.run(SimpleNamespace(streams=streams)) is True  # type: ignore[arg-type]
    assert attempts == 9
    assert "a Python process of Spark has not started within ten seconds: there is too little CPU here" in said[0]
    assert said[1].endswith("this one does not count, as nothing of the pipeline has run")


def test_what_the_database_refuses_is_not_tried_again(pipeline: KafkaPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    went_well, status = run(pipeline, PipelineError("no such table"), monkeypatch)
    assert (went_well, status["phase"]) == (False, "Failed")
    assert (status["restarts"], status["lastError"]) == (0, "no such table")


def test_a_checkpoint_of_another_number_of_reads_is_told_and_not_tried_again(
    pipeline: KafkaPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_spark = (
        "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] sources requested"
    )
    monkeypatch.setattr(runner, "build_frames", lambda *_: None)
    monkeypatch.setattr(runner, "start_queries", lambda *_, **__: [])
    monkeypatch.setattr(runner, "follow", lambda *_: of_spark)
    folder, streams = RunFolder(pipeline), SimpleNamespace(addListener=lambda _: None, removeListener=lambda _: None)
    with folder.locked():
        one = runner.PipelineRun(
            pipeline, {}, folder, is_once=False, is_asked_to_end=threading.Event(), say=lambda _: None
        )
        assert one.run(SimpleNamespace(streams=streams)) is False  # type: ignore[arg-type]
    status = folder.status()
    assert status is not None and (status["phase"], status["restarts"]) == ("Failed", 0)
    assert status["lastError"].startswith(
        f"spec.checkpoint.path: {pipeline.checkpoint} goes on from a query that reads 1"
    )


def test_a_step_that_ends_the_process_is_a_problem_of_its_field(
    pipeline: KafkaPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "step_that_exits.py").write_text("import sys\n\ndef step(rows):\n    sys.exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    step = PythonStep("late", "step_that_exits:step", "source")
    with pytest.raises(StepError, match=r"spec\.steps\[0\]\.python: step_that_exits:step failed: SystemExit: 3"):
        frames._called(step, None, "spec.steps[0].python")  # type: ignore[arg-type]
