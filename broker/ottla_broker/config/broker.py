"""The configuration of one broker: static values, dynamic updates over them, and what they mean together.

Here lives BrokerConfig. Not here: which values may change while a broker runs (`dynamic`), the rules that join keys
(`rules`), reading files (the caller's), storing and watching dynamic values (`server.dynamic_config`). Pure; one object
per broker, no module state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from ottla_broker.config.definitions import BROKER_KEYS, LEGACY_ALIASES, SYNONYMS, find_key
from ottla_broker.config.description import ConfigDescription, Synonym, documentation_of
from ottla_broker.config.dynamic import Layers, check_update, refuse_unserved, usable
from ottla_broker.config.listeners import (
    Listeners,
    ZooKeeperAddress,
    parse_http_listener,
    parse_listeners,
    parse_zookeeper_connect,
)
from ottla_broker.config.properties import parse_properties
from ottla_broker.config.rules import check, check_start
from ottla_broker.config.topics import TopicConfig
from ottla_broker.config.types import (
    ConfigError,
    ConfigKey,
    ConfigSource,
    Known,
    UpdateMode,
    format_value,
    trimmed,
)

ChangeListener = Callable[[tuple[str, ...]], None]
"""Called with the names whose value in force has changed, in alphabetical order."""


class BrokerConfig(Mapping[str, Any]):
    """A broker's values by Kafka's key names, typed: int, float, bool, str, tuple for lists, None when not set.

    A value in force comes from, in this order: the dynamic configuration of this broker, the dynamic default of the
    cluster, the properties file, Kafka's default (KIP-226). Keys that mean one thing (log.retention.ms, .minutes,
    .hours) keep a value each; the one in force is `first_given`'s.
    """

    def __init__(self, static: Mapping[str, str]) -> None:
        self._static: dict[str, str] = dict(static)
        self._layers = Layers({}, {})
        self._values: dict[str, Any] = {}
        self._change_listeners: list[ChangeListener] = []
        self.unknown_keys: tuple[str, ...] = unknown_broker_keys(static)
        """Keys of the file that nobody knows, in its order: one WARN line."""
        for name, text in self._static.items():
            known = find_key(name)
            if known is None:
                continue
            if known.known is Known.DYNAMIC:
                raise ConfigError(name, text, "only a dynamic update sets it")
            refuse_unserved(known, known.parse(text, name=name), name, text)
        for old, new in LEGACY_ALIASES.items():
            if old in self._static and new not in self._static:
                self._static[new] = self._static[old]
        if "broker.id" in self._static:
            self._static.setdefault("node.id", self._static["broker.id"])
        elif "node.id" in self._static:
            self._static["broker.id"] = self._static["node.id"]
        self._compute()
        check(self)
        check_start(self)
        self.listeners: Listeners = parse_listeners(self._values, self.is_given)

    @classmethod
    def from_properties(cls, text: str, overrides: Sequence[str] = ()) -> BrokerConfig:
        """From the text of a server.properties and `key=value` overrides, which win over the file.

        ConfigError names the key, the value and what is allowed; zookeeper.connect is required here.
        """
        try:
            values = parse_properties(text)
        except ValueError as error:
            raise ConfigError("server.properties", None, str(error)) from None
        for entry in overrides:
            name, equals, value = entry.partition("=")
            if not equals or not name.strip():
                raise ConfigError("--override", entry, "KEY=VALUE")
            values[name.strip()] = trimmed(value)
        config = cls(values)
        config.zookeeper  # noqa: B018 - required in a file, and checked before anything is opened
        return config

    @classmethod
    def from_mapping(cls, values: Mapping[str, str]) -> BrokerConfig:
        """From keys and values already parsed (the simulator, tests, fleets without ZooKeeper)."""
        return cls(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    # -- what the keys mean together ---------------------------------------------------------------------------

    @property
    def broker_id(self) -> int:
        """broker.id; -1 asks the coordination store for an id."""
        return int(self["broker.id"])

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """log.dirs, else log.dir; without repeats, in the order given."""
        return tuple(dict.fromkeys(self.named_log_dirs))

    @property
    def named_log_dirs(self) -> tuple[str, ...]:
        """The same as it is written."""
        text = self["log.dirs"] if self["log.dirs"] is not None else self["log.dir"]
        return tuple(filter(None, (trimmed(part) for part in text.split(","))))

    @property
    def formattable_log_dirs(self) -> tuple[str, ...]:
        """The log directories that may be empty and are then formatted (ottla.log.dirs.format; default: all)."""
        named = self["ottla.log.dirs.format"]
        return self.log_dirs if named is None else tuple(directory for directory in self.log_dirs if directory in named)

    @property
    def cordoned_log_dirs(self) -> tuple[str, ...]:
        """The log directories that take no new partition (cordoned.log.dirs, KIP-1066), in the order of log.dirs."""
        named = self["cordoned.log.dirs"]
        return self.log_dirs if "*" in named else tuple(directory for directory in self.log_dirs if directory in named)

    @property
    def zookeeper(self) -> ZooKeeperAddress:
        """ConfigError when zookeeper.connect is not given or malformed."""
        text = self["zookeeper.connect"]
        if text is None or not text.strip():
            raise ConfigError("zookeeper.connect", text, "it is required: HOST:PORT,HOST:PORT/CHROOT")
        return parse_zookeeper_connect(text)

    @property
    def http_listener(self) -> tuple[str, int] | None:
        """(host, port) of ottla.http.listener; None when HTTP is not served."""
        text = self["ottla.http.listener"]
        return parse_http_listener(text) if text else None

    def effective(self, name: str) -> Any:
        """The value in force of a key with synonyms, in the unit of the synonym that gives it (`first_given`)."""
        return self[self.first_given(SYNONYMS.get(name, (name,)))]

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The configuration of a topic with these stored overrides, over the broker's values of this moment."""
        return TopicConfig(overrides, self)

    # -- where values come from --------------------------------------------------------------------------------

    def is_given(self, name: str) -> bool:
        """Whether anything but the default sets the key."""
        return name in self._layers.per_broker or name in self._layers.default or name in self._static

    @property
    def given_keys(self) -> frozenset[str]:
        """The keys that anything but a default sets, those of single listeners included."""
        return frozenset((*self._static, *self._layers.default, *self._layers.per_broker))

    def original(self, name: str) -> str | None:
        """The text in force as it was written; None when only the default speaks."""
        for layer in (self._layers.per_broker, self._layers.default, self._static):
            if name in layer:
                return layer[name]
        return None

    def source(self, name: str) -> ConfigSource:
        """Where the value in force of this key comes from."""
        if name in self._layers.per_broker:
            return ConfigSource.DYNAMIC_BROKER_CONFIG
        if name in self._layers.default:
            return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return ConfigSource.STATIC_BROKER_CONFIG if name in self._static else ConfigSource.DEFAULT_CONFIG

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Every place a value of `name` or of a key that means the same is given in, the one in force first."""
        known = find_key(name)
        names = SYNONYMS.get(name, (name,) if known is None else (known.name,))  # of one listener: the key for all
        return self.synonyms_of((name, *(other for other in names if other != name)))

    def synonyms_of(self, names: Sequence[str]) -> tuple[Synonym, ...]:
        """The same for keys in order of precedence."""
        found: list[Synonym] = []
        layers = (
            (self._layers.per_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self._layers.default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        for layer, source in layers:
            for name in names:
                if name in layer:
                    found.append(Synonym(name, self._shown(name, layer[name]), source))
        for name in names:
            known = BROKER_KEYS.get(name)
            # A key that only a dynamic update sets has a default, and no place where it would be given.
            if known is not None and known.default is not None and known.known is not Known.DYNAMIC:
                found.append(Synonym(name, self._shown(name, format_value(known.default)), ConfigSource.DEFAULT_CONFIG))
        # As Apache Kafka does: what stands before the first mention of the key itself is not told, so that
        # log.retention.ms looks unset where only log.retention.hours is given.
        first = next((index for index, synonym in enumerate(found) if names and synonym.name == names[0]), len(found))
        return tuple(found[first:])

    def first_given(self, names: Sequence[str]) -> str:
        """The first of the names that is given; else the last one that has a default."""
        for name in names:
            if self.is_given(name) and self[name] is not None:
                return name
        return next((name for name in reversed(names) if self[name] is not None), names[-1])

    @property
    def keys_without_effect(self) -> tuple[str, ...]:
        """Known keys of the file whose value changes nothing, in its order."""
        return tuple(name for name in self._static if (known := find_key(name)) is not None and known.note)

    # -- DescribeConfigs ---------------------------------------------------------------------------------------

    def describe(self, name: str) -> ConfigDescription:
        """A key of this broker. An unknown key has no value: it might be a secret."""
        known = find_key(name)
        synonyms = self.synonyms(name)
        if known is None:
            return ConfigDescription(name, None, None, True, True, self.source(name), synonyms, None)
        return ConfigDescription(
            name=name,
            value=None if known.is_sensitive else self._described_value(name),
            type=known.type,
            is_read_only=_is_shown_read_only(known, name),
            is_sensitive=known.is_sensitive,
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            synonyms=synonyms,
            documentation=documentation_of(known),
        )

    def _described_value(self, name: str) -> str | None:
        """As it is read; as written where Kafka keeps text: of one listener, or where only a dynamic update sets it."""
        known = BROKER_KEYS.get(name)
        if known is None or known.known is Known.DYNAMIC:
            return self.original(name)
        return format_value(self._values[name])

    def describe_all(self) -> list[ConfigDescription]:
        """Every key of Kafka's and ours that is not internal, and every other key that is given."""
        names = {
            entry.name: None
            for entry in BROKER_KEYS.values()
            if entry.known in (Known.KAFKA, Known.OWN) and not entry.internal
        }
        for layer in (self._static, self._layers.default, self._layers.per_broker):
            names.update(dict.fromkeys(layer))
        return [self.describe(name) for name in sorted(names)]

    def describe_dynamic_defaults(self) -> list[ConfigDescription]:
        """The cluster-wide dynamic values: what DescribeConfigs gives for the broker named ""."""
        found: list[ConfigDescription] = []
        for name in sorted(self._layers.default):
            known = find_key(name)
            text = None if known is None or known.is_sensitive else self._layers.default[name]
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            found.append(
                ConfigDescription(
                    name=name,
                    value=text,
                    type=None if known is None else known.type,
                    is_read_only=known is None or _is_shown_read_only(known, name),
                    is_sensitive=known is None or known.is_sensitive,
                    source=source,
                    synonyms=(Synonym(name, text, source),),
                    documentation=None if known is None else documentation_of(known),
                )
            )
        return found

    def _shown(self, name: str, text: str | None) -> str | None:
        known = find_key(name)
        return None if known is None or known.is_sensitive else text

    # -- dynamic updates ---------------------------------------------------------------------------------------

    def apply_dynamic(self, per_broker: Mapping[str, str], default: Mapping[str, str]) -> tuple[str, ...]:
        """Takes the stored dynamic values of this broker and of the cluster in place of those before.

        A value that cannot be used (another program may have stored it) leaves the one before in force; the messages
        about such values are given back. Then the listeners of `on_change` are called once, when anything in force
        has changed.
        """
        layers, problems = usable(self, Layers(per_broker, default))
        before = self._values
        self._layers = layers
        self._compute()
        changed = tuple(sorted(name for name, value in self._values.items() if before.get(name) != value))
        if changed:
            for listener in tuple(self._change_listeners):
                listener(changed)
        return problems

    def check_update(self, stored: Mapping[str, str], new: Mapping[str, str], *, cluster_wide: bool) -> None:
        """Checks a request that makes `new` of the `stored` values; `cluster_wide` for the default of all brokers.

        Raises KafkaError: INVALID_REQUEST for an unknown key, one that cannot change while the broker runs, a
        per-broker one given cluster-wide, a bad value, or values that do not fit together (Apache Kafka's code here);
        INVALID_CONFIG for a good one that is not served yet. What is stored already and not changed is not looked at.
        """
        check_update(self, stored, new, cluster_wide=cluster_wide)

    @property
    def layers(self) -> Layers:
        """The dynamic values in force."""
        return self._layers

    def with_layers(self, layers: Layers) -> BrokerConfig:
        """This configuration with other dynamic values, unchecked and without listeners of changes."""
        other = copy(self)
        other._layers = layers
        other._change_listeners = []
        other._compute()
        return other

    def check(self) -> None:
        """ConfigError for the first rule that the values in force break together."""
        check(self)
        parse_listeners(self._values, self.is_given)

    def on_change(self, listener: ChangeListener) -> None:
        self._change_listeners.append(listener)

    def _compute(self) -> None:
        values = {entry.name: entry.default for entry in BROKER_KEYS.values()}
        for layer in (self._static, self._layers.default, self._layers.per_broker):
            for name, text in layer.items():
                known = BROKER_KEYS.get(name)
                if known is not None:
                    values[name] = known.parse(text)
        self._values = values


def unknown_broker_keys(values: Mapping[str, object]) -> tuple[str, ...]:
    """The keys that no table knows, in the order given. A KafkaCluster with one is refused."""
    return tuple(name for name in values if find_key(name) is None)


def _is_shown_read_only(known: ConfigKey, name: str) -> bool:
    """Kafka shows only keys of all listeners as changeable. Source: DynamicBrokerConfig.AllDynamicConfigs."""
    return known.update_mode is UpdateMode.READ_ONLY or known.known is Known.DYNAMIC or name not in BROKER_KEYS
