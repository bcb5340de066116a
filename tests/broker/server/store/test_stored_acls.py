"""The ACLs in the coordination store, as two brokers read and change them, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla_broker.authorization.acl_authorizer import AclAuthorizer
from ottla_broker.authorization.acls import AccessControlEntry, ResourcePattern
from ottla_broker.authorization.authorizer import AclCheck
from ottla_broker.authorization.resources import AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.coordination import security_znodes as znodes
from ottla_broker.ports.coordination import CoordinationError
from ottla_broker.protocol.errors import ErrorCode, KafkaError
from ottla_broker.security.principals import Principal
from ottla_broker.server.store.stored_acls import StoredAcls
from simulation.coordination import SimulatedCoordination
from tests.broker.server.virtual_store import Sessions, in_virtual_time

T = ResourcePattern(ResourceType.TOPIC, "t")
PREFIX = ResourcePattern(ResourceType.TOPIC, "t", PatternType.PREFIXED)
GROUP = ResourcePattern(ResourceType.GROUP, "g")
PATH = "/kafka-acl/Topic/t"


def allow(user: str, operation: AclOperation = AclOperation.READ) -> AccessControlEntry:
    return AccessControlEntry(f"User:{user}", "*", operation, PermissionType.ALLOW)


def acls_of(*users: str) -> frozenset[AccessControlEntry]:
    return frozenset(map(allow, users))


class Broker:
    def __init__(self, sessions: Sessions, coordination: SimulatedCoordination) -> None:
        self.coordination = coordination
        self.authorizer = AclAuthorizer()
        self.acls = StoredAcls(self.authorizer, coordination, sessions.clock, logging.getLogger("test"))

    def may(self, user: str, topic: str = "t") -> bool:
        check = AclCheck(AclOperation.READ, ResourceType.TOPIC, topic)
        return self.authorizer.decide(Principal("User", user), "10.0.0.7", [check]) == [True]


class Two:
    """Two brokers on one store."""

    def __init__(self, sessions: Sessions) -> None:
        self.store = sessions.store
        self.settle = sessions.settle
        self.clock = sessions.clock
        self.one, self.other = Broker(sessions, sessions.broker), Broker(sessions, sessions.controller)

    async def start(self) -> Two:
        await self.one.acls.start()
        await self.other.acls.start()
        return self


def with_two(scenario: Callable[[Two], Coroutine[Any, Any, None]]) -> None:
    in_virtual_time(lambda sessions: scenario(Two(sessions)))


def test_the_first_start_makes_the_paths_of_apache_kafka() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        types = ["Cluster", "DelegationToken", "Group", "Topic", "TransactionalId", "User"]
        assert two.store.names("/kafka-acl") == types
        assert two.store.names("/kafka-acl-extended") == ["prefixed"]
        assert two.store.names("/kafka-acl-extended/prefixed") == types
        assert two.store.names("/kafka-acl-changes") == two.store.names("/kafka-acl-extended-changes") == []

    with_two(scenario)


@pytest.mark.parametrize("pattern", [T, PREFIX])
def test_a_change_is_in_force_here_at_once_and_elsewhere_soon(pattern: ResourcePattern) -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        await two.one.acls.add(pattern, acls_of("alice", "bob"))
        assert two.one.may("alice")
        await two.clock.sleep(1)
        assert two.other.may("alice")
        assert await two.other.acls.remove(pattern, lambda entry: entry == allow("alice")) == acls_of("alice")
        assert not two.other.may("alice")
        await two.clock.sleep(1)
        assert not two.one.may("alice")
        assert two.one.may("bob")
        assert two.one.acls.known == two.other.acls.known == {pattern: acls_of("bob")}

    with_two(scenario)


def test_the_znodes_are_those_that_apache_kafka_writes() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        await two.one.acls.add(T, acls_of("alice"))
        await two.one.acls.add(PREFIX, acls_of("alice"))
        acl = (
            b'{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}'
        )
        assert two.store.data(PATH) == two.store.data("/kafka-acl-extended/prefixed/Topic/t") == acl
        assert two.store.data("/kafka-acl-changes/acl_changes_0000000000") == b"TOPIC:t"
        assert two.store.data("/kafka-acl-extended-changes/acl_changes_0000000000") == (
            b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}'
        )

    with_two(scenario)


@pytest.mark.public_report(12)
def test_the_first_acls_of_a_resource_from_two_brokers_at_once_both_hold() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        for number in range(20):
            pattern = ResourcePattern(ResourceType.TOPIC, f"t{number}")
            await asyncio.gather(
                two.one.acls.add(pattern, acls_of("alice")), two.other.acls.add(pattern, acls_of("bob"))
            )
            await two.settle()
            for broker in (two.one, two.other):
                assert broker.acls.known[pattern] == acls_of("alice", "bob")
            await asyncio.gather(
                two.one.acls.remove(pattern, lambda entry: entry == allow("alice")),
                two.other.acls.add(pattern, acls_of("carol")),
                two.other.acls.remove(pattern, lambda entry: entry == allow("bob")),
            )
            await two.settle()
            for broker in (two.one, two.other):
                assert broker.acls.known[pattern] == acls_of("carol")

    with_two(scenario)


def test_the_last_acl_of_a_resource_deletes_its_znode() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        await two.one.acls.add(T, acls_of("alice", "bob"))
        await two.one.acls.remove(T, lambda entry: entry == allow("bob"))
        assert two.store.data(PATH) is not None
        await two.one.acls.remove(T, lambda entry: True)
        assert two.store.data(PATH) is None
        await two.settle()
        assert two.other.acls.known == {}
        changes = len(two.store.names("/kafka-acl-changes"))
        assert await two.other.acls.remove(T, lambda entry: True) == frozenset()
        assert len(two.store.names("/kafka-acl-changes")) == changes == 3

    with_two(scenario)


@pytest.mark.public_report(13)
def test_what_changes_while_a_broker_loads_is_seen() -> None:
    """Whenever in the load it changes: a millisecond later each time, until it is loaded before."""
    for delay_ms in range(1000):
        if not _changes_while_a_broker_loads(delay_ms / 1000):
            break
    assert delay_ms > 20


def _changes_while_a_broker_loads(delay_s: float) -> bool:
    """Whether the broker was still loading."""
    was_loading = True

    async def scenario(two: Two) -> None:
        await two.one.acls.start()
        for name in "abcdef":
            await two.one.acls.add(ResourcePattern(ResourceType.TOPIC, name), acls_of("alice"))
        loading = asyncio.ensure_future(two.other.acls.start())
        await two.clock.sleep(delay_s)
        nonlocal was_loading
        was_loading = not loading.done()
        await two.one.acls.add(T, acls_of("alice"))
        await two.one.acls.remove(ResourcePattern(ResourceType.TOPIC, "a"), lambda entry: True)
        await two.one.acls.add(PREFIX, acls_of("alice"))
        await loading
        await two.settle()
        assert two.other.acls.known == two.one.acls.known, delay_s

    with_two(scenario)
    return was_loading


def test_what_changed_while_the_session_was_lost_is_read_also_without_its_change_node() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        await two.one.acls.add(GROUP, acls_of("alice"))
        await two.one.acls.add(PREFIX, acls_of("alice"))
        await two.settle()
        two.store.expire(two.other.coordination.session_id)
        await two.one.acls.add(T, acls_of("bob"))
        await two.one.acls.remove(PREFIX, lambda entry: True)
        for root in (znodes.ACL_CHANGES, znodes.EXTENDED_ACL_CHANGES):
            for name in two.store.names(root):
                two.store.remove(f"{root}/{name}")
        await two.settle()
        assert two.other.acls.known == two.one.acls.known == {GROUP: acls_of("alice"), T: acls_of("bob")}

    with_two(scenario)


def test_a_change_whose_node_somebody_deletes_at_once_is_read_all_the_same() -> None:
    """As a broker of Apache Kafka does whose clock is a quarter of an hour late."""

    async def scenario(two: Two) -> None:
        await two.start()
        for number in range(30):
            pattern = ResourcePattern(ResourceType.TOPIC, f"t{number}")
            await two.one.acls.add(pattern, acls_of("alice"))
            await two.clock.sleep(number / 1000)
            for name in two.store.names(znodes.ACL_CHANGES):
                two.store.remove(f"{znodes.ACL_CHANGES}/{name}")
            await two.settle()
            assert two.other.may("alice", pattern.name), number

    with_two(scenario)


def test_a_change_whose_node_is_deleted_together_with_older_ones_is_read_all_the_same() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        for number in range(20):
            await two.one.acls.add(ResourcePattern(ResourceType.TOPIC, f"older{number}"), acls_of("alice"))
            await two.settle()
            pattern = ResourcePattern(ResourceType.TOPIC, f"t{number}")
            await two.one.acls.add(pattern, acls_of("alice"))
            await two.clock.sleep(number / 2000)
            for name in two.store.names(znodes.ACL_CHANGES):
                two.store.remove(f"{znodes.ACL_CHANGES}/{name}")
            await two.settle()
            assert two.other.may("alice", pattern.name), number

    with_two(scenario)


def test_what_was_known_stays_in_force_while_the_store_cannot_be_reached() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        await two.one.acls.add(T, acls_of("alice"))
        two.store.disconnect(two.one.coordination, 5)
        await two.clock.sleep(1)
        assert two.one.may("alice")
        await two.other.acls.remove(T, lambda entry: True)
        assert two.one.may("alice")
        await two.clock.sleep(10)
        assert not two.one.may("alice")

    with_two(scenario)


@pytest.mark.parametrize(
    "damaged",
    [
        b"no json",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[{"principal":"User:a"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly","host":"*"}]}',
    ],
)
def test_a_znode_that_cannot_be_read_leaves_what_was_known_in_force(
    damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        await two.one.acls.add(T, acls_of("alice"))
        await two.settle()
        version = two.other.authorizer.version
        await two.one.coordination.set(PATH, damaged)
        await two.one.coordination.create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequence=True)
        await two.settle()
        assert two.other.may("alice")
        assert two.other.authorizer.version == version
        assert PATH in caplog.text
        with pytest.raises(KafkaError, match=PATH) as refused:
            await two.other.acls.add(T, acls_of("bob"))
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        # Corrected, it is in force again.
        await two.one.coordination.set(PATH, znodes.encode_acls(acls_of("bob")))
        await two.one.coordination.create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequence=True)
        await two.settle()
        assert two.other.acls.known == {T: acls_of("bob")}

    with_two(scenario)


def test_a_znode_that_could_never_be_read_denies_everything_of_its_pattern() -> None:
    async def scenario(two: Two) -> None:
        await two.one.acls.start()
        await two.one.acls.add(ResourcePattern(ResourceType.TOPIC, "*"), acls_of("alice"))
        await two.one.coordination.create(PATH, b"no json")
        await two.other.acls.start()
        assert not two.other.may("alice", "t")
        assert two.other.may("alice", "other")

    with_two(scenario)


def test_nodes_that_mean_nothing_are_left_alone() -> None:
    async def scenario(two: Two) -> None:
        await two.one.acls.start()
        one = two.one.coordination
        await one.create("/kafka-acl/Planet")
        await one.create("/kafka-acl/Planet/mars", b"x")
        await two.other.acls.start()
        for change in (b"nothing", b"PLANET:mars", b"TOPIC:", b"TOPIC:a/b", b"\xff"):
            await one.create("/kafka-acl-changes/acl_changes_", change, sequence=True)
        await one.create("/kafka-acl-changes/something-else")
        await one.create("/kafka-acl-extended-changes/acl_changes_", b"{}", sequence=True)
        await two.settle()
        await two.one.acls.add(T, acls_of("alice"))
        await two.settle()
        assert two.other.acls.known == {T: acls_of("alice")}

    with_two(scenario)


def test_the_version_grows_only_when_something_has_changed() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        await two.one.acls.add(T, acls_of("alice"))
        versions = two.one.authorizer.version, two.other.authorizer.version + 1
        await two.settle()
        two.store.expire(two.one.coordination.session_id)
        await two.settle()
        await two.one.acls.add(T, acls_of("alice"))
        await two.settle()
        assert (two.one.authorizer.version, two.other.authorizer.version) == versions

    with_two(scenario)


def test_a_thousand_changes_are_known_elsewhere_within_a_second() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        for number in range(1000):
            await two.one.acls.add(ResourcePattern(ResourceType.TOPIC, f"t{number}"), acls_of("alice"))
        await two.clock.sleep(1)
        assert two.other.acls.known == two.one.acls.known

    with_two(scenario)


def test_many_acls_come_into_force_in_steps_between_which_the_loop_does_other_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(two: Two) -> None:
        await two.one.acls.start()
        for number in range(1000):
            await two.one.acls.add(ResourcePattern(ResourceType.TOPIC, f"t{number}"), acls_of("alice"))
        put, steps = two.other.authorizer.put, [0]

        def counted(pattern: ResourcePattern, entries: frozenset[AccessControlEntry]) -> None:
            if steps[-1] == 0:
                asyncio.get_running_loop().call_soon(steps.append, 0)
            steps[-1] += 1
            put(pattern, entries)

        monkeypatch.setattr(two.other.authorizer, "put", counted)
        await two.other.acls.start()
        assert (sum(steps), max(steps)) == (1000, 100)
        assert two.other.acls.known == two.one.acls.known

    with_two(scenario)


def test_changes_are_deleted_after_a_quarter_of_an_hour() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        await two.one.acls.add(T, acls_of("alice"))
        await two.one.acls.add(PREFIX, acls_of("alice"))
        await two.clock.sleep(14 * 60)
        assert len(two.store.names("/kafka-acl-changes")) == 1
        await two.clock.sleep(2 * 60)
        assert two.store.names("/kafka-acl-changes") == two.store.names("/kafka-acl-extended-changes") == []

    with_two(scenario)


def test_more_acls_than_a_znode_holds_are_refused() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        many = acls_of(*(f"user-{number}" * 20 for number in range(5000)))
        with pytest.raises(KafkaError, match="the ACLs of one resource would take") as refused:
            await two.one.acls.add(T, many)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert two.one.acls.known == {}

    with_two(scenario)


def test_paths_that_somebody_has_deleted_are_made_again() -> None:
    async def scenario(two: Two) -> None:
        await two.start()
        two.store.remove("/kafka-acl/Topic")
        await two.one.acls.add(T, acls_of("alice"))
        assert two.store.data(PATH) is not None

    with_two(scenario)


def test_a_broker_that_cannot_load_does_not_start() -> None:
    async def scenario(two: Two) -> None:
        two.store.expire(two.one.coordination.session_id)
        with pytest.raises(CoordinationError):
            await two.one.acls.start()

    with_two(scenario)
