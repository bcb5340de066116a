"""Znodes that anyone may change although zookeeper.set.acl=true: they were created before, and stay as they are.

One look at the roots at the start of a broker, beside it; `ottla zookeeper secure` changes what it finds.
"""

from __future__ import annotations

import asyncio
import logging

from ottla_broker.coordination.znode_acls import PROTECTED_ROOTS, Acl, is_open
from ottla_broker.coordination.zookeeper import ZooKeeperCoordination
from ottla_broker.ports.coordination import SessionEvent


class OpenZnodesWarning:
    """Logs one line about them when the session is there for the first time."""

    def __init__(self, session: ZooKeeperCoordination, connect: str, logger: logging.Logger) -> None:
        self._session = session
        self._connect = connect
        self._logger = logger
        self._looking: asyncio.Task[None] | None = None
        session.add_session_listener(self._on_event)

    def _on_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED and self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="look for open znodes")

    async def _look(self) -> None:
        answers = await asyncio.gather(*map(self._session.acl, PROTECTED_ROOTS), return_exceptions=True)
        acls = (one if isinstance(one, BaseException) else one[0] for one in answers)
        if line := warning_about(dict(zip(PROTECTED_ROOTS, acls, strict=True)), self._connect):
            self._logger.warning("%s", line)


def warning_about(acls: dict[str, Acl | BaseException], connect: str) -> str:
    """The line, "" when there is nothing to say.

    Args:
        acls: by path; an error where none could be read: a node that does not exist, or is not ours, is not open.
        connect: zookeeper.connect.

    >>> anyone = ((31, "world", "anyone"),)
    >>> warning_about({"/config": anyone, "/admin": OSError()}, "zk:2181/kafka")[:84]
    'zookeeper.set.acl=true, but anyone who reaches ZooKeeper may change or read /config,'
    """
    found = [path for path, acl in acls.items() if not isinstance(acl, BaseException) and is_open(path, acl)]
    if not found:
        return ""
    return (
        f"zookeeper.set.acl=true, but anyone who reaches ZooKeeper may change or read {', '.join(found)}, which are "
        f"older than that setting. Once all brokers have it, run: ottla zookeeper secure --zookeeper.connect {connect}"
    )
