"""What the providers of e2e/ would do, as far as it can be tested without a cluster."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from e2e import nodes
from e2e.__main__ import app
from e2e.images import Image, ImageSet, fingerprint
from e2e.installation import manifests
from e2e.machine import CommandFailed
from e2e.network import ClusterNode
from e2e.providers import KubernetesCluster, cluster_from_json, existing, kind

IMAGES = ImageSet(
    ottla=Image("localhost/ottla", "a1", Path("/cache/ottla-a1.tar")),
    zookeeper=Image("localhost/zookeeper", "b2", Path("/cache/zookeeper-b2.tar")),
    client=Image("localhost/client", "c3", Path("/cache/client-c3.tar")),
    pause=Image("localhost/pause", "1", Path("/cache/pause.tar")),
)


def test_kind_gets_a_worker_in_each_of_three_zones() -> None:
    document = yaml.safe_load(kind.configuration())
    assert (document["kind"], document["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
    assert [node["role"] for node in document["nodes"]] == ["control-plane", "worker", "worker", "worker"]
    zones = [node["labels"]["topology.kubernetes.io/zone"] for node in document["nodes"][1:]]
    assert zones == ["zone-a", "zone-b", "zone-c"]


def test_kind_is_called_with_a_name_and_a_kubeconfig_of_its_own() -> None:
    create = kind.create_command(Path("/cache/kind.kubeconfig"))
    assert create[:3] == ["kind", "create", "cluster"]
    assert create[create.index("--kubeconfig") + 1] == "/cache/kind.kubeconfig"
    assert create[create.index("--config") + 1] == "-"
    assert create[create.index("--name") + 1] == kind.delete_command()[-1] == "ottla"


def test_kind_loads_every_image_but_the_pause_of_plain_processes() -> None:
    loaded = [command[command.index("image-archive") + 1] for command in kind.load_commands(IMAGES)]
    assert loaded == ["/cache/ottla-a1.tar", "/cache/zookeeper-b2.tar", "/cache/client-c3.tar"]


def test_kind_has_a_folder_for_each_volume_of_each_worker() -> None:
    items = json.loads(kind.storage())["items"]
    volumes = [item for item in items if item["kind"] == "PersistentVolume"]
    assert len(volumes) == len(kind.workers()) * sum(nodes.VOLUMES.values())
    made = set(kind.folder_command("ottla-worker"))
    assert {volume["spec"]["local"]["path"] for volume in volumes} <= made
    assert items[0]["metadata"]["name"] == nodes.STORAGE_CLASS
    assert items[0]["volumeBindingMode"] == "WaitForFirstConsumer"


def test_the_volumes_are_large_enough_for_the_manifests() -> None:
    for path in sorted((Path(__file__).parents[2] / "manifests").glob("cluster*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            sizes = [disk["size"] for disk in document["spec"]["brokers"]["disks"]]
            assert set(sizes) <= set(nodes.VOLUMES)


def test_the_manifests_are_applied_with_the_storage_class_of_the_cluster() -> None:
    cluster = KubernetesCluster(Path("/k"), IMAGES, "fast-disks", "kubectl", "helm")
    fleet, topic = yaml.safe_load_all(manifests(cluster, "cluster.yaml", "topics.yaml"))
    disks = [
        *fleet["spec"]["brokers"]["disks"],
        fleet["spec"]["zookeeper"]["disk"],
        fleet["spec"]["zookeeper"]["logDisk"],
    ]
    assert {disk["storageClassName"] for disk in disks} == {"fast-disks"} and topic["kind"] == "KafkaTopic"


def test_an_existing_cluster_needs_the_names_of_its_images() -> None:
    with pytest.raises(CommandFailed, match="OTTLA_E2E_IMAGE is not set"):
        existing.ExistingProvider({})._image("OTTLA_E2E_IMAGE")
    assert existing.image_from("registry:5000/team/ottla:1.2").reference == "registry:5000/team/ottla:1.2"


def test_a_cluster_is_written_and_read_back() -> None:
    cluster = KubernetesCluster(Path("/k"), IMAGES, "local", "/bin/kubectl", "/bin/helm", "ottla-cp", Path("/volumes"))
    assert cluster_from_json(json.loads(json.dumps(asdict(cluster), default=str))) == cluster


def test_an_image_has_another_tag_when_what_it_is_made_from_changes(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("1")
    before = fingerprint([tmp_path / "folder"])
    (tmp_path / "folder" / "__pycache__").mkdir()
    (tmp_path / "folder" / "__pycache__" / "a.pyc").write_text("1")
    assert fingerprint([tmp_path / "folder"]) == before
    (tmp_path / "folder" / "a").write_text("2")
    assert fingerprint([tmp_path / "folder"]) != before


def test_nodes_have_addresses_of_their_own() -> None:
    made = [ClusterNode(number, f"zone-{number}") for number in (1, 2, 3)]
    assert len({node.address for node in made}) == len({node.pods for node in made}) == 3


def test_the_command_explains_itself() -> None:
    said = CliRunner().invoke(app, ["--help"]).output
    for word in ("processes", "kind", "existing", "--keep", "--tests", "up", "down", "kubectl", "reload", "figures"):
        assert word in said
