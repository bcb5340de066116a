"""What is known of the ensemble beyond the snapshot: answers of its servers, and of the last reconfiguration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_operator.api.fleet import MembershipReport, ServerReport
from ottla_operator.api.objects import Obj


@dataclass(frozen=True, slots=True)
class ReconfigurationFailure:
    """Why ZooKeeper refused the last reconfiguration, "" when it did not. `version`: of the configuration before it."""

    version: int = 0
    why: str = ""


NO_FAILURE = ReconfigurationFailure()


@dataclass(frozen=True, slots=True)
class EnsembleObservation:
    """What the servers of the ensemble answered in this reconciliation, and the Secret of its super user."""

    servers: Mapping[int, ServerReport] = field(default_factory=dict)
    """The answers by server id; only until it is known which servers hold data, and while the ensemble changes."""
    membership: MembershipReport | None = None
    """The members of the ensemble; asked for only while it is resized, None when its leader does not answer."""
    super_secret: Obj | None = None
    """The Secret of the super user, without what it holds; None when the cluster has none."""
    accepts_super_user: Mapping[int, bool] = field(default_factory=dict)
    """Whether a server accepts that Secret's password, where it was asked and has answered."""
    failure: ReconfigurationFailure = NO_FAILURE

    def leading_server(self) -> int | None:
        """The only server that says it leads; None when there is none or two, or when none was asked."""
        leaders = [server for server, report in self.servers.items() if report.mode == "leader"]
        return leaders[0] if len(leaders) == 1 else None


NO_ENSEMBLE_OBSERVATION = EnsembleObservation()
