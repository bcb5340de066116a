"""The chart without Helm: its templates use so little of the language that a few lines render them.

`helm lint` and `helm template` need Helm; what they cannot check is here: that the CRDs are ours and stay, and that the
rights are those the operator uses and no more.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla_operator.api import names
from ottla_operator.api.rights import NEEDED_RIGHTS
from ottla_operator.concerns.pipelines import pipeline_executors
from ottla_operator.runtime.handlers import watched_kinds
from ottla_operator.runtime.pipeline_supervisor import PIPELINE_KINDS

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "ottla"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def _value(expression: str, values: dict[str, Any]) -> Any:
    """`.Values.a.b`, `.Release.Name`, with `toJson` before or `| default x` behind."""
    expression, _, fallback = expression.partition(" | default ")
    words = expression.split()
    if words[0] == "not":
        return str(not _value(words[1], values)).lower()
    place: Any = {
        "Values": values,
        "Release": {"Name": "ottla", "Namespace": "ottla-system"},
        "Chart": {"AppVersion": "0.2.0"},
    }
    for part in words[-1].strip(".").split("."):
        place = place[part]
    if not place and fallback:
        return _value(fallback, values)
    if words[0] == "join":
        return words[1].strip('"').join(place)
    if words[0] == "toJson":
        return json.dumps(place)
    return str(place).lower() if isinstance(place, bool) else place


def render(template: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The documents of a template."""
    text = re.sub(r'\{\{ \.Files\.Get "([^"]+)" \}\}', lambda found: (CHART / found[1]).read_text(), template)

    def holds(condition: str) -> bool:
        if condition.startswith("include "):
            return bool(values["crds"]["install"])  # no cluster is looked at here, as in `helm template`
        negated = condition.startswith("not ")
        return bool(_value(condition.removeprefix("not "), values) not in ("", "false", False, None, [])) != negated

    def repeated(found: re.Match[str]) -> str:
        items = values[found[1].removeprefix(".Values.")]
        return "".join(found[2].replace("{{ . }}", item).replace("{{ $.", "{{ .") for item in items)

    text = re.sub(
        r"\n\{\{- range ([^}]+?) \}\}(.*?)(?=\n\{\{- end \}\})\n\{\{- end \}\}", repeated, text, flags=re.DOTALL
    )
    inline = re.compile(r"\{\{ if ([^}]+?) \}\}([^{]*)\{\{ else \}\}([^{]*)\{\{ end \}\}")
    text = inline.sub(lambda found: found[2] if holds(found[1]) else found[3], text)
    block = re.compile(r"\n\{\{- if ([^}]+?) \}\}(.*?)\n\{\{- end \}\}", re.DOTALL)
    text = block.sub(lambda found: found[2] if holds(found[1]) else "", text)
    text = re.sub(r"\{\{ ([^}]+?) \}\}", lambda found: str(_value(found[1], values)), text)
    return [document for document in yaml.safe_load_all(text) if document]


def rendered(**changes: Any) -> list[dict[str, Any]]:
    templates = sorted((CHART / "templates").glob("*.yaml"))
    return [document for path in templates for document in render(path.read_text(), {**VALUES, **changes})]


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] == kind]


@pytest.mark.parametrize("name", ["kafkacluster.yaml", "kafkatopic.yaml", "kafkapipeline.yaml"])
def test_the_charts_crds_are_those_of_the_crds_folder(name: str) -> None:
    """Links, which helm follows when it packages or installs the chart."""
    assert (CHART / "files" / name).resolve() == ROOT / "crds" / name


def test_a_release_installs_no_crds_when_others_have_installed_them() -> None:
    assert of_kind(rendered(crds={"install": False}), "CustomResourceDefinition") == []


def test_shared_and_cluster_scoped_objects_are_named_after_the_release_and_its_namespace() -> None:
    for document in [*rendered(), *rendered(watchNamespaces=["kafka", "other"])]:
        if document["kind"] != "CustomResourceDefinition":
            metadata = document["metadata"]
            is_own = metadata.get("namespace") == "ottla-system"
            assert metadata["name"].startswith("ottla-" if is_own else "ottla-system:ottla-"), metadata


def test_each_release_has_a_lease_of_its_own() -> None:
    for kind in ("Deployment", "Job"):
        (document,) = of_kind(rendered(), kind)
        env = document["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "OTTLA_LEASE", "value": "ottla-operator"} in env


def test_every_pod_of_the_chart_requests_resources() -> None:
    for kind in ("Deployment", "Job"):
        (document,) = of_kind(rendered(), kind)
        assert document["spec"]["template"]["spec"]["containers"][0]["resources"] == VALUES["resources"]


def test_uninstalling_keeps_the_crds_and_with_them_every_cluster() -> None:
    crds = of_kind(rendered(), "CustomResourceDefinition")
    assert len(crds) == 3
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in crds)


def test_finalizers_are_removed_before_the_operator_is_uninstalled() -> None:
    (job,) = of_kind(rendered(), "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["operator", "release"]


def test_pods_are_not_root_and_write_only_to_tmp() -> None:
    for document in [*of_kind(rendered(), "Deployment"), *of_kind(rendered(), "Job")]:
        pod = document["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True and security["capabilities"] == {"drop": ["ALL"]}
    (deployment,) = of_kind(rendered(), "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"} and deployment["spec"]["replicas"] == 1


def test_another_process_of_the_operator_stands_by() -> None:
    (deployment,) = of_kind(rendered(replicas=2), "Deployment")
    assert deployment["spec"]["replicas"] == 2


def _granted(documents: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for document in [*of_kind(documents, "ClusterRole"), *of_kind(documents, "Role")]
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_operator_has_the_rights_it_uses() -> None:
    granted = _granted(rendered())
    for kind in (*watched_kinds(reads_nodes=True), *PIPELINE_KINDS):
        group = kind.api_version.rpartition("/")[0]
        assert {(group, kind.plural, verb) for verb in ("list", "watch")} <= granted
    applied = [("apps", "statefulsets"), ("policy", "poddisruptionbudgets")]
    applied += [("batch", "jobs"), ("batch", "cronjobs"), ("", "serviceaccounts")]
    of_drivers = [("rbac.authorization.k8s.io", plural) for plural in ("roles", "rolebindings")]
    applied += [("", plural) for plural in ("services", "configmaps", "persistentvolumeclaims")]
    for group, plural in [*applied, *of_drivers]:
        assert {(group, plural, verb) for verb in ("get", "create", "patch")} <= granted
    replaced = [*applied[:4], ("", "services")]
    assert {(group, plural, "update") for group, plural in replaced} <= granted
    assert ("", "pods", "patch") in granted, "the label of brokers that have caught up"
    assert {("", "pods", "delete"), ("", "configmaps", "delete"), ("", "pods", "get")} <= granted
    ours = ("kafkaclusters", "kafkatopics", "kafkapipelines")
    assert {("kafka.ottla.dev", f"{plural}/status", "update") for plural in ours} <= granted


def test_the_chart_gives_every_right_without_which_the_operator_does_nothing() -> None:
    needed = {tuple(right) for rights in NEEDED_RIGHTS.values() for right in rights}
    for documents in (rendered(), rendered(watchNamespaces=["kafka"])):
        bound = [item for item in documents if item["metadata"]["name"] == "ottla-system:ottla-operator"]
        assert needed <= _granted(bound)


def test_the_operator_reads_its_own_definitions_by_name() -> None:
    rules = [rule for role in of_kind(rendered(watchNamespaces=["kafka"]), "ClusterRole") for rule in role["rules"]]
    (rule,) = (one for one in rules if one["resources"] == ["customresourcedefinitions"])
    plurals = ("kafkaclusters", "kafkatopics", "kafkapipelines")
    assert rule["resourceNames"] == [f"{plural}.kafka.ottla.dev" for plural in plurals]
    assert rule["verbs"] == ["get"]


def test_the_operator_has_every_right_that_it_gives_to_drivers_with_executors() -> None:
    """Else the API server refuses the Role (escalation)."""
    granted = _granted(rendered())
    for rule in pipeline_executors.RULES:
        for verb in rule["verbs"]:
            assert {(group, plural, verb) for group in rule["apiGroups"] for plural in rule["resources"]} <= granted
    assert not {verb for _, _, verb in granted} & {"escalate", "bind", "impersonate"}


def test_the_operator_may_delete_the_claims_that_spec_lets_it_replace() -> None:
    """`onFailure: Replace` of a ZooKeeper server whose node is gone, and `claimDeletionPolicy: Delete`."""
    assert ("", "persistentvolumeclaims", "delete") in _granted(rendered())


def test_the_operator_may_delete_nothing_else_nor_list_secrets() -> None:
    granted = _granted(rendered())
    deletable = {resource for _, resource, verb in granted if verb in ("delete", "deletecollection", "*")}
    assert deletable == {
        *("pods", "configmaps", "services", "statefulsets", "persistentvolumeclaims"),
        *("jobs", "cronjobs"),
        *("roles", "rolebindings"),
    }
    assert {verb for _, resource, verb in granted if resource == "secrets"} == {"get", "create"}
    assert not any("*" in right for right in granted)


def _bound(documents: list[dict[str, Any]], kind: str) -> set[tuple[str, str]]:
    """(namespace of the binding or "", name of the role) of each binding of this kind."""
    return {(item["metadata"].get("namespace", ""), item["roleRef"]["name"]) for item in of_kind(documents, kind)}


def test_an_operator_of_some_namespaces_has_no_rights_in_others() -> None:
    documents = rendered(watchNamespaces=["kafka", "other"], readNodes=False)
    role = "ottla-system:ottla-operator"
    assert _bound(documents, "ClusterRoleBinding") == {("", f"{role}-cluster")}
    cluster_wide = [item for item in of_kind(documents, "ClusterRole") if item["metadata"]["name"] == f"{role}-cluster"]
    reads = {"storageclasses", "namespaces", "customresourcedefinitions"}
    granted = _granted(cluster_wide)
    assert {resource for _, resource, _ in granted} == {*reads, "kafkatopics"}
    writes = {(resource, verb) for _, resource, verb in granted if verb not in ("get", "list", "watch")}
    assert writes == {("kafkatopics", "patch")}, "finalizers in a namespace whose RoleBinding is gone"
    lease = ("ottla-system", "ottla-operator-lease")
    assert _bound(documents, "RoleBinding") == {("kafka", role), ("other", role), lease}
    for kind in ("Deployment", "Job"):
        assert _environment(documents, kind)["OTTLA_WATCH_NAMESPACES"] == "kafka,other"
    assert _environment(documents, "Deployment")["OTTLA_READ_NODES"] == "false"


def test_an_operator_of_all_namespaces_has_its_rights_in_each() -> None:
    documents = rendered()
    role = "ottla-system:ottla-operator"
    assert _bound(documents, "ClusterRoleBinding") == {("", role), ("", f"{role}-cluster")}
    assert _bound(documents, "RoleBinding") == {("ottla-system", "ottla-operator-lease")}
    assert _environment(documents, "Deployment")["OTTLA_WATCH_NAMESPACES"] == ""


def _environment(documents: list[dict[str, Any]], kind: str) -> dict[str, str]:
    (document,) = of_kind(documents, kind)
    env = document["spec"]["template"]["spec"]["containers"][0]["env"]
    return {item["name"]: item["value"] for item in env}


def test_the_image_of_brokers_may_be_another_than_the_operators() -> None:
    assert _environment(rendered(), "Deployment")["OTTLA_BROKER_IMAGE"] == "ottla:0.2.0"
    image = {"repository": "mirror/ottla", "tag": "", "pullPolicy": "Always"}
    documents = rendered(image={**VALUES["image"], "tag": "0.2.0"}, broker={"image": image})
    (deployment,) = of_kind(documents, "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "ottla:0.2.0"
    environment = _environment(documents, "Deployment")
    assert environment["OTTLA_BROKER_IMAGE"] == "mirror/ottla:0.2.0"
    assert environment["OTTLA_IMAGE_PULL_POLICY"] == "Always"
    pinned = rendered(broker={"image": {**image, "tag": "0.2.0-fix"}})
    assert _environment(pinned, "Deployment")["OTTLA_BROKER_IMAGE"] == "mirror/ottla:0.2.0-fix"


def test_pipelines_have_an_image_of_their_own_or_none() -> None:
    assert _environment(rendered(), "Deployment")["OTTLA_PIPELINE_IMAGE"] == ""
    documents = rendered(pipeline={"image": "registry/pipelines:1"})
    assert _environment(documents, "Deployment")["OTTLA_PIPELINE_IMAGE"] == "registry/pipelines:1"


PLACEMENT: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
}


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_the_operators_pods_are_placed_as_the_values_say(kind: str) -> None:
    (document,) = of_kind(rendered(**PLACEMENT, podAnnotations={"a/b": "c"}), kind)
    template = document["spec"]["template"]
    assert {name: template["spec"][name] for name in PLACEMENT} == PLACEMENT
    if kind == "Deployment":
        assert template["metadata"]["annotations"] == {"a/b": "c"}


def test_pod_monitors_find_the_brokers_and_the_operator() -> None:
    assert of_kind(rendered(), "PodMonitor") == []
    monitor = {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}}
    documents = rendered(podMonitor=monitor, watchNamespaces=["kafka"])
    brokers, servers, operator, pipelines = of_kind(documents, "PodMonitor")
    assert pipelines["spec"]["selector"]["matchLabels"].items() <= names.pipeline_labels("delays").items()
    assert pipelines["spec"]["namespaceSelector"] == brokers["spec"]["namespaceSelector"]
    assert brokers["spec"]["namespaceSelector"] == {"any": False, "matchNames": ["kafka"]}
    assert brokers["metadata"]["labels"] == operator["metadata"]["labels"] == {"release": "prometheus"}
    everywhere = of_kind(rendered(podMonitor=monitor), "PodMonitor")[0]["spec"]["namespaceSelector"]
    assert everywhere == {"any": True, "matchNames": []}
    labels = names.labels("orders", names.BROKER)
    assert brokers["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert servers["spec"]["selector"]["matchLabels"].items() <= names.labels("orders", names.ZOOKEEPER).items()
    assert servers["spec"]["namespaceSelector"] == brokers["spec"]["namespaceSelector"]
    assert [endpoint["port"] for endpoint in servers["spec"]["podMetricsEndpoints"]] == ["metrics"]
    (deployment,) = of_kind(documents, "Deployment")
    template = deployment["spec"]["template"]
    assert operator["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert operator["spec"]["podMetricsEndpoints"] == [{"port": "healthz", "path": "/metrics", "interval": "15s"}]
    assert "healthz" in ports


def test_the_schema_of_the_values_knows_every_value_and_no_other() -> None:
    """So that a misspelt value is an error of helm and not a default."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    definitions = schema["definitions"]

    def compare(value: Any, found: dict[str, Any], path: str) -> None:
        found = definitions[found["$ref"].rpartition("/")[2]] if "$ref" in found else found
        if "properties" in found:
            assert found["additionalProperties"] is False, path
            assert set(found["properties"]) - {"global"} == set(value), path
            for name in value:
                compare(value[name], found["properties"][name], f"{path}.{name}")

    compare(VALUES, schema, "")
