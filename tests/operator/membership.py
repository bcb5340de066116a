"""Who the members of a ZooKeeper ensemble in memory are, as its servers have it on their volumes.

It follows ZooKeeper's incremental reconfiguration. One after which a member does not run is noted in `unsafe`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ottla_operator.api import names
from ottla_operator.api.fleet import MembershipReport, Reconfiguration
from ottla_operator.api.objects import CLAIM, CONFIG_MAP, label
from ottla_operator.concerns.ensemble.ensemble_volumes import parse_ensemble_record
from ottla_operator.effects.zookeeper_admin import read_config
from tests.operator.kubernetes import InMemoryKubernetes


@dataclass(slots=True)
class Membership:
    """`servers`: the voters by id, as the configuration writes them; empty before the first election."""

    kubernetes: InMemoryKubernetes
    version: int = 0
    servers: dict[int, str] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    """What was reconfigured, in order: +4, -3."""
    refusal: str = ""
    """Why the next reconfiguration is refused."""
    loses_answer: bool = False
    """The next reconfiguration is made, and its answer is lost."""
    unsafe: list[str] = field(default_factory=list)

    def form(self) -> None:
        """The first servers take what the operator gives them, as do those after the loss of every volume."""
        claims = [self.kubernetes.stored(CLAIM, name) for name in self.kubernetes.names(CLAIM)]
        held = {label(claim, names.SERVER_ID) for claim in claims if label(claim, names.REMOVED) != "true"}
        if self.servers and held & {str(server) for server in self.servers}:
            return
        if "orders-zookeeper" not in self.kubernetes.names(CONFIG_MAP):
            return
        files = self.kubernetes.stored(CONFIG_MAP, "orders-zookeeper")
        record = parse_ensemble_record(files["metadata"]["annotations"][names.ENSEMBLE])
        found = read_config(files["data"]["members"] + "version=1").servers
        self.servers = {server: text for server, text in found.items() if record is None or server in record.members}
        self.version = 1

    def has_quorum(self, running: Collection[int]) -> bool:
        return len(set(running) & set(self.servers)) > len(self.servers) // 2

    def report(self) -> MembershipReport:
        return MembershipReport(self.version, dict(self.servers))

    def reconfigure(self, change: Reconfiguration, password: str, running: Collection[int]) -> str:
        """As the leader does it. `running`: the servers that are connected to it and have its data, itself too."""
        if self.refusal:
            refusal, self.refusal = self.refusal, ""
            return refusal
        if password != "secret":
            return "NoAuth"
        if change.version != self.version:
            return "BadVersion"
        after = dict(self.servers)
        if change.joining:
            (server, text), *_ = read_config(f"{change.joining}\nversion=1").servers.items()
            after[server] = text
            self.changes.append(f"+{server}")
        if change.leaving is not None:
            after.pop(change.leaving, None)
            self.changes.append(f"-{change.leaving}")
        if len(set(running) & set(after)) <= len(after) // 2:
            self.changes.pop()
            return "NewConfigNoQuorum"
        if len(after) - len(set(running) & set(after)) > 0:
            self.unsafe.append(f"{self.changes[-1]} while only {sorted(running)} of {sorted(after)} serve")
        self.servers, self.version = after, self.version + 1
        if self.loses_answer:
            self.loses_answer = False
            return "ConnectionLoss"
        return ""
