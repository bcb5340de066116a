"""Who a broker is, and what its parts are made of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla_broker.config import BrokerConfig
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Ports
from ottla_broker.ports.network import Connector


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """What the parts of one broker share, from when its id is known.

    Args:
        connector_to: gives what connects to a listener of other brokers, by its name.
        logger: adds the broker id to each line.
    """

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    ports: Ports
    connector_to: Callable[[str], Connector]
    metrics: Metrics
    logger: logging.LoggerAdapter[Any]
