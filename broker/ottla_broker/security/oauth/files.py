"""Reads a small file with keys or a token. Blocks."""

from __future__ import annotations

import errno
from pathlib import Path


def read_file(path: str, most_bytes: int) -> bytes:
    """Raises OSError, with EFBIG for a file that is longer."""
    with Path(path).open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"longer than {most_bytes} bytes", path)
    return content
