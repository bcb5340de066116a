"""Broker configuration that changes without a restart, and dynamic values that nobody declares (KIP-226). Pure.

A key that can change while a broker runs is set on each broker by IncrementalAlterConfigs; the file that the broker
reads at its next start follows (`concerns.config`). Every decision is made from what the broker itself reports of a
key: its own dynamic value, that of all brokers, and what it read from its file when it started.

    file read at start    own dynamic value    what is done
    the declared value    none                 nothing
    the declared value    any                  removed: it would shadow the files of later starts
    another value         the declared value   nothing
    another value         another, none        set to the declared value

A dynamic value of all brokers is removed: the declared value of each is in its file. A key that is no longer declared
has its default as declared value. Left alone are the keys of spec.brokers.unmanagedConfig, and those that the operator
or a tool sets for a time (`TRANSIENT`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ottla_broker.config import BROKER_KEYS, ConfigError, find_key, is_changeable, text_when_absent
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import CONFIG_VALID
from ottla_operator.api.conditions import Condition, condition_false
from ottla_operator.api.fleet import BrokerValue, ConfigChanges
from ottla_operator.api.objects import has_condition
from ottla_operator.concerns.config.observation import ConfigKey, ConfigWrites
from ottla_operator.concerns.disks.disk_drains import CORDONED_LOG_DIRS
from ottla_operator.facts.snapshot import Snapshot

TRANSIENT = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "ottla.log.dirs.forgotten",
    CORDONED_LOG_DIRS,
)
"""Keys that are set for a time: by reassignments and drains, the operator's and those of tools, and by
`ottla disk forget`."""
SHOWN = 5
_NOT_GIVEN = BrokerValue()


@dataclass(frozen=True, slots=True)
class DynamicConfigDecision:
    """`changes`: what to ask of the brokers, brokers first. `undeclared`: dynamic values that nobody declares."""

    changes: ConfigChanges
    undeclared: tuple[ConfigKey, ...] = ()


NOTHING_DYNAMIC = DynamicConfigDecision({})


@dataclass(frozen=True, slots=True)
class _Managed:
    """What one broker should have as its own dynamic value of a key; None for none. `is_undeclared`: what it has."""

    key: str
    target: str | None
    reported: BrokerValue
    is_undeclared: bool


def needs_no_restart(key: str, text: str) -> bool:
    """Whether a change to this value, and the removal of the key, can be made while a broker runs.

    >>> needs_no_restart("message.max.bytes", "5000"), needs_no_restart("num.partitions", "3")
    (True, False)
    """
    config_key = find_key(key)
    can_be_absent = config_key is not None and text_when_absent(key, {}) is not None
    return key not in TRANSIENT and can_be_absent and is_changeable(key, text)


def is_in_effect(snapshot: Snapshot, broker_id: int, key: str, declared: Mapping[str, str]) -> bool:
    """Whether a broker runs with the declared value of a key, or is not running and will read it at its start."""
    pod = snapshot.pod(names.pod_of(names.broker_name(snapshot.cluster.name, broker_id)))
    if pod is None or not has_condition(pod, "Ready"):
        return True
    values = (snapshot.broker_values or {}).get(broker_id)
    if values is None:
        return False
    reported = values.get(key, _NOT_GIVEN).in_effect
    absent = text_when_absent(key, _without(declared, key)) or ""
    return _is_same(key, absent if reported is None else reported, declared.get(key, absent))


def decide_dynamic_config(
    snapshot: Snapshot, declared: Mapping[int, Mapping[str, str]], written: Mapping[int, Mapping[str, str]]
) -> DynamicConfigDecision:
    """What to set and remove on the brokers that are registered.

    Args:
        declared: the whole configuration of each broker.
        written: the file of each broker as the API server has it; what it names was declared before.
    """
    changes: dict[int | None, dict[str, str | None]] = defaultdict(dict)
    undeclared: list[ConfigKey] = []
    of_all: dict[str, str | None] = {}
    for number in sorted(declared):
        if snapshot.kafka is None or number not in snapshot.kafka.brokers:
            continue
        for one in _wanted(snapshot, number, declared[number], written.get(number, {})):
            own = one.reported.own
            if (own is None) != (one.target is None) or not _is_same_or_none(one.key, own, one.target):
                changes[number][one.key] = one.target
                if one.is_undeclared:
                    undeclared.append((number, one.key))
            if one.reported.of_all is not None:
                of_all[one.key] = None
    if of_all:
        changes[None] = of_all
        undeclared += [(None, key) for key in of_all]
    return DynamicConfigDecision({number: values for number, values in changes.items() if values}, tuple(undeclared))


def allowed(writes: ConfigWrites, changes: ConfigChanges) -> ConfigChanges:
    """The changes without those that brokers have refused or that had no effect a short time ago."""
    not_now = writes.contested | writes.refused.keys()
    kept = {
        number: {key: value for key, value in values.items() if (number, key, value) not in not_now}
        for number, values in changes.items()
    }
    return {number: values for number, values in kept.items() if values}


def dynamic_condition(writes: ConfigWrites, decision: DynamicConfigDecision) -> Condition | None:
    """ConfigValid when not every dynamic value is as declared; None when all are."""
    left = [(number, key, value) for number, values in decision.changes.items() for key, value in values.items()]
    if refused := [(number, key, writes.refused[number, key, value]) for number, key, value in left
                   if (number, key, value) in writes.refused]:  # fmt: skip
        text = "; ".join(_by_error(refused)[:SHOWN])
        return condition_false(CONFIG_VALID, "DynamicRefused", f"brokers refuse {text}")
    if contested := [(number, key) for number, key, value in left if (number, key, value) in writes.contested]:
        message = f"something else sets it again each time; tried again in ten minutes: {_shown(contested)}"
        return condition_false(CONFIG_VALID, "ChangedByOthers", message)
    if undeclared := [*writes.undone, *decision.undeclared]:
        message = f"dynamic values that spec.brokers.config does not declare are removed: {_shown(undeclared)}"
        return condition_false(CONFIG_VALID, "DynamicOverride", message)
    if left:
        message = f"not in effect yet: {_shown([(number, key) for number, key, _ in left])}"
        if writes.no_answer:
            message += f"; the request is not answered: {writes.no_answer}"
        return condition_false(CONFIG_VALID, "DynamicPending", message)
    return None


def dynamic_keys(snapshot: Snapshot, broker_id: int) -> Sequence[str] | None:
    """The keys with a dynamic value in effect on a broker, for status; None while that is not known."""
    values = (snapshot.broker_values or {}).get(broker_id)
    return None if values is None else sorted(key for key, value in values.items() if value.is_dynamic)


def _wanted(
    snapshot: Snapshot, number: int, declared: Mapping[str, str], written: Mapping[str, str]
) -> Iterator[_Managed]:
    """Every managed key of one broker that is declared or that anything but the default sets."""
    values = (snapshot.broker_values or {}).get(number)
    if values is None:
        return
    for key in sorted({*declared, *values}):
        reported = values.get(key, _NOT_GIVEN)
        if key in TRANSIENT or key in snapshot.cluster.brokers.unmanaged_config:
            continue
        if not needs_no_restart(key, declared.get(key) or _default(key)):
            # Only a restart changes it; a dynamic value of it is not ours.
            if reported.is_dynamic:
                yield _Managed(key, None, reported, is_undeclared=True)
            continue
        absent = text_when_absent(key, _without(declared, key)) or ""
        target = declared.get(key, absent)
        is_in_file = _is_same(key, absent if reported.file is None else reported.file, target)
        own = reported.own
        is_known = own is None or _is_same(key, own, target) or _is_same(key, own, written.get(key, absent))
        yield _Managed(key, None if is_in_file else target, reported, is_undeclared=not is_known)


def _default(key: str) -> str:
    return text_when_absent(key, {}) or ""


def _without(declared: Mapping[str, str], key: str) -> dict[str, str]:
    return {name: text for name, text in declared.items() if name != key}


def _is_same(key: str, one: str, other: str) -> bool:
    """Whether two texts are one value for a broker.

    >>> _is_same("log.cleanup.policy", "compact, delete", "compact,delete"), _is_same("num.io.threads", "8", "9")
    (True, False)
    """
    if one == other:
        return True
    config_key = BROKER_KEYS.get(key)
    if config_key is None:
        return False
    try:
        return bool(config_key.parse(one) == config_key.parse(other))
    except ConfigError:
        return False


def _is_same_or_none(key: str, one: str | None, other: str | None) -> bool:
    return one is None or other is None or _is_same(key, one, other)


def _shown(keys: Iterable[ConfigKey]) -> str:
    """Keys by the brokers that have them, never their values.

    >>> _shown([(0, "a"), (1, "a"), (None, "b")])
    'a of broker 0, 1; b of all brokers (the default)'
    """
    brokers: dict[str, list[str]] = defaultdict(list)
    of_all: dict[str, None] = {}
    for number, key in dict.fromkeys(keys):
        if number is None:
            of_all[key] = None
        else:
            brokers[key].append(str(number))
    texts = [f"{key} of broker {', '.join(numbers)}" for key, numbers in brokers.items()]
    texts += [f"{key} of all brokers (the default)" for key in of_all]
    return "; ".join(texts[:SHOWN])


def _by_error(refused: Iterable[tuple[int | None, str, str]]) -> list[str]:
    """
    >>> _by_error([(0, "a", "too much"), (1, "a", "too much")])
    ['a of broker 0, 1: too much']
    """
    grouped: dict[tuple[str, str], list[ConfigKey]] = defaultdict(list)
    for number, key, error in refused:
        grouped[key, error].append((number, key))
    return [f"{_shown(found)}: {error}" for (_, error), found in grouped.items()]


def shown_dynamic_keys(snapshot: Snapshot, broker_id: int) -> list[str]:
    """The keys with a dynamic value in effect; those that status has while no broker has answered."""
    keys = dynamic_keys(snapshot, broker_id)
    if keys is not None:
        return list(keys)
    entries = [entry for entry in snapshot.status("brokers") or () if entry.get("id") == broker_id]
    return list(entries[0].get("dynamicConfig") or ()) if entries else []
