"""Checks dynamic values: those of a request, and those that are stored already (KIP-226). Pure.

Both obey one set of rules: `check_key` for each key, then `check_in_force` for the configuration that would be in
force. A request that breaks a rule is refused. A stored value that breaks a rule leaves the value before it in force;
after a restart, which knows no value before, the value of the layer below.

    request        check_key of what it changes -> check_in_force -> rules.check_change -> what is not served yet
    stored values  check_key of each            -> check_in_force; drops the key that it names until no rule is broken
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.definitions import BROKER_KEYS, SYNONYMS, find_key
from ottla_broker.config.layers import Layers
from ottla_broker.config.listeners import parse_listeners
from ottla_broker.config.rules import check, check_change
from ottla_broker.config.sasl import check_sasl
from ottla_broker.config.served import BROKER_REFUSALS, LOADED_CLASSES
from ottla_broker.config.tls import check_tls
from ottla_broker.config.types import ConfigError, ConfigKey, NotServed, UpdateMode, format_value
from ottla_broker.protocol.errors import ErrorCode, KafkaError

_CLUSTER_WIDE_OF_LISTENERS = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""Keys that one listener may have for the whole cluster. Source: DynamicBrokerConfig.ClusterLevelListenerConfigs."""
_LISTENERS = ("listeners", "advertised.listeners", "listener.security.protocol.map")
_KEYS_AND_CERTIFICATES = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password", "ssl.engine.factory.class")
"""Dynamic for one listener only. Source: DynamicBrokerConfig.DynamicSecurityConfigs."""
_AT_LEAST_ONE = ("max.connections", "max.connection.creation.rate", "num.replica.fetchers")
"""Keys that a file may set to less, and a dynamic change may not: it would lock everybody out while the broker runs.
Source: SocketServer's and ConnectionQuotas' validateReconfiguration, DynamicThreadPool."""

_MS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}
"""Milliseconds by the end of the name of a key with synonyms."""


class _NotDynamic(ValueError):
    """A key that this kind of update cannot set."""


def check_key(name: str, text: str, *, cluster_wide: bool) -> None:
    """The rules of one dynamic value: ValueError, or ConfigError, or for a good one NotServed.

    An unknown key may be one of a plug-in: it is stored, and nothing here reads it (KIP-226, custom configurations).
    """
    known = find_key(name)
    of_listener = name.startswith("listener.name.")
    if known is None:
        if cluster_wide and of_listener:
            raise _NotDynamic(f"Cannot update {name} for the whole cluster: it is set for each broker")
        return
    if known.update_mode is UpdateMode.READ_ONLY:
        raise _NotDynamic(f"Cannot update {name} dynamically: it is read when the broker starts")
    is_per_broker = known.name not in _CLUSTER_WIDE_OF_LISTENERS if of_listener else False
    if cluster_wide and (is_per_broker or known.update_mode is UpdateMode.PER_BROKER):
        raise _NotDynamic(f"Cannot update {name} for the whole cluster: it is set for each broker")
    if known.name.startswith(_KEYS_AND_CERTIFICATES) and not of_listener:
        raise _NotDynamic(f"Cannot update {name}: it is set for each listener, as listener.name.NAME.{name}")
    value = known.parse(text, name=name)
    if known.name in _AT_LEAST_ONE and value < 1:
        raise ConfigError(name, text, "at least 1")
    loaded = LOADED_CLASSES.get(known.name)
    if loaded is not None and not all(item in loaded for item in (value if isinstance(value, tuple) else (value,))):
        raise ConfigError(name, text, f"one of {', '.join(loaded)}: other Java classes cannot be loaded")
    refuse_unserved(known, value, name, text)
    if known.name in _LISTENERS:
        raise NotServed(name, text, "changes of listeners need a restart; a running change is not served yet")


def is_changeable(name: str, text: str) -> bool:
    """Whether a running broker takes this value of a known key for itself, as far as the value alone decides that.

    >>> is_changeable("message.max.bytes", "5000"), is_changeable("num.partitions", "3")
    (True, False)
    >>> is_changeable("max.connections", "0")
    False
    >>> is_changeable("message.max.byte", "5000")
    False
    """
    known = find_key(name)
    if known is None or known.is_sensitive:  # a password needs password.encoder.secret
        return False
    try:
        check_key(name, text, cluster_wide=False)
    except ValueError:
        return False
    return True


def text_when_absent(name: str, given: Mapping[str, str]) -> str | None:
    """What to set for a key so that it means what it means without being given: its default, or the value of a synonym.

    Args:
        given: the file without the key; a key that is a synonym in another unit may be in it.

    Returns:
        None where no value means that.

    >>> text_when_absent("log.retention.ms", {"log.retention.hours": "2"}), text_when_absent("message.max.bytes", {})
    ('7200000', '1048588')
    >>> text_when_absent("ssl.provider", {}) is None
    True
    """
    known = BROKER_KEYS.get(name)
    if known is None:
        return None
    if known.default is not None:
        return format_value(known.default)
    for other in SYNONYMS.get(name, ()):
        text = given.get(other)
        value = BROKER_KEYS[other].default if text is None else BROKER_KEYS[other].parse(text)
        if other != name and value is not None:
            return str(value if value < 0 else value * _MS[other.rpartition(".")[2]])
    return None


def refuse_unserved(known: ConfigKey, value: Any, name: str, text: str) -> None:
    """NotServed for a value that this release does not serve."""
    refusal = BROKER_REFUSALS.get(known.name)
    if refusal is not None and refusal[0](value):
        raise NotServed(name, text, refusal[1])


def check_in_force(values: BrokerValues) -> None:
    """ConfigError for the first rule that the values break together."""
    check(values)
    listeners = parse_listeners(values.by_name, values.is_given)
    check_tls(values, listeners)
    check_sasl(values, listeners)


def _check_storable(values: BrokerValues, name: str) -> None:
    """NotServed for a password that nobody could read. Source: DynamicBrokerConfig.toPersistentProps."""
    known = find_key(name)
    if known is not None and known.is_sensitive and not values.by_name["password.encoder.secret"]:
        raise NotServed(name, "[hidden]", "to be stored, a password needs password.encoder.secret of the broker")


def check_update(
    values: BrokerValues, stored: Mapping[str, str], new: Mapping[str, str], *, cluster_wide: bool
) -> BrokerValues:
    """See `BrokerConfig.check_update`. Source: DynamicBrokerConfig.validate."""
    touched = {name: text for name, text in new.items() if stored.get(name) != text}
    not_served: NotServed | None = None
    try:
        for name, text in touched.items():
            try:
                check_key(name, text, cluster_wide=cluster_wide)
                _check_storable(values, name)
            except NotServed as error:
                not_served = not_served or error
        in_force = values.layers.of(cluster_wide=cluster_wide)
        layer = {name: in_force[name] for name in new if name in in_force} | touched
        changed = values.with_layers(values.layers.replacing(layer, cluster_wide=cluster_wide))
        check_in_force(changed)
        check_change(values, changed)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if not_served is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(not_served))
    return changed


def usable(values: BrokerValues, stored: Layers) -> tuple[Layers, tuple[str, ...]]:
    """The stored values that come into force, and what is wrong with the others.

    A value that cannot be used leaves the one in force, if its layer has one; else it is left out.
    """
    problems: list[str] = []
    layers = Layers(
        _usable_keys(stored.per_broker, values.layers.per_broker, problems, cluster_wide=False),
        _usable_keys(stored.default, values.layers.default, problems, cluster_wide=True),
    )
    while layers != values.layers:
        try:
            check_in_force(values.with_layers(layers))
        except ConfigError as error:
            problems.append(str(error))
            layers = _dropped(values.layers, layers, error.key)
        else:
            break
    return layers, tuple(dict.fromkeys(problems))


def _usable_keys(
    stored: Mapping[str, str], in_force: Mapping[str, str], problems: list[str], *, cluster_wide: bool
) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in sorted(stored):
        try:
            check_key(name, stored[name], cluster_wide=cluster_wide)
        except ValueError as error:
            problems.append(str(error))
            if name in in_force:
                found[name] = in_force[name]
        else:
            found[name] = stored[name]
    return found


def _dropped(in_force: Layers, layers: Layers, key: str) -> Layers:
    """The layers without the changes of `key`; without any change where that is none, or changes nothing."""
    changed = Layers(
        _without(in_force.per_broker, layers.per_broker, key), _without(in_force.default, layers.default, key)
    )
    return changed if changed != layers else in_force


def _without(in_force: Mapping[str, str], layer: Mapping[str, str], key: str) -> dict[str, str]:
    found = {name: text for name, text in layer.items() if name != key}
    if key in in_force:
        found[key] = in_force[key]
    return found
