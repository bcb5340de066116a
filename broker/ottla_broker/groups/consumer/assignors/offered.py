"""The assignors that a broker offers (`group.consumer.assignors`). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ottla_broker.groups.consumer.assignors.assignor import Assignor
from ottla_broker.groups.consumer.assignors.range_assignor import RANGE, assign_range
from ottla_broker.groups.consumer.assignors.uniform_assignor import UNIFORM, assign_uniform

_ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({UNIFORM: assign_uniform, RANGE: assign_range})

_CLASS_NAMES = MappingProxyType(
    {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": UNIFORM,
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": RANGE,
    }
)
"""Apache Kafka names them by class up to 3.9, by name as well from 4.0 on."""


def offered_assignors(configured: Iterable[str]) -> Mapping[str, Assignor]:
    """The assignors by name; the first is the default.

    Raises:
        ValueError: an entry names none of the two.

    >>> list(offered_assignors(["org.apache.kafka.coordinator.group.assignor.RangeAssignor", "uniform"]))
    ['range', 'uniform']
    """
    found: dict[str, Assignor] = {}
    for entry in configured:
        name = _CLASS_NAMES.get(entry, entry)
        if name not in _ASSIGNORS:
            raise ValueError(f"group.consumer.assignors: {entry} is neither {UNIFORM} nor {RANGE}")
        found[name] = _ASSIGNORS[name]
    if not found:
        raise ValueError("group.consumer.assignors names no assignor")
    return MappingProxyType(found)
