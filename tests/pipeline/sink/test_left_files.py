"""Files of tasks stay for as long as their write goes on, whatever process has made them, and no longer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_broker.records.compression import Codec
from ottla_pipeline.sink.left_files import LEFT_AFTER_S, delete_left, driver_name, sweep
from ottla_pipeline.sink.plain_batch import PlainBatch
from ottla_pipeline.sink.spool import INLINE_BYTES, Spool, WriteName, write_name
from ottla_pipeline.topic_partition import TopicPartition

OWN = write_name("query", 7, driver_name())
OTHER = write_name("query", 17, driver_name())
ELSEWHERE = write_name("query", 17, "pod-3.example.4026531836.42.77")


def file_of(directory: Path, write: WriteName) -> Path:
    spool = Spool(str(directory), write)
    spool.add(TopicPartition("t", 1), PlainBatch(b"a" * (INLINE_BYTES + 1), Codec.NONE, 3, 1, 2))
    output = spool.finish()
    assert output.path is not None
    return Path(output.path)


def other_process(program: str) -> str:
    """What a process prints that has ended since."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def dead_driver() -> str:
    return other_process("from ottla_pipeline.sink.left_files import driver_name; print(driver_name())")


def test_files_stay_when_the_process_that_made_them_ends_and_the_driver_goes_on(tmp_path: Path) -> None:
    """As when the kernel's OOM killer ends the daemon of Spark's Python processes while a task of the write runs."""
    made = other_process(
        "from pathlib import Path; from tests.pipeline.sink.test_left_files import *;"
        f"print(file_of(Path({str(tmp_path)!r}), WriteName(*{tuple(OWN)!r})))"
    )
    for running in (OWN, OTHER):
        sweep(str(tmp_path), running)
    assert [str(found) for found in tmp_path.iterdir()] == [made]


def test_files_of_a_driver_that_runs_no_more_go_with_the_next_write(tmp_path: Path) -> None:
    kept = file_of(tmp_path, OTHER)
    gone = file_of(tmp_path, OTHER._replace(driver=dead_driver()))
    sweep(str(tmp_path), OWN)
    assert list(tmp_path.iterdir()) == [kept] and not gone.exists()


def test_a_driver_with_the_number_of_a_dead_one_is_another_driver(tmp_path: Path) -> None:
    number, start = driver_name().rsplit(".", 2)[1:]
    driver = driver_name().removesuffix(f"{number}.{start}") + f"{number}.{int(start) - 1}"
    file_of(tmp_path, OTHER._replace(driver=driver))
    sweep(str(tmp_path), OWN)
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_same_write_are_never_swept(tmp_path: Path) -> None:
    files = {file_of(tmp_path, OWN._replace(driver=driver)) for driver in (dead_driver(), "elsewhere.1.2.3", "")}
    sweep(str(tmp_path), OWN, now_s=9e9)
    assert set(tmp_path.iterdir()) == files


@pytest.mark.parametrize("driver", [ELSEWHERE.driver, "", "host"])
def test_files_of_a_driver_that_nobody_here_can_look_for_go_after_a_week(tmp_path: Path, driver: str) -> None:
    found = file_of(tmp_path, ELSEWHERE._replace(driver=driver))
    os.utime(found, (1e9, 1e9))
    sweep(str(tmp_path), OWN, now_s=1e9 + LEFT_AFTER_S - 1)
    assert found.exists()
    sweep(str(tmp_path), OWN, now_s=1e9 + LEFT_AFTER_S + 1)
    assert not found.exists()


def test_what_a_killed_application_has_left_in_its_own_directory_of_spark_is_found(tmp_path: Path) -> None:
    own, killed, unrelated = (tmp_path / name for name in ("blockmgr-1", "blockmgr-2", "other"))
    for folder in (own, killed, unrelated):
        folder.mkdir()
        file_of(folder, OTHER._replace(driver=dead_driver()))
    sweep(str(own), OWN)
    assert [len(list(folder.iterdir())) for folder in (own, killed, unrelated)] == [0, 0, 1]


def test_a_write_that_has_ended_leaves_nothing_and_those_of_others_stay(tmp_path: Path) -> None:
    file_of(tmp_path, OWN)  # of an attempt that was killed
    of_another_driver, of_another_write = (
        file_of(tmp_path, OWN._replace(driver=ELSEWHERE.driver)),
        file_of(tmp_path, OTHER),
    )
    delete_left([str(tmp_path), str(tmp_path / "gone")], OWN, of_all_drivers=False)
    assert set(tmp_path.iterdir()) == {of_another_driver, of_another_write}
    delete_left([str(tmp_path)], OWN, of_all_drivers=True)
    assert list(tmp_path.iterdir()) == [of_another_write]
