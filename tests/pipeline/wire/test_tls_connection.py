"""Connections of the pipeline over TLS: to real brokers, and to one that answers twice in one record."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.api_versions import ApiVersion, ApiVersionsResponse
from ottla_broker.protocol.generated.metadata import MetadataRequest, MetadataResponse
from ottla_pipeline.errors import ClusterUnreachable, OptionError
from ottla_pipeline.topic_partition import TopicPartition
from ottla_pipeline.wire.cluster import Cluster
from ottla_pipeline.wire.connecting import Connecting, parse_connecting
from ottla_pipeline.wire.connection import Connection
from tests.authority import Authority
from tests.integration.clients.tls_stores import Stores

FEW_TRIES = {"fetchoffset.numretries": "0", "kafka.request.timeout.ms": "20000"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def fleet(stores: Stores) -> Iterator[RunningCluster]:
    """Its clients need a certificate."""
    config = {**stores.broker_config, "listener.name.client.ssl.client.auth": "required"}
    with cluster(brokers=1, config=config) as found:
        yield found


def connecting(fleet: RunningCluster, security: dict[str, str]) -> Connecting:
    options = {f"kafka.{key}": value for key, value in security.items()}
    return parse_connecting({"kafka.bootstrap.servers": fleet.bootstrap, **FEW_TRIES, **options})


def reach(fleet: RunningCluster, security: dict[str, str]) -> None:
    with Cluster(connecting(fleet, security)) as brokers:
        brokers.layout_of(None)


def refused(fleet: RunningCluster, security: dict[str, str]) -> str:
    with pytest.raises((ClusterUnreachable, OptionError)) as caught:
        reach(fleet, security)
    return str(caught.value)


def split(directory: Path, client: Path) -> dict[str, str]:
    """The certificate and the key of a client in files of their own, as librdkafka's users have them."""
    key, certificates = client.read_text().split("-----END PRIVATE KEY-----\n")
    (directory / "client.key").write_text(f"{key}-----END PRIVATE KEY-----\n")
    (directory / "client.crt").write_text(certificates)
    return {
        "ssl.certificate.location": str(directory / "client.crt"),
        "ssl.key.location": str(directory / "client.key"),
    }


def test_a_client_with_a_certificate_is_served_in_both_spellings_and_from_values(
    fleet: RunningCluster, stores: Stores, tmp_path: Path
) -> None:
    own = {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
    reach(fleet, dict(stores.named))
    reach(fleet, {**own, "ssl.ca.location": str(stores.trust), **split(tmp_path, stores.client)})
    key, chain = ((tmp_path / name).read_text() for name in ("client.key", "client.crt"))
    trust = {"ssl.truststore.certificates": stores.trust.read_text().replace("\n", " ")}
    reach(fleet, {**own, **trust, "ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain})


def test_what_is_wrong_with_a_client_is_told_in_a_sentence(fleet: RunningCluster, stores: Stores) -> None:
    named = dict(stores.named)
    assert "if its listener has TLS, set kafka.security.protocol=SSL" in refused(fleet, {})
    assert "the broker asks for a certificate: name a key store" in refused(fleet, dict(stores.unnamed))
    misled = {**named, "ssl.truststore.location": stores.misled["ssl.truststore.location"]}
    assert "TLS handshake failed: the peer's certificate: " in (found := refused(fleet, misled))
    assert "(look at the trust store" in found
    lost = refused(fleet, {**named, "ssl.keystore.location": "/there/is/none.pem"})
    assert lost.startswith("option kafka.ssl.keystore.location: /there/is/none.pem: No such file or directory: name")
    assert f"on {socket.gethostname()}; the driver and each executor read the file" in lost


def test_the_name_of_the_broker_is_checked_unless_the_client_says_no(fleet: RunningCluster, stores: Stores) -> None:
    _, _, port = fleet.bootstrap.rpartition(":")
    other = {"kafka.bootstrap.servers": f"127.1:{port}", **FEW_TRIES}
    options = {f"kafka.{key}": value for key, value in stores.named.items()}
    with (
        Cluster(parse_connecting({**other, **options})) as brokers,
        pytest.raises(ConnectionError, match="the peer's certificate: Hostname mismatch"),
    ):
        brokers.open("127.1", int(port))
    options["kafka.ssl.endpoint.identification.algorithm"] = ""
    with Cluster(parse_connecting({**other, **options})) as brokers:
        brokers.open("127.1", int(port)).close()


def test_a_new_certificate_is_shown_by_the_next_connection(
    fleet: RunningCluster, stores: Stores, tmp_path: Path
) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(stores.client.read_bytes())
    security = {**stores.named, "ssl.keystore.location": str(own)}
    reach(fleet, security)
    own.write_text("no certificate")
    reach(fleet, security)  # with the one before
    Authority("a third authority").issue(subject="client").write(own)
    assert "does not trust the authority of the certificate in the key store" in refused(fleet, security)
    own.write_bytes(stores.client.read_bytes())
    reach(fleet, security)


def test_rows_are_written_and_read_over_tls(fleet: RunningCluster, stores: Stores) -> None:
    pytest.importorskip("pyarrow")
    from ottla_pipeline.reading import fetch
    from ottla_pipeline.reading.options import parse
    from ottla_pipeline.reading.plan import plan
    from ottla_pipeline.sink.task import send_rows
    from ottla_pipeline.sink.write_options import parse_write_options
    from tests.pipeline.sink.test_delivery import rows

    options = {f"kafka.{key}": value for key, value in stores.named.items()}
    options["kafka.bootstrap.servers"] = fleet.bootstrap
    writing = parse_write_options({**options, "topic": "rows", "guarantee": "at-least-once"})
    with Cluster(writing.connecting) as brokers:
        brokers.metadata(["rows"], create=True)
        brokers.retried(lambda: brokers.leaders_of([TopicPartition("rows", 0)]))
    batches = [rows(2000, 2000 * number, 300) for number in range(10)]
    assert send_rows(batches, writing) == 20_000
    reading = parse({**options, "subscribe": "rows"})
    with Cluster(reading.connecting) as brokers:
        ranges = plan(reading, brokers, fleet.bootstrap)
    found = Counter(
        int(value.rstrip(b"."))
        for part in ranges
        for batch in fetch.read(part, reading)
        for value in batch.column("value").to_pylist()
    )
    assert found == Counter(range(20_000))


# -- one that answers twice in one record


@pytest.fixture
def answers_in_one_record(tmp_path: Path) -> Iterator[Connecting]:
    """A broker that answers two requests of a connection in one record of TLS, and closes when a third comes."""
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("127.0.0.1").write(tmp_path / "broker.pem"))
    served = ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=0, max_version=9) for key in (ApiKey.METADATA,)]
    )

    def frame(secured: ssl.SSLSocket) -> bytes:
        length = int.from_bytes(secured.recv(4), "big")
        found = b""
        while length and len(found) < length:
            part = secured.recv(length - len(found))
            if not part:
                break
            found += part
        return found

    def answer(api: ApiKey, version: int, correlation: int, body: object) -> bytes:
        return b"".join(map(bytes, codec.frame_response(api, version, correlation, body)))  # type: ignore[arg-type]

    def serve(listening: socket.socket) -> None:
        plain, _ = listening.accept()
        with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as secured:
            frame(secured)
            secured.sendall(answer(ApiKey.API_VERSIONS, 0, 1, served))
            frame(secured)
            frame(secured)
            secured.sendall(b"".join(answer(ApiKey.METADATA, 9, number, MetadataResponse()) for number in (2, 3)))
            frame(secured)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        port = listening.getsockname()[1]
        yield parse_connecting(
            {
                "kafka.bootstrap.servers": f"127.0.0.1:{port}",
                "kafka.security.protocol": "SSL",
                "kafka.ssl.ca.pem": authority.trust_pem,
            }
        )
    thread.join(60)
    assert not thread.is_alive()


def test_an_answer_that_openssl_has_decrypted_already_is_told_of(answers_in_one_record: Connecting) -> None:
    ((host, port),) = answers_in_one_record.bootstrap
    connection = Connection(host, port, client_id="c", timeout_s=60, security=answers_in_one_record.security)
    assert connection.is_reusable and not connection.has_waiting_bytes
    connection.send(ApiKey.METADATA, MetadataRequest(topics=[]))
    connection.send(ApiKey.METADATA, MetadataRequest(topics=[]))
    connection.take()
    assert select.select([connection], [], [], 0)[0] == []
    assert connection.has_waiting_bytes and not connection.is_reusable
    connection.take()
    assert connection.is_reusable and not connection.has_waiting_bytes
    connection.send(ApiKey.METADATA, MetadataRequest(topics=[]))
    with pytest.raises(ConnectionError, match="closed the connection"):
        connection.take()
    assert not connection.is_reusable
    connection.close()
