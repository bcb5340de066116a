"""Becoming the controller: one transaction, and finding out who won (wire-protocol.md 5.24).

On the calling side of the Coordination port. Not here: what the controller then does (`active`), when to stand
(`controller`).

Whoever creates the ephemeral /controller in one transaction with a conditional write of the next /controller_epoch
is in office. The version of /controller_epoch that it has written is its fence: each of its later writes checks it.
A lost connection makes one's own victory look like a defeat, so the loser of a try looks who owns /controller.
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
class Office:
    """A victory: the controller epoch, and the version of its znode (the fence)."""

    epoch: int
    epoch_version: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds /controller. `is_this_session` tells that this broker's present session made the node."""

    broker_id: int
    is_this_session: bool


async def find_holder(coordination: Coordination, clock: Clock, watch: Watcher) -> Holder | None:
    """Who is controller, None for nobody; the watch fires when that changes."""
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
        return Holder(znodes.Controller.decode(data).broker_id, stat.ephemeral_owner == coordination.session_id)


async def own_registration(coordination: Coordination, clock: Clock, broker_id: int) -> Stat | None:
    """The broker's registration, None while its present session has made none."""
    while True:
        try:
            stat = await coordination.exists(znodes.BrokerRegistration.path(broker_id))
        except ConnectionLoss:
            await clock.sleep(RETRY_S)
            continue
        return stat if stat is not None and stat.ephemeral_owner == coordination.session_id else None


async def stand(coordination: Coordination, clock: Clock, broker_id: int, registration: Stat) -> Office | None:
    """One candidacy: the office, or None when another broker was faster, or the registration has gone with its session.

    SessionExpired when we no longer exist.
    """
    while True:
        try:
            epoch, version = await _read_epoch(coordination)
            break
        except ConnectionLoss:
            await clock.sleep(RETRY_S)
    office = znodes.Controller(broker_id, clock.now_ms()).encode()
    operations: list[Operation] = [
        Check(znodes.BrokerRegistration.path(broker_id), registration.version),
        Create(znodes.CONTROLLER, office, ephemeral=True),
        Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), version),
    ]
    try:
        results = await coordination.multi(operations)
    except (ConnectionLoss, MultiFailed):
        return await _look_who_won(coordination, clock, epoch + 1)
    written = results[-1]
    return Office(epoch + 1, written.version if isinstance(written, Stat) else version + 1)


async def _read_epoch(coordination: Coordination) -> tuple[int, int]:
    """(epoch, version) of /controller_epoch, made with 0 when this fleet never had a controller."""
    while True:
        try:
            data, stat = await coordination.get(znodes.CONTROLLER_EPOCH)
            return znodes.decode_controller_epoch(data), stat.version
        except NoNode:
            try:
                await coordination.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
            except NodeExists:
                continue


async def _look_who_won(coordination: Coordination, clock: Clock, epoch: int) -> Office | None:
    while True:
        try:
            stat = await coordination.exists(znodes.CONTROLLER)
            if stat is None or stat.ephemeral_owner != coordination.session_id:
                return None
            found, version = await _read_epoch(coordination)
            return Office(found, version) if found == epoch else None
        except ConnectionLoss:
            await clock.sleep(RETRY_S)


async def give_up_office(coordination: Coordination, clock: Clock) -> None:
    """Removes /controller if this session made it, so that any broker can stand at once. While the connection is away
    it is tried again: the session may outlive that, and its node would keep the fleet without a controller."""
    while True:
        try:
            _, version = await _read_epoch(coordination)
            stat = await coordination.exists(znodes.CONTROLLER)
            if stat is None or stat.ephemeral_owner != coordination.session_id:
                return
            # The version, read before the owner: whoever came into office since then is not removed.
            await coordination.multi([Check(znodes.CONTROLLER_EPOCH, version), Delete(znodes.CONTROLLER)])
            return
        except MultiFailed:
            continue  # things have changed meanwhile: looked at again
        except ConnectionLoss:
            await clock.sleep(RETRY_S)
        except SessionExpired:
            return  # the node goes with the session
