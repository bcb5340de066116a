"""A ZooKeeper that knows users by SASL, and who they are to it: for tests of ours and of Apache Kafka beside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ottla.local.zookeeper_server import JVM_OPTIONS, ZooKeeperServer
from ottla_broker.config.zookeeper_security import JAAS_KEY
from ottla_broker.coordination.znode_acls import Acl, open_acl, secure_acl
from ottla_broker.coordination.zookeeper import ZooKeeperCoordination
from ottla_broker.security.sasl.digest_md5 import DIGEST_MD5
from ottla_broker.security.sasl.jaas import DIGEST_MODULE
from ottla_broker.security.sasl.login import SaslLogin

USERS = {"kafka": "kafka-secret", "other": "other-secret", "Žofie": 'pä"ss\\wörd'}
LOGIN = SaslLogin(DIGEST_MD5, "kafka", USERS["kafka"])
ANYONE: Acl = ((31, "world", "anyone"),)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def jaas_line(user: str = "kafka", password: str = USERS["kafka"]) -> str:
    return f"{DIGEST_MODULE} required username={_quoted(user)} password={_quoted(password)};"


def broker_keys(user: str = "kafka", password: str = USERS["kafka"], *, set_acl: bool = True) -> dict[str, str]:
    """Of a broker of ours."""
    return {JAAS_KEY: jaas_line(user, password), "zookeeper.set.acl": str(set_acl).lower()}


def client_options(folder: Path, user: str = "kafka", password: str = USERS["kafka"]) -> str:
    """What Java is given for a login of Apache Kafka, as KAFKA_OPTS has it."""
    path = folder / f"{user}_jaas.conf"
    path.write_text(f"Client {{ {jaas_line(user, password)} }};", "utf-8")
    return f"-Djava.security.auth.login.config={path}"


def sasl_server(
    directory: Path, users: Mapping[str, str] = USERS, *, port: int = 0, tick_ms: int = 500, wants_sasl: bool = False
) -> ZooKeeperServer:
    """Not started. `wants_sasl`: sessions without it are refused."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "server_jaas.conf"
    options = " ".join(f"{_quoted(f'user_{user}')}={_quoted(password)}" for user, password in users.items())
    path.write_text(f"Server {{ {DIGEST_MODULE} required {options}; }};", "utf-8")
    return ZooKeeperServer(
        directory,
        port=port,
        tick_ms=tick_ms,
        jvm_options=(*JVM_OPTIONS, f"-Djava.security.auth.login.config={path}"),
        settings={
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            **({"sessionRequireClientSASLAuth": "true"} if wants_sasl else {}),
        },
    )


def session(
    connect: str,
    login: SaslLogin | None = LOGIN,
    *,
    is_secure: bool = True,
    timeout_ms: int = 10_000,
    connection_timeout_ms: int = 30_000,
) -> ZooKeeperCoordination:
    """Not started."""
    return ZooKeeperCoordination(
        connect,
        session_timeout_ms=timeout_ms,
        connection_timeout_ms=connection_timeout_ms,
        login=login,
        acl_of=secure_acl if is_secure else open_acl,
    )


async def acls_below(found: ZooKeeperCoordination, path: str = "/") -> dict[str, Acl]:
    """Of every node, sorted."""
    acls = {path: tuple(sorted((await found.acl(path))[0]))}
    for name in await found.children(path):
        if path + name != "/zookeeper":
            acls |= await acls_below(found, f"{path.rstrip('/')}/{name}")
    return acls
