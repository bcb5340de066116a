"""Where a local fleet keeps things, and what it keeps between runs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ottla.local.layout import FleetStateError, Layout, delete_fleet, write_properties
from ottla.local.ports import RANGE_VARIABLE, searched
from ottla_broker.config import BrokerConfig
from ottla_documents.documents import load_documents
from ottla_documents.kafka_cluster import KafkaCluster


def cluster(brokers: str = "", name: str = "c") -> KafkaCluster:
    text = (
        f"apiVersion: kafka.ottla.dev/v1alpha1\nkind: KafkaCluster\nmetadata: {{name: {name}}}\n"
        f"spec: {{brokers: {{{brokers}}}}}"
    )
    return load_documents([("f", text)]).clusters[0]


def test_ports_are_kept_between_runs_and_when_the_fleet_grows(tmp_path: Path) -> None:
    first = Layout(tmp_path, cluster("replicas: 2"))
    first.assign_ports()
    again = Layout(tmp_path, cluster("replicas: 3"))
    again.assign_ports()
    assert again.places()[:2] == first.places()
    ports = [p for place in again.places() for p in (place.client_port, place.internal_port, place.http_port)]
    assert len(set(ports)) == 9


def test_a_client_port_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        other = Layout(tmp_path / "b", cluster("replicas: 1"), first_client_port=port)
        other.assign_ports()
    assert other.places()[0].client_port > port


def test_every_port_is_of_the_range_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = searched()
    mine = ports[len(ports) // 2 :] if ports else range(40_000, 50_000)
    monkeypatch.setenv(RANGE_VARIABLE, f"{mine[0]}-{mine[-1]}")
    layout = Layout(tmp_path, cluster("replicas: 3"))
    layout.assign_ports()
    chosen = [p for place in layout.places() for p in (place.client_port, place.internal_port, place.http_port)]
    assert len(set(chosen)) == 9
    assert [port for port in chosen if port not in mine] == []


@pytest.mark.parametrize(
    ("brokers", "racks"),
    [
        ("replicas: 5", ["rack-0", "rack-1", "rack-2", "rack-0", "rack-1"]),
        ("replicas: 3, racks: [a, b]", ["a", "b", "a"]),
    ],
)
def test_broker_i_is_in_rack_i_mod_the_number_of_racks(tmp_path: Path, brokers: str, racks: list[str]) -> None:
    layout = Layout(tmp_path, cluster(brokers))
    layout.assign_ports()
    assert [layout.rack(place.id) for place in layout.places()] == racks


POOLS = (
    "pools: [{name: a, replicas: %d}, "
    "{name: b, replicas: 1, disks: [{name: x}], racks: [r], config: {num.io.threads: 3}}]"
)


def test_pools_have_their_own_disks_racks_and_configuration_and_keep_their_brokers(tmp_path: Path) -> None:
    layout = Layout(tmp_path, cluster(POOLS % 2))
    layout.assign_ports()
    assert [(place.id, place.pool) for place in layout.places()] == [(0, "a"), (1, "a"), (2, "b")]
    assert (list(layout.log_directories(1)), list(layout.log_directories(2))) == (["d0"], ["x"])
    assert layout.rack(2) == "r" and layout.broker_config(layout.places()[2], "h:1")["num.io.threads"] == "3"
    again = Layout(tmp_path, cluster(POOLS % 3))
    again.assign_ports()
    assert [(place.id, place.pool) for place in again.places()] == [(0, "a"), (1, "a"), (2, "b"), (3, "a")]
    fewer = Layout(tmp_path, cluster(POOLS % 1))
    fewer.assign_ports()
    assert [place.id for place in fewer.places()] == [0, 2] and len(fewer.state.brokers) == 4
    fewer.record_formatted(2)


def test_a_fleet_that_gets_pools_and_loses_them_keeps_its_brokers(tmp_path: Path) -> None:
    before = Layout(tmp_path, cluster("replicas: 3"))
    before.assign_ports()
    ports = [place.client_port for place in before.places()]
    for brokers in (POOLS % 2, "replicas: 3"):
        layout = Layout(tmp_path, cluster(brokers))
        layout.assign_ports()
        assert [place.client_port for place in layout.places()] == ports


def test_ids_of_a_pool_are_of_its_range(tmp_path: Path) -> None:
    pools = "pools: [{name: a, replicas: 1, idRange: {first: 5, last: 9}}, {name: b, replicas: 1}]"
    layout = Layout(tmp_path, cluster(pools))
    layout.assign_ports()
    assert [place.id for place in layout.places()] == [0, 5]
    assert layout.broker_config(layout.place(5), "h:1")["broker.id"] == "5"


def test_a_brokers_configuration_is_one_that_the_broker_accepts(tmp_path: Path) -> None:
    layout = Layout(tmp_path, cluster("replicas: 2, disks: [{name: a}, {name: b}], config: {min.insync.replicas: 2}"))
    layout.assign_ports()
    path = tmp_path / "server.properties"
    write_properties(path, layout.broker_config(layout.places()[1], "127.0.0.1:2181/x"))
    config = BrokerConfig.from_properties(path.read_text())
    assert config.unknown_keys == ()
    assert config.broker_id == 1
    assert config.broker_rack == "rack-1"
    assert config.topic_config({}).min_insync_replicas == 2
    assert config.offsets_topic_replication_factor == 2
    assert config.log_dirs == (str(tmp_path / "broker-1" / "a"), str(tmp_path / "broker-1" / "b"))
    assert config.formattable_log_dirs == config.log_dirs
    assert config.listeners.inter_broker == "INTERNAL"
    assert config.listeners.of_brokers == {"INTERNAL"}, "clients cannot send what only brokers send"
    assert config.http_listener is not None and config.http_listener[0] == "127.0.0.1"


def test_a_directory_that_was_formatted_never_may_be_again(tmp_path: Path) -> None:
    layout = Layout(tmp_path, cluster("replicas: 1, disks: [{name: a}, {name: b}]"))
    layout.assign_ports()
    directory = tmp_path / "broker-0" / "a"
    directory.mkdir(parents=True)
    (directory / "meta.properties").write_text("version=0\ndirectory.id=xyz\n")
    layout.record_formatted(0)
    (directory / "meta.properties").unlink()
    again = Layout(tmp_path, cluster("replicas: 1, disks: [{name: a}, {name: b}]"))
    config = BrokerConfig.from_mapping(again.broker_config(again.places()[0], "h:1"))
    assert config.formattable_log_dirs == (str(tmp_path / "broker-0" / "b"),)


def test_the_data_of_another_fleet_is_refused(tmp_path: Path) -> None:
    Layout(tmp_path, cluster(name="one")).assign_ports()
    with pytest.raises(FleetStateError, match="holds the fleet 'one', not 'two'"):
        Layout(tmp_path, cluster(name="two"))
    (tmp_path / "fleet.json").write_text("{")
    with pytest.raises(FleetStateError, match="cannot be read"):
        Layout(tmp_path, cluster(name="one"))


def test_only_the_files_of_a_fleet_are_deleted(tmp_path: Path) -> None:
    Layout(tmp_path, cluster("replicas: 1")).assign_ports()
    (tmp_path / "broker-0" / "d0").mkdir(parents=True)
    for name in ("coordination.sqlite", "coordination.sqlite-wal", "fleet.log", "documents.yaml", "thesis.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "broker-notes").mkdir()
    assert [path.name for path in delete_fleet(tmp_path)] == ["broker-notes", "thesis.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker-notes", "thesis.txt"]


def test_a_folder_that_held_only_the_fleet_goes_with_it(tmp_path: Path) -> None:
    Layout(tmp_path / "data", cluster("replicas: 1")).assign_ports()
    assert delete_fleet(tmp_path / "data") == []
    assert not (tmp_path / "data").exists()


def test_what_a_symbolic_link_points_to_is_not_deleted_and_named(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    Layout(data, cluster("replicas: 1")).assign_ports()
    (elsewhere / "d0").mkdir(parents=True)
    (data / "broker-0").symlink_to(elsewhere)
    assert delete_fleet(data) == [data / "broker-0"]
    assert (elsewhere / "d0").is_dir()


@pytest.mark.parametrize("name", ["a,b", "bad-\udcff"], ids=["a comma", "not UTF-8"])
def test_a_path_that_log_dirs_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FleetStateError, match="choose another folder with --data"):
        Layout(tmp_path / name, cluster())


@pytest.mark.parametrize("name", ["back\\slash", "#a=b:c!", " blanks ", "dätä ζ 😀", "two\nlines\t", "100%"])
def test_a_broker_reads_the_path_of_its_directories_as_it_is(tmp_path: Path, name: str) -> None:
    layout = Layout(tmp_path / name, cluster("replicas: 1, disks: [{name: a}, {name: b}]"))
    layout.assign_ports()
    path = tmp_path / "server.properties"
    write_properties(path, layout.broker_config(layout.places()[0], "h:1"))
    config = BrokerConfig.from_properties(path.read_text(encoding="latin-1"))
    assert config.log_dirs == tuple(str(tmp_path / name / "broker-0" / disk) for disk in "ab")
