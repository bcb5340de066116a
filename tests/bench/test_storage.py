"""The storage half of the benchmark: what it writes, what it counts, what it holds figures to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.floor import write_plainly
from bench.report import entries, goal_of
from bench.runner import FLOOR, Measured
from bench.storage import append_roll, growth_plot
from bench.storage.append_read import SIZES, batch_of, measure
from bench.storage.recovery import write_segment
from bench.systems import APACHE_KAFKA, OURS
from ottla_broker.adapters.direct_disk import DirectDisk
from ottla_broker.records.batch import batches
from ottla_broker.storage.log.recovery import recover_log


@pytest.mark.parametrize("size", SIZES)
def test_a_batch_is_about_as_large_as_its_name_says(size: str) -> None:
    batch = batch_of(SIZES[size])
    assert 0.9 * SIZES[size] < len(batch) <= 1.1 * SIZES[size]
    assert len(list(batches(memoryview(batch)))) == 1


@pytest.mark.parametrize("size", ["64k", "1k"])
async def test_the_segment_to_be_recovered_is_whole_and_right(size: str, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    end = write_segment(path, SIZES[size], 1_000_000)
    disk = DirectDisk(str(tmp_path))
    found = await recover_log(disk, "t-0", 0, 4096, False)
    disk.close()
    assert (found.next_offset, found.cut_bytes, found.scanned_bytes) == (end, 0, path.stat().st_size)
    assert 900_000 < found.scanned_bytes <= 1_000_000


async def test_a_log_is_appended_to_and_read_beside_plain_files(tmp_path: Path) -> None:
    found = await measure(str(tmp_path / "log"), SIZES["64k"], 3_000_000)
    assert all(seconds > 0 for seconds in found.values())
    # A path of its own: what is measured does not depend on what was measured before.
    assert await asyncio.to_thread(write_plainly, tmp_path / "plain", 3_000_000, 65_536)


async def test_what_appends_wait_for_a_roll_is_measured(tmp_path: Path) -> None:
    found = await append_roll.measure(str(tmp_path / "log"), 3_000_000, 1_000_000)
    assert len(list((tmp_path / "log" / "bench-0").glob("*.log"))) >= 3
    assert 0 < found["append_p50_ms"] <= found["append_p99_ms"] <= found["append_max_ms"]
    assert 0 < found["append_mb_s"] <= 151


def test_figures_are_held_to_values_to_plain_files_and_to_apache_kafka() -> None:
    measured = Measured()
    measured.add("partitions-5000", "rss_kib_per_partition", OURS, 12.0)
    measured.add("partitions-5000", "leading_s", OURS, 6.0)
    measured.add("append-read-1m", "append_mb_s", OURS, 900.0)
    measured.add("append-read-1m", "append_mb_s", FLOOR, 1000.0)
    measured.add("recovery-64k", "recovery_s", OURS, 3.0)
    measured.add("recovery-64k", "recovery_s", APACHE_KAFKA, 2.0)
    measured.add("recovery-1k", "recovery_s", OURS, 3.0)
    found = {(str(entry["scenario"]), str(entry["metric"])): goal_of(entry) for entry in entries(measured)}
    assert found == {
        ("partitions-5000", "rss_kib_per_partition"): ("≤ 20", True),
        ("partitions-5000", "leading_s"): ("≤ 5", False),
        ("append-read-1m", "append_mb_s"): ("≥ 0.8 × plain", True),
        ("recovery-64k", "recovery_s"): ("≤ 1", False),
        ("recovery-1k", "recovery_s"): ("", None),
    }


def test_the_growth_of_a_log_is_drawn(tmp_path: Path) -> None:
    point = {f"{place}_{rank}_ms": 0.5 for place in ("append", "tail", "random") for rank in ("p50", "p99")}
    points = [{"gb": size, "disk_read_mb": 0.0, **point} for size in (1.0, 2.0, 3.0)]
    growth_plot.draw(tmp_path / "growth.png", {OURS: points, APACHE_KAFKA: points})
    assert (tmp_path / "growth.png").stat().st_size > 10_000
