"""A Spark standalone cluster whose master answers, or does not."""

from __future__ import annotations

import socket
import threading

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


def test_a_master_that_is_being_started_is_waited_for(free_port: int) -> None:
    is_asked = threading.Event()

    def wait() -> None:
        is_asked.set()
        await_master(f"spark://127.0.0.1:{free_port}", wait_s=60)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert is_asked.wait(60)
    with socket.create_server(("127.0.0.1", free_port)):
        waiting.join(60)
    assert not waiting.is_alive()
