"""Records what the handlers of a broker in this process read and write, and what they have asked the authorizer before.

`traced` puts a recording proxy around each part of the broker that handlers know topics, groups and transactions by.
Which methods there are is not written here: an argument or a key that is one of the names counts, wherever it stands in
it. What goes through all topics or groups, to show those that may be seen, names nothing; `existence` tests that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ottla_broker.authorization.authorizer import AclCheck, Authorizer
from ottla_broker.authorization.resources import AclOperation, ResourceType
from ottla_broker.security.principals import Principal
from ottla_broker.server.handler_api import Services

PARTS = (
    "metadata",
    "prepared_topics",
    "replica_manager",
    "append_queues",
    "transaction_verification",
    "marker_appends",
    "record_search",
    "controller",
    "group_coordinator",
    "transaction_coordinator",
    "dynamic_config",
    "auto_create",
)
"""Fields of `Services`."""
_DEEPEST = 6


class Trace:
    """What one request has asked and touched, in order.

    Args:
        names: what counts.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._asked: set[tuple[ResourceType, str]] = set()
        self.unasked: set[tuple[str, str]] = set()
        """Names that were touched before any right on them was asked for, each with what touched it."""
        self.touched: set[str] = set()

    def clear(self) -> None:
        self._asked.clear()
        self.unasked.clear()
        self.touched.clear()

    def asked(self, checks: Sequence[AclCheck]) -> None:
        self._asked.update((check.resource_type, check.name) for check in checks)

    @property
    def types(self) -> set[ResourceType]:
        """Those of all that was asked."""
        return {resource_type for resource_type, _ in self._asked}

    def touches(self, what: str, value: Any) -> None:
        """`what` is called, or looked up, with this."""
        for name in self._found(value, _DEEPEST):
            self.touched.add(name)
            is_asked = any(name == asked for _, asked in self._asked)
            if not is_asked and ResourceType.CLUSTER not in self.types:
                self.unasked.add((name, what))

    def _found(self, value: Any, depth: int) -> Iterator[str]:
        if isinstance(value, str):
            if value in self._names:
                yield value
        elif depth and not isinstance(value, (bytes, bytearray, memoryview, int, float)) and value is not None:
            for part in _parts(value):
                yield from self._found(part, depth - 1)


def _parts(value: Any) -> Iterator[Any]:
    """Of collections, and of values that only carry others."""
    if isinstance(value, Mapping):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif dataclasses.is_dataclass(value):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))
    elif type(value).__module__.startswith("ottla_broker.protocol.generated"):
        yield from (getattr(value, name) for name in value.__slots__)


class TracingAuthorizer:
    """Asks another one, which decides; nothing is decided for long, so that it is asked for each request."""

    def __init__(self, authorizer: Authorizer, trace: Trace) -> None:
        self._authorizer = authorizer
        self._trace = trace
        self._version = 0

    @property
    def version(self) -> int:
        self._version += 1
        return self._version

    def decide(self, principal: Principal, address: str, checks: Sequence[AclCheck]) -> list[bool]:
        self._trace.asked(checks)
        return self._authorizer.decide(principal, address, checks)

    def allows_any(
        self, principal: Principal, address: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return self._authorizer.allows_any(principal, address, operation, resource_type)


class _Traced:
    """A part of the broker: its methods and mappings are recorded, everything else is as it is."""

    def __init__(self, part: Any, name: str, trace: Trace) -> None:
        self.__dict__.update(_part=part, _name=name, _trace=trace)

    def __getattr__(self, name: str) -> Any:
        return _wrapped(getattr(self._part, name), f"{self._name}.{name}", self._trace)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._part, name, value)


class _TracedMapping(Mapping[Any, Any]):
    def __init__(self, mapping: Mapping[Any, Any], name: str, trace: Trace) -> None:
        self._mapping = mapping
        self._name = name
        self._trace = trace

    def __getitem__(self, key: Any) -> Any:
        self._trace.touches(f"{self._name}[]", key)
        return _wrapped(self._mapping[key], f"{self._name}[]", self._trace)

    def __contains__(self, key: object) -> bool:
        self._trace.touches(f"{self._name}[]", key)
        return key in self._mapping

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mapping)

    def __len__(self) -> int:
        return len(self._mapping)

    def items(self) -> Any:
        return self._mapping.items()

    def values(self) -> Any:
        return self._mapping.values()


def _wrapped(value: Any, name: str, trace: Trace) -> Any:
    if isinstance(value, Mapping):
        return _TracedMapping(value, name, trace)
    if callable(value) and not isinstance(value, type):
        return _recorded(value, name, trace)
    return value


def _recorded(call: Callable[..., Any], name: str, trace: Trace) -> Callable[..., Any]:
    def recorded(*args: Any, **kwargs: Any) -> Any:
        trace.touches(name, (args, kwargs))
        found = call(*args, **kwargs)
        return _TracedMapping(found, name, trace) if isinstance(found, Mapping) else found

    return recorded


def traced(services: Services, trace: Trace) -> Services:
    """The same, with its parts recorded."""
    parts: dict[str, Any] = {}
    for name in PARTS:
        part = getattr(services, name)
        parts[name] = _recorded(part, name, trace) if name == "auto_create" else _Traced(part, name, trace)
    engine = services.fetch_engine  # asks for rights itself, topic by topic: what it uses is recorded, not its call
    replicas: Any = _Traced(engine._environment.replicas, "fetch_engine.replicas", trace)
    engine._environment = dataclasses.replace(engine._environment, replicas=replicas)
    return dataclasses.replace(services, **parts)
