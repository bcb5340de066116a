"""A broker: the composition root. Everything is made here, once, and handed its parts; nothing looks anything up.

The life of a broker, each step visible as `state`:

    starting     lock the log directories, open the coordination session, agree on cluster and broker id
    recovering   load the logs; those not closed cleanly are scanned
    joining      open the listeners, register, stand for controller, wait for metadata
    running      ready
    stopping     hand leadership over, flush, mark the directories clean, leave office, end the session
    stopped, halted, refused

A halt (no log directory is left, a simulated or asked-for crash) stops this broker and never the process: its timers,
tasks, connections and files end, nothing is flushed, its session expires by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from ottla_broker.config import BrokerConfig, Endpoint, TopicConfig
from ottla_broker.controller.controller import Controller
from ottla_broker.controller.decisions.capacity import max_partition_replicas
from ottla_broker.groups.coordinator import GroupCoordinator
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.metrics import Metrics
from ottla_broker.ports import Ports
from ottla_broker.ports.coordination import ConnectionLoss, CoordinationError, SessionEvent, SessionExpired
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.append_queue import AppendQueues
from ottla_broker.replication.fetch.engine import FetchEngine
from ottla_broker.replication.fetch.values import FetchEnvironment
from ottla_broker.replication.local_replicas.replica_manager import ReplicaManager
from ottla_broker.replication.replica_selector import chooses_by_rack
from ottla_broker.server.assembly.group_log import ReplicatedGroupLog, follow_group_leadership
from ottla_broker.server.context import Services
from ottla_broker.server.directory_events import DirectoryEvents, register_metrics
from ottla_broker.server.edge.dispatch import Dispatcher
from ottla_broker.server.edge.listeners import SocketServer
from ottla_broker.server.leaving import hand_over
from ottla_broker.server.peers.broker_client import BrokerClient
from ottla_broker.server.peers.controller_channels import NetworkControllerChannels
from ottla_broker.server.peers.controller_client import ControllerClient
from ottla_broker.server.peers.dynamic_config import DynamicConfig
from ottla_broker.server.peers.finalized_features import refuse_unknown_features
from ottla_broker.server.peers.producer_ids import ProducerIds
from ottla_broker.server.peers.registration import (
    Registration,
    RegistrationRefused,
    cluster_id,
    generated_broker_id,
    kept_session,
    make_persistent_paths,
    refuse_other_cluster,
)
from ottla_broker.server.peers.session_state import SessionState
from ottla_broker.server.peers.topic_creation import CONSUMER_OFFSETS, TopicCreation
from ottla_broker.server.power_loss import assigned, no_longer_lost, until_out_of_sync
from ottla_broker.server.readmission import FORGOTTEN, Readmission
from ottla_broker.server.recreating import Recreating
from ottla_broker.server.remade_replicas import RemadeReplicas
from ottla_broker.storage.cleaner.cleaner import CleanerSettings, LogCleaner
from ottla_broker.storage.files.checkpoints import CheckpointError
from ottla_broker.storage.log.config import LogConfig
from ottla_broker.storage.log_dirs.log_directory import LogDirectoryError
from ottla_broker.storage.log_dirs.log_manager import LogManager
from ottla_broker.storage.log_dirs.settings import LogManagerSettings

_LAG_CHECK_S = 1.0
_LONGEST_DOUBT_S = 10.0
"""After a loss of power a registration waits for the controller for so long, and three session timeouts."""
_FORESEEN = (LogDirectoryError, CheckpointError, RegistrationRefused, OSError, CoordinationError)
"""What keeps a broker from starting and needs no traceback."""


class StartRefused(Exception):
    """The broker cannot start; the message says what stands against it and what to do."""


class Broker:
    """One broker.

    Args:
        config: its configuration; `broker.id` may be -1 (then the coordination store gives one).
        ports: its edges. They are the broker's own: it closes them.
        logger: where it reports; by default "ottla" with the broker's id.
    """

    def __init__(self, config: BrokerConfig, ports: Ports, *, logger: logging.LoggerAdapter[Any] | None = None) -> None:
        self.config = config
        self.metrics = Metrics()
        self.state = "starting"
        self.broker_id = config.broker_id
        self.cluster_id = ""
        self._ports = ports
        self._logger = logger or logging.LoggerAdapter(logging.getLogger("ottla"), {"broker": self.broker_id})
        self._session = SessionState(ports.clock)
        self._halted: asyncio.Future[str] = ports.clock.create_future()
        self._settled = asyncio.Event()  # ready, or ended
        self._hurry: asyncio.Future[None] = ports.clock.create_future()
        ports.clock.on_task_failure = self._on_task_failure
        self._dispatcher = Dispatcher(ports.clock)
        self._server = SocketServer(
            ports.network,
            ports.clock,
            config,
            self._dispatcher,
            self.metrics,
            config.listeners.inter_broker,
            config.listeners.control_plane,
        )
        self.log_manager = LogManager(
            ports.disks,
            ports.clock,
            ports.workers,
            _log_manager_settings(config, ports.open_files),
            self._log_config,
            on_directory_failure=self._on_directory_failure,
            on_directory_change=self._on_directory_change,
            on_directory_reopened=self._on_directory_return,
            on_notice=lambda message: self._logger.warning("%s", message),
        )
        register_metrics(self.metrics, self.log_manager.states)
        self.log_cleaner = LogCleaner(
            self.log_manager,
            ports.clock,
            ports.workers,
            lambda: _cleaner_settings(config),
            self.metrics,
            on_notice=lambda message: self._logger.warning("%s", message),
        )
        self._loop_lag = self.metrics.histogram(
            "ottla_loop_lag_seconds", "How late a timer of this broker's event loop fires, looked at once a second."
        )
        self._addresses: dict[str, tuple[str, int]] = {}
        self._registration: Registration | None = None
        self._controller: Controller | None = None
        self._replica_manager: ReplicaManager | None = None
        self._group_coordinator: GroupCoordinator | None = None
        self._controller_client: ControllerClient | None = None
        self._dynamic_config: DynamicConfig | None = None
        self._directory_events: DirectoryEvents | None = None
        self._readmission: Readmission | None = None
        self._recreating: Recreating | None = None

    # What others ask

    @property
    def is_ready(self) -> bool:
        """Recovered, listening, registered, and with metadata."""
        return self.state == "running"

    async def ready(self) -> None:
        """Returns when the broker is ready. Raises StartRefused when it halts before."""
        await self._settled.wait()
        if self._halted.done():
            raise StartRefused(self._halted.result())

    async def halted(self) -> str:
        """Returns the reason once the broker has halted."""
        return await asyncio.shield(self._halted)

    def address(self, listener: str) -> tuple[str, int]:
        """(host, port) that a listener is bound to. KeyError before it is open."""
        return self._addresses[listener]

    def status(self) -> dict[str, Any]:
        """State, session with the coordination store, recovery progress and directories, as plain values.

        `since_ms` is the wall clock of the last change of state, `free_bytes` as last asked; -1 where there is none.
        """
        progress = self.log_manager.progress
        return {
            "broker": self.broker_id,
            "cluster": self.cluster_id,
            "state": self.state,
            "ready": self.is_ready,
            "session": self._session.status(),
            "recovery": {
                "loaded": progress.loaded,
                "total": progress.total,
                "scanned_bytes": progress.scanned_bytes,
                "tail_bytes": progress.tail_bytes,
                "current": list(progress.current),
                "log_dirs": {
                    path: {"scanned_bytes": one.scanned_bytes, "tail_bytes": one.tail_bytes}
                    for path, one in progress.directories.items()
                },
            },
            "log_dirs": [
                {
                    "path": one.path,
                    "state": one.state.value,
                    "reason": one.reason,
                    "since_ms": one.since_ms,
                    "free_bytes": one.free_bytes,
                    "directory_id": one.directory_id,
                }
                for one in self.log_manager.states
            ],
            "recreation": {} if self._replica_manager is None else self._replica_manager.recreations.status(),
        }

    # Life

    async def start(self) -> None:
        """Starts the broker; `ready` tells when it serves.

        Raises:
            StartRefused: another process or broker holds what it needs, a directory is not its own or cannot be
                understood, an address is taken, or anything else. Everything it took is given back.
        """
        try:
            await self._start()
        except Exception as error:
            if not isinstance(error, _FORESEEN):
                self._logger.exception("the start failed")
            reason = _start_refusal(error)
            self._end("refused", reason)
            raise StartRefused(reason) from error

    async def stop(self, *, hands_over: bool = True) -> None:
        """Stops in order: no promise is broken and nothing has to be recovered at the next start.

        Without `hands_over` other brokers learn of it when the session ends: for a fleet that stops as a whole. When
        the last directory fails meanwhile, or ottla.shutdown.timeout.ms is over, `state` is "halted", not "stopped".
        """
        if self.state in ("stopping", "stopped", "halted", "refused"):
            return
        hands_over = hands_over and self.is_ready
        self.state = "stopping"
        clock = self._ports.clock
        limit_ms: int = self.config["ottla.shutdown.timeout.ms"]
        clock.call_later(limit_ms / 1000, self._on_overdue_stop, limit_ms)
        stopping = clock.spawn(self._stop(hands_over), name="stop")
        await asyncio.wait([stopping, self._halted], return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and not stopping.cancelled():
            stopping.result()

    def hurry(self) -> None:
        """A stop that hands leadership over, or still serves after that, goes on with the flush at once. Idempotent."""
        if not self._hurry.done():
            self._hurry.set_result(None)

    async def _stop(self, hands_over: bool) -> None:
        if hands_over:
            clock = self._ports.clock
            serve_ms = min(self.config["ottla.shutdown.serve.ms"], self.config["ottla.shutdown.timeout.ms"] // 2)
            closes_at = clock.monotonic() + serve_ms / 1000
            await self._hand_over()
            ends: list[asyncio.Future[Any]] = [self._hurry, self._halted]
            left_s = max(0.0, closes_at - clock.monotonic())
            await asyncio.wait(ends, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if self._controller is not None:
            # In office it stays there: a flush may take minutes, and the fleet is not to be without a controller.
            self._controller.retire()
        if self._group_coordinator is not None:
            self._group_coordinator.close()
        if self._replica_manager is not None:
            await self._replica_manager.stop()
        await self.log_cleaner.close()
        await self.log_manager.close(self._broker_epoch())
        if self._registration is not None and self.state == "stopping":
            await self._registration.forget_session()
        if self.state != "stopping":  # halted by a directory that could not be closed: everything is given back
            return
        if self._controller is not None:
            await self._controller.stop()
        await self._ports.coordination.close()
        self._server.close()
        self._end("stopped", "stopped")

    async def _hand_over(self) -> None:
        """A controlled shutdown, for at most half of the time that the stop has."""
        controller_client = self._controller_client
        if controller_client is None or not self.config["controlled.shutdown.enable"] or not self._has_company():
            return
        moving = self._ports.clock.spawn(
            hand_over(
                controller_client, self._ports.clock, self.config, self.broker_id, self._broker_epoch(), self._logger
            ),
            name="controlled shutdown",
        )
        limit_s = self.config["ottla.shutdown.timeout.ms"] / 2000
        await asyncio.wait([moving, self._hurry], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not moving.done():
            self._logger.warning(
                "the controlled shutdown is given up; what this broker leads has no leader for a while"
            )
            moving.cancel()

    def _has_company(self) -> bool:
        services = self._dispatcher.services
        return services is not None and any(broker != self.broker_id for broker in services.metadata.brokers)

    def _on_overdue_stop(self, limit_ms: int) -> None:
        if self.state == "stopping":
            self.halt(
                f"the stop takes longer than ottla.shutdown.timeout.ms={limit_ms}; what is not flushed is recovered at "
                "the next start"
            )

    def halt(self, reason: str) -> None:
        """Ends the broker as a crash would. Idempotent."""
        if self.state in ("stopped", "halted", "refused"):
            return
        self._logger.critical("halting: %s", reason)
        self._end("halted", reason)

    # Starting

    async def _start(self) -> None:
        clock, coordination, config = self._ports.clock, self._ports.coordination, self.config
        self._watch_loop_lag(clock.monotonic())
        directories = await self.log_manager.inspect()
        disk = directories[0].disk
        coordination.add_session_listener(self._session.on_event)
        coordination.add_session_listener(self._on_session_event)
        await coordination.start(await kept_session(disk))
        await make_persistent_paths(coordination)
        self.cluster_id = await cluster_id(coordination, clock)
        await refuse_unknown_features(coordination)
        if self.broker_id < 0:
            known = [d.meta.broker_id for d in directories if d.meta is not None and d.meta.broker_id is not None]
            self.broker_id = (
                known[0] if known else await generated_broker_id(coordination, config["reserved.broker.max.id"])
            )
        self._logger = logging.LoggerAdapter(self._logger.logger, {"broker": self.broker_id})
        await self.log_manager.claim(self.broker_id, self.cluster_id)
        await RemadeReplicas(self.broker_id, coordination, self.log_manager.registry).recall()
        dynamic_config = self._dynamic_config = DynamicConfig(
            config, self.broker_id, coordination, clock, self._on_topic_config, self._logger
        )
        await dynamic_config.start()
        self._apply_to_log_manager(())
        config.on_change(self._apply_to_log_manager)
        self.state = "recovering"
        await self.log_manager.load()
        self.log_manager.start()
        for one in self.log_manager.states:
            if not one.is_live:
                self._logger.error("starting without log directory %s: %s", one.path, one.reason)
        self._directory_events = DirectoryEvents(self.broker_id, coordination, clock, self._logger)
        self.log_cleaner.start()
        self.state = "joining"
        services = await self._make_services(dynamic_config)
        self._dispatcher.services = services
        self._dispatcher.warm()
        await self._open_listeners()
        self._registration = Registration(
            self.broker_id,
            config,
            coordination,
            self._ports.network,
            clock,
            self.log_manager.on_first_live,
            await self._advertised(),
            config.listeners.inter_broker,
            self._logger,
            max_partition_replicas(config["ottla.max.partition.replicas"], self._ports.open_files),
        )
        is_doubtful = self.log_manager.markers.is_power_loss_suspected or self.log_manager.markers.has_new_directory
        if is_doubtful:
            self._registration.before = self._let_others_lead
        await self._registration.register()
        if is_doubtful:
            await no_longer_lost(coordination, self.broker_id)
        await self.log_manager.markers.broker_registered()
        await services.controller.start()

    async def _let_others_lead(self) -> None:
        """Power was lost, or a directory was empty: see `power_loss`."""
        coordination, manager = self._ports.coordination, self.log_manager
        doubtful = [directory.path for directory in manager.directories if directory.is_power_loss_suspected]
        logs = [log.topic_partition for log in manager.logs]
        lost = [log.topic_partition for log in manager.logs if log.disk.path in doubtful]
        absent: list[TopicPartition] = []
        if manager.markers.has_new_directory:
            known = {*logs, *manager.offline_logs}
            absent = [tp for tp in await assigned(coordination, self.broker_id) if tp not in known]
        await until_out_of_sync(
            coordination,
            self._ports.clock,
            self.broker_id,
            lost,
            3 * self.config["zookeeper.session.timeout.ms"] / 1000 + _LONGEST_DOUBT_S,
            self._logger,
            absent=absent,
            is_empty=not logs,
            has_others=len(lost) < len(logs),
        )

    async def _make_services(self, dynamic_config: DynamicConfig) -> Services:
        clock, coordination, config = self._ports.clock, self._ports.coordination, self.config
        listener = config.listeners.inter_broker
        metadata = MetadataCache(self.broker_id)
        metadata.add_listener(lambda: self._on_metadata(metadata))
        controller_client = self._controller_client = ControllerClient(
            self.broker_id,
            self._ports.network,
            clock,
            metadata,
            listener,
            config["controller.socket.timeout.ms"],
        )
        replica_manager = self._replica_manager = ReplicaManager(
            broker_id=self.broker_id,
            config=config,
            clock=clock,
            log_manager=self.log_manager,
            metadata=metadata,
            metrics=self.metrics,
            broker_epoch=self._broker_epoch,
            send_alter_partition=lambda version, request: controller_client.ask(
                ApiKey.ALTER_PARTITION, version, request
            ),
            connect=lambda host, port: BrokerClient(
                self._ports.network,
                clock,
                host,
                port,
                client_id=f"broker-{self.broker_id}-fetcher",
                connect_timeout_s=config["replica.socket.timeout.ms"] / 1000,
                request_timeout_s=config["replica.socket.timeout.ms"] / 1000,
            ),
            listener=listener,
            report_directories=self._report_directories,
        )
        replica_manager.start()
        assert self._directory_events is not None
        tell = self._directory_events.report
        self._readmission = Readmission(
            self.broker_id, coordination, clock, replica_manager, dynamic_config, tell, self._logger
        )
        self._recreating = Recreating(self.broker_id, coordination, clock, replica_manager, tell, self._logger)
        self._apply_to_log_manager(())
        group_coordinator = self._group_coordinator = GroupCoordinator(
            clock=clock,
            log=ReplicatedGroupLog(replica_manager, clock, config),
            metrics=self.metrics,
            config=config,
            partition_count=lambda: metadata.partition_count(CONSUMER_OFFSETS),
        )
        follow_group_leadership(replica_manager, group_coordinator)
        group_coordinator.start()
        channels = NetworkControllerChannels(
            self.broker_id,
            self._ports.network,
            clock,
            listener,
            config["controller.socket.timeout.ms"],
            self.metrics,
            self._logger,
            config.listeners.control_plane,
        )
        controller = self._controller = Controller(
            broker_id=self.broker_id,
            config=config,
            coordination=coordination,
            clock=clock,
            channels=channels,
            listener=listener,
            metrics=self.metrics,
        )
        creation = TopicCreation(config, clock, controller_client, self._logger)
        return Services(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            config=config,
            clock=clock,
            coordination=coordination,
            metrics=self.metrics,
            metadata=metadata,
            replica_manager=replica_manager,
            append_queues=AppendQueues(self._ports.workers, clock, self.metrics),
            fetch_engine=FetchEngine(
                FetchEnvironment(replica_manager, metadata, clock, self._ports.workers, self.metrics),
                config["max.incremental.fetch.session.cache.slots"],
                clock.random.randrange,
                chooses_by_rack=chooses_by_rack(config["replica.selector.class"]),
            ),
            workers=self._ports.workers,
            controller=controller,
            group_coordinator=group_coordinator,
            producer_ids=ProducerIds(self.broker_id, coordination),
            dynamic_config=dynamic_config,
            auto_create=creation.create,
            auto_create_internal=creation.create_internal,
            listed_apis=self._dispatcher.listed_apis,
        )

    async def _open_listeners(self) -> None:
        for endpoint in self.config.listeners.bound:
            port = await self._server.bind(endpoint)
            self._addresses[endpoint.name] = (endpoint.host, port)
            self._logger.info("listener %s on %s:%d", endpoint.name, endpoint.host or "*", port)

    async def _advertised(self) -> tuple[Endpoint, ...]:
        """The advertised endpoints; port 0 stands for the one that was bound, no host for this machine's own name."""
        found = []
        for endpoint in self.config.listeners.advertised:
            port = endpoint.port or self._addresses[endpoint.name][1]
            host = endpoint.host or await self._own_name()
            found.append(Endpoint(endpoint.name, host, port, endpoint.security_protocol))
        return tuple(found)

    async def _own_name(self) -> str:
        try:
            return await self._ports.network.own_name()
        except OSError as error:
            raise RegistrationRefused(
                "advertised.listeners: no host is given, and the machine's own name cannot be told to clients "
                f"({error.strerror or error}); set a host there, or in listeners"
            ) from error

    # Events

    @property
    def _is_serving(self) -> bool:
        return self.state in ("joining", "running")

    def _watch_loop_lag(self, due: float) -> None:
        clock = self._ports.clock
        now = clock.monotonic()
        self._loop_lag.observe(max(0.0, now - due))
        clock.call_later(_LAG_CHECK_S, self._watch_loop_lag, now + _LAG_CHECK_S)

    def _broker_epoch(self) -> int:
        return -1 if self._registration is None else self._registration.broker_epoch

    def _on_metadata(self, metadata: MetadataCache) -> None:
        if metadata.is_ready and self.state == "joining":
            self.state = "running"
            self._settled.set()
            self._logger.info("ready")
            if self._readmission is not None:
                self._readmission.forget()
            if self._recreating is not None:
                self._recreating.start()

    def _log_config(self, topic: str) -> LogConfig:
        if self._dynamic_config is None:
            values = self.config.topic_config({})
        else:
            values = self._dynamic_config.topic_config(topic)
        return LogConfig(values, validates_records=self.config["ottla.validate.records"] == "always")

    def _apply_to_log_manager(self, changed: tuple[str, ...]) -> None:
        if FORGOTTEN in changed and self.is_ready and self._readmission is not None:
            self._readmission.forget()
        if "num.replica.fetchers" in changed and self._replica_manager is not None:
            self._replica_manager.resize_fetchers()
        unclean = "unclean.leader.election.enable"
        if unclean in changed and self.config[unclean] and self._controller is not None:
            self._controller.unclean_election_allowed(None)
        self.log_manager.cordoned = self.config.cordoned_log_dirs
        self.log_manager.future_replicas.copying.max_bytes_per_second = self.config[
            "replica.alter.log.dirs.io.max.bytes.per.second"
        ]
        if self._replica_manager is not None:
            rate = self.config["ottla.replica.recreate.max.bytes.per.second"]
            self._replica_manager.recreations.max_bytes_per_second = rate

    def _on_topic_config(self, topic: str, config: TopicConfig) -> None:
        self.log_manager.reconfigure(topic)
        if config["unclean.leader.election.enable"] and self._controller is not None:
            self._controller.unclean_election_allowed(topic)

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
            if self._registration is not None and self._is_serving:
                self._ports.clock.spawn(self._register_again(self._registration), name="register again")

    async def _register_again(self, registration: Registration) -> None:
        try:
            await refuse_other_cluster(self._ports.coordination, self.cluster_id)
            await registration.register()
            if self._controller is not None:
                self._controller.broker_registered()
        except RegistrationRefused as error:
            self.halt(str(error))
        except (ConnectionLoss, SessionExpired):
            pass  # CONNECTED follows, and with it the next try

    def _on_directory_failure(self, path: str, error: OSError) -> None:
        if not self.log_manager.live_paths:
            self.halt(f"log directory {path} failed: {error}; no log directory is left")
            return
        self._logger.error("log directory %s failed: %s; it is offline, the others go on", path, error)
        if self._replica_manager is not None:
            self._replica_manager.directory_failed()
        if self._directory_events is not None:
            self._directory_events.report()
        if self._recreating is not None and self.is_ready:
            self._recreating.start()

    def _on_directory_change(self, path: str) -> None:
        """Full, or online again: which replicas may lead has changed."""
        self._report_directories()

    def _report_directories(self) -> None:
        if self._directory_events is not None and self._is_serving:
            self._directory_events.report()

    def _on_directory_return(self, path: str, logs: Mapping[TopicPartition, bool]) -> None:
        if self._readmission is not None and self._directory_events is not None:
            self._readmission.add(logs)
            self._readmission.forget()
            self._directory_events.report()

    def _on_task_failure(self, name: str, error: BaseException) -> None:
        if isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            # The directory's failure has been told; what was under way on it ends with it.
            self._logger.warning("%s: %s", name, error.message)
            return
        self._logger.error("task %r ended with an error", name, exc_info=error)

    def _end(self, state: str, reason: str) -> None:
        """Gives everything back at once; nothing is flushed here."""
        self.state = state
        if not self._halted.done():
            self._halted.set_result(reason)
        self._settled.set()
        self._ports.network.close()
        self._ports.workers.close()
        if state != "stopped":
            self._ports.coordination.abandon()
        for disk in self.log_manager.access.disks:
            disk.close()
        self._ports.clock.cancel_all()


def _start_refusal(error: Exception) -> str:
    """Why a broker cannot start, naming the configuration that a person would look at."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename:
            return f"log.dirs: {error.filename}: {error.strerror}"
        return f"listeners: {error.strerror}" if error.strerror.startswith("cannot listen") else error.strerror
    return str(error) or repr(error)


def _log_manager_settings(config: BrokerConfig, open_files: int | None) -> LogManagerSettings:
    return LogManagerSettings(
        log_retention_check_interval_ms=config["log.retention.check.interval.ms"],
        log_flush_offset_checkpoint_interval_ms=config["log.flush.offset.checkpoint.interval.ms"],
        log_flush_start_offset_checkpoint_interval_ms=config["log.flush.start.offset.checkpoint.interval.ms"],
        num_recovery_threads_per_data_dir=config["num.recovery.threads.per.data.dir"],
        producer_id_expiration_ms=config["producer.id.expiration.ms"],
        producer_id_expiration_check_interval_ms=config["producer.id.expiration.check.interval.ms"],
        num_replica_alter_log_dirs_threads=config["num.replica.alter.log.dirs.threads"],
        may_format=config.formattable_log_dirs,
        reserve_bytes=config["ottla.log.dir.reserve.bytes"],
        io_timeout_ms=config["ottla.log.dir.io.timeout.ms"],
        max_partition_replicas=max_partition_replicas(config["ottla.max.partition.replicas"], open_files),
    )


def _cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    return CleanerSettings(
        enable=config["log.cleaner.enable"],
        threads=config["log.cleaner.threads"],
        backoff_ms=config["log.cleaner.backoff.ms"],
        dedupe_buffer_size=config["log.cleaner.dedupe.buffer.size"],
        io_buffer_size=config["log.cleaner.io.buffer.size"],
        io_buffer_load_factor=config["log.cleaner.io.buffer.load.factor"],
        io_max_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
    )
