"""A fleet that runs goes from plain bytes between brokers to TLS, and on to SASL within TLS, in Kafka's steps and under
load: no send fails.

Each step is a roll: a further listener beside the others, then inter.broker.listener.name, then the listener before for
nobody, or for clients alone.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.local.ports import free_port
from ottla_broker.security.sasl.jaas import PLAIN_MODULE
from tests.authority import Authority
from tests.integration.clients.driver import await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.load import Load
from tests.integration.clients.test_rolling_restarts import PARTITIONS, brokers, is_in_sync
from tests.integration.clients.topics import create
from tests.integration.processes import BrokerProcess

__all__ = ["brokers"]
pytestmark = [pytest.mark.java, pytest.mark.long]


class Step(NamedTuple):
    """One roll.

    Args:
        bound: the listeners.
        between_brokers: the one on which brokers reach each other.
        also_for_brokers: another one, for those that the roll has not reached.
    """

    name: str
    bound: tuple[str, ...]
    between_brokers: str
    also_for_brokers: str = ""


STEPS = (
    Step("TLS beside plain", ("PLAINTEXT", "TLS"), "PLAINTEXT", "TLS"),
    Step("switch to TLS", ("PLAINTEXT", "TLS"), "TLS", "PLAINTEXT"),
    Step("plain for clients alone, SASL beside TLS", ("PLAINTEXT", "TLS", "LOGIN"), "TLS", "LOGIN"),
    Step("switch to SASL", ("PLAINTEXT", "TLS", "LOGIN"), "LOGIN", "TLS"),
    Step("without TLS alone", ("PLAINTEXT", "LOGIN"), "LOGIN"),
)


def test_no_send_fails_on_the_way_to_tls_and_to_sasl_between_brokers(
    brokers: list[BrokerProcess], machine: JavaMachine, name: str, tmp_path: Path
) -> None:
    authority = Authority()
    trust = authority.write_trust(tmp_path / "trust.pem")
    bootstrap = ",".join(broker.address for broker in brokers)
    create(bootstrap, name, PARTITIONS)
    stores = {
        broker.broker_id: authority.issue("127.0.0.1").write(tmp_path / f"{broker.broker_id}.pem") for broker in brokers
    }
    addresses = {
        broker.broker_id: {
            "PLAINTEXT": broker.address, "TLS": f"127.0.0.1:{free_port()}", "LOGIN": f"127.0.0.1:{free_port()}",
        }
        for broker in brokers
    }  # fmt: skip

    def roll(step: Step) -> None:
        for broker in brokers:
            number = broker.broker_id
            broker.properties |= {
                "listeners": ",".join(f"{listener}://{addresses[number][listener]}" for listener in step.bound),
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_SSL",
                "ssl.keystore.location": str(stores[number]),
                "ssl.truststore.location": str(trust),
                "listener.name.tls.ssl.client.auth": "required",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.login.plain.sasl.jaas.config": (
                    f'{PLAIN_MODULE} required username="broker" password="secret" user_broker="secret";'
                ),
                "inter.broker.listener.name": step.between_brokers,
                "ottla.broker.request.listeners": step.also_for_brokers,
            }
            await_that(lambda: is_in_sync(bootstrap, name), "all replicas in sync")
            broker.terminate()
            load.goes_on(f"{step.name}: once broker {number} has got SIGTERM")
            assert broker.wait() == 0, broker.log[-3000:]
            broker.start()
            load.goes_on(f"{step.name}: with broker {number} back")

    with Load(bootstrap, name, PARTITIONS, machine) as load:
        load.goes_on("before the first step")
        for step in STEPS:
            roll(step)
        load.end()
    for broker in brokers:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        handshakes = [line for line in lines if line.startswith("ottla_ssl_handshakes_total{")]
        assert any('role="client"' in line for line in handshakes), "it connects to the others over TLS"
        assert not any(line.startswith("ottla_ssl_handshake_failures_total{") for line in lines)
        logins = [line for line in lines if "_authentication_total{" in line]
        counted = {line.partition("{")[0].rpartition("metrics_")[2]: float(line.rpartition(" ")[2]) for line in logins}
        assert counted["successful_authentication_total"] > 0
        assert counted["failed_authentication_total"] == 0
