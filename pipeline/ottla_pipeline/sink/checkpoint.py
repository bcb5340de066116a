"""What the checkpoint of a query says about a batch, where it is a folder of this machine. Reads files."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit


def age_of_batch(location: str, batch_id: int, now_ms: int) -> int | None:
    """The most ms for which attempts of a batch may have been made; None where the checkpoint does not say.

    Spark writes the offsets of a batch, with the time, before it runs the batch for the first time, and leaves the file
    as it is when it runs the batch again. A checkpoint may be copied, and the clock of another machine may be wrong: of
    the time in the file and that of the file the older one counts.

    Args:
        location: the option checkpointLocation, a path or a URL.
        batch_id: of the batch, from 0.
        now_ms: since 1970.
    """
    url = urlsplit(location)
    if url.scheme not in ("", "file"):
        return None
    folder = Path(unquote(url.path) if url.scheme else location)
    file = folder / "offsets" / str(batch_id)
    try:
        written_ms = int(file.stat().st_mtime * 1000)
        planned_ms = _planned_ms(file.read_text(errors="replace"))
    except OSError:
        return None
    return max(now_ms - written_ms, now_ms - planned_ms if planned_ms is not None else 0)


def _planned_ms(text: str) -> int | None:
    """The time in a file of offsets.

    Source: OffsetSeqLog, whose second line is an OffsetSeqMetadata.

    >>> _planned_ms('v1\\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}\\n{}')
    1700000000000
    >>> _planned_ms("v1") is None, _planned_ms("v1\\n[1]\\n-") is None
    (True, True)
    """
    lines = text.splitlines()
    try:
        found = json.loads(lines[1])["batchTimestampMs"]
    except (IndexError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) and found > 0 else None
