"""The broker process that is killed: `python -m tests.kills.broker DIRECTORY PORT HTTP_PORT`.

All of a broker, on the embedded coordination store, so that nothing else has to run. Small segments, flushes,
checkpoints and retention all the time: the more is under way, the more a kill can hit.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ottla_broker.adapters import process_logging
from ottla_broker.adapters.process import make_ports, run
from ottla_broker.config import BrokerConfig
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.http_server import HttpServer
from ottla_broker.server.broker import Broker
from ottla_broker.server.edge.http_endpoints import routes

LOG_DIR = "d0"


async def serve(directory: Path, port: int, http_port: int) -> None:
    """Until it is killed, or halts."""
    config = BrokerConfig.from_mapping(
        {
            "broker.id": "0",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(directory / LOG_DIR),
            "zookeeper.connect": "embedded:2181",
            "zookeeper.session.timeout.ms": "2000",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "log.retention.check.interval.ms": "150",
            "log.flush.offset.checkpoint.interval.ms": "100",
            "log.flush.start.offset.checkpoint.interval.ms": "100",
            "replica.high.watermark.checkpoint.interval.ms": "100",
        }
    )
    process_logging.configure(lambda: 0)
    store = EmbeddedStore(str(directory / "coordination"))
    await store.open()
    broker = Broker(config, make_ports(config, EmbeddedCoordination(store, session_timeout_ms=2000)))
    http = HttpServer(routes(broker))
    await http.start("127.0.0.1", http_port)
    await broker.start()
    await broker.halted()
    await asyncio.sleep(0.1)  # its last lines
    sys.exit(1)


if __name__ == "__main__":
    run(serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
