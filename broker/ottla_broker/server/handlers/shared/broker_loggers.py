"""Reads and sets the levels of loggers, for the config APIs (resource type BROKER_LOGGER, KIP-412).

Python's loggers belong to the process: brokers in one process share the levels. Levels have Kafka's names.
"""

from __future__ import annotations

import logging

from ottla_broker.config.log_levels import LEVELS

ROOT = "root"
PREFIX = "ottla"


def logger_names() -> list[str]:
    """The root logger and those of the broker that exist, sorted."""
    manager = logging.getLogger().manager
    ours = [name for name in manager.loggerDict if name.split(".", 1)[0].split("_")[0] == PREFIX]
    return sorted([*ours, ROOT])


def level_of(name: str) -> str:
    """The level in force, by Kafka's name."""
    level = _logger(name).getEffectiveLevel()
    return next((word for word, number in LEVELS.items() if level >= number), "TRACE")


def set_level(name: str, level: str | None) -> None:
    """None makes the logger inherit its parent's level again."""
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
