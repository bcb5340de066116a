"""Broker: one broker of a cluster, from its start to its end.

Lives here: the steps of a start and of a stop in order, and what the broker does about events (failed log directories,
the session with the coordination store, metadata, changes of its configuration). Not here: states and what each failure
does (`lifecycle`), how the parts are made and connected (`assembly`). Nothing looks anything up: each part gets what it
needs when it is made.

Concurrency: everything happens on one loop; several brokers may live in one process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ottla_broker.authorization.acls import Acls
from ottla_broker.config import BrokerConfig, TopicConfig
from ottla_broker.config.served import has_default_principals
from ottla_broker.controller.controller import Controller
from ottla_broker.controller.decisions.capacity import max_partition_replicas
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Ports
from ottla_broker.ports.coordination import ConnectionLoss, CoordinationError, SessionEvent, SessionExpired
from ottla_broker.ports.network import Connector
from ottla_broker.protocol.errors import KafkaError
from ottla_broker.quotas.alterations import parse_bounds
from ottla_broker.quotas.entities import CONNECTION_CREATION_RATE, DEFAULT, QuotaEntity
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.security.delegation_tokens import TokenPeriods, TokenSecret
from ottla_broker.security.kerberos_settings import KeytabError
from ottla_broker.security.tls_settings import TlsError
from ottla_broker.server.assembly.authorizers import AuthorizerContext, start_authorizer
from ottla_broker.server.assembly.broker_context import BrokerContext
from ottla_broker.server.assembly.core import make_core
from ottla_broker.server.assembly.part_settings import start_refusal
from ottla_broker.server.assembly.principal_builders import load_principal_builder
from ottla_broker.server.assembly.serving import StoredState, make_serving
from ottla_broker.server.controlled_shutdown import request_controlled_shutdown
from ottla_broker.server.edge.advertised import advertised_endpoints
from ottla_broker.server.lifecycle import (
    FAILURE_ACTIONS,
    BrokerState,
    Failure,
    FailureAction,
    Lifecycle,
    LifecycleStep,
    StartRefused,
)
from ottla_broker.server.log_dir_recovery.failed_directories import FailedDirectories
from ottla_broker.server.log_dir_recovery.power_loss import PossibleLoss, assigned, no_longer_lost, until_out_of_sync
from ottla_broker.server.log_dir_recovery.registry_znode import RegistryZnode
from ottla_broker.server.phases import NotServing, Phase, Serving
from ottla_broker.server.status import broker_status
from ottla_broker.server.store.client_metrics_configs import ClientMetricsConfigs
from ottla_broker.server.store.coordination_session import CoordinationSessionState
from ottla_broker.server.store.dynamic_config import DynamicConfig
from ottla_broker.server.store.fleet_features import FleetFeatures
from ottla_broker.server.store.registration import (
    Registration,
    RegistrationRefused,
    cluster_id,
    generated_broker_id,
    kept_session,
    make_persistent_paths,
    refuse_other_cluster,
)
from ottla_broker.server.store.scram_credentials import ScramCredentials
from ottla_broker.server.store.stored_tokens import StoredTokens
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log_dirs.directory_callbacks import DirectoryCallbacks
from ottla_broker.storage.log_dirs.log_directory import LogDirectory, LogDirectoryError

__all__ = ["Broker", "StartRefused"]

_LAG_CHECK_S = 1.0
_LONGEST_WAIT_FOR_CONTROLLER_S = 10.0
"""After a loss of power a registration waits for the controller for so long, and three session timeouts."""
_RECORD_FAILURE_S = 2.0
"""For so long a broker whose last log directory has failed tries to record that before it halts."""
_FORESEEN = (
    LogDirectoryError,
    CheckpointError,
    RegistrationRefused,
    OSError,
    CoordinationError,
    StartRefused,
    TlsError,
    KeytabError,
)
"""What keeps a broker from starting and needs no traceback."""


class Broker:
    """One broker.

    Args:
        config: its configuration; `broker.id` may be -1 (then the coordination store gives one).
        ports: its edges. They are the broker's own: it closes them.
        logger: where it logs; by default "ottla" with the broker's id.
    """

    def __init__(self, config: BrokerConfig, ports: Ports, *, logger: logging.LoggerAdapter[Any] | None = None) -> None:
        self.config = config
        self.metrics = Metrics()
        self.broker_id = config.broker_id
        self.cluster_id = ""
        self._ports = ports
        self._log_fields: dict[str, object] = {"broker": self.broker_id}
        self._logger = logging.LoggerAdapter(
            logging.getLogger("ottla") if logger is None else logger.logger, self._log_fields
        )
        self._session = CoordinationSessionState(ports.clock)
        self._lifecycle = Lifecycle(ports.clock)
        self._skips_to_flush: asyncio.Future[None] = ports.clock.create_future()
        ports.clock.on_task_failure = self._on_task_failure
        self._scram_credentials = ScramCredentials(self._logger)
        secret = config.delegation_token_secret
        self._tokens = (
            StoredTokens(
                TokenSecret(secret),
                TokenPeriods(config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms),
                ports.coordination,
                ports.clock,
                self._logger,
            )
            if secret
            else None
        )
        self._core = make_core(
            config,
            ports,
            self.metrics,
            log_config=self._log_config,
            callbacks=DirectoryCallbacks(
                on_failure=self._on_directory_failure,
                on_change=self._on_directory_change,
                on_reopened=self._on_directory_reopened,
                notice=lambda message: self._logger.warning("%s", message),
            ),
            find_credential=self._scram_credentials.find,
            find_token=None if self._tokens is None else self._tokens.identity,
        )
        self.log_manager = self._core.log_manager
        self._loop_lag = self.metrics.histogram(
            "ottla_loop_lag_seconds", "How late a timer of this broker's event loop fires, checked once a second."
        )
        self._directories: Sequence[LogDirectory] = ()
        self._addresses: dict[str, tuple[str, int]] = {}
        self._registration: Registration | None = None
        self._fleet_features = FleetFeatures(
            ports.coordination,
            ports.clock,
            self._logger,
            lambda view: self._core.dispatcher.fleet_changed(view.finalized, view.is_ours),
            lambda reason: self._fail(Failure.UNSUPPORTED_FEATURE, reason),
        )
        self._client_metrics_configs = ClientMetricsConfigs(ports.coordination, ports.clock, self._logger)
        self._failed_directories = FailedDirectories(ports.coordination, ports.clock, self.log_manager, self._logger)
        self._dynamic_config: DynamicConfig | None = None
        self._acls: Acls | None = None
        self._halting: asyncio.Task[None] | None = None
        """The last log directory has failed, which is being recorded before the halt."""
        self._phase: Phase = NotServing()

    @property
    def state(self) -> BrokerState:
        return self._lifecycle.state

    @property
    def is_ready(self) -> bool:
        """Recovered, listening, registered, and with metadata."""
        return self.state is BrokerState.RUNNING

    @property
    def replica_manager(self) -> ReplicaManager | None:
        """None before the logs are loaded."""
        return self._phase.replica_manager

    @property
    def controller(self) -> Controller | None:
        """None before the logs are loaded."""
        return self._phase.controller

    @property
    def _serving(self) -> Serving:
        """The phase, in the steps that come behind `_make_serving`."""
        assert isinstance(self._phase, Serving)
        return self._phase

    @property
    def broker_epoch(self) -> int:
        """The epoch of the current registration, -1 before the first."""
        return -1 if self._registration is None else self._registration.broker_epoch

    async def ready(self) -> None:
        """Returns when the broker is ready. Raises StartRefused when it ends before."""
        await self._lifecycle.ready()

    async def halted(self) -> str:
        """Returns the reason once the broker has halted."""
        return await asyncio.shield(self._lifecycle.ended)

    def address(self, listener: str) -> tuple[str, int]:
        """(host, port) that a listener is bound to. KeyError before it is open."""
        return self._addresses[listener]

    def status(self) -> dict[str, Any]:
        """See `server.status`."""
        return broker_status(
            self.broker_id,
            self.cluster_id,
            self.state,
            self._session,
            self.log_manager,
            self.replica_manager,
            self._core.tls.status(),
        )

    async def start(self) -> None:
        """Starts the broker; `ready` returns when it serves.

        Raises:
            StartRefused: another process or broker holds what it needs, a directory is not its own or cannot be read,
                an address is taken, or anything else. Everything it holds is given back.
        """
        try:
            await self._lifecycle.start(self._start_steps())
        except Exception as error:
            if not isinstance(error, _FORESEEN):
                self._logger.exception("the start failed")
            reason = start_refusal(error)
            if self.state is not BrokerState.STOPPED:
                self._fail(Failure.START_STEP, reason)
            raise StartRefused(reason) from error

    async def stop(self, *, moves_leadership: bool = True) -> None:
        """Stops in order: no promise is broken and nothing has to be recovered at the next start.

        Without `moves_leadership` other brokers notice when the session ends: for a cluster that stops as a whole. When
        the last directory fails meanwhile, or ottla.shutdown.timeout.ms is over, `state` is "halted", not "stopped".
        """
        if self.state is BrokerState.STOPPING or self._lifecycle.has_ended:
            return
        moves_leadership = moves_leadership and self.is_ready
        self._lifecycle.enter(BrokerState.STOPPING)
        clock = self._ports.clock
        limit_ms: int = self.config.ottla_shutdown_timeout_ms
        clock.call_later(limit_ms / 1000, self._on_overdue_stop, limit_ms)
        stopping = clock.spawn(self._lifecycle.stop(self._stop_steps(moves_leadership)), name="stop")
        await asyncio.wait([stopping, self._lifecycle.ended], return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and not stopping.cancelled():
            stopping.result()

    def skip_to_flush(self) -> None:
        """A stop that moves leadership, or still serves after that, skips to the flush. Idempotent."""
        if not self._skips_to_flush.done():
            self._skips_to_flush.set_result(None)

    def halt(self, reason: str) -> None:
        """Ends the broker as a crash would. Idempotent."""
        if self._lifecycle.has_ended:
            return
        self._logger.critical("halting: %s", reason)
        self._end(BrokerState.HALTED, reason)

    def _fail(self, failure: Failure, reason: str) -> None:
        """Does what `lifecycle` says about a failure."""
        action = FAILURE_ACTIONS[failure]
        if action is FailureAction.REFUSE:
            self._end(BrokerState.REFUSED, reason)
        elif action is FailureAction.HALT:
            self.halt(reason)
        else:
            self._logger.error("%s", reason)

    def _end(self, state: BrokerState, reason: str) -> None:
        """Gives everything back at once; nothing is flushed here."""
        self._lifecycle.end(state, reason)
        self._ports.network.close()
        self._ports.workers.close()
        if state is not BrokerState.STOPPED:
            self._ports.coordination.abandon()
        for disk in self.log_manager.access.disks:
            disk.close()
        self._ports.clock.cancel_all()

    # The steps of a start

    def _start_steps(self) -> tuple[LifecycleStep, ...]:
        starting, recovering, joining = BrokerState.STARTING, BrokerState.RECOVERING, BrokerState.JOINING
        has_authorizer = bool(self.config.authorizer_class_name)
        has_builder = not has_default_principals(self.config.principal_builder_class)
        tokens = self._tokens
        return (
            LifecycleStep(starting, "lock and read the log directories", self._inspect_log_dirs),
            LifecycleStep(starting, "open the session with the coordination store", self._open_session),
            LifecycleStep(starting, "agree on cluster and broker id", self._identify),
            LifecycleStep(starting, "claim the log directories for this broker", self._claim_log_dirs),
            LifecycleStep(starting, "read the stored configuration", self._read_stored_config),
            LifecycleStep(starting, "read keys and certificates", self._core.tls.start),
            LifecycleStep(starting, "read keytabs, and fetch the keys of tokens", self._core.sasl.start),
            *(() if tokens is None else (LifecycleStep(starting, "read the delegation tokens", tokens.start),)),
            *((LifecycleStep(starting, "start the authorizer", self._start_authorizer),) if has_authorizer else ()),
            *((LifecycleStep(starting, "load the principal builder", self._load_builder),) if has_builder else ()),
            LifecycleStep(recovering, "load the logs", self._load_logs),
            LifecycleStep(joining, "make the parts that serve", self._make_serving),
            LifecycleStep(joining, "open the listeners", self._open_listeners),
            LifecycleStep(joining, "register", self._register),
            LifecycleStep(joining, "stand for controller", self._stand_for_controller),
        )

    async def _inspect_log_dirs(self) -> None:
        self._watch_loop_lag(self._ports.clock.monotonic())
        self._directories = await self.log_manager.inspect()

    async def _open_session(self) -> None:
        coordination = self._ports.coordination
        coordination.add_session_listener(self._session.on_event)
        coordination.add_session_listener(self._on_session_event)
        await coordination.start(await kept_session(self._directories[0].disk))

    async def _identify(self) -> None:
        coordination, config = self._ports.coordination, self.config
        await make_persistent_paths(coordination)
        self.cluster_id = await cluster_id(coordination, self._ports.clock)
        await self._fleet_features.start()
        if self.broker_id < 0:
            metas = [directory.meta for directory in self._directories]
            known = [meta.broker_id for meta in metas if meta is not None and meta.broker_id is not None]
            self.broker_id = (
                known[0] if known else await generated_broker_id(coordination, config.reserved_broker_max_id)
            )
        self._log_fields["broker"] = self.broker_id  # for every part that has the logger already, too

    async def _claim_log_dirs(self) -> None:
        await self.log_manager.claim(self.broker_id, self.cluster_id)
        registry = self.log_manager.registry
        await RegistryZnode(self.broker_id, self._ports.coordination, registry).recall()
        await self._failed_directories.recall()

    async def _read_stored_config(self) -> None:
        self._dynamic_config = DynamicConfig(
            self.config,
            self.broker_id,
            self._ports.coordination,
            self._ports.clock,
            self._on_topic_config,
            self._logger,
            self._on_quotas,
        )
        await self._dynamic_config.start()
        await self._client_metrics_configs.start()
        self._on_config_change(())
        self.config.on_change(self._on_config_change)

    async def _start_authorizer(self) -> None:
        started = await start_authorizer(
            AuthorizerContext(
                self.broker_id,
                self.cluster_id,
                self.config,
                self._ports.coordination,
                self._ports.clock,
                self._logger,
            )
        )
        self._core.server.authorizer, self._acls = started

    async def _load_builder(self) -> None:
        self._core.server.principal_builder = load_principal_builder(self.config, self._logger)

    async def _load_logs(self) -> None:
        try:
            await self.log_manager.load()
        except OSError:
            await self._record_failed(self.log_manager.offline_paths)
            raise
        await self._record_failed(self.log_manager.offline_paths)
        self.log_manager.start()
        for one in self.log_manager.states:
            if not one.is_live:
                self._logger.error("starting without log directory %s: %s", one.path, one.reason)
        self._core.log_cleaner.start()

    async def _make_serving(self) -> None:
        assert self._dynamic_config is not None
        parts = make_serving(
            BrokerContext(
                self.broker_id,
                self.cluster_id,
                self.config,
                self._ports,
                self._connector_to,
                self.metrics,
                self._logger,
            ),
            self._core,
            StoredState(
                self._dynamic_config, self._fleet_features, self._client_metrics_configs, self._acls, self._tokens
            ),
            on_metadata=self._on_metadata,
            broker_epoch=lambda: self.broker_epoch,
            report_directories=self._report_directories,
        )
        self._phase = Serving(self.config, parts)
        await parts.partition_counts.start()
        self._on_config_change(())
        self._core.dispatcher.services = parts.services
        self._core.dispatcher.warm()

    async def _open_listeners(self) -> None:
        for endpoint in self.config.listeners.bound:
            port = await self._core.server.bind(endpoint)
            self._addresses[endpoint.listener] = (endpoint.host, port)
            self._logger.info("listener %s on %s:%d", endpoint.listener, endpoint.host or "*", port)

    async def _register(self) -> None:
        config, coordination = self.config, self._ports.coordination
        registration = self._registration = Registration(
            self.broker_id,
            config,
            self._ports,
            self.log_manager.on_first_live,
            await advertised_endpoints(config.listeners.advertised, self._addresses, self._ports.network.own_name),
            self._logger,
            max_partition_replicas(config.ottla_max_partition_replicas, self._ports.open_files),
        )
        markers = self.log_manager.markers
        is_power_loss_suspected = markers.is_power_loss_suspected or markers.has_new_directory
        if is_power_loss_suspected:
            registration.before = self._wait_until_others_lead
        await registration.register()
        if is_power_loss_suspected:
            await no_longer_lost(coordination, self.broker_id)
        await markers.broker_registered()
        self._serving.replica_manager.clear_power_loss()

    async def _wait_until_others_lead(self) -> None:
        """Power was lost, or a directory was empty: see `log_dir_recovery.power_loss`."""
        coordination, manager = self._ports.coordination, self.log_manager
        logs = [log.state.topic_partition for log in manager.logs]
        lost = list(self._serving.replica_manager.replicas.power_loss_suspected)
        absent: list[TopicPartition] = []
        if manager.markers.has_new_directory:
            known = {*logs, *manager.offline_logs}
            absent = [tp for tp in await assigned(coordination, self.broker_id) if tp not in known]
        await until_out_of_sync(
            coordination,
            self._ports.clock,
            self.broker_id,
            PossibleLoss(
                lost,
                absent,
                is_empty=not logs,
                has_others=len(lost) < len(logs) or manager.markers.may_have_kept_all,
            ),
            3 * self.config.zookeeper_session_timeout_ms / 1000 + _LONGEST_WAIT_FOR_CONTROLLER_S,
            self._logger,
        )

    async def _stand_for_controller(self) -> None:
        await self._serving.controller.start()

    # The steps of a stop

    def _stop_steps(self, moves_leadership: bool) -> tuple[LifecycleStep, ...]:
        stopping = BrokerState.STOPPING
        first = LifecycleStep(stopping, "move leadership and serve on", self._move_leadership)
        return (
            *((first,) if moves_leadership else ()),
            LifecycleStep(stopping, "stop the parts that serve", self._stop_serving),
            LifecycleStep(stopping, "flush and mark the log directories clean", self._close_log_dirs),
            LifecycleStep(stopping, "forget the session", self._forget_session),
            LifecycleStep(stopping, "resign as controller, end the session", self._leave_cluster),
        )

    async def _move_leadership(self) -> None:
        """A controlled shutdown; clients are served on for ottla.shutdown.serve.ms, so that they learn the leaders."""
        clock = self._ports.clock
        serve_ms = min(self.config.ottla_shutdown_serve_ms, self.config.ottla_shutdown_timeout_ms // 2)
        closes_at = clock.monotonic() + serve_ms / 1000
        await self._shut_down_controlled()
        ends: list[asyncio.Future[Any]] = [self._skips_to_flush, self._lifecycle.ended]
        left_s = max(0.0, closes_at - clock.monotonic())
        await asyncio.wait(ends, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    async def _shut_down_controlled(self) -> None:
        """Takes at most half of the time that the stop has."""
        parts = self._serving.parts
        if not self.config.controlled_shutdown_enable:
            return
        if all(broker == self.broker_id for broker in parts.metadata.brokers):
            return
        parts.replica_manager.begin_controlled_shutdown()
        moving = self._ports.clock.spawn(
            request_controlled_shutdown(
                parts.controller_client,
                self._ports.clock,
                self.config,
                self.broker_id,
                self.broker_epoch,
                self._logger,
            ),
            name="controlled shutdown",
        )
        limit_s = self.config.ottla_shutdown_timeout_ms / 2000
        await asyncio.wait([moving, self._skips_to_flush], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not moving.done():
            self._logger.warning(
                "the controlled shutdown is cancelled; what this broker leads has no leader for a while"
            )
            moving.cancel()

    async def _stop_serving(self) -> None:
        await self._phase.stop_serving()
        await self._core.log_cleaner.close()

    async def _close_log_dirs(self) -> None:
        await self.log_manager.close(self.broker_epoch)
        await self._record_failed(self.log_manager.access.failed_at_close)
        if self._halting is not None:
            await asyncio.wait([self._halting])

    async def _forget_session(self) -> None:
        if self._registration is not None:
            await self._registration.forget_session()

    async def _leave_cluster(self) -> None:
        await self._phase.stop_controller()
        await self._ports.coordination.close()
        self._core.server.close()
        self._end(BrokerState.STOPPED, "stopped")

    def _on_overdue_stop(self, limit_ms: int) -> None:
        if self.state is BrokerState.STOPPING:
            self._fail(
                Failure.STOP_OVERDUE,
                f"the stop takes longer than ottla.shutdown.timeout.ms={limit_ms}; what is not flushed is recovered at "
                "the next start",
            )

    # Events

    def _watch_loop_lag(self, due: float) -> None:
        clock = self._ports.clock
        now = clock.monotonic()
        self._loop_lag.observe(max(0.0, now - due))
        clock.call_later(_LAG_CHECK_S, self._watch_loop_lag, now + _LAG_CHECK_S)

    def _on_metadata(self) -> None:
        if self._phase.has_metadata and self.state is BrokerState.JOINING:
            self._lifecycle.enter(BrokerState.RUNNING)
            self._logger.info("ready")
            self._phase.metadata_came()

    def _log_config(self, topic: str) -> LogConfig:
        if self._dynamic_config is None:
            values = self.config.topic_config({})
        else:
            values = self._dynamic_config.topic_config(topic)
        return LogConfig(
            values,
            validates_records=self.config.ottla_validate_records == "always",
            max_decompressed_bytes=self.config.ottla_batch_max_decompressed_bytes,
            verifies_transactions=self.config.transaction_partition_verification_enable,
        )

    def _on_config_change(self, changed: tuple[str, ...]) -> None:
        """Applies the keys that take effect while the broker runs."""
        config = self.config
        self.log_manager.cordoned = config.cordoned_log_dirs
        copying = self.log_manager.future_replicas.copying
        copying.max_bytes_per_second = config.replica_alter_log_dirs_io_max_bytes_per_second
        self.log_manager.background_tasks.producer_id_expiration_ms = config.producer_id_expiration_ms
        if "transaction.partition.verification.enable" in changed:
            self.log_manager.reconfigure_all()
        self._phase.config_changed(changed, is_ready=self.is_ready)

    def _on_topic_config(self, topic: str, config: TopicConfig) -> None:
        self.log_manager.reconfigure(topic)
        self._phase.topic_config_changed(topic, config)

    def _connector_to(self, listener: str) -> Connector:
        """What connects to a listener of other brokers: over TLS, and logging in, where the listener wants that."""
        return self._core.sasl.connector_to(self._core.tls.connector_to(self._ports.network, listener), listener)

    def _on_quotas(self, entity: QuotaEntity, values: Mapping[str, str]) -> None:
        """Puts the quotas of a user, a client id or an address in force, and the credentials of a user."""
        self._scram_credentials.on_stored(entity, values)
        if entity.ip is None:
            self._core.throttling.set_quotas(entity, values)
        else:
            rate = parse_bounds(entity, values)[0].get(CONNECTION_CREATION_RATE)
            host = None if entity.ip is DEFAULT else str(entity.ip)
            self._core.server.set_address_quota(host, None if rate is None else int(rate))

    def _on_session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._logger.warning(
                "the session with the coordination store expired; the others count this broker as dead"
            )
        elif event is SessionEvent.SUSPENDED:
            self._logger.warning(
                "the coordination store does not answer; clients are served on, leaders stay as they are"
            )
        elif event is SessionEvent.CONNECTED:
            self._logger.info("connected to the coordination store, session 0x%x", self._ports.coordination.session_id)
            if self._registration is not None and self._lifecycle.is_serving:
                self._ports.clock.spawn(self._register_again(self._registration), name="register again")

    async def _register_again(self, registration: Registration) -> None:
        try:
            await refuse_other_cluster(self._ports.coordination, self.cluster_id)
            await registration.register()
            self._phase.registered_again()
        except RegistrationRefused as error:
            self._fail(Failure.REGISTRATION_REFUSED, str(error))
        except (ConnectionLoss, SessionExpired):
            pass  # CONNECTED follows, and with it the next try

    def _on_directory_failure(self, path: str, error: OSError) -> None:
        if self._lifecycle.has_ended:
            return
        if not self.log_manager.live_paths:
            self._halting = self._ports.clock.spawn(self._record_and_halt(path, error), name="halt")
            return
        self._ports.clock.spawn(self._record_failed([path]), name=f"record the failure of {path}")
        self._fail(Failure.LOG_DIR, f"log directory {path} failed: {error}; it is offline, the others are used")
        self._phase.directory_failed(is_ready=self.is_ready)

    async def _record_and_halt(self, path: str, error: OSError) -> None:
        await self._record_failed([path])
        self._fail(Failure.LAST_LOG_DIR, f"log directory {path} failed: {error}; no log directory is left")

    async def _record_failed(self, paths: Collection[str]) -> None:
        """Returns once the coordination store has it that these directories have failed, or after _RECORD_FAILURE_S."""
        if paths:
            recording = self._ports.clock.spawn(self._failed_directories.record(paths), name="record failures")
            await asyncio.wait([recording], timeout=_RECORD_FAILURE_S)

    def _on_directory_change(self, path: str) -> None:
        """Full, or online again: which replicas may lead has changed."""
        self._report_directories()

    def _report_directories(self) -> None:
        self._phase.directories_changed(is_serving=self._lifecycle.is_serving)

    def _on_directory_reopened(self, path: str, logs: Mapping[TopicPartition, bool]) -> None:
        self._phase.directory_reopened(path, logs)

    def _on_task_failure(self, name: str, error: BaseException) -> None:
        if isinstance(error, KafkaError):
            # Whoever waits for the task answers with it: a directory that has failed, records that cannot be read.
            self._logger.warning("%s: %s (%s)", name, error.message, error.code.name)
            return
        self._logger.error("task %r ended with an error", name, exc_info=error)
