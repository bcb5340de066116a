"""The operator's Kafka client over TLS, against brokers that ask for certificates."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.security.client_settings import client_security
from ottla_operator.effects.kafka_admin import KafkaPythonAdmin
from ottla_operator.ports import KafkaUnavailable
from tests.authority import Authority
from tests.integration.clients.tls_stores import Stores


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def fleet(stores: Stores) -> Iterator[RunningCluster]:
    config = {**stores.broker_config, "listener.name.client.ssl.client.auth": "required"}
    with cluster(brokers=2, config=config) as found:
        yield found


def admin(fleet: RunningCluster, security: Mapping[str, str], timeout_ms: int = 60_000) -> KafkaPythonAdmin:
    return KafkaPythonAdmin(
        fleet.bootstrap.split(","), bootstrap_timeout_ms=timeout_ms, security=client_security(security)
    )


async def refused(fleet: RunningCluster, security: Mapping[str, str]) -> str:
    one = admin(fleet, security, 2_000)
    try:
        with pytest.raises(KafkaUnavailable) as caught:
            await one.view()
    finally:
        await one.close()
    return str(caught.value)


async def brokers_of(one: KafkaPythonAdmin) -> tuple[int, ...]:
    """Once it can connect: it tries again, as the operator does."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return tuple((await one.view()).brokers)
        except KafkaUnavailable:
            assert time.monotonic() < deadline


@pytest.mark.parametrize("is_in_values", [False, True], ids=["files", "values"])
async def test_the_operator_shows_its_certificate(fleet: RunningCluster, stores: Stores, is_in_values: bool) -> None:
    security = dict(stores.named)
    if is_in_values:
        key, chain = stores.client.read_text().split("-----END PRIVATE KEY-----\n")
        security = {
            "security.protocol": "SSL",
            "ssl.ca.pem": stores.trust.read_text(),
            "ssl.key.pem": f"{key}-----END PRIVATE KEY-----\n",
            "ssl.certificate.pem": chain,
        }
    one = admin(fleet, security)
    try:
        assert (await one.view()).brokers == (0, 1)
        assert set(await one.log_dirs([0, 1])) == {0, 1}  # a request to each of the brokers
    finally:
        await one.close()


async def test_what_is_wrong_is_told_with_its_reason(fleet: RunningCluster, stores: Stores) -> None:
    assert "TLS handshake failed: the peer's certificate: " in await refused(
        fleet, {**stores.named, "ssl.truststore.location": stores.misled["ssl.truststore.location"]}
    )
    missing = {**stores.named, "ssl.keystore.location": "/there/is/none.pem"}
    assert "TlsError: ssl.keystore.location: /there/is/none.pem: No such file" in await refused(fleet, missing)


async def test_a_new_certificate_is_shown_by_the_next_connection(
    fleet: RunningCluster, stores: Stores, tmp_path: Path
) -> None:
    own = tmp_path / "own.pem"
    Authority("a third authority").issue(subject="operator").write(own)
    security = {**stores.named, "ssl.keystore.location": str(own)}
    one = admin(fleet, security, 2_000)
    try:
        with pytest.raises(KafkaUnavailable):
            await one.view()
        own.write_bytes(stores.client.read_bytes())
        assert await brokers_of(one) == (0, 1)
    finally:
        await one.close()
