"""Rules that join several broker keys, look into a value, or compare it with the present one. Pure.

    check         whenever a configuration comes into force: at start, for a dynamic change, for stored dynamic values
    check_start   what only a start can meet
    check_change  what only a request to change dynamic values can meet: bounds by the values in force, directories

Stored values are no request: nobody gets an answer, and the broker that took them had other values in force.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.listeners import parse_connection_overrides
from ottla_broker.config.topics import TopicConfig
from ottla_broker.config.types import INT, ConfigError, parse_value

_THREADS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
CONSUMER_ASSIGNORS = (
    "uniform",
    "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
)
"""Apache Kafka names them by class up to 3.9, by name as well from 4.0 on."""
_OF_A_LISTENER = ".num.network.threads"


def check(values: BrokerValues) -> None:
    """ConfigError for the first broken rule. Source: the requirements of KafkaConfig and of DynamicLogConfig."""
    _check_identity(values)
    _check_logs(values)
    _check_replication(values)
    _check_groups(values)
    _check_network(values)


def check_start(values: BrokerValues) -> None:
    """ConfigError for the first broken rule about what the file names. Source: LogManager, which takes no directory
    twice."""
    paths = [posixpath.normpath(path) for path in values.named_log_dirs]
    repeated = next((path for path in paths if paths.count(path) > 1), None)
    if repeated is not None:
        _refuse(values, "log.dirs", f"each directory once, but {repeated} stands twice")
    for name in values.by_name["ottla.log.dirs.format"] or ():
        if name not in values.log_dirs:
            _refuse(values, "ottla.log.dirs.format", f"directories of log.dirs; {name} is none of them")
    _check_cordoned(values)


def check_change(present: BrokerValues, changed: BrokerValues) -> None:
    """ConfigError for the first value that a broker with `present` in force does not change to.

    Source: DynamicThreadPool (thread counts may halve or double) and, of the cleaner's threads, LogCleaner.
    """
    threads = [*_THREADS, *(["log.cleaner.threads"] if present.by_name["log.cleaner.enable"] else [])]
    of_listeners = {*_threads_of_listeners(present), *_threads_of_listeners(changed)}
    for key in (*threads, *sorted(of_listeners)):
        before, after = _number_of_threads(present, key), _number_of_threads(changed, key)
        if after != before and not max(1, before // 2) <= after <= before * 2:
            _refuse(changed, key, f"between half and double the present number: {max(1, before // 2)} to {before * 2}")
    if changed.by_name["cordoned.log.dirs"] != present.by_name["cordoned.log.dirs"]:
        _check_cordoned(changed)
    if changed.by_name["ottla.log.dirs.forgotten"] != present.by_name["ottla.log.dirs.forgotten"]:
        for path in changed.by_name["ottla.log.dirs.forgotten"]:
            if path not in changed.log_dirs:
                _refuse(changed, "ottla.log.dirs.forgotten", f"directories of log.dirs; {path} is none of them")


def _threads_of_listeners(values: BrokerValues) -> list[str]:
    return [name for name in values.given_keys if name.startswith("listener.name.") and name.endswith(_OF_A_LISTENER)]


def _number_of_threads(values: BrokerValues, key: str) -> int:
    """A listener without threads of its own has as many as any. Source: SocketServer's DataPlaneAcceptor."""
    written = values.original(key)
    if key.endswith(_OF_A_LISTENER):
        return int(values.by_name["num.network.threads"] if written is None else parse_value(key, INT, written))
    return int(values.by_name[key])


def unknown_cordoned(named: Sequence[str], log_dirs: Sequence[str]) -> str | None:
    """The first entry of cordoned.log.dirs that is no log directory; None when all are, or it is `*` alone.

    >>> unknown_cordoned(["/d1", "/d9"], ["/d0", "/d1"])
    '/d9'
    """
    if list(named) == ["*"]:
        return None
    return next((entry for entry in named if entry not in log_dirs), None)


def _refuse(values: BrokerValues, key: str, allowed: str) -> None:
    raise ConfigError(key, values.original(key) or values.by_name.get(key), allowed)


def _check_identity(values: BrokerValues) -> None:
    broker_id, highest = values.by_name["broker.id"], values.by_name["reserved.broker.max.id"]
    if values.by_name["broker.id.generation.enable"]:
        if not -1 <= broker_id <= highest:
            _refuse(values, "broker.id", f"between -1 and reserved.broker.max.id ({highest})")
    elif broker_id < 0:
        _refuse(values, "broker.id", "at least 0, because broker.id.generation.enable is false")
    if values.by_name["node.id"] not in (-1, broker_id):
        _refuse(values, "node.id", f"equal to broker.id ({broker_id}), or left out")


def _check_logs(values: BrokerValues) -> None:
    if not values.log_dirs:
        _refuse(values, "log.dirs", "at least one directory")
    for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = values.by_name[key]
        if value is not None and value != -1 and value < 1:
            _refuse(values, key, "at least 1, or -1 for no limit")
    for key, low in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        if values.by_name[key] is not None and values.by_name[key] < low:
            _refuse(values, key, f"at least {low}")
    threads = values.by_name["log.cleaner.threads"]
    if threads < 1:
        _refuse(values, "log.cleaner.threads", "at least 1")
    if values.by_name["log.cleaner.dedupe.buffer.size"] // threads <= 1024 * 1024:
        _refuse(values, "log.cleaner.dedupe.buffer.size", "more than 1 MiB for each of log.cleaner.threads")
    _check_local_retention(values, "log.local.retention.ms", "log.retention.ms", TopicConfig({}, values).retention_ms)
    _check_local_retention(
        values, "log.local.retention.bytes", "log.retention.bytes", values.by_name["log.retention.bytes"]
    )


def _check_local_retention(values: BrokerValues, key: str, whole_key: str, whole: int) -> None:
    """What stays on local disks is no more than what stays at all; -2 means just that. Without effect here."""
    local = values.by_name[key]
    if whole != -1 and local != -2 and (local == -1 or local > whole):
        _refuse(values, key, f"at most {whole_key} ({whole}), or -2")


def _check_cordoned(values: BrokerValues) -> None:
    unknown = unknown_cordoned(values.by_name["cordoned.log.dirs"], values.log_dirs)
    if unknown is not None:
        _refuse(values, "cordoned.log.dirs", f"directories of log.dirs, or * alone; {unknown} is none of them")


def _check_replication(values: BrokerValues) -> None:
    wait = values.by_name["replica.fetch.wait.max.ms"]
    if wait > values.by_name["replica.socket.timeout.ms"]:
        _refuse(values, "replica.socket.timeout.ms", f"at least replica.fetch.wait.max.ms ({wait})")
    if wait > values.by_name["replica.lag.time.max.ms"]:
        _refuse(values, "replica.lag.time.max.ms", f"at least replica.fetch.wait.max.ms ({wait})")


def _check_groups(values: BrokerValues) -> None:
    acks, replicas = values.by_name["offsets.commit.required.acks"], values.by_name["offsets.topic.replication.factor"]
    if not -1 <= acks <= replicas:
        _refuse(values, "offsets.commit.required.acks", f"between -1 and offsets.topic.replication.factor ({replicas})")
    shortest = values.by_name["group.min.session.timeout.ms"]
    if values.by_name["group.max.session.timeout.ms"] < shortest:
        _refuse(values, "group.max.session.timeout.ms", f"at least group.min.session.timeout.ms ({shortest})")

    _check_consumer_groups(values)


def _check_consumer_groups(values: BrokerValues) -> None:
    """Bounds of group.consumer.*. Source: the requirements of KafkaConfig and GroupCoordinatorConfig."""
    for name in ("heartbeat.interval.ms", "session.timeout.ms"):
        lowest = values.by_name[f"group.consumer.min.{name}"]
        highest = values.by_name[f"group.consumer.max.{name}"]
        if highest < lowest:
            _refuse(values, f"group.consumer.max.{name}", f"at least group.consumer.min.{name} ({lowest})")
        if not lowest <= values.by_name[f"group.consumer.{name}"] <= highest:
            bounds = f"group.consumer.min.{name} ({lowest}) and group.consumer.max.{name} ({highest})"
            _refuse(values, f"group.consumer.{name}", f"between {bounds}")
    for entry in values.by_name["group.consumer.assignors"]:
        if entry not in CONSUMER_ASSIGNORS:
            _refuse(values, "group.consumer.assignors", f"of {', '.join(CONSUMER_ASSIGNORS)}; {entry} is none of them")
    if not values.by_name["group.consumer.assignors"]:
        _refuse(values, "group.consumer.assignors", "at least one assignor")


def _check_network(values: BrokerValues) -> None:
    queued, largest = values.by_name["queued.max.request.bytes"], values.by_name["socket.request.max.bytes"]
    if 0 < queued < largest:
        _refuse(values, "queued.max.request.bytes", f"at least socket.request.max.bytes ({largest}), 0 or -1")
    for key in ("socket.send.buffer.bytes", "socket.receive.buffer.bytes"):
        if values.by_name[key] < -1:
            _refuse(values, key, "at least 0, or -1 for the system's default")
    overrides = parse_connection_overrides(values.by_name["max.connections.per.ip.overrides"])
    if values.by_name["max.connections.per.ip"] == 0 and not overrides:
        _refuse(values, "max.connections.per.ip", "at least 1 where max.connections.per.ip.overrides is not given")
    if values.by_name["ottla.http.listener"]:
        values.http_listener  # noqa: B018 - raises when malformed
    values.broker_request_networks  # noqa: B018 - the same
