"""Connections of the pipeline, the operator and a command that log in by SASL, to a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.metadata import MetadataRequest
from ottla_broker.security.client_settings import client_security
from ottla_broker.security.sasl.jaas import PLAIN_MODULE
from ottla_operator.effects.kafka_admin import KafkaPythonAdmin
from ottla_pipeline.errors import LoginRefused, OptionError
from ottla_pipeline.wire.cluster import Cluster
from ottla_pipeline.wire.connecting import Connecting, parse_connecting
from ottla_pipeline.wire.connection import Connection
from tests.integration.clients.tls_stores import Stores

FEW_TRIES = {"fetchoffset.numretries": "0", "kafka.request.timeout.ms": "20000"}
SESSION_MS = 1500


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def fleet(stores: Stores) -> Iterator[RunningCluster]:
    config = {
        **stores.broker_config,
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_spark="s,e=c";',
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    with cluster(brokers=1, config=config) as found:
        yield found


def login(stores: Stores, password: str = "s,e=c", **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(stores.trust),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "spark",
        "sasl.password": password,
        **more,
    }


def connecting(fleet: RunningCluster, security: dict[str, str]) -> Connecting:
    options = {f"kafka.{key}": value for key, value in security.items()}
    return parse_connecting({"kafka.bootstrap.servers": fleet.bootstrap, **FEW_TRIES, **options})


def reach(fleet: RunningCluster, security: dict[str, str]) -> None:
    with Cluster(connecting(fleet, security)) as brokers:
        brokers.layout_of(None)


def test_a_user_is_let_in_in_both_spellings(fleet: RunningCluster, stores: Stores) -> None:
    reach(fleet, login(stores))
    jaas = f'{PLAIN_MODULE} required username="spark" password="s,e=c";'
    java = {key: value for key, value in login(stores).items() if key not in ("sasl.username", "sasl.password")}
    reach(fleet, {**java, "sasl.jaas.config": jaas})


def test_whoever_is_not_let_in_is_told_why_without_a_secret(fleet: RunningCluster, stores: Stores) -> None:
    with pytest.raises(LoginRefused, match=r"does not let 'spark' in: .*Invalid username or password") as caught:
        reach(fleet, login(stores, "wrong-secret"))
    assert "wrong-secret" not in str(caught.value)
    with pytest.raises(LoginRefused, match="does not have SCRAM-SHA-512; its mechanisms: PLAIN"):
        reach(fleet, login(stores, **{"sasl.mechanism": "SCRAM-SHA-512"}))
    with pytest.raises(OptionError, match=r"option kafka\.sasl\.password: is not given, nor kafka\.sasl\.jaas\.config"):
        connecting(fleet, {key: value for key, value in login(stores).items() if key != "sasl.password"})


def test_a_session_with_an_end_is_renewed_on_the_same_connection(fleet: RunningCluster, stores: Stores) -> None:
    host, _, port = fleet.bootstrap.split(",")[0].rpartition(":")
    connection = Connection(host, int(port), client_id="test", timeout_s=20, security=client_security(login(stores)))
    try:
        ends_at = connection._session_ends_at
        renewals = 0
        while renewals < 2:
            connection.ask(ApiKey.METADATA, MetadataRequest(topics=[]))  # a broker closes it behind the end
            if connection._session_ends_at != ends_at:
                ends_at, renewals = connection._session_ends_at, renewals + 1
    finally:
        connection.close()


def test_the_operators_client_logs_in(fleet: RunningCluster, stores: Stores, tmp_path: Path) -> None:
    async def brokers_of(security: dict[str, str]) -> list[int]:
        admin = KafkaPythonAdmin(fleet.bootstrap.split(","), security=client_security(security))
        return list(await admin.brokers())

    assert asyncio.run(brokers_of(login(stores))) == [0]
