"""What a team adds to pods, Services and claims: it arrives, it is rolled, and it breaks nothing of ours."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ottla_operator.api.comparison import differences
from ottla_operator.api.objects import CLAIM, POD, SERVICE, STATEFUL_SET, Obj, dig, uid_of
from ottla_operator.objects.pods import container_status
from tests.operator.fleet import CLUSTER, Fleet
from tests.operator.kubernetes_fields import faults_of

ROLES = {"brokers": ("orders-broker-1", "broker"), "zookeeper": ("orders-zookeeper-1", "zookeeper")}
EVERYTHING: Obj = {
    "priorityClassName": "high",
    "serviceAccountName": "kafka",
    "imagePullSecrets": [{"name": "registry"}],
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "kafka", "effect": "NoSchedule"}],
    "nodeSelector": {"disk": "nvme"},
    "terminationGracePeriodSeconds": 600,
    "hostAliases": [{"ip": "10.0.0.7", "hostnames": ["ldap"]}],
    "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
    "securityContext": {"runAsUser": 2000, "fsGroup": 2000, "supplementalGroups": [7]},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
    "initContainers": [{"name": "prepare", "image": "tools:1", "command": ["true"]}],
    "volumes": [{"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "cpu", "operator": "In", "values": ["amd"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                ]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"noisy": "yes"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        },
    },
}


def _ours(name: str, **fields: Any) -> Obj:
    own = {"env": [{"name": "TZ", "value": "UTC"}], "envFrom": [{"secretRef": {"name": "extra"}}]}
    mounts = [{"name": "keys", "mountPath": "/etc/keys", "readOnly": False}]
    ports = [{"name": "jmx", "containerPort": 5555}]
    return {"name": name, **own, "volumeMounts": mounts, "ports": ports, **fields}


def _everything(name: str) -> Obj:
    agent = {"name": "agent", "image": "agent:1", "resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}}}
    return {**copy.deepcopy(EVERYTHING), "containers": [_ours(name), agent]}


def _document(role: str, template: Obj) -> Obj:
    document = copy.deepcopy(CLUSTER)
    document["spec"][role]["template"] = template
    return document


async def _running() -> Fleet:
    fleet = Fleet(copy.deepcopy(CLUSTER))
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"
    return fleet


def _uids(fleet: Fleet) -> dict[str, str]:
    return {name: uid_of(fleet.kubernetes.there(POD, name)) for name in fleet.kubernetes.names(POD)}


def _spec(fleet: Fleet, role: str) -> Obj:
    template: Obj = fleet.kubernetes.there(STATEFUL_SET, ROLES[role][0])["spec"]["template"]
    return template["spec"]


@pytest.mark.parametrize("role", ROLES)
async def test_what_a_template_adds_reaches_the_pods_and_the_cluster_rests(role: str) -> None:
    name, container = ROLES[role]
    bare = await _running()
    own = _spec(bare, role)
    metadata = {"labels": {"team": "orders"}, "annotations": {"prometheus.io/scrape": "true"}}
    fleet = Fleet(_document(role, {"pod": {"metadata": metadata, "spec": _everything(container)}}))
    await fleet.converge()
    assert fleet.condition("Ready") == ("True", "AsDeclared", "")
    stateful_set = fleet.kubernetes.there(STATEFUL_SET, name)
    assert faults_of(stateful_set) == []
    template, spec = stateful_set["spec"]["template"], _spec(fleet, role)
    assert template["metadata"]["labels"]["team"] == "orders"
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
    assert "team" not in stateful_set["spec"]["selector"]["matchLabels"], "a selector never changes"
    for field in ("priorityClassName", "serviceAccountName", "imagePullSecrets", "nodeSelector", "hostAliases"):
        assert spec[field] == EVERYTHING[field]
    assert spec["terminationGracePeriodSeconds"] == 600 and spec["dnsConfig"] == EVERYTHING["dnsConfig"]
    assert spec["securityContext"] == {**own["securityContext"], **EVERYTHING["securityContext"]}
    assert spec["tolerations"][0] == EVERYTHING["tolerations"][0]
    assert spec["topologySpreadConstraints"][-1] == EVERYTHING["topologySpreadConstraints"][0]
    assert [one["name"] for one in spec["initContainers"]] == ["prepare"]
    ours, agent = spec["containers"]
    assert (ours["name"], agent["name"]) == (container, "agent")
    for field, value in own["containers"][0].items():
        if field in ("env", "ports", "volumeMounts"):
            assert ours[field] == [*value, *_ours(container)[field]]
        else:
            assert ours[field] == value
    assert ours["envFrom"] == _ours(container)["envFrom"]
    assert spec["volumes"] == [*own["volumes"], *EVERYTHING["volumes"]]
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert fleet.kubernetes.writes == []


async def test_a_brokers_rack_is_required_in_every_term_of_an_added_affinity() -> None:
    fleet = Fleet(_document("brokers", {"pod": {"spec": {"affinity": EVERYTHING["affinity"]}}}))
    await fleet.converge()
    spec = _spec(fleet, "brokers")
    affinity = spec["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    rack = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [fleet.racks()["orders-broker-1"]]}
    cpu = {"key": "cpu", "operator": "In", "values": ["amd"]}
    name = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert terms == [{"matchExpressions": [rack, cpu]}, {"matchExpressions": [rack], "matchFields": [name]}]
    anti = affinity["podAntiAffinity"]
    assert len(anti["preferredDuringSchedulingIgnoredDuringExecution"]) == 1, "ours: brokers on different nodes"
    assert len(anti["requiredDuringSchedulingIgnoredDuringExecution"]) == 1


async def test_a_broker_with_local_volumes_tolerates_a_lost_node_whatever_is_added() -> None:
    document = _document("brokers", {"pod": {"spec": {"tolerations": EVERYTHING["tolerations"]}}})
    fleet = Fleet(document)
    storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    fleet.kubernetes.put({**storage_class, "provisioner": "kubernetes.io/no-provisioner"})
    await fleet.converge()
    found = [item["key"] for item in _spec(fleet, "brokers")["tolerations"]]
    assert found == ["dedicated", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    shorter = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 60}
    fleet.edit("spec.brokers.template.pod.spec.tolerations", [shorter])
    await fleet.converge()
    found = _spec(fleet, "brokers")["tolerations"]
    assert shorter in found and len(found) == 2, "what a user says of one of our taints replaces ours"


async def test_a_security_context_can_be_replaced_as_a_whole() -> None:
    """OpenShift chooses the user id, and admits no pod that names another."""
    replaced = {"$patch": "replace", "runAsNonRoot": True}
    fleet = Fleet(_document("brokers", {"pod": {"spec": {"securityContext": replaced}}}))
    await fleet.converge()
    assert _spec(fleet, "brokers")["securityContext"] == {"runAsNonRoot": True}


@pytest.mark.parametrize("role", ROLES)
async def test_a_change_of_a_template_is_rolled_and_what_is_dropped_goes(role: str) -> None:
    fleet = await _running()
    before = _uids(fleet)
    container = ROLES[role][1]
    fleet.edit(f"spec.{role}.template", {"pod": {"spec": _everything(container)}})
    reasons = set()
    for _ in range(120):
        await fleet.step()
        for broker in fleet.status("brokers") or []:
            reasons |= set(broker.get("pending") or [])
    await fleet.converge()
    changed = {name for name, uid in _uids(fleet).items() if before[name] != uid}
    assert changed == {name for name in before if f"-{container}-" in name}
    assert "TemplateChanged" in reasons or role == "zookeeper"
    assert "ImageChanged" not in reasons
    fleet.edit(f"spec.{role}.template", None)
    await fleet.converge(200)
    spec = _spec(fleet, role)
    assert len(spec["containers"]) == 1 and "priorityClassName" not in spec and not spec.get("initContainers")
    assert fleet.condition("Ready")[0] == "True" and fleet.condition("Rolled")[0] == "True"


REFUSED = [
    ({"restartPolicy": "Never"}, "restartPolicy", "cannot be set"),
    ({"hostname": "x"}, "hostname", "cannot be set"),
    ({"subdomain": "x"}, "subdomain", "cannot be set"),
    ({"nodeName": "n1"}, "nodeName", "use nodeSelector"),
    ({"priority": 5}, "priority", "use priorityClassName"),
    ({"containers": [{"image": "x"}]}, "containers[0].name", "is required"),
    ({"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "y"}]}, "containers[1]", "a is named twice"),
    ({"containers": [{"name": "agent"}]}, "containers[0].image", "is required"),
    ({"initContainers": [{"name": "CONTAINER", "image": "x"}]}, "initContainers[0].name", "the name of our container"),
    ({"containers": [{"name": "CONTAINER", "image": "x"}]}, "containers[0].image", "is set by the operator"),
    ({"containers": [{"name": "CONTAINER", "args": ["x"]}]}, "containers[0].args", "is set by the operator"),
    ({"containers": [{"name": "CONTAINER", "command": ["x"]}]}, "containers[0].command", "is set by the operator"),
    ({"containers": [{"name": "CONTAINER", "resources": {}}]}, "containers[0].resources", "use spec.ROLE.resources"),
    ({"containers": [{"name": "CONTAINER", "livenessProbe": {}}]}, "containers[0].livenessProbe", "by the operator"),
    ({"containers": [{"name": "CONTAINER", "volumeMounts": [{"name": "v", "mountPath": "/tmp/"}]}]},
     "containers[0].volumeMounts[0].mountPath", "/tmp is a mount of ours"),
    ({"volumes": [{"name": "tmp", "emptyDir": {}}]}, "volumes[0].name", "tmp is a volume of ours"),
    ({"tolerations": [{"keys": "a"}]}, "tolerations[0].keys", "is key meant?"),
    ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}},
     "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", "must have terms"),
]  # fmt: skip


def _filled(value: Any, role: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, role) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, role) for item in value]
    return value.replace("CONTAINER", ROLES[role][1]).replace("ROLE", role) if isinstance(value, str) else value


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("spec", "field", "why"), REFUSED, ids=[f"{field}-{why}" for _, field, why in REFUSED])
async def test_what_would_replace_ours_restarts_nothing_and_is_named(
    role: str, spec: Obj, field: str, why: str
) -> None:
    fleet = await _running()
    before = _uids(fleet)
    fleet.edit(f"spec.{role}.template", {"pod": {"spec": _filled(spec, role)}})
    await fleet.converge()
    status, reason, message = fleet.condition({"brokers": "BrokersReady", "zookeeper": "ZooKeeperReady"}[role])
    assert (status, reason) == ("False", "InvalidSpec")
    assert f"spec.{role}.template.pod.spec.{field}: " in message and _filled(why, role) in message
    assert fleet.condition("Rolled")[:2] == ("False", "DesiredStateUnknown")
    assert _uids(fleet) == before
    fleet.edit(f"spec.{role}.template", None)
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True" and _uids(fleet) == before


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"env": [{"name": "OTTLA_FORMAT", "value": "/x"}]}, "env[0]"),
        ({"ports": [{"containerPort": 9092}]}, "ports[0]"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/var/lib/ottla/d0/log"}]}, "volumeMounts[0].mountPath"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/etc/ottla/../ottla"}]}, "volumeMounts[0].mountPath"),
    ],
)
async def test_environment_ports_and_mounts_of_the_broker_stay_its_own(container: Obj, field: str) -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.template", {"pod": {"spec": {"containers": [{"name": "broker", **container}]}}})
    await fleet.converge()
    assert f"spec.brokers.template.pod.spec.containers[0].{field}: " in fleet.condition("BrokersReady")[2]


async def test_a_sidecar_on_the_brokers_port_is_refused() -> None:
    fleet = await _running()
    sidecar = {"name": "proxy", "image": "proxy:1", "ports": [{"containerPort": 9092}]}
    fleet.edit("spec.brokers.template", {"pod": {"spec": {"containers": [sidecar]}}})
    await fleet.converge()
    assert "containers[0].ports[0].containerPort: 9092 is a port of ours" in fleet.condition("BrokersReady")[2]


async def test_a_grace_period_has_to_last_for_a_controlled_shutdown() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.template", {"pod": {"spec": {"terminationGracePeriodSeconds": 60}}})
    await fleet.converge()
    assert "terminationGracePeriodSeconds: 60 s are less than" in fleet.condition("BrokersReady")[2]
    fleet.edit("spec.brokers.config", {"ottla.shutdown.timeout.ms": 40_000})
    await fleet.converge()
    assert fleet.condition("Ready")[0] == "True"
    assert _spec(fleet, "brokers")["terminationGracePeriodSeconds"] == 60


METADATA = {"labels": {"team": "orders"}, "annotations": {"cost-centre": "7"}}


def _added(obj: Obj) -> tuple[Any, Any]:
    return dig(obj, "metadata", "labels", "team"), dig(obj, "metadata", "annotations", "cost-centre")


async def test_services_get_what_their_template_adds_and_lose_it_with_it() -> None:
    fleet = await _running()
    before = _uids(fleet)
    fleet.edit("spec.brokers.template.service", {"metadata": METADATA})
    fleet.edit("spec.zookeeper.template.service", {"metadata": METADATA})
    await fleet.converge()
    found = {name: _added(fleet.kubernetes.there(SERVICE, name)) for name in fleet.kubernetes.names(SERVICE)}
    assert found.pop("orders-bootstrap") == (None, None)
    assert set(found.values()) == {("orders", "7")} and len(found) == 5
    fleet.edit("spec.brokers.template", {"bootstrapService": {"metadata": METADATA}})
    fleet.edit("spec.zookeeper.template", None)
    await fleet.converge()
    found = {name: _added(fleet.kubernetes.there(SERVICE, name)) for name in fleet.kubernetes.names(SERVICE)}
    assert found.pop("orders-bootstrap") == ("orders", "7")
    assert set(found.values()) == {(None, None)}
    assert _uids(fleet) == before, "no pod restarts for a Service"


async def test_claims_that_exist_get_what_their_template_adds_and_lose_it_with_it() -> None:
    fleet = await _running()
    before = _uids(fleet)
    for role in ROLES:
        fleet.edit(f"spec.{role}.template.persistentVolumeClaim", {"metadata": METADATA})
    await fleet.converge()
    assert {_added(fleet.kubernetes.there(CLAIM, name)) for name in fleet.claims()} == {("orders", "7")}
    for role in ROLES:
        fleet.edit(f"spec.{role}.template", None)
    await fleet.converge()
    assert {_added(fleet.kubernetes.there(CLAIM, name)) for name in fleet.claims()} == {(None, None)}
    fleet.kubernetes.writes.clear()
    await fleet.converge()
    assert fleet.kubernetes.writes == [] and _uids(fleet) == before


async def test_a_wrong_label_keeps_services_as_they_are_and_is_named() -> None:
    fleet = await _running()
    fleet.edit("spec.brokers.template", {"service": {"metadata": METADATA}})
    await fleet.converge()
    wrong = {"service": {"metadata": {"annotations": {"cost-centre": 7}}}}
    fleet.edit("spec.brokers.template", wrong)
    await fleet.converge()
    status, reason, message = fleet.condition("ServicesReady")
    assert (status, reason) == ("False", "InvalidSpec")
    assert "spec.brokers.template.service.metadata.annotations.cost-centre" in message
    assert _added(fleet.kubernetes.there(SERVICE, "orders-broker-0")) == ("orders", "7")


def test_the_state_of_a_server_is_read_from_its_own_container() -> None:
    """The kubelet sorts statuses by name, so a sidecar may be first."""
    statuses = [{"name": "agent", "started": False}, {"name": "zookeeper", "started": True}]
    pod = {"status": {"containerStatuses": statuses}}
    assert container_status(pod, "zookeeper") == statuses[1]
    assert container_status(None, "zookeeper") is None


def test_what_an_api_server_leaves_out_is_no_difference() -> None:
    live = {"containers": [{"name": "a", "env": [{"name": "A"}]}]}
    containers = [{"name": "a", "env": [{"name": "A", "value": ""}]}]
    assert differences(live, {"hostNetwork": False, "containers": containers}) == []
    assert differences({**live, "hostNetwork": True}, {"hostNetwork": False}) == ["hostNetwork"]
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]
    assert differences({"volumes": volumes}, {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1024Mi"}}]}) == []
