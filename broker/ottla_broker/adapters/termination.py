"""Writes the termination message of a container, which Kubernetes shows as the reason why it ended."""

from __future__ import annotations

import os
from pathlib import Path

PATH = Path("/dev/termination-log")
"""The default of terminationMessagePath; the file exists only in a container of Kubernetes."""
MAX_BYTES = 4096
"""Kubernetes reads no more."""


def write_reason(reason: str) -> None:
    """Writes why the process ends, if there is such a file. Ignores errors: the process ends anyway."""
    try:
        descriptor = os.open(PATH, os.O_WRONLY | os.O_TRUNC)  # never created: outside of Kubernetes nobody reads it
    except OSError:
        return
    try:
        os.write(descriptor, reason.encode(errors="replace")[:MAX_BYTES])
    except OSError:
        pass
    finally:
        os.close(descriptor)
