"""No handler reads or writes a topic, a group or a transaction before it has asked for a right on it.

A test of the kind and not of a list: whatever an API reads, `tracing` sees it, and the requests are the tables of
`python -m tests.beside security`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import RunningCluster, cluster
from ottla_broker.authorization.access import Access
from ottla_broker.protocol.api import ApiKey
from tests.beside.comparison import Broker
from tests.beside.security.matrix import ROWS, Certificates, Side, selected
from tests.beside.security.names import GROUP, IDLE_GROUP, MISSING, OTHER_TOPIC, TOPIC, TRANSACTIONAL_ID
from tests.beside.security.rows import NAMES_IDS, Row, questions
from tests.beside.security.tracing import Trace, TracingAuthorizer, traced
from tests.beside.security.world import ADMIN, ASKER, World

NAMES = (TOPIC, OTHER_TOPIC, GROUP, IDLE_GROUP, TRANSACTIONAL_ID, MISSING)


RESOLVES_IDS = ("replica_manager.topics[]",)
"""Tells whether the id that a request names is that of the topic that there is, or of an earlier one."""


class Traced:
    """A broker in this process."""

    def __init__(self, fleet: RunningCluster, certificates: Certificates) -> None:
        self.trace = Trace(NAMES)
        admin = Broker(fleet.address(0), tls=certificates.of_a_client(ADMIN))
        world = World(admin)
        world.set_up()
        fleet.run(self._trace(fleet))
        self._asker = Broker(fleet.address(0), tls=certificates.of_a_client(ASKER))
        self.side = Side(world, self._asker)

    async def _trace(self, fleet: RunningCluster) -> None:
        assert fleet.fleet is not None
        core = fleet.fleet.brokers[0]._core
        assert core.server.authorizer is not None
        assert core.dispatcher.services is not None
        authorizer: Any = TracingAuthorizer(core.server.authorizer, self.trace)
        core.server.authorizer = authorizer
        core.dispatcher.services = traced(core.dispatcher.services, self.trace)

    def unasked(self, row: Row) -> dict[str, set[tuple[str, str]]]:
        """By question, what was touched and not asked for."""
        found = {}
        for question in questions(row, is_of_ours=True):
            if self.side.ask(question, self._begin) is not None:
                by_id = RESOLVES_IDS if question.version >= NAMES_IDS.get(row.api_key, question.version + 1) else ()
                if early := {(name, what) for name, what in self.trace.unasked if what not in by_id}:
                    found[str(question)] = early
        return found

    def _begin(self, body: object) -> object:
        """What the super user has asked to prepare the question does not count."""
        self.trace.clear()
        return body


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    folder: Path = tmp_path_factory.mktemp("traced")
    certificates = Certificates(folder)
    config = {
        **certificates.of_a_broker(),
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:SSL",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        "ssl.client.auth": "required",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "ottla.broker.request.listeners": "CLIENT",
    }
    with cluster(config=config) as fleet:
        yield Traced(fleet, certificates)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_nothing_is_touched_before_a_right_on_it_is_asked_for(broker: Traced, row: Row) -> None:
    assert broker.unasked(row) == {}


@pytest.mark.parametrize("api_key", [ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.HEARTBEAT, ApiKey.END_TXN])
def test_a_handler_that_does_not_ask_is_found(broker: Traced, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Access, "denied", lambda *args, **kwargs: frozenset())
    assert broker.unasked(next(row for row in selected(api_key.name) if row.about == ""))
