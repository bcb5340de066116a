"""spec.version: the release of Apache Kafka whose protocol brokers speak with each other.

It is `inter.broker.protocol.version` of every broker: the format of requests between brokers and of what one writes for
others to read. Which program runs is the image's matter.
"""

from __future__ import annotations

from ottla_broker.config import canonical_release, protocol_version
from ottla_documents.fields import Fields

PROTOCOL_KEY = "inter.broker.protocol.version"


def parse_version(spec: Fields) -> str:
    """Reads `version` below spec. "" when it is absent or is no release that brokers accept.

    >>> problems = []
    >>> parse_version(Fields({"version": "3.9.1"}, "spec", problems)), problems
    ('3.9', [])
    >>> parse_version(Fields({"version": "4.0"}, "spec", problems)), [str(problem) for problem in problems]
    ('', ['spec.version: must be a release between 2.8 and 3.9, such as 3.9, not 4.0'])
    """
    text = spec.text("version", "")
    if not text:
        return ""
    wanted = protocol_version(text)
    if wanted is not None:
        spec.problem("version", f"must be {wanted}, not {text}")
    return canonical_release(text) or ""
