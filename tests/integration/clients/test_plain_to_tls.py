"""A fleet that runs goes from plain bytes between brokers to TLS in Kafka's steps, under load: no send fails.

Each step is a roll: a listener with TLS beside the plain one, then inter.broker.listener.name, then the plain one for
clients alone.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from ottla.local.ports import free_port
from tests.authority import Authority
from tests.integration.clients.driver import await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.load import Load
from tests.integration.clients.test_rolling_restarts import PARTITIONS, brokers, is_in_sync
from tests.integration.clients.topics import create
from tests.integration.processes import BrokerProcess

__all__ = ["brokers"]
pytestmark = [pytest.mark.java, pytest.mark.long]


def test_no_send_fails_on_the_way_to_tls_between_brokers(
    brokers: list[BrokerProcess], machine: JavaMachine, name: str, tmp_path: Path
) -> None:
    authority = Authority()
    trust = authority.write_trust(tmp_path / "trust.pem")
    bootstrap = ",".join(broker.address for broker in brokers)
    create(bootstrap, name, PARTITIONS)
    secure = {broker.broker_id: free_port() for broker in brokers}
    stores = {
        broker.broker_id: authority.issue("127.0.0.1").write(tmp_path / f"{broker.broker_id}.pem") for broker in brokers
    }

    def roll(step: str) -> None:
        for broker in brokers:
            number = broker.broker_id
            broker.properties |= {
                "listeners": f"PLAINTEXT://{broker.address},TLS://127.0.0.1:{secure[number]}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
                "ssl.keystore.location": str(stores[number]),
                "ssl.truststore.location": str(trust),
                "ssl.client.auth": "required",
                "inter.broker.listener.name": "PLAINTEXT" if step == "both listeners" else "TLS",
                "ottla.broker.request.listeners": {"both listeners": "TLS", "switch": "PLAINTEXT"}.get(step, ""),
            }
            await_that(lambda: is_in_sync(bootstrap, name), "all replicas in sync")
            broker.terminate()
            load.goes_on(f"{step}: once broker {number} has got SIGTERM")
            assert broker.wait() == 0, broker.log[-3000:]
            broker.start()
            load.goes_on(f"{step}: with broker {number} back")

    with Load(bootstrap, name, PARTITIONS, machine) as load:
        load.goes_on("before the first step")
        for step in ("both listeners", "switch", "plain for clients alone"):
            roll(step)
        load.end()
    for broker in brokers:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        handshakes = [line for line in lines if line.startswith("ottla_ssl_handshakes_total{")]
        assert any('role="client"' in line for line in handshakes), "it connects to the others over TLS"
        assert not any(line.startswith("ottla_ssl_handshake_failures_total{") for line in lines)
