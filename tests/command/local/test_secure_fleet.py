"""`ottla local up --secure`: a real fleet with TLS, passwords and ACLs, and its clients by the files that it writes."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import admin as confluent_admin
from confluent_kafka.admin import AdminClient

from ottla.local.jars import find_java, kafka_class_path
from tests.integration.local_fleet import MANIFESTS, Ottla, eventually, up_arguments

_WAIT_S = 60
_CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class Secure:
    """A secure fleet in a folder of its own. `printed`: all that the command has printed there."""

    def __init__(self, folder: Path) -> None:
        self._run = Ottla(folder)
        self.folder = folder
        self.data = folder / ".ottla" / "orders"
        self.printed: list[str] = []

    def __call__(self, *arguments: str, status: int = 0) -> str:
        self.printed.append(self._run(*arguments, status=status))
        return self.printed[-1]

    def settings(self, user: str) -> dict[str, Any]:
        """Of a client made of librdkafka."""
        lines = (self.data / "clients" / f"{user}.librdkafka.conf").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    @property
    def secrets(self) -> list[str]:
        found: dict[str, str] = json.loads((self.data / "security" / "passwords.json").read_text())
        key = (self.data / "security" / "brokers.pem").read_text().split("-----")[2]
        return [*found.values(), *key.split()]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    fleet = Secure(tmp_path_factory.mktemp("secure"))
    fleet(*up_arguments("--secure"))
    yield fleet
    fleet("down")


def line_of(printed: str, label: str) -> str:
    return next(line for line in printed.splitlines() if line.startswith(label)).removeprefix(label).strip()


def send(settings: dict[str, Any], topic: str, value: str) -> KafkaError | None:
    """Sends a record. Returns why it was refused."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": _WAIT_S * 1000})
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(2 * _WAIT_S) == 0
    return outcomes[0]


def read(settings: dict[str, Any], topic: str, group: str) -> str | int:
    """The first record of a topic, or the code of the error."""
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(2 * _WAIT_S)
        assert message is not None
        error = message.error()
        return error.code() if error else (message.value() or b"").decode()
    finally:
        consumer.close()


@pytest.mark.kcat
@pytest.mark.java
def test_the_commands_for_kcat_and_java_work_as_printed(fleet: Secure, tmp_path: Path) -> None:
    script = tmp_path / "kafka-console-consumer.sh"
    script.write_text(f"#!/bin/sh\nexec {find_java()} -cp '{kafka_class_path()}' {_CONSOLE_CONSUMER} \"$@\"\n")
    script.chmod(0o700)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def run(command: str) -> str:
        done = subprocess.run(
            command,
            shell=True,
            cwd=fleet.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout

    run(line_of(fleet.printed[0], "write"))
    assert run(line_of(fleet.printed[0], "read")) == "hello\n"


def test_app_writes_and_reads_its_own_topics_and_is_denied_others(fleet: Secure) -> None:
    app = fleet.settings("app")
    assert send(app, "app-orders", "one") is None
    assert read(app, "app-orders", "app-readers") == "one"
    denied = send(app, "flights", "two")
    assert denied is not None and denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert read(app, "flights", "app-readers-2") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert read(app, "app-orders", "readers") == KafkaError.GROUP_AUTHORIZATION_FAILED
    producer = Producer({**app, "transactional.id": "app-1"})
    producer.init_transactions(_WAIT_S)
    with pytest.raises(KafkaException) as refused:
        Producer({**app, "transactional.id": "other"}).init_transactions(_WAIT_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_admin_may_do_everything(fleet: Secure) -> None:
    admin = fleet.settings("admin")
    assert send(admin, "flights", "three") is None
    assert read(admin, "flights", "any") == "three"
    names: Any = confluent_admin
    anything = names.AclBindingFilter(
        names.ResourceType.ANY,
        None,
        names.ResourcePatternType.ANY,
        None,
        None,
        names.AclOperation.ANY,
        names.AclPermissionType.ANY,
    )
    client = AdminClient(admin)
    acls = client.describe_acls(anything).result(_WAIT_S)
    assert sorted((acl.principal, acl.restype.name, acl.name, acl.operation.name) for acl in acls) == [
        ("User:app", kind, "app-", operation)
        for kind, operations in (
            ("GROUP", ("DESCRIBE", "READ")),
            ("TOPIC", ("CREATE", "DESCRIBE", "READ", "WRITE")),
            ("TRANSACTIONAL_ID", ("DESCRIBE", "WRITE")),
        )
        for operation in operations
    ]


@pytest.mark.parametrize(
    "changes",
    [{"sasl.password": "wrong"}, {"security.protocol": "plaintext"}, {"security.protocol": "ssl"}],
    ids=["a wrong password", "without TLS", "without a password"],
)
def test_nobody_else_gets_in(fleet: Secure, changes: dict[str, str]) -> None:
    with pytest.raises(KafkaException):
        AdminClient({**fleet.settings("admin"), **changes}).list_topics(timeout=3)
    assert AdminClient(fleet.settings("admin")).list_topics(timeout=_WAIT_S).brokers


def test_the_brokers_own_listener_wants_their_certificate(fleet: Secure) -> None:
    port = json.loads((fleet.data / "fleet.json").read_text())["brokers"][0]["internal_port"]
    context = ssl.create_default_context(cafile=str(fleet.data / "clients" / "authority.pem"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # in TLS 1.3 a client learns later that it was refused
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"), socket.create_connection(("127.0.0.1", port)) as plain:
        context.wrap_socket(plain, server_hostname="127.0.0.1")
    context.load_cert_chain(fleet.data / "security" / "brokers.pem")
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        assert wrapped.version() == "TLSv1.2"


def test_other_documents_are_applied_while_it_runs(fleet: Secure, tmp_path: Path) -> None:
    changed = tmp_path / "cluster.yaml"
    text = (MANIFESTS / "cluster.yaml").read_text()
    changed.write_text(text.replace("min.insync.replicas: 2", "min.insync.replicas: 2, message.max.bytes: 2000000"))
    topics = tmp_path / "topics.yaml"
    topics.write_text((MANIFESTS / "topics.yaml").read_text().replace("flights", "bookings"))
    printed = fleet("up", "--secure", "-f", str(changed), "-f", str(topics))
    assert "config     message.max.bytes: from its default to 2000000" in printed
    assert "topic      bookings: created" in printed
    assert "restart" not in printed
    assert (
        line_of(printed, "security")
        == "SASL_SSL with SCRAM-SHA-512, and ACLs; settings of clients: .ottla/orders/clients"
    )


def of_ottla(folder: Path, *arguments: str) -> str:
    """The errors of a command that fails."""
    command = [sys.executable, "-m", "ottla.cli.main", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    return done.stderr


def test_a_disk_is_asked_about_as_in_any_fleet(fleet: Secure) -> None:
    directory = f"{fleet.data}/broker-1/d1"
    found = of_ottla(fleet.folder, "disk", "forget", "--broker", "1", "--dir", "d1", "--data", str(fleet.data))
    assert f"log directory {directory} of broker 1 is not offline" in found
    address = fleet.settings("admin")["bootstrap.servers"].split(",")[0]
    by_address = ["disk", "forget", "--broker", "1", "--dir", directory, "--bootstrap-server", address]
    found = of_ottla(fleet.folder, *by_address, "--command-config", str(fleet.data / "clients" / "admin.properties"))
    assert f"log directory {directory} of broker 1 is not offline" in found


def test_a_pipeline_is_told_which_settings_it_needs(fleet: Secure, tmp_path: Path) -> None:
    document = tmp_path / "copy.yaml"
    document.write_text(
        """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: copy}
spec:
  clusterRef: {name: orders}
  source: {topics: [app-in]}
  sink: {topic: {name: app-out}}
  checkpoint: {path: checkpoint}
"""
    )
    found = of_ottla(fleet.folder, "pipeline", "run", "-f", str(document))
    assert "the fleet is secure: add --command-config .ottla/orders/clients/admin.properties" in found


def test_status_shows_that_it_is_secure(fleet: Secure) -> None:
    shown = fleet("status")
    assert line_of(shown, "security").startswith("SASL_SSL with SCRAM-SHA-512, and ACLs; settings of clients: ")
    assert json.loads(fleet("status", "-o", "json"))["secure"] is True


def test_only_its_owner_reads_its_files(fleet: Secure) -> None:
    open_to_others = [path for path in fleet.data.rglob("*") if stat.S_IMODE(path.lstat().st_mode) & 0o077]
    assert open_to_others == [] and not stat.S_IMODE(fleet.data.stat().st_mode) & 0o077


def test_whether_it_is_secure_is_not_changed_while_it_runs_nor_later(fleet: Secure, tmp_path: Path) -> None:
    before = (fleet.data / "documents.yaml").read_bytes()
    other = tmp_path / "cluster.yaml"
    other.write_text((MANIFESTS / "cluster.yaml").read_text() + "# another\n")
    refusal = (
        f"{fleet.data} holds a secure fleet, as was chosen when it began: add --secure, or choose another --data\n"
    )
    assert fleet("up", "-f", str(other), status=1) == refusal
    fleet("down")
    assert fleet("up", "-f", str(other), status=1) == refusal
    assert (fleet.data / "documents.yaml").read_bytes() == before
    fleet(*up_arguments("--secure"))


def test_users_and_acls_outlive_a_restart(fleet: Secure) -> None:
    written = {path: path.read_bytes() for name in ("clients", "security") for path in (fleet.data / name).iterdir()}
    app = fleet.settings("app")
    assert send(app, "app-restart", "kept") is None
    fleet("down")
    fleet(*up_arguments("--secure"))
    assert {path: path.read_bytes() for path in written} == written
    assert read(app, "app-restart", "app-restarted") == "kept"
    denied = send(app, "flights", "no")
    assert denied is not None and denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_no_secret_is_printed_logged_or_on_a_command_line(fleet: Secure) -> None:
    brokers: list[dict[str, Any]] = json.loads(fleet("status", "-o", "json"))["brokers"]
    assert found_secrets(fleet, {int(broker["pid"]) for broker in brokers}) == []


_SPARK_JOB = """
import json, sys
import pyspark_ottla
from pyspark.sql import SparkSession
jars = sys.argv[2].split(",")
session = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[2]).config("spark.ui.enabled", "false")
spark = session.config("spark.driver.extraClassPath", ":".join(jars)).getOrCreate()
options = json.load(open(sys.argv[1]))
rows = spark.createDataFrame([("from spark",)], ["value"])
topic = f"app-{sys.argv[3]}"
own = {"kafka.transactional.id": "app-spark"} if sys.argv[3] == "ottla" else {}
rows.write.format(sys.argv[3]).options(**options, **own).option("topic", topic).mode("append").save()
found = spark.read.format(sys.argv[3]).options(**options).option("subscribe", topic).load()
print([row.value for row in found.selectExpr("CAST(value AS string)").collect()])
"""


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.long
@pytest.mark.parametrize("connector", ["kafka", "ottla"])
def test_spark_takes_the_options(
    fleet: Secure, connector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.spark_read import stock_jars

    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    options = str(fleet.data / "clients" / "app.spark.json")
    command = [sys.executable, "-c", _SPARK_JOB, options, ",".join(map(str, stock_jars(tmp_path))), connector]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("['from spark']")


@pytest.mark.java
def test_a_process_for_each_broker_and_a_real_zookeeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_LOG_LEVEL", "DEBUG")
    fleet = Secure(tmp_path)
    fleet(*up_arguments("--secure", "--processes"))
    try:
        app = fleet.settings("app")
        assert send(app, "app-orders", "one") is None
        denied = send(app, "flights", "two")
        assert denied is not None and denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        fleet("kill", "1")
        eventually(lambda: json.loads(fleet("status", "-o", "json"))["ready"], "the broker that is started again")
        fleet("down")
        fleet(*up_arguments("--secure", "--processes"))
        assert read(app, "app-orders", "app-readers") == "one"
        brokers: list[dict[str, Any]] = json.loads(fleet("status", "-o", "json"))["brokers"]
        pids = {int(broker["pid"]) for broker in brokers}
        assert len(pids) == 3
        assert found_secrets(fleet, pids) == []
    finally:
        fleet("down")


def found_secrets(fleet: Secure, pids: set[int]) -> list[str]:
    """Where a password or a line of the key can be read, apart from the files that are for it."""
    texts = {f"output {number}": text.encode() for number, text in enumerate(fleet.printed)}
    texts |= {
        f"{name} of {pid}": Path(f"/proc/{pid}/{name}").read_bytes()
        for pid in {*pids, *map(_parent, pids)} - {1}
        for name in ("cmdline", "environ")
    }
    own = (fleet.data / "clients", fleet.data / "security")
    for path in fleet.data.rglob("*"):
        if path.is_file() and path.parent not in own:
            texts[str(path)] = path.read_bytes()
    assert any(name.endswith(".log") for name in texts)
    return [name for name, text in texts.items() for secret in fleet.secrets if secret.encode() in text]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
