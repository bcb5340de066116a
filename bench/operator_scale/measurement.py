"""Brings up an API server with etcd, a fleet and an operator, all as processes of this machine, and measures them.

The calls of the operator come from the API server's audit log, times of processors from /proc. The fleet's own share
is the time that such a fleet takes for the same topics without Kubernetes, asked by the same client in such batches.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from e2e import audit, binaries
from e2e.audit import AuditLog
from e2e.certificates import Certificates
from e2e.control_plane import ControlPlane, loopback
from e2e.kubernetes_api import condition_of
from e2e.machine import CommandFailed, NotInTime, run
from e2e.proc_files import cpu_s, memory_bytes
from ottla_operator.api.objects import KAFKA_CLUSTER, KAFKA_TOPIC, STATEFUL_SET, Obj
from ottla_operator.api.topics import CreateTopic
from ottla_operator.effects.kafka_admin import KafkaPythonAdmin
from ottla_operator.effects.kubernetes_api import KubernetesClient
from ottla_operator.ports import ApiError
from ottla_operator.runtime.topic_queue import SETTLE_S
from ottla_operator.runtime.topic_task import BATCH

CLUSTER = "orders"
SYSTEM, ACCOUNT = "ottla-system", "ottla-operator"
BROKERS = 3
REPLICAS = 3
CONFIG = {"retention.ms": "604800000"}
APPLIED_AT_ONCE = 16
POLL_S = 5.0
QUIET_S = 15.0
LONGEST_S = 1800.0


@dataclass(slots=True)
class ScaleFigures:
    """Times in seconds, memory in MiB, processor times in seconds by process.

    `fleet_alone_s`: the fleet creates the same topics without Kubernetes. `load`: the load average of the machine when
    the measurement began: what other programs want of its `cores`.
    """

    topics: int
    cores: int
    load: float
    fleet_alone_s: float = 0.0
    fleet_first_batch_s: float = 0.0
    fleet_last_batch_s: float = 0.0
    applied_s: float = 0.0
    ready_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    writes_to_ready: int = 0
    rest_s: float = 0.0
    writes_at_rest: int = 0
    cpu_percent_at_rest: float = 0.0
    writes_after_restart: int = 0
    rss_mib: float = 0.0
    rss_peak_mib: float = 0.0
    rss_after_restart_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class PassTimes:
    """The times of reconciliations that find nothing to do, in milliseconds. `writes` has to be 0."""

    brokers: int
    passes: int
    median_ms: float
    worst_ms: float
    cpu_ms: float
    writes: int


def measure_passes() -> PassTimes:
    """The operator's own time: Kubernetes and Kafka are the ones in memory of the tests."""
    text = run([sys.executable, "-m", "tests.operator.noop_pass"], folder=binaries.CHECKOUT, timeout_s=600)
    return PassTimes(**json.loads(text))


def measure(work: Path, topics: int, rest_s: float, *, fleet_alone: bool = True) -> ScaleFigures:
    """One run. `work` is a folder for everything that is written.

    Raises:
        CommandFailed, NotInTime: something did not start, or was not done in half an hour.
    """
    figures = ScaleFigures(topics, os.cpu_count() or 1, os.getloadavg()[0])
    if fleet_alone:
        with _fleet(work / "fleet-alone") as (bootstrap, _):
            asyncio.run(_create_without_kubernetes(bootstrap, figures))
    with ExitStack() as stack:
        bootstrap, fleet_pids = stack.enter_context(_fleet(work / "fleet"))
        plane = ControlPlane(work / "kubernetes", binaries.folder(), loopback(), is_tied=True)
        stack.callback(plane.stop)
        log = AuditLog(plane.daemons.logs, SYSTEM)
        _start(plane, log)
        asyncio.run(_measure(plane, log.path, bootstrap, fleet_pids, work, rest_s, figures))
    return figures


# The parts


@contextmanager
def _fleet(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Three brokers and a ZooKeeper, each a process. Gives the addresses and the processes."""
    folder.mkdir(parents=True)
    document = {
        "apiVersion": KAFKA_CLUSTER.api_version,
        "kind": KAFKA_CLUSTER.kind,
        "metadata": {"name": "scale"},
        "spec": {
            "brokers": {
                "replicas": BROKERS,
                "disks": [{"name": "d0"}],
                "config": {"ottla.max.partition.replicas": 0},
            }
        },
    }
    (folder / "cluster.yaml").write_text(yaml.safe_dump(document))
    ottla, data = Path(sys.executable).with_name("ottla"), folder / "data"
    before = _children_of_init()
    started = subprocess.run(
        [ottla, "local", "up", "-f", folder / "cluster.yaml", "--data", data, "--processes"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    bootstrap = re.search(r"^bootstrap\s+(\S+)", started.stdout, re.MULTILINE)
    try:
        if started.returncode != 0 or bootstrap is None:
            raise CommandFailed(f"ottla local up: {started.stdout}{started.stderr}")
        yield bootstrap[1], _family(_children_of_init() - before, str(data))
    finally:
        subprocess.run(
            [ottla, "local", "down", "--data", data, "--delete-data", "--yes"], capture_output=True, check=False
        )


def _start(plane: ControlPlane, log: AuditLog) -> None:
    plane.start_api_server("--disable-admission-plugins=ServiceAccount", *log.flags())
    plane.kubectl("apply", "-f", str(binaries.CHECKOUT / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=170s", timeout_s=180)
    plane.kubectl("create", "namespace", SYSTEM)
    user = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"
    plane.kubectl("create", "clusterrolebinding", ACCOUNT, "--clusterrole=cluster-admin", f"--user={user}")
    plane.certificates.issue(ACCOUNT, user, ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}"])


class _OperatorProcess:
    """The operator, until `kill`."""

    def __init__(self, certificates: Certificates, bootstrap: str, log: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.operator_scale.operator_process", bootstrap, SYSTEM],
                env={**os.environ, "KUBECONFIG": str(certificates.kubeconfig(ACCOUNT))},
                stdout=output, stderr=output, cwd=binaries.CHECKOUT,
            )  # fmt: skip
        self.pid = self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


# The steps


async def _create_without_kubernetes(bootstrap: str, figures: ScaleFigures) -> None:
    kafka = KafkaPythonAdmin(bootstrap.split(","))
    began = last = time.monotonic()
    names = [_name(number) for number in range(figures.topics)]
    for start in range(0, len(names), BATCH):
        some = names[start : start + BATCH]
        errors = await kafka.change([CreateTopic(name, 1, REPLICAS, CONFIG) for name in some])
        if errors:
            raise CommandFailed(f"the fleet did not create all of {some[0]} and others: {dict(errors)}")
        await _until(partial(_all_exist, kafka, some), "the brokers show the topics", SETTLE_S)
        now = time.monotonic()
        figures.fleet_last_batch_s, last = now - last, now
        figures.fleet_first_batch_s = figures.fleet_first_batch_s or figures.fleet_last_batch_s
    figures.fleet_alone_s = time.monotonic() - began
    await kafka.close()


async def _all_exist(kafka: KafkaPythonAdmin, names: Sequence[str]) -> bool:
    """Brokers show a change a moment after it."""
    return len(await kafka.topics(names)) == len(names)


async def _measure(
    plane: ControlPlane,
    log: Path,
    bootstrap: str,
    fleet_pids: Sequence[int],
    work: Path,
    rest_s: float,
    figures: ScaleFigures,
) -> None:
    os.environ["KUBECONFIG"] = str(plane.certificates.kubeconfig("admin"))
    api = await KubernetesClient.connect()
    operator = _OperatorProcess(plane.certificates, bootstrap, work / "operator.log")
    try:
        await api.create(_cluster())
        await _until(lambda: _has_brokers(api), "the operator has created the StatefulSets")
        pids = {"operator": [operator.pid], "fleet": list(fleet_pids), "Kubernetes": _of_daemons(plane)}
        since, cpu, began = audit.mark(log), {name: _cpu_s(some) for name, some in pids.items()}, time.monotonic()
        await _apply(api, figures.topics)
        figures.applied_s = time.monotonic() - began
        await _until(lambda: _are_ready(api, figures.topics), "every topic is Ready")
        figures.ready_s = time.monotonic() - began
        figures.cpu_s = {name: _cpu_s(some) - cpu[name] for name, some in pids.items()}
        await _until_quiet(log)
        figures.writes_to_ready = audit.writes(log, since).total()
        figures.writes_at_rest, figures.cpu_percent_at_rest = await _rest(log, operator.pid, rest_s)
        figures.rest_s = rest_s
        figures.rss_mib, figures.rss_peak_mib = _memory_mib(operator.pid, "VmRSS"), _memory_mib(operator.pid, "VmHWM")
        operator.kill()
        since = audit.mark(log)
        operator = _OperatorProcess(plane.certificates, bootstrap, work / "operator.log")
        await _until(lambda: _has_listed(log, since), "the new operator has listed every topic")
        await asyncio.sleep(max(60.0, rest_s / 4))
        figures.writes_after_restart = audit.writes(log, since).total()
        figures.rss_after_restart_mib = _memory_mib(operator.pid, "VmRSS")
    finally:
        operator.kill()
        await api.close()


async def _apply(api: KubernetesClient, topics: int) -> None:
    """Creates the documents, several at a time."""
    numbers = iter(range(topics))

    async def some() -> None:
        for number in numbers:
            await api.create(_topic(number))

    await asyncio.gather(*(some() for _ in range(APPLIED_AT_ONCE)))


async def _rest(log: Path, pid: int, seconds: float) -> tuple[int, float]:
    """The writes of a time at rest, and the operator's processor time in percent of a core."""
    since, cpu, began = audit.mark(log), _cpu_s([pid]), time.monotonic()
    await asyncio.sleep(seconds)
    return audit.writes(log, since).total(), (_cpu_s([pid]) - cpu) / (time.monotonic() - began) * 100


async def _until_quiet(log: Path) -> None:
    while True:
        since = audit.mark(log)
        await asyncio.sleep(QUIET_S)
        if not audit.writes(log, since):
            return


async def _has_brokers(api: KubernetesClient) -> bool:
    return len(await api.list(STATEFUL_SET, "default", "")) == BROKERS


async def _are_ready(api: KubernetesClient, topics: int) -> bool:
    """Lists them only once the last one is Ready: a list of all every few seconds costs more than the topics."""
    last = await api.get(KAFKA_TOPIC, "default", _name(topics - 1))
    if last is None or not _is_ready(last):
        return False
    found = await api.list(KAFKA_TOPIC, "default", "")
    return len([1 for topic in found if _is_ready(topic)]) == topics


def _is_ready(topic: Obj) -> bool:
    return condition_of(topic, "Ready").get("status") == "True"


async def _has_listed(log: Path, since: int) -> bool:
    return audit.calls(log, since)[audit.Call("list", "kafkatopics")] >= 1


async def _until(holds: Callable[[], Awaitable[bool]], what: str, poll_s: float = POLL_S) -> None:
    deadline = time.monotonic() + LONGEST_S
    while True:
        try:
            if await holds():
                return
        except ApiError as error:
            what = f"{what} ({error})"
        if time.monotonic() > deadline:
            raise NotInTime(f"{what}: not within {LONGEST_S:.0f} s")
        await asyncio.sleep(poll_s)


# The documents


def _cluster() -> Obj:
    return {
        "apiVersion": KAFKA_CLUSTER.api_version,
        "kind": KAFKA_CLUSTER.kind,
        "metadata": {"name": CLUSTER, "namespace": "default"},
        "spec": {
            "brokers": {"replicas": BROKERS, "racks": ["a"], "disks": [{"name": "d0", "size": "1Gi"}]},
            "zookeeper": {"connect": "zookeeper:2181"},
        },
    }


def _topic(number: int) -> Obj:
    return {
        "apiVersion": KAFKA_TOPIC.api_version,
        "kind": KAFKA_TOPIC.kind,
        "metadata": {"name": _name(number), "namespace": "default"},
        "spec": {"clusterRef": {"name": CLUSTER}, "partitions": 1, "replicas": REPLICAS, "config": CONFIG},
    }


def _name(number: int) -> str:
    """
    >>> _name(7)
    'scale-00007'
    """
    return f"scale-{number:05}"


# Processes


def _children_of_init() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdecimal()}


def _family(pids: set[int], data: str) -> list[int]:
    """The processes whose command line names the folder of the fleet, or whose parent is one of them."""
    found: list[int] = []
    for pid in sorted(pids):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if data in command or parent in found:
            found.append(pid)
    return found


def _of_daemons(plane: ControlPlane) -> list[int]:
    return [pid for name in ("etcd", "kube-apiserver") if (pid := plane.daemons.pid(name)) is not None]


def _cpu_s(pids: Sequence[int]) -> float:
    found = 0.0
    for pid in pids:
        try:
            found += cpu_s(Path(f"/proc/{pid}/stat").read_text())
        except OSError:
            continue
    return found


def _memory_mib(pid: int, name: str) -> float:
    return memory_bytes(Path(f"/proc/{pid}/status").read_text(), name) / 1024**2
