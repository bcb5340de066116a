"""Checks that the files of a partition agree with each other, with a reader that shares no code with the broker.

`disagreements(directory)` is what other tests use: an empty list, or a line for each thing that does not fit. The
directory may be that of a broker that was killed: then indexes may lack entries at their end or end in the middle of
one, and the last segment in the middle of a batch. What is there must be right all the same.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

_PREFIX = Struct(">qiib")
_REST = Struct(">Ihiqqqhii")
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_ENTRY_BYTES = 46
_ABORTED_ENTRY = Struct(">hqqqq")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_MARKER_TYPE_AT = 68
"""In a marker: behind the header, five varints of a byte each and the key's version."""


class Batch(NamedTuple):
    position: int
    base: int
    last: int
    epoch: int
    max_timestamp: int
    attributes: int
    producer_id: int
    marker: int
    """0 ABORT, 1 COMMIT, of a control batch."""


def disagreements(directory: Path, *, was_killed: bool = False) -> list[str]:
    """The contradictions between the files of one partition's directory, for message format 2."""
    found: list[str] = []
    logs = sorted(directory.glob("*.log"))
    segments: list[tuple[Path, list[Batch]]] = []
    for path in logs:
        is_open = was_killed and path is logs[-1]
        batches, problem = _batches(path.read_bytes())
        if problem and not is_open:
            found.append(f"{path.name}: {problem}")
        base = int(path.stem)
        if batches and batches[0].base < base:
            found.append(f"{path.name}: begins at offset {batches[0].base}")
        found += _offset_index(path.with_suffix(".index"), base, batches, was_killed)
        found += _time_index(path.with_suffix(".timeindex"), base, batches, was_killed)
        segments.append((path, batches))
    for (_, before), (path, _) in pairwise(segments):
        if before and before[-1].last >= int(path.stem):
            found.append(f"{path.name}: the segment before it ends at offset {before[-1].last}")
    found += _transaction_indexes(segments, was_killed)
    epochs = directory / "leader-epoch-checkpoint"
    if epochs.exists() or not was_killed:  # it comes with the first flush; until then the batches tell
        found += _epochs(epochs, [batch for _, batches in segments for batch in batches])
    for path in sorted(directory.glob("*.snapshot")):
        found += _snapshot(path)
    if not was_killed:
        odd = [path.name for path in directory.iterdir() if path.suffix in (".swap", ".cleaned", ".tmp")]
        found += [f"{name}: left behind" for name in odd]
    return found


def disagreements_of(log_dir: Path, *, was_killed: bool = False) -> list[str]:
    """The same for every partition of a log directory."""
    return [
        f"{path.name}/{line}"
        for path in sorted(log_dir.iterdir())
        if path.is_dir() and path.name.rpartition("-")[2].isdigit()
        for line in disagreements(path, was_killed=was_killed)
    ]


def _batches(data: bytes) -> tuple[list[Batch], str]:
    batches: list[Batch] = []
    position = 0
    next_offset = -1
    while position < len(data):
        if len(data) - position < 61:
            return batches, f"{len(data) - position} bytes too many at byte {position}"
        base, length, epoch, magic = _PREFIX.unpack_from(data, position)
        crc, attributes, last_delta, _, max_timestamp, producer_id, *_ = _REST.unpack_from(
            data, position + _PREFIX.size
        )
        end = position + 12 + length
        if magic != 2 or length < 49 or end > len(data):
            return batches, f"no whole batch at byte {position}"
        if crc32c(data[position + 21 : end]) != crc:
            return batches, f"the checksum of the batch at byte {position} does not fit"
        if base < next_offset:
            return batches, f"the batch at byte {position} begins at offset {base}, expected {next_offset} or more"
        next_offset = base + last_delta + 1
        marker = data[position + _MARKER_TYPE_AT + 1] if attributes & _CONTROL else -1
        batches.append(Batch(position, base, base + last_delta, epoch, max_timestamp, attributes, producer_id, marker))
        position = end
    return batches, ""


def _entries(path: Path, entry: Struct, is_open: bool) -> tuple[list[tuple[int, int]], list[str]]:
    if not path.exists():
        return [], [] if is_open else [f"{path.name} is missing"]
    data = path.read_bytes()
    whole = len(data) - len(data) % entry.size
    torn = [f"{path.name}: ends in the middle of an entry"] if whole != len(data) and not is_open else []
    return [(first, second) for first, second in entry.iter_unpack(data[:whole])], torn


def _offset_index(path: Path, base: int, batches: list[Batch], is_open: bool) -> list[str]:
    entries, found = _entries(path, _OFFSET_ENTRY, is_open)
    lasts = {batch.position: batch.last for batch in batches}
    for relative, position in entries:
        if lasts.get(position) != base + relative:
            found.append(f"{path.name}: offset {base + relative} at byte {position}, the log has {lasts.get(position)}")
    if any(after <= before for before, after in pairwise(entries)):
        found.append(f"{path.name}: the entries do not grow")
    return found


def _time_index(path: Path, base: int, batches: list[Batch], is_open: bool) -> list[str]:
    entries, found = _entries(path, _TIME_ENTRY, is_open)
    largest_at: dict[int, int] = {}
    largest = -1
    for batch in batches:
        largest = max(largest, batch.max_timestamp)
        largest_at[batch.last] = largest
    for timestamp, relative in entries:
        if largest_at.get(base + relative) != timestamp:
            found.append(
                f"{path.name}: {timestamp} up to offset {base + relative}, "
                f"the log has {largest_at.get(base + relative)}"
            )
    if any(after <= before for before, after in pairwise(entries)):
        found.append(f"{path.name}: the entries do not grow")
    if not is_open and largest >= 0 and (not entries or entries[-1][0] != largest):
        found.append(f"{path.name}: the largest timestamp {largest} is not its last entry")
    return found


def _transaction_indexes(segments: list[tuple[Path, list[Batch]]], was_killed: bool) -> list[str]:
    """For a log that has its first segment: else a transaction may have begun in a deleted one."""
    if not segments or int(segments[0][0].stem):
        return []
    found: list[str] = []
    began: dict[int, int] = {}
    for path, batches in segments:
        expected: list[tuple[int, ...]] = []
        for batch in batches:
            if not batch.attributes & _TRANSACTIONAL:
                continue
            if not batch.attributes & _CONTROL:
                began.setdefault(batch.producer_id, batch.base)
                continue
            first = began.pop(batch.producer_id, None)
            if first is not None and batch.marker == 0:
                stable = min(began.values(), default=batch.last + 1)
                expected.append((0, batch.producer_id, first, batch.base, stable))
        index = path.with_suffix(".txnindex")
        data = index.read_bytes() if index.exists() else b""
        is_open = was_killed and path is segments[-1][0]
        if len(data) % _ABORTED_ENTRY.size and not is_open:
            found.append(f"{index.name}: ends in the middle of an entry")
        whole = data[: len(data) - len(data) % _ABORTED_ENTRY.size]
        entries = list(_ABORTED_ENTRY.iter_unpack(whole))
        if is_open:  # it may lack the last ones, or tell of markers that were not written any more
            end = batches[-1].last if batches else -1
            entries = [entry for entry in entries if entry[3] <= end]
            expected = expected[: len(entries)]
        if entries != expected:
            found.append(f"{index.name}: has {entries}, the log says {expected}")
    return found


def _epochs(path: Path, batches: list[Batch]) -> list[str]:
    if not path.exists():
        return [f"{path.name} is missing"] if batches else []
    lines = path.read_text().splitlines()
    entries = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines[2:])]
    found = [] if int(lines[1]) == len(entries) else [f"{path.name}: announces {lines[1]} entries"]
    for batch in batches:
        held = [epoch for epoch, start in entries if start <= batch.base]
        if held and held[-1] != batch.epoch and held[-1] != entries[-1][0]:
            found.append(f"{path.name}: offset {batch.base} is of epoch {batch.epoch}, not {held[-1]}")
    return found


def _snapshot(path: Path) -> list[str]:
    data = path.read_bytes()
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    is_whole = len(data) == _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY_BYTES
    if version == 1 and is_whole and crc32c(data[6:]) == crc:
        return []
    return [f"{path.name}: not a snapshot of version 1 with {count} entries"]
