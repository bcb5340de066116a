"""Log directories that are emptied, so that their volumes can be removed or replaced.

A disk is drained while spec.brokers.disks[].state or the override of a broker says Drain, while its claim is to get a
successor (a larger overrides[].disks[].generation, another storageClassName), and while spec does not name it any more.
Each step follows from what the claims, the brokers' dynamic values and DescribeLogDirs show:

    the claim is marked      annotation cordoned: from now on the entry of its log directory is ours
    the directory is cordoned  cordoned.log.dirs of the broker (KIP-1066): nothing new is placed there
    its replicas move        AlterReplicaLogDirs to other directories of the broker, MOVES_AT_ONCE large ones at a time;
                             the next ones when they are done
    it is empty              DescribeLogDirs shows no replica, also none that is on its way

A broker of which every disk is to be emptied has no other directory: its replicas move to other brokers, by the
rebalance, and its directories are cordoned once they are empty. Until then a partition that needs the broker can still
be placed there.

A disk that spec does not name is cordoned, and its replicas stay: a removal that was a mistake moves nothing. Only a
cordoned and empty directory is taken from its broker. When a disk is not drained any more its entry is taken out of
cordoned.log.dirs first, and then the mark. What others have put into cordoned.log.dirs stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla_operator.api import names
from ottla_operator.api.condition_reasons import DISKS_READY
from ottla_operator.api.conditions import Condition, condition_false
from ottla_operator.api.fleet import LogDirContents
from ottla_operator.api.objects import Obj, annotation, dig, label, name_of
from ottla_operator.concerns.disks.observation import NO_DISK_OBSERVATION, DiskObservation
from ottla_operator.facts.broker_claims import (
    claims_of,
    generation_of,
    live_claim,
    log_dir,
    mounted_claim,
    named_claim,
)
from ottla_operator.facts.fleet_values import (
    FleetBroker,
    FleetPartition,
    FleetPlacement,
    FleetReplica,
    LogDir,
    Policy,
    State,
)
from ottla_operator.facts.maintenance import decide_maintenance
from ottla_operator.facts.snapshot import Snapshot
from ottla_operator.rebalancer.pace import SOON_S, chosen, look_after_s
from ottla_operator.rebalancer.planner import plan

CORDONED_LOG_DIRS = "cordoned.log.dirs"
MOVES_AT_ONCE = 4
"""How many large replicas of a broker move at the same time; of small ones more do (`rebalancer.pace`)."""
SHOWN = 5
REQUESTED = "Requested"
"""The cause of a replacement that spec asks for, in the annotation replaced-because."""


@dataclass(frozen=True, slots=True)
class Drain:
    """A disk of a broker that is to be emptied. `moves`: whether the operator moves its replicas.

    `successor`: why its claim is to get a successor once it is empty; "" when it is not.
    """

    broker_id: int
    disk: str
    claim: Obj
    why: str
    moves: bool = True
    successor: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """A replica that moves to another log directory of its broker."""

    broker_id: int
    topic: str
    index: int
    log_dir: str


@dataclass(frozen=True, slots=True)
class DrainDecision:
    """`marks`: annotations by name of the claim. `cordons`: the new cordoned.log.dirs of a broker, empty for none.

    `drained`: the disks that are cordoned and empty, by broker id and disk. `states`: for status.
    """

    marks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    cordons: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    moves: tuple[ReplicaMove, ...] = ()
    drained: Mapping[tuple[int, str], Drain] = field(default_factory=dict)
    states: Mapping[tuple[int, str], str] = field(default_factory=dict)
    condition: Condition | None = None
    waits: tuple[str, ...] = ()
    """What waits for a maintenance window."""
    requeue_after_s: float | None = None
    """When to look how far the replicas are that move; None while none does."""


NO_DRAINS = DrainDecision()


def find_drains(snapshot: Snapshot, broker_ids: Iterable[int]) -> list[Drain]:
    """The disks to empty, and why, by broker and disk.

    Of the disks whose volumes are to be replaced only the first is drained: one volume at a time.
    """
    found: list[Drain] = []
    has_successor = _is_requested_under_way(snapshot)
    for number in broker_ids:
        disks = {label(claim, names.DISK) or "" for claim in claims_of(snapshot, number)}
        for disk in sorted(disks):
            live = live_claim(snapshot, number, disk)
            if live is None:
                continue
            drain = _drain(snapshot, number, disk, live)
            if drain is None:
                continue
            if drain.successor:
                if has_successor:
                    continue
                has_successor = True
            found.append(drain)
    return found


def decide_drains(
    snapshot: Snapshot, broker_ids: Sequence[int], observation: DiskObservation = NO_DISK_OBSERVATION
) -> DrainDecision:
    """What is cordoned, what moves, and which disks are empty."""
    drains = {(one.broker_id, one.disk): one for one in find_drains(snapshot, broker_ids)}
    marks: dict[str, Mapping[str, str]] = {}
    cordons: dict[int, tuple[str, ...]] = {}
    moves: list[ReplicaMove] = []
    drained: dict[tuple[int, str], Drain] = {}
    states: dict[tuple[int, str], str] = {}
    texts: list[str] = []
    waits: list[str] = []
    looks: list[float] = []
    is_closed = bool(decide_maintenance(snapshot).waits_for)
    emptied = brokers_to_empty(snapshot, broker_ids, drains.values())
    for number in broker_ids:
        mine = {disk: one for (broker, disk), one in drains.items() if broker == number}
        if mine and not _leaves_another(snapshot, number, mine, observation.log_dirs.get(number)):
            what = f"log directory {', '.join(mine)} of broker {number} ({next(iter(mine.values())).why})"
            if number in emptied:
                states |= {(number, disk): "Draining" for disk in mine}
                texts.append(f"{what} {_leaves_broker(snapshot, observation.log_dirs.get(number))}")
            else:
                texts.append(f"{what} is not drained: no broker would have a log directory left for its replicas")
            mine = {}
        current = cordoned_now(snapshot, number)
        marked = {
            label(claim, names.DISK) or "": claim
            for claim in claims_of(snapshot, number)
            if annotation(claim, names.CORDONED) == "true"
        }
        held = _held_by_replacement(snapshot, number)
        if is_closed:  # what has not begun begins in a window; a disk that spec no longer names is cordoned at once
            waits += [_waits_text(one) for disk, one in mine.items() if one.moves and disk not in marked]
            mine = {disk: one for disk, one in mine.items() if not one.moves or disk in marked}
        for disk, one in mine.items():
            if disk not in marked:
                marks[name_of(one.claim)] = {names.CORDONED: "true"}
        to_cordon = {log_dir(disk) for disk in [*mine, *held] if disk in marked}
        ours = {log_dir(disk) for disk in marked}
        if current is not None:
            new = sorted((current - ours) | to_cordon) if "*" not in current else ["*"]
            if set(new) != current:
                cordons[number] = tuple(new)
            for disk, claim in marked.items():
                if disk not in mine and disk not in held and log_dir(disk) not in current:
                    marks[name_of(claim)] = {names.CORDONED: ""}
        for disk, one in mine.items():
            is_cordoned = current is not None and bool({log_dir(disk), "*"} & current) and disk in marked
            everything = observation.log_dirs.get(number, ())
            contents = next((part for part in everything if part.path == log_dir(disk)), None)
            if is_cordoned and contents is not None and not contents.replicas and not contents.error:
                drained[number, disk] = one
                states[number, disk] = "Drained"
                continue
            states[number, disk] = "Draining"
            if is_closed and one.moves:
                waits.append(_waits_text(one))
                continue
            if not is_cordoned:
                texts.append(f"log directory {disk} of broker {number} ({one.why}) is being cordoned")
                looks.append(SOON_S)
                continue
            asked, text, look = _move(snapshot, one, current or set(), contents, observation)
            moves += asked
            looks += [] if look is None else [look]
            texts.append(f"log directory {disk} of broker {number} ({one.why}) {text}")
    reason = "DiskRemoved" if any(not one.moves for key, one in drains.items() if key not in drained) else "Draining"
    condition = condition_false(DISKS_READY, reason, "; ".join(texts[:SHOWN])) if texts else None
    look = min(looks, default=None)
    return DrainDecision(marks, cordons, tuple(moves), drained, states, condition, tuple(waits), look)


def brokers_to_empty(snapshot: Snapshot, broker_ids: Iterable[int], drains: Iterable[Drain]) -> frozenset[int]:
    """The brokers whose replicas move to other brokers, since each of their disks is to be emptied; none when no broker
    would be left."""
    disks: dict[int, set[str]] = {}
    for one in drains:
        if one.moves:
            disks.setdefault(one.broker_id, set()).add(one.disk)
    named = {number: {disk.name for disk in snapshot.disks_of(number)} for number in broker_ids}
    found = frozenset(number for number, mine in named.items() if mine and mine <= disks.get(number, set()))
    return found if found < {*named} else frozenset()


def _leaves_broker(snapshot: Snapshot, contents: Sequence[LogDirContents] | None) -> str:
    """How far the replicas of a broker have moved to other brokers."""
    if contents is None:
        return "waits: the broker does not report what is in it"
    left = sum(len(one.replicas) for one in contents)
    text = f"has {left} replicas left, which move to other brokers"
    if (mode := snapshot.cluster.rebalance.mode) != "Auto":
        return f"{text} once somebody moves them (kafka-reassign-partitions): spec.rebalance.mode is {mode}"
    reason = snapshot.status("rebalance", "reason")
    return f"{text}; the rebalance: {reason}" if reason else text


def _waits_text(drain: Drain) -> str:
    return f"drain of log directory {drain.disk} of broker {drain.broker_id}"


def removable(snapshot: Snapshot, decision: DrainDecision, broker_id: int, disk: str, claim: Obj) -> bool:
    """Whether a broker may run without a disk that spec does not name: it was empty, and nothing is placed there."""
    return (broker_id, disk) in decision.drained or annotation(claim, names.REMOVING) == "true"


def _drain(snapshot: Snapshot, number: int, disk: str, live: Obj) -> Drain | None:
    pool = snapshot.pools.get(number)
    if pool is None:
        return None  # it keeps its disks until it is removed
    field = pool.path_of("disks")
    spec = next((one for one in pool.disks if one.name == disk), None)
    if spec is None:
        return Drain(number, disk, live, f"{field} does not name it", moves=False)
    override = next(
        (
            one
            for broker in snapshot.cluster.brokers.overrides
            if broker.id == number
            for one in broker.disks
            if one.name == disk
        ),
        None,
    )
    if override is not None and override.generation > generation_of(live):
        why = f"spec.brokers.overrides: generation {override.generation} of {disk} of broker {number}"
        return Drain(number, disk, live, why, successor=why)
    storage_class = dig(live, "spec", "storageClassName")
    if spec.storage_class_name and storage_class not in (None, spec.storage_class_name):
        why = f"{field}: storageClassName of {disk} is {spec.storage_class_name}, not {storage_class}"
        return Drain(number, disk, live, why, successor=why)
    if spec.state == "Drain":
        return Drain(number, disk, live, f"{field}: state Drain")
    if override is not None and override.state == "Drain":
        return Drain(number, disk, live, "spec.brokers.overrides: state Drain")
    return None


def _held_by_replacement(snapshot: Snapshot, number: int) -> set[str]:
    """The disks that stay cordoned until the broker runs with the successor of their claim, or without them."""
    held = set()
    for claim in claims_of(snapshot, number):
        disk = label(claim, names.DISK) or ""
        is_requested = (annotation(claim, names.REPLACED_BECAUSE) or "").startswith(REQUESTED)
        if label(claim, names.RETIRED) is None and is_requested:
            held.add(disk)
        if annotation(claim, names.REMOVING) == "true" and mounted_claim(snapshot, number, disk) == name_of(claim):
            held.add(disk)
    return held


def _is_requested_under_way(snapshot: Snapshot) -> bool:
    return any(_held_by_replacement(snapshot, number) for number in snapshot.broker_racks)


def cordoned_now(snapshot: Snapshot, number: int) -> set[str] | None:
    """The value of cordoned.log.dirs that is in effect on a broker; None while the broker has not answered."""
    values = (snapshot.broker_values or {}).get(number)
    if values is None:
        return None
    cordoned = values.get(CORDONED_LOG_DIRS)
    found = cordoned.in_effect if cordoned is not None and cordoned.is_dynamic else None
    if found is None:
        found = snapshot.config_of(number).get(CORDONED_LOG_DIRS, "")
    return {part.strip() for part in found.split(",") if part.strip()}


def _move(
    snapshot: Snapshot,
    drain: Drain,
    cordoned: set[str],
    contents: LogDirContents | None,
    observation: DiskObservation,
) -> tuple[tuple[ReplicaMove, ...], str, float | None]:
    """The replicas to move now, how far it is, and the seconds to requeue after."""
    number = drain.broker_id
    if contents is None or contents.error:
        return (), "waits: the broker does not report what is in it", None
    left = len(contents.replicas)
    if not drain.moves:
        return (), f"holds {left} replicas; declare it again with state: Drain, and remove it once it is empty", None
    everything = observation.log_dirs[number]
    on_the_way = {(one.topic, one.index) for part in everything for one in part.replicas if one.is_future}
    text = f"has {left} replicas left, {len(on_the_way)} move"
    if snapshot.is_rolling():
        return (), f"{text}; it waits for the roll", None
    broker = FleetBroker(
        number,
        log_dirs=tuple(
            LogDir(one.path, one.total_bytes, one.usable_bytes, _state(one.path, drain, cordoned))
            for one in everything
            if not one.error
        ),
    )
    stored = [(one, part.path) for part in everything for one in part.replicas if not one.is_future]
    partitions = tuple(
        FleetPartition(one.topic, one.index, (FleetReplica(number, one.size_bytes, path),))
        for one, path in stored
        if (one.topic, one.index) not in on_the_way
    )
    drain_plan = plan(FleetPlacement((broker,), partitions), Policy(balance=False))
    refused = {(topic, index): why for (at, topic, index), why in observation.refused_moves.items() if at == number}
    planned = [one for one in drain_plan.log_dir_moves if one.before == log_dir(drain.disk)]
    possible = [one for one in planned if (one.topic, one.index) not in refused]
    if not planned and not on_the_way:
        return (), f"{text}: no other log directory of the broker has room; move its replicas to other brokers", None
    if refused:
        (topic, index), why = min(refused.items())
        text += f"; the broker refuses {topic}-{index}: {why}"
    moving = [one.size_bytes for one, _ in stored if (one.topic, one.index) in on_the_way]
    begun = chosen(possible, lambda one: one.size_bytes, MOVES_AT_ONCE, moving)
    sizes = [*moving, *(one.size_bytes for one in begun)]
    look = look_after_s(sizes) if sizes else None
    return tuple(ReplicaMove(number, one.topic, one.index, one.after) for one in begun), text, look


def _state(path: str, drain: Drain, cordoned: set[str]) -> State:
    if path == log_dir(drain.disk):
        return "draining"
    return "cordoned" if path in cordoned or "*" in cordoned else "active"


def _leaves_another(
    snapshot: Snapshot, number: int, mine: Mapping[str, Drain], contents: Sequence[LogDirContents] | None
) -> bool:
    """Whether a broker has a log directory that is not emptied, or nothing to put there."""
    if any(disk.name not in mine for disk in snapshot.disks_of(number)):
        return True
    return contents is not None and not any(one.replicas for one in contents)


def template_names(snapshot: Snapshot, number: int, disk: str) -> bool:
    """Whether the broker's pod or template has a disk."""
    return bool(mounted_claim(snapshot, number, disk) or named_claim(snapshot, number, disk))


def brokers_to_describe(snapshot: Snapshot) -> list[int]:
    """The brokers that are asked for the contents of their log directories: those with a disk that is being emptied."""
    return sorted({one.broker_id for one in find_drains(snapshot, snapshot.broker_racks)})
