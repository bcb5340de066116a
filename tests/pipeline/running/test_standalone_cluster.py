"""A Spark standalone cluster whose master answers, or does not."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import pytest

from ottla_pipeline.errors import PipelineError
from ottla_pipeline.running.standalone_cluster import await_master


def test_another_cluster_is_not_asked() -> None:
    await_master("local[2]", wait_s=0)
    await_master("k8s://https://127.0.0.1:1", wait_s=0)


def test_a_master_that_does_not_answer_is_named_with_the_reason(free_port: int) -> None:
    with pytest.raises(PipelineError, match=rf"^no master answers at 127\.0\.0\.1:{free_port} \(Connection refused\)$"):
        await_master(f"spark://127.0.0.1:{free_port}", wait_s=0)
    with pytest.raises(PipelineError, match=r"no master answers at no-such-host\.invalid:7077"):
        await_master("spark://no-such-host.invalid:7077", wait_s=0)


def test_one_master_of_several_is_enough(free_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        await_master(f"spark://127.0.0.1:{free_port},127.0.0.1:{master.getsockname()[1]}", wait_s=0)


def test_a_master_that_is_being_started_is_waited_for(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    with ExitStack() as stack:

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            stack.enter_context(socket.create_server(("127.0.0.1", free_port)))

        monkeypatch.setattr(time, "sleep", pause)
        await_master(f"spark://127.0.0.1:{free_port}", wait_s=60)
    assert len(pauses) == 1


@pytest.mark.spark
def test_spark_is_not_started_before_a_master_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla_pipeline.running import session

    asked: list[str] = []

    def refuse(master: str) -> None:
        asked.append(master)
        raise PipelineError("no master answers")

    monkeypatch.setattr(session, "await_master", refuse)
    with pytest.raises(PipelineError, match="no master answers"):
        session.open_session({"spark.master": "spark://127.0.0.1:1"}, [])
    assert asked == ["spark://127.0.0.1:1"]
