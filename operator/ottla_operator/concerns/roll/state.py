"""The content of status.roll: all that a roll remembers, written before each of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ottla_operator.concerns.roll.leader_moves import move_from_status
from ottla_operator.facts.leader_move import LeaderMove

WaitReason = Literal["AwaitingWindow", "AwaitingTurn"]
Step = Literal["PickNext", "ApplyTemplate", "MoveLeaders", "DeletePod", "WaitReady", "WaitInSync", "RestoreLeaders"]
STEPS: tuple[str, ...] = get_args(Step)
WAIT_REASONS: tuple[str, ...] = get_args(WaitReason)


@dataclass(frozen=True, slots=True)
class PlannedMember:
    """A member that waits for its restart. `batch`: from 1, the next; None while it may not be stopped.

    `reasons`: why it is restarted. `waits_for`: why it is not in the next batch, "" when it is.
    """

    id: int
    batch: int | None
    reasons: tuple[str, ...]
    waits_for: str = ""

    def to_status(self) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.id, "reasons": list(self.reasons)}
        if self.batch is not None:
            found["batch"] = self.batch
        if self.waits_for:
            found["waitsFor"] = self.waits_for
        return found


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why no batch begins although one could: the reason of Rolled, and what it waits for in a few words."""

    reason: WaitReason
    what: str

    def to_status(self) -> dict[str, Any]:
        return {"reason": self.reason, "for": self.what}


@dataclass(frozen=True, slots=True)
class Roll:
    """`batch`: the members that are restarted now. `pods`: the uids of the pods to delete, by member.

    `moving`: the leaderships that move now, with the original orders of replicas.
    `awaits`: the approval that it waits for, "" for none. `waiting`: what else keeps it from choosing a batch.
    `progressed`: when the batch made progress last since its pods were stopped, "" before; `behind`: the fewest
    partitions that it was out of sync in, 0 before it was ready; `failed`: whether that has been too long ago.
    `since`: when the step began; `started`: when the roll began; `estimate`: when it ends at its pace so far.
    """

    id: str
    role: str
    step: Step
    since: str
    batch: tuple[int, ...] = ()
    done: tuple[int, ...] = ()
    blocked_by: tuple[str, ...] = ()
    pods: Mapping[int, str] = field(default_factory=dict)
    plan: tuple[PlannedMember, ...] = ()
    started: str = ""
    batches_done: int = 0
    estimate: str = ""
    moving: tuple[LeaderMove, ...] = ()
    awaits: str = ""
    waiting: Waiting | None = None
    progressed: str = ""
    behind: int = 0
    failed: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether it restarts nobody until somebody approves it or what `waiting` names has come."""
        return bool(self.awaits) or self.waiting is not None

    def to_status(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "id": self.id,
            "role": self.role,
            "step": self.step,
            "batch": list(self.batch),
            "done": list(self.done),
            "batchesDone": self.batches_done,
            "blockedBy": list(self.blocked_by),
            "plan": [member.to_status() for member in self.plan],
            "since": self.since,
            "summary": self.summary(),
        }
        if self.started:
            found["started"] = self.started
        if self.estimate:
            found["estimate"] = self.estimate
        if self.pods:
            found["pods"] = [{"id": number, "uid": uid} for number, uid in sorted(self.pods.items())]
        if self.awaits:
            found["awaitingApproval"] = self.awaits
        if self.waiting is not None:
            found["waiting"] = self.waiting.to_status()
        if self.progressed:
            found["progressed"] = self.progressed
        if self.behind:
            found["behind"] = self.behind
        if self.failed:
            found["failed"] = True
        if self.moving:
            found["moving"] = [move.to_status() for move in self.moving]
        return found

    def summary(self) -> str:
        """The state in one line, for the column of kubectl get.

        >>> Roll("r2", "broker", "WaitInSync", "", batch=(1, 4), done=(0, 3), plan=(PlannedMember(2, 1, ()),)).summary()
        'broker 1,4: WaitInSync, 2 of 5 done'

        A member that has to restart once more, because of another change meanwhile, is not done:

        >>> Roll("r3", "broker", "WaitReady", "", (1,), (0, 1, 2, 0), plan=(PlannedMember(2, 1, ()),)).summary()
        'broker 1: WaitReady, 1 of 3 done'
        """
        to_do = {member.id for member in self.plan} | set(self.batch)
        done = set(self.done) - to_do
        progress = f"{len(done)} of {len(done | to_do)} done"
        where = f"{self.role} {','.join(map(str, self.batch))}" if self.batch else self.role
        if self.awaits:
            return f"{where}: waits for approval, {progress}"
        if self.waiting is not None:
            return f"{where}: waits for {self.waiting.what}, {progress}"
        if self.failed:
            return f"{where}: failed in {self.step}, {progress}"
        return f"{where}: {self.step}, {progress}"


def from_status(value: object) -> Roll | None:
    """Parses status.roll, also that of earlier releases (`podUid`, one member in a batch).

    None when it cannot be parsed: the machine then starts from the facts.
    """
    if not isinstance(value, Mapping) or value.get("step") not in STEPS:
        return None
    batch = _numbers(value.get("batch"))
    pods = {
        int(item["id"]): str(item["uid"])
        for item in value.get("pods") or ()
        if isinstance(item, Mapping) and isinstance(item.get("id"), int) and item.get("uid")
    }
    if not pods and value.get("podUid") and batch:
        pods = {batch[0]: str(value["podUid"])}
    count, behind = value.get("batchesDone"), value.get("behind")
    return Roll(
        id=str(value.get("id", "")),
        role=str(value.get("role", "")),
        step=value["step"],
        since=str(value.get("since", "")),
        batch=batch,
        done=_numbers(value.get("done")),
        blocked_by=tuple(str(item) for item in value.get("blockedBy") or ()),
        pods=pods,
        plan=tuple(_planned(item) for item in value.get("plan") or () if _is_planned(item)),
        started=str(value.get("started", "")),
        batches_done=count if isinstance(count, int) else 0,
        estimate=str(value.get("estimate", "")),
        awaits=str(value.get("awaitingApproval", "")),
        waiting=_waiting(value.get("waiting")),
        progressed=str(value.get("progressed", "")),
        behind=behind if isinstance(behind, int) else 0,
        failed=value.get("failed") is True,
        moving=tuple(move for item in value.get("moving") or () if (move := move_from_status(item)) is not None),
    )


def _waiting(value: object) -> Waiting | None:
    if not isinstance(value, Mapping) or value.get("reason") not in WAIT_REASONS:
        return None
    return Waiting(value["reason"], str(value.get("for", "")))


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(item for item in value if isinstance(item, int)) if isinstance(value, list | tuple) else ()


def _is_planned(item: object) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("id"), int)


def _planned(item: Mapping[str, Any]) -> PlannedMember:
    reasons = tuple(str(reason) for reason in item.get("reasons") or ())
    return PlannedMember(item["id"], item.get("batch"), reasons, str(item.get("waitsFor", "")))
