"""The values of one broker in force: a typed attribute per key, and what several keys mean together.

`BrokerValues.num_partitions` is the value of `num.partitions`: an attribute has the name of its key, with underscores.
The keys that the broker reads have an attribute; a test compares names and types with the tables of `definitions`.
Code outside this package reads attributes and properties only. `by_name` is for this package, whose rules and
descriptions work on keys that a file or a request names.

Not here: dynamic updates (`broker`), rules (`rules`), what DescribeConfigs shows (`description`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from ottla_broker.config.definitions import BROKER_KEYS
from ottla_broker.config.layers import NO_LAYERS, Layers
from ottla_broker.config.listeners import (
    ZooKeeperAddress,
    parse_http_listener,
    parse_networks,
    parse_zookeeper_connect,
)
from ottla_broker.config.types import ConfigError, trimmed


class BrokerValues:
    """Typed values in force: int, float, bool, str, a tuple for a list, None when not set.

    A value comes from, in this order: the dynamic configuration of this broker, the cluster-wide dynamic default, the
    properties file, Kafka's default (KIP-226). Keys that mean one thing (log.retention.ms, .minutes, .hours) keep a
    value each; `first_given` says which one is in force.

    >>> values = BrokerValues({"num.partitions": "3", "log.dir": "/a"})
    >>> values.num_partitions, values.request_timeout_ms, values.log_dirs
    (3, 30000, ('/a',))
    """

    # The cluster and the coordination store.
    broker_id: int
    """broker.id; -1 asks the coordination store for an id."""
    allow_everyone_if_no_acl_found: bool
    authorizer_class_name: str
    principal_builder_class: str
    auto_create_topics_enable: bool
    controller_socket_timeout_ms: int
    delete_topic_enable: bool
    inter_broker_protocol_version: str
    num_partitions: int
    ottla_client_metrics_max_series: int
    reserved_broker_max_id: int
    super_users: str
    telemetry_max_bytes: int
    zookeeper_connect: str | None
    zookeeper_connection_timeout_ms: int | None
    zookeeper_session_timeout_ms: int
    zookeeper_set_acl: bool
    # Listeners, connections and requests.
    delegation_token_expiry_check_interval_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_max_lifetime_ms: int
    connection_failed_authentication_delay_ms: int
    connections_max_idle_ms: int
    control_plane_listener_name: str | None
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    fetch_max_bytes: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    ottla_request_max_elements: int
    queued_max_request_bytes: int
    queued_max_requests: int
    quota_window_num: int
    quota_window_size_seconds: int
    request_timeout_ms: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    ssl_allow_dn_changes: bool
    ssl_allow_san_changes: bool
    ssl_principal_mapping_rules: str
    # Logs and their cleaner.
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_retention_check_interval_ms: int
    num_recovery_threads_per_data_dir: int
    # Replication and leadership.
    auto_leader_rebalance_enable: bool
    broker_rack: str | None
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int
    default_replication_factor: int
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    num_replica_alter_log_dirs_threads: int | None
    num_replica_fetchers: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    unclean_leader_election_enable: bool
    # Groups, transactions and their internal topics.
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_min_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_required_acks: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_two_phase_commit_enable: bool
    transactional_id_expiration_ms: int
    # Ottla's own keys, and keys that only a dynamic update sets.
    follower_replication_throttled_rate: int
    leader_replication_throttled_rate: int
    ottla_http_max_connections: int
    ottla_log_dir_io_timeout_ms: int
    ottla_log_dir_reserve_bytes: int
    ottla_log_dirs_forgotten: tuple[str, ...]
    ottla_log_write_on_loop: str
    ottla_max_partition_replicas: int
    ottla_queued_max_response_bytes: int
    ottla_replica_recreate_max_bytes_per_second: int
    ottla_sasl_timeout_ms: int
    ottla_shutdown_serve_ms: int
    ottla_shutdown_timeout_ms: int
    ottla_ssl_handshake_timeout_ms: int
    ottla_ssl_ktls: str
    ottla_batch_max_decompressed_bytes: int
    ottla_validate_records: str
    replica_alter_log_dirs_io_max_bytes_per_second: int

    def __init__(self, static: Mapping[str, str], layers: Layers = NO_LAYERS) -> None:
        self.static: Mapping[str, str] = static
        """The keys and values of the file, as written."""
        self.layers = layers
        """The dynamic values in force."""
        self.by_name: Mapping[str, Any] = {}
        """The typed value of every known key by its name; inside this package only."""
        self.topic_defaults: Any = None
        """What `topics` has computed from these values for all topics; None until the first one."""
        self._compute()

    def _compute(self) -> None:
        """Sets `by_name` and the attributes from the file and the layers."""
        values = {entry.name: entry.default for entry in BROKER_KEYS.values()}
        for layer in (self.static, self.layers.default, self.layers.per_broker):
            for name, text in layer.items():
                known = BROKER_KEYS.get(name)
                if known is not None:
                    values[name] = known.parse(text)
        self.by_name = values
        self.topic_defaults = None
        self.__dict__.update((attribute, values[name]) for attribute, name in BROKER_ATTRIBUTES.items())

    def with_layers(self, layers: Layers) -> BrokerValues:
        """The values with other dynamic layers, unchecked."""
        return BrokerValues(self.static, layers)

    # -- what the keys mean together ---------------------------------------------------------------------------

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """log.dirs, else log.dir; without repeats, in the order given."""
        return tuple(dict.fromkeys(self.named_log_dirs))

    @property
    def named_log_dirs(self) -> tuple[str, ...]:
        """log.dirs, else log.dir, as written: repeats included."""
        text = self.by_name["log.dirs"] if self.by_name["log.dirs"] is not None else self.by_name["log.dir"]
        return tuple(filter(None, (trimmed(part) for part in text.split(","))))

    @property
    def formattable_log_dirs(self) -> tuple[str, ...]:
        """The log directories that may be empty and are then formatted (ottla.log.dirs.format; default: all)."""
        named = self.by_name["ottla.log.dirs.format"]
        return self.log_dirs if named is None else tuple(directory for directory in self.log_dirs if directory in named)

    @property
    def cordoned_log_dirs(self) -> tuple[str, ...]:
        """The log directories that take no new partition (cordoned.log.dirs, KIP-1066), in the order of log.dirs."""
        named = self.by_name["cordoned.log.dirs"]
        return self.log_dirs if "*" in named else tuple(directory for directory in self.log_dirs if directory in named)

    @property
    def zookeeper(self) -> ZooKeeperAddress:
        """The address in zookeeper.connect.

        Raises:
            ConfigError: zookeeper.connect is not given, or malformed.
        """
        text = self.zookeeper_connect
        if text is None or not text.strip():
            raise ConfigError("zookeeper.connect", text, "it is required: HOST:PORT,HOST:PORT/CHROOT")
        return parse_zookeeper_connect(text)

    @property
    def broker_request_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Where the requests that only brokers send may come from; empty for everywhere.

        Raises:
            ConfigError: an entry of ottla.broker.request.addresses is no address and no network.
        """
        name = "ottla.broker.request.addresses"
        return parse_networks(name, self.by_name[name])

    @property
    def delegation_token_secret(self) -> str | None:
        """delegation.token.secret.key; None: delegation tokens are not served."""
        return self.by_name["delegation.token.secret.key"] or None

    @property
    def http_listener(self) -> tuple[str, int] | None:
        """(host, port) of ottla.http.listener; None when HTTP is not served."""
        text = self.by_name["ottla.http.listener"]
        return parse_http_listener(text) if text else None

    # -- where values come from --------------------------------------------------------------------------------

    def is_given(self, name: str) -> bool:
        """Whether anything but the default sets the key."""
        return name in self.layers.per_broker or name in self.layers.default or name in self.static

    @property
    def given_keys(self) -> frozenset[str]:
        """The keys that anything but a default sets, those of single listeners included."""
        return frozenset((*self.static, *self.layers.default, *self.layers.per_broker))

    def original(self, name: str) -> str | None:
        """The text in force as it was written; None when only the default sets the key."""
        for layer in (self.layers.per_broker, self.layers.default, self.static):
            if name in layer:
                return layer[name]
        return None

    def has_same_value(self, name: str, other: BrokerValues) -> bool:
        """Whether both have the same typed value of a known key. KeyError for an unknown one."""
        return bool(self.by_name[name] == other.by_name[name])

    def first_given(self, names: Sequence[str]) -> str:
        """The first of the names that is given; else the last one that has a default."""
        for name in names:
            if self.is_given(name) and self.by_name[name] is not None:
                return name
        return next((name for name in reversed(names) if self.by_name[name] is not None), names[-1])


BROKER_ATTRIBUTES: Mapping[str, str] = {
    name.replace(".", "_"): name for name in BROKER_KEYS if name.replace(".", "_") in BrokerValues.__annotations__
}
"""The key behind each attribute of BrokerValues."""
