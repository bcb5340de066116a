"""The types of resources that have a configuration, by their codes in the config APIs. Source: ConfigResource.Type."""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    """The types of resources that are served."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
