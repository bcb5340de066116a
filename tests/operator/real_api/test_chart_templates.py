"""What Helm itself makes of the chart: the same documents as our few lines of Python, for odd values too."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import binaries
from tests.operator.chart.test_chart import CHART, PLACEMENT, VALUES, rendered

pytestmark = pytest.mark.kubernetes

ODD_TEXT = 'a "quoted" <b> & c: {d} #e\nline'
ODD_VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no-crds": {"crds": {"install": False}},
    "namespaces": {"watchNamespaces": ["team-a", "007", "on", "1e3"], "readNodes": False},
    "placement": {**PLACEMENT, "podAnnotations": {"a/b": ODD_TEXT, "n": "1", "yes": "no", "empty": ""}},
    "nothing-requested": {"resources": {}, "replicas": 0, "maxRollingClusters": 0},
    "images": {
        "image": {"repository": "registry:5000/ottla", "tag": "1.0", "pullPolicy": "Always"},
        "broker": {"image": {"repository": "", "tag": "0644", "pullPolicy": "Never"}},
        "zookeeperImage": "registry:5000/zookeeper@sha256:0123",
    },
    "monitors": {
        "podMonitor": {"enabled": True, "interval": "30", "labels": {"release": "1", "x": "true"}},
        "watchNamespaces": ["kafka"],
    },
    "affinity": {
        "affinity": {"nodeAffinity": {"x": [{"weight": 1, "matches": ["<", ">", "&"]}]}},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "true", "tolerationSeconds": 30}],
        "nodeSelector": {"disk": "1e3"},
    },
}


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = str(binaries.folder() / "helm")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def _made(path: Path, values: dict[str, Any], name: str = "ottla", namespace: str = "ottla-system") -> list[Any]:
    path.write_text(json.dumps(values))  # which is YAML that every parser reads alike
    options = ("--namespace", namespace, "--values", str(path), "--debug")
    found = helm("template", name, str(CHART), *options)
    assert found.returncode == 0, found.stderr
    return [document for document in yaml.safe_load_all(found.stdout) if document]


def _by_name(documents: list[Any]) -> dict[tuple[str, str, str], Any]:
    keyed = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item for item in documents
    }
    assert len(keyed) == len(documents), "no object is there twice"
    return keyed


@pytest.mark.parametrize("values", ODD_VALUES.values(), ids=ODD_VALUES.keys())
def test_helm_makes_the_documents_that_our_tests_look_at(values: dict[str, Any], tmp_path: Path) -> None:
    ours = rendered(**{key: _merged(VALUES[key], value) for key, value in values.items()})
    assert _by_name(_made(tmp_path / "values.yaml", values)) == _by_name(ours)


def _merged(default: Any, value: Any) -> Any:
    """As Helm merges values: mappings key by key, everything else as a whole."""
    if not isinstance(default, dict) or not isinstance(value, dict):
        return value
    return {**default, **{key: _merged(default.get(key), item) for key, item in value.items()}}


@pytest.mark.parametrize(("name", "namespace"), [("1e3", "007"), ("on", "null"), ("0x1f", "2026-01-01")])
def test_names_that_yaml_could_take_for_something_else_stay_texts(name: str, namespace: str, tmp_path: Path) -> None:
    for document in _made(tmp_path / "values.yaml", {"podMonitor": {"enabled": True}}, name, namespace):
        if document["kind"] == "CustomResourceDefinition":
            continue
        texts = [*document["metadata"].get("labels", {}).values(), document["metadata"]["name"]]
        texts += [part for subject in document.get("subjects", ()) for part in subject.values()]
        texts += dict_of(document, "spec", "selector", "matchLabels").values()
        texts += dict_of(document, "spec", "template", "metadata", "labels").values()
        assert all(isinstance(text, str) for text in texts), document
        assert document["metadata"].get("namespace", namespace) == namespace


def dict_of(document: Any, *path: str) -> dict[str, Any]:
    """The mapping at a path; empty where there is none."""
    for key in path:
        document = document.get(key) or {}
    return dict(document)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"watchNamespace": ["a"]}, "watchNamespace"),
        ({"watchNamespaces": "a"}, "watchNamespaces"),
        ({"watchNamespaces": ["a", "a"]}, "watchNamespaces"),
        ({"watchNamespaces": ["A B"]}, "watchNamespaces"),
        ({"replicas": -1}, "replicas"),
        ({"maxRollingClusters": "3"}, "maxRollingClusters"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"podAnnotations": {"a": 1}}, "podAnnotations"),
        ({"crds": {"instal": False}}, "instal"),
    ],
)
def test_helm_refuses_values_that_the_chart_does_not_know(values: dict[str, Any], named: str, tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(json.dumps(values))  # which is YAML that every parser reads alike
    found = helm("template", "ottla", str(CHART), "--values", str(path))
    assert found.returncode != 0 and named in found.stderr, found.stderr


def test_helm_finds_nothing_to_complain_about() -> None:
    found = helm("lint", "--strict", str(CHART))
    assert found.returncode == 0, found.stdout + found.stderr
