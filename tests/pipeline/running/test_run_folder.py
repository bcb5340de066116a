"""The folder of a pipeline: one process at a time, a status that readers see whole, and what a reset deletes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla_documents.kafka_pipeline import KafkaPipeline, parse_pipeline
from ottla_pipeline.running.run_folder import FILE_LOG, RunFolder, RunFolderError, first_new_batch


def pipeline(path: Path, name: str = "p", **sink: object) -> KafkaPipeline:
    spec = {
        "bootstrapServers": "h:1",
        "source": {"topics": ["a"]},
        "sink": sink or {"topic": {"name": "b"}},
        "checkpoint": {"path": str(path)},
    }
    found, problems = parse_pipeline({"metadata": {"name": name}, "spec": spec})
    assert problems == []
    return found


def test_a_second_process_is_refused_while_one_runs(tmp_path: Path) -> None:
    folder = RunFolder(pipeline(tmp_path / "c"))
    assert not folder.is_locked()
    with folder.locked():
        assert folder.is_locked()
        with (
            pytest.raises(RunFolderError, match="the pipeline p is running"),
            RunFolder(pipeline(tmp_path / "c")).locked(),
        ):
            pass
    assert not folder.is_locked()


def test_the_folder_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(pipeline(tmp_path / "c"))
    with folder.locked():
        folder.write_status({"phase": "Completed"})
    with (
        pytest.raises(RunFolderError, match="is the folder of the pipeline default/p: each pipeline needs its own"),
        RunFolder(pipeline(tmp_path / "c", "other")).locked(),
    ):
        pass


def test_a_folder_that_cannot_be_made_names_the_field(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunFolderError, match=r"spec\.checkpoint\.path .*: Not a directory"),
        RunFolder(pipeline(tmp_path / "file" / "c")).locked(),
    ):
        pass


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", '{"pipeline": "p", "phase": 5}'])
def test_a_status_that_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "status.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"status\.json"):
        RunFolder(pipeline(tmp_path)).status()


def test_reset_deletes_checkpoints_status_and_the_log_of_files_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder = RunFolder(pipeline(tmp_path / "c", parquet={"path": str(out)}))
    for path in (folder.query / "offsets", folder.dead_letters, out / FILE_LOG):
        path.mkdir(parents=True)
    (folder.path / "mine").touch()
    (out / "part-0.parquet").touch()
    folder.write_status({})
    assert folder.reset() == [folder.query, folder.dead_letters, folder.path / "status.json", out / FILE_LOG]
    assert [path.name for path in folder.path.iterdir()] == ["mine"]
    assert [path.name for path in out.iterdir()] == ["part-0.parquet"]
    assert folder.reset() == []


@pytest.mark.parametrize("text", ["", "{oops", "[]", "{}"])
def test_a_checkpoint_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    folder = RunFolder(pipeline(tmp_path / "c"))
    folder.check_checkpoint()
    folder.query.mkdir(parents=True)
    (folder.query / "metadata").write_text(text)
    with pytest.raises(RunFolderError, match=r"spec\.checkpoint\.path: .*metadata is none of Spark's"):
        folder.check_checkpoint()
    (folder.query / "metadata").write_text('{"id": "1-2"}')
    folder.check_checkpoint()


def test_the_spool_is_empty_before_tasks_use_it(tmp_path: Path) -> None:
    folder = RunFolder(pipeline(tmp_path / "c"))
    with folder.locked():
        (folder.empty_spool() / "of-a-killed-executor").touch()
        spool = folder.empty_spool()
    assert spool == tmp_path / "c" / "spool" and list(spool.iterdir()) == []
    assert folder.reset() == [spool]


def test_what_cannot_be_deleted_from_the_spool_stays_and_ends_no_run(tmp_path: Path) -> None:
    # As on NFS a file that an executor of this node still has open, or a folder of the volume's server.
    folder = RunFolder(pipeline(tmp_path / "c"))
    with folder.locked():
        (folder.empty_spool() / ".snapshot").mkdir()
        (folder.spool / "of-a-killed-executor").touch()
        assert [file.name for file in folder.empty_spool().iterdir()] == [".snapshot"]


def test_a_batch_is_new_that_the_checkpoint_does_not_have_or_has_for_a_short_time(tmp_path: Path) -> None:
    offsets = RunFolder(pipeline(tmp_path / "c")).query / "offsets"
    assert first_new_batch(offsets.parent, now_s=5e9) == 0
    offsets.mkdir(parents=True)
    for name in ("6", "7", ".7.crc", ".8.5fbb.tmp"):
        (offsets / name).touch()
        os.utime(offsets / name, (4e9, 4e9))
    assert first_new_batch(offsets.parent, now_s=4e9 + 20) == 7
    assert first_new_batch(offsets.parent, now_s=4e9 + 60) == 8


def test_a_new_checkpoint_beside_files_of_another_one_is_told(tmp_path: Path) -> None:
    folder = RunFolder(pipeline(tmp_path / "c", parquet={"path": str(tmp_path / "out")}))
    assert folder.forgotten_files() is None
    (tmp_path / "out" / FILE_LOG).mkdir(parents=True)
    (tmp_path / "out" / FILE_LOG / "0").touch()
    assert folder.forgotten_files() == tmp_path / "out" / FILE_LOG
    (folder.query / "offsets").mkdir(parents=True)
    (folder.query / "offsets" / "0").touch()
    assert folder.forgotten_files() is None


def test_a_checkpoint_that_was_put_back_beside_files_is_told(tmp_path: Path) -> None:
    folder = RunFolder(pipeline(tmp_path / "c", parquet={"path": str(tmp_path / "out")}))
    for path in (folder.query / "offsets", tmp_path / "out" / FILE_LOG):
        path.mkdir(parents=True)
        for name in ("8", ".8.crc", "9.compact", ".9.compact.crc", ".10.0c6a.tmp"):
            (path / name).touch()
    assert folder.forgotten_files() is None
    (tmp_path / "out" / FILE_LOG / "10").touch()
    assert folder.forgotten_files() == tmp_path / "out" / FILE_LOG
    (folder.query / "offsets" / "10").touch()  # begun, and not yet in Spark's commit log
    assert folder.forgotten_files() is None
