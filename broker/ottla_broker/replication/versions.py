"""Which version of a request this broker sends to others, by `inter.broker.protocol.version`. Pure."""

from __future__ import annotations


def _release(text: str) -> tuple[int, int, int]:
    """
    >>> _release("3.5-IV1"), _release("3.9"), _release("2.8")
    ((3, 5, 1), (3, 9, 99), (2, 8, 99))
    """
    release, _, level = text.partition("-IV")
    major, minor, *_ = (int(part) for part in release.split("."))
    return major, minor, int(level) if level else 99


def fetch_version(inter_broker_protocol: str) -> int:
    """Fetch as a follower.

    >>> fetch_version("3.9"), fetch_version("3.5-IV0"), fetch_version("2.8")
    (17, 14, 12)
    """
    release = _release(inter_broker_protocol)
    for since, version in (
        ((3, 9, 0), 17),
        ((3, 7, 4), 16),
        ((3, 5, 1), 15),
        ((3, 5, 0), 14),
        ((3, 1, 0), 13),
    ):
        if release >= since:
            return version
    return 12


def list_offsets_version(inter_broker_protocol: str) -> int:
    """ListOffsets as a follower.

    >>> list_offsets_version("3.9"), list_offsets_version("2.8")
    (9, 6)
    """
    release = _release(inter_broker_protocol)
    for since, version in (((3, 9, 0), 9), ((3, 5, 0), 8), ((3, 0, 1), 7)):
        if release >= since:
            return version
    return 6
