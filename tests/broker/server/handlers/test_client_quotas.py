"""DescribeClientQuotas and AlterClientQuotas on a real embedded store, seen by two brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.config import BrokerConfig
from ottla_broker.coordination import znodes
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.coordination.quota_znodes import entity_path, parse_entity_path
from ottla_broker.ports.coordination import NoNode
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import alter_client_quotas as alter
from ottla_broker.protocol.generated import describe_client_quotas as describe
from ottla_broker.quotas.entities import DEFAULT, QuotaEntity
from ottla_broker.server.handlers import alter_client_quotas, describe_client_quotas
from ottla_broker.server.store.dynamic_config import DynamicConfig
from tests.broker.server.contexts import handler_context

WAIT_S = 60
Names = dict[str, str | None]
CONTEXT: Any = handler_context()


class Broker:
    """One broker's session and quotas."""

    def __init__(self, store: EmbeddedStore, broker_id: int) -> None:
        self.store = store
        self.clock = LoopClock()
        self.coordination = EmbeddedCoordination(store)
        self.in_force: dict[QuotaEntity, Mapping[str, str]] = {}
        self.changed = asyncio.Event()
        self.dynamic = DynamicConfig(
            BrokerConfig.from_mapping({}),
            broker_id,
            self.coordination,
            self.clock,
            lambda topic, config: None,
            logging.getLogger("ottla.test"),
            self._on_quotas,
        )
        self.services: Any = SimpleNamespace(dynamic_config=self.dynamic, resolve=self._resolve)

    def _on_quotas(self, entity: QuotaEntity, values: Mapping[str, str]) -> None:
        self.in_force[entity] = values
        self.changed.set()

    async def _resolve(self, host: str) -> list[str]:
        if host.endswith(".invalid"):
            raise OSError("unknown")
        return [host]

    async def alter(self, *entries: tuple[Names, dict[str, float | None]], only: bool = False) -> list[tuple[int, str]]:
        """(error, message) by entry; None removes a key."""
        response = await alter_client_quotas.handle(self.services, CONTEXT, request(*entries, only=only))
        return [(entry.error_code, entry.error_message or "") for entry in response.entries]

    async def set(self, names: Names, **values: float | None) -> None:
        assert await self.alter((names, dict(values))) == [(0, "")]

    async def describe(self, *components: tuple[str, int, str | None], strict: bool = False) -> dict[str, Any]:
        asked = quota_filter(*components, strict=strict)
        response = await describe_client_quotas.handle(self.services, CONTEXT, asked)
        assert response.error_code == 0 and response.entries is not None
        return {
            " ".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries
        }

    async def until(self, entity: QuotaEntity, values: Mapping[str, str]) -> None:
        """Returns when these values have been reported."""

        async def reported() -> None:
            while self.in_force.get(entity) != values:
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(reported(), WAIT_S)


def quota_filter(
    *components: tuple[str, int, str | None], strict: bool = False
) -> describe.DescribeClientQuotasRequest:
    return describe.DescribeClientQuotasRequest(
        components=[describe.ComponentData(entity_type=t, match_type=m, match=n) for t, m, n in components],
        strict=strict,
    )


def request(*entries: tuple[Names, dict[str, float | None]], only: bool = False) -> alter.AlterClientQuotasRequest:
    return alter.AlterClientQuotasRequest(
        entries=[
            alter.EntryData(
                entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()],
                ops=[alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
            )
            for names, values in entries
        ],
        validate_only=only,
    )


@pytest_asyncio.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[tuple[Broker, Broker]]:
    store = EmbeddedStore(str(tmp_path / "coordination.sqlite"))
    pair = (Broker(store, 0), Broker(store, 1))
    for broker in pair:
        await broker.coordination.start()
    for path in znodes.PERSISTENT_PATHS:
        for depth in range(2, path.count("/") + 2):
            parent = "/".join(path.split("/")[:depth])
            if await pair[0].coordination.exists(parent) is None:
                await pair[0].coordination.create(parent)
    for broker in pair:
        await broker.dynamic.start()
    yield pair
    for broker in pair:
        broker.clock.cancel_all()
        await broker.coordination.close()
    await store.close()


async def test_a_quota_is_in_force_on_both_brokers_and_is_described(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    await one.set({"user": "alice", "client-id": None}, producer_byte_rate=1000.0, request_percentage=12.5)
    entity, stored = QuotaEntity(user="alice", client_id=DEFAULT), {
        "producer_byte_rate": "1000",
        "request_percentage": "12.5",
    }  # fmt: skip
    assert one.in_force[entity] == stored
    await other.until(entity, stored)
    values = {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    assert await other.describe() == {"user=alice client-id=None": values}
    assert await other.describe(("user", 0, "alice"), strict=True) == {}


async def test_quotas_are_stored_as_apache_kafka_stores_them(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    await one.set({"user": "CN=a/b, O=ü"}, consumer_byte_rate=5.0)
    await one.set({"client-id": "my app"}, controller_mutation_rate=2e7)
    await one.set({"ip": None}, connection_creation_rate=7.0)
    contents = {
        "users/CN%3Da%2Fb%2C%20O%3D%C3%BC": b'{"version":1,"config":{"consumer_byte_rate":"5"}}',
        "clients/my%20app": b'{"version":1,"config":{"controller_mutation_rate":"2.0E7"}}',
        "ips/<default>": b'{"version":1,"config":{"connection_creation_rate":"7"}}',
    }
    for path, content in contents.items():
        assert (await one.coordination.get(f"/config/{path}"))[0] == content
    changes = await one.coordination.children(znodes.CONFIG_CHANGES)
    notified = [(await one.coordination.get(f"{znodes.CONFIG_CHANGES}/{name}"))[0] for name in changes]
    assert notified == [f'{{"version":2,"entity_path":"{path}"}}'.encode() for path in contents]
    assert set(await one.describe()) == {"user=CN=a/b, O=ü", "client-id=my app", "ip=None"}


async def test_removed_quotas_leave_no_nodes_behind(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    both, user = {"user": "u", "client-id": "c"}, {"user": "u"}
    await one.set(both, producer_byte_rate=1.0)
    await one.set({"user": "u", "client-id": None}, producer_byte_rate=1.0)
    await one.set(user, producer_byte_rate=2.0)
    await one.set(both, producer_byte_rate=None)
    assert await one.coordination.children("/config/users/u/clients") == ["<default>"]
    await one.set(user, producer_byte_rate=None)
    assert await one.describe() == {"user=u client-id=None": {"producer_byte_rate": 1.0}}
    await one.set({"user": "u", "client-id": None}, producer_byte_rate=None)
    with pytest.raises(NoNode):
        await one.coordination.get("/config/users/u")
    await other.until(QuotaEntity(user="u"), {})
    await other.until(QuotaEntity(user="u", client_id=DEFAULT), {})
    await one.set(user, producer_byte_rate=None)  # there is nothing to remove, and that is fine


async def test_credentials_of_a_user_stay_when_its_quotas_go(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    await one.coordination.create("/config/users/u", znodes.encode_config({"SCRAM-SHA-256": "salt=x"}))
    assert await one.describe() == {}
    await one.set({"user": "u"}, producer_byte_rate=1.0)
    assert await one.describe() == {"user=u": {"producer_byte_rate": 1.0}}
    await one.set({"user": "u"}, producer_byte_rate=None)
    assert await one.dynamic.stored("users", "u") == {"SCRAM-SHA-256": "salt=x"}


async def test_concurrent_changes_of_one_entity_both_take_effect(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    names: Names = {"user": "u", "client-id": "c"}
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    for value in (5.0, None, 6.0, None):
        await asyncio.gather(
            *(broker.set(names, **{key: value}) for broker, key in zip((one, other) * 2, keys, strict=True))
        )
        found = await one.describe()
        assert found == ({"user=u client-id=c": dict.fromkeys(keys, value)} if value else {})


async def test_only_the_bad_entries_of_a_request_are_refused(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    invalid = int(ErrorCode.INVALID_REQUEST)
    results = await one.alter(
        ({"user": "u"}, {"producer_byte_rate": 1.0}),
        ({"user": "u", "ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"client-id": "c"}, {"nope": 1.0}),
        ({"client-id": ".."}, {"producer_byte_rate": 1.0}),
        ({"ip": "host.invalid"}, {"connection_creation_rate": 1.0}),
        ({"ip": "::1"}, {"connection_creation_rate": 1.0}),
        ({}, {"producer_byte_rate": 1.0}),
    )
    assert [code for code, _ in results] == [0, *[invalid] * 6]
    assert results[2][1] == "Invalid configuration key nope"
    assert results[4][1] == "host.invalid is not a valid IP or resolvable host."
    assert await one.describe() == {"user=u": {"producer_byte_rate": 1.0}}


async def test_an_entity_that_is_named_twice_has_one_result(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    results = await one.alter(
        ({"user": "u"}, {"producer_byte_rate": 1.0}), ({"user": "u"}, {"consumer_byte_rate": 2.0})
    )
    assert results == [(0, "")]
    assert await one.describe() == {"user=u": {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}}


async def test_validate_only_stores_nothing(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    assert await one.alter(({"user": "u"}, {"producer_byte_rate": 1.0}), only=True) == [(0, "")]
    assert (await one.alter(({"user": "u"}, {"nope": 1.0}), only=True))[0][0] == ErrorCode.INVALID_REQUEST
    assert await one.describe() == {} and not one.in_force


async def test_quotas_are_in_force_after_a_restart_and_after_a_lost_session(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    entity = QuotaEntity(client_id="c")
    await one.set({"client-id": "c"}, producer_byte_rate=1.0)
    await one.set({"user": "gone"}, producer_byte_rate=1.0)
    await other.until(QuotaEntity(user="gone"), {"producer_byte_rate": "1"})
    late = Broker(one.store, 2)
    await late.coordination.start()
    await late.dynamic.start()
    assert late.in_force[entity] == {"producer_byte_rate": "1"}
    late.clock.cancel_all()
    await late.coordination.close()
    other.store.expire_session(other.coordination.session_id)
    await one.set({"user": "gone"}, producer_byte_rate=None)
    await one.set({"client-id": "c"}, producer_byte_rate=3.0)
    await other.until(entity, {"producer_byte_rate": "3"})
    await other.until(QuotaEntity(user="gone"), {})


async def test_a_node_that_apache_kafka_would_not_write_is_ignored(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    await one.coordination.create("/config/users/broken", b"{")
    await one.coordination.create("/config/clients/c", znodes.encode_config({"producer_byte_rate": "many"}))
    await one.coordination.create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("users/a/b"), sequence=True)
    await one.set({"user": "u"}, producer_byte_rate=1.0)
    assert await one.describe() == {"user=u": {"producer_byte_rate": 1.0}}
    await other.until(QuotaEntity(user="u"), {"producer_byte_rate": "1"})


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", 1, None)], 42, "Unexpected empty filter component entity type"),
        ([("nope", 1, None), ("user", 1, None), ("user", 1, None)], 35, "Custom entity type 'nope' not supported"),
        ([("user", 1, None), ("user", 2, None)], 42, "Duplicate user filter component entity type"),
        ([("client-id", 1, None), ("client-id", 2, None)], 42, "Duplicate client filter component entity type"),
        (
            [("ip", 1, None), ("user", 1, None)],
            42,
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId "
            "filter component.",
        ),
        ([("user", 7, None)], 42, "Match type 7 does not exist"),
        ([("user", 0, None)], 42, "The exact match of entity type 'user' has no name"),
    ],
)
async def test_an_invalid_filter_is_refused(
    components: list[tuple[str, int, str | None]], code: int, message: str
) -> None:
    response = await describe_client_quotas.handle(CONTEXT, CONTEXT, quota_filter(*components))
    assert (response.error_code, response.error_message, response.entries) == (code, message, None)


def test_the_path_of_an_entity_is_read_back() -> None:
    for entity in (
        QuotaEntity(user="a b"),
        QuotaEntity(user=DEFAULT, client_id="<default>"),
        QuotaEntity(client_id=DEFAULT),
        QuotaEntity(ip="10.0.0.1"),
    ):
        assert parse_entity_path(entity_path(entity)) == entity
    for path in ("topics/t", "users", "users/a/b", "users/a/clients", "users/a/clients/c/d", "ips/"):
        with pytest.raises(znodes.ZnodeError):
            parse_entity_path(path)
