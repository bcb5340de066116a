"""The owner of a log directory, format permission, and power losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.storage.log_dirs.log_directory import LogDirectoryError, broker_id_of, cluster_id_of
from ottla_broker.storage.log_dirs.settings import LogManagerSettings
from tests.broker.storage.log_dirs.brokers import T0, TOPIC_ID, MakeStorage


async def test_meta_properties_has_the_format_of_kafka_and_a_directory_id(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage(2)
    await broker.start(7, "abc")
    texts = [(tmp_path / name / "meta.properties").read_text() for name in ("d0", "d1")]
    for text in texts:
        assert "broker.id=7\n" in text and "cluster.id=abc\n" in text and "version=0\n" in text
    ids = {line for text in texts for line in text.splitlines() if line.startswith("directory.id=")}
    assert len(ids) == 2
    manager = await broker.restart(broker_id=7, cluster_id="abc")
    assert broker_id_of(manager.directories) == 7 and cluster_id_of(manager.directories) == "abc"
    assert (tmp_path / "d0" / "meta.properties").read_text() == texts[0]


async def test_a_start_is_refused_when_a_directory_belongs_to_another_broker_or_cluster(
    make_storage: MakeStorage,
) -> None:
    broker = make_storage()
    await broker.start(1, "cluster-A")
    with pytest.raises(LogDirectoryError, match="belongs to broker 1, this is broker 2"):
        await broker.restart(broker_id=2)
    with pytest.raises(LogDirectoryError, match="cluster cluster-A, this broker is in cluster cluster-B"):
        await broker.restart(cluster_id="cluster-B")
    await broker.restart()


async def test_a_start_is_refused_when_directories_belong_to_different_brokers(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage(2)
    await broker.start()
    broker.stop()
    path = tmp_path / "d1" / "meta.properties"
    path.write_text(path.read_text().replace("broker.id=1", "broker.id=3"))
    broker.create_manager()
    directories = await broker.manager.inspect()
    with pytest.raises(LogDirectoryError, match=r"broker 1.*broker 3"):
        broker_id_of(directories)


async def test_an_empty_directory_is_offline_and_not_formatted_without_format_permission(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage(2)
    await broker.start()
    broker.stop()
    for path in (tmp_path / "d1").iterdir():
        path.unlink()
    broker.settings = LogManagerSettings(may_format=())
    broker.create_manager()
    await broker.manager.inspect()
    await broker.manager.claim(1, "cluster-A")
    assert broker.manager.offline_paths == [broker.paths[1]]
    assert "has no meta.properties, and ottla.log.dirs.format does not" in broker.manager.states[broker.paths[1]].reason
    await broker.manager.load()
    with pytest.raises(KafkaError) as caught:  # it may be in the empty directory
        await broker.manager.get_or_create(T0, TOPIC_ID, False)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not (tmp_path / "d1" / "meta.properties").exists()
    broker.settings = LogManagerSettings(may_format=(broker.paths[1],))
    await broker.restart()
    assert (tmp_path / "d1" / "meta.properties").exists()


async def test_a_start_is_refused_when_every_directory_is_empty_and_none_may_be_formatted(
    make_storage: MakeStorage,
) -> None:
    broker = make_storage(settings=LogManagerSettings(may_format=()))
    await broker.manager.inspect()
    with pytest.raises(LogDirectoryError, match=r"d0 has no meta\.properties.*ottla\.log\.dirs\.format"):
        await broker.manager.claim(1, "cluster-A")


async def test_a_start_is_refused_when_another_broker_has_locked_the_directory(make_storage: MakeStorage) -> None:
    await make_storage().start()
    with pytest.raises(LogDirectoryError, match=r"another process holds its \.lock"):
        await make_storage().start()


async def test_a_power_loss_is_suspected_when_the_kernel_has_booted_without_a_clean_shutdown(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage()
    manager = await broker.start()
    assert not manager.directories[0].lost_power
    assert not (await broker.restart()).directories[0].lost_power
    (tmp_path / "d0" / "ottla.boot-id").write_text("another boot")
    manager = await broker.restart()
    assert manager.directories[0].lost_power and "not flushed may be gone" in broker.notices[-1]
    await manager.close()
    (tmp_path / "d0" / "ottla.boot-id").write_text("another boot")
    assert not (await broker.restart()).directories[0].lost_power


async def test_a_directory_that_failed_may_have_kept_all_until_the_kernel_has_booted(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage()
    manager = await broker.start()
    assert not manager.markers.may_have_kept_all
    manager.directories[0].has_failed_before = True
    assert manager.markers.may_have_kept_all
    (tmp_path / "d0" / "ottla.boot-id").write_text("another boot")
    manager = await broker.restart()
    manager.directories[0].has_failed_before = True
    assert not manager.markers.may_have_kept_all


async def test_a_power_loss_is_still_suspected_after_a_start_that_was_killed(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage()
    await broker.start()
    (tmp_path / "d0" / "ottla.boot-id").write_text("another boot")
    broker.stop()
    broker.create_manager()
    await broker.manager.inspect()
    await broker.manager.claim(1, "cluster-A")
    assert (await broker.restart()).directories[0].lost_power
    assert not (await broker.restart()).directories[0].lost_power
