"""The status of a broker as plain values, for /status and `ottla` commands."""

from __future__ import annotations

from typing import Any

from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.server.lifecycle import BrokerState
from ottla_broker.server.store.coordination_session import CoordinationSessionState
from ottla_broker.storage.log_dirs.log_manager import LogManager


def broker_status(
    broker_id: int,
    cluster_id: str,
    state: BrokerState,
    session: CoordinationSessionState,
    log_manager: LogManager,
    replica_manager: ReplicaManager | None,
    tls: list[dict[str, Any]],
) -> dict[str, Any]:
    """State, session with the coordination store, recovery progress, log directories and certificates.

    `since_ms` is the wall clock of the last change of state, `free_bytes` as last measured; -1 where there is none.
    `strays` are the `-stray` directories, which DescribeLogDirs does not have.
    """
    progress = log_manager.progress
    return {
        "broker": broker_id,
        "cluster": cluster_id,
        "state": state.value,
        "ready": state is BrokerState.RUNNING,
        "session": session.status(),
        "recovery": {
            "loaded": progress.loaded,
            "total": progress.total,
            "scanned_bytes": progress.scanned_bytes,
            "tail_bytes": progress.tail_bytes,
            "current": list(progress.current),
            "log_dirs": {
                path: {"scanned_bytes": one.scanned_bytes, "tail_bytes": one.tail_bytes}
                for path, one in progress.directories.items()
            },
        },
        "log_dirs": [
            {
                "path": one.path,
                "state": one.state.value,
                "reason": one.reason,
                "since_ms": one.since_ms,
                "free_bytes": one.free_bytes,
                "directory_id": one.directory_id,
                "strays": len(one.strays),
            }
            for one in log_manager.states
        ],
        "recreation": {} if replica_manager is None else replica_manager.recreation.status(),
        "tls": tls,
    }
