"""The ACL of every path, and the migration of a tree on a model of ZooKeeper's: order, interruption, what changes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla_broker.coordination import acl_migration
from ottla_broker.coordination.acl_migration import Migrated, migrate, missing_roots
from ottla_broker.coordination.open_znodes import warning_about
from ottla_broker.coordination.znode_acls import Acl, is_open, open_acl, secure_acl
from ottla_broker.ports.coordination import ConnectionLoss, NoNode, NotPermitted, SessionExpired, Stat

ANYONE: Acl = ((31, "world", "anyone"),)
OWN: Acl = ((31, "sasl", "kafka"),)
READ: Acl = ((1, "world", "anyone"),)
OTHERS: Acl = ((31, "sasl", "somebody"),)
PATHS = (
    *("/admin", "/admin/delete_topics", "/brokers", "/brokers/ids", "/brokers/ids/0", "/brokers/topics", "/cluster"),
    *("/config", "/config/topics", "/config/topics/t", "/config/users", "/config/users/alice", "/config/brokers"),
    *("/config/brokers/0", "/controller", "/controller_epoch", "/isr_change_notification", "/delegation_token"),
    *("/delegation_token/tokens", "/delegation_token/tokens/x", "/delegation_token/token_changes", "/kafka-acl"),
    *("/kafka-acl-extended", "/kafka-acl-extended/prefixed", "/ottla", "/ottla/failed-log-dirs"),
)
SENSITIVE = {
    *("/config/users", "/config/users/alice", "/config/brokers", "/config/brokers/0"),
    *("/delegation_token/tokens", "/delegation_token/tokens/x"),
}
NOT_KAFKAS = ("/consumers", "/consumers/group", "/zookeeper", "/other/brokers")


class FakeSession:
    """A tree with ACLs, as user `kafka`; `failures` are raised by the next calls, one each, behind their effect."""

    def __init__(self, *paths: str, acl: Acl = ANYONE) -> None:
        self.acls = dict.fromkeys(("/", *paths), acl)
        self.failures: dict[int, Exception] = {}
        self.calls = 0
        self.writes: list[str] = []
        self.running = self.most_running = 0

    def exists(self, path: str) -> asyncio.Future[Stat | None]:
        return self._answer(path, lambda: Stat(0, 0, 0, 0) if path in self.acls else None, has_to_exist=False)

    def children(self, path: str) -> asyncio.Future[list[str]]:
        start = f"{path}/"
        names = {one.removeprefix(start).split("/")[0] for one in self.acls if one.startswith(start)}
        return self._answer(path, lambda: sorted(names))

    def acl(self, path: str) -> asyncio.Future[tuple[Acl, Stat]]:
        children = sum(one.startswith(f"{path}/") for one in self.acls) if len(self.acls) < 100 else 1
        return self._answer(path, lambda: (self.acls[path], Stat(0, 0, 0, 0, children)))

    def set_acl(self, path: str, acl: Acl) -> asyncio.Future[None]:
        def write() -> None:
            if self.acls[path] == OTHERS:
                raise NotPermitted(path)
            self.acls[path] = tuple(one for entry in acl for one in (OWN if entry[1] == "auth" else (entry,)))
            self.writes.append(path)

        return self._answer(path, write)

    def _answer(self, path: str, act: Any, *, has_to_exist: bool = True) -> asyncio.Future[Any]:
        async def answer() -> Any:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            await asyncio.sleep(0)
            self.running -= 1
            self.calls += 1
            if has_to_exist and path not in self.acls:
                raise NoNode(path)
            found = act()
            if failure := self.failures.pop(self.calls, None):
                raise failure
            return found

        coroutine: Coroutine[Any, Any, Any] = answer()
        return asyncio.ensure_future(coroutine)


async def secured(session: FakeSession) -> Migrated:
    return await migrate(session, secure_acl, lambda _root, _done: None)


def test_a_path_is_closed_and_readable_unless_it_is_sensitive() -> None:
    for path in (*PATHS, *NOT_KAFKAS):
        expected = ((31, "auth", ""),) if path in SENSITIVE else ((31, "auth", ""), *READ)
        assert secure_acl(path) == (ANYONE if path == "/consumers" else expected), path
        assert open_acl(path) == ANYONE, path
        assert is_open(path, ANYONE)
        assert is_open(path, READ) == (path in SENSITIVE)
        assert not is_open(path, OWN)


async def test_every_node_below_the_roots_gets_the_acl_of_its_path_and_the_way_back() -> None:
    session = FakeSession(*PATHS, *NOT_KAFKAS)
    roots: list[str] = []
    done = await migrate(session, secure_acl, lambda root, _done: roots.append(root))
    for path in ("/", *PATHS):
        assert session.acls[path] == (OWN if path in SENSITIVE else OWN + READ), path
    for path in NOT_KAFKAS:
        assert session.acls[path] == ANYONE, path
    assert (done.seen, done.changed, done.refused) == (len(PATHS) + 1, len(PATHS) + 1, [])
    assert len(roots) == len(set(roots)) and "/kafka-acl-extended/prefixed" not in roots
    done = await migrate(session, open_acl, lambda _root, _done: None)
    assert set(session.acls.values()) == {ANYONE} and done.changed == len(PATHS) + 1


async def test_a_second_run_changes_nothing() -> None:
    session = FakeSession(*PATHS)
    await secured(session)
    session.writes.clear()
    done = await secured(session)
    assert session.writes == ["/"], "it tells who we are"
    assert (done.seen, done.changed) == (len(PATHS) + 1, 0)


@pytest.mark.parametrize("when", [1, 2, 5, 20, 40, 60])
async def test_a_run_that_is_cut_off_is_completed_by_the_next(when: int) -> None:
    session = FakeSession(*PATHS)
    session.failures[when] = SessionExpired("/")
    with pytest.raises(SessionExpired):
        await secured(session)
    await secured(session)
    assert all(session.acls[path] == (OWN if path in SENSITIVE else OWN + READ) for path in PATHS)


async def test_a_lost_connection_is_waited_for() -> None:
    session = FakeSession(*PATHS)
    session.failures = {when: ConnectionLoss() for when in range(1, 80, 2)}
    await secured(session)
    assert all(session.acls[path] == (OWN if path in SENSITIVE else OWN + READ) for path in PATHS)


async def test_the_nodes_of_others_are_named_and_the_rest_is_changed() -> None:
    session = FakeSession(*PATHS)
    session.acls["/config/topics"] = OTHERS
    done = await secured(session)
    assert done.refused == ["/config/topics"]
    assert session.acls["/config/users/alice"] == OWN
    assert session.acls["/config/topics/t"] == ANYONE, "what is below is not reached"


async def test_a_large_tree_is_changed_some_nodes_at_a_time() -> None:
    topics = [f"/brokers/topics/t{number}" for number in range(3000)]
    session = FakeSession("/brokers", "/brokers/topics", *topics)
    names = {"/brokers": ["topics"], "/brokers/topics": [topic.rpartition("/")[2] for topic in topics]}
    session.children = lambda path: session._answer(path, lambda: names.get(path, []))  # type: ignore[method-assign]
    done = await secured(session)
    assert done.changed == len(topics) + 3
    assert 1 < session.most_running <= acl_migration.AT_A_TIME


async def test_the_roots_of_any_fleet_are_missed_elsewhere() -> None:
    assert "/brokers" in await missing_roots(FakeSession("/app"))
    assert await missing_roots(FakeSession(*PATHS)) == []


def test_open_roots_are_named_with_the_command() -> None:
    acls: dict[str, Acl | BaseException] = {
        "/brokers": OWN + READ,
        "/config": ANYONE,
        "/admin": NoNode("/admin"),
        "/ottla": ((6, "world", "anyone"), *OWN),
    }
    line = warning_about(acls, "zk:2181/kafka")
    assert "change or read /config, /ottla," in line
    assert line.endswith("ottla zookeeper secure --zookeeper.connect zk:2181/kafka")
    assert warning_about({"/brokers": OWN + READ, "/config/users": OWN}, "zk:2181") == ""
