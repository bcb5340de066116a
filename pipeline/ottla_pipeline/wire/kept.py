"""Clusters whose connections outlive a task: Spark runs the next task in the same Python process.

A micro-batch has a task for each partition, and each would open two connections and agree on versions on both. What is
kept belongs to one process (not to one that is forked from it) and is taken by one task at a time. Once it was idle for
`IDLE_S` it is closed instead of being taken, so that no firewall on the way has forgotten it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from ottla_pipeline.wire.cluster import Cluster
from ottla_pipeline.wire.connecting import Connecting

IDLE_S = 60.0
"""Less than the 10 minutes of a broker's connections.max.idle.ms, and than the timeouts of firewalls."""

_MOST = 4


class _Kept(NamedTuple):
    process: int
    connecting: Connecting
    cluster: Cluster
    at: float


_lock = threading.Lock()
_kept: list[_Kept] = []


@contextlib.contextmanager
def kept_cluster(connecting: Connecting) -> Iterator[Cluster]:
    """A cluster with the connections that an earlier task has left, if any. An error in the block closes them."""
    cluster = _take(connecting) or Cluster(connecting)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    with _lock:
        _kept.append(_Kept(os.getpid(), connecting, cluster, time.monotonic()))
        oldest = _kept.pop(0) if len(_kept) > _MOST else None
    if oldest is not None:
        oldest.cluster.close()


def _take(connecting: Connecting) -> Cluster | None:
    with _lock:
        usable = (one for one in reversed(_kept) if one.connecting == connecting and one.process == os.getpid())
        found = next(usable, None)
        if found is None:
            return None
        _kept.remove(found)
    if time.monotonic() - found.at > IDLE_S:
        found.cluster.close()
    found.cluster.drop_broken()
    return found.cluster
