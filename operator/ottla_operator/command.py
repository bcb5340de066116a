"""`ottla operator run`: the operator as a process, inside a cluster or with KUBECONFIG from outside."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Coroutine
from typing import Annotated, Any, NoReturn, TextIO, TypeVar

import typer

EXAMPLE = """\
On Kubernetes the chart runs it:

\b
helm install ottla charts/ottla -n ottla-system --create-namespace
kubectl apply -f manifests/cluster.yaml -f manifests/topics.yaml

Outside of a cluster, with the rights of a kubeconfig:

\b
KUBECONFIG=~/.kube/config ottla operator run --broker-image ottla:0.1
"""
T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
NEEDED = ("kopf", "kubernetes", "kafka")
DEFAULT_ZOOKEEPER_IMAGE = "zookeeper:3.9"
DEFAULT_LEASE = "ottla-operator"
DEFAULT_ROLLING_CLUSTERS = 3
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
QUIETER = {
    "kopf": logging.WARNING,
    "kafka": logging.CRITICAL,
    "kazoo": logging.ERROR,
    "aiohttp.access": logging.WARNING,
}
"""Libraries that log every watch event, every connection to a broker or a ZooKeeper server, every probe.

kafka-python logs an ERROR for every broker that is down, as in every roll and after every deleted cluster. Failed
requests raise an exception, and the operator logs it.
"""


@app.callback(epilog=EXAMPLE)
def _group() -> None:
    """The Kubernetes operator."""


@app.command(short_help="Serves the documents until SIGTERM.")
def run(
    broker_image: Annotated[
        str, typer.Option(envvar="OTTLA_BROKER_IMAGE", metavar="IMAGE", help="Image that brokers run; required.")
    ] = "",
    zookeeper_image: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_ZOOKEEPER_IMAGE",
            metavar="IMAGE",
            help="Image of a ZooKeeper 3.9 with bash, flock and zkServer.sh.",
        ),
    ] = DEFAULT_ZOOKEEPER_IMAGE,
    image_pull_policy: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_IMAGE_PULL_POLICY", metavar="POLICY", help="Of both images: Always, IfNotPresent or Never."
        ),
    ] = "",
    namespace: Annotated[
        str, typer.Option(envvar="OTTLA_NAMESPACE", metavar="NAMESPACE", help="Where the operator's lease is.")
    ] = "default",
    watch_namespaces: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_WATCH_NAMESPACES", metavar="NAMES", help="Serve these namespaces only (a,b); empty: all."
        ),
    ] = "",
    nodes: Annotated[
        bool,
        typer.Option(envvar="OTTLA_READ_NODES", help="Read nodes for racks; without it spec.brokers.racks names them."),
    ] = True,
    pipeline_image: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_PIPELINE_IMAGE", metavar="IMAGE", help="Image of pipelines whose document names none."
        ),
    ] = "",
    liveness: Annotated[
        str,
        typer.Option(envvar="OTTLA_LIVENESS", metavar="URL", help="Where the probe is answered; beside it /metrics."),
    ] = ("http://0.0.0.0:8080/healthz"),
    lease: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_LEASE", metavar="NAME", help="Name of the lease; operators of one lease work one at a time."
        ),
    ] = DEFAULT_LEASE,
    max_rolling_clusters: Annotated[
        int,
        typer.Option(
            envvar="OTTLA_MAX_ROLLING_CLUSTERS",
            metavar="N",
            min=0,
            help="Clusters that are rolled at the same time; 0: any number.",
        ),
    ] = DEFAULT_ROLLING_CLUSTERS,
) -> None:
    """Serves KafkaCluster, KafkaTopic and KafkaPipeline until SIGTERM. Needs the package's extra named operator."""
    _require_extra()
    if not broker_image:
        _fail(
            "--broker-image (OTTLA_BROKER_IMAGE): name the image that brokers run. On Kubernetes the chart sets it; "
            "outside of a cluster: KUBECONFIG=~/.kube/config ottla operator run --broker-image ottla:0.1"
        )
    from ottla_operator.effects.environment import ProductionEnvironment
    from ottla_operator.facts.snapshot import ContainerImages
    from ottla_operator.runtime.operator import Operator, OperatorSettings
    from ottla_operator.runtime.pipeline_task import PipelineImage

    configure_log(sys.stderr)
    settings = OperatorSettings(
        images=ContainerImages(broker_image, zookeeper_image, image_pull_policy),
        namespace=namespace,
        identity=f"{socket.gethostname()}-{os.getpid()}",
        watch_namespaces=_names(watch_namespaces),
        reads_nodes=nodes,
        liveness=liveness,
        lease=lease,
        most_rolling=max_rolling_clusters,
        pipeline=PipelineImage(pipeline_image, image_pull_policy),
    )

    async def serve() -> None:
        environment = ProductionEnvironment()
        try:
            await Operator(settings, environment).run()
        finally:
            await environment.close()

    _run(serve())


@app.command(short_help="Lets go of all KafkaTopics, before uninstalling.")
def release(
    namespace: Annotated[
        str, typer.Option(envvar="OTTLA_NAMESPACE", metavar="NAMESPACE", help="Where the lease is.")
    ] = "default",
    watch_namespaces: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_WATCH_NAMESPACES", metavar="NAMES", help="Only topics of these namespaces (a,b); empty: all."
        ),
    ] = "",
    lease: Annotated[
        str, typer.Option(envvar="OTTLA_LEASE", metavar="NAME", help="Name of the lease.")
    ] = DEFAULT_LEASE,
) -> None:
    """Before uninstalling: removes the finalizer from all KafkaTopics, so that none waits for an operator that is gone.

    The running operator loses its lease and stops. Topics in Kafka stay.
    """
    _require_extra()
    from ottla_operator.effects.environment import ProductionEnvironment
    from ottla_operator.effects.kubernetes_api import KubernetesClient
    from ottla_operator.runtime.release import release_topics

    async def do() -> int:
        api = await KubernetesClient.connect()
        try:
            now = ProductionEnvironment().now
            return await release_topics(api, namespace, _names(watch_namespaces), now, asyncio.sleep, lease)
        finally:
            await api.close()

    sys.stdout.write(f"released {_run(do())} topics\n")


def _run(work: Coroutine[Any, Any, T]) -> T:
    from ottla_operator.effects.kubernetes_api import NoKubernetes
    from ottla_operator.ports import ApiError

    try:
        return asyncio.run(work)
    except NoKubernetes as error:
        _fail(str(error))
    except ApiError as error:
        _fail(f"Kubernetes: {error}")


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"{message}\n")
    raise typer.Exit(1)


def _names(text: str) -> tuple[str, ...]:
    """
    >>> _names("team-a, team-b"), _names("")
    (('team-a', 'team-b'), ())
    """
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def configure_log(stream: TextIO) -> None:
    """Logs what the operator does and why, a line for each, and of the libraries only errors."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for name, level in QUIETER.items():
        logging.getLogger(name).setLevel(level)


def _require_extra() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        _fail(f"{', '.join(missing)} is missing: pip install 'ottla[operator]'")
