"""`python -m e2e figures`: measures the operator with many topics, on the cluster that is up.

Time from `kubectl apply` to every KafkaTopic Ready; the operator's calls to the API server at rest, by verb and
kind; its memory and processor time. The calls come from the API server's audit log, not from the operator.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from e2e import audit
from e2e.audit import Call
from e2e.installation import Helm, OperatorDeployment, manifests
from e2e.kubernetes_api import Kubernetes, condition_of
from e2e.machine import CommandFailed, NotInTime
from e2e.proc_files import cpu_s, memory_bytes
from e2e.providers import KubernetesCluster, cluster_from_json
from ottla_operator.api.objects import CONFIG_MAP, KAFKA_TOPIC, STATEFUL_SET, Obj, dig, uid_of

FLEET = "orders"
LABEL = "figures"
REPLICAS = 3
POLL_S = 1.0
QUIET_S = 15.0
"""The operator is at rest once it has written nothing for this time, which is longer than its requeue times."""
LONGEST_S = 1800.0


@dataclass(slots=True)
class Figures:
    """`calls_…` count by "verb resource". Memory is the resident size of the operator's process in MB (1e6 bytes).

    `restart_…`: the operator was killed, and the new one has looked at everything again.
    """

    topics: int
    partitions: int
    replicas: int
    applied_s: float = 0.0
    ready_s: float = 0.0
    deleted_s: float = 0.0
    rest_s: float = 0.0
    restart_s: float = 0.0
    writes_at_rest: int = 0
    writes_after_restart: int = 0
    rss_mb_before: float = 0.0
    rss_mb: float = 0.0
    rss_mb_peak: float = 0.0
    rss_mb_after_restart: float = 0.0
    cpu_percent_at_rest: float = 0.0
    calls_to_ready: dict[str, int] = field(default_factory=dict)
    calls_at_rest: dict[str, int] = field(default_factory=dict)
    calls_after_restart: dict[str, int] = field(default_factory=dict)


def main(
    handle: Annotated[Path, typer.Option(help="the cluster that is up")],
    topics: Annotated[int, typer.Option(min=1)] = 1000,
    partitions: Annotated[int, typer.Option(min=1)] = 1,
    rest_s: Annotated[float, typer.Option(min=1)] = 300.0,
    out: Annotated[Path, typer.Option()] = Path("build/e2e/operator.json"),
) -> None:
    """Run by `python -m e2e figures`, from where the cluster can be reached."""
    console = Console(highlight=False)
    cluster = cluster_from_json(json.loads(handle.read_text()))
    try:
        found = Measurement(cluster, Figures(topics, partitions, REPLICAS), console).run(rest_s)
    except (CommandFailed, NotInTime) as error:
        console.print(f"[red]{error}[/red]", soft_wrap=True)
        raise typer.Exit(1) from error
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(asdict(found), indent=1) + "\n")
    show(found, console)
    console.print(f"Written: {out}")
    if found.writes_at_rest or found.writes_after_restart:
        console.print("[red]the operator wrote at rest[/red]")
        raise typer.Exit(1)


class Measurement:
    """One run. Installs the chart and the fleet of manifests/ where they are not there yet, and leaves them."""

    def __init__(self, cluster: KubernetesCluster, figures: Figures, console: Console) -> None:
        if cluster.audit is None:
            raise CommandFailed("this cluster has no audit log of the operator's calls: use the provider processes")
        self._audit = cluster.audit
        self._cluster = cluster
        self._kubernetes = Kubernetes(cluster.kubeconfig, cluster.kubectl)
        self._operator = OperatorDeployment(self._kubernetes)
        self._figures = figures
        self._progress = Progress(
            TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console,
        )  # fmt: skip

    def run(self, rest_s: float) -> Figures:
        with self._progress:
            self._install()
            self._rest("at rest without topics", QUIET_S)
            self._figures.rss_mb_before = self._resident_mb()
            self._create()
            self._at_rest(rest_s)
            self._after_restart(rest_s / 5)
            self._delete()
        return self._figures

    def _install(self) -> None:
        task = self._progress.add_task("operator and fleet", total=2)
        Helm(self._cluster).install()
        self._operator.until_ready()
        self._progress.advance(task)
        self._kubernetes.kubectl("apply", "-f", "-", text=manifests(self._cluster, "cluster.yaml"))
        self._kubernetes.until_ready(FLEET, timeout_s=300)
        self._kubernetes.until(self._may_format_nothing, "the permission to format is withdrawn")
        self._progress.advance(task)

    def _may_format_nothing(self) -> bool:
        """Whether no broker may format a disk: the last write for a new cluster."""
        brokers = self._kubernetes.list(STATEFUL_SET, selector=f"kafka.ottla.dev/cluster={FLEET}")
        names = [dig(broker, "metadata", "name") for broker in brokers if "-broker-" in broker["metadata"]["name"]]
        permissions = [self._kubernetes.there(CONFIG_MAP, f"{name}-format") for name in names]
        return bool(permissions) and all(dig(found, "data", "dirs") == "" for found in permissions)

    def _create(self) -> None:
        figures = self._figures
        task = self._progress.add_task("topics Ready", total=figures.topics)
        text = yaml.safe_dump_all(documents(figures), sort_keys=False)
        since, began = audit.mark(self._audit), time.monotonic()

        def apply() -> float:
            self._kubernetes.kubectl("apply", "--server-side", "-f", "-", text=text, timeout_s=LONGEST_S)
            return time.monotonic() - began

        with ThreadPoolExecutor(1) as pool:
            applied = pool.submit(apply)

            def are_ready() -> bool:
                if applied.done():
                    applied.result()  # raises what stopped it
                ready = len([1 for topic in self._topics() if condition_of(topic, "Ready").get("status") == "True"])
                self._progress.update(task, completed=ready)
                return ready == figures.topics

            self._until(are_ready, "every topic is Ready")
            figures.ready_s = time.monotonic() - began
            figures.applied_s = applied.result()
        figures.calls_to_ready = _named(audit.calls(self._audit, since))

    def _at_rest(self, rest_s: float) -> None:
        figures = self._figures
        self._until_quiet()
        since, cpu, began = audit.mark(self._audit), self._cpu_s(), time.monotonic()
        self._rest("at rest with topics", rest_s)
        figures.rest_s = time.monotonic() - began
        figures.cpu_percent_at_rest = (self._cpu_s() - cpu) / figures.rest_s * 100
        figures.calls_at_rest = _named(audit.calls(self._audit, since))
        figures.writes_at_rest = audit.writes(self._audit, since).total()
        figures.rss_mb, figures.rss_mb_peak = self._resident_mb(), self._resident_mb("VmHWM")

    def _after_restart(self, rest_s: float) -> None:
        figures = self._figures
        before = [uid_of(pod) for pod in self._operator.pods()]
        since, began = audit.mark(self._audit), time.monotonic()
        self._operator.kill()
        self._until(lambda: any(uid_of(pod) not in before for pod in self._operator.pods()), "another operator")
        self._operator.until_ready()
        self._rest("at rest after a restart", rest_s)
        figures.restart_s = time.monotonic() - began
        figures.calls_after_restart = _named(audit.calls(self._audit, since))
        figures.writes_after_restart = audit.writes(self._audit, since).total()
        figures.rss_mb_after_restart = self._resident_mb()

    def _delete(self) -> None:
        figures = self._figures
        task = self._progress.add_task("topics deleted", total=figures.topics)
        began = time.monotonic()
        self._kubernetes.kubectl(
            "delete", "kafkatopics", "--selector", f"{LABEL}=yes", "--wait=false", timeout_s=LONGEST_S
        )

        def are_gone() -> bool:
            left = len(self._topics())
            self._progress.update(task, completed=figures.topics - left)
            return left == 0

        self._until(are_gone, "every topic is gone")
        figures.deleted_s = time.monotonic() - began

    def _topics(self) -> Sequence[Obj]:
        return self._kubernetes.list(KAFKA_TOPIC, selector=f"{LABEL}=yes")

    def _until_quiet(self) -> None:
        while True:
            since = audit.mark(self._audit)
            self._rest("until nothing is written", QUIET_S)
            if not audit.writes(self._audit, since):
                return

    def _rest(self, what: str, seconds: float) -> None:
        task = self._progress.add_task(what, total=round(seconds))
        for _ in range(round(seconds)):
            time.sleep(1)
            self._progress.advance(task)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LONGEST_S
        while not holds():
            if time.monotonic() > deadline:
                raise NotInTime(f"{what}: not within {LONGEST_S:.0f} s")
            time.sleep(POLL_S)

    def _resident_mb(self, field_name: str = "VmRSS") -> float:
        """Memory of the operator's process, which is the first of its container."""
        return memory_bytes(self._operator.read("/proc/1/status"), field_name) / 1e6

    def _cpu_s(self) -> float:
        return cpu_s(self._operator.read("/proc/1/stat"))


def documents(figures: Figures) -> list[dict[str, Any]]:
    """The KafkaTopics that are applied.

    >>> documents(Figures(2, 1, 3))[1]["metadata"]["name"]
    'figures-0001'
    """
    spec = {
        "clusterRef": {"name": FLEET},
        "partitions": figures.partitions,
        "replicas": figures.replicas,
        "config": {"retention.ms": 604800000},
    }
    return [
        {
            "apiVersion": KAFKA_TOPIC.api_version,
            "kind": KAFKA_TOPIC.kind,
            "metadata": {"name": f"figures-{number:04}", "namespace": "default", "labels": {LABEL: "yes"}},
            "spec": spec,
        }
        for number in range(figures.topics)
    ]


def show(figures: Figures, console: Console) -> None:
    """The figures as a table."""
    table = Table("figure", "value")
    shape = f"{figures.topics} topics, partitions × replicas {figures.partitions} × {figures.replicas}"
    rows = {
        f"{shape}: kubectl apply": f"{figures.applied_s:.1f} s",
        "from kubectl apply to all Ready": f"{figures.ready_s:.1f} s",
        "calls until then": _lines(figures.calls_to_ready),
        f"writes in {figures.rest_s:.0f} s at rest, Lease apart": str(figures.writes_at_rest),
        "calls at rest": _lines(figures.calls_at_rest),
        "processor time at rest": f"{figures.cpu_percent_at_rest:.1f} % of one core",
        f"writes in {figures.restart_s:.0f} s after a restart": str(figures.writes_after_restart),
        "calls after a restart": _lines(figures.calls_after_restart),
        "resident memory without topics": f"{figures.rss_mb_before:.0f} MB",
        "… with them at rest (peak)": f"{figures.rss_mb:.0f} MB ({figures.rss_mb_peak:.0f} MB)",
        "… after a restart": f"{figures.rss_mb_after_restart:.0f} MB",
        "from kubectl delete to all gone": f"{figures.deleted_s:.1f} s",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)


def _named(calls: Counter[Call]) -> dict[str, int]:
    return {str(call): count for call, count in sorted(calls.items(), key=lambda item: str(item[0]))}


def _lines(calls: dict[str, int]) -> str:
    return "\n".join(f"{count} × {call}" for call, count in calls.items()) or "none"


if __name__ == "__main__":
    typer.run(main)
