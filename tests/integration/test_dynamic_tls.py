"""Keys and certificates of a running broker are changed by requests, and passwords are stored encoded."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from ottla.testing import RunningCluster, cluster
from ottla_broker.coordination.znodes import config_path
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.security.password_encoder import PasswordEncoder
from tests.authority import Authority
from tests.integration.wire import Wire

BROKER = 4
"""The resource type."""

CLIENT = "listener.name.client."
LOCATION, PASSWORD = f"{CLIENT}ssl.keystore.location", f"{CLIENT}ssl.keystore.password"


@pytest.fixture
def authority() -> Authority:
    return Authority()


def config(folder: Path, **more: str) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:SSL",
        "ssl.keystore.location": str(folder / "first.pem"),
        "password.encoder.secret": "a secret",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def alter(fleet: RunningCluster, values: Mapping[str, str]) -> str:
    """Sends the change to the listener without TLS. Gives the message of a refusal; "" when it is in force."""
    api = codec.module(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    configs = [api.AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
    resource = api.AlterConfigsResource(resource_type=BROKER, resource_name="0", configs=configs)
    request = api.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    with Wire(fleet.internal_address(0)) as wire:
        (answer,) = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    return answer.error_message or ""


def described(fleet: RunningCluster) -> dict[str, Any]:
    api = codec.module(ApiKey.DESCRIBE_CONFIGS)
    resource = api.DescribeConfigsResource(resource_type=BROKER, resource_name="0", configuration_keys=None)
    with Wire(fleet.internal_address(0)) as wire:
        (result,) = wire.ask(ApiKey.DESCRIBE_CONFIGS, 4, api.DescribeConfigsRequest(resources=[resource])).results
    return {item.name: item for item in result.configs}


def served(fleet: RunningCluster, authority: Authority) -> int:
    """The serial number of the certificate that a new connection sees."""
    context = ssl.create_default_context(cadata=authority.trust_pem)
    host, _, port = fleet.address(0).rpartition(":")
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host) as tls:
        certificate = tls.getpeercert(True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number


def stored(fleet: RunningCluster) -> dict[str, str]:
    """/config/brokers/0 as it is stored."""

    async def read() -> bytes:
        assert fleet.fleet is not None
        coordination = fleet.fleet.brokers[0]._ports.coordination
        data, _ = await coordination.get(config_path("brokers", "0"))
        return data

    found: dict[str, str] = json.loads(fleet.run(read()))["config"]
    return found


def test_a_store_with_a_password_is_changed_while_the_broker_runs_and_kept(
    authority: Authority, tmp_path: Path
) -> None:
    first, second = authority.issue("127.0.0.1"), authority.issue("127.0.0.1")
    first.write(tmp_path / "first.pem")
    (tmp_path / "second.p12").write_bytes(second.pkcs12("s3cret"))
    with cluster(brokers=1, config=config(tmp_path)) as fleet:
        assert served(fleet, authority) == first.certificate.serial_number

        message = alter(fleet, {LOCATION: str(tmp_path / "second.p12"), PASSWORD: "wrong"})
        assert f"{LOCATION}: {tmp_path}/second.p12: {PASSWORD} does not open it" in message
        assert "wrong" not in message
        assert LOCATION not in described(fleet), "nothing of a change that is refused is stored"

        assert alter(fleet, {LOCATION: str(tmp_path / "second.p12"), PASSWORD: "s3cret"}) == ""
        assert served(fleet, authority) == second.certificate.serial_number
        shown = described(fleet)
        assert (shown[PASSWORD].value, shown[PASSWORD].is_sensitive) == (None, True)
        assert shown[LOCATION].value == str(tmp_path / "second.p12")
        assert "s3cret" not in json.dumps(stored(fleet))
        assert PasswordEncoder("a secret").decode(stored(fleet)[PASSWORD]) == "s3cret"

        assert alter(fleet, {"log.cleaner.threads": "2"}) == ""
        assert PasswordEncoder("a secret").decode(stored(fleet)[PASSWORD]) == "s3cret", "another change keeps it"
        fleet.stop(0)
        fleet.start(0)
        assert served(fleet, authority) == second.certificate.serial_number


def test_without_a_secret_no_password_is_stored(authority: Authority, tmp_path: Path) -> None:
    authority.issue("127.0.0.1").write(tmp_path / "first.pem")
    with cluster(brokers=1, config=config(tmp_path, password_encoder_secret="")) as fleet:
        assert "a password needs password.encoder.secret of the broker" in alter(fleet, {PASSWORD: "s3cret"})
        assert "it is set for each listener" in alter(fleet, {"ssl.keystore.location": "/x"})


def test_a_new_secret_reads_what_the_old_one_has_written_and_stores_it_again(
    authority: Authority, tmp_path: Path
) -> None:
    issued = authority.issue("127.0.0.1")
    authority.issue("127.0.0.1").write(tmp_path / "first.pem")
    (tmp_path / "second.p12").write_bytes(issued.pkcs12("s3cret"))
    with cluster(brokers=1, config=config(tmp_path)) as fleet:
        assert alter(fleet, {LOCATION: str(tmp_path / "second.p12"), PASSWORD: "s3cret"}) == ""
        fleet.stop(0)
        assert fleet.fleet is not None
        fleet.fleet._overrides.update({"password.encoder.secret": "another", "password.encoder.old.secret": "a secret"})
        fleet.start(0)
        assert served(fleet, authority) == issued.certificate.serial_number
        assert PasswordEncoder("another").decode(stored(fleet)[PASSWORD]) == "s3cret"
