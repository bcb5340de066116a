"""`--command-config FILE`: what commands say of the file, and how they reach brokers over TLS with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ottla.cli import disk, pipeline
from ottla.cli.command_config import read_command_config
from ottla.testing import RunningCluster, cluster
from ottla_broker.config.properties import format_properties
from tests.authority import Authority
from tests.integration.clients.tls_stores import Stores


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def fleet(stores: Stores) -> Iterator[RunningCluster]:
    """Its clients need a certificate."""
    config = {**stores.broker_config, "listener.name.client.ssl.client.auth": "required"}
    with cluster(brokers=1, config=config) as found:
        yield found


def forget(fleet: RunningCluster, *options: str) -> str:
    arguments = [
        "forget",
        "--broker",
        "0",
        "--dir",
        "/nowhere",
        "--bootstrap-server",
        fleet.bootstrap,
        "--yes",
        *options,
    ]
    found = CliRunner().invoke(disk.app, arguments)
    assert found.exit_code == 1 and found.exception is not None
    return found.output


def written(path: Path, given: dict[str, str]) -> str:
    path.write_text(format_properties(given))
    return str(path)


def test_a_command_reaches_brokers_that_ask_for_certificates(
    fleet: RunningCluster, stores: Stores, tmp_path: Path
) -> None:
    named = written(tmp_path / "client.properties", {"bootstrap.servers": "not used:1", **stores.named})
    # The answer of the broker: there is no such directory.
    assert "broker 0 has no log directory /nowhere; it has " in forget(fleet, "--command-config", named)


def test_a_command_says_why_a_broker_with_tls_does_not_serve_it(
    fleet: RunningCluster, stores: Stores, tmp_path: Path
) -> None:
    assert "; where the listener has TLS, give --command-config FILE" in forget(fleet)
    misled = written(tmp_path / "misled.properties", dict(stores.misled))
    assert "TLS handshake failed: the peer's certificate: " in forget(fleet, "--command-config", misled)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ssl.truststore.locaton": "/t"}, "ssl.truststore.locaton: is unknown; did you mean ssl.truststore.location?"),
        ({"request.timeout": "1"}, "request.timeout: is unknown; did you mean request.timeout.ms?"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: is not given: of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/there/is/none.pem"},
            "ssl.ca.location: /there/is/none.pem: No such file or directory: name a file that exists",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "KEYS", "ssl.keystore.password": "s3cret"},
            "ssl.keystore.location: KEYS: ssl.keystore.password does not open it, or it is no PKCS#12",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(
    given: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys.p12"
    keys.write_bytes(Authority().issue(subject="client").pkcs12("right"))
    path = tmp_path / "client.properties"
    written(path, {key: value.replace("KEYS", str(keys)) for key, value in given.items()})
    with pytest.raises(BaseException, match=r"1"):
        read_command_config(path)
    said = capsys.readouterr().err
    assert said == f"--command-config {path}: {message.replace('KEYS', str(keys))}\n" or said.startswith(
        f"--command-config {path}: {message}"
    )
    assert said.count("\n") == 1 and "s3cret" not in said


def test_a_file_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BaseException, match=r"1"):
        read_command_config(Path("/there/is/none"))
    assert capsys.readouterr().err == "--command-config /there/is/none: No such file or directory\n"


def test_a_pipeline_takes_the_file_too(tmp_path: Path) -> None:
    document = tmp_path / "p.yaml"
    document.write_text(
        "apiVersion: kafka.ottla.dev/v1alpha1\nkind: KafkaPipeline\nmetadata: {name: p}\nspec:\n"
        "  bootstrapServers: 127.0.0.1:1\n  source: {topics: [a]}\n  sink: {topic: {name: b}}\n"
    )
    for command in ("run", "plan"):
        found = CliRunner().invoke(pipeline.app, [command, "-f", str(document), "--command-config", "/there/is/none"])
        assert found.exit_code != 0
        assert "--command-config /there/is/none: No such file or directory" in found.output
