"""How brokers are reached and what a fetch asks for: the `kafka.` options that readers and writers share. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_broker.protocol.number_text import whole_number
from ottla_broker.security.client_settings import PLAIN, ClientSecurity
from ottla_pipeline.errors import OptionError
from ottla_pipeline.option_values import INT32_MAX, boolean, required_number
from ottla_pipeline.wire.security_options import parse_security


@dataclass(frozen=True, slots=True)
class Connecting:
    """The checked `kafka.` options, times in ms."""

    bootstrap: tuple[tuple[str, int], ...]
    security: ClientSecurity = PLAIN
    client_id: str = "ottla-pipeline"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    read_committed: bool = False
    check_crcs: bool = True
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    partition_fetch_bytes: int = 4 * 1024 * 1024
    retries: int = 3
    retry_interval_ms: int = 1000
    poll_timeout_ms: int = 120_000

    @property
    def addresses(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap)


def parse_connecting(given: Mapping[str, str]) -> Connecting:
    """The options whose names are in lower case. OptionError names the first one that is wrong."""
    isolation = given.get("kafka.isolation.level", "read_uncommitted").lower()
    if isolation not in ("read_committed", "read_uncommitted"):
        raise OptionError("kafka.isolation.level", f"must be read_committed or read_uncommitted, not {isolation!r}")
    default = Connecting(())

    def int32(name: str, least: int, otherwise: int) -> int:
        return required_number(given, name, least, otherwise, INT32_MAX)

    by_partition = int32("kafka.max.partition.fetch.bytes", 1, default.partition_fetch_bytes)
    in_all = int32("kafka.fetch.max.bytes", 1, INT32_MAX)
    return Connecting(
        bootstrap=_bootstrap(given),
        security=parse_security(given),
        client_id=given.get("kafka.client.id", default.client_id),
        request_timeout_ms=int32("kafka.request.timeout.ms", 1, default.request_timeout_ms),
        default_api_timeout_ms=int32("kafka.default.api.timeout.ms", 1, default.default_api_timeout_ms),
        read_committed=isolation == "read_committed",
        check_crcs=boolean(given, "kafka.check.crcs", True),
        fetch_max_wait_ms=int32("kafka.fetch.max.wait.ms", 0, default.fetch_max_wait_ms),
        fetch_min_bytes=int32("kafka.fetch.min.bytes", 0, default.fetch_min_bytes),
        partition_fetch_bytes=min(by_partition, in_all),  # a task asks for one partition
        retries=int32("fetchOffset.numRetries", 0, default.retries),
        retry_interval_ms=int32("fetchOffset.retryIntervalMs", 0, default.retry_interval_ms),
        poll_timeout_ms=int32("kafkaConsumer.pollTimeoutMs", 1, default.poll_timeout_ms),
    )


def _bootstrap(given: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    name = "kafka.bootstrap.servers"
    if not given.get(name, "").strip():
        raise OptionError(name, 'is needed: the addresses of brokers, "host:port,host:port"')
    found: list[tuple[str, int]] = []
    for address in given[name].split(","):
        host, colon, port = address.strip().rpartition(":")
        if not address.strip():
            continue
        number = whole_number(port)
        if not (colon and host and number is not None and 0 < number < 65536):
            raise OptionError(name, f"{address.strip()!r} is not host:port")
        found.append((host.removeprefix("[").removesuffix("]"), number))
    return tuple(found)
