"""Two operator processes at one API server: one writes, and the other goes on when that one is killed."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.kubernetes_api import Kubernetes
from ottla.local.ports import HOST, free_ports
from ottla_operator.api.objects import KAFKA_TOPIC, LEASE, dig
from tests.operator.real_api.kubernetes import RealKubernetes
from tests.operator.topic_fleet import FLIGHTS

pytestmark = pytest.mark.kubernetes
NAME = "two-operators"


class OperatorCommand:
    """`ottla operator run`, as in a pod."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self.log = log
        (port,) = free_ports(1)
        arguments = ["--broker-image", "ottla:1", "--lease", NAME, "--liveness", f"http://{HOST}:{port}/healthz"]
        ottla = Path(sys.executable).with_name("ottla")
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [ottla, "operator", "run", *arguments],
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """As the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)


@pytest.fixture
def operators(
    api: Kubernetes, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[OperatorCommand]]:
    monkeypatch.setattr(RealKubernetes, "api", api, raising=False)
    RealKubernetes()  # deletes what an earlier test has left
    with ExitStack() as stack:
        made = [OperatorCommand(kubeconfig, tmp_path / f"operator-{number}.log") for number in (1, 2)]
        for operator in made:
            stack.callback(operator.stop)
        yield made
    RealKubernetes()


def test_the_other_operator_goes_on_when_the_one_that_writes_is_killed(
    api: Kubernetes, operators: list[OperatorCommand]
) -> None:
    _until_shown(api, "before")
    first = _holder(api)
    (writing,) = [one for one in operators if first.endswith(f"-{one.process.pid}")]
    (waiting,) = [one for one in operators if one is not writing]
    assert "ClusterNotFound" in writing.log.read_text() and "ClusterNotFound" not in waiting.log.read_text()

    writing.kill()
    _until_shown(api, "after")
    assert _holder(api).endswith(f"-{waiting.process.pid}")
    assert dig(api.get(LEASE, NAME), "spec", "leaseTransitions") == 1
    assert "ClusterNotFound" in waiting.log.read_text()

    waiting.stop()
    assert waiting.process.returncode == 0
    assert dig(api.get(LEASE, NAME), "spec", "leaseDurationSeconds") == 1, "the next one need not wait"


def _until_shown(api: Kubernetes, name: str) -> None:
    """Applies a KafkaTopic without a KafkaCluster, and waits until an operator has written that."""
    api.create({**copy.deepcopy(FLIGHTS), "metadata": {"name": name, "namespace": "default"}})
    api.until_condition(KAFKA_TOPIC, name, "Ready", "ClusterNotFound")


def _holder(api: Kubernetes) -> str:
    return str(dig(api.get(LEASE, NAME), "spec", "holderIdentity"))
