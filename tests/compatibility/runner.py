"""Runs scenarios with clients against one fleet and collects the outcomes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla.testing import RunningCluster, cluster
from tests.compatibility.clients import ENVIRONMENT, Client, Setup
from tests.compatibility.protocol import ClientError, Program, Unsupported
from tests.compatibility.scenarios import Bench, Scenario
from tests.integration.clients.security import PLAIN
from tests.integration.clients.test_consumer_protocol import finalize_group_version
from tests.integration.clients.test_sasl import SECRET, SaslFleet, broker_config
from tests.integration.clients.tls_stores import Stores

CONFIG = {
    "group.min.session.timeout.ms": "500",
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "4",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one scenario with one client. `reason` is empty when it passed."""

    client: Client
    scenario: Scenario
    reason: str
    is_unsupported: bool = False

    @property
    def passed(self) -> bool:
        return not self.reason

    @property
    def is_expected(self) -> bool:
        """Passed, or failed where the table of clients gives the reason, or the client has no means for it."""
        return self.is_unsupported or self.passed != (self.scenario.name in self.client.reasons)

    @property
    def shown_reason(self) -> str:
        return self.client.reasons.get(self.scenario.name, self.reason)


@contextmanager
def fleet(
    stores: Stores | None = None, more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[RunningCluster, Setup]]:
    """Three brokers on a real ZooKeeper, which the clients of Kafka 0.8 use; group.version is finalized (KIP-848).

    With `stores` everything goes over TLS. `more`: further keys of the brokers.
    """
    config = {**CONFIG, **(stores.broker_config if stores else {}), **more}
    with (
        tempfile.TemporaryDirectory(prefix="ottla-compatibility-") as directory,
        ZooKeeperServer(Path(directory, "zookeeper")) as server,
    ):
        chroot = f"{server.connect}/compatibility"
        with cluster(brokers=3, racks=3, config=config, zookeeper=chroot) as found:
            if stores is None:
                finalize_group_version(found)
            yield found, Setup(chroot)


def run(
    clients: Sequence[Client],
    scenarios: Sequence[Scenario],
    logs: Path,
    report: Callable[[Outcome], None] = lambda _outcome: None,
    stores: Stores | None = None,
    mechanism: str = "",
) -> list[Outcome]:
    """Runs every scenario with every client, one after the other; `logs` takes what the clients log.

    With `stores` they use TLS, and with `mechanism` they log in within it; not every program can.
    """
    outcomes = []
    security = stores.unnamed if stores else PLAIN
    environment = {**ENVIRONMENT, **({"OTTLA_TRUST": str(stores.trust)} if stores else {})}
    keys: Mapping[str, str] = {}
    if mechanism:
        environment["OTTLA_SASL"] = f"{mechanism} alice {SECRET}"
        keys = broker_config("SASL_SSL")
    with fleet(stores, keys) as (brokers, setup):
        if mechanism:
            secured = SaslFleet(brokers, "SASL_SSL", security)
            secured.set_password("alice")
            security = secured.security(mechanism)
        for client in clients:
            program: Program | None = None
            for number, scenario in enumerate(scenarios):
                if scenario.name in client.not_tried:
                    outcome = Outcome(client, scenario, client.not_tried[scenario.name], is_unsupported=True)
                    outcomes.append(outcome)
                    report(outcome)
                    continue
                if program is None or not program.is_running:
                    program = Program(client.command(setup), logs / f"{client.name}.log", environment)
                bench = Bench(program, brokers, f"{client.name}.{scenario.name}-{number}", security)
                outcome = _try(client, scenario, bench)
                outcomes.append(outcome)
                report(outcome)
            if program is not None:
                program.close()
    return outcomes


def _try(client: Client, scenario: Scenario, bench: Bench) -> Outcome:
    try:
        scenario.run(bench)
    except Unsupported as error:
        return Outcome(client, scenario, str(error), is_unsupported=True)
    except (AssertionError, ClientError) as error:
        return Outcome(client, scenario, " ".join(str(error).split()) or repr(error))
    return Outcome(client, scenario, "")
