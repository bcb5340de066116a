"""What a start does with the files of interrupted deletions and compactions."""

from __future__ import annotations

from pathlib import Path

from ottla_broker.storage.files.names import offset_name
from tests.broker.storage.logs import Make
from tests.broker.storage.numbered import SMALL, check, fill


async def test_a_start_deletes_what_interrupted_deletions_and_compactions_left(make: Make, tmp_path: Path) -> None:
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.closer.close()
    bases = [segment.base_offset for segment in log.state.segments]
    setup.crash()
    directory = tmp_path / "t-0"
    (directory / offset_name(0, ".log.deleted")).write_bytes(b"x")
    (directory / offset_name(bases[2], ".log.cleaned")).write_bytes(b"x")
    merged = b"".join((directory / offset_name(base, ".log")).read_bytes() for base in bases[:2])
    (directory / offset_name(0, ".log.swap")).write_bytes(merged)
    (directory / offset_name(0, ".index.swap")).write_bytes(b"")
    log = await setup.open()
    assert [segment.base_offset for segment in log.state.segments] == [0, *bases[2:]]
    assert not [path for path in directory.iterdir() if path.suffix in (".swap", ".cleaned", ".deleted")]
    await check(log, 45)


async def test_a_start_undoes_an_incomplete_split_of_a_segment(make: Make, tmp_path: Path) -> None:
    """Apache Kafka splits a segment into several, renamed from the last to the first."""
    setup = make(**SMALL)
    log = await setup.open()
    await fill(log, 0, 45)
    await log.closer.close()
    bases = [segment.base_offset for segment in log.state.segments]
    setup.crash()
    directory = tmp_path / "t-0"
    (directory / offset_name(bases[1], ".log.cleaned")).write_bytes(b"the first half")
    (directory / offset_name(bases[2], ".log.swap")).write_bytes(b"the second half")
    log = await setup.open()
    assert [segment.base_offset for segment in log.state.segments] == bases
    assert not [path for path in directory.iterdir() if path.suffix in (".swap", ".cleaned")]
    await check(log, 45)
