"""Connections of the pipeline, the operator and a command that log in by a token, to a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.local.client_connector import connector_of
from ottla.testing import RunningCluster, cluster
from ottla_broker.adapters.clock import LoopClock
from ottla_broker.adapters.network import SocketNetwork
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.metadata import MetadataRequest
from ottla_broker.security.client_settings import client_security
from ottla_broker.security.sasl.jaas import OAUTHBEARER_MODULE
from ottla_broker.server.peers.broker_client import BrokerClient
from ottla_operator.effects.kafka_admin import KafkaPythonAdmin
from ottla_operator.ports import KafkaUnavailable
from ottla_pipeline.errors import ClusterUnreachable, LoginRefused
from ottla_pipeline.wire.cluster import Cluster
from ottla_pipeline.wire.connecting import parse_connecting
from ottla_pipeline.wire.connection import Connection
from tests.integration.clients.tls_stores import Stores
from tests.tokens import IdentityProvider, Signer

FEW_TRIES = {"fetchoffset.numretries": "0", "kafka.request.timeout.ms": "20000"}


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as found:
        yield found


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def fleet(provider: IdentityProvider, stores: Stores) -> Iterator[RunningCluster]:
    config = {
        **stores.broker_config,
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:SASL_SSL",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": provider.url("keys"),
        "listener.name.client.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
    }
    with cluster(brokers=1, config=config) as found:
        yield found


def trusted(stores: Stores) -> dict[str, str]:
    return {"security.protocol": "SASL_SSL", "ssl.ca.location": str(stores.trust)}


def login(stores: Stores, url: str, secret: str = "client-secret") -> dict[str, str]:
    return {
        **trusted(stores),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "spark",
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.token.endpoint.url": url,
    }


def reach(fleet: RunningCluster, security: dict[str, str]) -> None:
    options = {f"kafka.{key}": value for key, value in security.items()}
    with Cluster(parse_connecting({"kafka.bootstrap.servers": fleet.bootstrap, **FEW_TRIES, **options})) as brokers:
        brokers.layout_of(None)


def test_a_pipeline_logs_in_by_a_token_of_a_provider_or_of_a_file(
    fleet: RunningCluster, provider: IdentityProvider, stores: Stores, tmp_path: Path
) -> None:
    reach(fleet, login(stores, provider.url("token")))
    before = len(provider.given)
    reach(fleet, login(stores, provider.url("token")))
    assert len(provider.given) == before, "a token serves the whole process"
    (tmp_path / "token").write_text(provider.signer.token())
    reach(
        fleet,
        {
            **trusted(stores),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
        },
    )


def test_a_pipeline_without_a_token_or_with_a_bad_one_is_told_why(
    fleet: RunningCluster, provider: IdentityProvider, stores: Stores
) -> None:
    said = r"cannot be reached: no token for spark: .*the answer is 401 \(invalid_client\)\)"
    with pytest.raises(ClusterUnreachable, match=said) as caught:
        reach(fleet, login(stores, provider.url("token"), "wrong-secret"))
    assert "wrong-secret" not in str(caught.value)
    with IdentityProvider() as other:
        with pytest.raises(LoginRefused, match=r"does not let 'spark' in: .*invalid_token") as refused:
            reach(fleet, login(stores, other.url("token")))
        assert not any(token in str(refused.value) for token in other.given)


def test_a_session_ends_with_its_token_and_is_renewed_on_the_same_connection(
    fleet: RunningCluster, provider: IdentityProvider, stores: Stores
) -> None:
    host, _, port = fleet.bootstrap.split(",")[0].rpartition(":")
    provider.lifetime_s = 3
    security = client_security({**login(stores, provider.url("token")), "sasl.oauthbearer.scope": "short"})
    connection = Connection(host, int(port), client_id="test", timeout_s=20, security=security)
    try:
        ends_at, renewals = connection._session_ends_at, 0
        while renewals < 2:
            connection.ask(ApiKey.METADATA, MetadataRequest(topics=[]))  # a broker closes it behind the end
            if connection._session_ends_at != ends_at:
                ends_at, renewals = connection._session_ends_at, renewals + 1
    finally:
        connection.close()
        provider.lifetime_s = 60


async def test_a_command_logs_in_by_a_token(fleet: RunningCluster, provider: IdentityProvider, stores: Stores) -> None:
    host, _, port = fleet.bootstrap.split(",")[0].rpartition(":")
    clock, network = LoopClock(), SocketNetwork()
    try:
        for secret in ("client-secret", "wrong-secret"):
            connector = connector_of(network, clock, login(stores, provider.url("token"), secret))
            client = BrokerClient(connector, clock, host, int(port), client_id="c")
            if secret == "client-secret":
                await client.connect()
                assert (await client.send(ApiKey.METADATA, 4, MetadataRequest(topics=[]))).brokers
            else:
                with pytest.raises(OSError, match="no token for spark"):
                    await client.connect()
            client.close()
    finally:
        network.close()
        clock.cancel_all()


def test_the_operators_client_logs_in_by_a_token(
    fleet: RunningCluster, provider: IdentityProvider, stores: Stores
) -> None:
    async def brokers_of(security: dict[str, str]) -> list[int]:
        admin = KafkaPythonAdmin(fleet.bootstrap.split(","), security=client_security(security))
        try:
            return list(await admin.brokers())
        finally:
            await admin.close()

    assert asyncio.run(brokers_of(login(stores, provider.url("token")))) == [0]
    with pytest.raises(KafkaUnavailable):
        asyncio.run(brokers_of(login(stores, provider.url("token"), "wrong-secret")))


def test_a_file_with_an_old_token_is_named(fleet: RunningCluster, stores: Stores, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(Signer().token(exp=1, iat=1))
    security = {**login(stores, path.as_uri()), "sasl.oauthbearer.client.id": "", "sasl.oauthbearer.client.secret": ""}
    with pytest.raises(ClusterUnreachable, match=f"the token of {path} cannot be used: it has expired"):
        reach(fleet, security)
