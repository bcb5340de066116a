"""OAUTHBEARER: every client that we know logs in by a token of an identity provider, and so do brokers to each other;
keys of tokens change, tokens end, and the provider is away for a while."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest
from confluent_kafka import KafkaError, Producer

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.security.sasl.jaas import OAUTHBEARER_MODULE
from ottla_broker.security.sasl.mechanism import OAUTHBEARER
from ottla_broker.security.sasl.oauthbearer import OAuthBearerClient
from tests.integration.broker_errors import BrokerErrors
from tests.integration.clients.conftest import EVERY_CLIENT, make_driver
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.java import JavaMachine
from tests.integration.clients.librdkafka import Librdkafka, librdkafka_security
from tests.integration.clients.refused import Refused
from tests.integration.clients.security import Security, by_token, wire
from tests.integration.clients.test_tls import send_and_read_every_shape, total
from tests.integration.clients.topics import create, numbered
from tests.integration.wire import Wire
from tests.tokens import IdentityProvider, Signer, jwks

CLIENTS = [one for one in EVERY_CLIENT if one.values != ("kcat",)]
"""Debian builds kcat's librdkafka without OpenID Connect."""
METRIC = "kafka_server_socketservermetrics_"
AUDIENCE, SECRET = "ottla", "client-secret"
LISTENERS = ("CLIENT", "INTERNAL")


class _Provider(IdentityProvider):
    """Its tokens are for the brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.signer = _ForBrokers()
        self.keys = jwks(self.signer)


class _ForBrokers(Signer):
    def token(self, header: object = None, **more: object) -> str:
        return super().token(header, **{"aud": AUDIENCE, "iss": "https://idp.example", "scope": "kafka", **more})


def broker_config(provider: IdentityProvider, least_in_sync: int) -> dict[str, str]:
    line = f'{OAUTHBEARER_MODULE} required clientId="broker" clientSecret="{SECRET}" scope="kafka";'
    return {
        "group.min.session.timeout.ms": "500",
        "min.insync.replicas": str(least_in_sync),
        "replica.lag.time.max.ms": "30000",
        "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,CLIENT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": OAUTHBEARER,
        "sasl.mechanism.inter.broker.protocol": OAUTHBEARER,
        "sasl.oauthbearer.jwks.endpoint.url": provider.url("keys"),
        "sasl.oauthbearer.token.endpoint.url": provider.url("token"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": "https://idp.example",
        "listener.name.internal.oauthbearer.sasl.jaas.config": line,
        "listener.name.client.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
    }


class TokenFleet:
    def __init__(self, fleet: RunningCluster, provider: IdentityProvider) -> None:
        self.fleet = fleet
        self.provider = provider

    @property
    def bootstrap(self) -> str:
        return self.fleet.bootstrap

    def security(self, user: str = "alice", secret: str = SECRET) -> Security:
        return by_token("SASL_PLAINTEXT", self.provider.url("token"), user, secret)

    def lets_in(self, token: str, broker: int = 0) -> bool:
        try:
            with Wire(self.fleet.address(broker)) as connected:
                connected.log_in_by(OAUTHBEARER, OAuthBearerClient(token, {}))
        except AssertionError:
            return False
        return True

    def counted(self, name: str, **labels: str) -> float:
        return total(self.fleet, f"{METRIC}{name}", **labels)


def _opened(brokers: int = 3, lifetime_s: int = 600, least_in_sync: int = 2) -> Iterator[TokenFleet]:
    with _Provider() as provider:
        provider.lifetime_s = lifetime_s
        with cluster(brokers=brokers, racks=brokers, config=broker_config(provider, least_in_sync)) as running:
            yield TokenFleet(running, provider)


@pytest.fixture(scope="module")
def fleet() -> Iterator[TokenFleet]:
    yield from _opened()


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest) -> Refused:
    return Refused(caplog, lambda: request.getfixturevalue("machine"))


@pytest.mark.parametrize("client", CLIENTS)
def test_records_come_back_as_they_were_sent(
    client: str, request: pytest.FixtureRequest, fleet: TokenFleet, name: str
) -> None:
    driver = make_driver(request, client, fleet.security())
    send_and_read_every_shape(driver, fleet.bootstrap, name)


def test_brokers_log_in_to_each_other_by_one_token_each(fleet: TokenFleet) -> None:
    assert fleet.counted("successful_authentication", listener="INTERNAL") > 0
    assert fleet.counted("failed_authentication", listener="INTERNAL") == 0


NOT_TOLD = {
    "aiokafka": r"(?i)authentication|SaslAuthenticationFailed|Unable to bootstrap",
    "java": "",  # it has read the status, and closes the connection with its own words
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_for_others_is_refused_with_the_status(client: str, refused: Refused, fleet: TokenFleet) -> None:
    before = fleet.counted("failed_authentication")
    with IdentityProvider() as other:
        other.signer = fleet.provider.signer.__class__(key=fleet.provider.signer.key)
        other.signer.token = partial(other.signer.token, aud="others")  # type: ignore[method-assign]
        security = by_token("SASL_PLAINTEXT", other.url("token"), "alice", SECRET)
        refused.must_tell(client, fleet.bootstrap, security, NOT_TOLD.get(client, "invalid_token"))
    await_that(lambda: fleet.counted("failed_authentication") > before, "it is counted")


def test_a_new_key_of_the_provider_is_found_by_its_tokens(fleet: TokenFleet) -> None:
    """Without a restart: the first login with it makes each broker fetch the keys, and the next gets in."""
    old, new = fleet.provider.signer, _ForBrokers("new")
    unknown = _ForBrokers("never", key=new.key)
    fleet.provider.keys = jwks(old, new)
    assert not fleet.lets_in(new.token()), "the broker does not know the key yet"
    for broker in fleet.fleet.running:
        await_that(partial(fleet.lets_in, new.token(), broker), f"broker {broker} has the new key")
    assert fleet.lets_in(old.token())
    asked = fleet.provider.asked.count("/keys")
    for _ in range(50):
        assert not fleet.lets_in(unknown.token())
    assert fleet.provider.asked.count("/keys") <= asked + 1


# Sessions that end


@pytest.mark.java
def test_clients_and_brokers_log_in_again_before_their_tokens_end_and_nothing_fails(
    machine: JavaMachine, name: str, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as cleanup:
        fleet = next(opened := _opened(lifetime_s=3))
        cleanup.callback(lambda: list(opened))
        security = fleet.security()
        create(fleet.bootstrap, name, 3, security=security)
        java = make_driver(request, "java", security)
        librdkafka = Producer({"bootstrap.servers": fleet.bootstrap, **librdkafka_security(security)})
        failed: list[KafkaError | None] = []
        sent = 0

        def has_begun_again() -> bool:
            nonlocal sent
            librdkafka.produce(name, b"value", partition=sent % 3, on_delivery=lambda error, _: failed.append(error))
            sent += 1
            librdkafka.poll(0.05)
            return all(fleet.counted("successful_reauthentication", listener=one) >= 6 for one in LISTENERS)

        java.produce(fleet.bootstrap, name, numbered(10))
        await_that(has_begun_again, "clients and brokers have authenticated again several times")
        assert librdkafka.flush(LIMIT_S) == 0
        assert set(failed) == {None}
        assert fleet.counted("expired_connections_killed", listener="INTERNAL") == 0
        assert fleet.counted("failed_reauthentication", listener="INTERNAL") == 0
        assert len(Librdkafka(security).read(fleet.bootstrap, name, 3)) == sent + 10


# A provider that is away


def test_brokers_go_on_while_the_provider_is_away_and_start_when_it_is_back(name: str, _watched: BrokerErrors) -> None:
    with ExitStack() as cleanup:
        fleet = next(opened := _opened())
        cleanup.callback(lambda: list(opened))
        security, provider = fleet.security(), fleet.provider
        create(fleet.bootstrap, name, 3, security=security)
        token = provider.signer.token()
        provider.status = 503
        assert fleet.lets_in(token), "by the keys that it has"
        fleet.fleet.kill(1)
        asked = provider.asked.count("/keys")
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(fleet.fleet.start, 1)
            await_that(lambda: provider.asked.count("/keys") >= asked + 6, "it asks for the keys again and again")
            provider.status = 200
            starting.result(LIMIT_S)
        await_that(partial(fleet.lets_in, token, 1), "the listener of clients has its keys too")
        driver = Librdkafka(security)
        driver.produce(fleet.bootstrap, name, numbered(30, 3))
        assert len(driver.read(fleet.bootstrap, name, 3)) == 30
    told = [line for line in _watched.found if "nobody gets in by a token: http://127.0.0.1" in line]
    assert len(told) == 2, "once for each listener"
    _watched.found.clear()


# Secrets


def test_no_token_and_no_secret_is_in_a_log_a_metric_a_status_or_a_description(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with ExitStack() as cleanup:
        fleet = next(opened := _opened(brokers=1, least_in_sync=1))
        cleanup.callback(lambda: list(opened))
        signer = fleet.provider.signer
        shown = [
            signer.token(),
            signer.token(sub="hunter", exp=1, iat=1),
            Signer("hunter").token(),
            signer.token(sub=["hunter"]),
            signer.compact(b'{"hunter"'),
        ]
        assert [fleet.lets_in(token) for token in shown] == [True, False, False, False, False]
        with Wire(fleet.fleet.address(0)) as connected, pytest.raises(AssertionError, match="different from the token"):
            connected.log_in_by(OAUTHBEARER, _AsAnother(shown[0]))
        create(fleet.bootstrap, "t", replicas=1, security=fleet.security())
        seen = [caplog.text]
        for page in ("metrics", "status"):
            with urllib.request.urlopen(f"http://{fleet.fleet.http(0)}/{page}", timeout=60) as answer:
                seen.append(answer.read().decode())
        api = codec.module(ApiKey.DESCRIBE_CONFIGS)
        asked = api.DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
        with wire(fleet.fleet.address(0), fleet.security()) as connected:
            described = connected.ask(ApiKey.DESCRIBE_CONFIGS, 3, api.DescribeConfigsRequest(resources=[asked]))
        assert "sasl.jaas.config" in repr(described)
        seen.append(repr(described))
        parts = {part for token in (*shown, *fleet.provider.given) for part in token.split(".")[1:] if part}
        assert len(parts) > 2 * len(shown)
    for secret in (SECRET, "hunter", *parts):
        assert not [text[:200] for text in seen if secret in text], secret


class _AsAnother(OAuthBearerClient):
    """Asks to be bob with alice's token."""

    def __init__(self, token: str) -> None:
        super().__init__(token, {})
        self._message = self._message.replace("n,,", "n,a=bob,", 1)
