"""The port through which the controller reaches the brokers; the server implements it over the Network port.

The controller never opens a connection and never waits for one.

Source: ControllerChannelManager of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ottla_broker.controller.values import RegisteredBroker


class ControllerChannels(Protocol):
    """One ordered queue of requests per live broker, the controller's own broker included.

    The contract of a queue
    1. Requests leave in the order of `send`; each leaves when the one before has been answered.
    2. A request whose connection breaks or cannot be opened is sent again, with a pause, until it is answered: the
       requests are idempotent (a broker compares epochs), and a broker that never answers loses its registration.
    3. `on_response` is called once, on the event loop, with the decoded response; never after `close` of that broker,
       never from inside `send`.
    """

    def open(self, broker: RegisteredBroker) -> None:
        """Starts the queue of a registered broker, at the endpoint of the inter-broker listener.

        Nothing is ever sent to a broker that has no such endpoint.
        """
        ...

    def close(self, broker_id: int) -> None:
        """Ends the queue and drops what is not answered. Does nothing when there is none."""
        ...

    def close_all(self) -> None:
        """Ends every queue: this broker is no longer the controller."""
        ...

    def send(
        self, broker_id: int, api_key: int, version: int, request: Any, on_response: Callable[[Any], None]
    ) -> None:
        """Queues a request. KeyError when the broker's queue is not open."""
        ...
