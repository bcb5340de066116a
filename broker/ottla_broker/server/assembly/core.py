"""The parts of a broker that exist before it knows its id: log directories, cleaner, dispatcher, listeners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla_broker.config import BrokerConfig
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Ports
from ottla_broker.server.assembly.part_settings import cleaner_settings, log_manager_settings
from ottla_broker.server.edge.dispatch import CLIENT_METRICS, Dispatcher
from ottla_broker.server.edge.sasl_listeners import FindCredential, FindToken, SaslListeners
from ottla_broker.server.edge.socket_server import ListenerSecurity, SocketServer
from ottla_broker.server.edge.throttling import Throttling
from ottla_broker.server.edge.tls_contexts import TlsContexts
from ottla_broker.server.log_dir_recovery.directory_events import register_metrics
from ottla_broker.storage.cleaner.cleaner import LogCleaner
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_manager import LogManager


@dataclass(frozen=True, slots=True)
class CoreParts:
    """See the module."""

    log_manager: LogManager
    log_cleaner: LogCleaner
    dispatcher: Dispatcher
    throttling: Throttling
    tls: TlsContexts
    sasl: SaslListeners
    server: SocketServer


def make_core(
    config: BrokerConfig,
    ports: Ports,
    metrics: Metrics,
    *,
    log_config: Callable[[str], LogConfig],
    callbacks: DirectoryCallbacks,
    find_credential: FindCredential,
    find_token: FindToken | None,
) -> CoreParts:
    """Makes them; nothing runs yet.

    Args:
        log_config: the configuration of a topic's logs.
        callbacks: what the log directories call; the cleaner has the same `notice`.
        find_credential: the SCRAM credentials of users.
        find_token: who logs in by delegation tokens; None where they are not served.
    """
    clock = ports.clock
    dispatcher = Dispatcher(
        clock,
        frozenset({CLIENT_METRICS} if config.ottla_client_metrics_max_series else ()),
        config.ottla_request_max_elements,
    )
    throttling = Throttling(clock, config, metrics)
    tls = TlsContexts(config, clock, metrics, ports.network.own_name)
    sasl = SaslListeners(config, clock, metrics, ports.http, find_credential, find_token)
    server = SocketServer(
        ports.network,
        clock,
        config,
        dispatcher,
        throttling,
        metrics,
        ports.memory_bytes,
        ListenerSecurity(tls.of_listener, sasl.rules_of),
    )
    log_manager = LogManager(
        ports.disks,
        clock,
        ports.workers,
        log_manager_settings(config, ports.open_files),
        log_config,
        callbacks,
    )
    register_metrics(metrics, log_manager.states)
    log_cleaner = LogCleaner(
        log_manager, clock, ports.workers, lambda: cleaner_settings(config), metrics, on_notice=callbacks.notice
    )
    return CoreParts(log_manager, log_cleaner, dispatcher, throttling, tls, sasl, server)
