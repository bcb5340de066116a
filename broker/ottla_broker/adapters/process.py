"""Prepares a process that runs brokers: event loop, limits, garbage collector, production ports."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ottla_broker.adapters import descriptors, memory
from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.disk import DirectoryDisk
from ottla_broker.adapters.divided_workers import DividedWorkers
from ottla_broker.adapters.event_loop import TakeoverLoop
from ottla_broker.adapters.http_threads import ThreadHttp
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.adapters.process_logging import zookeeper_logger
from ottla_broker.config import BrokerConfig
from ottla_broker.config.tls import zookeeper_tls_settings
from ottla_broker.config.zookeeper_security import zookeeper_login
from ottla_broker.jobs import JOBS, PROMPT_JOBS
from ottla_broker.ports import Coordination, Ports

if TYPE_CHECKING:
    from ottla_broker.coordination.zookeeper import ZooKeeperCoordination

T = TypeVar("T")

MIN_OPEN_FILES = 4096
SWITCH_INTERVAL_S = 0.0005
"""How long a lane may hold the interpreter lock while the loop waits for it."""
_COLLECTIONS = (10_000, 8, 1_000)
"""The thresholds of the garbage collector. A collection of the middle generation looks at some 80 000 objects, which
takes 10 ms; one of everything comes rarely: with 10 000 partitions it takes 200 ms, in which the loop does nothing."""

logger = logging.getLogger("ottla.process")


def run(main: Coroutine[Any, Any, T], *, writes_on_loop: bool = True) -> T:
    """Runs `main` on the loop that suits the writes: see `make_ports`, and `ottla.log.write.on.loop`.

    uvloop, where nothing is written on the loop, may be absent: then asyncio's own.
    """
    prepare()
    factory: Callable[[], asyncio.AbstractEventLoop] = TakeoverLoop
    if not writes_on_loop:
        try:
            from uvloop import new_event_loop as factory
        except ImportError:
            factory = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def prepare() -> None:
    """Raises the limit of open files to its hard limit, reserves some, and sets the interpreter's switch interval, its
    thresholds of garbage collection, and those of the C library's memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < MIN_OPEN_FILES:
        logger.warning("only %d files may be open; raise the limit (ulimit -n) to %d or more", hard, MIN_OPEN_FILES)
    descriptors.RESERVE.fill()
    memory.give_large_blocks_back()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*_COLLECTIONS)


def freeze_garbage() -> None:
    """Excludes the objects of the start from later collections. Call it once the brokers are ready.

    It does not collect first: with 10 000 partitions that would take 200 ms, for a few megabytes at most.
    """
    gc.freeze()


def zookeeper_coordination(config: BrokerConfig) -> Coordination:
    """The coordination store at `zookeeper.connect`, not started."""
    session = zookeeper_session(config)
    if config.zookeeper_set_acl:
        from ottla_broker.coordination.open_znodes import OpenZnodesWarning

        OpenZnodesWarning(session, config.zookeeper_connect or "", zookeeper_logger(config.broker_id))
    return session


def zookeeper_session(config: BrokerConfig, *, makes_chroot: bool = True) -> ZooKeeperCoordination:
    """A session with `zookeeper.connect`, not started. `makes_chroot`: a missing one is created at the start."""
    from ottla_broker.coordination.znode_acls import open_acl, secure_acl
    from ottla_broker.coordination.zookeeper import ZooKeeperCoordination

    logger = zookeeper_logger(config.broker_id)
    settings = zookeeper_tls_settings(config)
    tls = None
    if settings is not None:
        from ottla_broker.security.renewed_context import RenewedContext

        tls = RenewedContext(settings, "ZooKeeper", logger)
    session_timeout_ms: int = config.zookeeper_session_timeout_ms
    return ZooKeeperCoordination(
        config.zookeeper_connect or "",
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms or session_timeout_ms,
        logger=logger,
        tls=tls,
        login=zookeeper_login(config),
        acl_of=secure_acl if config.zookeeper_set_acl else open_acl,
        makes_chroot=makes_chroot,
    )


def make_ports(config: BrokerConfig, coordination: Coordination, *, brokers: int = 1) -> Ports:
    """The production ports of one broker, on the running loop. `brokers`: how many share the process."""
    loop = asyncio.get_running_loop()
    open_files = descriptors.limit()

    guard = loop if isinstance(loop, TakeoverLoop) and config.ottla_log_write_on_loop == "auto" else None

    def given(name: str, value: int) -> int:
        return value if config.is_given(name) else -1

    return Ports(
        clock=LoopClock(loop),
        network=SocketNetwork(
            loop,
            # Only what the file says; else the kernel sizes the buffers. Kafka's default of 100 kB costs ten wake-ups
            # per megabyte, and it also keeps the kernel from growing the buffer.
            send_buffer_bytes=given("socket.send.buffer.bytes", config.socket_send_buffer_bytes),
            receive_buffer_bytes=given("socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
            backlog=config.socket_listen_backlog_size,
        ),
        disks={path: DirectoryDisk(path, loop, guard) for path in config.log_dirs},
        coordination=coordination,
        workers=DividedWorkers(JOBS, PROMPT_JOBS, max_processes=_worker_processes(config)),
        open_files=None if open_files is None else open_files // brokers,
        memory_bytes=memory.limit() // brokers,
        http=ThreadHttp(),
    )


def _worker_processes(config: BrokerConfig) -> int:
    """As many as recoveries may run at a time, at least four, but no more than there are cores."""
    recoveries: int = len(config.log_dirs) * config.num_recovery_threads_per_data_dir
    return max(1, min(os.cpu_count() or 1, max(4, recoveries)))
