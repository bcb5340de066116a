"""The levels of loggers by Kafka's names, for `--log-level` and the config APIs (KIP-412)."""

from __future__ import annotations

import logging

LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
