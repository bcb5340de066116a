"""Asks the controller to move this broker's leaderships away before it stops (ControlledShutdown, KIP-380).

Lives here: whom to ask, how often, and when to stop all the same. Not here: what the controller does
(`controller.acts.broker_shutdown`), the order of a stop (`broker`). Our controller and Apache Kafka's are asked alike,
and this broker itself when it is the active controller.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from ottla_broker.config import BrokerConfig
from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.ports import Clock
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla_broker.server.peers.broker_client import BrokerDisconnected
from ottla_broker.server.peers.controller_client import ControllerClient

_PAUSE_S: Final = 0.05
"""Before the next controller is asked: the metadata that names it is on its way."""

_NAMED: Final = 5

_NOT_ACTIVE = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.NOT_CONTROLLER)
_COUNTED_AS_DEAD = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE)
"""The controller has moved our leaderships already, or is about to."""


@dataclass(frozen=True, slots=True)
class ShutdownDecision:
    """What follows from one response. `is_finished`: asking again gains nothing."""

    is_finished: bool
    reason: str


def decide_after_response(response: ControlledShutdownResponse) -> ShutdownDecision:
    """What a response of the controller means.

    >>> decide_after_response(ControlledShutdownResponse(error_code=0))
    ShutdownDecision(is_finished=True, reason='leads nothing that another broker could lead')
    >>> decide_after_response(ControlledShutdownResponse(error_code=77)).is_finished
    True
    """
    error = ErrorCode.of(response.error_code)
    if error in _COUNTED_AS_DEAD:
        return ShutdownDecision(True, f"the controller takes this broker for dead ({error.name})")
    if error is not ErrorCode.NONE:
        return ShutdownDecision(False, f"the controller answers {error.name}")
    remaining = [f"{entry.topic_name}-{entry.partition_index}" for entry in response.remaining_partitions]
    if not remaining:
        return ShutdownDecision(True, "leads nothing that another broker could lead")
    more = f" and {len(remaining) - _NAMED} more" if len(remaining) > _NAMED else ""
    return ShutdownDecision(False, f"no other in-sync replica can lead {', '.join(remaining[:_NAMED])}{more}")


async def request_controlled_shutdown(
    controller: ControllerClient,
    clock: Clock,
    config: BrokerConfig,
    broker_id: int,
    broker_epoch: int,
    logger: logging.LoggerAdapter[Any],
) -> bool:
    """Asks until this broker leads nothing that could be moved: True.

    False after controlled.shutdown.max.retries tries, controlled.shutdown.retry.backoff.ms apart. A controller that is
    being replaced costs no try. All tries together wait for answers no longer than controller.socket.timeout.ms: in a
    fleet that is stopped as a whole nobody is left who could answer, and Apache Kafka, which gives each try that time,
    would wait three times as long.
    """
    tries: int = config.controlled_shutdown_max_retries
    patience_s: float = config.controller_socket_timeout_ms / 1000
    for number in range(1, tries + 1):
        asked_at = clock.monotonic()
        try:
            asking = _ask_active_controller(controller, clock, config, broker_id, broker_epoch, patience_s)
            decision = decide_after_response(await asking)
        except BrokerDisconnected as error:
            decision = ShutdownDecision(False, f"the controller could not be asked: {error}")
        if decision.is_finished:
            logger.info("controlled shutdown: %s", decision.reason)
            return True
        logger.warning("controlled shutdown, try %d of %d: %s", number, tries, decision.reason)
        patience_s -= clock.monotonic() - asked_at
        if patience_s <= 0:
            break
        if number < tries:
            await clock.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
    logger.warning("stopping although leadership could not be moved")
    return False


async def _ask_active_controller(
    controller: ControllerClient,
    clock: Clock,
    config: BrokerConfig,
    broker_id: int,
    broker_epoch: int,
    patience_s: float,
) -> ControlledShutdownResponse:
    """Raises BrokerDisconnected when nobody has answered within `patience_s`."""
    deadline = clock.monotonic() + patience_s
    version = inter_broker_versions(config.inter_broker_protocol_version).controlled_shutdown
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    while True:
        left_s = max(deadline - clock.monotonic(), _PAUSE_S)
        response: ControlledShutdownResponse = await controller.ask(
            ApiKey.CONTROLLED_SHUTDOWN, version, request, left_s
        )
        if response.error_code not in _NOT_ACTIVE or clock.monotonic() >= deadline:
            return response
        await clock.sleep(_PAUSE_S)
