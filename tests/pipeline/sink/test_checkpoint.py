"""For how long a batch may have been attempted, as its checkpoint says."""

from __future__ import annotations

import os
from pathlib import Path

from ottla_pipeline.sink.checkpoint import age_of_batch


def offsets(folder: Path, text: str, written_s: float) -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    file = folder / "offsets" / "7"
    file.write_text(text)
    os.utime(file, (written_s, written_s))


def test_the_older_one_of_the_time_of_the_file_and_the_time_in_it_counts(tmp_path: Path) -> None:
    text = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1000000,"conf":{}}\n{}'
    for written_s, age_ms in ((3000, 4_000_000), (500, 4_500_000)):  # a copy is younger than what it is of
        offsets(tmp_path, text, written_s)
        assert age_of_batch(str(tmp_path), 7, 5_000_000) == age_ms
    offsets(tmp_path, "v1", 3000)
    assert age_of_batch(f"file:{tmp_path}", 7, 5_000_000) == 2_000_000
    assert age_of_batch(tmp_path.as_uri(), 7, 5_000_000) == 2_000_000


def test_a_checkpoint_that_is_elsewhere_or_has_no_such_batch_says_nothing(tmp_path: Path) -> None:
    offsets(tmp_path, "v1", 0)
    assert age_of_batch(str(tmp_path), 8, 1) is None
    assert age_of_batch(f"hdfs://host{tmp_path}", 7, 1) is None
    assert age_of_batch("", 7, 1) is None
