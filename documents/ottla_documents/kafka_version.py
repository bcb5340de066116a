"""spec.version: the release of Apache Kafka whose protocol brokers speak with each other.

It is `inter.broker.protocol.version` of every broker: the format of requests between brokers and of what one writes for
others to read. Which program runs is the image's matter.
"""

from __future__ import annotations

from ottla_broker.config import canonical_release, protocol_version

PROTOCOL_KEY = "inter.broker.protocol.version"


def version_problem(text: str) -> str:
    """Why a release is none that brokers accept; "" when it is one, or when none is written.

    >>> version_problem("3.9.1"), version_problem("4.0")
    ('', 'must be a release between 2.8 and 3.9, such as 3.9, not 4.0')
    """
    protocol = protocol_version(text) if text else None
    return "" if protocol is None else f"must be {protocol}, not {text}"


def canonical_version(text: str) -> str:
    """The release as `inter.broker.protocol.version` has it; "" for none that brokers accept.

    >>> canonical_version("3.9.1"), canonical_version("4.0"), canonical_version("")
    ('3.9', '', '')
    """
    return (canonical_release(text) or "") if text else ""
