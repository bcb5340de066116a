"""Who a client with a certificate is: its quotas are those of its user, and a name that no rule maps is refused."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.authority import Authority
from tests.integration.wire import Wire


def subject(name: str, unit: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )


class Secured:
    """A broker whose clients show certificates."""

    def __init__(self, fleet: RunningCluster, authority: Authority, folder: Path) -> None:
        self.fleet = fleet
        self._authority = authority
        self._folder = folder

    def connect(self, name: x509.Name | None) -> Wire:
        """As the user of a certificate, or without one."""
        context = ssl.create_default_context(cadata=self._authority.trust_pem)
        if name is not None:
            context.load_cert_chain(self._authority.issue(subject=name).write(self._folder / "client.pem"))
        return Wire(self.fleet.address(0), tls=context)

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.fleet.http(0)}/metrics", timeout=60) as answer:
            found: str = answer.read().decode()
        return found


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    authority = Authority()
    config = {
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:SSL",
        "ssl.keystore.location": str(authority.issue("127.0.0.1").write(tmp_path / "broker.pem")),
        "ssl.truststore.location": str(authority.write_trust(tmp_path / "trust.pem")),
        "ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),OU=(Users|Services)$/$1/L",
    }
    with cluster(brokers=1, config=config) as fleet:
        yield Secured(fleet, authority, tmp_path)


def set_quota(fleet: RunningCluster, user: str) -> None:
    api = codec.module(ApiKey.ALTER_CLIENT_QUOTAS)
    entry = api.EntryData(
        entity=[api.EntityData(entity_type="user", entity_name=user)],
        ops=[api.OpData(key="consumer_byte_rate", value=1e9, remove=False)],
    )
    with Wire(fleet.internal_address(0)) as wire:
        answer = wire.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, api.AlterClientQuotasRequest(entries=[entry]))
    assert [one.error_code for one in answer.entries] == [0]


def fetch(wire: Wire) -> None:
    api = codec.module(ApiKey.FETCH)
    topic = api.FetchTopic(topic="a", partitions=[api.FetchPartition(partition=0, fetch_offset=0)])
    wire.ask(ApiKey.FETCH, 11, api.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]))


def test_the_quota_of_a_user_is_that_of_its_certificate(secured: Secured) -> None:
    set_quota(secured.fleet, "alice")
    for name in (subject("Alice", "Users"), subject("Bob", "Services"), None):
        with secured.connect(name) as wire:
            fetch(wire)
            fetch(wire)
    lines = [line for line in secured.metrics().splitlines() if line.startswith("kafka_server_fetch_byte_rate{")]
    assert [line for line in lines if 'user="alice"' in line]
    assert not [line for line in lines if 'user="bob"' in line or 'user="ANONYMOUS"' in line], "they have no quota"


def test_a_certificate_that_no_rule_maps_is_closed_at_its_first_request(secured: Secured) -> None:
    api = codec.module(ApiKey.API_VERSIONS)
    with secured.connect(subject("Mallory", "Guests")) as wire:
        wire.send(wire.request_bytes(ApiKey.API_VERSIONS, 0, api.ApiVersionsRequest()))
        assert wire.is_closed_by_broker()
    with secured.connect(subject("Alice", "Users")) as wire:
        assert wire.ask(ApiKey.API_VERSIONS, 0, api.ApiVersionsRequest()).error_code == 0
