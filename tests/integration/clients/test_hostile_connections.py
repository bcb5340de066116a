"""Clients that begin a TLS handshake or an authentication and go no further, and those that try wrong passwords.

Each leaves the broker a bounded amount of memory, others are served meanwhile, and it is over when its time is.
`python -m bench.hostile` measures how long others wait.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.usage import resident_bytes
from ottla.local.ports import free_port
from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.metadata import MetadataRequest
from ottla_broker.security.sasl.jaas import PLAIN_MODULE
from tests.integration.clients.driver import LIMIT_S, await_that
from tests.integration.clients.security import wire
from tests.integration.clients.tls_stores import Stores
from tests.integration.processes import BrokerProcess

pytestmark = pytest.mark.long

HALF_OPEN = 9_000
"""As many as fit beside what a process has open otherwise, where it may have 10 000."""
MOST_BYTES_OF_EACH = 16 * 1024
WRONG_PASSWORDS = 200


class Target:
    """A broker of a process of its own, with a listener of TLS and one of SASL within TLS."""

    def __init__(self, directory: Path, zookeeper: str, stores: Stores) -> None:
        self.stores = stores
        self.tls, self.sasl = free_port(), free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{free_port()},SSL://127.0.0.1:{self.tls},SASL_SSL://127.0.0.1:{self.sasl}"
        self.broker = BrokerProcess(
            directory,
            0,
            zookeeper,
            {
                "listeners": listeners,
                "ssl.keystore.location": stores.broker_config["ssl.keystore.location"],
                "ssl.keystore.type": "PEM",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="right";',
                "ottla.ssl.handshake.timeout.ms": "60000",
                "connection.failed.authentication.delay.ms": "100",
            },
        )

    @property
    def resident_bytes(self) -> float:
        assert self.broker.process is not None
        return resident_bytes([self.broker.process.pid])

    def serves(self) -> bool:
        """Whether a client that comes now is served, over TLS and logged in."""
        login = {
            **self.stores.unnamed,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="right";',
        }
        with wire(f"127.0.0.1:{self.tls}", self.stores.unnamed) as one, wire(f"127.0.0.1:{self.sasl}", login) as other:
            request = MetadataRequest(topics=[])
            return all(len(client.ask(ApiKey.METADATA, 1, request).brokers) == 1 for client in (one, other))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    work = tmp_path_factory.mktemp("hostile")
    with ZooKeeperServer(work / "zookeeper") as zookeeper:
        found = Target(work / "broker", zookeeper.connect, Stores(work))
        try:
            found.broker.start()
            yield found
        finally:
            found.broker.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def half_a_hello() -> bytes:
    """The first bytes of a TLS handshake, which is not whole."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    return hello[: len(hello) // 2]


@pytest.mark.parametrize("sent", [b"", half_a_hello()], ids=["nothing", "half a hello"])
def test_half_open_handshakes_hold_little_memory_and_keep_nobody_out(
    target: Target, many_files: None, sent: bytes
) -> None:
    before = target.resident_bytes
    with contextlib.ExitStack() as stack:
        for _ in range(HALF_OPEN):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", target.tls), LIMIT_S))
            one.sendall(sent)
        assert target.serves()
        held = target.resident_bytes - before
        assert held < HALF_OPEN * MOST_BYTES_OF_EACH, f"{held / HALF_OPEN:.0f} bytes each"
    await_that(target.serves, "the broker serves when they are gone")


def test_a_renegotiation_ends_the_connection_of_whoever_asks_for_it(target: Target) -> None:
    """In TLS 1.2 a client may ask for handshakes without end within one connection, where that is allowed."""
    command = [
        "openssl",
        "s_client",
        "-connect",
        f"127.0.0.1:{target.tls}",
        "-tls1_2",
        "-CAfile",
        str(target.stores.trust),
    ]
    asked = subprocess.run(command, input=b"R\nR\n", capture_output=True, timeout=LIMIT_S, check=False)
    assert b"Verify return code: 0" in asked.stdout, asked.stderr
    assert asked.stderr.count(b"RENEGOTIATING") == 1 and b"no renegotiation" in asked.stderr
    assert target.serves()


@pytest.mark.public_report(17)
def test_wrong_passwords_keep_nobody_out_and_leave_nothing(target: Target) -> None:
    wrong = {
        **target.stores.unnamed,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="wrong";',
    }
    before = target.resident_bytes
    for number in range(WRONG_PASSWORDS):
        with pytest.raises(AssertionError, match=r"\b58\b"), wire(f"127.0.0.1:{target.sasl}", wrong):
            pass
        if number % 50 == 0:
            assert target.serves()
    assert target.resident_bytes - before < 16 * 1024 * 1024
    assert "wrong" not in target.broker.log
