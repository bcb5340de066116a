"""Which inter.broker.protocol.version brokers get, and when it is raised: an upgrade is two rolls.

    spec                       files of brokers              status
    version 3.6 -> 3.9, image  the former protocol, the new  interBrokerProtocolVersion 3.6, version 3.6
                               image: the first roll
    every broker runs the new template, is registered, and every replica is in sync
                               -                             interBrokerProtocolVersion 3.9, version 3.6
                               3.9: the second roll
    no pod has the former one  -                             interBrokerProtocolVersion 3.9, version 3.9

The raise is in status before any file has it, and files follow status only. So an operator that crashes between any two
writes goes on, and a broker that restarts in the second roll is no reason to take it back. Where status was lost, the
highest protocol that a template or pod names counts.

A protocol that a broker may have run with is never lowered. Source: the upgrade notes of Apache Kafka 3.9 in ZooKeeper
mode, by which no broker of an earlier release can come back after the protocol was raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla_broker.config import BROKER_KEYS, canonical_release, level
from ottla_broker.config.properties import parse_properties
from ottla_documents.kafka_version import PROTOCOL_KEY
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import CONFIG_VALID, ROLLED
from ottla_operator.api.conditions import Condition, condition_false
from ottla_operator.api.objects import (
    CONFIG_MAP,
    POD,
    STATEFUL_SET,
    Obj,
    ResourceKind,
    annotation,
    dig,
    has_condition,
    label,
)
from ottla_operator.concerns.brokers.brokers import BrokersDecision
from ottla_operator.concerns.config.config import FILE
from ottla_operator.facts.snapshot import Snapshot

NEWEST = canonical_release(BROKER_KEYS[PROTOCOL_KEY].default) or ""
"""What new clusters get without spec.version, and what a broker speaks whose file names no protocol."""
SOON_S = 0.5
SHOWN = 5


@dataclass(frozen=True, slots=True)
class VersionDecision:
    """`protocol`: what the files of brokers have. `target`: what it is to be raised to, "" when nothing is.

    `in_force`: the lowest protocol that a pod runs with, "" while it is not known. `condition`: why spec is refused.
    """

    protocol: str
    target: str = ""
    in_force: str = ""
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class RaiseDecision:
    """`protocol`: what status records from now on. `condition`: Rolled, while a raise waits."""

    protocol: str
    condition: Condition | None = None
    requeue_after_s: float | None = None


def decide_version(snapshot: Snapshot, features: Mapping[str, int] | None = None) -> VersionDecision:
    """The protocol of the brokers' files now, and whether spec.version asks for a higher one, or for one too low.

    Args:
        features: the finalized levels by feature (KIP-584), asked for only while spec.version is too low.
    """
    declared = snapshot.cluster.version
    running = _protocols(snapshot, POD)
    highest = _highest([*running, *_protocols(snapshot, STATEFUL_SET)])
    recorded = canonical_release(str(snapshot.status("interBrokerProtocolVersion") or "")) or ""
    in_force = _lowest(running) or str(snapshot.status("version") or "")
    if not highest:  # there is no broker
        return VersionDecision(declared or recorded or NEWEST, in_force=in_force)
    current = _highest([highest, recorded])
    if not declared or level(declared) == level(current):
        return VersionDecision(current, in_force=in_force)
    if _is_above(declared, current):
        return VersionDecision(current, declared, in_force)
    if not _is_above(highest, declared):  # a raise was recorded, and no broker has had it
        return VersionDecision(declared, in_force=in_force)
    return VersionDecision(current, in_force=in_force, condition=_refusal(features or {}, declared, current))


def is_too_low(snapshot: Snapshot) -> bool:
    """Whether spec.version is refused, so that it matters which features are finalized."""
    return decide_version(snapshot).condition is not None


def decide_raise(
    snapshot: Snapshot,
    version: VersionDecision,
    broker_ids: Iterable[int],
    brokers: BrokersDecision,
    *,
    is_rolling: bool,
    failed: Sequence[str],
) -> RaiseDecision:
    """Whether the protocol is raised now.

    Args:
        is_rolling: whether a roll is under way or recorded.
        failed: the condition types of the concerns that could not say what should run.
    """
    if not version.target:
        return RaiseDecision(version.protocol)
    waits = _blockers(snapshot, broker_ids, brokers, is_rolling=is_rolling, failed=failed)
    if not waits and not snapshot.cluster.paused:
        message = f"brokers restart once more, with {PROTOCOL_KEY} {version.target} in place of {version.protocol}"
        return RaiseDecision(version.target, condition_false(ROLLED, "RaisesProtocol", message), SOON_S)
    shown = "; ".join(waits[:SHOWN])
    message = f"{PROTOCOL_KEY} stays {version.protocol} until {version.target} can be rolled: {shown}"
    return RaiseDecision(version.protocol, condition_false(ROLLED, "RaisesProtocol", message))


def version_status(version: VersionDecision, raised: RaiseDecision) -> Obj:
    """What status records and shows."""
    found: Obj = {"interBrokerProtocolVersion": raised.protocol}
    if version.in_force:
        found["version"] = version.in_force
    return found


def _blockers(
    snapshot: Snapshot,
    broker_ids: Iterable[int],
    brokers: BrokersDecision,
    *,
    is_rolling: bool,
    failed: Sequence[str],
) -> list[str]:
    """Why the second roll must not begin; empty when all brokers run what is declared and are in sync."""
    if is_rolling:
        return ["a roll is under way"]
    if failed:
        return [f"see {kind}" for kind in failed]
    found = list(brokers.unknown.values())
    found += [f"broker {number}: {', '.join(reasons)}" for number, reasons in sorted(brokers.pending.items())]
    kafka = snapshot.kafka
    for number in broker_ids:
        pod = snapshot.pod(names.pod_of(names.broker_name(snapshot.cluster.name, number)))
        if pod is None or not has_condition(pod, "Ready"):
            found.append(f"broker {number} is not ready")
        elif kafka is not None and number not in kafka.brokers:
            found.append(f"broker {number} is not registered")
    if kafka is None:
        return [*found, "no broker answers which replicas are in sync"]
    behind = [partition for partition in kafka.partitions if set(partition.in_sync) != set(partition.replicas)]
    return [*found, *(f"{partition} is not in sync" for partition in behind)]


def _refusal(finalized: Mapping[str, int], declared: str, current: str) -> Condition:
    what = f"spec.version: {declared} is less than {current}, which brokers have spoken; nothing is changed"
    then = f"set spec.version to {current}, or to a later release"
    if finalized:
        features = ", ".join(f"{name} {value}" for name, value in sorted(finalized.items()))
        return condition_false(
            CONFIG_VALID, "FeatureFinalized", f"{what}. The features {features} are finalized as well: {then}"
        )
    return condition_false(CONFIG_VALID, "VersionDowngrade", f"{what}. Kafka's protocol has no way back: {then}")


def _protocols(snapshot: Snapshot, kind: ResourceKind) -> list[str]:
    """The protocol of each pod, or of each StatefulSet's template, of a broker."""
    found = []
    for obj in snapshot.all(kind):
        if label(obj, "app.kubernetes.io/component") != names.BROKER:
            continue
        holder = dig(obj, "spec", "template") if kind == STATEFUL_SET else obj
        named = canonical_release(annotation(holder, names.PROTOCOL) or "")
        found.append(named or _of_file(snapshot, holder))
    return found


def _of_file(snapshot: Snapshot, holder: Obj) -> str:
    """The protocol in the file of a template or pod of an earlier release, which had no annotation."""
    text = dig(snapshot.get(CONFIG_MAP, annotation(holder, names.CONFIG) or ""), "data", FILE)
    try:
        written = parse_properties(text).get(PROTOCOL_KEY, "") if isinstance(text, str) else ""
    except ValueError:
        return NEWEST
    return canonical_release(written) or NEWEST


def _is_above(one: str, other: str) -> bool:
    """
    >>> _is_above("3.9", "3.6"), _is_above("3.5-IV1", "3.5"), _is_above("3.6", "")
    (True, False, True)
    """
    return (level(one) or (0, 0, 0)) > (level(other) or (0, 0, 0))


def _highest(releases: Iterable[str]) -> str:
    return max(releases, key=lambda release: level(release) or (0, 0, 0), default="")


def _lowest(releases: Iterable[str]) -> str:
    return min(releases, key=lambda release: level(release) or (9, 9, 9), default="")
