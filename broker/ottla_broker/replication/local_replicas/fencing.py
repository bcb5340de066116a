"""Which commands of a controller a broker takes: not those of one that has been replaced, nor those for a life before.

Not here: which leader epochs of a partition are too old (`replica_manager`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla_broker.ports import Clock

_REGISTRATION_POLL_S = 0.01


class CommandFence:
    """Of one life of a broker. `broker_epoch` gives its epoch (the czxid of its registration), -1 before it has one."""

    def __init__(
        self, clock: Clock, broker_epoch: Callable[[], int], logger: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self.controller_epoch = 0
        """Of the last controller that was heard."""
        self._connection = 0
        """The number of the last connection over which that controller has been heard."""
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._logger = logger

    async def is_stale_broker_epoch(self, broker_epoch: int) -> bool:
        """True for a command meant for an earlier life of this broker (KIP-380). A later one is fine: the controller
        may hear of our registration before we do. -1 is not checked.

        Waits until this life has an epoch: a leadership repeated to the address of a broker that has lost its tail
        would make it lead with what is left, and its followers cut theirs.
        """
        while broker_epoch != -1 and self._broker_epoch() < 0:
            await self._clock.sleep(_REGISTRATION_POLL_S)
        return broker_epoch != -1 and broker_epoch < self._broker_epoch()

    def accepts(self, controller_epoch: int, connection: int | None = None) -> bool:
        """False for a controller that has been replaced, and for what still comes over a connection that it has given
        up. None: the connection does not count.

        A controller makes another connection when it gave up the one before, and repeats over it what was not answered.
        The network may deliver the first copy after that: a full LeaderAndIsr would delete what was assigned since, and
        a StopReplica of a deleted topic, which no epoch holds back, the topic that was made anew.
        """
        if controller_epoch < self.controller_epoch:
            return False
        if controller_epoch > self.controller_epoch:
            self.controller_epoch = controller_epoch
            self._connection = 0
        if connection is not None:
            if connection < self._connection:
                self._logger.info("a command that the controller has given up comes late: it is refused")
                return False
            self._connection = connection
        return True
