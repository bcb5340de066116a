"""The StatefulSet of each broker, why brokers have to be restarted, and the condition BrokersReady.

Templates of existing brokers are not written here: `pending` names what has changed, and the roller writes a template
when it restarts that broker. So an evicted pod comes back as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ottla_documents.broker_pools import BrokerPool
from ottla_documents.templates import OWN_LABELS
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import BROKERS_READY
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
from ottla_operator.api.names import CLIENT_PORT, HTTP_PORT, INTERNAL_PORT
from ottla_operator.api.objects import (
    STATEFUL_SET,
    Obj,
    annotation,
    dig,
    has_condition,
    lasting_label,
    name_of,
    new,
    owned,
)
from ottla_operator.api.ownership import is_ours
from ottla_operator.concerns.config.config import FILE, ConfigDecision
from ottla_operator.concerns.disks.disks import PERMISSION_KEY, DisksDecision, has_no_provisioner
from ottla_operator.concerns.fleet.broker_removal import RemovalDecision
from ottla_operator.concerns.fleet.identity import Identities
from ottla_operator.facts.broker_claims import Claim, mount_path
from ottla_operator.facts.difference import template_is_as_declared
from ottla_operator.facts.images import FIELDS as IMAGE_FIELDS
from ottla_operator.facts.images import container_image
from ottla_operator.facts.progress import excused
from ottla_operator.facts.revisions import has_current_revision, revisions_known
from ottla_operator.facts.snapshot import ConcernDecision, Snapshot
from ottla_operator.objects.pod_template import with_template
from ottla_operator.objects.pods import (
    CONTAINER_SECURITY,
    TERMINATION_POLICY,
    broker_not_ready_reason,
    pod_security,
    resource_requirements,
    stateful_set,
)

GRACE_S = 300
CONFIG_DIR = "/etc/ottla"
SESSION_LOST_AFTER_MS = 15_000
POD_FIELDS = (
    "spec.brokers.resources", "spec.brokers.template.pod", "spec.brokers.logging", *IMAGE_FIELDS,
)  # fmt: skip
"""The fields that only the pods follow from: with a problem of theirs it is not known how a broker should be."""
_SPEC_FIELDS = (
    "serviceName", "podManagementPolicy", "updateStrategy", "revisionHistoryLimit", "selector", "template",
)  # fmt: skip
"""The fields of a StatefulSet's spec that the operator sets, beside the number of replicas."""


@dataclass(frozen=True, slots=True)
class BrokersDecision:
    """`stateful_sets`: each broker's as it should be, for the roller; absent while something that it needs is unknown.

    `pending`: why a broker has to be restarted, by id. `unknown`: why it is not known how an existing broker should be;
    it keeps its template, and Rolled is False.
    """

    decision: ConcernDecision
    stateful_sets: Mapping[int, Obj]
    pending: Mapping[int, tuple[str, ...]]
    unknown: Mapping[int, str] = field(default_factory=dict)


def decide_brokers(
    snapshot: Snapshot,
    identities: Identities,
    removal: RemovalDecision,
    disks: DisksDecision,
    config: ConfigDecision,
    zookeeper_ready: bool,
) -> BrokersDecision:
    """The StatefulSets of new and stopping brokers to write, and why existing ones have to be restarted."""
    configs = config.names
    stateful_sets: dict[int, Obj] = {}
    desired: list[Obj] = []
    pending: dict[int, tuple[str, ...]] = {}
    not_created: list[str] = []
    unknown: dict[int, str] = {}
    for broker_id, rack in identities.racks.items():
        live = snapshot.get(STATEFUL_SET, names.broker_name(snapshot.cluster.name, broker_id))
        pool = snapshot.pools.get(broker_id)
        if pool is None:
            if live is None:
                text = f"spec.brokers.pools does not name its pool, {snapshot.pool_names.get(broker_id)}"
                not_created.append(f"broker {broker_id}: {text}")
            elif is_ours(live, snapshot.resource) and broker_id in removal.stopping:
                desired.append(_as_it_is(snapshot, live, replicas=0))
            continue
        claims = disks.claims.get(broker_id, ())
        blocker = _template_blocker(
            snapshot, broker_id, disks, claims, configs, zookeeper_ready=zookeeper_ready or live is not None
        )
        if blocker is None and broker_id in disks.kept:
            blocker = f"broker {broker_id}: it has a disk that {pool.path_of('disks')} does not name"
        if blocker is not None:
            if live is None:
                not_created.append(blocker)
            else:
                unknown[broker_id] = blocker
            continue
        if broker_id in removal.stopping:
            if live is not None:  # only with every other decision: it can come back with this template
                stopped = build_stateful_set(snapshot, pool, broker_id, rack, claims, configs[broker_id])
                desired.append({**stopped, "spec": {**stopped["spec"], "replicas": 0}})
            continue
        stateful_sets[broker_id] = build_stateful_set(snapshot, pool, broker_id, rack, claims, configs[broker_id])
        if live is None:
            desired.append(stateful_sets[broker_id])
        elif is_ours(live, snapshot.resource):
            is_current = template_is_as_declared(snapshot, live, stateful_sets[broker_id])
            if reasons := pending_reasons(snapshot, live, stateful_sets[broker_id], is_current=is_current):
                pending[broker_id] = reasons
    decision = ConcernDecision((_condition(snapshot, identities, removal, not_created),), tuple(desired))
    return BrokersDecision(decision, stateful_sets, pending, unknown)


def _as_it_is(snapshot: Snapshot, live: Obj, *, replicas: int) -> Obj:
    """The StatefulSet of a broker of which nothing is declared any more, with another number of replicas."""
    metadata, spec = live["metadata"], {key: live["spec"][key] for key in _SPEC_FIELDS if key in live["spec"]}
    labels = {
        key: value for key, value in metadata["labels"].items() if key in OWN_LABELS or key.startswith(names.GROUP)
    }
    kept = new(STATEFUL_SET, metadata["namespace"], name_of(live), labels, spec={**spec, "replicas": replicas})
    return owned(kept, snapshot.resource)


def build_stateful_set(
    snapshot: Snapshot, pool: BrokerPool, broker_id: int, rack: str, claims: tuple[Claim, ...], config: str
) -> Obj:
    """The StatefulSet of one broker: not root, a read-only root file system, bound to the nodes of its rack.

    Its selector cannot change, so a broker that has joined another pool keeps the label of the pool that it was created
    in; claims record the pool.
    """
    cluster = snapshot.cluster
    live = snapshot.get(STATEFUL_SET, names.broker_name(cluster.name, broker_id))
    created_in = lasting_label(live, names.POOL) if live is not None else None
    labels = names.labels(cluster.name, names.BROKER, pool=created_in or pool.name, broker_id=str(broker_id), rack=rack)
    leave = {"name": names.format_permission(cluster.name, broker_id), "key": PERMISSION_KEY}
    container: Obj = {
        "name": names.BROKER,
        "image": snapshot.images.broker,
        "args": ["broker", "run", f"{CONFIG_DIR}/{FILE}", "--override", "ottla.log.dirs.format=$(OTTLA_FORMAT)"],
        "env": [{"name": "OTTLA_FORMAT", "valueFrom": {"configMapKeyRef": leave}}],
        "ports": [
            {"name": "internal", "containerPort": INTERNAL_PORT},
            {"name": "client", "containerPort": CLIENT_PORT},
            {"name": "http", "containerPort": HTTP_PORT},
        ],
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            *({"name": claim.disk, "mountPath": mount_path(claim.disk)} for claim in claims),
        ],
        "startupProbe": _probe("/livez", period=1, failures=120),  # the members of a batch wait for the last one
        "livenessProbe": _probe("/livez", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=1, failures=2),  # how soon its Service drops it: config.SERVE_MS
        "resources": resource_requirements(pool.resources),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": TERMINATION_POLICY,
    }
    if cluster.brokers.log_level:
        container["env"].append({"name": "OTTLA_LOG_LEVEL", "value": cluster.brokers.log_level})
    if snapshot.images.pull_policy:
        container["imagePullPolicy"] = snapshot.images.pull_policy
    rack_term = {"matchExpressions": [{"key": cluster.brokers.rack_key, "operator": "In", "values": [rack]}]}
    others = {names.CLUSTER: cluster.name, "app.kubernetes.io/component": names.BROKER}
    pod_spec: Obj = {
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": config}},
            {"name": "tmp", "emptyDir": {}},
            *({"name": c.disk, "persistentVolumeClaim": {"claimName": c.name}} for c in claims),
        ],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [rack_term]}},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": others},
                            "topologyKey": "kubernetes.io/hostname",
                        },
                    }
                ]
            },
        },
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": pod_security(),
    }
    if has_no_provisioner(snapshot, pool):
        # The data is on that node: an evicted pod could not be scheduled anywhere else.
        pod_spec["tolerations"] = [
            {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
            for state in ("not-ready", "unreachable")
        ]
    name = names.broker_name(cluster.name, broker_id)
    service = names.brokers_service(cluster.name)
    annotations = {names.CONFIG: config, names.PROTOCOL: cluster.version}
    built = stateful_set(cluster.namespace, name, labels, service, pod_spec, annotations)
    return owned(with_template(built, pool.template.pod), snapshot.resource)


def _probe(path: str, *, period: int, failures: int) -> Obj:
    return {
        "httpGet": {"path": path, "port": HTTP_PORT},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _images(stateful_set: Obj) -> list[str]:
    """The image of our container; those of other containers are like any other field of a template."""
    pod_spec = dig(stateful_set, "spec", "template", "spec")
    return [container_image(pod_spec, name) for name in (names.BROKER, names.ZOOKEEPER)]


def _config_changed(live: Obj, declared: Obj) -> bool:
    now, then = (annotation(dig(obj, "spec", "template"), names.CONFIG) for obj in (live, declared))
    return now != then and not _protocol_raised(live, declared)


def _protocol_raised(live: Obj, declared: Obj) -> bool:
    """The second roll of an upgrade: nothing else has changed when it begins (`concerns.upgrades.versions`)."""
    now, then = (annotation(dig(obj, "spec", "template"), names.PROTOCOL) for obj in (live, declared))
    return now is not None and now != then


def _super_user_changed(live: Obj, declared: Obj) -> bool:
    """The Secret of ZooKeeper's super user was made again."""
    now, then = (annotation(dig(obj, "spec", "template"), names.SUPER_USER) for obj in (live, declared))
    return now != then


def _image_changed(live: Obj, declared: Obj) -> bool:
    return _images(live) != _images(declared)


_CHECKS: tuple[tuple[str, Callable[[Obj, Obj], bool]], ...] = (
    ("ConfigChanged", _config_changed),
    ("ImageChanged", _image_changed),
    ("ProtocolRaised", _protocol_raised),
    ("SuperUserChanged", _super_user_changed),
)
"""The checks of a template, in the order in which reasons are shown; TemplateChanged when none of them finds any."""


def pending_reasons(snapshot: Snapshot, live: Obj, declared: Obj, *, is_current: bool) -> tuple[str, ...]:
    """Every reason to replace the pod. `kubectl rollout restart` causes PodOutdated.

    Args:
        is_current: `template_is_as_declared` of the two.
    """
    pod = snapshot.pod(names.pod_of(str(live["metadata"]["name"])))
    reasons = [] if is_current else [name for name, check in _CHECKS if check(live, declared)]
    if pod is not None and revisions_known(live) and not has_current_revision(live, pod):
        reasons.append("PodOutdated")
    return tuple(reasons) or (() if is_current else ("TemplateChanged",))


def _template_blocker(
    snapshot: Snapshot,
    broker_id: int,
    disks: DisksDecision,
    claims: tuple[Claim, ...],
    configs: Mapping[int, str],
    *,
    zookeeper_ready: bool,
) -> str | None:
    """Why it is not known how a broker's StatefulSet should be; None when it is. Ordered checks."""
    if snapshot.problems_below(*POD_FIELDS):
        return f"broker {broker_id}: see BrokersReady"
    if not disks.can_use or not claims:
        return f"broker {broker_id}: see DisksReady"
    if broker_id not in configs:
        return f"broker {broker_id}: see ConfigValid"
    if not zookeeper_ready:
        return f"broker {broker_id}: see ZooKeeperReady"
    return None


def _condition(
    snapshot: Snapshot, identities: Identities, removal: RemovalDecision, not_created: list[str]
) -> Condition:
    if identities.waiting is not None:
        return identities.waiting
    if wrong := snapshot.problems_below(*POD_FIELDS):
        return invalid_spec(BROKERS_READY, wrong)
    if not_created:
        return condition_false(BROKERS_READY, "WaitingToCreate", "; ".join(not_created[:5]))
    waiting: list[str] = []
    pods = {
        broker_id: snapshot.pod(names.pod_of(names.broker_name(snapshot.cluster.name, broker_id)))
        for broker_id in identities.racks
        if broker_id not in removal.stopping
    }
    rolling = excused(snapshot, names.BROKER, pods)
    for broker_id, pod in pods.items():
        if broker_id in rolling:
            continue
        name = names.broker_name(snapshot.cluster.name, broker_id)
        if pod is None:
            waiting.append(f"{broker_id} has no pod{snapshot.creation_failure(name)}")
        elif not has_condition(pod, "Ready"):
            waiting.append(f"{broker_id} {broker_not_ready_reason(pod, snapshot.reports.get(broker_id))}")
    if waiting:
        return condition_false(BROKERS_READY, "WaitingForBrokers", f"not ready: {', '.join(waiting[:5])}")
    if lost := lost_sessions(snapshot):
        return condition_false(
            BROKERS_READY, "ZooKeeperSessionLost", f"no session with ZooKeeper: {', '.join(lost[:5])}"
        )
    return removal.condition or condition_true(BROKERS_READY)


def lost_sessions(snapshot: Snapshot) -> list[str]:
    """The brokers without a ZooKeeper session for longer than ZooKeeper needs to elect a leader.

    Such a broker is ready and serves on, outside of the cluster: making it unready would help no client.
    """
    return [
        f"broker {broker_id} {report.session} since {utc(report.session_since_ms)}"
        for broker_id, report in sorted(snapshot.reports.items())
        if report.session in ("suspended", "expired") and report.session_for_ms >= SESSION_LOST_AFTER_MS
    ]


def utc(ms: int) -> str:
    """
    >>> utc(1767225600999)
    '2026-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
