"""What a run does when its queries cannot begin. No Spark session: nothing is planned or started."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_operator.model.kafka_pipeline import KafkaPipeline, parse_pipeline
from ottla_pipeline.errors import DatabaseUnreachable, PipelineError
from ottla_pipeline.running.run_folder import RunFolder

pytest.importorskip("pyspark")
from ottla_operator.model.pipeline_steps import PythonStep
from ottla_pipeline.running import frames, runner
from ottla_pipeline.running.frames import StepError


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
        one = runner.PipelineRun(pipeline, "", folder, is_once=False, is_asked_to_end=ends, say=say)
        went_well = one.run(SimpleNamespace(streams=streams))  # type: ignore[arg-type]
    status = folder.status()
    assert status is not None
    return went_well, status


def test_a_database_that_is_away_is_looked_for_again(pipeline: KafkaPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    went_well, status = run(pipeline, DatabaseUnreachable("nobody answers"), monkeypatch)
    assert (went_well, status["phase"]) == (True, "Stopped")
    assert (status["restarts"], status["lastError"]) == (1, "nobody answers")


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
            pipeline, "", folder, is_once=False, is_asked_to_end=threading.Event(), say=lambda _: None
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
