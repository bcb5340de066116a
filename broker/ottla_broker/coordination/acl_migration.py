"""Gives a tree of znodes that exists the ACLs that its paths have with zookeeper.set.acl, or without, node by node.

It may end at any node and be run again: a node that has its ACL already is not written. Brokers go on meanwhile; what
they create has the ACL of their own configuration, so they change before the tree does, or after it on the way back.

Source: kafka.admin.ZkSecurityMigrator. Different: roots that do not exist are not created, since a broker that finds an
empty one takes it for one without its content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from ottla_broker.coordination.znode_acls import PROTECTED_ROOTS, Acl, AclOf
from ottla_broker.ports.coordination import ConnectionLoss, NoNode, NotPermitted, Stat

T = TypeVar("T")

AT_A_TIME = 64
"""Nodes that are worked on at a time: a request each, half of what a session sends before it waits."""
PROGRESS_EVERY = 10_000
FROM_THE_START = ("/admin", "/brokers", "/cluster", "/config", "/controller_epoch", "/isr_change_notification")
"""Roots that any fleet has, whatever it is configured to do."""


class AclSession(Protocol):
    """What it needs of a session."""

    def exists(self, path: str) -> asyncio.Future[Stat | None]: ...

    def children(self, path: str) -> asyncio.Future[list[str]]: ...

    def acl(self, path: str) -> asyncio.Future[tuple[Acl, Stat]]: ...

    def set_acl(self, path: str, acl: Acl) -> asyncio.Future[None]: ...


@dataclass(slots=True)
class Migrated:
    """What is done. `refused`: the nodes of others, whose ACL lets nobody else change it."""

    seen: int = 0
    changed: int = 0
    refused: list[str] = field(default_factory=list)


OnProgress: TypeAlias = Callable[[str, Migrated], None]


async def missing_roots(session: AclSession) -> list[str]:
    """The roots that any fleet has and that are not there."""
    found = await asyncio.gather(*map(session.exists, FROM_THE_START))
    return [path for path, stat in zip(FROM_THE_START, found, strict=True) if stat is None]


async def migrate(session: AclSession, acl_of: AclOf, on_progress: OnProgress) -> Migrated:
    """Sets the ACLs of "/" (the chroot) itself and of `PROTECTED_ROOTS` with all below.

    Args:
        on_progress: called with each root when it is done, and on the way after each `PROGRESS_EVERY` nodes, with the
            sums up to then.

    Raises:
        NotPermitted: "/" is somebody else's.
        CoordinationError: the session has ended, or ZooKeeper does not know who it is.
    """
    done = Migrated()
    # What ("auth", "") is in the ACL of a node depends on who we are: the first node tells.
    before, _ = await _patiently(session.acl, "/")
    await _patiently(session.set_acl, "/", acl_of("/"))
    after, _ = await _patiently(session.acl, "/")
    own = tuple(entry for entry in after if entry[1] != "world")
    done.seen += 1
    done.changed += set(before) != set(after)
    for root in outermost(PROTECTED_ROOTS):
        await _migrate_below(session, root, acl_of, own, done, on_progress)
        on_progress(root, done)
    return done


async def _migrate_below(
    session: AclSession, root: str, acl_of: AclOf, own: Acl, done: Migrated, on_progress: OnProgress
) -> None:
    """All nodes from `root` on, `AT_A_TIME` of them at a time; a node whose parent is being listed waits."""
    waiting, working, shown = [root], set[asyncio.Task[list[str]]](), done.seen
    try:
        while waiting or working:
            while waiting and len(working) < AT_A_TIME:
                working.add(asyncio.create_task(_migrate_one(session, waiting.pop(), acl_of, own, done)))
            finished, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                waiting += task.result()
            if done.seen - shown >= PROGRESS_EVERY:
                shown = done.seen
                on_progress(root, done)
    finally:
        for task in working:
            task.cancel()


async def _migrate_one(session: AclSession, path: str, acl_of: AclOf, own: Acl, done: Migrated) -> list[str]:
    """The children of the node, which has its ACL now."""
    wanted = acl_of(path)
    try:
        found, stat = await _patiently(session.acl, path)
        if not has_acl(found, wanted, own):
            await _patiently(session.set_acl, path, wanted)
            done.changed += 1
        names = await _patiently(session.children, path) if stat.num_children else []
    except NoNode:
        return []  # deleted meanwhile
    except NotPermitted:
        done.refused.append(path)
        return []
    done.seen += 1
    return [f"{path}/{name}" for name in names]


async def _patiently(call: Callable[..., asyncio.Future[T]], *arguments: object) -> T:
    """Repeats what may be done twice until a server has answered."""
    while True:
        try:
            return await call(*arguments)
        except ConnectionLoss:
            continue  # the next call waits until the session is connected again


def has_acl(found: Acl, wanted: Acl, own: Acl) -> bool:
    """Whether a node has the ACL already; `own` is what ("auth", "") is for this session.

    >>> own, read = ((31, "sasl", "kafka"),), (1, "world", "anyone")
    >>> has_acl((read, *own), ((31, "auth", ""), read), own), has_acl(own, ((31, "auth", ""), read), own)
    (True, False)
    """
    resolved = {one for entry in wanted for one in (own if entry[1] == "auth" else (entry,))}
    return set(found) == resolved


def outermost(roots: Iterable[str]) -> list[str]:
    """Without those below others.

    >>> outermost(["/a", "/a/b", "/ab"])
    ['/a', '/ab']
    """
    found = list(roots)
    return [path for path in found if not any(path.startswith(f"{other}/") for other in found)]
