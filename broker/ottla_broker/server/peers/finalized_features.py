"""`/feature`: what a fleet has finalized (KIP-584), and whether this broker may join it.

A finalized feature is one that every broker of the fleet writes and reads. This release supports none, as Apache Kafka
3.9 in ZooKeeper mode, whose controller makes the znode, enabled and empty, when it takes office. So nothing is ever
written here, which leaves the fleet open for both, and a fleet that has finalized something is not joined. It is not
looked at again: a controller finalizes only what every registered broker supports, and the registration says what.
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
    """What stands against joining a fleet with these finalized features, None when nothing does.

    >>> why_not_joinable(Features(True, {})) is why_not_joinable(Features(False, {"group.version": 1})) is None
    True
    >>> why_not_joinable(Features(True, {"group.version": 1}))
    '/feature: the fleet has finalized group.version at level 1, which this release does not support'
    """
    if not found.is_enabled:
        return None
    for name, level in sorted(found.max_version_levels.items()):
        lowest, highest = supported.get(name, (0, -1))
        if not lowest <= level <= highest:
            return f"{FEATURE}: the fleet has finalized {name} at level {level}, which this release does not support"
    return None


async def refuse_unknown_features(coordination: Coordination) -> None:
    """Raises RegistrationRefused, also for a node that cannot be read: nobody knows what it asks for."""
    try:
        data, _stat = await coordination.get(FEATURE)
        reason = why_not_joinable(Features.decode(data))
    except NoNode:
        return
    except ZnodeError as error:
        raise RegistrationRefused(str(error)) from error
    if reason is not None:
        raise RegistrationRefused(reason)
