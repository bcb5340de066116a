"""Which topics the members of a consumer group subscribe to, read from the metadata they joined with.

Only the topic list is read (version 0 of ConsumerProtocolSubscription is a prefix of every later one), and only to
tell which offsets may expire or be deleted. The bytes themselves belong to the clients and are never changed
(KIP-429). Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL_TYPE = "consumer"

_HEAD = struct.Struct(">hi")
_INT16 = struct.Struct(">h")


def subscribed_topics(metadata: Iterable[bytes]) -> dict[str, None] | None:
    """The topics of all members, in order, or None when one's metadata is not a consumer's.

    >>> list(subscribed_topics([bytes.fromhex("0001" "00000001" "0001" "74" "ffffffff")]))
    ['t']
    >>> subscribed_topics([b"custom"])
    """
    topics: dict[str, None] = {}
    for blob in dict.fromkeys(metadata):  # most members have the same
        try:
            version, count = _HEAD.unpack_from(blob)
            if version < 0 or not 0 <= count <= len(blob):
                return None
            position = _HEAD.size
            for _ in range(count):
                (length,) = _INT16.unpack_from(blob, position)
                position += 2
                name = blob[position : position + length]
                if length < 0 or len(name) != length:
                    return None
                topics[name.decode()] = None
                position += length
        except (struct.error, UnicodeDecodeError):
            return None
    return topics
