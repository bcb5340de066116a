"""`python -m bench.authorizer`: what the authorizer costs a broker of ours, with 10 000 ACLs and without one.

    python -m bench.authorizer --quick       # a smoke run

Two systems of one broker each take the same loads in alternating rounds. One has AclAuthorizer and ACLs on as many
topics, half of them on prefixes; its clients are ANONYMOUS, with the rights that the load needs. Goal: CPU time for
each request at most 1.03 of that without an authorizer. Status 1 where a load misses it.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from kazoo.client import KazooClient
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.java import LoadResult
from bench.scenarios import BY_NAME, FULL, QUICK, Request, Volume
from bench.systems import OURS, System
from ottla_broker.authorization.acls import AccessControlEntry, ResourcePattern
from ottla_broker.authorization.resources import WILDCARD, AclOperation, PatternType, PermissionType, ResourceType
from ottla_broker.coordination import security_znodes as znodes

GOAL = 1.03
ACLS = 10_000
LOADS = ("sync-100b", "single-100b", "produce-java-16k", "consume-java")
OFF, ON = "off", "on"
_PROPERTIES = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
_ANONYMOUS = "User:ANONYMOUS"


def _entry(principal: str, operation: AclOperation) -> AccessControlEntry:
    return AccessControlEntry(principal, WILDCARD, operation, PermissionType.ALLOW)


def store_acls(address: str) -> None:
    """Writes ACLs for many users, and those of the clients, before the broker starts."""
    client = KazooClient(address)
    client.start()
    try:
        topic = ResourceType.TOPIC
        of_all = frozenset({_entry(_ANONYMOUS, AclOperation.ALL)})
        stored = {
            ResourcePattern(kind, "kafka-cluster" if kind is ResourceType.CLUSTER else WILDCARD): of_all
            for kind in (ResourceType.CLUSTER, ResourceType.GROUP)
        }
        stored[ResourcePattern(topic, "bench-", PatternType.PREFIXED)] = of_all
        for number in range(ACLS):
            pattern_type = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
            entries = frozenset({_entry(f"User:u{number}", AclOperation.READ)})
            stored[ResourcePattern(topic, f"team-{number}", pattern_type)] = entries
        for pattern, entries in track(stored.items(), "writing ACLs"):
            client.create(znodes.acl_path(pattern), znodes.encode_acls(entries), makepath=True)
    finally:
        client.stop()
        client.close()


def _measured(load: Callable[[Request], LoadResult], request: Request) -> float:
    """CPU microseconds of the broker for each request."""
    before = request.system.cpu_seconds()
    result = load(request)
    return (request.system.cpu_seconds() - before) / max(1, result.requests) * 1e6


def main(
    quick: Annotated[bool, typer.Option(help="a smoke run: little data, figures that say nothing")] = False,
    rounds: Annotated[int, typer.Option(help="rounds of each load", min=1)] = 5,
) -> None:
    console = Console()
    volume: Volume = QUICK if quick else FULL
    table = Table("load", "off, µs CPU a request", "on", "ratio", "goal")
    missed = False
    with tempfile.TemporaryDirectory(prefix="ottla-authorizer-") as folder:
        work = Path(folder)
        systems = {
            OFF: System(OURS, work / OFF),
            ON: System(OURS, work / ON, properties=_PROPERTIES, prepare=store_acls),
        }
        try:
            for system in systems.values():
                system.start()
            for name in LOADS:
                scenario = BY_NAME[name]
                topic = f"bench-{name}"
                for system in systems.values():
                    system.create_topic(topic, scenario.partitions, 1)
                    if name.startswith("consume"):
                        BY_NAME["produce-java-64k"].load(Request(work, system, topic, volume))
                    scenario.load(Request(work, system, topic, volume.of(volume.records // 10)))
                figures: dict[str, list[float]] = {OFF: [], ON: []}
                for number in track(range(rounds), name, console=console):
                    for which in (OFF, ON) if number % 2 else (ON, OFF):
                        figures[which].append(_measured(scenario.load, Request(work, systems[which], topic, volume)))
                off, on = (statistics.median(figures[which]) for which in (OFF, ON))
                lowest = min(figures[ON]) / min(figures[OFF])
                missed = missed or lowest > GOAL
                table.add_row(name, f"{off:.1f}", f"{on:.1f}", f"{on / off:.3f} (lowest {lowest:.3f})", f"≤ {GOAL}")
                for system in systems.values():
                    system.delete_topic(topic)
        finally:
            for system in systems.values():
                system.stop()
    console.print(table)
    if missed and not quick:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
