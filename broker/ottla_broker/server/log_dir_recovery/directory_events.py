"""Reports to the controller that a log directory of this broker has changed: the sequential znode of KIP-112.

The active controller reads `/log_dir_event_notification/log_dir_event_N`, sends LeaderAndIsr for every partition of the
broker that it names, and learns from the answers which replicas are offline (56) and which work (NONE). The same znode
is written when a directory fails, when it is full, and when it is back. Not here: what LeaderAndIsr is answered.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla_broker.coordination import znodes
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.storage.log_dirs.states import DirectoryState, DirectoryStates

_RETRY_S = 1.0


class DirectoryEvents:
    """Writes one event for any number of changes that come while the coordination store does not answer."""

    def __init__(
        self, broker_id: int, coordination: Coordination, clock: Clock, logger: logging.LoggerAdapter[Any]
    ) -> None:
        self._broker_id = broker_id
        self._coordination = coordination
        self._clock = clock
        self._logger = logger
        self._is_asked = False
        self._is_running = False

    def report(self) -> None:
        """An event is written as soon as the coordination store takes it."""
        self._is_asked = True
        if not self._is_running:
            self._is_running = True
            self._clock.spawn(self._write(), name="log directory event")

    async def _write(self) -> None:
        try:
            while self._is_asked:
                self._is_asked = False
                try:
                    path = await self._coordination.create(
                        znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(self._broker_id), sequence=True
                    )
                    self._logger.info("log directory event written: %s", path)
                except CoordinationError as error:
                    # Twice is harmless: the controller sends LeaderAndIsr twice.
                    self._logger.warning("the event of a log directory is not written yet: %s", error)
                    self._is_asked = True
                    await self._clock.sleep(_RETRY_S)
        finally:
            self._is_running = False


def register_metrics(metrics: Metrics, states: DirectoryStates) -> None:
    """Kafka's two metrics of log directories, and ours of full ones and of free bytes."""
    metrics.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount", "Offline log directories.", lambda: len(states.offline)
    )
    for status in states:
        for name, help_text, value in (
            (
                "kafka_log_logmanager_logdirectoryoffline",
                "1 while the log directory is offline.",
                lambda one=status: float(one.state is DirectoryState.OFFLINE),
            ),
            (
                "ottla_log_directory_full",
                "1 while the log directory is full: it serves reads and refuses produce requests.",
                lambda one=status: float(one.state is DirectoryState.FULL),
            ),
            (
                "ottla_log_directory_free_bytes",
                "Free bytes of the log directory's file system when it was last asked, -1 before.",
                lambda one=status: float(one.free_bytes),
            ),
        ):
            metrics.gauge(name, help_text, value, logDirectory=status.path)
