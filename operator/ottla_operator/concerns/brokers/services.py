"""The Services of the brokers, with the disruption budgets of `budgets`, and the condition ServicesReady.

There is a headless Service for the listener INTERNAL with every pod, a ClusterIP for each broker, which the listener
CLIENT advertises and which outlives the pod, and the bootstrap Service. Those for clients have ready pods only: a
Service without a pod refuses a connection at once, whereas a connection to the address of a pod that is gone gets no
answer (docs/internals/decisions/0030).
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_documents.templates import AddedMetadata
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import SERVICES_READY
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
from ottla_operator.api.names import CLIENT_PORT, HTTP_PORT, INTERNAL_PORT
from ottla_operator.api.objects import SERVICE, Obj, name_of, new, owned
from ottla_operator.concerns.brokers.budgets import decide_budgets
from ottla_operator.facts.snapshot import ConcernDecision, Snapshot
from ottla_operator.objects.pod_template import with_metadata

SERVICE_FIELDS = ("spec.brokers.template.service", "spec.brokers.template.bootstrapService")


def bootstrap_address(snapshot: Snapshot) -> str:
    cluster = snapshot.cluster
    return f"{names.host(names.bootstrap_service(cluster.name), cluster.namespace)}:{CLIENT_PORT}"


def selector_text(cluster: str) -> str:
    """The label selector of the pods of brokers, as text for the scale subresource."""
    return ",".join(f"{key}={value}" for key, value in _selector(cluster).items())


def decide_services(snapshot: Snapshot, broker_ids: Iterable[int]) -> ConcernDecision:
    """The Services of the cluster and of each broker, and the budgets that allow one eviction at a time."""
    ids = list(broker_ids)
    name = snapshot.cluster.name
    template = snapshot.cluster.brokers.template
    desired = [
        _service(
            snapshot,
            names.brokers_service(name),
            _selector(name),
            {"internal": INTERNAL_PORT, "http": HTTP_PORT},
            template.service,
            clusterIP="None",
            publishNotReadyAddresses=True,
        ),
        _service(
            snapshot,
            names.bootstrap_service(name),
            _selector(name),
            {"client": CLIENT_PORT},
            template.bootstrap_service,
            publishNotReadyAddresses=False,
        ),
    ]
    for broker_id in ids:
        pool = snapshot.pools.get(broker_id)
        desired.append(
            _service(
                snapshot,
                names.broker_name(name, broker_id),
                {**_selector(name), names.BROKER_ID: str(broker_id)},
                {"client": CLIENT_PORT},
                template.service if pool is None else pool.template.service,
                broker_id,
                publishNotReadyAddresses=False,
            )
        )
    wrong = snapshot.problems_below(*SERVICE_FIELDS)
    if wrong:  # those that exist stay as they are
        desired = [service for service in desired if snapshot.get(SERVICE, name_of(service)) is None]
    budgets = decide_budgets(snapshot, ids)
    desired += budgets.desired
    condition = invalid_spec(SERVICES_READY, wrong) if wrong else _condition(snapshot, desired)
    return ConcernDecision((condition,), tuple(desired), requeue_after_s=budgets.requeue_after_s)


def _condition(snapshot: Snapshot, desired: Iterable[Obj]) -> Condition:
    """True once the Services are there; what is missing is created right after this decision, unless paused."""
    if snapshot.cluster.paused:
        services = [name_of(obj) for obj in desired if obj["kind"] == SERVICE.kind]
        missing = [name for name in services if snapshot.get(SERVICE, name) is None]
        if missing:
            return condition_false(SERVICES_READY, "Paused", f"spec.paused: not created: {', '.join(missing[:5])}")
    return condition_true(SERVICES_READY)


def _selector(cluster: str) -> dict[str, str]:
    return {names.CLUSTER: cluster, "app.kubernetes.io/component": names.BROKER}


def _service(
    snapshot: Snapshot,
    name: str,
    selector: dict[str, str],
    ports: dict[str, int],
    added: AddedMetadata,
    broker_id: int | None = None,
    **more: object,
) -> Obj:
    cluster = snapshot.cluster
    extra = {} if broker_id is None else {"pool": snapshot.pool_names[broker_id], "broker_id": str(broker_id)}
    labels = names.labels(cluster.name, names.BROKER, **extra)
    spec = {
        **more,
        "selector": selector,
        "ports": [{"name": port_name, "port": port} for port_name, port in ports.items()],
    }
    service = new(SERVICE, cluster.namespace, name, labels, spec=spec)
    return owned(with_metadata(service, added), snapshot.resource)
