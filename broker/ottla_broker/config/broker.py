"""The configuration of one broker: its values in force, and the dynamic updates that change them while it runs.

Here lives BrokerConfig. Not here: the values themselves (`broker_values`), which of them may change while a broker runs
(`dynamic`), the rules that join keys (`rules`), reading files (the caller's), storing and watching dynamic values
(`server.store.dynamic_config`). Pure; one object per broker, no module state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ottla_broker.config.authorizer_keys import check_authorizer
from ottla_broker.config.broker_values import BrokerValues
from ottla_broker.config.definitions import LEGACY_ALIASES, find_key
from ottla_broker.config.description import (
    ConfigDescription,
    describe,
    describe_all,
    describe_dynamic_defaults,
)
from ottla_broker.config.dynamic import check_update, refuse_unserved, usable
from ottla_broker.config.layers import Layers
from ottla_broker.config.listeners import Listeners, parse_listeners
from ottla_broker.config.passwords import password_encoder
from ottla_broker.config.properties import parse_properties
from ottla_broker.config.rules import check, check_start
from ottla_broker.config.sasl import check_sasl
from ottla_broker.config.tls import check_tls
from ottla_broker.config.topics import TopicConfig
from ottla_broker.config.types import ConfigError, Known, trimmed
from ottla_broker.config.zookeeper_security import check_zookeeper_security

ChangeListener = Callable[[tuple[str, ...]], None]
"""Called with the names whose value in force has changed, in alphabetical order."""


class BrokerConfig(BrokerValues):
    """The values of a running broker, checked. Dynamic updates change the attributes in place.

    Args:
        static: the keys and values of the properties file.

    Raises:
        ConfigError: a value cannot be used; the error names the key, the value, and what is allowed.
    """

    def __init__(self, static: Mapping[str, str]) -> None:
        self._change_listeners: list[ChangeListener] = []
        self.unknown_keys: tuple[str, ...] = unknown_broker_keys(static)
        """Keys of the file that no table has, in its order; the broker logs one WARN line about them."""
        for name, text in static.items():
            check_static_value(name, text)
        given = dict(static)
        for old, new in LEGACY_ALIASES.items():
            if old in given and new not in given:
                given[new] = given[old]
        if "broker.id" in given:
            given.setdefault("node.id", given["broker.id"])
        elif "node.id" in given:
            given["broker.id"] = given["node.id"]
        super().__init__(given)
        check(self)
        check_start(self)
        self.listeners: Listeners = parse_listeners(self.by_name, self.is_given)
        check_tls(self, self.listeners)
        check_zookeeper_security(self)
        check_authorizer(self)
        check_sasl(self, self.listeners)
        password_encoder(self)

    @classmethod
    def from_properties(cls, text: str, overrides: Sequence[str] = ()) -> BrokerConfig:
        """From the text of a server.properties and `key=value` overrides, which win over the file.

        Raises:
            ConfigError: a value cannot be used, or zookeeper.connect is missing, which is required here.
        """
        try:
            values = parse_properties(text)
        except ValueError as error:
            raise ConfigError("server.properties", None, str(error)) from None
        for entry in overrides:
            name, equals, value = entry.partition("=")
            if not equals or not name.strip():
                raise ConfigError("--override", entry, "write KEY=VALUE")
            values[name.strip()] = trimmed(value)
        config = cls(values)
        config.zookeeper  # noqa: B018 - required in a file, and checked before anything is opened
        return config

    @classmethod
    def from_mapping(cls, values: Mapping[str, str]) -> BrokerConfig:
        """From keys and values that are already parsed (the simulator, tests, fleets without ZooKeeper)."""
        return cls(values)

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The configuration of a topic with these stored overrides, over the broker's values of this moment."""
        return TopicConfig(overrides, self)

    @property
    def keys_without_effect(self) -> tuple[str, ...]:
        """Known keys of the file whose value changes nothing, in its order."""
        return tuple(name for name in self.static if (known := find_key(name)) is not None and known.note)

    # -- DescribeConfigs ---------------------------------------------------------------------------------------

    def describe(self, name: str) -> ConfigDescription:
        """A key of this broker. An unknown key has no value: it might be a secret."""
        return describe(self, name)

    def describe_all(self) -> list[ConfigDescription]:
        """Every key of Kafka's and ours that is not internal, and every other key that is given."""
        return describe_all(self)

    def describe_dynamic_defaults(self) -> list[ConfigDescription]:
        """The cluster-wide dynamic values: what DescribeConfigs gives for the broker named ""."""
        return describe_dynamic_defaults(self)

    # -- dynamic updates ---------------------------------------------------------------------------------------

    def apply_dynamic(self, per_broker: Mapping[str, str], default: Mapping[str, str]) -> tuple[str, ...]:
        """Replaces the dynamic values by the stored ones of this broker and of the cluster.

        A value that cannot be used (another program may have stored it) leaves the one before in force. Then the
        listeners of `on_change` are called once, when anything in force has changed.

        Returns:
            Messages about the values that cannot be used.
        """
        layers, problems = usable(self, Layers(per_broker, default))
        before = {**self.by_name, **self._of_listeners}
        self.layers = layers
        self._compute()
        after = {**self.by_name, **self._of_listeners}
        names = before.keys() | after.keys()
        changed = tuple(sorted(name for name in names if before.get(name) != after.get(name)))
        if changed:
            for listener in tuple(self._change_listeners):
                listener(changed)
        return problems

    @property
    def _of_listeners(self) -> dict[str, str | None]:
        """The keys that are given for one listener, and their text in force."""
        return {name: self.original(name) for name in self.given_keys if name.startswith("listener.name.")}

    def check_update(self, stored: Mapping[str, str], new: Mapping[str, str], *, cluster_wide: bool) -> BrokerValues:
        """Checks a request that replaces the `stored` values by `new`; `cluster_wide` for the default of all brokers.

        A stored value that the request does not change is not checked.

        Returns:
            The values that would be in force.

        Raises:
            KafkaError: INVALID_REQUEST (Apache Kafka's code here) for a key that cannot change while the broker runs,
                a per-broker one given cluster-wide, a bad value, or values that do not fit together;
                INVALID_CONFIG for a good value that is not served yet. An unknown key may have any value.
        """
        return check_update(self, stored, new, cluster_wide=cluster_wide)

    def on_change(self, listener: ChangeListener) -> None:
        self._change_listeners.append(listener)


def check_static_value(name: str, text: str) -> None:
    """Checks one key of a file by itself; an unknown key has any value.

    Raises:
        ConfigError: the value cannot be used, or only a dynamic update sets the key.
    """
    known = find_key(name)
    if known is None:
        return
    if known.known is Known.DYNAMIC:
        raise ConfigError(name, text, "only a dynamic update sets it")
    refuse_unserved(known, known.parse(text, name=name), name, text)


def unknown_broker_keys(values: Mapping[str, object]) -> tuple[str, ...]:
    """The keys that no table has, in the order given. A KafkaCluster with one is refused."""
    return tuple(name for name in values if find_key(name) is None)
