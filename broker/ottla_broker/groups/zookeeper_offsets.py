"""Offsets that 0.8 clients keep in ZooKeeper through OffsetCommit v0 and OffsetFetch v0. Port used: Coordination."""

from __future__ import annotations

from ottla_broker.coordination.znodes import consumer_offset_path, decode_consumer_offset, encode_consumer_offset
from ottla_broker.ports.coordination import Coordination, NodeExists, NoNode
from ottla_broker.records.ids import TopicPartition


def is_storable(group_id: str) -> bool:
    """Whether the group id can be part of a path; it may hold slashes, as 0.8 allowed.

    >>> is_storable("team/orders"), is_storable(""), is_storable("a/../b")
    (True, False, False)
    """
    return "\0" not in group_id and not any(name in ("", ".", "..") for name in group_id.split("/"))


async def store_offset(coordination: Coordination, group_id: str, partition: TopicPartition, offset: int) -> None:
    """Sets the group's offset, making the nodes above it where they are missing. CoordinationError."""
    path = consumer_offset_path(group_id, partition.topic, partition.partition)
    data = encode_consumer_offset(offset)
    try:
        await coordination.set(path, data)
        return
    except NoNode:
        pass
    names = path.strip("/").split("/")
    for depth in range(1, len(names)):
        try:
            await coordination.create("/" + "/".join(names[:depth]))
        except NodeExists:
            continue
    try:
        await coordination.create(path, data)
    except NodeExists:
        await coordination.set(path, data)


async def load_offset(coordination: Coordination, group_id: str, partition: TopicPartition) -> int | None:
    """None when the group has none. ZnodeError when the node holds something else; CoordinationError."""
    path = consumer_offset_path(group_id, partition.topic, partition.partition)
    try:
        data, _ = await coordination.get(path)
    except NoNode:
        return None
    return decode_consumer_offset(path, data)
