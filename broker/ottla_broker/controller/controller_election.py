"""The controller election: creates, reads and deletes /controller.

The broker that creates the ephemeral /controller, in one transaction with a conditional write of the next
/controller_epoch, is the active controller. The version of /controller_epoch that it has written is its fence: each of
its later writes checks it. After a lost connection a transaction that succeeded looks failed, so a broker whose
transaction failed reads who owns /controller.

On the calling side of the Coordination port. Not here: what the active controller does (`active`), when a broker takes
part (`controller`).

Source: registerControllerAndIncrementControllerEpoch of Apache Kafka's KafkaZkClient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla_broker.coordination import znodes
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.coordination import (
    Check,
    ConnectionLoss,
    Coordination,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    Set,
    Stat,
    Watcher,
)

RETRY_S: Final = 0.1

NO_CONTROLLER: Final = -1


@dataclass(frozen=True, slots=True)
class ControllerEpoch:
    """A controller epoch that this broker has won: its number, and the version of its znode (the fence)."""

    number: int
    znode_version: int


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """The content of /controller. `is_this_session`: the present session of this broker has created it."""

    broker_id: int
    is_this_session: bool


async def read_controller(coordination: Coordination, clock: Clock, watch: Watcher) -> ControllerNode | None:
    """The active controller, None when there is none; the watch fires when that changes."""
    while True:
        try:
            if await coordination.exists(znodes.CONTROLLER, watch) is None:
                return None
            data, stat = await coordination.get(znodes.CONTROLLER)
        except NoNode:
            return None
        except ConnectionLoss:
            await clock.sleep(RETRY_S)
            continue
        return ControllerNode(
            znodes.ControllerZnode.decode(data).broker_id, stat.ephemeral_owner == coordination.session_id
        )


async def own_registration(coordination: Coordination, clock: Clock, broker_id: int) -> Stat | None:
    """The broker's registration, None while its present session has none."""
    while True:
        try:
            stat = await coordination.exists(znodes.BrokerRegistration.path(broker_id))
        except ConnectionLoss:
            await clock.sleep(RETRY_S)
            continue
        return stat if stat is not None and stat.ephemeral_owner == coordination.session_id else None


async def create_controller(
    coordination: Coordination, clock: Clock, broker_id: int, registration: Stat
) -> ControllerEpoch | None:
    """Tries once to become the active controller.

    Returns:
        The controller epoch, or None when another broker was faster or the registration has gone with its session.

    Raises:
        SessionExpired: the session of this broker is over.
    """
    while True:
        try:
            epoch, version = await _read_epoch(coordination)
            break
        except ConnectionLoss:
            await clock.sleep(RETRY_S)
    node = znodes.ControllerZnode(broker_id, clock.now_ms()).encode()
    operations: list[Operation] = [
        Check(znodes.BrokerRegistration.path(broker_id), registration.version),
        Create(znodes.CONTROLLER, node, ephemeral=True),
        Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), version),
    ]
    try:
        results = await coordination.multi(operations)
    except (ConnectionLoss, MultiFailed):
        return await _read_winner(coordination, clock, epoch + 1)
    written = results[-1]
    return ControllerEpoch(epoch + 1, written.version if isinstance(written, Stat) else version + 1)


async def _read_epoch(coordination: Coordination) -> tuple[int, int]:
    """(epoch, version) of /controller_epoch, created with 0 when this fleet never had a controller."""
    while True:
        try:
            data, stat = await coordination.get(znodes.CONTROLLER_EPOCH)
            return znodes.decode_controller_epoch(data), stat.version
        except NoNode:
            try:
                await coordination.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
            except NodeExists:
                continue


async def _read_winner(coordination: Coordination, clock: Clock, epoch: int) -> ControllerEpoch | None:
    """The controller epoch if this session owns /controller after all."""
    while True:
        try:
            stat = await coordination.exists(znodes.CONTROLLER)
            if stat is None or stat.ephemeral_owner != coordination.session_id:
                return None
            found, version = await _read_epoch(coordination)
            return ControllerEpoch(found, version) if found == epoch else None
        except ConnectionLoss:
            await clock.sleep(RETRY_S)


async def delete_controller(coordination: Coordination, clock: Clock) -> None:
    """Deletes /controller if this session has created it, so that any broker can become the active controller at once.

    While the connection is lost it is tried again: the session may outlive that, and its node would keep the fleet
    without a controller.
    """
    while True:
        try:
            _, version = await _read_epoch(coordination)
            stat = await coordination.exists(znodes.CONTROLLER)
            if stat is None or stat.ephemeral_owner != coordination.session_id:
                return
            # The version was read before the owner: a controller elected since then is not removed.
            await coordination.multi([Check(znodes.CONTROLLER_EPOCH, version), Delete(znodes.CONTROLLER)])
            return
        except MultiFailed:
            continue  # something has changed meanwhile: read again
        except ConnectionLoss:
            await clock.sleep(RETRY_S)
        except SessionExpired:
            return  # the node goes with the session
