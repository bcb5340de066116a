"""How often the operator reads again what no watch reports."""

from __future__ import annotations

REQUEUE_AFTER_S = 30.0
"""How often brokers are asked for log directories and partitions when nothing else happens. This is no API call."""
RESYNC_S = 600.0
"""How often everything is read from the API server once more."""
