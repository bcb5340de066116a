"""Source and sink over TLS, as a user has them: real Spark, and brokers that ask their clients for certificates.

What is secret is looked for in all that Spark writes: plans, its event log, checkpoints, its output.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.testing import RunningCluster, cluster
from tests.authority import Authority, Issued
from tests.integration.clients.librdkafka import librdkafka_security
from tests.integration.clients.tls_stores import Stores
from tests.pipeline.spark_jvm import local_session, own_jvm

pytestmark = [pytest.mark.spark, pytest.mark.java]

MARK = "s3cret"
KEY_PASSWORD = f"{MARK}-of-the-key"


@dataclass(frozen=True)
class Session:
    """`log`: the folder of Spark's event log."""

    spark: Any
    log: Path


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def fleet(stores: Stores) -> Iterator[RunningCluster]:
    config = {**stores.broker_config, "listener.name.client.ssl.client.auth": "required"}
    with cluster(brokers=3, racks=3, config={**config, "auto.create.topics.enable": "false"}) as found:
        yield found


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    from bench.spark_read import stock_jars

    work = tmp_path_factory.mktemp("spark")
    (log := work / "events").mkdir()

    def opened() -> Any:
        settings = {"enabled": "true", "dir": f"file://{log}", "compress": "false", "rolling.enabled": "false"}
        confs = " ".join(f"--conf spark.eventLog.{name}={value}" for name, value in settings.items())
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{confs} pyspark-shell"
        return local_session(work, jars=stock_jars(work))

    with own_jvm(opened) as spark:
        yield Session(spark, log)


def create(fleet: RunningCluster, stores: Stores, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap, **librdkafka_security(stores.named)})
    for name in names:
        admin.create_topics([NewTopic(name, 2, 3)])[name].result(60)


def options(fleet: RunningCluster, security: dict[str, str]) -> dict[str, str]:
    return {"kafka.bootstrap.servers": fleet.bootstrap, **{f"kafka.{key}": value for key, value in security.items()}}


def in_values(stores: Stores, client: Issued) -> dict[str, str]:
    """All in values: nothing has to be on the machines of executors."""
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": stores.trust.read_text(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": client.key_pem(KEY_PASSWORD),
        "ssl.keystore.certificate.chain": client.chain_pem,
        "ssl.key.password": KEY_PASSWORD,
    }


def numbers(spark: Any, count: int) -> Any:
    return spark.range(0, count, 1, 2).selectExpr("cast(id as string) key", "cast(id as string) value")


def write(frame: Any, given: dict[str, str], **more: str) -> None:
    frame.write.format("ottla").options(**given, **more).mode("append").save()


def values(rows: Any) -> list[int]:
    return sorted(int(row.value) for row in rows.select("value").collect())


def test_a_stream_goes_from_topic_to_topic_with_certificates_of_both_sides(
    session: Session, fleet: RunningCluster, stores: Stores, tmp_path: Path
) -> None:
    create(fleet, stores, "from", "to")
    given = options(fleet, dict(stores.named))
    write(numbers(session.spark, 2000), given, topic="from")
    rows = session.spark.readStream.format("ottla").options(**given, subscribe="from", startingOffsets="earliest")
    query = (
        rows.load()
        .select("key", "value")
        .writeStream.format("ottla")
        .options(**given, topic="to", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    read = session.spark.read.format("ottla").options(**given, subscribe="to")
    assert values(read.option("kafka.isolation.level", "read_committed").load()) == list(range(2000))


@pytest.mark.long
def test_the_options_are_those_of_the_stock_connector(session: Session, fleet: RunningCluster, stores: Stores) -> None:
    create(fleet, stores, "both")
    given = options(fleet, dict(stores.named))
    write(numbers(session.spark, 500), given, topic="both")
    ours, theirs = (
        session.spark.read.format(connector).options(**given, subscribe="both").load()
        for connector in ("ottla", "kafka")
    )
    assert values(ours) == values(theirs) == list(range(500))


@pytest.mark.long
def test_no_secret_is_in_what_spark_writes(
    session: Session, fleet: RunningCluster, stores: Stores, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    create(fleet, stores, "secret", "secret-too")
    authority = stores.authority
    client = authority.issue(subject="client")
    given = options(fleet, in_values(stores, client))
    write(numbers(session.spark, 100), given, topic="secret")
    rows = session.spark.read.format("ottla").options(**given, subscribe="secret").load()
    shown = [str(rows._jdf.queryExecution().toString()), repr(rows)]
    rows.explain(extended=True)
    stream = session.spark.readStream.format("ottla").options(**given, subscribe="secret", startingOffsets="earliest")
    query = (
        stream.load()
        .select("value")
        .writeStream.format("ottla")
        .options(**given, topic="secret-too", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    shown += [query._jsq.explainInternal(True), query.lastProgress.json]
    wrong = {**given, "kafka.ssl.key.password": f"{MARK}-that-is-wrong"}
    with pytest.raises(Exception, match=r"ssl\.key\.password does not decrypt its private key") as raised:
        session.spark.read.format("ottla").options(**wrong, subscribe="secret").load().count()
    shown += [str(raised.value), *capfd.readouterr()]
    files = [*tmp_path.rglob("*"), *session.log.rglob("*")]
    shown += [path.read_text(errors="replace") for path in files if path.is_file()]
    assert any("SparkListenerSQLExecutionStart" in text for text in shown)
    key_lines = given["kafka.ssl.keystore.key"].splitlines()
    for secret in (MARK, key_lines[2]):
        assert [text for text in shown if secret in text] == []


@pytest.mark.long
def test_what_is_wrong_is_told_in_one_line(session: Session, fleet: RunningCluster, stores: Stores) -> None:
    few = {"fetchOffset.numRetries": "0", "subscribe": "from"}
    untrusted = Authority("a third authority").issue(subject="client").write(stores.trust.parent / "third.pem")
    named = dict(stores.named)
    for security, message in (
        ({**named, "ssl.truststore.locaton": "/x"}, "did you mean kafka.ssl.truststore.location?"),
        ({**named, "ssl.keystore.location": "/nowhere.pem"}, "kafka.ssl.keystore.location: /nowhere.pem: No such file"),
        ({**named, "ssl.keystore.location": str(untrusted)}, "does not trust the authority of the certificate"),
        (dict(stores.misled), "TLS handshake failed: the peer's certificate: "),
        ({}, "if its listener has TLS, set kafka.security.protocol=SSL"),
    ):
        with pytest.raises(Exception) as raised:
            session.spark.read.format("ottla").options(**options(fleet, security), **few).load().count()
        text = str(raised.value)
        assert message in text
        assert len(text.splitlines()) < 10
