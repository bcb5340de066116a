"""Rules that join several broker keys, checked once when a broker starts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla_broker.config.types import ConfigError

if TYPE_CHECKING:
    from ottla_broker.config.broker import BrokerConfig


def check_static(config: BrokerConfig) -> None:
    """ConfigError for the first broken rule; each is Kafka's own (`KafkaConfig`'s list of requirements)."""
    _check_identity(config)
    _check_logs(config)
    _check_replication(config)
    _check_groups(config)
    _check_network(config)


def unknown_cordoned(named: Sequence[str], log_dirs: Sequence[str]) -> str | None:
    """The first entry of cordoned.log.dirs that is no log directory; None when all are, or it is `*` alone.

    >>> unknown_cordoned(["/d1", "/d9"], ["/d0", "/d1"])
    '/d9'
    """
    if list(named) == ["*"]:
        return None
    return next((entry for entry in named if entry not in log_dirs), None)


def _refuse(config: BrokerConfig, key: str, allowed: str) -> None:
    raise ConfigError(key, config.original(key) or config[key], allowed)


def _check_identity(config: BrokerConfig) -> None:
    broker_id, highest = config["broker.id"], config["reserved.broker.max.id"]
    if config["broker.id.generation.enable"]:
        if not -1 <= broker_id <= highest:
            _refuse(config, "broker.id", f"between -1 and reserved.broker.max.id ({highest})")
    elif broker_id < 0:
        _refuse(config, "broker.id", "at least 0, because broker.id.generation.enable is false")
    if config["node.id"] not in (-1, broker_id):
        _refuse(config, "node.id", f"equal to broker.id ({broker_id}), or left out")


def _check_logs(config: BrokerConfig) -> None:
    if not config.log_dirs:
        _refuse(config, "log.dirs", "at least one directory")
    for name in config["ottla.log.dirs.format"] or ():
        if name not in config.log_dirs:
            _refuse(config, "ottla.log.dirs.format", f"directories of log.dirs; {name} is none of them")
    unknown = unknown_cordoned(config["cordoned.log.dirs"], config.log_dirs)
    if unknown is not None:
        _refuse(config, "cordoned.log.dirs", f"directories of log.dirs, or * alone; {unknown} is none of them")
    for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = config[key]
        if value is not None and value != -1 and value < 1:
            _refuse(config, key, "at least 1, or -1 for no limit")
    for key, low in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        if config[key] is not None and config[key] < low:
            _refuse(config, key, f"at least {low}")
    if config["log.cleaner.enable"]:
        threads = max(1, config["log.cleaner.threads"])
        if config["log.cleaner.dedupe.buffer.size"] // threads <= 1024 * 1024:
            _refuse(config, "log.cleaner.dedupe.buffer.size", "more than 1 MiB for each of log.cleaner.threads")


def _check_replication(config: BrokerConfig) -> None:
    wait = config["replica.fetch.wait.max.ms"]
    if wait > config["replica.socket.timeout.ms"]:
        _refuse(config, "replica.socket.timeout.ms", f"at least replica.fetch.wait.max.ms ({wait})")
    if wait > config["replica.lag.time.max.ms"]:
        _refuse(config, "replica.lag.time.max.ms", f"at least replica.fetch.wait.max.ms ({wait})")


def _check_groups(config: BrokerConfig) -> None:
    acks, replicas = config["offsets.commit.required.acks"], config["offsets.topic.replication.factor"]
    if not -1 <= acks <= replicas:
        _refuse(config, "offsets.commit.required.acks", f"between -1 and offsets.topic.replication.factor ({replicas})")
    shortest = config["group.min.session.timeout.ms"]
    if config["group.max.session.timeout.ms"] < shortest:
        _refuse(config, "group.max.session.timeout.ms", f"at least group.min.session.timeout.ms ({shortest})")


def _check_network(config: BrokerConfig) -> None:
    queued, largest = config["queued.max.request.bytes"], config["socket.request.max.bytes"]
    if 0 < queued < largest:
        _refuse(config, "queued.max.request.bytes", f"at least socket.request.max.bytes ({largest}), or -1")
    for key in ("socket.send.buffer.bytes", "socket.receive.buffer.bytes"):
        if config[key] < -1:
            _refuse(config, key, "at least 0, or -1 for the system's default")
    for entry in filter(None, (part.strip() for part in config["max.connections.per.ip.overrides"].split(","))):
        address, colon, limit = entry.rpartition(":")
        if not colon or not address or not limit.isdigit():
            _refuse(config, "max.connections.per.ip.overrides", "ADDRESS:NUMBER,ADDRESS:NUMBER,...")
    if config["ottla.http.listener"]:
        config.http_listener  # noqa: B018 - raises when malformed
