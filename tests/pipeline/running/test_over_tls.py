"""A document over TLS, as a user runs it: `ottla pipeline run` with the file of Kafka's own tools."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.testing import RunningCluster, cluster
from ottla_broker.config.properties import format_properties
from tests.integration.clients.driver import Record
from tests.integration.clients.librdkafka import Librdkafka, librdkafka_security
from tests.integration.clients.tls_stores import Stores

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.long]

ROOT = Path(__file__).parents[3]
SECRET = "s3cret-of-the-store"
DOCUMENT = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: copy}
spec:
  bootstrapServers: BOOTSTRAP
  source: {topics: [orders], value: {format: json, schema: "amount int"}}
  steps:
  - {name: amounts, sql: "SELECT cast(value.amount AS string) AS value FROM source"}
  sink: {topic: {name: copies}}
  deadLetters: {topic: dead}
  trigger: {availableNow: true}
  checkpoint: {path: CHECKPOINT}
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def fleet(stores: Stores) -> Iterator[RunningCluster]:
    config = {**stores.broker_config, "listener.name.client.ssl.client.auth": "required"}
    with cluster(brokers=1, config=config) as found:
        yield found


def run(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", "-f", str(file), "--master", "local[2]"]
    path = os.pathsep.join(str(ROOT / name) for name in ("broker", "documents", "pipeline", "operator", "command"))
    return subprocess.run(
        [*command, *options], env={**os.environ, "PYTHONPATH": path}, cwd=file.parent, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip


def test_a_pipeline_reads_writes_and_sorts_out_over_tls_and_shows_no_secret(
    fleet: RunningCluster, stores: Stores, tmp_path: Path
) -> None:
    client: dict[str, Any] = {"bootstrap.servers": fleet.bootstrap, **librdkafka_security(stores.named)}
    admin = AdminClient(client)
    for name in ("orders", "copies", "dead"):
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    producer = Producer(client)
    for value in (b'{"amount": 1}', b'{"amount": 2}', b"no json"):
        producer.produce("orders", value=value)
    assert producer.flush(60) == 0
    (tmp_path / "client.p12").write_bytes(stores.authority.issue(subject="pipeline").pkcs12(SECRET))
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores.trust),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(tmp_path / "client.p12"),
        "ssl.keystore.password": SECRET,
    }
    (tmp_path / "client.properties").write_text(format_properties(given))
    file = tmp_path / "copy.yaml"
    checkpoint = tmp_path / "checkpoint"
    file.write_text(DOCUMENT.replace("BOOTSTRAP", fleet.bootstrap).replace("CHECKPOINT", str(checkpoint)))
    done = run(file, "--command-config", str(tmp_path / "client.properties"))
    assert done.returncode == 0, done.stdout + done.stderr
    reader = Librdkafka(stores.named)

    def values(topic: str) -> list[bytes | None]:
        records: list[Record] = list(reader.read(fleet.bootstrap, topic))
        return sorted((record.value for record in records), key=str)

    assert values("copies") == [b"1", b"2"]
    assert values("dead") == [b"no json"]
    shown = [done.stdout, done.stderr]
    shown += [path.read_text(errors="replace") for path in checkpoint.rglob("*") if path.is_file()]
    assert len(shown) > 5
    assert [text for text in shown if SECRET in text] == []


def test_a_document_without_the_keys_says_what_is_missing_in_its_own_words(
    fleet: RunningCluster, stores: Stores, tmp_path: Path
) -> None:
    file = tmp_path / "copy.yaml"
    text = DOCUMENT.replace("BOOTSTRAP", fleet.bootstrap).replace("CHECKPOINT", str(tmp_path / "checkpoint"))
    config = "{security.protocol: SSL, ssl.ca.location: /there/is/none.pem}"
    file.write_text(f"{text}  clientConfig: {config}\n  restartPolicy: Never\n")
    done = run(file)
    assert done.returncode == 3
    assert "spec.clientConfig.ssl.ca.location: /there/is/none.pem: No such file or directory" in done.stdout
