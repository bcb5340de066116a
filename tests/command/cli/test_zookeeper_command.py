"""`ottla zookeeper` and `ottla broker run` on the command line: what they say when they cannot reach ZooKeeper as
somebody. What the command does to a tree: `tests/mixed/test_secured_zookeeper.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.local.ports import free_port
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.config.zookeeper_security import JAAS_KEY
from ottla_broker.security.sasl.jaas import KERBEROS_MODULE
from tests.integration.processes import BrokerProcess
from tests.secured_zookeeper import ANYONE, LOGIN, broker_keys, client_options, jaas_line, sasl_server, session


def ottla(*arguments: str, options: str = "") -> tuple[int, str]:
    """The exit status of `ottla zookeeper`, and all that it has printed."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "zookeeper", *arguments],
        env={**os.environ, "KAFKA_OPTS": options},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "no login: give ottla.zookeeper.sasl.jaas.config or a client certificate"),
        ("zookeeper.ssl.client.enable=true", "no login: give"),
        (f"{JAAS_KEY}=hunter2", "stands none of required"),
        (f"{JAAS_KEY}={KERBEROS_MODULE} required password=hunter2;", "Kerberos (GSSAPI) towards ZooKeeper is not"),
        ("zookeeper.ssl.client.enable=true\nzookeeper.ssl.keystore.location=/nowhere.pem", "/nowhere.pem: No such"),
        ("zookeeper.ssl.protocol=SSLv3\nzookeeper.ssl.client.enable=true", "zookeeper.ssl.protocol"),
        (None, "No such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_in_a_line(tmp_path: Path, lines: str | None, said: str) -> None:
    file = tmp_path / "server.properties"
    if lines is not None:
        file.write_text(f"listeners=PLAINTEXT://:9092\nbroker.id=1\n{lines}\n")
    status, printed = ottla("secure", "--zk-tls-config-file", str(file))
    assert status == 1 and said in printed
    assert len(printed.splitlines()) == 1 and "hunter2" not in printed


@pytest.mark.parametrize("connect", ["", "a:1/x,b:2/y"])
def test_an_address_that_is_none_is_said(tmp_path: Path, connect: str) -> None:
    status, printed = ottla("secure", f"--zookeeper.connect={connect}", options=client_options(tmp_path))
    assert status == 1 and "zookeeper.connect" in printed and len(printed.splitlines()) == 1


def test_a_zookeeper_that_does_not_answer_is_said(tmp_path: Path) -> None:
    arguments = (f"--zookeeper.connect=127.0.0.1:{free_port()}", "--zookeeper.connection.timeout=500")
    status, printed = ottla("unsecure", *arguments, options=client_options(tmp_path))
    assert status == 1
    assert "answered in 0.5 s" in printed and "run the command again" in printed


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with sasl_server(tmp_path_factory.mktemp("sasl"), wants_sasl=True) as server:
        yield server


@pytest.mark.java
def test_a_wrong_password_is_said_and_never_shown(secured: ZooKeeperServer, tmp_path: Path) -> None:
    options = client_options(tmp_path, password="not-the-secret")
    arguments = (f"--zookeeper.connect={secured.connect}", "--zookeeper.connection.timeout=1000")
    status, printed = ottla("secure", *arguments, options=options)
    assert status == 1
    assert "SASL as user 'kafka': the server refuses the user or the password" in printed
    assert "not-the-secret" not in printed


@pytest.mark.java
async def test_a_tree_that_is_no_fleet_is_left_alone_on_demand(secured: ZooKeeperServer, tmp_path: Path) -> None:
    found = session(f"{secured.connect}/app", LOGIN, is_secure=False)
    await found.start()
    options = client_options(tmp_path)
    status, printed = ottla("secure", f"--zookeeper.connect={secured.connect}/none", options=options)
    assert status == 1 and "/none: there is no such chroot" in printed
    assert await session_has_no("/none", secured)
    connect = f"--zookeeper.connect={secured.connect}/app"
    status, printed = ottla("secure", connect, "--enable.path.check", options=options)
    assert status == 1 and "there is no /admin, /brokers" in printed and "Nothing is changed" in printed
    assert (await found.acl("/"))[0] == ANYONE
    status, printed = ottla("secure", connect, options=options)
    assert status == 0 and "is it the chroot of a fleet?" in printed and "1 znodes, 1 changed" in printed
    assert (await found.acl("/"))[0] != ANYONE
    await found.close()


async def session_has_no(path: str, server: ZooKeeperServer) -> bool:
    asked = session(server.connect)
    await asked.start()
    stat = await asked.exists(path)
    await asked.close()
    return stat is None


@pytest.mark.java
async def test_the_znodes_of_another_user_are_named(secured: ZooKeeperServer, tmp_path: Path) -> None:
    found = session(f"{secured.connect}/two")
    await found.start()
    await found.create("/brokers")
    await found.create("/config")
    await found.set_acl("/", ANYONE)
    file = tmp_path / "server.properties"
    file.write_text(f"{JAAS_KEY}={jaas_line('other', 'other-secret')}\n".replace("\\", "\\\\"))
    status, printed = ottla("unsecure", f"--zookeeper.connect={secured.connect}/two", "--zk-tls-config-file", str(file))
    assert status == 1
    assert (
        "2 znodes and what is below them belong to another user, who has to run the command: /brokers, /config"
        in printed
    )
    await found.close()


@pytest.mark.java
@pytest.mark.parametrize("has_login", [True, False])
def test_a_broker_that_zookeeper_does_not_let_in_ends_with_the_reason(
    secured: ZooKeeperServer, tmp_path: Path, has_login: bool
) -> None:
    keys = broker_keys(password="not-the-secret") if has_login else {}
    connect = f"{secured.connect}/never"
    broker = BrokerProcess(tmp_path, 0, connect, {**keys, "zookeeper.connection.timeout.ms": "1000"})
    broker.launch()
    assert broker.wait() == 1
    reason = "the server refuses the user or the password" if has_login else "give ottla.zookeeper.sasl.jaas.config"
    assert reason in broker.log.splitlines()[-1]
    assert "Traceback" not in broker.log and "not-the-secret" not in broker.log


def test_a_broker_whose_jaas_file_cannot_be_used_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f"Client {{ {KERBEROS_MODULE} required principal=hunter2; }};")
    broker = BrokerProcess(tmp_path / "broker", 0, f"127.0.0.1:{free_port()}")
    broker.environment["KAFKA_OPTS"] = f"-Djava.security.auth.login.config={file}"
    broker.launch()
    assert broker.wait() == 1
    (line,) = broker.log.splitlines()
    assert line.startswith(f"KAFKA_OPTS: java.security.auth.login.config={file}: section Client: Kerberos (GSSAPI)")
    assert "hunter2" not in line
