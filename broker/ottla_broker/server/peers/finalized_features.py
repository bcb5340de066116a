"""Refuses to join a cluster that has finalized a feature which this release does not support (KIP-584).

A finalized feature is one that every broker of the cluster writes and reads; they are in the znode `/feature`. This
release supports none, as Apache Kafka 3.9 in ZooKeeper mode, whose controller creates the znode, enabled and empty,
when it becomes active. So nothing is ever written here, which leaves the cluster open for both, and a broker does not
join a cluster that has finalized something. It checks only once: a controller finalizes only what every registered
broker supports, and the registration says what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla_broker.coordination.znodes import FEATURE, Features, ZnodeError
from ottla_broker.ports.coordination import Coordination, NoNode
from ottla_broker.server.peers.registration import RegistrationRefused

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {}
"""(lowest, highest) level of each feature that this release supports."""


def why_not_joinable(found: Features, supported: Mapping[str, tuple[int, int]] = SUPPORTED) -> str | None:
    """Why this broker cannot join a cluster with these finalized features, None when it can.

    >>> why_not_joinable(Features(True, {})) is why_not_joinable(Features(False, {"group.version": 1})) is None
    True
    >>> why_not_joinable(Features(True, {"group.version": 1}))
    '/feature: the cluster has finalized group.version at level 1, which this release does not support'
    """
    if not found.is_enabled:
        return None
    for name, level in sorted(found.max_version_levels.items()):
        lowest, highest = supported.get(name, (0, -1))
        if not lowest <= level <= highest:
            return f"{FEATURE}: the cluster has finalized {name} at level {level}, which this release does not support"
    return None


async def refuse_unknown_features(coordination: Coordination) -> None:
    """Raises RegistrationRefused, also for a node that cannot be read: its features are unknown."""
    try:
        data, _stat = await coordination.get(FEATURE)
        reason = why_not_joinable(Features.decode(data))
    except NoNode:
        return
    except ZnodeError as error:
        raise RegistrationRefused(str(error)) from error
    if reason is not None:
        raise RegistrationRefused(reason)
