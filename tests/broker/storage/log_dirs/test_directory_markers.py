"""The marker files of a power loss and of an empty directory."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.broker.storage.log_dirs.brokers import MakeStorage


async def test_markers_are_deleted_after_registration_also_when_a_directory_fails(
    make_storage: MakeStorage, tmp_path: Path
) -> None:
    broker = make_storage(2)
    await broker.start()
    for name in ("d0", "d1"):
        (tmp_path / name / "ottla.boot-id").write_text("another boot")
    manager = await broker.restart()
    assert manager.markers.is_power_loss_suspected
    manager.disk(broker.paths[0]).take_offline(OSError(errno.EIO, "gone"))
    await manager.markers.broker_registered()
    assert manager.offline_paths == [broker.paths[0]] and not manager.markers.is_power_loss_suspected
    assert not (tmp_path / "d1" / "ottla.power-loss-suspected").exists()
