"""Which commands of a controller a broker accepts: none of a former controller, none for an earlier incarnation.

Not here: which leader epochs of a partition are too old (`replica_states.transitions`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla_broker.ports import Clock

_REGISTRATION_POLL_S = 0.01


class CommandFence:
    """Fences one incarnation of a broker. `broker_epoch` gives its epoch (the czxid of its registration), -1 before."""

    def __init__(
        self, clock: Clock, broker_epoch: Callable[[], int], logger: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self.controller_epoch = 0
        """Of the last controller that sent a command."""
        self._connection = 0
        """The number of the last connection that this controller has used."""
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._logger = logger

    async def is_stale_broker_epoch(self, broker_epoch: int) -> bool:
        """True for a command to an earlier incarnation of this broker (KIP-380). A later epoch is fine: the controller
        may see our registration before we do. -1 is not checked.

        Waits until this incarnation has an epoch: a LeaderAndIsr that is repeated to the address of a broker which has
        lost its tail would make it lead with the rest, and its followers would cut their logs to that.
        """
        while broker_epoch != -1 and self._broker_epoch() < 0:
            await self._clock.sleep(_REGISTRATION_POLL_S)
        return broker_epoch != -1 and broker_epoch < self._broker_epoch()

    def accepts(self, controller_epoch: int, connection: int | None = None) -> bool:
        """False for a former controller, and for commands over a connection that the controller has closed. None: the
        connection does not count.

        A controller opens another connection after it has closed one, and repeats there what was not answered. The
        network may deliver the first copy after that: a full LeaderAndIsr would delete what was assigned since, and a
        StopReplica of a deleted topic, which no epoch fences, the topic that was created again.
        """
        if controller_epoch < self.controller_epoch:
            return False
        if controller_epoch > self.controller_epoch:
            self.controller_epoch = controller_epoch
            self._connection = 0
        if connection is not None:
            if connection < self._connection:
                self._logger.info("a command arrives over a connection that the controller has closed: it is refused")
                return False
            self._connection = connection
        return True
