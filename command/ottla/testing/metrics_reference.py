"""Writes the table of docs/reference/metrics.md: `python -m ottla.testing.metrics_reference`.

The names, types, labels and meanings are those of a broker that runs. Metrics that appear only with a topic or with a
certain request stand in `CREATED_LATER`, and a test holds that list complete.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.testing.cluster import cluster
from ottla_broker.metrics import Counter, Gauge, Histogram, Metrics

BEGIN = "<!-- table: python -m ottla.testing.metrics_reference -->"
END = "<!-- end of table -->"

TYPES = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}

CREATED_LATER = {
    "kafka_network_requestmetrics_totaltime_seconds": (
        "histogram", ("request",), "From the last byte of a request to its response.",
    ),
    "kafka_server_brokertopicmetrics_bytesin": ("counter", ("topic",), "Bytes that clients produced."),
    "kafka_server_brokertopicmetrics_bytesout": ("counter", ("topic",), "Bytes that consumers fetched."),
    "kafka_server_brokertopicmetrics_messagesin": ("counter", ("topic",), "Records that clients produced."),
    "kafka_server_brokertopicmetrics_fetchmessageconversions": (
        "counter", ("topic",), "Fetches of older formats whose records were converted.",
    ),
    "kafka_server_brokertopicmetrics_producemessageconversions": (
        "counter", ("topic",), "Message sets of older formats that producers sent and that were converted.",
    ),
    "kafka_controller_controllerstats_uncleanleaderelections": (
        "counter", (), "Leaders elected from outside the ISR.",
    ),
    "kafka_server_produce_byte_rate": (
        "gauge", ("client_id", "user"), "Bytes per second that a client produces.",
    ),
    "kafka_server_produce_throttle_time": (
        "gauge", ("client_id", "user"), "Average throttle time of a client in milliseconds, of the throttles above 0.",
    ),
    "kafka_server_fetch_byte_rate": (
        "gauge", ("client_id", "user"), "Bytes per second that a client fetches.",
    ),
    "kafka_server_fetch_throttle_time": (
        "gauge", ("client_id", "user"), "Average throttle time of a client in milliseconds, of the throttles above 0.",
    ),
    "kafka_server_request_request_time": (
        "gauge", ("client_id", "user"), "Time of a client's requests, in percent of the loop.",
    ),
    "kafka_server_request_throttle_time": (
        "gauge", ("client_id", "user"), "Average throttle time of a client in milliseconds, of the throttles above 0.",
    ),
    "kafka_server_controllermutation_tokens": (
        "gauge", ("client_id", "user"), "Partitions that a client may create or delete at once.",
    ),
    "kafka_server_controllermutation_mutation_rate": (
        "gauge", ("client_id", "user"), "Partitions per second that a client creates or deletes.",
    ),
    "kafka_server_controllermutation_throttle_time": (
        "gauge", ("client_id", "user"), "Average throttle time of a client in milliseconds, of the throttles above 0.",
    ),
    "kafka_server_socketservermetrics_successful_authentication": (
        "counter", ("listener",), "Connections that have authenticated by SASL.",
    ),
    "kafka_server_socketservermetrics_successful_reauthentication": (
        "counter", ("listener",), "Times that connections have authenticated again by SASL.",
    ),
    "kafka_server_socketservermetrics_failed_authentication": (
        "counter", ("listener",), "Connections closed because they did not authenticate by SASL.",
    ),
    "kafka_server_socketservermetrics_failed_reauthentication": (
        "counter", ("listener",), "Connections closed because they did not authenticate again.",
    ),
    "kafka_server_socketservermetrics_expired_connections_killed": (
        "counter", ("listener",), "Connections closed because they were used behind the end of their session.",
    ),
    "ottla_sasl_jwks_age_seconds": (
        "gauge", ("listener",), "Time since the keys of tokens in force were fetched; infinite without any.",
    ),
    "ottla_sasl_jwks_failures": (
        "counter", ("listener",), "Times that the keys of tokens could not be fetched or used.",
    ),
    "ottla_ssl_certificate_expiry_seconds": (
        "gauge", ("listener", "store"),
        "Time until the certificate of a listener expires, or the first of the authorities that it trusts.",
    ),
    "ottla_ssl_stores_refused": (
        "gauge", ("listener",),
        "1 while a store of a listener holds what cannot be used, and what it held before is in force.",
    ),
    "ottla_ssl_handshakes": (
        "counter", ("cipher_suite", "kernel_sends", "listener", "protocol", "role"), "Complete TLS handshakes.",
    ),
    "ottla_ssl_handshake_failures": (
        "counter", ("listener", "reason", "role"), "TLS handshakes that have failed, by OpenSSL's reason.",
    ),
}  # fmt: skip
"""(type, labels, meaning) of what appears with the first request or event of its kind."""

WORRY = {
    "kafka_server_socketservermetrics_failed_authentication": "it grows: the log names the address and the reason",
    "ottla_sasl_jwks_age_seconds": (
        "above sasl.oauthbearer.jwks.endpoint.refresh.ms: the log says why the identity provider gives no keys"
    ),
    "ottla_ssl_certificate_expiry_seconds": "below 30 days: issue a new certificate; the broker reads it by itself",
    "ottla_ssl_stores_refused": "it is 1: the log of the broker names the store and what is wrong with it",
    "ottla_ssl_handshake_failures": "it grows: the reason says whose certificate or version is wrong",
    "kafka_controller_kafkacontroller_activecontrollercount": "the sum over the fleet is not 1",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "above 0: nothing can be written to or read from them",
    "kafka_controller_controllerstats_uncleanleaderelections": "it grows: committed records may be lost",
    "kafka_server_replicamanager_underminisrpartitioncount": "above 0: acks=all is refused",
    "kafka_server_replicamanager_underreplicatedpartitions": "above 0 for longer than a restart",
    "kafka_server_replicamanager_offlinereplicacount": "above 0: a log directory is offline",
    "kafka_server_replicafetchermanager_maxlag": "it grows",
    "kafka_server_replicaalterlogdirsmanager_failedpartitionscount": "above 0: the log of the broker names the batch",
    "kafka_server_socketservermetrics_connectionsrefused": "it grows and no limit is intended",
    "kafka_controller_kafkacontroller_replicasineligibletodeletecount": "above 0 while every broker is up",
    "kafka_log_logmanager_offlinelogdirectorycount": "above 0: `/status` has the reason",
    "kafka_log_logmanager_logdirectoryoffline": "it is 1",
    "kafka_log_logcleanermanager_uncleanable_partitions_count": "above 0: compacted partitions grow without end",
    "ottla_log_directory_full": "it is 1: make room, or delete or shorten topics",
    "ottla_replica_lost_partitions": "above 0: these partitions answer errors until the log directory is back",
    "ottla_replica_recreations_waiting": "above 0 for minutes: the broker has no online log directory with enough room",
    "kafka_server_replicamanager_partitionswithlatetransactionscount": "above 0: read_committed consumers wait",
    "kafka_network_requestmetrics_totaltime_seconds": "its quantiles by `request` leave what you are used to",
    "ottla_loop_lag_seconds": "above 0.1 s: the one core of the broker is busy",
}
"""When to worry, by name."""


def rows(metrics: Metrics) -> dict[str, tuple[str, tuple[str, ...], str]]:
    """(type, labels, meaning) by name, of a registry and of what appears later."""
    found = {name: (TYPES[one.kind], one.label_names, one.help) for name, one in metrics.families.items()}
    return {**CREATED_LATER, **found}


def table() -> str:
    """One row for each metric, in Markdown, from a broker that this starts and stops."""
    with cluster(disks=2) as fleet:
        assert fleet.fleet is not None
        found = rows(fleet.fleet.brokers[0].metrics)
    lines = ["| metric | type | labels | meaning | worry when |", "|---|---|---|---|---|"]
    for name, (kind, labels, meaning) in sorted(found.items()):
        shown = f"{name}_total" if kind == "counter" else name
        cells = [f"`{shown}`", kind, ", ".join(labels), meaning, WORRY.get(name, "")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def written_into(page: str) -> str:
    """The page with the present table between its two marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    page = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference/metrics.md")
    page.write_text(written_into(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
