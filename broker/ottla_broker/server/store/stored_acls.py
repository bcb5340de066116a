"""StoredAcls: reads, watches and changes the ACLs in the coordination store, and tells the authorizer which there are.

The znodes and their changes are Apache Kafka's, so that brokers of both kinds see each other's ACLs. The ACLs of a
pattern are one znode, and one that has none is deleted. A change is one transaction of that znode, conditional on its
version, and of a change node. Of two brokers that add the first ACLs of a resource at once, the loser reads and adds
again (KAFKA-3328, KAFKA-7255).

What was known stays in force while the store cannot be reached. A znode that cannot be read leaves in force what was
known of its pattern. Of a pattern that was not known, everything is denied to everyone but super users until its znode
is corrected. Apache Kafka does not start with such a znode.

Not here: how changes are followed (`change_nodes`), what ACLs mean (`authorization.acl_authorizer`). It uses two ports,
Coordination and Clock.

Source: AclAuthorizer.updateResourceAcls and loadAllAcls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ottla_broker.authorization.acl_authorizer import AclAuthorizer
from ottla_broker.authorization.acls import EVERYONE, AccessControlEntry, ResourcePattern
from ottla_broker.authorization.resources import WILDCARD, AclOperation, PatternType, PermissionType
from ottla_broker.controller.store import MAX_ZNODE_BYTES
from ottla_broker.coordination import security_znodes as znodes
from ottla_broker.coordination.znodes import ZnodeError
from ottla_broker.ports import Clock, Coordination
from ottla_broker.ports.coordination import (
    BadVersion,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    Set,
)
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.server.store.change_nodes import ChangeNode, ChangeNodes, ChangePath
from ottla_broker.server.store.registration import make_path

_READS_AT_ONCE: Final = 100
_PUT_AT_ONCE: Final = 100
"""Patterns whose ACLs come into force in one step of the loop, at up to 40 µs each."""
_NO_ACLS: Final[frozenset[AccessControlEntry]] = frozenset()
_UNREADABLE: Final = frozenset({AccessControlEntry(EVERYONE, WILDCARD, AclOperation.ALL, PermissionType.DENY)})
"""In force for a pattern whose znode could not be read from the start."""
_PATTERN_TYPES: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_CHANGES: Final = {
    PatternType.LITERAL: znodes.ACL_CHANGES,
    PatternType.PREFIXED: znodes.EXTENDED_ACL_CHANGES,
}


class StoredAcls:
    """The ACLs of one cluster, as one broker knows them: an `Acls`. `start` before use."""

    def __init__(
        self,
        authorizer: AclAuthorizer,
        coordination: Coordination,
        clock: Clock,
        logger: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        """
        Args:
            authorizer: decides by what is read here, from the moment in which it is read.
        """
        self.authorizer = authorizer
        self._coordination = coordination
        self._clock = clock
        self._logger = logger
        self._changing = asyncio.Lock()
        """Whoever reads or writes ACLs holds it until they are in force: what was read first never replaces what was
        read later."""
        self._changes = [
            ChangeNodes(
                ChangePath(
                    _CHANGES[pattern_type], f"{pattern_type.name.lower()} ACLs", _READS_AT_ONCE, doubts_listed=True
                ),
                coordination,
                clock,
                logger,
                read_all=partial(self._read_all, pattern_type),
                apply=self._apply_changes,
            )
            for pattern_type in _PATTERN_TYPES
        ]

    async def start(self) -> None:
        """Reads all ACLs, and what changes from here on. Raises CoordinationError."""
        await self._make_paths()
        for changes in self._changes:
            await changes.start()
        for changes in self._changes:
            changes.follow()

    @property
    def known(self) -> Mapping[ResourcePattern, frozenset[AccessControlEntry]]:
        """See `Acls`."""
        return self.authorizer.acls

    async def add(self, pattern: ResourcePattern, entries: frozenset[AccessControlEntry]) -> None:
        """See `Acls`.

        Raises:
            KafkaError: INVALID_REQUEST for more ACLs than a znode holds, UNKNOWN_SERVER_ERROR for a znode that cannot
                be read.
        """
        await self._change(pattern, lambda stored: stored | entries)

    async def remove(
        self, pattern: ResourcePattern, is_removed: Callable[[AccessControlEntry], bool]
    ) -> frozenset[AccessControlEntry]:
        """See `Acls`. Raises KafkaError: UNKNOWN_SERVER_ERROR for a znode that cannot be read."""
        removed = _NO_ACLS

        def change(stored: frozenset[AccessControlEntry]) -> frozenset[AccessControlEntry]:
            nonlocal removed
            removed = frozenset(filter(is_removed, stored))
            return stored - removed

        await self._change(pattern, change)
        return removed

    async def _change(
        self,
        pattern: ResourcePattern,
        change: Callable[[frozenset[AccessControlEntry]], frozenset[AccessControlEntry]],
    ) -> None:
        """Stores `change(stored ACLs)`. Two concurrent changes both take effect: the loser is computed again."""
        path = znodes.acl_path(pattern)
        notification = Create(znodes.acl_change_prefix(pattern), znodes.encode_acl_change(pattern), sequence=True)
        async with self._changing:
            while True:
                try:
                    stored, version = await self._stored(pattern)
                except ZnodeError as error:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_SERVER_ERROR, f"{error}: correct or delete this znode first"
                    ) from None
                wanted = change(stored)
                if wanted != stored:
                    try:
                        await self._coordination.multi([_write(path, wanted, version), notification])
                    except MultiFailed as failed:
                        if isinstance(failed.cause, NoNode):
                            await self._make_paths()
                        elif not isinstance(failed.cause, BadVersion | NodeExists):
                            raise
                        continue
                self.authorizer.put(pattern, wanted)
                return

    async def _stored(self, pattern: ResourcePattern) -> tuple[frozenset[AccessControlEntry], int | None]:
        """The ACLs of a pattern now and the version of their znode, None without one. Raises ZnodeError."""
        path = znodes.acl_path(pattern)
        try:
            data, stat = await self._coordination.get(path)
        except NoNode:
            return _NO_ACLS, None
        return znodes.decode_acls(path, data), stat.version

    async def _apply_changes(self, changes: Sequence[ChangeNode]) -> None:
        patterns: dict[ResourcePattern, None] = {}
        for path, data in changes:
            try:
                patterns[znodes.decode_acl_change(path, data)] = None
            except ZnodeError as error:
                self._logger.error("this change of ACLs is ignored: %s", error)
        async with self._changing:
            await self._read(list(patterns))

    async def _read_all(self, pattern_type: PatternType) -> None:
        """Reads the ACLs of all patterns of a type."""
        async with self._changing:
            found = await self._patterns(pattern_type)
            gone = [
                pattern
                for pattern in self.authorizer.acls
                if pattern.pattern_type is pattern_type and pattern not in found
            ]
            await self._read(list(found))
            await self._put(dict.fromkeys(gone, _NO_ACLS))

    async def _patterns(self, pattern_type: PatternType) -> dict[ResourcePattern, None]:
        root = znodes.acl_root(pattern_type)
        types = {one.label: one for one in znodes.ACL_TYPES}
        found: dict[ResourcePattern, None] = {}
        for label in await self._coordination.children(root):
            resource_type = types.get(label)
            if resource_type is None:
                self._logger.warning("ignoring the ACLs under %s/%s: no such type of resource is known", root, label)
                continue
            try:
                names = await self._coordination.children(f"{root}/{label}")
            except NoNode:
                continue
            found.update(dict.fromkeys(ResourcePattern(resource_type, name, pattern_type) for name in names))
        return found

    async def _read(self, patterns: Sequence[ResourcePattern]) -> None:
        """Puts what is stored for these patterns in force, once all of it has been read."""
        read: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
        for start in range(0, len(patterns), _READS_AT_ONCE):
            part = patterns[start : start + _READS_AT_ONCE]
            read.update(zip(part, await asyncio.gather(*map(self._readable, part)), strict=True))
        await self._put(read)

    async def _put(self, read: Mapping[ResourcePattern, frozenset[AccessControlEntry]]) -> None:
        """Some at a time: whoever asks for rights meanwhile gets them as if the changes came one after another."""
        for number, (pattern, entries) in enumerate(read.items(), 1):
            self.authorizer.put(pattern, entries)
            if number % _PUT_AT_ONCE == 0:
                await self._clock.sleep(0)

    async def _readable(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        """What is stored, or what is in force instead of what cannot be read."""
        try:
            return (await self._stored(pattern))[0]
        except ZnodeError as error:
            known = self.authorizer.acls.get(pattern)
            if known is None:
                self._logger.error("%s; until it is corrected, everything about it is denied to everyone", error)
                return _UNREADABLE
            self._logger.error("%s; the ACLs that were known before stay in force", error)
            return known
        except ValueError as error:  # a change names what is no znode
            self._logger.error("this change of ACLs is ignored: %s", error)
            return _NO_ACLS

    async def _make_paths(self) -> None:
        for path in znodes.ACL_PATHS:
            await make_path(self._coordination, path)


def _write(path: str, wanted: frozenset[AccessControlEntry], version: int | None) -> Operation:
    """What stores the ACLs of a pattern, whose znode has the version; None: it does not exist."""
    if not wanted:
        return Delete(path, -1 if version is None else version)
    data = znodes.encode_acls(wanted)
    if len(data) > MAX_ZNODE_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the ACLs of one resource would take {len(data)} bytes, a znode has {MAX_ZNODE_BYTES}: use prefixed "
            "patterns or User:*",
        )
    return Create(path, data) if version is None else Set(path, data, version)
