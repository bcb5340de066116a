"""The operator's calls to the API server, from the API server's audit log: each by verb and resource.

The server writes one line of JSON per call before it answers. Who else calls is not recorded, so the file stays small.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

READS = ("get", "list", "watch")
LEASES = "leases"
REVIEWS = ("selfsubjectrulesreviews", "selfsubjectaccessreviews")
"""They are created, and nothing is stored."""


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """`resource` with its subresource, "kafkatopics/status"; the path when a call has no resource.

    >>> Call("update", "kafkatopics/status").is_write, Call("update", "leases").is_write, Call("watch", "pods").is_write
    (True, False, False)
    """

    verb: str
    resource: str

    @property
    def is_write(self) -> bool:
        """Whether the call may change something. Renewals of the Lease do not count, nor do questions about rights."""
        return self.verb not in READS and not self.is_of_lease and self.resource not in REVIEWS

    @property
    def is_of_lease(self) -> bool:
        return self.resource == LEASES

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


class AuditLog:
    """The log of the calls of the service accounts of one namespace. `flags`: for the API server."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self.path = folder / "audit.log"
        self._policy = folder / "audit-policy.yaml"
        self._namespace = namespace

    def flags(self) -> list[str]:
        """Writes the audit policy, and returns the flags that name it."""
        self._policy.parent.mkdir(parents=True, exist_ok=True)
        self._policy.write_text(yaml.safe_dump(policy(self._namespace)))
        return [f"--audit-policy-file={self._policy}", f"--audit-log-path={self.path}"]


def policy(namespace: str) -> dict[str, Any]:
    """A policy that logs who called what and when, without contents."""
    group = f"system:serviceaccounts:{namespace}"
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "userGroups": [group]}, {"level": "None"}],
    }


def mark(log: Path) -> int:
    """The present end of the log."""
    return log.stat().st_size if log.exists() else 0


def calls(log: Path, since: int = 0) -> Counter[Call]:
    """How often each call was made after a `mark`."""
    if not log.exists():
        return Counter()
    found: Counter[Call] = Counter()
    with log.open("rb") as file:
        file.seek(since)
        for line in file:
            event = json.loads(line) if line.endswith(b"\n") else {}  # the server is writing the last one
            if event and not _is_end_of_watch(event):
                found[call_of(event)] += 1
    return found


def _is_end_of_watch(event: dict[str, Any]) -> bool:
    """Whether an event counts as a call: a watch has a second line, for its start."""
    return bool(event["verb"] == "watch" and event["stage"] != "ResponseStarted")


def writes(log: Path, since: int = 0) -> Counter[Call]:
    """The calls that may have changed something, without renewals of the Lease."""
    return Counter({call: count for call, count in calls(log, since).items() if call.is_write})


def call_of(event: dict[str, Any]) -> Call:
    """
    >>> call_of({"verb": "update", "objectRef": {"resource": "kafkatopics", "subresource": "status", "name": "a"}})
    Call(verb='update', resource='kafkatopics/status')
    >>> call_of({"verb": "get", "requestURI": "/apis/apps/v1?timeout=32s"})
    Call(verb='get', resource='/apis/apps/v1')
    """
    place = event.get("objectRef") or {}
    if "resource" not in place:
        return Call(event["verb"], str(event["requestURI"]).partition("?")[0])
    below = f"/{place['subresource']}" if place.get("subresource") else ""
    return Call(event["verb"], f"{place['resource']}{below}")
