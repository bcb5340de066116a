"""What is known of the ensemble beyond the snapshot: what came of the last reconfiguration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReconfigurationFailure:
    """Why ZooKeeper refused the last reconfiguration, "" when it did not. `version`: of the configuration before it."""

    version: int = 0
    why: str = ""


NO_FAILURE = ReconfigurationFailure()
