"""A broker with an authorizer: it loads before a client is listened to, or does not start and says why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.adapters.process import make_ports
from ottla_broker.authorization.acls import AccessControlEntry, ResourcePattern
from ottla_broker.authorization.authorizer import AclCheck
from ottla_broker.authorization.resources import AclOperation, PermissionType, ResourceType
from ottla_broker.config import BrokerConfig
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.ports.coordination import ConnectionLoss
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.security.principals import Principal
from ottla_broker.server.assembly import authorizers, installed_packages
from ottla_broker.server.assembly.authorizers import AuthorizerContext, StartedAuthorizer
from ottla_broker.server.broker import Broker, StartRefused
from tests.integration.wire import Wire

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
DESCRIBE = codec.module(ApiKey.DESCRIBE_ACLS)
CLUSTER = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    made = EmbeddedStore(str(tmp_path / "coordination.db"))
    await made.open()
    yield made
    await made.close()


def _broker(directory: Path, store: EmbeddedStore, authorizer: str, **keys: str) -> tuple[Broker, EmbeddedCoordination]:
    config = BrokerConfig.from_mapping(
        {
            "broker.id": "1",
            "log.dirs": str(directory),
            "zookeeper.connect": "127.0.0.1:1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "authorizer.class.name": authorizer,
            **{key.replace("_", "."): value for key, value in keys.items()},
        }
    )
    coordination = EmbeddedCoordination(store, session_timeout_ms=2000)
    return Broker(config, make_ports(config, coordination)), coordination


async def _describe(broker: Broker) -> Any:
    request = DESCRIBE.DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, operation=1, permission_type=1
    )

    def ask() -> Any:
        with Wire("{}:{}".format(*broker.address("PLAINTEXT"))) as wire:
            return wire.ask(ApiKey.DESCRIBE_ACLS, 3, request)

    return await asyncio.to_thread(ask)


async def test_a_connection_has_the_rights_of_its_principal_and_address_as_they_are_now(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    broker, _ = _broker(tmp_path / "d0", store, ACL_AUTHORIZER)
    await broker.start()  # it is never ready: it may not tell itself the metadata, without a right on the cluster
    try:
        assert (await _describe(broker)).error_code == 31
        acls = broker._acls
        assert acls is not None
        for host, code in (("127.0.0.2", 31), ("127.0.0.1", 0)):
            entry = AccessControlEntry("User:ANONYMOUS", host, AclOperation.DESCRIBE, PermissionType.ALLOW)
            await acls.add(CLUSTER, frozenset({entry}))
            assert (await _describe(broker)).error_code == code
    finally:
        await broker.stop()


async def test_without_an_authorizer_there_are_no_acls(tmp_path: Path, store: EmbeddedStore) -> None:
    broker, coordination = _broker(tmp_path / "d0", store, "")
    await broker.start()
    await broker.ready()
    assert (await _describe(broker)).error_code == 54
    assert await coordination.exists("/kafka-acl") is None
    await broker.stop()


async def test_a_broker_that_cannot_read_the_acls_opens_no_listener(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, coordination = _broker(tmp_path / "d0", store, ACL_AUTHORIZER)
    children = coordination.children

    def lost(path: str, watch: Any = None) -> asyncio.Future[list[str]]:
        if path != "/kafka-acl":
            return children(path, watch)
        failed: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        failed.set_exception(ConnectionLoss(path))
        return failed

    monkeypatch.setattr(coordination, "children", lost)
    with pytest.raises(StartRefused, match="/kafka-acl"):
        await broker.start()
    with pytest.raises(KeyError):
        broker.address("PLAINTEXT")


async def test_an_authorizer_that_is_not_installed_is_refused_with_those_that_are(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for installed, words in (((), r"\(none is installed\)"), (("other", "acme"), r"\(acme, other\)")):
        _install(monkeypatch, installed, "tests.broker.server.test_authorizer_start:make_everything")
        broker, _ = _broker(tmp_path / "d0", store, "mine")
        with pytest.raises(StartRefused, match=words):
            await broker.start()


async def test_an_authorizer_of_an_installed_package_decides(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(monkeypatch, ["acme"], "tests.broker.server.test_authorizer_start:make_cluster_only")
    broker, _ = _broker(tmp_path / "d0", store, "acme", acme_rights="Describe:Cluster")
    await broker.start()
    assert (await _describe(broker)).error_code == 54  # allowed, and the authorizer has no ACLs
    await broker.stop()
    other, _ = _broker(tmp_path / "d0", store, "acme", acme_rights="Alter:Cluster")
    await other.start()
    assert (await _describe(other)).error_code == 31
    await other.stop()


async def test_an_authorizer_that_fails_keeps_the_broker_from_starting(
    tmp_path: Path, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(monkeypatch, ["acme"], "tests.broker.server.test_authorizer_start:make_none")
    broker, _ = _broker(tmp_path / "d0", store, "acme")
    with pytest.raises(StartRefused, match="acme failed to start: ValueError\\('no policy'\\)"):
        await broker.start()


class Rights:
    """Allows what acme.rights names, to everybody."""

    def __init__(self, rights: str) -> None:
        self.version = 0
        self._rights = rights

    def decide(self, principal: Principal, address: str, checks: Sequence[AclCheck]) -> list[bool]:
        return [f"{check.operation.label}:{check.resource_type.label}" == self._rights for check in checks]

    def allows_any(
        self, principal: Principal, address: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return False


async def make_cluster_only(context: AuthorizerContext) -> StartedAuthorizer:
    return StartedAuthorizer(Rights(context.config.static["acme.rights"]))


async def make_none(context: AuthorizerContext) -> StartedAuthorizer:
    raise ValueError("no policy")


def _install(monkeypatch: pytest.MonkeyPatch, names: Sequence[str], value: str) -> None:
    installed = EntryPoints(EntryPoint(name, value, authorizers.GROUP) for name in names)
    monkeypatch.setattr(installed_packages, "entry_points", lambda group: installed.select(group=group))
