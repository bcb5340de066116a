"""StoredQuotas: reads and changes client quotas in the coordination store, and reports which are in force.

Lives here: the nodes of users, client ids and addresses under /config. Not here: change notifications and their order
(`dynamic_config`, which calls), what a quota means (`ottla_broker.quotas`). It uses one port, Coordination.

Source: kafka.zk.AdminZkClient.changeEntityConfig and tryCleanQuotaNodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla_broker.coordination import znodes
from ottla_broker.coordination.quota_znodes import CLIENTS, ENTITY_TYPES, USERS, entity_path, parse_entity_path
from ottla_broker.ports import Coordination
from ottla_broker.ports.coordination import (
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
)
from ottla_broker.quotas.entities import QuotaEntity

Change = Callable[[dict[str, str]], Mapping[str, str]]
"""Stored values in, new stored values out; may raise KafkaError, and then nothing is stored."""

OnQuotas = Callable[[QuotaEntity, Mapping[str, str]], None]
"""Takes an entity and its stored values; none when it has been removed."""


class StoredQuotas:
    """The entities with client quotas."""

    def __init__(
        self,
        coordination: Coordination,
        on_quotas: OnQuotas,
        logger: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        """`on_quotas` is called with every entity that is found, and again when its values may have changed."""
        self._coordination = coordination
        self._on_quotas = on_quotas
        self._logger = logger
        self._in_force: set[QuotaEntity] = set()

    async def reload(self) -> None:
        """Reads everything stored and reports it, with what is no longer there. Raises CoordinationError."""
        found = await self.all()
        for entity in self._in_force - found.keys():
            self._report(entity, {})
        for entity, values in found.items():
            self._report(entity, values)

    async def read(self, path: str) -> None:
        """Reads one entity, whose notification has come, and reports it. Raises ZnodeError for no path of an entity."""
        entity = parse_entity_path(path)
        self._report(entity, (await self._stored(path))[0])

    async def all(self) -> dict[QuotaEntity, dict[str, str]]:
        """The stored values of every entity now; entities without values are left out."""
        groups = await asyncio.gather(*(self._children(kind) for kind in ENTITY_TYPES))
        paths = [path for group in groups for path in group]
        of_users = await asyncio.gather(
            *(self._children(f"{path}/{CLIENTS}") for path in paths if path.startswith(f"{USERS}/"))
        )
        paths += [path for group in of_users for path in group]
        stored = await asyncio.gather(*map(self._stored, paths))
        found = {}
        for path, (values, _) in zip(paths, stored, strict=True):
            try:
                if values:
                    found[parse_entity_path(path)] = values
            except znodes.ZnodeError as error:
                self._logger.error("%s; it is ignored", error)
        return found

    async def stored(self, entity: QuotaEntity) -> dict[str, str]:
        """The stored values of an entity now."""
        return (await self._stored(entity_path(entity)))[0]

    async def update(self, entity: QuotaEntity, change: Change) -> None:
        """Stores `change(stored values)` and notifies all brokers; in force here when this returns.

        An entity without values is removed, with the nodes above it that hold nothing else. Two concurrent updates both
        take effect: the loser is computed again on the newer values. Raises what `change` raises, CoordinationError.
        """
        path = entity_path(entity)
        notification = Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(path), sequence=True)
        while True:
            stored, stat = await self._stored(path)
            values = dict(change(stored))
            try:
                await self._coordination.multi([*await self._writes(path, values, stat), notification])
            except MultiFailed as failed:
                if isinstance(failed.cause, BadVersion | NoNode | NodeExists | NotEmpty):
                    continue
                raise
            except NoNode:
                continue  # a node above was removed meanwhile
            break
        self._report(entity, values)

    async def _writes(self, path: str, values: Mapping[str, str], stat: Stat | None) -> list[Operation]:
        """What has to be written for an entity that has `stat`, or no node."""
        node = f"{znodes.CONFIG}/{path}"
        if values:
            data = znodes.encode_config(values)
            if stat is not None:
                return [Set(node, data, stat.version)]
            return [*await self._missing_above(path), Create(node, data)]
        if stat is None:
            return []
        if stat.num_children:
            return [Set(node, znodes.encode_config({}), stat.version)]
        return [Delete(node, stat.version), *await self._empty_above(path)]

    async def _missing_above(self, path: str) -> list[Operation]:
        """Creates the nodes of a user that a client id of it needs."""
        above = _nodes_above(path)
        found = await asyncio.gather(*map(self._coordination.exists, above))
        return [Create(node) for node, stat in zip(above, found, strict=True) if stat is None]

    async def _empty_above(self, path: str) -> list[Operation]:
        """Removes the nodes of a user that hold nothing but this client id of it."""
        above = _nodes_above(path)
        if not above:
            return []
        user, clients = above
        clients_stat = await self._coordination.exists(clients)
        if clients_stat is None or clients_stat.num_children != 1:
            return []
        values, user_stat = await self._stored(user.removeprefix(f"{znodes.CONFIG}/"))
        if values or user_stat is None or user_stat.num_children != 1:
            return [Delete(clients)]
        return [Check(user, user_stat.version), Delete(clients), Delete(user)]

    async def _stored(self, path: str) -> tuple[dict[str, str], Stat | None]:
        node = f"{znodes.CONFIG}/{path}"
        try:
            data, stat = await self._coordination.get(node)
        except NoNode:
            return {}, None
        try:
            return znodes.decode_config(node, data), stat
        except znodes.ZnodeError as error:
            self._logger.error("%s; its quotas are ignored", error)
            return {}, stat

    async def _children(self, path: str) -> list[str]:
        try:
            names = await self._coordination.children(f"{znodes.CONFIG}/{path}")
        except NoNode:
            return []
        return [f"{path}/{name}" for name in names]

    def _report(self, entity: QuotaEntity, values: Mapping[str, str]) -> None:
        if values:
            self._in_force.add(entity)
        else:
            self._in_force.discard(entity)
        self._on_quotas(entity, values)


def _nodes_above(path: str) -> Sequence[str]:
    """The nodes between /config/users and a client id of a user: those of the user and of its client ids."""
    kind, *names = path.split("/")
    if kind != USERS or len(names) == 1:
        return ()
    user = f"{znodes.CONFIG}/{USERS}/{names[0]}"
    return (user, f"{user}/{CLIENTS}")
