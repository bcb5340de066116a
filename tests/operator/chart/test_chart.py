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

from ottla_operator.runtime.handlers import watched_kinds

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "ottla"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def _value(expression: str, values: dict[str, Any]) -> Any:
    """`.Values.a.b`, `.Release.Name`, with `toJson` before or `| default x` behind."""
    expression, _, fallback = expression.partition("| default ")
    words = expression.split()
    place: Any = {
        "Values": values,
        "Release": {"Name": "ottla", "Namespace": "ottla-system"},
        "Chart": {"AppVersion": "0.1.0"},
    }
    for part in words[-1].strip(".").split("."):
        place = place[part]
    if not place and fallback:
        return _value(fallback, values)
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
        return bool(_value(condition.removeprefix("not "), values) not in ("", "false", False, None)) != negated

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


@pytest.mark.parametrize("name", ["kafkacluster.yaml", "kafkatopic.yaml"])
def test_the_charts_crds_are_those_of_the_crds_folder(name: str) -> None:
    same = (CHART / "files" / name).read_text() == (ROOT / "crds" / name).read_text()
    assert same, "cp crds/*.yaml charts/ottla/files/"


def test_a_release_installs_no_crds_when_others_have_installed_them() -> None:
    assert of_kind(rendered(crds={"install": False}), "CustomResourceDefinition") == []


def test_shared_and_cluster_scoped_objects_are_named_after_the_release_and_its_namespace() -> None:
    for document in [*rendered(), *rendered(watchNamespace="kafka")]:
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
    assert len(crds) == 2
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
    for kind in watched_kinds(reads_nodes=True):
        group = kind.api_version.rpartition("/")[0]
        assert {(group, kind.plural, verb) for verb in ("list", "watch")} <= granted
    applied = [("apps", "statefulsets"), ("policy", "poddisruptionbudgets")]
    applied += [("", plural) for plural in ("services", "configmaps", "persistentvolumeclaims")]
    for group, plural in applied:
        assert {(group, plural, verb) for verb in ("get", "create", "patch")} <= granted
    assert ("", "pods", "patch") in granted, "the label of brokers that have caught up"
    assert {("", "pods", "delete"), ("", "configmaps", "delete"), ("", "pods", "get")} <= granted
    assert {("kafka.ottla.dev", f"{plural}/status", "update") for plural in ("kafkaclusters", "kafkatopics")} <= granted


def test_the_operator_may_neither_delete_claims_nor_list_secrets() -> None:
    granted = _granted(rendered())
    deletable = {resource for _, resource, verb in granted if verb in ("delete", "deletecollection", "*")}
    assert deletable == {"pods", "configmaps", "services", "statefulsets"}
    assert {verb for _, resource, verb in granted if resource == "secrets"} == {"get", "create"}
    assert not any("*" in right for right in granted)


def test_an_operator_of_one_namespace_has_no_rights_in_another() -> None:
    documents = rendered(watchNamespace="kafka", readNodes=False)
    cluster_wide = _granted([item for item in documents if item["kind"] == "ClusterRole"])
    assert {resource for _, resource, _ in cluster_wide} == {"storageclasses", "namespaces"}
    roles = {role["metadata"]["namespace"] for role in of_kind(documents, "Role")}
    assert roles == {"kafka", "ottla-system"}
    (deployment,) = of_kind(documents, "Deployment")
    env = {item["name"]: item["value"] for item in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["OTTLA_WATCH_NAMESPACE"] == "kafka" and env["OTTLA_READ_NODES"] == "false"
