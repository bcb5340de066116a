"""What a container leaves behind when it ends: Kubernetes shows the file's text as the reason why it ended."""

from __future__ import annotations

import os
from pathlib import Path

PATH = Path("/dev/termination-log")
"""terminationMessagePath's default; it is there in a container of Kubernetes only."""
MOST_BYTES = 4096
"""What Kubernetes keeps of it."""


def leave_reason(reason: str) -> None:
    """Writes why the process ends, where there is such a file; never an error, for the process ends anyway."""
    try:
        descriptor = os.open(PATH, os.O_WRONLY | os.O_TRUNC)  # never created: elsewhere it is nobody's business
    except OSError:
        return
    try:
        os.write(descriptor, reason.encode(errors="replace")[:MOST_BYTES])
    except OSError:
        pass
    finally:
        os.close(descriptor)
