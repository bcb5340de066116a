"""What the acts of one controller epoch share that write to the coordination store.

Acts that only read the context and send requests take what they need of it one by one: they cannot write.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla_broker.config.broker import BrokerConfig
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.store import ControllerStore
from ottla_broker.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class ControllerEpochParts:
    """The parts of the controller in one controller epoch.

    Args:
        context: what the active controller knows.
        store: writes under the fence of the controller epoch.
        config: of the broker that is the active controller.
    """

    context: ControllerContext
    store: ControllerStore
    clock: Clock
    config: BrokerConfig
